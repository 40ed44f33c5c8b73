//! Objects that cases create in clusters, and checks for them.

use std::sync::atomic::{AtomicU32, Ordering};

use e2e::prelude::*;

use super::environment::GROUP;
use crate::cases::attempt::{Attempt, DELETION};
use crate::cases::objects::await_deleted;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub(super) fn delete(api: &Api, path: &str) -> Result<Attempt> {
    Ok(Attempt::new(api.delete(path)?, &DELETION))
}

pub(super) fn dry_run(api: &Api, path: &str) -> Result<Attempt> {
    let separator = if path.contains('?') { '&' } else { '?' };
    delete(api, &format!("{path}{separator}dryRun=All"))
}

pub(super) fn path_of(namespace: &Namespace<'_>) -> String {
    format!("/api/v1/namespaces/{}", namespace.name())
}

/// Waits until the object is deleted or being deleted on the control plane and in every member.
pub(super) fn await_deleted_everywhere(fleet: &Fleet, path: &str) -> Result<()> {
    for member in fleet.members() {
        await_deleted(member, path)?;
    }
    await_deleted(fleet.karmada(), path)
}

pub(super) fn get(cluster: &Cluster, path: &str) -> Result<Value> {
    Ok(cluster.api().get(path)?.succeeded()?.body)
}

/// Expects the object at this path to exist without a deletion timestamp.
pub(super) fn exists(cluster: &Cluster, path: &str) -> Result<()> {
    let object = get(cluster, path)?;
    let deleted = &object["metadata"]["deletionTimestamp"];
    ensure!(deleted.is_null(), "{path} is being deleted since {deleted}");
    Ok(())
}

pub(super) fn remove(cluster: &Cluster, path: &str) -> Result<()> {
    cluster.api().delete(path)?.succeeded().map(drop)
}

pub(super) fn annotate(cluster: &Cluster, path: &str, annotations: &Value) -> Result<()> {
    cluster.api().merge(path, &json!({"metadata": {"annotations": annotations}}))?.succeeded().map(drop)
}

/// Returns a Deployment whose pods never run.
pub(super) fn deployment(name: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "app", "image": "images.example/app:1"}]},
            },
        },
    })
}

/// Creates an object in a namespace and returns its path; `resource` is as in [`Namespace::path`].
pub(super) fn create(namespace: &Namespace<'_>, resource: &str, object: &Value) -> Result<String> {
    let path = namespace.path(resource);
    namespace.cluster().api().create(&path, object)?.succeeded()?;
    Ok(format!("{path}/{}", object["metadata"]["name"].as_str().unwrap_or_default()))
}

/// A CRD with a unique name. [`Crd::create_in`] creates it in a cluster.
#[derive(Debug, Clone)]
pub(in crate::cases) struct Crd {
    plural: String,
    group: String,
    versions: Vec<&'static str>,
    labels: Value,
}

impl Crd {
    /// Returns a CRD that serves these versions and stores the last one.
    pub(in crate::cases) fn new(versions: &[&'static str]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self {
            plural: format!("widgets{number}"),
            group: GROUP.to_owned(),
            versions: versions.to_vec(),
            labels: json!({}),
        }
    }

    pub(in crate::cases) fn of_group(mut self, group: &str) -> Self {
        group.clone_into(&mut self.group);
        self
    }

    pub(in crate::cases) fn labelled(mut self, labels: Value) -> Self {
        self.labels = labels;
        self
    }

    pub(in crate::cases) fn with_versions(&self, versions: &[&'static str]) -> Self {
        Self { versions: versions.to_vec(), ..self.clone() }
    }

    pub(in crate::cases) fn name(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }

    pub(in crate::cases) fn path(&self) -> String {
        format!("{CRDS}/{}", self.name())
    }

    /// Returns the path of its objects at a version in a namespace.
    pub(in crate::cases) fn objects(&self, version: &str, namespace: &str) -> String {
        format!("/apis/{}/{version}/namespaces/{namespace}/{}", self.group, self.plural)
    }

    pub(in crate::cases) fn object(&self) -> Value {
        let last = self.versions.len().saturating_sub(1);
        let versions: Vec<Value> = self
            .versions
            .iter()
            .enumerate()
            .map(|(at, version)| {
                json!({
                    "name": version, "served": true, "storage": at == last,
                    "schema": {"openAPIV3Schema": {
                        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    }},
                })
            })
            .collect();
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": self.name(), "labels": self.labels},
            "spec": {
                "group": self.group, "scope": "Namespaced", "versions": versions,
                "names": {"plural": self.plural, "singular": self.plural.trim_end_matches('s'), "kind": self.kind()},
            },
        })
    }

    fn kind(&self) -> String {
        self.plural.replacen('w', "W", 1)
    }

    /// Creates it in a cluster and waits until its objects are served.
    pub(in crate::cases) fn create_in(&self, cluster: &Cluster) -> Result<()> {
        cluster.api().create(CRDS, &self.object())?.succeeded()?;
        self.await_served(cluster)
    }

    /// Creates it on the control plane and makes Karmada propagate it to every member.
    pub(in crate::cases) fn create_propagated(&self, fleet: &Fleet, preserved: bool) -> Result<()> {
        self.create_in(fleet.karmada())?;
        let selector = json!([{
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "name": self.name(),
        }]);
        let names: Vec<&str> = fleet.members().iter().map(Member::name).collect();
        let policy = json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterPropagationPolicy",
            "metadata": {"name": self.plural},
            "spec": {
                "resourceSelectors": selector, "preserveResourcesOnDeletion": preserved,
                "placement": {"clusterAffinity": {"clusterNames": names}},
            },
        });
        fleet.karmada().kubectl().apply(&policy.to_string())?.succeeded()?;
        for member in fleet.members() {
            fleet.await_propagated(member, &self.path())?;
            self.await_served(member)?;
        }
        Ok(())
    }

    /// Creates an object of it and returns its path.
    pub(in crate::cases) fn create_object(
        &self,
        namespace: &Namespace<'_>,
        version: &str,
        name: &str,
    ) -> Result<String> {
        let object = json!({
            "apiVersion": format!("{}/{version}", self.group), "kind": self.kind(), "metadata": {"name": name},
        });
        let path = self.objects(version, namespace.name());
        namespace.cluster().api().create(&path, &object)?.succeeded()?;
        Ok(format!("{path}/{name}"))
    }

    fn await_served(&self, cluster: &Cluster) -> Result<()> {
        let path = self.objects(self.versions.last().copied().unwrap_or_default(), "default");
        until(format_args!("{path} to be served"), || {
            let answer = cluster.api().get(&path)?;
            Ok((answer.is_success(), answer.body.to_string()))
        })
    }
}

/// Waits until a GET of this path returns a matching status.
pub(super) fn await_status(cluster: &Cluster, path: &str, fits: impl Fn(u16) -> bool) -> Result<()> {
    until(format_args!("{path} to be answered otherwise"), || {
        let answer = cluster.api().get(path)?;
        let text = format!("{} {}", answer.status, answer.message());
        Ok((fits(answer.status), text))
    })
}
