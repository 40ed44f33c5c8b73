//! Decisions without the quorum: by the request, the pod, the state of Kubernetes, and a member that does not run.

use std::time::SystemTime;

use admission::{Cause, Request, Ruling, Verdict};

use super::super::config::Config;
use super::super::facts::{Facts, MemberView};
use super::super::kube_reader::Namespace;
use super::super::kube_state::KubeState;
use super::super::messages;
use super::super::overrides::{self, Override};
use super::super::owners::OwnerState;
use super::super::pod::Pod;
use super::super::removal::{Removal, RemovalKind};
use cluster::cause;

/// The result of the first step.
#[derive(Debug)]
pub(in super::super) enum Next {
    Rule(Ruling),
    ReadFacts(Removal),
}

/// A ruling without the answers of members.
#[derive(Debug)]
pub(in super::super) struct EarlyRuling {
    pub(in super::super) ruling: Ruling,
    /// Whether the deletion must be reserved, because other reviews may count this member.
    pub(in super::super) must_reserve: bool,
}

impl EarlyRuling {
    /// Returns a ruling that needs no reservation: no review counts the member, or it stays.
    pub(in super::super) fn unreserved(ruling: Ruling) -> Self {
        Self { ruling, must_reserve: false }
    }

    fn reserved(ruling: Ruling) -> Self {
        Self { ruling, must_reserve: true }
    }
}

fn allowed(why: &str) -> Ruling {
    Ruling::allow().audit("allowed", why)
}

/// Decides by the request.
pub(in super::super) fn from_request(config: &Config, kind: RemovalKind, request: &Request<'_>) -> Next {
    let removal = match Removal::read(config, kind, request) {
        Ok(removal) => removal,
        Err(cause) => return Next::Rule(Ruling::unknown(cause)),
    };
    match config.common_config.exempt_by(request, &removal.namespace) {
        Some(key) => Next::Rule(Ruling::allow().audit("exempt", key)),
        None => Next::ReadFacts(removal),
    }
}

/// Decides by the pod.
pub(in super::super) fn from_pod(
    config: &Config,
    removal: &Removal,
    pod: &Pod,
    now: SystemTime,
) -> Option<EarlyRuling> {
    if pod.is_mirror() {
        return Some(EarlyRuling::unreserved(messages::mirror_pod(removal)));
    }
    if pod.is_deleting && (removal.by_kubelet || removal.grace != Some(0)) {
        return Some(EarlyRuling::unreserved(allowed("the pod is already being deleted")));
    }
    if pod.has_ended() {
        return Some(EarlyRuling::unreserved(allowed("the pod has ended")));
    }
    overridden(config, removal, &pod.name, &pod.annotations, now)
}

/// Decides about a pod that the API server does not have, or has with another uid.
pub(in super::super) fn missing(config: &Config, removal: &Removal, now: SystemTime) -> Ruling {
    match &removal.pod {
        None => messages::missing_pod(removal),
        Some(reviewed) if Pod::read(&reviewed.json, 0).is_ok_and(|pod| pod.is_deleting) => {
            allowed("the pod is already deleted")
        }
        Some(_) => messages::unknown_removal(config, removal, &not_this_cluster(removal), now),
    }
}

/// Decides about a pod that could not be read. Teardown, repair and overrides need no other facts. Without the stored pod, they are
/// not reserved.
pub(in super::super) fn unread(config: &Config, removal: &Removal, why: &Cause, now: SystemTime) -> Ruling {
    let unknown = || messages::unknown_removal(config, removal, why, now);
    let Some(pod) = removal.pod.as_ref().and_then(|reviewed| Pod::read(&reviewed.json, 0).ok()) else {
        return unknown();
    };
    match from_pod(config, removal, &pod, now) {
        Some(EarlyRuling { ruling, must_reserve: true }) => {
            ruling.warn(messages::pod_warning(&pod, &super::unreserved_warning(why)))
        }
        Some(EarlyRuling { ruling, must_reserve: false }) => ruling,
        None if pod.is_deleting => allowed("the pod is already being deleted"),
        None => unknown(),
    }
}

fn not_this_cluster(removal: &Removal) -> Cause {
    let text = format!(
        "namespace {:?} of the cluster that Durward reads does not contain this pod",
        removal.namespace
    );
    Cause::new(cause::UNCLEAR, text)
}

fn overridden(
    config: &Config,
    removal: &Removal,
    name: &str,
    annotations: &std::collections::BTreeMap<String, String>,
    now: SystemTime,
) -> Option<EarlyRuling> {
    match overrides::judge(config, name, annotations, now) {
        Override::Active { reason, until } => {
            Some(EarlyRuling::reserved(messages::overridden(&removal.full_name(), &reason, &until)))
        }
        Override::None | Override::Invalid(_) => None,
    }
}

/// Decides by the state of Kubernetes.
pub(in super::super) fn from_kube_state(
    config: &Config,
    removal: &Removal,
    pod: &Pod,
    state: &KubeState,
) -> Option<EarlyRuling> {
    let allow = |why: &str| Some(EarlyRuling::unreserved(allowed(why)));
    let unknown = |why: &Cause| {
        Some(EarlyRuling::unreserved(messages::unknown_removal(config, removal, why, state.now)))
    };
    if let Ok(namespace) = &state.namespace
        && let Some(early) = from_namespace(config, removal, namespace, state.now)
    {
        return Some(early);
    }
    // Another cluster has neither the pod nor its namespace, owner and node. Their absence counts only in the cluster of the pod.
    let pods = match &state.pods {
        Ok(pods) => pods,
        Err(why) => return unknown(why),
    };
    let Some(listed) = pods.iter().find(|listed| listed.uid == pod.uid) else {
        return unknown(&not_this_cluster(removal));
    };
    if matches!(&state.namespace, Ok(namespace) if namespace.is_deleting) {
        return allow("the namespace is being deleted");
    }
    match &state.owners.own {
        Ok(OwnerState::Deleted) if pod.stateful_set().is_some() => {
            return allow("the StatefulSet is deleted");
        }
        Ok(OwnerState::Deleted) => return allow("the owner is deleted"),
        Ok(OwnerState::ScaledToZero) => return allow("the StatefulSet is scaled to zero"),
        Ok(_) | Err(_) => {}
    }
    if matches!(&state.has_node, Ok(false)) {
        return allow("the node is deleted");
    }
    // It may have ended since the request.
    if listed.has_ended() { allow("the pod has ended") } else { None }
}

/// Decides about a pod whose container of etcd does not run and whose member does not answer. One of the two is not enough: a kubelet
/// that is cut off from the API server reports old states, and a member can be unreachable.
pub(in super::super) fn from_view(uid: &str, facts: &Facts) -> Option<EarlyRuling> {
    let own = facts.pods.iter().find(|own| own.pod.uid == uid)?;
    let is_stopped = own.pod.is_stopped() && matches!(own.view, MemberView::NoResponse(_));
    // The kubelet may restart its container before the pod has a deletion timestamp.
    is_stopped.then(|| EarlyRuling::reserved(allowed("etcd does not run in the pod")))
}

fn from_namespace(
    config: &Config,
    removal: &Removal,
    namespace: &Namespace,
    now: SystemTime,
) -> Option<EarlyRuling> {
    if config.common_config.exempt.selects(&namespace.labels) {
        let ruling = Ruling::allow().audit("exempt", "exempt.namespaceSelector");
        return Some(EarlyRuling::unreserved(ruling));
    }
    overridden(config, removal, &removal.namespace, &namespace.annotations, now)
}

/// Turns a denial into Unknown if the pod's owner of an operator's kind could not be read: the deletion may be a teardown.
pub(in super::super) fn unknown_owner(
    config: &Config,
    removal: &Removal,
    pod: &Pod,
    state: &KubeState,
    ruling: Ruling,
) -> Ruling {
    let (Err(why), None) = (&state.owners.own, pod.stateful_set()) else { return ruling };
    let Verdict::Deny(denial) = &ruling.verdict else { return ruling };
    let why = Cause::new(why.code, format!("cannot read its owner: {}", why.text));
    let mut unknown = messages::unknown_removal(config, removal, &why, state.now);
    if let Some(refusal) = &mut unknown.refusal {
        refusal.causes.extend(denial.causes.iter().cloned());
    }
    Ruling { verdict: unknown.verdict, refusal: unknown.refusal, ..ruling }
}
