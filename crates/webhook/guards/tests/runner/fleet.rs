//! Several clusters, for guards that read a fleet: `fleet` of a case.
//!
//! ```yaml
//! members:                                  # the list of the fleet; membersUnknown: timeout where it could not be read
//!   m1: {annotations: {a: b}}
//! clusters:
//!   (local): {rest: empty}                  # what is not listed below: empty, or a cause
//!   m1:
//!     rest: timeout
//!     unknown: {jobs.batch: forbidden}      # or, for single ones
//!     lists:
//!       namespaces: [{name: shop}]
//!       pods: [{namespace: shop, name: web-0, phase: Running}]
//!       widgets.example.org/v1: [{name: a}] # only at this version; at every one without it
//! ```
//!
//! Field selectors match `phase` and `type`.

use std::collections::BTreeMap;

use admission::Cause;
use cluster::fleet::{Cluster, LOCAL, Object};
use cluster::world::{ClusterContent, ObjectList, Rest, Scope, World};
use cluster::{Metadata, Resource};
use libtest_mimic::Failed;
use serde::Deserialize;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::code;

/// A resource without a version is served at each of these.
const VERSIONS: [&str; 4] = ["v1", "v2", "v1alpha1", "v1beta1"];

/// The clusters of a case.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct FleetFacts {
    #[serde(default)]
    members: BTreeMap<String, Labelled>,
    members_unknown: Option<String>,
    clusters: BTreeMap<String, ClusterFacts>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Labelled {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    deleting: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClusterFacts {
    rest: String,
    #[serde(default)]
    unknown: BTreeMap<String, String>,
    #[serde(default)]
    lists: BTreeMap<String, Vec<Item>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Item {
    namespace: String,
    name: String,
    uid: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    deleting: bool,
    phase: String,
    r#type: String,
    whole: Option<Value>,
}

const EMPTY: &str = "empty";

impl FleetFacts {
    /// Returns the clusters.
    pub(crate) fn world(self) -> Result<World, Failed> {
        let mut world = World::default();
        for (name, facts) in self.clusters {
            let of = if name == LOCAL { Cluster::Local } else { Cluster::Member(name.as_str().into()) };
            *world.cluster(&of) = facts.content()?;
        }
        let members = match self.members_unknown {
            Some(unknown) => Err(Cause::new(code(&unknown)?, unknown)),
            None => Ok(list(self.members.into_iter().map(|(name, facts)| facts.object(name)))),
        };
        let local = world.cluster(&Cluster::Local);
        for resource in resources("clusters.cluster.karmada.io", &["v1alpha1"]) {
            local.lists.insert(resource, members.clone());
        }
        Ok(world)
    }
}

/// Returns the resource `plural.group` at these versions, or at the one behind a slash.
fn resources(name: &str, versions: &[&str]) -> Vec<Resource> {
    let (name, version) = name.split_once('/').map_or((name, None), |(name, version)| (name, Some(version)));
    let (plural, group) = name.split_once('.').unwrap_or((name, ""));
    let versions = version.map_or_else(|| versions.to_vec(), |version| vec![version]);
    let resource = |version: &str| Resource {
        group: group.to_owned().into(),
        version: version.to_owned().into(),
        plural: plural.to_owned().into(),
    };
    versions.into_iter().map(resource).collect()
}

fn list(objects: impl Iterator<Item = Object>) -> ObjectList {
    let mut list = ObjectList::new(Scope { is_whole: true, ..Scope::default() });
    for object in objects {
        list.insert(object);
    }
    list
}

impl ClusterFacts {
    fn content(self) -> Result<ClusterContent, Failed> {
        let rest = match self.rest.as_str() {
            EMPTY => Rest::Empty,
            other => Rest::Failed(Cause::new(code(other)?, other)),
        };
        let mut content = ClusterContent { rest, ..ClusterContent::default() };
        for (name, items) in self.lists {
            let list = list(items.into_iter().map(Item::object));
            for resource in resources(&name, &VERSIONS) {
                content.lists.insert(resource, Ok(list.clone()));
            }
        }
        for (name, unknown) in self.unknown {
            for resource in resources(&name, &VERSIONS) {
                content.lists.insert(resource, Err(Cause::new(code(&unknown)?, &unknown)));
            }
        }
        Ok(content)
    }
}

impl Labelled {
    /// Returns Karmada's Cluster.
    fn object(self, name: String) -> Object {
        let Self { labels, annotations, deleting } = self;
        Item { name, labels, annotations, deleting, ..Item::default() }.object()
    }
}

impl Item {
    fn object(self) -> Object {
        let Self { namespace, name, uid, labels, annotations, deleting, phase, r#type, whole } = self;
        let whole = whole.unwrap_or_else(|| json!({"status": {"phase": phase}, "spec": {"type": r#type}}));
        let metadata = Metadata { labels, annotations, deleting };
        Object { namespace, name, uid, metadata, raw: to_raw_value(&whole).ok() }
    }
}
