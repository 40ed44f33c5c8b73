//! The changes that the guard makes: it reserves deletions and moves leadership. The only user of the writer.
//!
//! A reservation is a compare-and-swap over the Lease that the decision used. If two members are deleted at once, the second review
//! therefore finds the reservation of the first one.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use super::facts::{FactReader, Facts};
use super::pod::Pod;
use super::reservations;
use super::table::Table;
use cluster::etcd::{Endpoint, Id};
use cluster::writer::{Lease, StoredLease, TransferResult, WriteResult, Writer};

/// The interval of reads after a leadership transfer.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Makes the changes for one etcd cluster.
#[derive(Clone, Copy)]
pub(super) struct Effects<'e> {
    pub(super) writer: &'e dyn Writer,
    pub(super) lease: &'e Lease,
    pub(super) end: Instant,
}

impl Effects<'_> {
    /// Writes the reservation of a pod over the Lease that was read.
    pub(super) async fn reserve(
        &self,
        read: &StoredLease,
        pod: &Pod,
        namespace_uid: Option<&str>,
        now: SystemTime,
    ) -> WriteResult {
        let reservation = match reservations::next(read.reservation.as_ref(), pod, namespace_uid, now) {
            Ok(reservation) => reservation,
            Err(why) => return WriteResult::Failed(why),
        };
        let stored = StoredLease { version: read.version.clone(), reservation: Some(reservation) };
        self.writer.write(self.lease, &stored, self.end.into_std()).await
    }

    /// Moves leadership, and waits until most members report the new leader.
    pub(super) async fn move_leader(
        &self,
        leader: &Endpoint,
        to: Id,
        facts: &Facts,
        reader: FactReader<'_>,
    ) -> TransferResult {
        let moved = self.writer.transfer_leadership(leader, to, self.end.into_std()).await;
        if moved != TransferResult::Transferred {
            return moved;
        }
        let majority = Table::of(facts).voters.map_or(usize::MAX, |voters| voters / 2 + 1);
        while Instant::now() < self.end {
            let statuses = join_all(facts.pods.iter().map(|pod| reader.status(&pod.pod))).await;
            let following = statuses.into_iter().flatten().filter(|status| status.leader == Some(to));
            let following: BTreeSet<Id> = following.map(|status| status.member).collect();
            if following.len() >= majority {
                break;
            }
            sleep(POLL_INTERVAL).await;
        }
        TransferResult::Transferred
    }
}
