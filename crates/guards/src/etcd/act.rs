//! What this guard changes outside, and the only file of the room that holds hands: who is on the way out is noted, and a leader is
//! told to hand over.
//!
//! To note is to compare and swap: the set is written over the version that the decision rested on, so that of two members that
//! are let go at once the second one is decided upon with the first one counted as gone. What is noted holds for 30 s unless the
//! pod is marked as deleted by then, as to allow is not to commit: another guard may refuse, the API server may fail.
//!
//! A pod that was let go and came back is another pod, with another uid, so that nothing has to be taken out when it is healthy
//! again. Old entries leave with the next writing.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use admission::Cause;
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::config::Book;
use super::facts;
use crate::hands::{Hands, Lease, Moved, Reservation, Reservations, Written};
use crate::world::cause;
use crate::world::etcd::{Id, Peer};

/// What is noted in this process alone (`reservation: local`). It outlives plans, as a configuration that is read again must not
/// forget who leaves.
static LOCAL: Mutex<BTreeMap<String, Noted>> = Mutex::new(BTreeMap::new());

#[derive(Debug, Default, Clone)]
struct Noted {
    version: u64,
    held: Vec<Reservation>,
}

/// Acts for one ensemble.
#[derive(Clone, Copy)]
pub(super) struct Act<'a> {
    pub(super) hands: &'a dyn Hands,
    pub(super) book: Book,
    pub(super) lease: &'a Lease,
    pub(super) end: Instant,
}

/// What is noted in this process of an ensemble.
pub(super) fn local(lease: &Lease) -> Reservations {
    let all = LOCAL.lock().unwrap_or_else(PoisonError::into_inner);
    let noted = all.get(&key(lease)).cloned().unwrap_or_default();
    Reservations { version: Some(noted.version.to_string()), held: noted.held }
}

fn key(lease: &Lease) -> String {
    format!("{}/{}", lease.namespace, lease.name)
}

impl Act<'_> {
    /// Notes that a pod leaves, in the set as it was read.
    pub(super) async fn reserve(
        &self,
        read: &Reservations,
        (uid, pod): (&str, &str),
        now: SystemTime,
    ) -> Written {
        let since = match Timestamp::try_from(now) {
            Ok(since) => since,
            Err(error) => {
                return Written::Refused(Cause::new(
                    cause::NOT_RESERVED,
                    format!("the time is none: {error}"),
                ));
            }
        };
        let mut set = without(read, uid, now);
        set.held.push(Reservation { uid: uid.to_owned(), pod: pod.to_owned(), since });
        self.write(&set).await
    }

    /// Takes back what was noted of a pod that does not leave. Where somebody else is faster it is left to run out.
    pub(super) async fn release(&self, read: &Reservations, uid: &str, now: SystemTime) {
        if read.holds(uid) {
            // Nobody waits for it: it is void after 30 s in any case.
            let _: Written = self.write(&without(read, uid, now)).await;
        }
    }

    /// Tells a leader to hand over.
    pub(super) async fn move_leader(&self, leader: &Peer, to: Id) -> Moved {
        self.hands.move_leader(leader, to, self.end.into_std()).await
    }

    async fn write(&self, set: &Reservations) -> Written {
        match self.book {
            Book::Lease => self.hands.write(self.lease, set, self.end.into_std()).await,
            Book::Local => note(self.lease, set),
        }
    }
}

/// The set without this pod and without those that are void.
fn without(read: &Reservations, uid: &str, now: SystemTime) -> Reservations {
    let mut set = read.clone();
    set.held.retain(|held| held.uid != uid && facts::is_live(held, now));
    set
}

fn note(lease: &Lease, set: &Reservations) -> Written {
    let mut all = LOCAL.lock().unwrap_or_else(PoisonError::into_inner);
    let noted = all.entry(key(lease)).or_default();
    if set.version.as_deref() != Some(noted.version.to_string().as_str()) {
        return Written::Raced;
    }
    *noted = Noted { version: noted.version + 1, held: set.held.clone() };
    Written::Written
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::fixture::now;
    use super::*;

    fn lease(name: &str) -> Lease {
        Lease { namespace: "durward-system".into(), name: name.into() }
    }

    fn reservation(uid: &str, age: u64) -> Reservation {
        let since = Timestamp::try_from(now() - Duration::from_secs(age)).unwrap();
        Reservation { uid: uid.into(), pod: uid.into(), since }
    }

    #[test]
    fn of_two_who_note_over_the_same_version_one_is_second() {
        let lease = lease("of_two_who_note");
        let read = local(&lease);
        let with = |uid: &str| Reservations { held: vec![reservation(uid, 0)], ..read.clone() };
        assert_eq!(note(&lease, &with("a")), Written::Written);
        assert_eq!(note(&lease, &with("b")), Written::Raced);
        assert!(local(&lease).holds("a") && !local(&lease).holds("b"));
    }

    #[test]
    fn what_is_void_leaves_with_the_next_writing() {
        let read = Reservations {
            version: None,
            held: vec![reservation("old", 31), reservation("young", 29), reservation("own", 1)],
        };
        let held: Vec<String> = without(&read, "own", now()).held.into_iter().map(|held| held.uid).collect();
        assert_eq!(held, ["young"]);
    }
}
