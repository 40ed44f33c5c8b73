//! Decisions without the members: by the request, the pod, and the state of Kubernetes.

use admission::{Cause, Request};

use super::super::config::Config;
use super::super::kube_state::KubeState;
use super::super::owners::OwnerState;
use super::super::pod::Pod;
use super::super::removal::Removal;
use super::{Allowed, Conclusion, Decision, DenyReason, UnknownCause, Warning};
use crate::overrides::Override;

/// Decides by the request.
pub(in super::super) fn exempt(
    config: &Config,
    removal: &Removal,
    request: &Request<'_>,
) -> Option<Decision> {
    let key = config.common_config.exempt_by(request, &removal.namespace)?;
    Some(Decision::allow(Allowed::Exempt(key)))
}

/// Decides by the pod and its override.
pub(in super::super) fn from_pod(removal: &Removal, pod: &Pod, by: &Override) -> Option<Decision> {
    if pod.is_mirror() {
        return Some(Decision::allow(Allowed::MirrorPod));
    }
    if pod.is_deleting && (removal.by_kubelet || removal.grace != Some(0)) {
        return Some(Decision::allow(Allowed::AlreadyDeleting));
    }
    if pod.has_ended() {
        return Some(Decision::allow(Allowed::PodEnded));
    }
    overridden(by)
}

/// Decides about a pod that the API server does not have, or has with another uid.
pub(in super::super) fn missing(removal: &Removal) -> Decision {
    match &removal.pod {
        None => Decision::deny(DenyReason::NoPod),
        Some(reviewed) if reviewed.is_deleting => Decision::allow(Allowed::AlreadyDeleted),
        Some(_) => Decision::unknown(UnknownCause::OtherApiServer),
    }
}

/// Decides about a pod that could not be read. Teardown, repair and overrides need no other facts. Without the stored pod, they are
/// not reserved.
pub(in super::super) fn unread(removal: &Removal, why: &Cause, by: &Override) -> Decision {
    let decision = removal.pod.as_ref().and_then(|pod| match from_pod(removal, pod, by) {
        None if pod.is_deleting => Some(Decision::allow(Allowed::AlreadyDeleting)),
        decision => decision,
    });
    match decision {
        Some(decision) if decision.is_overridden() => decision.warn(Warning::Unreserved(why.clone())),
        Some(decision) => decision,
        None => Decision::unknown(UnknownCause::Unread(why.clone())),
    }
}

/// Returns the allow by an active override.
pub(in super::super) fn overridden(by: &Override) -> Option<Decision> {
    match by.clone() {
        Override::Active { reason, until } => Some(Decision::allow(Allowed::Overridden { reason, until })),
        Override::None | Override::Invalid(_) => None,
    }
}

/// Decides by the state of Kubernetes and the override of the namespace.
pub(in super::super) fn from_kube_state(pod: &Pod, state: &KubeState, by: &Override) -> Option<Decision> {
    let allow = |why: Allowed| Some(Decision::allow(why));
    let unknown = |why: UnknownCause| Some(Decision::unknown(why));
    if let Some(early) = overridden(by) {
        return Some(early);
    }
    // Another cluster has neither the pod nor its namespace, owner and node. Their absence counts only in the cluster of the pod.
    let pods = match &state.pods {
        Ok(pods) => pods,
        Err(why) => return unknown(UnknownCause::Unread(why.clone())),
    };
    let Some(listed) = pods.iter().find(|listed| listed.uid == pod.uid) else {
        return unknown(UnknownCause::OtherApiServer);
    };
    if matches!(&state.namespace, Ok(namespace) if namespace.is_deleting) {
        return allow(Allowed::NamespaceDeleting);
    }
    match &state.owners.own {
        Ok(OwnerState::Deleted) if pod.stateful_set().is_some() => {
            return allow(Allowed::StatefulSetDeleted);
        }
        Ok(OwnerState::Deleted) => return allow(Allowed::OwnerDeleted),
        Ok(OwnerState::ScaledToZero) => return allow(Allowed::ScaledToZero),
        Ok(_) | Err(_) => {}
    }
    if matches!(&state.has_node, Ok(false)) {
        return allow(Allowed::NodeDeleted);
    }
    // It may have ended since the request.
    if listed.has_ended() {
        return allow(Allowed::PodEnded);
    }
    if listed.node.is_empty() { allow(Allowed::NeverScheduled) } else { None }
}

/// Completes a decision by the members with what else Kubernetes says. A denial is Unknown if the pod's owner of an operator's kind
/// could not be read: the deletion may be a teardown. Invalid override annotations of the namespace are a warning.
pub(in super::super) fn with_state(
    pod: &Pod,
    state: &KubeState,
    by: &Override,
    mut decision: Decision,
) -> Decision {
    if let (Err(why), Conclusion::Deny(denied)) = (&state.owners.own, &decision.conclusion)
        && pod.stateful_set().is_none()
    {
        let why = UnknownCause::UnreadOwner { why: why.clone(), denied: denied.clone() };
        decision.conclusion = Conclusion::Unknown(vec![why]);
    }
    match by {
        Override::Invalid(wrong) if !decision.is_allowed() => {
            decision.warn(Warning::NamespaceOverride(wrong.clone()))
        }
        _ => decision,
    }
}
