//! Writer that reach what a live world looks at: Leases on its API server, leaders of ensembles.

use std::time::Instant;

use admission::{BoxFuture, Cause};

use super::{Lease, Moved, Reservations, Writer, Written};
use crate::etcd::{Id, Peer};
use crate::live::{Live, Tools, Unwritten};

/// Writer by the connections and with the credentials of a live world.
#[derive(Clone)]
pub struct LiveWriter {
    tools: Tools,
}

impl LiveWriter {
    /// Those that belong to this world.
    pub fn of(world: &Live) -> Self {
        Self { tools: world.tools() }
    }

    /// Whether the Lease may be made and changed, tried without storing anything.
    pub async fn may_write(&self, lease: &Lease, deadline: Instant) -> Result<(), Cause> {
        let body = Reservations::default().body(lease);
        for is_new in [true, false] {
            self.tools.may_write(lease.address(), is_new, &body, deadline.into()).await?;
        }
        Ok(())
    }

    async fn put(&self, lease: &Lease, set: &Reservations, deadline: Instant) -> Written {
        let is_new = set.version.is_none();
        let outcome = self.tools.write(lease.address(), is_new, &set.body(lease), deadline.into()).await;
        match outcome {
            Ok(()) => Written::Written,
            // Somebody made it before, or changed it since.
            Err(Unwritten { status: Some(409), .. }) => Written::Raced,
            // Leases are made by a PUT too, so that one that was taken away is written anew, with all that was read of it; other
            // API servers say that it is not there.
            Err(Unwritten { status: Some(404), .. }) if !is_new => Written::Raced,
            Err(Unwritten { why, .. }) => Written::Refused(why),
        }
    }
}

impl Writer for LiveWriter {
    fn write<'a>(
        &'a self,
        lease: &'a Lease,
        set: &'a Reservations,
        deadline: Instant,
    ) -> BoxFuture<'a, Written> {
        Box::pin(self.put(lease, set, deadline))
    }

    fn move_leader<'a>(&'a self, leader: &'a Peer, to: Id, deadline: Instant) -> BoxFuture<'a, Moved> {
        Box::pin(self.tools.move_leader(leader, to, deadline.into()))
    }
}
