//! The decision about a member that does not answer. It may be down, or healthy and unreachable for Durward only.

use admission::Cause;

use super::super::facts::is_silence;
use super::super::input::{Input, Quorum};
use super::super::table::{Row, Table};
use super::{Allowed, Decision, Step, UnknownCause, Warning, allow_reserved, unknown};
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
    if me.is_stopped && (is_refused || is_silence(why) && !table.needs_silent_member()) {
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
    unknown(unread)
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
        return quorum.is_none_or(|quorum| table.quorum_members_without(&me.uid) < quorum.needed);
    }
    !table.has_lost_quorum_without(me) && !table.all_others_are_down(me)
}
