//! Decisions without the members: by the request, the pod, and the state of Kubernetes.

use std::collections::BTreeMap;
use std::time::SystemTime;

use admission::{Cause, Request};

use super::super::config::Config;
use super::super::kube_reader::Namespace;
use super::super::kube_state::KubeState;
use super::super::overrides::{self, Override};
use super::super::owners::OwnerState;
use super::super::pod::Pod;
use super::super::removal::Removal;
use super::{Allowed, Conclusion, Outcome, Reason, UnknownCause, Warning};

/// An outcome without the answers of members.
#[derive(Debug)]
pub(in super::super) struct EarlyOutcome {
    pub(in super::super) outcome: Outcome,
    /// Whether the deletion must be reserved, because other reviews may count this member.
    pub(in super::super) must_reserve: bool,
}

impl EarlyOutcome {
    /// Returns an outcome that needs no reservation: no review counts the member, or it stays.
    fn unreserved(outcome: Outcome) -> Self {
        Self { outcome, must_reserve: false }
    }

    fn allow(why: Allowed) -> Self {
        Self::unreserved(Outcome::allow(why))
    }

    fn reserved(outcome: Outcome) -> Self {
        Self { outcome, must_reserve: true }
    }
}

/// Decides by the request.
pub(in super::super) fn exempt(config: &Config, removal: &Removal, request: &Request<'_>) -> Option<Outcome> {
    let key = config.common_config.exempt_by(request, &removal.namespace)?;
    Some(Outcome::allow(Allowed::Exempt(key)))
}

/// Decides by the pod.
pub(in super::super) fn from_pod(
    config: &Config,
    removal: &Removal,
    pod: &Pod,
    now: SystemTime,
) -> Option<EarlyOutcome> {
    if pod.is_mirror() {
        return Some(EarlyOutcome::allow(Allowed::MirrorPod));
    }
    if pod.is_deleting && (removal.by_kubelet || removal.grace != Some(0)) {
        return Some(EarlyOutcome::allow(Allowed::AlreadyDeleting));
    }
    if pod.has_ended() {
        return Some(EarlyOutcome::allow(Allowed::PodEnded));
    }
    overridden(config, &pod.name, &pod.annotations, now).map(EarlyOutcome::reserved)
}

/// Decides about a pod that the API server does not have, or has with another uid.
pub(in super::super) fn missing(removal: &Removal) -> Outcome {
    match &removal.pod {
        None => Outcome::deny(Reason::NoPod),
        Some(reviewed) if Pod::read(&reviewed.json, 0).is_ok_and(|pod| pod.is_deleting) => {
            Outcome::allow(Allowed::AlreadyDeleted)
        }
        Some(_) => Outcome::unknown(UnknownCause::OtherApiServer),
    }
}

/// Decides about a pod that could not be read. Teardown, repair and overrides need no other facts. Without the stored pod, they are
/// not reserved.
pub(in super::super) fn unread(config: &Config, removal: &Removal, why: &Cause, now: SystemTime) -> Outcome {
    let unknown = || Outcome::unknown(UnknownCause::Unread(why.clone()));
    let Some(pod) = removal.pod.as_ref().and_then(|reviewed| Pod::read(&reviewed.json, 0).ok()) else {
        return unknown();
    };
    match from_pod(config, removal, &pod, now) {
        Some(EarlyOutcome { outcome, must_reserve: true }) => outcome.warn(Warning::Unreserved(why.clone())),
        Some(EarlyOutcome { outcome, must_reserve: false }) => outcome,
        None if pod.is_deleting => Outcome::allow(Allowed::AlreadyDeleting),
        None => unknown(),
    }
}

/// Returns the allow for an object with an active override.
pub(in super::super) fn overridden(
    config: &Config,
    name: &str,
    annotations: &BTreeMap<String, String>,
    now: SystemTime,
) -> Option<Outcome> {
    match overrides::judge(config, name, annotations, now) {
        Override::Active { reason, until } => Some(Outcome::allow(Allowed::Overridden { reason, until })),
        Override::None | Override::Invalid(_) => None,
    }
}

/// Decides by the state of Kubernetes.
pub(in super::super) fn from_kube_state(
    config: &Config,
    removal: &Removal,
    pod: &Pod,
    state: &KubeState,
) -> Option<EarlyOutcome> {
    let allow = |why: Allowed| Some(EarlyOutcome::allow(why));
    let unknown = |why: UnknownCause| Some(EarlyOutcome::unreserved(Outcome::unknown(why)));
    if let Ok(namespace) = &state.namespace
        && let Some(early) = from_namespace(config, removal, namespace, state.now)
    {
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

fn from_namespace(
    config: &Config,
    removal: &Removal,
    namespace: &Namespace,
    now: SystemTime,
) -> Option<EarlyOutcome> {
    overridden(config, &removal.namespace, &namespace.annotations, now).map(EarlyOutcome::reserved)
}

/// Turns a denial into Unknown if the pod's owner of an operator's kind could not be read: the deletion may be a teardown.
pub(in super::super) fn unknown_owner(pod: &Pod, state: &KubeState, outcome: Outcome) -> Outcome {
    match (&state.owners.own, outcome.conclusion) {
        (Err(why), Conclusion::Deny(denied)) if pod.stateful_set().is_none() => Outcome {
            conclusion: Conclusion::Unknown(vec![UnknownCause::UnreadOwner { why: why.clone(), denied }]),
            ..outcome
        },
        (_, conclusion) => Outcome { conclusion, ..outcome },
    }
}
