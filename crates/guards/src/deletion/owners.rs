//! Who would take an object with them: the managed chain.
//!
//! Karmada labels what it brings with `karmada.io/managed=true` and deletes nothing else. What such a thing has made (a
//! Deployment its `ReplicaSet`, that its pods) has no label of its own and is found by following owners. Whatever cannot be
//! followed to its end counts as managed: only what is proven to stay is said to stay.
//!
//! Who may make objects in a member decides how many there are and who owns whom. So all of a cluster's are judged in one pass,
//! and what all clusters together hold meanwhile has one [`Room`].

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};

use admission::Cause;

use super::sight::NAMES;
use cluster::fleet::Object;
use cluster::{Metadata, cause};

/// Karmada's mark.
const MANAGED: (&str, &str) = ("karmada.io/managed", "true");

/// 6 MiB for one List: 20,000 objects with an owner each, and names of 60 bytes, are 5 MiB.
const LIST: usize = 6 << 20;

/// 56 MiB for all that is looked at: the nine Lists of one cluster have room in any case, so that a cluster for which there is
/// none now can be looked at when the others are done.
const ALL: usize = 56 << 20;

/// Whether Karmada brought it.
pub(super) fn is_managed(metadata: &Metadata) -> bool {
    metadata.labels.get(MANAGED.0).is_some_and(|value| value == MANAGED.1)
}

/// A uid. Nearly every one is 128 bits in their usual form, which are kept as such.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Uid {
    Usual([u8; 16]),
    Odd(Box<str>),
}

impl Uid {
    /// None for an empty text, which names nothing.
    fn of(text: &str) -> Option<Self> {
        if text.is_empty() {
            return None;
        }
        Some(bits(text).map_or_else(|| Self::Odd(text.into()), Self::Usual))
    }

    fn beside(&self) -> usize {
        match self {
            Self::Usual(_) => 0,
            Self::Odd(text) => text.len(),
        }
    }
}

/// Of exactly one text each: eight, four, four, four and twelve digits, in lower case.
fn bits(text: &str) -> Option<[u8; 16]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = text.bytes();
    let mut bits = [0; 16];
    for (at, byte) in bits.iter_mut().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) && bytes.next() != Some(b'-') {
            return None;
        }
        *byte = digit(bytes.next()?)? << 4 | digit(bytes.next()?)?;
    }
    bytes.next().is_none().then_some(bits)
}

/// What is remembered of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    /// As people are told it; empty where it does not count, since then nobody is.
    pub(super) name: Box<str>,
    /// Whether it is in use.
    pub(super) counts: bool,
    /// Whether Karmada brought it.
    pub(super) managed: bool,
    uid: Option<Uid>,
    /// None where one of them has no uid, and may be anything.
    owners: Option<Box<[Uid]>>,
}

impl Held {
    /// Remembers an object under the name that people are told.
    pub(super) fn of(object: &Object, name: &str, counts: bool) -> Self {
        let managed = is_managed(&object.metadata);
        // Of what goes in any case nobody needs to know who owns it.
        let owners = object.owners.iter().take(if managed { 0 } else { usize::MAX });
        Self {
            name: if counts { name.into() } else { Box::default() },
            counts,
            managed,
            uid: Uid::of(&object.uid),
            owners: owners.map(|owner| Uid::of(&owner.uid)).collect(),
        }
    }

    /// Whether it goes, whatever its owners do.
    fn goes(&self) -> bool {
        self.managed || self.owners.is_none()
    }

    fn owners(&self) -> &[Uid] {
        self.owners.as_deref().unwrap_or_default()
    }

    /// In bytes, about. A vector may have room for twice as many as it has.
    fn size(&self) -> usize {
        let owners = self.owners();
        let beside: usize = owners.iter().chain(&self.uid).map(Uid::beside).sum();
        2 * size_of::<Self>() + self.name.len() + size_of_val(owners) + beside
    }
}

/// The room that there is for objects of which it is to be told whether they would stay, in all clusters that are looked at.
#[derive(Debug)]
pub(super) struct Room {
    taken: AtomicUsize,
    all: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self::of(ALL)
    }
}

impl Room {
    pub(super) fn of(all: usize) -> Self {
        Self { taken: AtomicUsize::new(0), all }
    }

    fn take(&self, bytes: usize) -> bool {
        let more = |taken: usize| taken.checked_add(bytes).filter(|&taken| taken <= self.all);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }
}

/// The objects of one List, which keep their room until they are dropped.
#[derive(Debug)]
pub(super) struct Hoard<'r> {
    held: Vec<Held>,
    /// Of those that go in any case: how many, and how many of them are only counted.
    sure: usize,
    counted: usize,
    bytes: usize,
    room: &'r Room,
}

impl<'r> Hoard<'r> {
    /// Of nothing yet.
    pub(super) fn new(room: &'r Room) -> Self {
        Self { held: Vec::new(), sure: 0, counted: 0, bytes: 0, room }
    }

    /// Counts one that is in use and goes in any case. As many are remembered as are named to people, and whatever such a one
    /// owns goes as surely without it: an owner that is not here may be anything.
    pub(super) fn count(&mut self, held: Held) {
        self.sure += 1;
        if self.sure <= NAMES { self.held.push(held) } else { self.counted += 1 }
    }

    /// How many go that were only counted.
    pub(super) fn counted(&self) -> usize {
        self.counted
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.held.len() + self.counted
    }

    /// Remembers another one, where there is room for it.
    pub(super) fn put(&mut self, held: Held) -> Result<(), Cause> {
        let size = held.size();
        if self.bytes + size > LIST {
            let text = format!(
                "what owns what there takes more than {} MiB, which is more than can be told apart",
                LIST >> 20
            );
            return Err(Cause::new(cause::TOO_LONG, text));
        }
        if !self.room.take(size) {
            let text = format!(
                "Durward has no room left to tell what Karmada brought in all clusters at once ({} MiB); try again",
                self.room.all >> 20
            );
            return Err(Cause::new(cause::CROWDED, text));
        }
        self.bytes += size;
        self.held.push(held);
        Ok(())
    }
}

impl Deref for Hoard<'_> {
    type Target = [Held];

    fn deref(&self) -> &[Held] {
        &self.held
    }
}

impl Drop for Hoard<'_> {
    fn drop(&mut self) {
        self.room.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Who follows whom: for each object those that go when it goes.
struct Followers {
    /// Of each object the first entry of `links`, or [`END`].
    first: Vec<usize>,
    /// One of them, and where the next one stands.
    links: Vec<(usize, usize)>,
}

/// No place of any entry.
const END: usize = usize::MAX;

impl Followers {
    fn of(objects: usize) -> Self {
        Self { first: vec![END; objects], links: Vec::new() }
    }

    fn add(&mut self, leader: usize, follower: usize) {
        let end = self.links.len();
        if let Some(first) = self.first.get_mut(leader) {
            self.links.push((follower, std::mem::replace(first, end)));
        }
    }

    fn each(&self, leader: usize, mut told: impl FnMut(usize)) {
        let mut at = self.first.get(leader).copied().unwrap_or(END);
        while let Some(&(follower, next)) = self.links.get(at) {
            told(follower);
            at = next;
        }
    }
}

/// Of each of these, which are all that was read of one cluster, whether it is proven that nothing of Karmada takes it along. In
/// one pass: what goes for certain is marked, and then whatever it owns. Those that own each other in a circle stay, where nobody
/// else owns one of them.
pub(super) fn staying<'h>(held: impl Iterator<Item = &'h Held>) -> Vec<bool> {
    let held: Vec<&Held> = held.collect();
    let mut followers = Followers::of(held.len());
    let mut by_uid: HashMap<&Uid, usize> = HashMap::with_capacity(held.len());
    for (at, one) in held.iter().enumerate() {
        let Some(uid) = &one.uid else { continue };
        match by_uid.entry(uid) {
            Entry::Vacant(free) => drop(free.insert(at)),
            // The same one, read by two Lists, perhaps not at the same time: what takes the one along takes the other.
            Entry::Occupied(same) => {
                followers.add(*same.get(), at);
                followers.add(at, *same.get());
            }
        }
    }
    let mut stays = vec![true; held.len()];
    let mut going = Vec::new();
    for ((at, one), stays) in held.iter().enumerate().zip(&mut stays) {
        *stays = !one.goes();
        for owner in one.owners() {
            match by_uid.get(owner) {
                Some(&owner) => followers.add(owner, at),
                // An owner that was not read may be anything.
                None => *stays = false,
            }
        }
        if !*stays {
            going.push(at);
        }
    }
    while let Some(at) = going.pop() {
        followers.each(at, |follower| {
            if let Some(stays) = stays.get_mut(follower)
                && std::mem::replace(stays, false)
            {
                going.push(follower);
            }
        });
    }
    stays
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use cluster::fleet::Owner;

    fn held(uid: &str, managed: bool, owners: &[&str]) -> Held {
        let owners = owners.iter().map(|uid| Owner { uid: (*uid).to_owned(), ..Owner::default() }).collect();
        let mut object = Object { uid: uid.to_owned(), owners, ..Object::default() };
        if managed {
            object.metadata.labels.insert(MANAGED.0.to_owned(), MANAGED.1.to_owned());
        }
        Held::of(&object, uid, true)
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
        let stays = staying(all.iter());
        let staying: Vec<&str> =
            all.iter().zip(stays).filter(|(_, stays)| *stays).map(|(h, _)| &*h.name).collect();
        assert_eq!(staying, ["foreign-set", "foreign-pod", "a", "b"]);
    }

    /// One object of a graph: its uid, whether it is managed, and its owners' uids.
    type Node = (String, bool, Vec<String>);

    /// What staying means: from the object every owner is followed, for itself.
    fn stays_by_definition(all: &[Node], from: usize) -> bool {
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

    /// Numbers that are the same in every run.
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
    fn in_one_pass_comes_out_what_following_each_object_for_itself_gives() {
        let mut dice = Dice(7);
        let (mut stay, mut go) = (0, 0);
        for round in 0..4_000 {
            let graph = graph(&mut dice);
            let all: Vec<Held> = graph
                .iter()
                .map(|(uid, managed, owners)| {
                    held(uid, *managed, &owners.iter().map(String::as_str).collect::<Vec<_>>())
                })
                .collect();
            let expected: Vec<bool> = (0..graph.len()).map(|at| stays_by_definition(&graph, at)).collect();
            assert_eq!(staying(all.iter()), expected, "round {round}: {graph:?}");
            stay += expected.iter().filter(|stays| **stays).count();
            go += expected.iter().filter(|stays| !**stays).count();
        }
        assert!(stay > 5_000 && go > 5_000, "both are tried: {stay} stay, {go} go");
    }

    #[test]
    fn a_chain_of_a_hundred_thousand_owners_is_followed_once() {
        // Followed for each object for itself these would be five billion steps.
        let chain = |managed| {
            let mut all = vec![held(&uid(0), managed, &[])];
            all.extend((1..100_000).map(|at| held(&uid(at), false, &[&uid(at - 1)])));
            staying(all.iter())
        };
        assert!(chain(false).into_iter().all(|stays| stays));
        assert!(!chain(true).into_iter().any(|stays| stays));
    }

    #[test]
    fn what_was_read_twice_goes_when_one_of_both_does() {
        for twice in [[true, false], [false, true]] {
            let all = [held("a", twice[0], &[]), held("a", twice[1], &[]), held("b", false, &["a"])];
            assert_eq!(staying(all.iter()), [false; 3], "{twice:?}");
        }
    }

    #[test]
    fn a_uid_is_only_what_has_the_very_same_text() {
        let usual = "0c55d5f0-0c55-4e3a-9d57-00000000abcd";
        assert!(matches!(Uid::of(usual), Some(Uid::Usual(_))));
        for other in [
            "0C55D5F0-0c55-4e3a-9d57-00000000abcd",
            "0c55d5f00c55-4e3a-9d57-00000000abcd-",
            "0c55d5f00c554e3a9d5700000000abcd",
            "0c55d5f0-0c55-4e3a-9d57-00000000abcd0",
            "0c55d5f0-0c55-4e3a-9d57-00000000abce",
        ] {
            assert!(Uid::of(other).is_some() && Uid::of(other) != Uid::of(usual), "{other}");
        }
        assert_eq!(Uid::of(""), None);
    }

    #[test]
    fn what_all_clusters_hold_together_has_a_bound_and_is_given_back() {
        let one = || held(&uid(1), false, &[&uid(2)]);
        let room = Room::of(one().size() * 3);
        let mut first = Hoard::new(&room);
        first.put(one()).unwrap();
        first.put(one()).unwrap();
        let mut second = Hoard::new(&room);
        second.put(one()).unwrap();
        let full = second.put(one()).unwrap_err();
        assert_eq!(full.code, cause::CROWDED);
        assert!(
            full.text.starts_with("Durward has no room left to tell what Karmada brought"),
            "{}",
            full.text
        );
        assert_eq!((first.len(), second.len()), (2, 1));
        drop(first);
        second.put(one()).unwrap();
        drop(second);
        assert_eq!(room.taken.into_inner(), 0);
    }

    #[test]
    fn one_list_never_takes_so_much_that_a_cluster_has_no_room_for_all_of_its_own() {
        let room = Room::default();
        let mut hoard = Hoard::new(&room);
        let owners: Vec<String> = (0..1_000).map(uid).collect();
        let owners: Vec<&str> = owners.iter().map(String::as_str).collect();
        let refused = (0..20_000).find_map(|at| hoard.put(held(&uid(at), false, &owners)).err()).unwrap();
        assert_eq!(refused.code, cause::TOO_LONG, "{}", refused.text);
        assert!(9 * hoard.bytes <= ALL);
        let usual = Held::of(
            &Object {
                uid: uid(1),
                owners: vec![Owner { uid: uid(2), ..Owner::default() }],
                ..Object::default()
            },
            &"n".repeat(60),
            true,
        );
        assert!(20_000 * usual.size() <= LIST, "{}", usual.size());
    }

    #[test]
    fn of_those_that_go_in_any_case_a_few_are_named_and_the_rest_are_counted() {
        let room = Room::of(0);
        let mut hoard = Hoard::new(&room);
        for at in 0..500 {
            hoard.count(held(&uid(at), true, &[]));
        }
        assert_eq!((hoard.iter().count(), hoard.counted(), hoard.len()), (NAMES, 500 - NAMES, 500));
    }

    #[test]
    fn an_object_is_small() {
        assert!(size_of::<Held>() <= 72, "{}", size_of::<Held>());
    }
}
