//! The changes that the guard makes: it reserves deletions and moves leadership. The only user of the writer.
//!
//! A reservation is a compare-and-swap over the Lease that the decision used. If two members are deleted at once, the second review
//! therefore finds the reservation of the first one.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use admission::Cause;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use super::facts::FactReader;
use super::input::{Effect, Progress, Round};
use super::member::Member;
use super::reservations;
use cluster::etcd::Id;
use cluster::writer::{Reservation, StoredLease, TransferResult, WriteResult, Writer};

/// The interval of reads after a leadership transfer.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Makes the changes for one member.
pub(super) struct Effects<'e> {
    pub(super) writer: &'e dyn Writer,
    pub(super) member: &'e Member<'e>,
    pub(super) end: Instant,
    pub(super) now: SystemTime,
}

/// Why a deletion is not reserved.
pub(super) enum Unreserved {
    /// Another replica changed the Lease first.
    Conflict,
    Failed(Cause),
}

impl Effects<'_> {
    /// Makes a change. Returns whether everything must be read again.
    pub(super) async fn apply(
        &self,
        effect: Effect,
        round: &Round,
        progress: &mut Progress,
        reader: FactReader<'_>,
    ) -> bool {
        let (to, name) = match effect {
            Effect::MoveLeader { to, name } => (to, name),
            Effect::Reserve => {
                let uid = round.state.namespace_uid();
                let written = match &round.state.lease {
                    Ok(stored) => self.reserve(stored, uid).await,
                    Err(why) => Err(Unreserved::Failed(why.clone())),
                };
                match written {
                    Ok(reservation) => progress.reservation = Some(reservation),
                    Err(Unreserved::Conflict) => {}
                    Err(Unreserved::Failed(why)) => {
                        progress.reservation_error = Some(why);
                        return false;
                    }
                }
                return true;
            }
        };
        match self.transfer(to, round).await {
            TransferResult::Transferred => {
                progress.moved_to = Some(name);
                if !progress.is_dry_run {
                    self.wait_for_followers(to, round, reader).await;
                }
            }
            TransferResult::NotLeader => {}
            TransferResult::BadTarget => progress.unable_to_lead.push(to),
            TransferResult::Unsupported => progress.cannot_move_leader = true,
            // The next round may show that leadership moved. If not, one retry follows.
            TransferResult::Unknown(why) => progress.transfer_errors.push(why),
        }
        true
    }

    /// Writes the reservation of the pod over the Lease that was read. After a conflict, everything is read again.
    pub(super) async fn reserve(
        &self,
        read: &StoredLease,
        namespace_uid: Option<&str>,
    ) -> Result<Reservation, Unreserved> {
        let held = read.reservation.as_ref();
        let reservation = reservations::next(held, &self.member.pod, namespace_uid, self.now)
            .map_err(Unreserved::Failed)?;
        let stored = StoredLease { version: read.version.clone(), reservation: Some(reservation.clone()) };
        match self.writer.write(&self.member.lease, &stored, self.end.into_std()).await {
            WriteResult::Written => Ok(reservation),
            WriteResult::Conflict => Err(Unreserved::Conflict),
            WriteResult::Failed(why) => Err(Unreserved::Failed(why)),
        }
    }

    async fn transfer(&self, to: Id, round: &Round) -> TransferResult {
        let own = &self.member.pod;
        // The list may have a newer address than the first read.
        let listed = round.facts.pods.iter().find(|listed| listed.pod.uid == own.uid);
        let leader = self.member.group.peer(listed.map_or(own, |listed| &listed.pod));
        self.writer.transfer_leadership(&leader, to, self.end.into_std()).await
    }

    /// Waits until most members report the new leader.
    async fn wait_for_followers(&self, to: Id, round: &Round, reader: FactReader<'_>) {
        let majority = round.table.voters.as_ref().map_or(usize::MAX, |voters| voters / 2 + 1);
        while Instant::now() < self.end {
            let statuses = join_all(round.facts.pods.iter().map(|pod| reader.status(&pod.pod))).await;
            let following = statuses.into_iter().flatten().filter(|status| status.leader == Some(to));
            let following: BTreeSet<Id> = following.map(|status| status.member).collect();
            if following.len() >= majority {
                return;
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}
