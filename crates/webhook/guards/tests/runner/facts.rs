//! Objects of one cluster, for guards that read single objects: `facts` of a case.
//!
//! Objects are listed by the plural of their resource, and namespaced ones as `namespace/name`. An object that is not listed is
//! Unknown, not absent.
//!
//! ```yaml
//! namespaces:
//!   shop: {labels: {team: a}}
//!   gone: {absent: true}
//!   dark: {unknown: timeout}
//!   late: {labels: {team: b}, cached: {team: a}}   # the labels in the cache; an uncached read returns the others
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use admission::Cause;
use cluster::fleet::{Cluster, Object};
use cluster::world::{ObjectList, Scope, World};
use cluster::{Metadata, Resource};
use libtest_mimic::Failed;
use serde::Deserialize;

use super::code;

/// The objects of a case.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Facts(BTreeMap<String, BTreeMap<String, Fact>>);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Fact {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    deleting: bool,
    absent: bool,
    unknown: Option<String>,
    cached: Option<BTreeMap<String, String>>,
}

impl Facts {
    /// Returns the cluster that contains them.
    pub(crate) fn world(self) -> Result<World, Failed> {
        let mut world = World::default();
        let local = world.cluster(&Cluster::Local);
        for (plural, facts) in self.0 {
            let resource = Resource { group: "".into(), version: "v1".into(), plural: plural.into() };
            let names = facts.keys().map(|name| name.rsplit('/').next().unwrap_or(name).to_owned());
            let names: BTreeSet<String> = names.collect();
            let mut list = ObjectList::new(Scope { names: Some(names), ..Scope::default() });
            for (name, fact) in facts {
                let (namespace, name) = name.rsplit_once('/').unwrap_or(("", &name));
                let key = (resource.clone(), namespace.to_owned(), name.to_owned());
                if let Some(unknown) = &fact.unknown {
                    let address = cluster::Address { resource: &resource, namespace, name };
                    let cause = Cause::new(code(unknown)?, format!("{address} could not be read"));
                    local.failures.insert(key, cause);
                } else if !fact.absent {
                    let Fact { labels, annotations, deleting, cached, .. } = fact;
                    if let Some(labels) = cached {
                        local.cached.insert(key, Arc::new(Metadata { labels, ..Metadata::default() }));
                    }
                    list.insert(Object {
                        namespace: namespace.to_owned(),
                        name: name.to_owned(),
                        metadata: Metadata { labels, annotations, deleting },
                        ..Object::default()
                    });
                }
            }
            local.lists.insert(resource, Ok(list));
        }
        Ok(world)
    }
}
