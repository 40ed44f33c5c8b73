//! Who would take an object with them: the managed chain.
//!
//! Karmada labels what it brings with `karmada.io/managed=true` and deletes nothing else. What such a thing has made (a
//! Deployment its `ReplicaSet`, that its pods) has no label of its own and is found by following owners. Whatever cannot be
//! followed to its end counts as managed: only what is proven to stay is said to stay.

use std::collections::{HashMap, HashSet};

use crate::world::Metadata;
use crate::world::fleet::{Object, Owner};

/// Karmada's mark.
const MANAGED: (&str, &str) = ("karmada.io/managed", "true");

/// Whether Karmada brought it.
pub(super) fn is_managed(metadata: &Metadata) -> bool {
    metadata.labels.get(MANAGED.0).is_some_and(|value| value == MANAGED.1)
}

/// What is remembered of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    /// As people are told it.
    pub(super) name: String,
    /// Whether it is in use.
    pub(super) counts: bool,
    /// Whether Karmada brought it.
    pub(super) managed: bool,
    uid: String,
    owners: Vec<Owner>,
}

impl Held {
    /// Remembers an object under the name that people are told.
    pub(super) fn of(object: Object, name: String, counts: bool) -> Self {
        Self { name, counts, managed: is_managed(&object.metadata), uid: object.uid, owners: object.owners }
    }
}

/// Everything that was read of one cluster, by uid.
pub(super) struct Chains<'h>(HashMap<&'h str, &'h Held>);

impl<'h> Chains<'h> {
    /// Of these objects.
    pub(super) fn of(held: impl Iterator<Item = &'h Held>) -> Self {
        Self(held.filter(|held| !held.uid.is_empty()).map(|held| (held.uid.as_str(), held)).collect())
    }

    /// Whether it is proven that nothing of Karmada takes the object with it.
    pub(super) fn leave(&self, object: &Held) -> bool {
        let mut seen = HashSet::new();
        let mut next = vec![object];
        while let Some(held) = next.pop() {
            if held.managed {
                return false;
            }
            for owner in &held.owners {
                // An owner that was not read may be anything.
                let Some(found) = self.0.get(owner.uid.as_str()) else { return false };
                if seen.insert(owner.uid.as_str()) {
                    next.push(found);
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(uid: &str, managed: bool, owners: &[&str]) -> Held {
        let owners = owners.iter().map(|uid| Owner { uid: (*uid).to_owned(), ..Owner::default() }).collect();
        Held { name: uid.to_owned(), counts: true, managed, uid: uid.to_owned(), owners }
    }

    #[test]
    fn karmadas_mark_is_one_value_of_one_label() {
        let marked = |key: &str, value: &str| {
            let labels = [(key.to_owned(), value.to_owned())].into();
            is_managed(&Metadata { labels, ..Metadata::default() })
        };
        assert!(marked("karmada.io/managed", "true"));
        for value in ["false", "", "True", "yes", "true "] {
            assert!(!marked("karmada.io/managed", value), "{value:?}");
        }
        assert!(!marked("karmada.io/managed-by", "true") && !is_managed(&Metadata::default()));
    }

    #[test]
    fn an_object_stays_only_if_every_owner_is_seen_and_none_is_managed() {
        let all = [
            held("deployment", true, &[]),
            held("set", false, &["deployment"]),
            held("pod", false, &["set"]),
            held("foreign-set", false, &[]),
            held("foreign-pod", false, &["foreign-set"]),
            held("operated", false, &["somewhere-else"]),
            held("two-owners", false, &["foreign-set", "set"]),
            held("nameless-owner", false, &[""]),
            held("a", false, &["b"]),
            held("b", false, &["a"]),
        ];
        let chains = Chains::of(all.iter());
        let staying: Vec<&str> = all.iter().filter(|h| chains.leave(h)).map(|h| h.uid.as_str()).collect();
        assert_eq!(staying, ["foreign-set", "foreign-pod", "a", "b"]);
    }
}
