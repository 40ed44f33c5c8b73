//! The decision about the leader: it transfers leadership before its pod is deleted.

use admission::Ruling;

use super::super::config::LeaderPolicy;
use super::super::input::{Effect, Input};
use super::super::messages::{Messages, Reason};
use super::super::reservations::Validity;
use super::super::table::{Row, Table};
use super::{Decision, allow_reserved, deny_backoff, not_reserved};

/// The denial for users with `onLeaderDelete: deny`.
pub(super) const LEADS: &str =
    "it is the etcd leader, and deleting leaders is disabled (onLeaderDelete: deny)";

/// Decides about the leader.
pub(super) fn decide_leader(
    input: Input<'_>,
    table: &Table,
    me: &Row,
    ruling: Ruling,
    messages: &Messages<'_>,
) -> Decision {
    let progress = input.progress;
    let deny = |reason: Reason, text: &str| Decision::Ruling(messages.deny(reason, text));
    let allow = |text: &str| {
        let ruling = messages.add_warnings(ruling.warn(messages.warning(text)));
        allow_reserved(input, table, me, messages, ruling)
    };
    if input.entry.on_leader_delete == LeaderPolicy::Allow {
        return allow("it is the leader; the cluster elects another one");
    }
    if input.denies_leader() {
        return deny(Reason::Leader, LEADS);
    }
    if progress.cannot_move_leader || table.is_degraded {
        let grace = input.grace();
        if input.removal.by_controller && grace > 0 {
            return allow(&format!(
                "it is the leader, and this etcd cannot transfer leadership on request; it has {grace} s to do so when it stops"
            ));
        }
        return deny(
            Reason::Leader,
            "it is the etcd leader, and this etcd cannot transfer leadership on request (before 3.3, or no JSON gateway)",
        );
    }
    if let Some(name) = &progress.would_move_to {
        return allow(&format!("it is the leader and would transfer leadership to {name} first"));
    }
    let reservation = &input.facts.reservation;
    let next = table.successor(me, &progress.unable_to_lead, &reservation.successors);
    let Some((next, to)) = next.and_then(|next| Some((next, next.id?))) else {
        return deny(Reason::Leader, "it is the etcd leader, and no other member can take over");
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
            Reason::Backoff,
            "it is the etcd leader, and its reservation expires during the transfer",
        );
    }
    Decision::Effect(Effect::AddSuccessor { uid: next.uid.clone() })
}
