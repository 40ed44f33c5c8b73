//! What is noted of who leaves, as one review reads it. Pure.
//!
//! To allow is not to commit: after this guard others may refuse, and the API server may fail. So an entry counts until 30 s after
//! the end of the review that wrote it; by then its pod is marked as deleted, which counts by itself, or nothing came of it. Nobody
//! takes an entry back: an allow of another review of the same pod may rest on it.
//!
//! Times are those of whoever wrote them. Clocks that differ by seconds make an entry count for seconds more or less; an entry that
//! is further ahead than any review takes is one that nobody can make sense of.

use std::time::{Duration, SystemTime};

use admission::Cause;

use super::facts::Seen;
use super::group;
use crate::hands::{Reservation, Reservations};
use crate::world::cause;

/// How long after the end of its review a pod that was let go may take to be marked as deleted: other webhooks are asked beside
/// this one, and have 30 s at most.
const VOID: Duration = Duration::from_secs(30);

/// The same pod need not be noted again so soon after: there is time enough left for it to be marked as deleted.
const AGAIN: Duration = Duration::from_secs(5);

/// How far ahead an entry may be: no API server waits longer for a review (`timeoutSeconds`, 30 at most).
const AHEAD: Duration = Duration::from_secs(30);

/// What is noted of the pod that is to go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) hold: Hold,
    /// The uid of the pod that leadership goes to.
    pub(super) to: Option<String>,
}

/// How long it is noted for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hold {
    /// It is not, or not any more.
    #[default]
    Void,
    /// Now, and not until this review has ended.
    Ending,
    /// Until this review has ended: what is done before that rests on it.
    Lasting,
    /// For long enough after that for its pod to be marked as deleted: an allow rests on it.
    Fresh,
}

/// When a review looks, and when it has ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct When {
    pub(super) now: SystemTime,
    pub(super) ends: SystemTime,
}

impl When {
    /// What is noted of a pod.
    pub(super) fn note(self, book: &Reservations, uid: &str) -> Note {
        let Some(held) = book.held.iter().find(|held| held.uid == uid) else { return Note::default() };
        let hold = match held.age(self.ends) {
            _ if !is_live(held, self.now) => return Note::default(),
            age if age <= AGAIN => Hold::Fresh,
            age if age <= VOID => Hold::Lasting,
            _ => Hold::Ending,
        };
        Note { hold, to: held.to.clone() }
    }

    /// The uid of the pod that is noted to hand leadership over to this one, and is still there to do so.
    pub(super) fn giver(self, book: &Reservations, uid: &str, pods: &[Seen]) -> Option<String> {
        let gives = |held: &&Reservation| {
            held.uid != uid && held.to.as_deref() == Some(uid) && is_live(held, self.now)
        };
        let is_there = |held: &&Reservation| stays(held, pods);
        book.held.iter().filter(gives).find(is_there).map(|held| held.uid.clone())
    }

    /// Why the times of what is noted mean nothing here, where they do not.
    pub(super) fn disagreement(self, book: &Reservations, pods: &[Seen]) -> Option<Cause> {
        let is_ahead = |held: &&Reservation| {
            let ahead = SystemTime::from(held.since).duration_since(self.now).unwrap_or_default();
            ahead > AHEAD && stays(held, pods)
        };
        let held = book.held.iter().find(is_ahead)?;
        let ahead = SystemTime::from(held.since).duration_since(self.now).unwrap_or_default();
        let namespace = pods.first().map(|seen| seen.pod.namespace.as_str()).unwrap_or_default();
        let text = format!(
            "the clocks of Durward's replicas differ: {} is noted to leave {} s ahead of this one's clock; set them right, and then, when no pod leaves, delete the Lease {}",
            held.pod,
            ahead.as_secs(),
            group::lease_of(namespace),
        );
        Some(Cause::new(cause::NOT_RESERVED, text))
    }
}

/// Whether a pod that was let go still counts as leaving. One that is marked as deleted does so by itself.
pub(super) fn is_live(held: &Reservation, now: SystemTime) -> bool {
    held.age(now) <= VOID
}

/// Whether its pod is there and nobody has deleted it.
fn stays(held: &Reservation, pods: &[Seen]) -> bool {
    pods.iter().any(|seen| seen.pod.uid == held.uid && !seen.pod.is_going)
}
