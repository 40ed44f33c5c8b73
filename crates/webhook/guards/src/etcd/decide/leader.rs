//! The decision about the leader: it transfers leadership before its pod is deleted.

use super::super::config::LeaderPolicy;
use super::super::input::{Effect, Input};
use super::super::table::Row;
use super::{
    Decision, DenyReason, Step, UnknownCause, Warning, add_cluster_warnings, allow_reserved,
    without_reservation,
};

/// Decides about the leader. `decision` is the allow if it did not lead.
pub(super) fn decide_leader(input: Input<'_>, me: &Row, decision: Decision) -> Step {
    let progress = input.progress;
    let allow = |warning: Warning| {
        let decision = add_cluster_warnings(input, me, decision.warn(warning));
        allow_reserved(input, me, decision)
    };
    if input.entry.on_leader_delete == LeaderPolicy::Allow {
        return allow(Warning::Election);
    }
    if input.denies_leader() {
        return Ok(Decision::deny(DenyReason::LeaderForbidden));
    }
    if progress.cannot_move_leader {
        let seconds = input.grace();
        if input.removal.by_controller && seconds > 0 {
            return allow(Warning::TransferOnStop { seconds });
        }
        return Ok(Decision::deny(DenyReason::NoTransfer));
    }
    // The members still report that it leads.
    if let Some(to) = progress.moved_to.as_ref().filter(|_| progress.is_dry_run) {
        return allow(Warning::WouldTransfer { to: to.clone() });
    }
    let next = input.table.successor(me, &progress.unable_to_lead);
    let Some((next, to)) = next.and_then(|next| Some((next, next.id?))) else {
        return Ok(Decision::deny(DenyReason::NoSuccessor));
    };
    if let Some(why) = input.reservation_error() {
        return Ok(Decision::unknown(UnknownCause::NotReserved(why.clone())));
    }
    // While the leader holds the reservation, no review allows the deletion of its successor.
    match without_reservation(input)? {
        Some(denied) => Ok(denied),
        None => Err(Effect::MoveLeader { to, name: next.name.clone() }),
    }
}
