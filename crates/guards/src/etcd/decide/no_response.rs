//! The decision about a member that does not answer. It may be down, or healthy and unreachable for Durward only.

use admission::Cause;

use super::super::input::{Input, Quorum};
use super::super::messages::Messages;
use super::super::table::{Row, Table};
use super::{Decision, allow_reserved, mixed_clusters};
use cluster::cause;

/// Decides about a member that does not answer: it can be deleted if the others are a quorum, or if it is almost certainly down. It
/// may be back the next moment, so its deletion is reserved.
pub(super) fn decide_no_response(
    input: Input<'_>,
    table: &Table,
    me: &Row,
    why: &Cause,
    messages: &Messages<'_>,
) -> Decision {
    // It may belong to either etcd cluster.
    if table.has_other_cluster() {
        return Decision::Ruling(messages.unknown(vec![why.clone(), mixed_clusters()]));
    }
    let allow = |ruling| allow_reserved(input, table, me, messages, ruling);
    let quorum = table.voters.as_ref().ok().map(|voters| input.quorum(me, *voters));
    let others_are_quorum = quorum.is_some_and(|quorum| table.healthy_without(&me.uid) >= quorum.needed);
    let others_answer = table.rows.iter().any(Row::answers);
    if why.code == cause::NOT_LISTENING && others_answer && !may_be_needed(input, table, me, quorum) {
        let ruling = messages.allow("nothing listens on its client port");
        let warning = || messages.warning("the other members might not have quorum");
        return allow(if others_are_quorum { ruling } else { ruling.warn(warning()) });
    }
    // If it leads and answers only the other members, it would be killed without a transfer.
    if others_are_quorum && !table.has_hidden_leader() {
        return allow(messages.allow("it does not answer, and the other members have quorum"));
    }
    if !others_are_quorum && table.has_lost_quorum_without(me) {
        let ruling = messages.allow("quorum is lost, and it does not answer");
        let text = "quorum is lost, and this member does not answer";
        return allow(ruling.warn(messages.warning(text)));
    }
    Decision::Ruling(messages.unknown(vec![why.clone()]))
}

/// Whether a member that refuses connections may still be part of a quorum. Firewalls refuse connections too, and the configured port
/// may be wrong.
///
/// - If the leader did not answer, this member may lead.
/// - If a quorum works, this member is part of it unless enough others certainly are.
/// - If no read succeeded, the quorum may be lost, or fail for a moment only. It counts as lost if too many members know no leader,
///   or if all others refuse connections as well. Members forget a dead leader within an election timeout.
fn may_be_needed(input: Input<'_>, table: &Table, me: &Row, quorum: Option<Quorum>) -> bool {
    if table.has_hidden_leader() {
        return true;
    }
    if table.has_working_quorum {
        return quorum.is_none_or(|quorum| table.quorum_members_without(&me.uid) < quorum.needed);
    }
    !table.has_lost_quorum_without(me) && !table.all_others_are_down(me, input.facts)
}
