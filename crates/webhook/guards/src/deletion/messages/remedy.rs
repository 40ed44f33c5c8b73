//! Computes the next steps of a denial: for its reader, and for an administrator of Durward.

use std::collections::BTreeSet;
use std::time::SystemTime;

use super::super::acknowledge::{self, covers};
use super::super::case::Case;
use super::super::cluster_facts::ClusterFacts;
use super::super::config::Config;
use super::super::summary::FleetSummary;
use super::super::target::{DeletionKind, Target};
use cluster::cause;
use cluster::fleet::FleetMember;

/// The lines of a denial below its details.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Steps {
    /// For the caller.
    pub(super) next: Option<String>,
    /// For an administrator of Durward.
    pub(super) admin: Option<String>,
    /// Whether the denial ends by itself within a minute, so that it needs no override.
    pub(super) is_transient: bool,
}

/// A remedy, the most certain first. An acknowledgement is offered only for a cluster that does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Remedy {
    /// A permission is missing.
    Grant,
    /// Durward is connected to another cluster than the one that calls it.
    Connect,
    /// An in-use rule has no result.
    Correct,
    /// The administrator must find out more.
    Doctor,
    /// The cluster has more objects than can be read.
    Reduce,
    /// The cluster does not answer.
    Wait,
    /// Another attempt may succeed.
    Retry,
    /// Another attempt succeeds within seconds.
    RetrySoon,
}

impl Remedy {
    fn of(code: &str, is_local: bool) -> Self {
        match code {
            cause::FORBIDDEN => Self::Grant,
            cause::POLICY_LIMIT => Self::Correct,
            cause::CREDENTIALS | cause::NO_ENDPOINT | cause::GARBAGE | cause::NOT_SERVED | cause::REFUSED => {
                Self::Doctor
            }
            cause::TOO_LONG => Self::Reduce,
            cause::UNREACHABLE | cause::TIMEOUT if !is_local => Self::Wait,
            cause::VANISHED | cause::OVERLOADED => Self::RetrySoon,
            _ => Self::Retry,
        }
    }
}

/// Returns why a cluster could not be checked, in a few words.
pub(super) fn phrase(code: &str) -> &'static str {
    match code {
        cause::UNREACHABLE => "unreachable",
        cause::TIMEOUT => "no answer in time",
        cause::CREDENTIALS => "credentials rejected or missing",
        cause::NO_ENDPOINT => "no API endpoint or token",
        cause::FORBIDDEN => "permission missing",
        cause::POLICY_LIMIT => "an in-use rule has no result",
        cause::GARBAGE => "invalid response",
        cause::NOT_SERVED => "resource not served",
        cause::TOO_LONG => "too many objects",
        cause::BUSY => "API server busy",
        cause::VANISHED => "just left the fleet",
        cause::OVERLOADED => "Durward is overloaded",
        cause::WRONG_CLUSTER => "connected to another cluster",
        cause::NOT_RECORDED => "not in the snapshot",
        cause::NO_CLUSTER => "no cluster to read",
        _ => "request rejected",
    }
}

/// Whether the object of the review does not exist in the cluster that Durward is connected to.
pub(super) fn is_wrong_cluster(cluster: &ClusterFacts) -> bool {
    let unknown = &cluster.unknown;
    cluster.is_local() && unknown.first().is_some_and(|cause| cause.code == cause::WRONG_CLUSTER)
}

/// Returns the steps for objects in use.
pub(super) fn for_in_use(target: &Target, summary: &FleetSummary<'_>) -> Steps {
    let is_local = summary.in_use.iter().all(|cluster| cluster.is_local());
    let there = if is_local { "" } else { " there" };
    let counts = || summary.in_use.iter().flat_map(|cluster| &cluster.in_use);
    let is_one = counts().map(|count| count.objects).sum::<usize>() == 1 && counts().all(|count| !count.more);
    let them = match (&target.subject.kind, is_one) {
        (_, true) => "it",
        (DeletionKind::Namespace | DeletionKind::InUse(_), _) => "them",
        (DeletionKind::Crd, _) => "the objects",
    };
    // Only the configuration has the rules.
    let config =
        if matches!(target.subject.kind, DeletionKind::InUse(_)) { " --config durward.yaml" } else { "" };
    let list = format!(". Full list: kubectl durward impact {}{config}", target.subject.argument('/'));
    let list = if target.dry_run { "" } else { &list };
    Steps { next: Some(format!("delete {them}{there} and retry{list}")), ..Steps::default() }
}

/// Returns the steps for what could not be checked. If the list of the fleet is not known, acknowledgements do not help.
pub(super) fn for_unknown(&Case { config, target, now, .. }: &Case<'_>, summary: &FleetSummary<'_>) -> Steps {
    let is_complete = summary.incomplete.is_none();
    let mut remedies: BTreeSet<_> = summary.list_failure.iter().map(|code| Remedy::of(code, true)).collect();
    let mut is_local_grant = summary.list_failure.is_some();
    let mut waiting = Vec::new();
    for cluster in &summary.unknown {
        let can_acknowledge = is_complete && covers(cluster).is_ok();
        for why in &cluster.unknown {
            let remedy = match Remedy::of(why.code, cluster.is_local()) {
                _ if is_wrong_cluster(cluster) => Remedy::Connect,
                Remedy::Wait if !can_acknowledge => Remedy::Retry,
                remedy => remedy,
            };
            is_local_grant |= remedy == Remedy::Grant && cluster.is_local();
            if remedy == Remedy::Wait
                && !waiting.iter().any(|one: &&ClusterFacts| std::ptr::eq(*one, *cluster))
            {
                waiting.push(*cluster);
            }
            remedies.insert(remedy);
        }
    }
    let is_transient = remedies.iter().all(|remedy| *remedy == Remedy::RetrySoon);
    let has = |remedy| remedies.contains(&remedy);
    let doctor = || {
        let place = if config.is_karmada() { " in the host cluster" } else { "" };
        format!("print the fix{place}: {}", config.common_config.doctor("fleet"))
    };
    let admin = match remedies.first() {
        Some(Remedy::Grant) if config.is_karmada() => {
            let part = if is_local_grant { "rbac,members" } else { "members" };
            Some(format!(
                "durward manifests -c durward.yaml --only {part} | kubectl --kubeconfig karmada-admin.config apply -f -"
            ))
        }
        Some(Remedy::Grant | Remedy::Doctor) => Some(doctor()),
        Some(Remedy::Connect) => Some(
            "connect Durward to the API server that calls it (guards.deletion.fleet.karmada.kubeconfig)"
                .to_owned(),
        ),
        Some(Remedy::Correct) => Some("correct the rule in guards.deletion.inUse".to_owned()),
        Some(Remedy::Reduce) => Some("or raise guards.deletion.webhook.timeoutSeconds".to_owned()),
        Some(Remedy::Wait) if !config.is_karmada() => {
            Some("if it stays offline, add it to guards.deletion.unreachableClusters".to_owned())
        }
        Some(Remedy::Retry) if !is_complete => Some(doctor()),
        _ => None,
    };
    let next = if let [first, others @ ..] = waiting.as_slice() {
        Some(wait(config, first, others, now))
    } else if has(Remedy::Connect) {
        Some(format!("retry once: the {} may just have been deleted", target.subject.kind.word()))
    } else if has(Remedy::Reduce) {
        Some("delete some of its objects there and retry".to_owned())
    } else if has(Remedy::Retry) || has(Remedy::RetrySoon) || !is_complete {
        Some("retry in a few seconds".to_owned())
    } else {
        None
    };
    Steps { next, admin, is_transient }
}

/// Returns what to do about clusters that do not answer.
fn wait(config: &Config, first: &ClusterFacts, others: &[&ClusterFacts], now: SystemTime) -> String {
    if !config.is_karmada() {
        return if others.is_empty() { "retry when it answers" } else { "retry when they answer" }.to_owned();
    }
    let name = first.member.cluster.name();
    if !others.is_empty() {
        let members: Vec<&FleetMember> =
            std::iter::once(first).chain(others.iter().copied()).map(|one| &one.member).collect();
        let arguments = acknowledge::arguments(&members, now);
        return format!(
            "retry when they are Ready (kubectl get clusters). If they stay offline, acknowledge them (Karmada deletes the objects there when they return): kubectl annotate {arguments}"
        );
    }
    let arguments = acknowledge::arguments(&[&first.member], now);
    format!(
        "retry when {name} is Ready (kubectl get cluster {name}). If it stays offline, acknowledge it (Karmada deletes the objects there when it returns): kubectl annotate {arguments}"
    )
}

#[cfg(test)]
mod tests {
    use admission::Cause;

    use super::super::super::fixture::{config, member, namespace, now};
    use super::*;
    use cluster::fleet::FleetMember;

    fn unknown(member: FleetMember, codes: &[&'static str]) -> ClusterFacts {
        let unknown = codes.iter().map(|&code| Cause::new(code, code)).collect();
        ClusterFacts { member, unknown, ..ClusterFacts::default() }
    }

    fn steps(yaml: &str, clusters: &[&[&'static str]], list_failure: Option<&'static str>) -> Steps {
        let clusters: Vec<_> = clusters.iter().map(|codes| unknown(member("m", &[]), codes)).collect();
        let incomplete = list_failure.map(|code| Cause::new(cause::STALE_FLEET, code));
        let unknown = clusters.iter().collect();
        let summary = FleetSummary { unknown, incomplete, list_failure, ..FleetSummary::default() };
        for_unknown(&Case::new(&config(yaml), &namespace("shop"), now()), &summary)
    }

    /// Returns both lines.
    fn text(yaml: &str, clusters: &[&[&'static str]], list_failure: Option<&'static str>) -> String {
        let Steps { next, admin, .. } = steps(yaml, clusters, list_failure);
        format!("{} | {}", next.unwrap_or_default(), admin.unwrap_or_default())
    }

    const KARMADA: &str = "fleet: karmada";
    const DOCTOR: &str = " | print the fix in the host cluster: kubectl -n durward-system exec deploy/durward -- durward doctor fleet";
    const LOCAL_DOCTOR: &str =
        " | print the fix: kubectl -n durward-system exec deploy/durward -- durward doctor fleet";

    #[test]
    fn every_cause_has_a_step() {
        let wait = "retry when m is Ready (kubectl get cluster m). If it stays offline, acknowledge it (Karmada deletes the objects there when it returns): kubectl annotate cluster m \
                    durward.dev/acknowledge-unreachable='<reason>' durward.dev/acknowledge-until=2026-11-28 | ";
        for (code, expected) in [
            (cause::UNREACHABLE, wait),
            (cause::TIMEOUT, wait),
            (cause::CREDENTIALS, DOCTOR),
            (cause::NO_ENDPOINT, DOCTOR),
            (
                cause::FORBIDDEN,
                " | durward manifests -c durward.yaml --only members | kubectl --kubeconfig karmada-admin.config apply -f -",
            ),
            (cause::GARBAGE, DOCTOR),
            (cause::REFUSED, DOCTOR),
            (cause::NOT_SERVED, DOCTOR),
            (
                cause::TOO_LONG,
                "delete some of its objects there and retry | or raise guards.deletion.webhook.timeoutSeconds",
            ),
            (cause::BUSY, "retry in a few seconds | "),
            (cause::VANISHED, "retry in a few seconds | "),
            (cause::STALE_FLEET, "retry in a few seconds | "),
            (cause::OVERLOADED, "retry in a few seconds | "),
        ] {
            assert_eq!(text(KARMADA, &[&[code]], None), expected, "{code}");
        }
        assert_eq!(text("fleet: {contexts: [m]}", &[&[cause::CREDENTIALS]], None), LOCAL_DOCTOR);
        assert_eq!(
            text("fleet: {contexts: [m]}", &[&[cause::TIMEOUT]], None),
            "retry when it answers | if it stays offline, add it to guards.deletion.unreachableClusters"
        );
    }

    #[test]
    fn only_a_denial_that_ends_within_a_minute_is_transient() {
        for (codes, expected) in [
            (&[cause::VANISHED][..], true),
            (&[cause::OVERLOADED], true),
            (&[cause::BUSY], false),
            (&[cause::OVERLOADED, cause::TIMEOUT], false),
        ] {
            assert_eq!(steps(KARMADA, &[codes], None).is_transient, expected, "{codes:?}");
        }
    }

    #[test]
    fn has_one_step_for_the_caller_and_one_for_the_administrator() {
        let (timeout, credentials) = (&[cause::TIMEOUT][..], &[cause::CREDENTIALS][..]);
        let many = "retry when they are Ready (kubectl get clusters). If they stay offline, acknowledge them (Karmada deletes the objects there when they return): kubectl annotate cluster m m durward.dev/acknowledge-unreachable='<reason>' durward.dev/acknowledge-until=2026-11-28";
        assert_eq!(text(KARMADA, &[timeout, timeout], None), format!("{many} | "));
        assert_eq!(text(KARMADA, &[timeout, credentials, timeout], None), format!("{many}{DOCTOR}"));
        assert!(text(KARMADA, &[&[cause::GARBAGE, cause::FORBIDDEN]], None).contains("--only members"));
    }

    #[test]
    fn does_not_offer_acknowledgements_that_do_not_help() {
        let stale = Some(cause::STALE_FLEET);
        for text in [
            text(KARMADA, &[&[cause::TIMEOUT]], stale),
            text(KARMADA, &[], stale),
            local(cause::TIMEOUT),
            text(KARMADA, &[&[cause::TIMEOUT, cause::TOO_LONG]], None),
        ] {
            assert!(!text.contains("acknowledge"), "{text}");
        }
    }

    #[test]
    fn failures_of_the_control_plane_are_for_the_administrator() {
        assert!(local(cause::CREDENTIALS).ends_with(DOCTOR));
        assert!(text(KARMADA, &[], Some(cause::FORBIDDEN)).contains("--only rbac,members"));
        assert!(text("fleet: {contexts: [m]}", &[], Some(cause::REFUSED)).ends_with(LOCAL_DOCTOR));
    }

    fn local(code: &'static str) -> String {
        let local = unknown(ClusterFacts::default().member, &[code]);
        let summary = FleetSummary { unknown: vec![&local], ..FleetSummary::default() };
        let Steps { next, admin, .. } =
            for_unknown(&Case::new(&config(KARMADA), &namespace("shop"), now()), &summary);
        format!("{} | {}", next.unwrap_or_default(), admin.unwrap_or_default())
    }
}
