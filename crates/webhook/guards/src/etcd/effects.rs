//! The changes that the guard makes: it reserves deletions and moves leadership. The only user of the writer.
//!
//! A reservation is a compare-and-swap over the Lease that the decision used. If two members are deleted at once, the second review
//! therefore finds the reservation of the first one.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use super::facts::{FactReader, Facts};
use super::group::Member;
use super::input::{Effect, Progress, Round};
use super::reservations;
use cluster::etcd::Id;
use cluster::writer::{StoredLease, TransferResult, WriteResult, Writer};

/// The interval of reads after a leadership transfer.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Makes the changes for one member.
pub(super) struct Effects<'e> {
    /// Without one, an effect changes nothing, and the round shows it as done.
    pub(super) writer: Option<&'e dyn Writer>,
    pub(super) member: &'e Member<'e>,
    pub(super) end: Instant,
    pub(super) now: SystemTime,
}

impl Effects<'_> {
    /// Makes a change. Returns whether everything must be read again.
    pub(super) async fn apply(
        &self,
        effect: Effect,
        round: &mut Round,
        progress: &mut Progress,
        reader: FactReader<'_>,
    ) -> bool {
        if self.writer.is_none() {
            self.assume(effect, &mut round.facts);
            return false;
        }
        let (to, name) = match effect {
            Effect::MoveLeader { to, name } => (to, name),
            Effect::Reserve => {
                let uid = round.state.namespace_uid();
                let written = match &round.state.lease {
                    Ok(stored) => self.reserve(stored, uid).await,
                    Err(why) => WriteResult::Failed(why.clone()),
                };
                return match written {
                    WriteResult::Written | WriteResult::Conflict => true,
                    WriteResult::Failed(why) => {
                        progress.reservation_error = Some(why);
                        false
                    }
                };
            }
        };
        match self.move_leader(to, round, reader).await {
            TransferResult::Transferred => progress.moved_to = Some(name),
            TransferResult::NotLeader => {}
            TransferResult::BadTarget => progress.unable_to_lead.push(to),
            TransferResult::Unsupported => progress.cannot_move_leader = true,
            // The next round may show that leadership moved. If not, one retry follows.
            TransferResult::Unknown(why) => progress.transfer_errors.push(why),
        }
        true
    }

    /// Shows an effect as done, for a dry run.
    fn assume(&self, effect: Effect, facts: &mut Facts) {
        match effect {
            Effect::MoveLeader { name, .. } => facts.assumed_leader = Some(name),
            Effect::Reserve => {
                match reservations::next(facts.reservation.as_ref(), &self.member.pod, None, facts.now) {
                    Ok(reservation) => facts.reservation = Some(reservation),
                    Err(why) => facts.reservation_error = Some(why),
                }
            }
        }
    }

    /// Writes the reservation of the pod over the Lease that was read. After a conflict, everything is read again.
    pub(super) async fn reserve(&self, read: &StoredLease, namespace_uid: Option<&str>) -> WriteResult {
        let (pod, now) = (&self.member.pod, self.now);
        let Some(writer) = self.writer else { return WriteResult::Written };
        let reservation = match reservations::next(read.reservation.as_ref(), pod, namespace_uid, now) {
            Ok(reservation) => reservation,
            Err(why) => return WriteResult::Failed(why),
        };
        let stored = StoredLease { version: read.version.clone(), reservation: Some(reservation) };
        writer.write(&self.member.lease, &stored, self.end.into_std()).await
    }

    /// Moves leadership, and waits until most members report the new leader.
    async fn move_leader(&self, to: Id, round: &Round, reader: FactReader<'_>) -> TransferResult {
        let (pods, own) = (&round.facts.pods, &self.member.pod);
        let Some(writer) = self.writer else { return TransferResult::Transferred };
        // The list may have a newer address than the first read.
        let listed = pods.iter().find(|listed| listed.pod.uid == own.uid);
        let leader = self.member.group.peer(listed.map_or(own, |listed| &listed.pod));
        let moved = writer.transfer_leadership(&leader, to, self.end.into_std()).await;
        if moved != TransferResult::Transferred {
            return moved;
        }
        let majority = round.table.voters.as_ref().map_or(usize::MAX, |voters| voters / 2 + 1);
        while Instant::now() < self.end {
            let statuses = join_all(pods.iter().map(|pod| reader.status(&pod.pod))).await;
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
