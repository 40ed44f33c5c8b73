//! What changes something outside: the other way than the world, which only looks.
//!
//! There are few such deeds, each a method here, and only the `act.rs` of a room calls them. Live only: in a world on disk, and in a
//! dry run, the room tells the step that it would take and takes none. Whoever puts guards into service gives them hands by
//! [`Configured::build_with`](crate::Configured::build_with); a guard that was built without has none.
//!
//! A deed is done once. Nothing here is tried again by itself: what became of it may be unknown, and the guard decides.

mod live;
mod reservations;

use std::time::Instant;

use admission::{BoxFuture, Cause};

pub use live::LiveWriter;
pub use reservations::{Lease, Reservation, Reservations};

use crate::etcd::{Id, Peer};

/// Everything that guards may do outside.
pub trait Writer: Send + Sync {
    /// Writes the set into the Lease, if the Lease is still the one that the set was read of: a PUT with
    /// [`version`](Reservations::version) as `metadata.resourceVersion`, or a POST where there was none. The body is
    /// [`Reservations::body`]. The Lease is read through the world ([`Lease::RESOURCE`], whole).
    fn write<'a>(
        &'a self,
        lease: &'a Lease,
        set: &'a Reservations,
        deadline: Instant,
    ) -> BoxFuture<'a, Written>;

    /// `Maintenance.MoveLeader`, sent to `leader`: hand over to the member with the id `to`. Comes back when etcd says that it is
    /// done, or at the deadline; that the others have seen it is the guard's to look at.
    fn move_leader<'a>(&'a self, leader: &'a Peer, to: Id, deadline: Instant) -> BoxFuture<'a, Moved>;
}

/// What became of a Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// It is in etcd.
    Written,
    /// Somebody else was faster (409): read it again.
    Raced,
    /// It was not written, or nobody knows: no answer in time may also be that.
    Refused(Cause),
}

/// What became of a leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Moved {
    /// It says that it handed over.
    Moved,
    /// It was not the leader any more (412, `etcdserver: not leader`).
    NotLeader,
    /// The other one cannot lead (412, `bad leader transferee`): a learner, or nobody.
    BadTarget,
    /// This etcd cannot be asked for it: 3.2, or its gateway is off.
    Unsupported,
    /// Nobody knows: no answer in time, or one that says neither (`leader transfer took too long`).
    Unknown(Cause),
}
