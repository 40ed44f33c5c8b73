//! The decision about a member that does not answer. It may be down, or healthy and unreachable for Durward only.

use admission::Cause;

use super::super::facts::is_silence;
use super::super::input::{Input, Quorum};
use super::super::table::{MemberState, Row, Table};
use super::{Allowed, Decision, Step, UnknownCause, Warning, allow_reserved};
use cluster::cause;

/// Decides about a member that does not answer: it can be deleted if the others are a quorum, or if it is almost certainly down. It
/// may be back the next moment, so its deletion is reserved.
///
/// The kubelet's report that etcd does not run is not enough: a kubelet that is cut off from the API server leaves old reports, and
/// everyone with `pods/status` can write them. The member must also refuse connections, or be silent while no working quorum needs it.
pub(super) fn decide_no_response(input: Input<'_>, me: &Row, why: &Cause) -> Step {
    let table = input.table;
    let unread = UnknownCause::Unread(why.clone());
    // It may belong to either etcd cluster.
    if table.has_other_cluster() {
        let causes = vec![unread, UnknownCause::MixedClusters];
        return Ok(Decision::unknown_for_all(causes));
    }
    let allow = |decision| allow_reserved(input, me, decision);
    let quorum = table.voters.as_ref().ok().map(|voters| input.quorum(me, *voters));
    let others_are_quorum = quorum.is_some_and(|quorum| table.healthy_without(&me.uid) >= quorum.needed);
    let is_refused = why.code == cause::NOT_LISTENING;
    let others_answer = table.rows.iter().any(Row::answers);
    if me.is_stopped && (is_refused || is_silence(why) && !needs_silent_member(table)) {
        return allow(Decision::allow(Allowed::NotRunning));
    }
    if is_refused && others_answer && !may_be_needed(table, me, quorum) {
        let decision = Decision::allow(Allowed::NotListening);
        return allow(if others_are_quorum { decision } else { decision.warn(Warning::QuorumUncertain) });
    }
    // If it leads and answers only the other members, it would be killed without a transfer.
    if others_are_quorum && !table.has_hidden_leader() {
        return allow(Decision::allow(Allowed::NoResponse));
    }
    if !others_are_quorum && table.has_lost_quorum_without(me) {
        return allow(Decision::allow(Allowed::NoResponseWithoutQuorum).warn(Warning::QuorumLost));
    }
    Ok(Decision::unknown(unread))
}

/// Whether a member that refuses connections may still be part of a quorum. Firewalls refuse connections too, and the configured port
/// may be wrong.
///
/// - If the leader did not answer, this member may lead.
/// - If a quorum works, this member is part of it unless enough others certainly are.
/// - If no read succeeded, the quorum may be lost, or fail for a moment only. It counts as lost if too many members know no leader,
///   or if all others refuse connections as well. Members forget a dead leader within an election timeout.
fn may_be_needed(table: &Table, me: &Row, quorum: Option<Quorum>) -> bool {
    if table.has_hidden_leader() {
        return true;
    }
    if table.has_working_quorum {
        return quorum.is_none_or(|quorum| quorum_members_without(table, me) < quorum.needed);
    }
    !table.has_lost_quorum_without(me) && !all_others_are_down(table, me)
}

/// Returns the number of members of the working quorum that stay, healthy or not, without this one. A member without an answer is not
/// counted.
fn quorum_members_without(table: &Table, me: &Row) -> usize {
    let is_in_quorum = |row: &Row| row.id.is_some_and(|id| table.quorum_members.contains(&id));
    table.others(&me.uid).filter(|row| !row.is_leaving && is_in_quorum(row)).count()
}

/// Whether a quorum works, and a member that does not answer may lead it or be a part of it.
fn needs_silent_member(table: &Table) -> bool {
    let is_complete = |voters: usize| table.quorum_members.len() > voters / 2;
    table.has_working_quorum && (table.has_hidden_leader() || !table.listed_voters.is_some_and(is_complete))
}

/// Whether each other voter knows no leader, refuses connections or does not run. Then no member is left for a quorum with this one.
fn all_others_are_down(table: &Table, me: &Row) -> bool {
    let is_leaderless = |row: &Row| row.id.is_some_and(|id| table.leaderless.contains(&id));
    let is_down = |row: &&Row| row.is_down() || row.answers() && is_leaderless(row);
    let votes = |row: &&Row| !matches!(row.state, MemberState::Learner | MemberState::NotMember);
    let others: Vec<&Row> = table.others(&me.uid).filter(votes).collect();
    // A voter without a pod has no row if the list is uncertain.
    let has_all = table.reported_voters.is_some_and(|voters| voters <= others.len() + 1);
    !table.has_working_quorum && has_all && others.iter().all(is_down)
}
