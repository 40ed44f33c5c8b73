//! What is noted of who leaves, as one review reads it. Pure.
//!
//! To allow is not to commit: after this guard others may refuse, and the API server may fail. So an entry counts until 30 s after
//! the end of the review that wrote it; by then its pod is marked as deleted, which counts by itself, or nothing came of it. Nobody
//! takes an entry back: an allow of another review of the same pod may rest on it.
//!
//! Whoever asks for the same pod every few seconds and never gets it (a drain that a disruption budget holds back) may hold the
//! others up for a minute only. Then the pod is not noted anew until its entry has been void for half a minute.
//!
//! Times are those of whoever wrote them. Clocks that differ by seconds make an entry count for seconds more or less; an entry that
//! is further ahead than any review takes is one that nobody can make sense of.

use std::time::{Duration, SystemTime};

use admission::Cause;
use k8s_openapi::jiff::Timestamp;

use super::facts::Seen;
use super::group;
use super::pod::Pod;
use cluster::cause;
use cluster::writer::{Reservation, Reservations};

/// How long after the end of its review a pod that was let go may take to be marked as deleted: other webhooks are asked beside
/// this one, and have 30 s at most.
const VOID: Duration = Duration::from_secs(30);

/// The same pod need not be noted again so soon after: there is time enough left for it to be marked as deleted.
const AGAIN: Duration = Duration::from_secs(5);

/// How far ahead an entry may be: no API server waits longer for a review (`timeoutSeconds`, 30 at most), and clocks differ by
/// some.
const AHEAD: Duration = Duration::from_secs(35);

/// So long a pod that is asked for again and again is noted anew. Whoever lets it go for good has done so by then; something
/// behind this guard refuses it, and meanwhile no other one of its ensemble may go.
const IN_VAIN: Duration = Duration::from_secs(60);

/// For so long after its entry is void it is not noted anew then: whoever else is asked for again and again has its turn.
const REST: Duration = Duration::from_secs(30);

/// What is noted of the pod that is to go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) hold: Hold,
    /// The uids of the pods that leadership may go to.
    pub(super) to: Vec<String>,
    /// Since when it has been noted again and again.
    pub(super) first: Option<Timestamp>,
    /// Whether it has been noted for so long in vain that others go before it is noted anew.
    pub(super) rests: bool,
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
        let Some(entry) = book.of(uid).filter(|entry| is_kept(entry, self.now)) else {
            return Note::default();
        };
        let first = entry.first.unwrap_or(entry.since);
        let asked_for = self.now.duration_since(first.into()).unwrap_or_default();
        let (first, is_in_vain) = (Some(first), asked_for > IN_VAIN);
        if !is_live(entry, self.now) {
            return Note { first, rests: is_in_vain, ..Note::default() };
        }
        let hold = match entry.age(self.ends) {
            age if age <= AGAIN => Hold::Fresh,
            age if age <= VOID => Hold::Lasting,
            _ => Hold::Ending,
        };
        Note { hold, to: entry.to.clone(), first, rests: is_in_vain && hold != Hold::Fresh }
    }

    /// The uid of the pod that is noted to hand leadership over to this one, and is still there to do so.
    pub(super) fn giver(self, book: &Reservations, uid: &str, pods: &[Seen]) -> Option<String> {
        let is_it = |held: &&Reservation| {
            held.uid != uid && held.to.iter().any(|to| to == uid) && is_live(held, self.now)
        };
        let is_there = |uid: &str| pods.iter().any(|seen| seen.pod.uid == uid && !seen.pod.is_going);
        book.held.iter().filter(is_it).map(|held| &held.uid).find(|uid| is_there(uid)).cloned()
    }

    /// Why nobody can say whether a pod leaves: it is noted by a clock that has nothing to do with this one.
    pub(super) fn disagreement(self, book: &Reservations, pod: &Pod) -> Option<Cause> {
        let held = book.of(&pod.uid).filter(|_| !pod.is_going)?;
        let ahead = SystemTime::from(held.since).duration_since(self.now).unwrap_or_default();
        let text = format!(
            "the clocks of Durward's replicas differ: {} is noted to leave {} s ahead of this one's clock; set them right, and then, when no pod leaves, delete the Lease {}",
            held.pod,
            ahead.as_secs(),
            group::lease_of(&pod.namespace),
        );
        (ahead > AHEAD).then(|| Cause::new(cause::UNCLEAR, text))
    }
}

/// Whether a pod that was let go still counts as leaving. One that is marked as deleted does so by itself.
pub(super) fn is_live(held: &Reservation, now: SystemTime) -> bool {
    held.age(now) <= VOID
}

/// Whether it is kept in the Lease: it counts, or says for how long its pod has been asked for in vain.
pub(super) fn is_kept(held: &Reservation, now: SystemTime) -> bool {
    held.age(now) <= VOID + REST
}

#[cfg(test)]
mod tests {
    use super::super::fixture::now;
    use super::*;

    /// What is noted for a review of 10 s, of one whose end was so many seconds ago.
    fn hold(ago: i64) -> Hold {
        let since = Timestamp::try_from(now())
            .unwrap()
            .checked_sub(k8s_openapi::jiff::SignedDuration::from_secs(ago));
        let held = vec![Reservation::new("a", "etcd-1", since.unwrap())];
        let when = When { now: now(), ends: now() + Duration::from_secs(10) };
        when.note(&Reservations { version: None, held }, "a").hold
    }

    #[test]
    fn an_entry_counts_for_thirty_seconds_after_its_review_and_less_for_what_is_yet_to_come() {
        for (ago, expected) in [
            // The same deletion, asked about by two at once, or again after a moment.
            (-10, Hold::Fresh),
            (-12, Hold::Fresh),
            (-5, Hold::Fresh),
            // Leadership may move until this review has ended; to go it has to be noted anew.
            (-4, Hold::Lasting),
            (20, Hold::Lasting),
            // It would be void in the midst of that.
            (21, Hold::Ending),
            (30, Hold::Ending),
            (31, Hold::Void),
        ] {
            assert_eq!(hold(ago), expected, "{ago}");
        }
        let when = When { now: now(), ends: now() };
        assert_eq!(when.note(&Reservations::default(), "a"), Note::default());
    }

    #[test]
    fn who_has_been_noted_for_a_minute_rests_until_half_a_minute_after_its_entry_is_void() {
        let ago = |seconds: u64| Timestamp::try_from(now() - Duration::from_secs(seconds)).unwrap();
        let when = When { now: now(), ends: now() };
        for (first, since, rests) in [
            (Some(60), 10, false),
            (Some(61), 10, true),
            // An allow may rest on that for a moment more.
            (Some(61), 5, false),
            (Some(90), 31, true),
            (Some(119), 60, true),
            (Some(120), 61, false),
            // A version that does not say it.
            (None, 60, false),
        ] {
            let mut entry = Reservation::new("a", "etcd-1", ago(since));
            entry.first = first.map(ago);
            let note = when.note(&Reservations { version: None, held: vec![entry] }, "a");
            assert_eq!(note.rests, rests, "{first:?} {since}");
        }
    }
}
