//! The decision about the leader: it transfers leadership before its pod is deleted.

use admission::Ruling;

use super::super::config::LeaderPolicy;
use super::super::messages::Messages;
use super::super::reservations::Validity;
use super::super::table::{MemberState, Row, Table};
use super::{Decision, Effect, Input, allow_reserved, deny_backoff, not_reserved};
use cluster::etcd::Id;

/// The denial for people with `leader: refuse`.
pub(super) const LEADS: &str = "it leads the ensemble, and leaders are not deleted here (leader: refuse)";

/// Whether the leader is denied. Controllers are not, because a rolling update would never finish.
pub(in super::super) fn is_refused(input: Input<'_>) -> bool {
    input.entry.leader == LeaderPolicy::Refuse && !input.removal.by_controller
}

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
    if input.entry.leader == LeaderPolicy::Allow {
        return allow("it leads: the ensemble elects another when it is gone");
    }
    if is_refused(input) {
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
    let next = successor(table, me, &progress.unable_to_lead, &reservation.successors);
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

/// A lag below this is normal, because entries are written while the members answer.
const NORMAL_LAG: u64 = 100;

/// Returns the best member to take over leadership: healthy, not on a cordoned node, with little lag, already updated. Among equals
/// the reserved successor wins. A member on a cordoned node or with an old revision would soon have to transfer leadership again.
pub(in super::super) fn successor<'t>(
    table: &'t Table,
    me: &Row,
    unable_to_lead: &[Id],
    reserved: &[String],
) -> Option<&'t Row> {
    let is_able = |row: &&Row| {
        row.uid != me.uid
            && row.state == MemberState::Healthy
            && row.id.is_some_and(|id| !unable_to_lead.contains(&id))
    };
    table.rows.iter().filter(is_able).min_by_key(|row| {
        let (lag, is_other) = (row.lag.unwrap_or(0), !reserved.contains(&row.uid));
        (row.is_cordoned, lag / NORMAL_LAG, !row.is_updated, is_other, lag, row.id)
    })
}
