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
mod outcome;
#[cfg(test)]
mod tests;
mod voter;

use super::input::{Effect, Input};
use super::reservations::ReservationStatus;
use super::table::{MemberState, Row, Table};

pub(super) use early::{
    EarlyOutcome, exempt, from_kube_state, from_pod, missing, overridden, unknown_owner, unread,
};
use no_response::decide_no_response;
pub(super) use outcome::{Allowed, Concern, Conclusion, Outcome, Reason, UnknownCause, Warning};
use voter::decide_voter;

/// The result of the last step.
#[derive(Debug)]
pub(super) enum Decision {
    Outcome(Outcome),
    /// An effect is needed first; then all facts are read again.
    Effect(Effect),
}

impl Decision {
    fn deny(reason: Reason) -> Self {
        Self::Outcome(Outcome::deny(reason))
    }

    fn unknown(why: UnknownCause) -> Self {
        Self::Outcome(Outcome::unknown(why))
    }
}

/// Decides as if all effects succeeded.
pub(super) fn dry_run(input: Input<'_>) -> Outcome {
    let mut progress = input.progress.clone();
    loop {
        match decide(Input { progress: &progress, ..input }) {
            Decision::Outcome(outcome) => return outcome,
            Decision::Effect(effect) => progress.assume(effect),
        }
    }
}

/// Decides by the answers of the members.
pub(super) fn decide(input: Input<'_>) -> Decision {
    let table = &Table::of(input.facts);
    let Some(me) = table.row(&input.pod.uid) else { return Decision::unknown(UnknownCause::Unlisted) };
    match &me.state {
        // It may become a voter or be added to the list before its pod has a deletion timestamp, so both cases reserve.
        MemberState::Learner => {
            let outcome = Outcome::allow(Allowed::Learner).warn(Warning::Learner);
            allow_reserved(input, table, me, outcome)
        }
        MemberState::NotMember => {
            let outcome = Outcome::allow(Allowed::NotMember).warn(Warning::NotMember);
            allow_reserved(input, table, me, outcome)
        }
        MemberState::OtherCluster(_) => Decision::unknown(UnknownCause::MixedClusters),
        MemberState::NoResponse(why) => decide_no_response(input, table, me, why),
        MemberState::Leaving(_) => Decision::Outcome(decide_leaving(input, table, me)),
        MemberState::NoPod => Decision::unknown(UnknownCause::NoMember),
        MemberState::Healthy | MemberState::Unhealthy(_) | MemberState::Corrupt => {
            decide_voter(input, table, me)
        }
    }
}

/// Decides about a pod that is being deleted: the request only shortens its grace period.
fn decide_leaving(input: Input<'_>, table: &Table, me: &Row) -> Outcome {
    let outcome = Outcome::allow(Allowed::AlreadyDeleting);
    let is_killed = table.leads(me) && input.removal.grace == Some(0);
    if is_killed { outcome.warn(Warning::StillLeads) } else { outcome }
}

/// Returns an allow once the deletion is reserved, so that other reviews wait. If it cannot be reserved, only a member that does not
/// count can be deleted. If the Lease cannot be read, any other member may be leaving.
fn allow_reserved(input: Input<'_>, table: &Table, me: &Row, outcome: Outcome) -> Decision {
    let counts =
        me.state == MemberState::Healthy || table.leads(me) || may_be_needed_by_quorum(input, table, me);
    match input.reservation_error() {
        Some(why) if counts => Decision::unknown(UnknownCause::NotReserved(why.clone())),
        Some(why) => Decision::Outcome(outcome.warn(Warning::Unreserved(why.clone()))),
        None => without_reservation(input, table).unwrap_or(Decision::Outcome(outcome)),
    }
}

/// Returns the decision while no allow can rely on a reservation.
fn without_reservation(input: Input<'_>, table: &Table) -> Option<Decision> {
    if input.progress.would_reserve {
        return None;
    }
    match ReservationStatus::of(input.facts, table, &input.pod.uid) {
        ReservationStatus::Fresh => None,
        ReservationStatus::Free | ReservationStatus::Renewable => Some(Decision::Effect(Effect::Reserve)),
        ReservationStatus::Exhausted(since) => Some(Decision::deny(Reason::Backoff { since })),
        ReservationStatus::Other(pod) => Some(Decision::deny(Reason::Reserved { pod })),
    }
}

/// Adds the problems of the etcd cluster and the member to an allow.
fn add_cluster_warnings(input: Input<'_>, table: &Table, me: &Row, mut outcome: Outcome) -> Outcome {
    outcome.warnings.extend(table.notes.iter().cloned().map(Warning::Note));
    if let MemberState::Unhealthy(problem) = &me.state {
        outcome.warnings.push(Warning::Unhealthy(problem.clone()));
    }
    let moved_to = input.progress.moved_to.clone();
    outcome.warnings.extend(moved_to.map(|to| Warning::Transferred { to }));
    outcome
}

/// Whether quorum may depend on this member although others look healthy: while the Lease cannot be read, those may be leaving.
fn may_be_needed_by_quorum(input: Input<'_>, table: &Table, me: &Row) -> bool {
    input.facts.reservation_error.is_some()
        && me.may_vote()
        && !me.is_down()
        && !table.has_lost_quorum_without(me)
}
