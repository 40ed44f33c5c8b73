//! What is decided without asking any member: by the request alone, by the pod, and by the state of things in Kubernetes.

use std::time::SystemTime;

use admission::{Cause, Denial, Request, Ruling, Verdict, one_line};

use super::super::config::Config;
use super::super::glass::{self, Override};
use super::super::ground::{Ground, Namespace, Standing};
use super::super::pod::Pod;
use super::super::target::{Deed, Target};
use super::super::tell;
use cluster::cause;

/// What the request alone decides.
#[derive(Debug)]
pub(in super::super) enum Opened {
    /// It is decided.
    Rule(Ruling),
    /// The pod decides.
    Look(Target),
}

/// A ruling for which no member is asked.
#[derive(Debug)]
pub(in super::super) struct Unasked {
    pub(in super::super) ruling: Ruling,
    /// Whether it may be missed, or back the next moment, so that whoever decides about another one has to know that it goes.
    pub(in super::super) is_missed: bool,
}

impl Unasked {
    /// Nobody misses it, or it stays.
    pub(in super::super) fn free(ruling: Ruling) -> Self {
        Self { ruling, is_missed: false }
    }

    fn missed(ruling: Ruling) -> Self {
        Self { ruling, is_missed: true }
    }
}

fn allowed(why: &str) -> Ruling {
    Ruling::allow().audit("allowed", why)
}

/// Looks at the request alone.
pub(in super::super) fn open(config: &Config, deed: Deed, request: &Request<'_>) -> Opened {
    let target = match Target::read(config, deed, request) {
        Ok(target) => target,
        Err(cause) => return Opened::Rule(Ruling::unknown(cause)),
    };
    match config.common_config.leave_alone(request, &target.namespace) {
        Some(key) => Opened::Rule(Ruling::allow().audit("exempt", key)),
        None => Opened::Look(target),
    }
}

/// What the pod by itself decides, before anything else is looked at.
pub(in super::super) fn of_pod(
    config: &Config,
    target: &Target,
    pod: &Pod,
    now: SystemTime,
) -> Option<Unasked> {
    if pod.is_mirror() {
        return Some(Unasked::free(tell::mirror(target)));
    }
    if pod.is_going && (target.by_kubelet || target.grace != Some(0)) {
        return Some(Unasked::free(allowed("its pod is being deleted already")));
    }
    if pod.runs_no_etcd() {
        // Its container may be started again before the pod is marked as deleted.
        let ruling = allowed("etcd is not running in it");
        return Some(if pod.has_ended() { Unasked::free(ruling) } else { Unasked::missed(ruling) });
    }
    match glass::judge(config, &pod.name, &pod.annotations, now) {
        Override::Active { reason, until } => {
            Some(Unasked::missed(tell::glass_broken(&target.told(), &reason, &until)))
        }
        Override::None | Override::Invalid(_) => None,
    }
}

/// What Kubernetes says decides.
pub(in super::super) fn of_ground(
    config: &Config,
    target: &Target,
    pod: &Pod,
    ground: &Ground,
) -> Option<Unasked> {
    let free = |why: &str| Some(Unasked::free(allowed(why)));
    if let Ok(namespace) = &ground.namespace {
        if namespace.is_going {
            return free("its namespace is being deleted");
        }
        if let Some(unasked) = of_namespace(config, target, namespace, ground.now) {
            return Some(unasked);
        }
    }
    match &ground.owner {
        Ok(Standing::Going) if pod.owner.is_some() => {
            return free("its StatefulSet is being deleted or gone");
        }
        Ok(Standing::Going) => return free("what it belongs to is being deleted or gone"),
        Ok(Standing::Ends) => return free("its StatefulSet is to have no pods"),
        Ok(Standing::Stands(_) | Standing::Owned(_) | Standing::Leaving | Standing::None) | Err(_) => {}
    }
    if matches!(&ground.has_node, Ok(false)) {
        return free("its node is gone");
    }
    let pods = match &ground.pods {
        Ok(pods) => pods,
        Err(why) => return Some(Unasked::free(tell::unseen(config, target, why, ground.now))),
    };
    let Some(listed) = pods.iter().find(|listed| listed.uid == pod.uid) else {
        let text = format!(
            "the pods that Durward sees in namespace {:?} do not hold this one; try again, and if that stays so, Durward looks at another cluster",
            target.namespace
        );
        let ruling = tell::unseen(config, target, &Cause::new(cause::UNCLEAR, text), ground.now);
        return Some(Unasked::free(ruling));
    };
    // It did not yet when the review was made.
    if listed.has_ended() { free("its pod has ended") } else { None }
}

fn of_namespace(config: &Config, target: &Target, namespace: &Namespace, now: SystemTime) -> Option<Unasked> {
    if config.common_config.exempt.selects(&namespace.labels) {
        return Some(Unasked::free(Ruling::allow().audit("exempt", "exempt.namespaceSelector")));
    }
    match glass::judge(config, &target.namespace, &namespace.annotations, now) {
        Override::Active { reason, until } => {
            Some(Unasked::missed(tell::glass_broken(&target.told(), &reason, &until)))
        }
        Override::None | Override::Invalid(_) => None,
    }
}

/// A refusal, where it cannot be seen whether the object of an operator's own kind that makes the pod is being deleted: then it may be
/// teardown, and nobody knows.
pub(in super::super) fn of_maker(pod: &Pod, ground: &Ground, ruling: Ruling) -> Ruling {
    let (Err(why), None) = (&ground.owner, &pod.owner) else { return ruling };
    let Ruling { verdict, warnings, audit, refusal } = ruling;
    let Verdict::Deny(denial) = verdict else { return Ruling { verdict, warnings, audit, refusal } };
    let text = format!("whether what it belongs to is being deleted cannot be seen: {}", why.text);
    let message = format!("{}; {}", denial.message, one_line(&text));
    let verdict = Verdict::Unknown(vec![Cause::new(why.code, text)]);
    Ruling { verdict, warnings, audit, refusal: Some(Denial { message, ..denial }) }
}
