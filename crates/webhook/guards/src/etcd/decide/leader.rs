//! The decision about the leader: it transfers leadership before its pod is deleted.

use super::super::config::LeaderPolicy;
use super::super::input::{Effect, Input};
use super::super::table::{Row, Table};
use super::{
    Decision, Outcome, Reason, UnknownCause, Warning, add_cluster_warnings, allow_reserved,
    without_reservation,
};

/// Decides about the leader. `outcome` is the allow if it did not lead.
pub(super) fn decide_leader(input: Input<'_>, table: &Table, me: &Row, outcome: Outcome) -> Decision {
    let progress = input.progress;
    let allow = |warning: Warning| {
        let outcome = add_cluster_warnings(input, table, me, outcome.warn(warning));
        allow_reserved(input, table, me, outcome)
    };
    if input.entry.on_leader_delete == LeaderPolicy::Allow {
        return allow(Warning::Election);
    }
    if input.denies_leader() {
        return Decision::deny(Reason::LeaderForbidden);
    }
    if progress.cannot_move_leader {
        let seconds = input.grace();
        if input.removal.by_controller && seconds > 0 {
            return allow(Warning::TransferOnStop { seconds });
        }
        return Decision::deny(Reason::NoTransfer);
    }
    if let Some(to) = &progress.would_move_to {
        return allow(Warning::WouldTransfer { to: to.clone() });
    }
    let next = table.successor(me, &progress.unable_to_lead);
    let Some((next, to)) = next.and_then(|next| Some((next, next.id?))) else {
        return Decision::deny(Reason::NoSuccessor);
    };
    if let Some(why) = input.reservation_error() {
        return Decision::unknown(UnknownCause::NotReserved(why.clone()));
    }
    // While the leader holds the reservation, no review allows the deletion of its successor.
    without_reservation(input, table)
        .unwrap_or_else(|| Decision::Effect(Effect::MoveLeader { to, name: next.name.clone() }))
}
