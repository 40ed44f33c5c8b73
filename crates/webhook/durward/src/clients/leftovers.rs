//! Finds annotations of overrides on the objects that guards protect.

use std::time::{Instant, SystemTime};

use admission::Cause;
use cluster::fleet::{Cluster, ListQuery, Object};
use cluster::{Pages, Reader, Resource};
use config::SelectorExt as _;
use guards::overrides::{self, Leftover};
use guards::{GuardedNamespaces, GuardedObjects};

use super::fleet::{ANSWER_WITHIN, all_pages};

/// An object with annotations of overrides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundLeftover {
    /// Its resource.
    pub(crate) resource: Resource,
    /// Its namespace; empty for cluster-wide resources.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
    /// The annotations.
    pub(crate) leftover: Leftover,
}

impl FoundLeftover {
    /// Returns the object as in kubectl's command line, without the namespace: `pod etcd-1`.
    pub(crate) fn object(&self) -> String {
        let word = match self.resource.plural.as_ref() {
            "namespaces" => "ns",
            "customresourcedefinitions" => "crd",
            _ if self.resource.group.is_empty() => &*self.resource.singular(),
            _ => &*self.resource.to_string(),
        };
        format!("{word} {}", self.name)
    }

    /// Returns the object with its namespace, for messages.
    pub(crate) fn text(&self) -> String {
        let namespace =
            if self.namespace.is_empty() { String::new() } else { format!(" in {}", self.namespace) };
        format!("{}{namespace}", self.object())
    }
}

/// Lists guarded objects, and returns those with annotations of overrides, and why some could not be listed.
pub(crate) async fn find(
    reader: &dyn Reader,
    guarded: &[GuardedObjects],
    now: SystemTime,
) -> (Vec<FoundLeftover>, Vec<Cause>) {
    let (mut found, mut failures) = (Vec::new(), Vec::new());
    for objects in guarded {
        let namespaces = match &objects.namespaces {
            GuardedNamespaces::None | GuardedNamespaces::All => Ok(vec![String::new()]),
            GuardedNamespaces::Named(name) => Ok(vec![name.clone()]),
            GuardedNamespaces::Labeled(selector) => {
                all_pages(reader, &Cluster::Local, &Resource::NAMESPACES).await.map(|all| {
                    let selected = all.into_iter().filter(|one| selector.matches(&one.metadata.labels));
                    selected.map(|one| one.name).collect()
                })
            }
        };
        let namespaces = namespaces.unwrap_or_else(|why| {
            failures.push(why);
            Vec::new()
        });
        for namespace in namespaces {
            failures.extend(search(reader, objects, &namespace, now, &mut found).await.err());
        }
    }
    (found, failures)
}

/// Adds the objects of a namespace. It keeps one page in memory, because a namespace can have any number of pods.
async fn search(
    reader: &dyn Reader,
    objects: &GuardedObjects,
    namespace: &str,
    now: SystemTime,
    found: &mut Vec<FoundLeftover>,
) -> Result<(), Cause> {
    let query = ListQuery { namespace, ..ListQuery::new(&objects.resource) };
    let mut pages = Pages::new(reader, &Cluster::Local, query, Instant::now() + ANSWER_WITHIN);
    while let Some(page) = pages.next().await? {
        for one in page.objects.into_iter().filter_map(|one| left_on(objects, one, now)) {
            // Two entries can select the same namespace.
            if !found.contains(&one) {
                found.push(one);
            }
        }
    }
    Ok(())
}

/// Returns the annotations of an object that is not being deleted.
fn left_on(objects: &GuardedObjects, object: Object, now: SystemTime) -> Option<FoundLeftover> {
    if object.metadata.deleting {
        return None;
    }
    let leftover = overrides::leftover(objects.overrides, &object.name, &object.metadata.annotations, now)?;
    let Object { namespace, name, .. } = object;
    Some(FoundLeftover { resource: objects.resource.clone(), namespace, name, leftover })
}
