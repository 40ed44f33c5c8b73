//! The objects that Argo CD deletes with an Application or an `ApplicationSet`.
//!
//! The Applications of an `ApplicationSet` have it as their owner, so they go with it. An Application takes its resources along if it has
//! the finalizer; `preserveResourcesOnDeletion` of the set only means that Argo CD gives it none. CRDs always stay, and so do resources
//! with the sync option `Delete=false`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use admission::Cause;
use cluster::fleet::{Cluster, ListQuery, Part};
use cluster::{Pages, Reader, Resource, cause};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use super::report::ObjectName;
use crate::clients::fleet::ANSWER_WITHIN;

/// The API group of Argo CD.
pub(super) const GROUP: &str = "argoproj.io";
pub(super) const APPLICATION: &str = "Application";
pub(super) const APPLICATION_SET: &str = "ApplicationSet";

/// Applications, which `snapshot` records too.
pub(crate) const APPLICATIONS: Resource = Resource {
    group: Cow::Borrowed(GROUP),
    version: Cow::Borrowed("v1alpha1"),
    plural: Cow::Borrowed("applications"),
};

/// The finalizer by which Argo CD deletes the resources, with or without a way to delete after a `/`.
const FINALIZER: &str = "resources-finalizer.argocd.argoproj.io";

/// The names in an Application for the cluster in which Argo CD runs.
const IN_CLUSTER: [&str; 2] = ["https://kubernetes.default.svc", "in-cluster"];

/// The Applications of the local cluster.
#[derive(Debug, Default)]
pub(super) struct ArgoCd {
    applications: BTreeMap<(String, String), Application>,
}

/// An Application in the cluster.
#[derive(Debug)]
pub(super) struct Application {
    /// The name of its `ApplicationSet`, in the same namespace.
    set: Option<String>,
    /// Whether it takes its resources along.
    pub(super) cascades: bool,
    /// The cluster of its resources: `None` for the cluster in which Argo CD runs.
    pub(super) destination: Option<String>,
    /// Its resources by its status, except CRDs.
    pub(super) resources: Vec<ObjectName>,
}

impl ArgoCd {
    /// Reads all Applications.
    pub(super) async fn read(reader: &dyn Reader) -> Result<Self, Cause> {
        let query = ListQuery { part: Part::Whole, ..ListQuery::new(&APPLICATIONS) };
        let mut pages = Pages::with_page_timeout(reader, &Cluster::Local, query, ANSWER_WITHIN);
        let mut found = Self::default();
        while let Some(page) = pages.next().await? {
            for object in page.objects {
                let raw = object.raw.as_ref().map_or("{}", |raw| raw.get());
                let wire: Wire = serde_json::from_str(raw).map_err(|error| {
                    let text = format!("Application {}/{}: {error}", object.namespace, object.name);
                    Cause::new(cause::GARBAGE, text)
                })?;
                found.applications.insert((object.namespace, object.name), wire.into());
            }
        }
        Ok(found)
    }

    /// Returns an Application by its namespace, or with this name in any namespace if the manifest has none.
    pub(super) fn application(&self, namespace: &str, name: &str) -> Option<(ObjectName, &Application)> {
        let is_it =
            |(of, known): &&(String, String)| known == name && (namespace.is_empty() || of == namespace);
        let key = self.applications.keys().find(is_it)?;
        Some((named(key), self.applications.get(key)?))
    }

    /// Returns the Applications of an `ApplicationSet`.
    pub(super) fn of_set(&self, namespace: &str, name: &str) -> Vec<ObjectName> {
        let is_in = |of: &str| namespace.is_empty() || of == namespace;
        let all = self.applications.iter();
        let of_set = all.filter(|((of, _), one)| one.set.as_deref() == Some(name) && is_in(of));
        of_set.map(|(key, _)| named(key)).collect()
    }
}

fn named((namespace, name): &(String, String)) -> ObjectName {
    ObjectName {
        group: GROUP.to_owned(),
        kind: APPLICATION.to_owned(),
        namespace: namespace.clone(),
        name: name.clone(),
    }
}

/// The part of an Application that is read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Wire {
    metadata: ObjectMeta,
    spec: WireSpec,
    status: WireStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireSpec {
    destination: WireDestination,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireDestination {
    server: String,
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireStatus {
    resources: Vec<ObjectName>,
}

impl From<Wire> for Application {
    fn from(wire: Wire) -> Self {
        let Wire { metadata, spec, status } = wire;
        let WireDestination { server, name } = spec.destination;
        let destination = if server.is_empty() { name } else { server };
        let is_finalizer = |text: &String| text.split('/').next() == Some(FINALIZER);
        let mut owners = metadata.owner_references.into_iter().flatten();
        let set = owners.find(|owner| owner.kind == APPLICATION_SET).map(|owner| owner.name);
        Self {
            set,
            cascades: metadata.finalizers.iter().flatten().any(is_finalizer),
            destination: Some(destination).filter(|of| !IN_CLUSTER.contains(&of.as_str())),
            resources: status.resources.into_iter().filter(|object| !object.is_crd()).collect(),
        }
    }
}
