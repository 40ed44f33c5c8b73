//! The decision about a pod. Pure.
//!
//! It has three steps: by the request and the pod, by the state of Kubernetes, and by the answers of the members. Each step runs
//! only if the previous one left the decision open. The first two allow teardown, repair and deletions that a kubelet has begun, by
//! the state of the objects. The user of a request can restrict that and is never sufficient. (The API server does not send the
//! deletions of the namespace controller: `rules.rs`.)
//!
//! The last step checks the quorum: a member that counts can be deleted only if the others are a quorum without it. A member without
//! a response is neither healthy nor gone. If it could change the verdict, the verdict is Unknown.

mod decision;
mod early;
mod leader;
mod no_response;
#[cfg(test)]
mod tests;
mod voter;

use super::input::{Effect, Input};
use super::reservations::ReservationStatus;
use super::table::{MemberState, Row};

pub(super) use decision::{Allowed, Concern, Conclusion, Decision, DenyReason, UnknownCause, Warning};
pub(super) use early::{exempt, from_kube_state, from_pod, missing, overridden, unread, with_state};
use no_response::decide_no_response;
use voter::decide_voter;

/// The result of the last step: a decision, or the effect that it needs first. Then all facts are read again.
pub(super) type Step = Result<Decision, Effect>;

/// Decides by the answers of the members.
pub(super) fn decide(input: Input<'_>) -> Step {
    let Some(me) = input.table.row(&input.pod.uid) else {
        return Ok(Decision::unknown(UnknownCause::Unlisted));
    };
    match &me.state {
        // It may become a voter or be added to the list before its pod has a deletion timestamp, so both cases reserve.
        MemberState::Learner => {
            allow_reserved(input, me, Decision::allow(Allowed::Learner).warn(Warning::Learner))
        }
        MemberState::NotMember => {
            allow_reserved(input, me, Decision::allow(Allowed::NotMember).warn(Warning::NotMember))
        }
        MemberState::OtherCluster(_) => Ok(Decision::unknown(UnknownCause::MixedClusters)),
        MemberState::NoResponse(why) => decide_no_response(input, me, why),
        MemberState::Leaving(_) => Ok(decide_leaving(input, me)),
        MemberState::NoPod => Ok(Decision::unknown(UnknownCause::NoMember)),
        MemberState::Healthy | MemberState::Unhealthy(_) | MemberState::Corrupt => decide_voter(input, me),
    }
}

/// Decides about a pod that is being deleted: the request only shortens its grace period.
fn decide_leaving(input: Input<'_>, me: &Row) -> Decision {
    let decision = Decision::allow(Allowed::AlreadyDeleting);
    let is_killed = input.table.leads(me) && input.removal.grace == Some(0);
    if is_killed { decision.warn(Warning::StillLeads) } else { decision }
}

/// Returns an allow once the deletion is reserved, so that other reviews wait. If it cannot be reserved, only a member that does not
/// count can be deleted. If the Lease cannot be read, any other member may be leaving.
fn allow_reserved(input: Input<'_>, me: &Row, decision: Decision) -> Step {
    let counts =
        me.state == MemberState::Healthy || input.table.leads(me) || may_be_needed_by_quorum(input, me);
    match input.reservation_error() {
        Some(why) if counts => Ok(Decision::unknown(UnknownCause::NotReserved(why.clone()))),
        Some(why) => Ok(decision.warn(Warning::Unreserved(why.clone()))),
        None => Ok(without_reservation(input)?.unwrap_or(decision)),
    }
}

/// Returns the denial while no allow can rely on a reservation.
fn without_reservation(input: Input<'_>) -> Result<Option<Decision>, Effect> {
    match ReservationStatus::of(input.reservation(), input.facts, input.table, &input.pod.uid) {
        ReservationStatus::Fresh => Ok(None),
        ReservationStatus::Free | ReservationStatus::Renewable => Err(Effect::Reserve),
        ReservationStatus::Exhausted(since) => Ok(Some(Decision::deny(DenyReason::Backoff { since }))),
        ReservationStatus::Other(pod) => Ok(Some(Decision::deny(DenyReason::Reserved { pod }))),
    }
}

/// Adds the problems of the etcd cluster and the member to an allow.
fn add_cluster_warnings(input: Input<'_>, me: &Row, mut decision: Decision) -> Decision {
    decision.warnings.extend(input.table.notes.iter().cloned().map(Warning::Note));
    if let MemberState::Unhealthy(problem) = &me.state {
        decision.warnings.push(Warning::Unhealthy(problem.clone()));
    }
    let moved_to = input.progress.moved_to.clone().filter(|_| !input.progress.is_dry_run);
    decision.warnings.extend(moved_to.map(|to| Warning::Transferred { to }));
    decision
}

/// Whether quorum may depend on this member although others look healthy: while the Lease cannot be read, those may be leaving.
fn may_be_needed_by_quorum(input: Input<'_>, me: &Row) -> bool {
    input.facts.reservation_error.is_some()
        && me.may_vote()
        && !me.is_down()
        && !input.table.has_lost_quorum_without(me)
}
