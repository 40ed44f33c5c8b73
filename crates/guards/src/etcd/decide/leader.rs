//! The decision about the leader: it transfers leadership before its pod is deleted.

use admission::Ruling;

use super::super::config::LeaderPolicy;
use super::super::input::{Effect, Input};
use super::super::messages::Messages;
use super::super::reservations::Validity;
use super::super::table::{Row, Table};
use super::{Decision, allow_reserved, deny_backoff, not_reserved};

/// The denial for people with `onLeaderDelete: deny`.
pub(super) const LEADS: &str =
    "it leads the ensemble, and leaders are not deleted here (onLeaderDelete: deny)";

/// Decides about the leader.
pub(super) fn decide_leader(
    input: Input<'_>,
    table: &Table,
    me: &Row,
    ruling: Ruling,
    messages: &Messages<'_>,
) -> Decision {
    let progress = input.progress;
    let deny = |reason: &str, text: &str| Decision::Ruling(messages.deny(reason, text));
    let allow = |text: &str| {
        let ruling = messages.add_warnings(ruling.warn(messages.warning(text)));
        allow_reserved(input, table, me, messages, ruling)
    };
    if input.entry.on_leader_delete == LeaderPolicy::Allow {
        return allow("it leads: the ensemble elects another when it is gone");
    }
    if input.denies_leader() {
        return deny("Leader", LEADS);
    }
    if progress.cannot_move_leader || table.is_degraded {
        let grace = input.grace();
        if input.removal.by_controller && grace > 0 {
            return allow(&format!(
                "it leads and cannot be asked to hand over; it has {grace} s to do so by itself when it is ended"
            ));
        }
        return deny(
            "Leader",
            "it leads the ensemble, and this etcd cannot be asked to hand over (before 3.3, or without its JSON gateway)",
        );
    }
    if let Some(name) = &progress.would_move_to {
        return allow(&format!("it leads, and would hand over to {name} first"));
    }
    let reservation = &input.facts.reservation;
    let next = table.successor(me, &progress.unable_to_lead, &reservation.successors);
    let Some((next, to)) = next.and_then(|next| Some((next, next.id?))) else {
        return deny("Leader", "it leads the ensemble, and no other member can take over");
    };
    if let Some(why) = input.reservation_error() {
        return Decision::Ruling(messages.unknown(vec![not_reserved(why)]));
    }
    // Before a transfer that would be useless.
    if reservation.backoff.is_active {
        return Decision::Ruling(deny_backoff(input, messages));
    }
    // No review allows the deletion of the successor while the reservation names it, which lasts until this review ends.
    let names_it = reservation.successors.contains(&next.uid);
    if progress.would_reserve || (reservation.validity >= Validity::ThisReview && names_it) {
        return Decision::Effect(Effect::MoveLeader { to, name: next.name.clone() });
    }
    // If it was renewed, repeated deletions of a leader that never transfers would block all other members.
    if reservation.validity == Validity::Expiring {
        return deny(
            "Again",
            "it leads the ensemble, and what was noted of it before ends while leadership moves",
        );
    }
    Decision::Effect(Effect::AddSuccessor { uid: next.uid.clone() })
}
