//! Writes Leases to the API server of a [`Live`] and sends leadership transfers to etcd members.

use std::time::Instant;

use admission::{BoxFuture, Cause};

use super::{Lease, Reservations, TransferResult, WriteResult, Writer};
use crate::etcd::{Endpoint, Id};
use crate::live::{Live, Tools, Unwritten};

/// A [`Writer`] that shares the connections and credentials of a [`Live`].
#[derive(Clone)]
pub struct LiveWriter {
    tools: Tools,
}

impl LiveWriter {
    /// Creates the writer of this control plane.
    pub fn new(live: &Live) -> Self {
        Self { tools: live.tools() }
    }

    /// Checks with dry-run requests whether the Lease can be created and updated.
    pub async fn may_write(&self, lease: &Lease, deadline: Instant) -> Result<(), Cause> {
        let body = Reservations::default().body(lease);
        for is_new in [true, false] {
            self.tools.may_write(lease.address(), is_new, &body, deadline.into()).await?;
        }
        Ok(())
    }

    async fn put(&self, lease: &Lease, set: &Reservations, deadline: Instant) -> WriteResult {
        let is_new = set.version.is_none();
        let outcome = self.tools.write(lease.address(), is_new, &set.body(lease), deadline.into()).await;
        match outcome {
            Ok(()) => WriteResult::Written,
            // Another replica created or changed it.
            Err(Unwritten { status: Some(409), .. }) => WriteResult::Conflict,
            // Some API servers create a Lease by PUT; others answer 404 if the Lease was deleted meanwhile.
            Err(Unwritten { status: Some(404), .. }) if !is_new => WriteResult::Conflict,
            Err(Unwritten { why, .. }) => WriteResult::Failed(why),
        }
    }
}

impl Writer for LiveWriter {
    fn write<'a>(
        &'a self,
        lease: &'a Lease,
        set: &'a Reservations,
        deadline: Instant,
    ) -> BoxFuture<'a, WriteResult> {
        Box::pin(self.put(lease, set, deadline))
    }

    fn transfer_leadership<'a>(
        &'a self,
        leader: &'a Endpoint,
        to: Id,
        deadline: Instant,
    ) -> BoxFuture<'a, TransferResult> {
        Box::pin(self.tools.transfer_leadership(leader, to, deadline.into()))
    }
}
