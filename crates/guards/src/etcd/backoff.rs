//! Stops one pod whose deletion fails repeatedly from blocking the other members of its etcd cluster.
//!
//! A client may retry a deletion every few seconds although something behind this guard denies it: a drain that a PDB blocks, for
//! example. Each retry renews the reservation of the pod, and no other member can be deleted meanwhile. After a minute of retries
//! the pod therefore gets no new reservation until its last one has been expired for half a minute.

use std::time::{Duration, SystemTime};

use k8s_openapi::jiff::Timestamp;

use cluster::writer::Reservation;

/// Period in which a reservation is renewed. A deletion that succeeds does so earlier.
const MAX_RETRIES: Duration = Duration::from_secs(60);

/// Time after the end of a reservation in which the pod gets no new one, so that deletions of other members can succeed.
pub(super) const PAUSE: Duration = Duration::from_secs(30);

/// The retries of one pod's deletion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Backoff {
    /// The time of the first reservation in an uninterrupted series.
    pub(super) first: Option<Timestamp>,
    /// Whether the pod must wait before it gets a new reservation.
    pub(super) is_active: bool,
}

impl Backoff {
    /// Returns the retries that a stored reservation shows. Earlier versions store no `first`.
    pub(super) fn of(entry: &Reservation, now: SystemTime) -> Self {
        let first = entry.first.unwrap_or(entry.since);
        let retried_for = now.duration_since(first.into()).unwrap_or_default();
        Self { first: Some(first), is_active: retried_for > MAX_RETRIES }
    }
}
