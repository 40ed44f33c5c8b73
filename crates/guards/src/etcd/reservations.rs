//! The state of reservations as one review reads them. Pure.
//!
//! An allowed deletion can still fail: another webhook denies it, or the API server fails. A reservation therefore counts until
//! [`VALID_FOR`] after the end of its review. By then its pod has a deletion timestamp, which counts by itself, or the deletion
//! failed. Reservations are never withdrawn, because another review of the same pod may have allowed its deletion too.
//!
//! The times are those of the replica that wrote the reservation. Clock differences of seconds shift its end by seconds. A
//! reservation that is further in the future than a review can last is an error.

use std::time::{Duration, SystemTime};

use admission::Cause;
use k8s_openapi::jiff::Timestamp;

use super::backoff::{self, Backoff};
use super::group;
use super::pod::Pod;
use cluster::cause;
use cluster::writer::{Reservation, Reservations};

/// How long a reservation counts after its review. Other webhooks take at most 30 s. In an eviction, the API server tries 20 times to
/// update the PDB, 0.55 s apart at most: 11 s (`EvictionsRetry` of `pkg/registry/core/pod/storage/eviction.go`). An allow can rely on
/// a reservation that is [`FRESH_FOR`] old.
const VALID_FOR: Duration = Duration::from_secs(30 + 11 + FRESH_FOR.as_secs());

/// Age up to which a reservation needs no renewal: enough time is left for the deletion timestamp.
const FRESH_FOR: Duration = Duration::from_secs(4);

/// How far in the future a reservation can be: the longest `timeoutSeconds` (30) and some clock difference.
const MAX_AHEAD: Duration = Duration::from_secs(35);

/// The reservation of the pod under review.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ReservationStatus {
    pub(super) validity: Validity,
    /// The uids of the pods that leadership may be transferred to.
    pub(super) successors: Vec<String>,
    pub(super) backoff: Backoff,
}

impl ReservationStatus {
    /// Whether an allow can rely on the reservation.
    pub(super) fn is_active(&self) -> bool {
        self.validity == Validity::Active
    }
}

/// How long a reservation still counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Validity {
    /// It does not count, or there is none.
    #[default]
    Expired,
    /// It expires before this review ends.
    Expiring,
    /// It counts until this review ends, so effects of this review can rely on it.
    ThisReview,
    /// It counts until the pod has a deletion timestamp, so an allow can rely on it.
    Active,
}

/// The start and the end of a review.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReviewTimes {
    pub(super) now: SystemTime,
    pub(super) end: SystemTime,
}

impl ReviewTimes {
    /// Returns the reservation of a pod.
    pub(super) fn status(self, reservations: &Reservations, uid: &str) -> ReservationStatus {
        let Some(entry) = reservations.of(uid).filter(|entry| is_kept(entry, self.now)) else {
            return ReservationStatus::default();
        };
        let mut backoff = Backoff::of(entry, self.now);
        if !is_valid(entry, self.now) {
            return ReservationStatus { backoff, ..ReservationStatus::default() };
        }
        let validity = match entry.age(self.end) {
            age if age <= FRESH_FOR => Validity::Active,
            age if age <= valid_for(entry) => Validity::ThisReview,
            _ => Validity::Expiring,
        };
        backoff.is_active &= validity != Validity::Active;
        ReservationStatus { validity, successors: entry.to.clone(), backoff }
    }

    /// Returns the uid of the pod whose reservation names this pod as successor, if that pod exists.
    pub(super) fn transfers_from(
        self,
        reservations: &Reservations,
        uid: &str,
        exists: impl Fn(&str) -> bool,
    ) -> Option<String> {
        let names_it = |held: &&Reservation| {
            held.uid != uid && held.to.iter().any(|to| to == uid) && is_valid(held, self.now)
        };
        reservations.held.iter().filter(names_it).map(|held| &held.uid).find(|uid| exists(uid)).cloned()
    }

    /// Returns an error if the reservation of a pod is too far in the future to be understood.
    pub(super) fn clock_error(self, reservations: &Reservations, pod: &Pod) -> Option<Cause> {
        let held = reservations.of(&pod.uid).filter(|_| !pod.is_deleting)?;
        let ahead = SystemTime::from(held.since).duration_since(self.now).unwrap_or_default();
        let text = format!(
            "clocks of Durward's replicas differ: {} is {} s ahead in Lease {}",
            held.pod,
            ahead.as_secs(),
            group::lease_name(&pod.namespace),
        );
        (ahead > MAX_AHEAD).then(|| Cause::new(cause::UNCLEAR, text))
    }
}

/// Returns the reservation of a pod for a review with this end. It keeps what an earlier reservation contains.
pub(super) fn reservation(
    pod: &Pod,
    status: &ReservationStatus,
    now: SystemTime,
    end: SystemTime,
) -> Result<Reservation, Cause> {
    let time = |time: SystemTime| {
        Timestamp::try_from(time)
            .map_err(|error| Cause::new(cause::NOT_RESERVED, format!("invalid time: {error}")))
    };
    let mut entry = Reservation::new(&pod.uid, &pod.name, time(end)?);
    entry.first = Some(status.backoff.first.map_or_else(|| time(now), Ok)?);
    // A concurrent review of the same pod may be moving leadership to another successor.
    entry.to.clone_from(&status.successors);
    Ok(entry)
}

/// Whether a reservation counts. A pod with a deletion timestamp counts without one.
pub(super) fn is_valid(held: &Reservation, now: SystemTime) -> bool {
    held.age(now) <= valid_for(held)
}

/// Whether a reservation stays in the Lease: it counts, or the backoff needs it.
pub(super) fn is_kept(held: &Reservation, now: SystemTime) -> bool {
    held.age(now) <= valid_for(held).saturating_add(backoff::PAUSE)
}

fn valid_for(held: &Reservation) -> Duration {
    VALID_FOR.saturating_add(Duration::from_secs(held.longer))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::SignedDuration;

    use super::super::fixture::now;
    use super::*;

    /// Returns the validity for a review of 10 s if the reserving review ended so many seconds ago.
    fn validity(ago: i64) -> Validity {
        let since = Timestamp::try_from(now()).unwrap().checked_sub(SignedDuration::from_secs(ago));
        let held = vec![Reservation::new("a", "etcd-1", since.unwrap())];
        let times = ReviewTimes { now: now(), end: now() + Duration::from_secs(10) };
        times.status(&Reservations { version: None, held }, "a").validity
    }

    #[test]
    fn a_reservation_is_valid_for_45_seconds_after_its_review() {
        for (ago, expected) in [
            // Two concurrent reviews of one deletion, or a retry.
            (-10, Validity::Active),
            (-12, Validity::Active),
            (-6, Validity::Active),
            // Leadership can move until this review ends; an allow needs a renewal.
            (-5, Validity::ThisReview),
            (35, Validity::ThisReview),
            // It would expire during the review.
            (36, Validity::Expiring),
            (45, Validity::Expiring),
            (46, Validity::Expired),
        ] {
            assert_eq!(validity(ago), expected, "{ago}");
        }
        let times = ReviewTimes { now: now(), end: now() };
        assert_eq!(times.status(&Reservations::default(), "a"), ReservationStatus::default());
    }

    #[test]
    fn a_pod_backs_off_after_a_minute_until_half_a_minute_after_its_reservation_expired() {
        let ago = |seconds: u64| Timestamp::try_from(now() - Duration::from_secs(seconds)).unwrap();
        let times = ReviewTimes { now: now(), end: now() };
        for (first, since, backs_off) in [
            (Some(60), 10, false),
            (Some(61), 10, true),
            // An allow can rely on this reservation for a moment more.
            (Some(61), 4, false),
            (Some(61), 5, true),
            (Some(90), 46, true),
            (Some(119), 75, true),
            (Some(120), 76, false),
            // Written by a version that does not store the first time.
            (None, 60, false),
        ] {
            let mut entry = Reservation::new("a", "etcd-1", ago(since));
            entry.first = first.map(ago);
            let status = times.status(&Reservations { version: None, held: vec![entry] }, "a");
            assert_eq!(status.backoff.is_active, backs_off, "{first:?} {since}");
        }
    }
}
