//! The decision about a pod. Pure.
//!
//! It has three steps: by the request and the pod, by the state of Kubernetes, and by the answers of the members. Each step runs
//! only if the previous one left the decision open. The first two allow teardown, repair and deletions that a kubelet has begun, by
//! the state of the objects. The user of a request can restrict that and is never sufficient. (The API server does not send the
//! deletions of the namespace controller: `rules.rs`.)
//!
//! The last step checks the quorum: a member that counts can be deleted only if the others are a quorum without it. A member without
//! a response is neither healthy nor gone. If it could change the verdict, the verdict is Unknown.

mod early;
mod leader;
mod no_response;
#[cfg(test)]
mod tests;
mod voter;

use admission::{Cause, Ruling};

use super::input::{Effect, Input};
use super::messages::{Messages, Reason};
use super::table::{MIXED_CLUSTERS, MemberState, Row, Table};
use cluster::cause;

pub(super) use early::{
    EarlyRuling, Next, from_kube_state, from_pod, from_request, from_view, missing, unknown_owner, unread,
};
use no_response::decide_no_response;
use voter::decide_voter;

/// The result of the last step.
#[derive(Debug)]
pub(super) enum Decision {
    Ruling(Ruling),
    /// An effect is needed first; then all facts are read again.
    Effect(Effect),
}

/// Decides as if all effects succeeded.
pub(super) fn dry_run(input: Input<'_>) -> Ruling {
    let mut progress = input.progress.clone();
    loop {
        match decide(Input { progress: &progress, ..input }) {
            Decision::Ruling(ruling) => return ruling,
            Decision::Effect(effect) => progress.assume(effect),
        }
    }
}

/// Decides by the answers of the members.
pub(super) fn decide(input: Input<'_>) -> Decision {
    let table = Table::of(input.config, input.facts);
    let messages = Messages::new(input, &table);
    let Some(me) = table.row(&input.pod.uid) else {
        let why = Cause::new(cause::UNCLEAR, "the pod is not one of the etcd cluster's pods");
        return Decision::Ruling(messages.unknown(vec![why]));
    };
    match &me.state {
        // It may become a voter or be added to the list before its pod has a deletion timestamp, so both cases reserve.
        MemberState::Learner => {
            let text = "it is a learner and does not vote";
            let ruling = messages.allow("it does not vote").warn(messages.warning(text));
            allow_reserved(input, &table, me, &messages, ruling)
        }
        MemberState::NotMember(why) => {
            let text = format!("{why}; etcd cluster {} does not need it", table.cluster);
            let ruling = messages.allow("it is not a member").warn(messages.warning(&text));
            allow_reserved(input, &table, me, &messages, ruling)
        }
        MemberState::OtherCluster(_) => Decision::Ruling(messages.unknown(vec![mixed_clusters()])),
        MemberState::NoResponse(why) => decide_no_response(input, &table, me, why, &messages),
        MemberState::Leaving(_) => Decision::Ruling(decide_leaving(input, &table, me, &messages)),
        MemberState::NoPod => {
            Decision::Ruling(messages.unknown(vec![Cause::new(cause::UNCLEAR, "the pod has no member")]))
        }
        MemberState::Healthy | MemberState::Unhealthy(_) | MemberState::Corrupt => {
            decide_voter(input, &table, me, &messages)
        }
    }
}

fn mixed_clusters() -> Cause {
    Cause::new(cause::UNCLEAR, format!("{MIXED_CLUSTERS} two etcd clusters"))
}

/// The warning about a leader that is deleted without a grace period.
pub(super) const STILL_LEADS: &str = "it is still the leader and is killed before it can transfer leadership; writes stop until the next election";

/// Decides about a pod that is being deleted: the request only shortens its grace period.
fn decide_leaving(input: Input<'_>, table: &Table, me: &Row, messages: &Messages<'_>) -> Ruling {
    let ruling = messages.allow("the pod is already being deleted");
    if table.leads(me) && input.removal.grace == Some(0) {
        return ruling.warn(messages.warning(STILL_LEADS));
    }
    ruling
}

/// Returns an allow once the deletion is reserved, so that other reviews do not count this member. If it cannot be reserved, only a
/// member that does not count can be deleted. If the reservations cannot be read, any other member may be leaving.
fn allow_reserved(
    input: Input<'_>,
    table: &Table,
    me: &Row,
    messages: &Messages<'_>,
    ruling: Ruling,
) -> Decision {
    if let Some(from) = transfers_from(input, table) {
        let text = format!("{} is transferring leadership to it", from.name);
        return Decision::Ruling(messages.deny(Reason::LeadershipTransfer, &text));
    }
    let counts =
        me.state == MemberState::Healthy || table.leads(me) || may_be_needed_by_quorum(input, table, me);
    match input.reservation_error() {
        Some(why) if counts => Decision::Ruling(messages.unknown(vec![not_reserved(why)])),
        Some(why) => Decision::Ruling(ruling.warn(messages.warning(&unreserved_warning(why)))),
        None if input.is_reserved() => Decision::Ruling(ruling),
        // A member that does not count blocks no other, so it needs no backoff.
        None if counts && input.facts.reservation.backoff.is_active => {
            Decision::Ruling(deny_backoff(input, messages))
        }
        None => Decision::Effect(Effect::Reserve),
    }
}

/// Whether quorum may depend on this member although others look healthy: while reservations cannot be read, those may be leaving.
fn may_be_needed_by_quorum(input: Input<'_>, table: &Table, me: &Row) -> bool {
    let is_down = matches!(&me.state, MemberState::NoResponse(why) if why.code == cause::NOT_LISTENING);
    input.facts.reservations_error.is_some()
        && me.may_vote()
        && !is_down
        && !table.has_lost_quorum_without(me)
}

fn deny_backoff(input: Input<'_>, messages: &Messages<'_>) -> Ruling {
    messages.deny(Reason::Backoff, &input.facts.reservation.backoff.reason())
}

/// Returns the leader that is about to transfer leadership to this pod, unless another member already leads.
fn transfers_from<'t>(input: Input<'_>, table: &'t Table) -> Option<&'t Row> {
    let from = table.row(input.facts.transfers_from.as_deref()?)?;
    let leads = |row: &Row| row.uid != from.uid && row.answers() && table.leads(row);
    (!table.rows.iter().any(leads)).then_some(from)
}

/// Returns the cause of a deletion that could not be reserved.
pub(super) fn not_reserved(why: &Cause) -> Cause {
    Cause::new(cause::NOT_RESERVED, format!("Durward cannot record the deletion: {}", why.text))
}

/// Returns the warning for a deletion that is allowed without a reservation.
pub(super) fn unreserved_warning(why: &Cause) -> String {
    format!("{}; do not delete another member until this one is back", not_reserved(why).text)
}
