//! What this guard changes outside, and the only file of the room that calls hands: who is on the way out is noted, and a leader is
//! told to hand over.
//!
//! To note is to compare and swap: the set is written over the version that the decision rested on, so that of two members that
//! are let go at once the second one is decided upon with the first one counted as gone. How long an entry counts is said in
//! `notes.rs`.
//!
//! Nothing is ever taken back. A pod that was let go and came back is another pod, with another uid; one that was refused after it
//! was noted may have been let go by another review of the same deletion, which found it noted. Old entries leave with the next
//! writing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use admission::Cause;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::config::Book;
use super::notes;
use cluster::cause;
use cluster::etcd::{Endpoint, Id};
use cluster::writer::{Lease, Reservation, Reservations, TransferResult, WriteResult, Writer};

/// What is noted in this process alone (`reservation: local`). It outlives plans, as a configuration that is read again must not
/// forget who leaves.
static LOCAL: Mutex<BTreeMap<String, Noted>> = Mutex::new(BTreeMap::new());

/// Whose turn it is to write, of those in this process who were too slow once.
static TURNS: Mutex<BTreeMap<String, Turn>> = Mutex::new(BTreeMap::new());

type Turn = Arc<tokio::sync::Mutex<()>>;

#[derive(Debug, Default, Clone)]
struct Noted {
    version: u64,
    held: Vec<Reservation>,
}

/// Acts for one ensemble.
#[derive(Clone, Copy)]
pub(super) struct Act<'a> {
    pub(super) writer: &'a dyn Writer,
    pub(super) book: Book,
    pub(super) lease: &'a Lease,
    pub(super) end: Instant,
}

/// What is noted in this process.
pub(super) fn local(lease: &Lease) -> Reservations {
    let all = LOCAL.lock().unwrap_or_else(PoisonError::into_inner);
    let noted = all.get(&key(lease)).cloned().unwrap_or_default();
    Reservations { version: Some(noted.version.to_string()), held: noted.held }
}

/// Waits until nobody else in this process who was too slow writes into the Lease. All ensembles of a namespace share it: where a
/// hundred of them lose a member at once, only one of all would get through at a time, and the others ask everything anew.
pub(super) async fn turn(lease: &Lease) -> OwnedMutexGuard<()> {
    let turn = {
        let mut all = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
        // Whom nobody waits for is forgotten.
        all.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(all.entry(key(lease)).or_default())
    };
    turn.lock_owned().await
}

fn key(lease: &Lease) -> String {
    format!("{}/{}", lease.namespace, lease.name)
}

impl Act<'_> {
    /// Notes that a pod leaves, in the set as it was read.
    pub(super) async fn note(&self, read: &Reservations, entry: Reservation, now: SystemTime) -> WriteResult {
        let mut set = read.clone();
        set.held.retain(|held| held.uid != entry.uid && notes::is_kept(held, now));
        set.held.push(entry);
        // What counts no more only says who was asked for in vain.
        if set.is_too_long() {
            set.held.retain(|held| notes::is_live(held, now));
        }
        if set.is_too_long() {
            let text = "so many pods leave this namespace at once that no more can be noted; try again";
            return WriteResult::Failed(Cause::new(cause::CROWDED, text));
        }
        match self.book {
            Book::Lease => self.writer.write(self.lease, &set, self.end.into_std()).await,
            Book::Local => swap(self.lease, set),
        }
    }

    /// Tells a leader to hand over.
    pub(super) async fn transfer_leadership(&self, leader: &Endpoint, to: Id) -> TransferResult {
        self.writer.transfer_leadership(leader, to, self.end.into_std()).await
    }
}

fn swap(lease: &Lease, set: Reservations) -> WriteResult {
    let mut all = LOCAL.lock().unwrap_or_else(PoisonError::into_inner);
    let noted = all.entry(key(lease)).or_default();
    if set.version.as_deref() != Some(noted.version.to_string().as_str()) {
        return WriteResult::Conflict;
    }
    *noted = Noted { version: noted.version + 1, held: set.held };
    WriteResult::Written
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use admission::BoxFuture;
    use k8s_openapi::jiff::Timestamp;

    use super::super::fixture::now;
    use super::*;

    /// Writer that are not used.
    struct Tied;

    impl Writer for Tied {
        fn write<'a>(
            &'a self,
            _: &'a Lease,
            _: &'a Reservations,
            _: std::time::Instant,
        ) -> BoxFuture<'a, WriteResult> {
            Box::pin(async { WriteResult::Conflict })
        }

        fn transfer_leadership<'a>(
            &'a self,
            _: &'a Endpoint,
            _: Id,
            _: std::time::Instant,
        ) -> BoxFuture<'a, TransferResult> {
            Box::pin(async { TransferResult::NotLeader })
        }
    }

    fn lease(name: &str) -> Lease {
        Lease { namespace: "durward-system".into(), name: name.into() }
    }

    fn entry(uid: &str, age: u64) -> Reservation {
        let since = Timestamp::try_from(now() - Duration::from_secs(age)).unwrap();
        Reservation::new(uid, uid, since)
    }

    async fn note(lease: &Lease, read: &Reservations, entry: Reservation) -> WriteResult {
        let end = Instant::now() + Duration::from_secs(1);
        Act { writer: &Tied, book: Book::Local, lease, end }.note(read, entry, now()).await
    }

    #[tokio::test]
    async fn of_two_who_note_over_the_same_version_one_is_second() {
        let lease = lease("of_two_who_note");
        let read = local(&lease);
        assert_eq!(note(&lease, &read, entry("a", 0)).await, WriteResult::Written);
        assert_eq!(note(&lease, &read, entry("b", 0)).await, WriteResult::Conflict);
        assert!(local(&lease).holds("a") && !local(&lease).holds("b"));
    }

    #[tokio::test]
    async fn what_is_void_leaves_with_the_next_writing_and_what_counts_stays() {
        let lease = lease("what_is_void");
        let held = vec![entry("old", 61), entry("void", 60), entry("young", 29), entry("own", 20)];
        let read = Reservations { held, ..local(&lease) };
        assert_eq!(note(&lease, &read, entry("own", 0)).await, WriteResult::Written);
        // That it is void is known of one that was asked for in vain, for as long as it gives way to others.
        assert_eq!(local(&lease).held, [entry("void", 60), entry("young", 29), entry("own", 0)]);
    }

    #[tokio::test]
    async fn a_set_is_never_written_longer_than_it_can_be_read() {
        let lease = lease("never_longer");
        let held = (0..512).map(|at| entry(&format!("pod-{at}"), 1)).collect();
        let full = Reservations { held, ..local(&lease) };
        assert_eq!(note(&lease, &full, entry("pod-7", 0)).await, WriteResult::Written);
        let full = local(&lease);
        let WriteResult::Failed(why) = note(&lease, &full, entry("one-more", 0)).await else { panic!() };
        assert!(why.text.contains("try again"), "{}", why.text);
        assert_eq!(local(&lease).held.len(), 512);
        // What is void makes room.
        let full = Reservations { version: full.version.clone(), held: vec![entry("void", 31); 512] };
        assert_eq!(note(&lease, &full, entry("one-more", 0)).await, WriteResult::Written);
        assert_eq!(local(&lease).held, [entry("one-more", 0)]);
    }

    #[tokio::test]
    async fn who_was_too_slow_waits_for_its_turn_and_for_nobody_elses() {
        let (one, other) = (lease("a_turn"), lease("another_turn"));
        let first = turn(&one).await;
        drop(turn(&other).await);
        let mut second = Box::pin(turn(&one));
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(first);
        assert!(futures_util::poll!(&mut second).is_ready());
    }
}
