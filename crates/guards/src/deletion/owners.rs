//! Finds out which objects stay when Karmada deletes what it deployed.
//!
//! Karmada labels what it deploys with `karmada.io/managed=true` and deletes nothing else. Dependents of such an object (the
//! `ReplicaSet` of a Deployment, its pods) have no label; this module finds them through `ownerReferences`. An object whose
//! owners are not all known counts as managed, so only objects that certainly stay are reported to stay.
//!
//! Users of a member cluster decide how many objects there are and who owns whom. One pass therefore judges all objects of a
//! cluster, and the lists of all clusters share one memory [`Budget`].

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Deref;
use std::sync::Arc;

use admission::Cause;
use admission::budget::{Budget, Reservation};

use super::findings::MAX_NAMES;
use cluster::fleet::Object;
use cluster::{Metadata, cause};

/// The label of objects that Karmada deployed.
const MANAGED: (&str, &str) = ("karmada.io/managed", "true");

/// Bytes for one List: 20,000 objects with one owner each, names of 60 bytes and UUIDs take 5 MiB.
const MAX_LIST_BYTES: usize = 6 << 20;

/// Bytes for all Lists. The ten Lists of one cluster always fit, so a cluster that finds the budget spent can be read later.
const MAX_BYTES: usize = 62 << 20;

/// Whether Karmada deployed the object.
pub(super) fn is_managed(metadata: &Metadata) -> bool {
    metadata.labels.get(MANAGED.0).is_some_and(|value| value == MANAGED.1)
}

/// An object of a List, without what the decision does not need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListedObject {
    /// The name in messages; empty for an object that is not in use, since no message names it.
    pub(super) name: Box<str>,
    /// Whether the object is in use.
    pub(super) in_use: bool,
    /// Whether Karmada deployed it.
    pub(super) managed: bool,
    /// `None` for an empty uid, which identifies nothing.
    uid: Option<Box<str>>,
    /// The uids of the owners. `None` if an owner has no uid and so could be any object.
    owners: Option<Box<[Box<str>]>>,
}

impl ListedObject {
    /// Copies the needed parts of an object.
    pub(super) fn of(object: &Object, name: &str, in_use: bool) -> Self {
        let managed = is_managed(&object.metadata);
        // A managed object is deleted whatever its owners are.
        let owners = object.owners.iter().take(if managed { 0 } else { usize::MAX });
        let uid = |uid: &str| (!uid.is_empty()).then(|| Box::from(uid));
        Self {
            name: if in_use { name.into() } else { Box::default() },
            in_use,
            managed,
            uid: uid(&object.uid),
            owners: owners.map(|owner| uid(&owner.uid)).collect(),
        }
    }

    /// Whether the object is deleted whatever happens to its owners.
    fn is_deleted(&self) -> bool {
        self.managed || self.owners.is_none()
    }

    fn owners(&self) -> &[Box<str>] {
        self.owners.as_deref().unwrap_or_default()
    }

    /// Returns the size in bytes, about. A vector may have capacity for twice its length.
    fn size(&self) -> usize {
        let owners = self.owners();
        let uids: usize = owners.iter().chain(&self.uid).map(|uid| uid.len()).sum();
        2 * size_of::<Self>() + self.name.len() + size_of_val(owners) + uids
    }
}

/// Creates the memory budget that the lists of all clusters share.
pub(super) fn budget() -> Arc<Budget> {
    Budget::new(MAX_BYTES)
}

/// The objects of one List, with a reservation for their memory.
#[derive(Debug)]
pub(super) struct ObjectSet {
    objects: Vec<ListedObject>,
    /// Objects that are certainly deleted: all of them, and those that are only counted.
    deleted: usize,
    only_counted: usize,
    memory: Reservation,
}

impl ObjectSet {
    /// Creates an empty set.
    pub(super) fn new(budget: &Arc<Budget>) -> Self {
        Self { objects: Vec::new(), deleted: 0, only_counted: 0, memory: budget.empty() }
    }

    /// Adds an object that is in use and certainly deleted. The set keeps as many as messages name, without a reservation, and
    /// counts the others. Dependents of a counted object still count as deleted, since they have an unknown owner.
    pub(super) fn add_deleted(&mut self, object: ListedObject) {
        self.deleted += 1;
        if self.deleted <= MAX_NAMES { self.objects.push(object) } else { self.only_counted += 1 }
    }

    /// Returns how many objects were only counted.
    pub(super) fn only_counted(&self) -> usize {
        self.only_counted
    }

    /// Returns how many objects there are.
    pub(super) fn len(&self) -> usize {
        self.objects.len() + self.only_counted
    }

    /// Adds an object if the budget has memory for it.
    pub(super) fn add(&mut self, object: ListedObject) -> Result<(), Cause> {
        let size = object.size();
        if self.memory.amount() + size > MAX_LIST_BYTES {
            let text = format!(
                "the owners of its objects take more than {} MiB: too much to find out what Karmada deployed",
                MAX_LIST_BYTES >> 20
            );
            return Err(Cause::new(cause::TOO_LONG, text));
        }
        if !self.memory.grow(size) {
            let text = format!(
                "Durward has no memory left to find out what Karmada deployed in all clusters ({} MiB); retry",
                MAX_BYTES >> 20
            );
            return Err(Cause::new(cause::OVERLOADED, text));
        }
        self.objects.push(object);
        Ok(())
    }
}

impl Deref for ObjectSet {
    type Target = [ListedObject];

    fn deref(&self) -> &[ListedObject] {
        &self.objects
    }
}

/// Returns for each object whether it certainly survives. `objects` are all that were read of one cluster.
///
/// One pass marks the objects that are certainly deleted and then their dependents. Objects that own each other in a circle
/// survive if no other object owns one of them.
pub(super) fn survivors<'o>(objects: impl Iterator<Item = &'o ListedObject>) -> Vec<bool> {
    let objects: Vec<&ListedObject> = objects.collect();
    // For each object the indices of the objects that are deleted with it.
    let mut dependents = vec![Vec::new(); objects.len()];
    let mut add = |owner: usize, dependent: usize| {
        if let Some(dependents) = dependents.get_mut(owner) {
            dependents.push(dependent);
        }
    };
    let mut by_uid: HashMap<&str, usize> = HashMap::with_capacity(objects.len());
    for (at, object) in objects.iter().enumerate() {
        let Some(uid) = &object.uid else { continue };
        match by_uid.entry(uid) {
            Entry::Vacant(free) => drop(free.insert(at)),
            // Two Lists returned the same object, perhaps at different times. If one entry is deleted, so is the other.
            Entry::Occupied(same) => {
                add(*same.get(), at);
                add(at, *same.get());
            }
        }
    }
    let mut survives = vec![true; objects.len()];
    let mut deleted = Vec::new();
    for ((at, object), survives) in objects.iter().enumerate().zip(&mut survives) {
        *survives = !object.is_deleted();
        for owner in object.owners() {
            match by_uid.get(owner.as_ref()) {
                Some(&owner) => add(owner, at),
                // An owner that was not read could be managed.
                None => *survives = false,
            }
        }
        if !*survives {
            deleted.push(at);
        }
    }
    while let Some(at) = deleted.pop() {
        for dependent in dependents.get_mut(at).map(std::mem::take).unwrap_or_default() {
            if let Some(survives) = survives.get_mut(dependent)
                && std::mem::replace(survives, false)
            {
                deleted.push(dependent);
            }
        }
    }
    survives
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use cluster::fleet::Owner;

    fn object(uid: &str, managed: bool, owners: &[&str]) -> ListedObject {
        let owners = owners.iter().map(|uid| Owner { uid: (*uid).to_owned(), ..Owner::default() }).collect();
        let mut full = Object { uid: uid.to_owned(), owners, ..Object::default() };
        if managed {
            full.metadata.labels.insert(MANAGED.0.to_owned(), MANAGED.1.to_owned());
        }
        ListedObject::of(&full, uid, true)
    }

    #[test]
    fn recognizes_managed_objects_by_one_value_of_one_label() {
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
    fn an_object_survives_only_if_all_owners_are_known_and_none_is_managed() {
        let all = [
            object("deployment", true, &[]),
            object("set", false, &["deployment"]),
            object("pod", false, &["set"]),
            object("foreign-set", false, &[]),
            object("foreign-pod", false, &["foreign-set"]),
            object("operated", false, &["somewhere-else"]),
            object("two-owners", false, &["foreign-set", "set"]),
            object("nameless-owner", false, &[""]),
            object("a", false, &["b"]),
            object("b", false, &["a"]),
        ];
        let survives = survivors(all.iter());
        let surviving: Vec<&str> =
            all.iter().zip(survives).filter(|(_, survives)| *survives).map(|(one, _)| &*one.name).collect();
        assert_eq!(surviving, ["foreign-set", "foreign-pod", "a", "b"]);
    }

    /// One object of a graph: its uid, whether it is managed, and its owners' uids.
    type Node = (String, bool, Vec<String>);

    /// Decides for one object, by following its owners.
    fn survives_by_definition(all: &[Node], from: usize) -> bool {
        let mut seen = HashSet::new();
        let mut next = vec![&all[from]];
        while let Some((_, managed, owners)) = next.pop() {
            if *managed {
                return false;
            }
            for owner in owners {
                let found = all.iter().find(|(uid, ..)| !uid.is_empty() && uid == owner);
                let Some(found) = found else { return false };
                if seen.insert(owner) {
                    next.push(found);
                }
            }
        }
        true
    }

    /// Random numbers that are the same in every run.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.0 >> 33).unwrap() % end
        }
    }

    fn uid(at: usize) -> String {
        if at.is_multiple_of(3) { format!("odd-{at}") } else { format!("0c55d5f0-0c55-4e3a-9d57-{at:012x}") }
    }

    fn graph(dice: &mut Dice) -> Vec<Node> {
        let objects = 1 + dice.below(24);
        let (marked, unknown, nameless) = (dice.below(6), dice.below(4), dice.below(3));
        let most = 1 + dice.below(4);
        (0..objects)
            .map(|at| {
                let owners = (0..dice.below(most + 1))
                    .map(|_| match dice.below(40) {
                        roll if roll < unknown => uid(1000 + roll),
                        roll if roll < unknown + nameless => String::new(),
                        _ => uid(dice.below(objects)),
                    })
                    .collect();
                let uid = if dice.below(30) == 0 { String::new() } else { uid(at) };
                (uid, dice.below(30) < marked, owners)
            })
            .collect()
    }

    #[test]
    fn one_pass_gives_the_same_result_as_following_the_owners_of_each_object() {
        let mut dice = Dice(7);
        let (mut stay, mut go) = (0, 0);
        for round in 0..4_000 {
            let graph = graph(&mut dice);
            let all: Vec<ListedObject> = graph
                .iter()
                .map(|(uid, managed, owners)| {
                    object(uid, *managed, &owners.iter().map(String::as_str).collect::<Vec<_>>())
                })
                .collect();
            let expected: Vec<bool> = (0..graph.len()).map(|at| survives_by_definition(&graph, at)).collect();
            assert_eq!(survivors(all.iter()), expected, "round {round}: {graph:?}");
            stay += expected.iter().filter(|stays| **stays).count();
            go += expected.iter().filter(|stays| !**stays).count();
        }
        assert!(stay > 5_000 && go > 5_000, "both are tried: {stay} stay, {go} go");
    }

    #[test]
    fn follows_a_chain_of_100_000_owners_once() {
        // Following the owners of each object would take five billion steps.
        let chain = |managed| {
            let mut all = vec![object(&uid(0), managed, &[])];
            all.extend((1..100_000).map(|at| object(&uid(at), false, &[&uid(at - 1)])));
            survivors(all.iter())
        };
        assert!(chain(false).into_iter().all(|stays| stays));
        assert!(!chain(true).into_iter().any(|stays| stays));
    }

    #[test]
    fn deletes_both_entries_of_an_object_that_two_lists_returned() {
        for twice in [[true, false], [false, true]] {
            let all = [object("a", twice[0], &[]), object("a", twice[1], &[]), object("b", false, &["a"])];
            assert_eq!(survivors(all.iter()), [false; 3], "{twice:?}");
        }
    }

    #[test]
    fn the_lists_of_all_clusters_share_a_budget_and_return_their_bytes() {
        let one = || object(&uid(1), false, &[&uid(2)]);
        let budget = Budget::new(one().size() * 3);
        let mut first = ObjectSet::new(&budget);
        first.add(one()).unwrap();
        first.add(one()).unwrap();
        let mut second = ObjectSet::new(&budget);
        second.add(one()).unwrap();
        let full = second.add(one()).unwrap_err();
        assert_eq!(full.code, cause::OVERLOADED);
        assert!(full.text.starts_with("Durward has no memory left"), "{}", full.text);
        assert_eq!((first.len(), second.len()), (2, 1));
        drop(first);
        second.add(one()).unwrap();
        drop(second);
        assert!(budget.reserve(3 * one().size()).is_some(), "everything was returned");
    }

    #[test]
    fn one_list_never_takes_so_much_that_a_cluster_has_no_budget_for_all_of_its_own() {
        let budget = budget();
        let mut set = ObjectSet::new(&budget);
        let owners: Vec<String> = (0..1_000).map(uid).collect();
        let owners: Vec<&str> = owners.iter().map(String::as_str).collect();
        let refused = (0..20_000).find_map(|at| set.add(object(&uid(at), false, &owners)).err()).unwrap();
        assert_eq!(refused.code, cause::TOO_LONG, "{}", refused.text);
        assert!(9 * set.memory.amount() <= MAX_BYTES);
        let usual = ListedObject::of(
            &Object {
                uid: uid(1),
                owners: vec![Owner { uid: uid(2), ..Owner::default() }],
                ..Object::default()
            },
            &"n".repeat(60),
            true,
        );
        assert!(20_000 * usual.size() <= MAX_LIST_BYTES, "{}", usual.size());
    }

    #[test]
    fn keeps_a_few_of_the_certainly_deleted_objects_and_counts_the_others() {
        let budget = Budget::new(0);
        let mut set = ObjectSet::new(&budget);
        for at in 0..500 {
            set.add_deleted(object(&uid(at), true, &[]));
        }
        assert_eq!((set.iter().count(), set.only_counted(), set.len()), (MAX_NAMES, 500 - MAX_NAMES, 500));
    }
}
