//! The Lease of an etcd cluster as one review reads it. Pure: `effects.rs` writes it, and the garbage collector deletes it with its namespace.
//!
//! An allowed deletion can still fail: another webhook denies it, or the API server fails. A reservation therefore lasts [`VALID_FOR`]
//! after its renewal. By then its pod has a deletion timestamp, which counts by itself, or the deletion failed. It ends earlier if the
//! pod is gone and its successor is healthy. Reservations are never withdrawn, because another review of the same pod may have
//! allowed its deletion too.
//!
//! A client may retry a deletion that something behind this guard always denies, for example a drain that a PDB blocks. A pod therefore
//! renews its reservation for [`RENEWABLE_FOR`] only, and is then denied until [`PAUSE`] after the reservation has ended.
//!
//! The times are those of the replica that wrote the reservation. Clock differences of seconds shift its end by seconds.

use std::time::{Duration, SystemTime};

use admission::Cause;
use k8s_openapi::jiff::Timestamp;

use super::facts::Facts;
use super::pod::Pod;
use super::table::{MemberState, Table};
use cluster::cause;
use cluster::writer::Reservation;

/// How long a reservation lasts after its renewal. Other webhooks take at most 30 s. In an eviction, the API server tries 20 times to
/// update the PDB, 0.55 s apart at most: 11 s (`EvictionsRetry` of `pkg/registry/core/pod/storage/eviction.go`). An allow can rely on
/// a reservation that is [`FRESH_FOR`] older than its review.
const VALID_FOR: Duration = Duration::from_secs(30 + 11 + FRESH_FOR.as_secs());

/// Age at the start of a review up to which a reservation needs no renewal.
const FRESH_FOR: Duration = Duration::from_secs(4);

/// Period in which a reservation is renewed. A deletion that succeeds does so earlier.
const RENEWABLE_FOR: Duration = Duration::from_secs(60);

/// Time for other pods before such a pod gets a new reservation. `kubectl drain` retries every 5 s, so without it the same drain would
/// always be the first one.
const PAUSE: Duration = Duration::from_secs(15);

/// The meaning of the Lease for the pod under review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReservationStatus {
    /// No pod holds it.
    Free,
    /// This pod holds it, and an allow can rely on it.
    Fresh,
    /// This pod holds it and must renew it first.
    Renewable,
    /// This pod has renewed it for too long, since then.
    Exhausted(Timestamp),
    /// The pod with this name holds it.
    Other(String),
}

impl ReservationStatus {
    /// Returns the status for the review of the pod with this uid.
    pub(super) fn of(held: Option<&Reservation>, facts: &Facts, table: &Table, uid: &str) -> Self {
        let Some(held) = held else { return Self::Free };
        let has_ended = !is_valid(held, facts.now);
        if held.uid != uid {
            let is_free = has_ended || is_replaced(held, facts, table);
            return if is_free { Self::Free } else { Self::Other(held.pod.clone()) };
        }
        let has_paused = age(held.renewed, facts.now) > VALID_FOR + PAUSE;
        if is_fresh(held, facts.began) {
            Self::Fresh
        } else if age(held.acquired, facts.now) > RENEWABLE_FOR && !has_paused {
            Self::Exhausted(held.acquired)
        } else if has_ended {
            Self::Free
        } else {
            Self::Renewable
        }
    }
}

fn age(time: Timestamp, now: SystemTime) -> Duration {
    now.duration_since(time.into()).unwrap_or_default()
}

fn is_valid(held: &Reservation, now: SystemTime) -> bool {
    age(held.renewed, now) <= VALID_FOR
}

/// Whether an allow of a review that began then can rely on the reservation.
pub(super) fn is_fresh(held: &Reservation, began: SystemTime) -> bool {
    age(held.renewed, began) <= FRESH_FOR
}

/// Whether the pod is gone, and the member of the same name is healthy or off the list. Quorum does not depend on this: without a
/// pod that answers, no member is healthy.
fn is_replaced(held: &Reservation, facts: &Facts, table: &Table) -> bool {
    let is_gone = !facts.pods.iter().any(|facts| facts.pod.uid == held.uid);
    let mut successors = table.rows.iter().filter(|row| row.name == held.pod);
    is_gone && successors.all(|row| matches!(row.state, MemberState::Healthy | MemberState::NotMember))
}

/// Returns the reservation to write for a pod. A reservation of its own keeps the time of its first one.
pub(super) fn next(
    held: Option<&Reservation>,
    pod: &Pod,
    namespace_uid: Option<&str>,
    now: SystemTime,
) -> Result<Reservation, Cause> {
    let renewed = Timestamp::try_from(now)
        .map_err(|error| Cause::new(cause::NOT_RESERVED, format!("invalid time: {error}")))?;
    let own = held.filter(|held| held.uid == pod.uid && is_valid(held, now));
    Ok(Reservation {
        uid: pod.uid.clone(),
        namespace: pod.namespace.clone(),
        pod: pod.name.clone(),
        namespace_uid: namespace_uid.map(str::to_owned),
        acquired: own.map_or(renewed, |own| own.acquired),
        renewed,
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::now;
    use super::*;

    fn held(first: u64, last: u64) -> Reservation {
        let ago = |seconds: u64| Timestamp::try_from(now() - Duration::from_secs(seconds)).unwrap();
        let pod = Pod { uid: "a".into(), ..Pod::default() };
        let new = next(None, &pod, None, now()).unwrap();
        Reservation { acquired: ago(first), renewed: ago(last), ..new }
    }

    #[test]
    fn a_reservation_is_valid_for_45_seconds_and_fresh_for_4() {
        for (last, valid, fresh) in
            [(0, true, true), (4, true, true), (5, true, false), (45, true, false), (46, false, false)]
        {
            let held = held(60, last);
            assert_eq!((is_valid(&held, now()), is_fresh(&held, now())), (valid, fresh), "{last}");
        }
    }

    #[test]
    fn a_renewal_keeps_the_time_of_the_first_reservation() {
        let pod = |uid: &str| Pod { uid: uid.into(), ..Pod::default() };
        let next = |held: &Reservation, uid: &str| next(Some(held), &pod(uid), None, now()).unwrap();
        let renewed = Timestamp::try_from(now()).unwrap();
        let first = held(60, 45);
        assert_eq!((next(&first, "a").acquired, next(&first, "a").renewed), (first.acquired, renewed));
        // Another pod, or a reservation that has ended.
        assert_eq!(next(&first, "b").acquired, renewed);
        assert_eq!(next(&held(60, 46), "a").acquired, renewed);
    }
}
