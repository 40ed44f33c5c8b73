//! The decision about a member that answers and votes: the quorum, and warnings about side effects.

use super::super::config::LeaderPolicy;
use super::super::facts::is_silence;
use super::super::input::{Input, Quorum};
use super::super::size::SizeSource;
use super::super::table::{MemberState, Row, Table};
use super::leader::decide_leader;
use super::{
    Allowed, Concern, Decision, DenyReason, Step, UnknownCause, Warning, add_cluster_warnings, allow_reserved,
};
use cluster::cause;

/// Decides about a member that answers and votes.
pub(super) fn decide_voter(input: Input<'_>, me: &Row) -> Step {
    let table = input.table;
    let voters = match &table.voters {
        Ok(voters) => *voters,
        Err(_) if table.is_leaderless && !table.has_working_quorum => {
            return Ok(Decision::deny(DenyReason::QuorumLost));
        }
        Err(why) => return Ok(Decision::unknown(UnknownCause::Unread(why.clone()))),
    };
    let voter = Voter { input, table, me, voters, quorum: input.quorum(me, voters) };
    let has_quorum = voter.healthy() >= voter.quorum.needed;
    let mut decision =
        if has_quorum { Decision::allow(Allowed::OthersHaveQuorum) } else { voter.without_quorum() };
    if !decision.is_allowed() {
        return Ok(decision);
    }
    if me.state == MemberState::Corrupt && !table.leads(me) {
        let decision = decision.warn(Warning::CorruptData);
        return allow_reserved(input, me, add_cluster_warnings(input, me, decision));
    }
    if voter.loses_last_copy() {
        return Ok(Decision::deny(DenyReason::LastCopy));
    }
    decision.warnings.extend(concerns(input, me).into_iter().map(Warning::Concern));
    // If the deletion interrupts etcd anyway, a transfer is useless.
    if table.leads(me) && (has_quorum || !voter.is_outage()) {
        return decide_leader(input, me, decision);
    }
    allow_reserved(input, me, add_cluster_warnings(input, me, decision))
}

/// A voter, and the quorum after its deletion.
struct Voter<'v> {
    input: Input<'v>,
    table: &'v Table,
    me: &'v Row,
    voters: usize,
    quorum: Quorum,
}

impl Voter<'_> {
    fn healthy(&self) -> usize {
        self.table.healthy_without(&self.me.uid)
    }

    /// Whether the only data of the etcd cluster is lost with the pod.
    fn loses_last_copy(&self) -> bool {
        let Input { pod, facts, .. } = self.input;
        let is_lost = !pod.keeps_data || facts.scaled_away.contains(&pod.uid);
        is_lost && self.voters == 1
    }

    /// Decides without a healthy quorum of the others.
    fn without_quorum(&self) -> Decision {
        let Self { table, voters, .. } = *self;
        let is_corrupt = self.me.state == MemberState::Corrupt;
        if self.is_outage() {
            return self.outage();
        }
        if is_corrupt && table.has_lost_quorum_without(self.me) {
            return Decision::allow(Allowed::Corrupt).warn(Warning::CorruptWithoutQuorum);
        }
        if is_corrupt && !table.has_working_quorum {
            return Decision::unknown(UnknownCause::NoReads);
        }
        if table.has_unnamed_corruption() && !table.is_leaderless {
            return Decision::deny(DenyReason::Corrupt);
        }
        if table.may_be_small()
            && self.quorum.is_impossible()
            && let Some(decision) = self.undeclared_size()
        {
            return decision;
        }
        let unknown = unknown_members(table, &self.me.uid);
        if self.healthy() + unknown.len() >= self.quorum.needed {
            return Decision::unknown_for_all(unknown);
        }
        if table.is_leaderless {
            return Decision::deny(DenyReason::QuorumLost);
        }
        if table.is_temporarily_small() {
            return Decision::deny(DenyReason::TooFewVoters { voters, expected: table.expected.members });
        }
        let Quorum { voters, needed, .. } = self.quorum;
        Decision::deny(DenyReason::Quorum { left: self.healthy(), voters, needed })
    }

    /// Whether each deletion interrupts etcd by its declared size, and not only while a member is replaced.
    fn is_outage(&self) -> bool {
        self.table.is_small() && self.quorum.is_impossible()
    }

    /// Decides for so few voters that each deletion interrupts etcd if no more are meant to exist, which is not known. Three members
    /// look the same while the third one is replaced, and then neither of the two can be deleted.
    fn undeclared_size(&self) -> Option<Decision> {
        let Self { table, voters, .. } = *self;
        let SizeSource::Unread(why) = &table.expected.source else {
            return (!table.is_leaderless).then(|| Decision::deny(DenyReason::UndeclaredSize { voters }));
        };
        // The unread size matters only if the deletion would be allowed.
        let decision = self.outage();
        let unread = || Decision::unknown(UnknownCause::UnreadSize(why.clone()));
        Some(if decision.is_allowed() { unread() } else { decision })
    }

    /// Decides for so few members that each deletion interrupts etcd.
    fn outage(&self) -> Decision {
        let Self { input, table, me, voters, .. } = *self;
        // Without a quorum the other one of two cannot remove this member from the list.
        if input.facts.surplus.contains(&input.pod.uid) && (voters == 1 || !table.is_leaderless) {
            return Decision::deny(DenyReason::ScaledAway { voters });
        }
        if voters > 1 {
            // The other one of two may be broken, and then this one has the only data.
            if table.is_leaderless {
                return Decision::deny(DenyReason::QuorumLost);
            }
            // A single member has no successor.
            if table.leads(me) && input.denies_leader() {
                return Decision::deny(DenyReason::LeaderForbidden);
            }
            if let Some(decision) = self.without_other() {
                return decision;
            }
        }
        Decision::allow(Allowed::Outage).warn(Warning::Outage { voters })
    }

    /// Returns why one of two members cannot be deleted: the data must always be in one of them.
    fn without_other(&self) -> Option<Decision> {
        let Self { table, me, .. } = self;
        let others: Vec<&Row> = table.others(&me.uid).filter(|row| row.may_vote()).collect();
        if others.iter().any(|row| row.is_leaving) {
            return Some(Decision::deny(DenyReason::OtherLeaving));
        }
        // Corrupt data needs no protection.
        if me.state == MemberState::Corrupt || others.iter().any(|row| row.state == MemberState::Healthy) {
            return None;
        }
        if table.has_unnamed_corruption() {
            return Some(Decision::deny(DenyReason::Corrupt));
        }
        let unknown = unknown_members(table, &me.uid);
        if !unknown.is_empty() {
            return Some(Decision::unknown_for_all(unknown));
        }
        Some(Decision::deny(DenyReason::OtherUnhealthy))
    }
}

/// Returns why members that may be healthy did not answer. Causes that mean that a member is down are left out.
fn unknown_members(table: &Table, uid: &str) -> Vec<UnknownCause> {
    let unknown = table.others(uid).filter_map(|row| match &row.state {
        MemberState::NoResponse(why) if !is_silence(why) && why.code != cause::NO_QUORUM => {
            Some(UnknownCause::Unread(why.clone()))
        }
        _ => None,
    });
    unknown.collect()
}

/// Returns the side effects of the deletion.
fn concerns(input: Input<'_>, me: &Row) -> Vec<Concern> {
    let table = input.table;
    let keeps_member = !input.removes_member();
    let mut concerns = Vec::new();
    if !table.changes.is_empty() {
        concerns.push(Concern::MembershipChange(table.changes.clone()));
    }
    if !input.pod.keeps_data && keeps_member {
        concerns.push(Concern::DataLoss);
    }
    if input.facts.scaled_away.contains(&input.pod.uid) && keeps_member {
        concerns.push(Concern::PvcDeleted);
    }
    if table.leads(me)
        && input.removal.grace == Some(0)
        && input.entry.on_leader_delete == LeaderPolicy::Allow
    {
        concerns.push(Concern::KilledLeader);
    }
    concerns
}
