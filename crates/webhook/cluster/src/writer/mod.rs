//! Changes that Durward makes beside its reviews: Leases, the leader of an etcd cluster, and Events.
//!
//! Only a live control plane has a writer that changes something. [`DryRun`] says that it did. A writer retries nothing: after a
//! timeout the outcome is unknown, and the guard decides.

mod lease;

use std::future::ready;
use std::time::Instant;

use admission::{BoxFuture, Cause};
use k8s_openapi::api::events::v1::Event;

pub use lease::{Lease, Reservation, StoredLease};

use crate::etcd::{Endpoint, Id};

/// Changes Leases and the leader of an etcd cluster, and creates Events.
pub trait Writer: Send + Sync {
    /// Writes the Lease if it still has the version of `stored`. The request is a PUT with
    /// [`version`](StoredLease::version) as `metadata.resourceVersion`, or a POST if the Lease did not exist. The body is
    /// [`StoredLease::body`]. Guards read the Lease through [`Reader::get_object`](crate::Reader::get_object).
    fn write<'a>(
        &'a self,
        lease: &'a Lease,
        stored: &'a StoredLease,
        deadline: Instant,
    ) -> BoxFuture<'a, WriteResult>;

    /// Sends `Maintenance.MoveLeader` to `leader`, with the member `to` as the next leader. Returns when etcd confirms the
    /// transfer, or at the deadline. The guard checks whether the other members follow the new leader.
    fn transfer_leadership<'a>(
        &'a self,
        leader: &'a Endpoint,
        to: Id,
        deadline: Instant,
    ) -> BoxFuture<'a, TransferResult>;

    /// Creates an Event. If one with its name exists, the result is [`WriteResult::Conflict`].
    fn create_event<'a>(&'a self, event: &'a Event, deadline: Instant) -> BoxFuture<'a, WriteResult>;
}

/// The writer of a dry run: it changes nothing, and answers as if it had.
#[derive(Debug, Clone, Copy)]
pub struct DryRun;

impl Writer for DryRun {
    fn write<'a>(&'a self, _: &'a Lease, _: &'a StoredLease, _: Instant) -> BoxFuture<'a, WriteResult> {
        Box::pin(ready(WriteResult::Written))
    }

    fn transfer_leadership<'a>(
        &'a self,
        _: &'a Endpoint,
        _: Id,
        _: Instant,
    ) -> BoxFuture<'a, TransferResult> {
        Box::pin(ready(TransferResult::Transferred))
    }

    fn create_event<'a>(&'a self, _: &'a Event, _: Instant) -> BoxFuture<'a, WriteResult> {
        Box::pin(ready(WriteResult::Written))
    }
}

/// The outcome of writing a Lease or an Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteResult {
    /// The API server stored it.
    Written,
    /// Another replica changed or created it first (409).
    Conflict,
    /// The write failed, or its outcome is unknown (no answer in time).
    Failed(Cause),
}

/// The outcome of a leadership transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransferResult {
    /// etcd confirmed the transfer.
    Transferred,
    /// The member was not the leader (`etcdserver: not leader`).
    NotLeader,
    /// The other member cannot lead (`bad leader transferee`): it is a learner or unknown.
    BadTarget,
    /// This etcd has no such call: version 3.2.
    Unsupported,
    /// The outcome is unknown: no answer in time, or an answer that leaves it open (`leader transfer took too long`).
    Unknown(Cause),
}
