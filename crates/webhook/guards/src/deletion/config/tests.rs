//! Valid sections, and the problems of invalid ones.

use super::super::fixture::{config, configured};
use super::*;

#[test]
fn an_empty_section_reads_this_cluster_and_protects_all_objects() {
    let config = config("{}");
    assert_eq!((&config.fleet, config.scope), (&Fleet::None, GuardScope::All));
    assert_eq!((config.show_object_names, config.overrides), (true, Overrides::Annotation));
    assert!(config.api_groups.0.is_empty() && config.access.is_none());
    let listed: Vec<_> = config.queries.iter().map(|query| query.resource.to_string()).collect();
    assert_eq!(
        listed,
        [
            "pods",
            "persistentvolumeclaims",
            "deployments.apps",
            "statefulsets.apps",
            "daemonsets.apps",
            "jobs.batch",
            "cronjobs.batch",
            "replicasets.apps",
            "replicationcontrollers",
            "services"
        ]
    );
}

#[test]
fn a_fleet_has_one_kind() {
    for (yaml, expected) in [
        ("fleet: none", Fleet::None),
        ("fleet: karmada", Fleet::Karmada),
        ("fleet: {karmada: }", Fleet::Karmada),
        ("fleet: {contexts: [a, b]}", Fleet::Contexts(vec!["a".into(), "b".into()])),
        ("namespace: guards\nfleet: {secrets: {}}", Fleet::Secrets { namespace: "guards".into() }),
    ] {
        let config = config(yaml);
        assert_eq!(config.fleet, expected, "{yaml}");
    }
    let access = config("fleet: {karmada: {kubeconfig: k.yaml, context: karmada}}").access.unwrap();
    assert_eq!(access.context.as_deref(), Some("karmada"));
}

#[test]
fn reports_problems_with_position_and_allowed_values() {
    for (yaml, place, text) in [
        ("fleet: {}", "d.yaml:1:8: fleet", "not name exactly one fleet"),
        (
            "fleet: {karmada: {}, contexts: [a]}",
            "d.yaml:1:8: fleet",
            "allowed: none, karmada, {karmada: {…}}",
        ),
        ("fleet: karmda", "d.yaml:1:8: fleet", "did you mean karmada?"),
        ("fleet: {contexts: []}", "d.yaml:1:19: fleet.contexts", "is empty"),
        ("fleet: {contexts: [a, a]}", "d.yaml:1:19: fleet.contexts", "duplicate context"),
        ("fleet: {contexts: [(local)]}", "d.yaml:1:19: fleet.contexts", "is the name of the calling cluster"),
        ("crds: {apiGroups: ['*.example.org']}", "d.yaml:1:19: crds.apiGroups", "RBAC has no other patterns"),
        ("crds: {apiGroups: [apps]}", "d.yaml:1:19: crds.apiGroups", "\"apps\" is not an API group"),
        ("namespaces: {blockingResources: []}", "d.yaml:1:33: namespaces.blockingResources", "is empty"),
        (
            "namespaces: {blockingResources: [pod]}",
            "d.yaml:1:34: namespaces.blockingResources",
            "did you mean pods?",
        ),
        (
            "namespaces: {extraResources: [{group: apps, version: v1, resource: deployments}]}",
            "d.yaml:1:30",
            "duplicate resource",
        ),
        ("namespaces: {extraResources: [{version: v1, resource: A/b}]}", "d.yaml:1:55", "is not a resource"),
        (
            "namespaces: {extraResources: [{version: v1, resource: secrets}]}",
            "d.yaml:1:30",
            "every Secret of every cluster",
        ),
        (
            "namespaces: {extraResources: [{version: v1, resource: configmaps}]}",
            "d.yaml:1:30",
            "in every namespace",
        ),
        (
            "namespaces: {extraResources: [{version: v1, resource: serviceaccounts}]}",
            "d.yaml:1:30",
            "in every namespace",
        ),
        (
            "namespaces: {extraResources: [{version: v1, resource: events}]}",
            "d.yaml:1:30",
            "a log of past changes",
        ),
        (
            "namespaces: {extraResources: [{group: events.k8s.io, version: v1, resource: events}]}",
            "d.yaml:1:30",
            "a log of past changes",
        ),
        (
            "fleet: karmada\nunreachableClusters: [{cluster: a, until: 2026-12-01T00:00:00Z, reason: x}]",
            "d.yaml:2:22: unreachableClusters",
            "durward.dev/acknowledge-unreachable",
        ),
        ("namespaces: {extraResources: [{version: v1}]}", "d.yaml:1:31", "resource: is required"),
        (
            "unreachableClusters: [{cluster: a, until: tomorrow, reason: x}]",
            "d.yaml:1:43",
            "is not a time or a date",
        ),
        ("unreachableClusters: [{cluster: a, reason: x}]", "d.yaml:1:23", "until: is required"),
        (
            "unreachableClusters: [{cluster: a, until: 2026-12-01T00:00:00Z}]",
            "d.yaml:1:23",
            "reason: is required",
        ),
        (
            "unreachableClusters: [{cluster: a, until: 2026-12-01T00:00:00Z, reason: ' '}]",
            "d.yaml:1:73",
            "is empty",
        ),
        (
            "unreachableClusters: [{until: 2026-12-01T00:00:00Z, reason: x}]",
            "d.yaml:1:23",
            "cluster: is required",
        ),
    ] {
        let (_, problems) = configured(yaml);
        assert_eq!(problems.len(), 1, "{yaml}: {problems:?}");
        assert!(problems[0].starts_with(place) && problems[0].contains(text), "{yaml}: {problems:?}");
    }
}

#[test]
fn suggests_the_nearest_kind_of_fleet() {
    let (_, problems) = configured("fleet: {karmda: {}}");
    assert!(problems.iter().any(|problem| problem.contains("did you mean karmada?")), "{problems:?}");
}

#[test]
fn matches_groups_by_exact_name_or_all() {
    let groups = |yaml: &str| config(yaml).api_groups;
    assert!(groups("crds: {apiGroups: [example.org]}").cover("example.org"));
    assert!(!groups("crds: {apiGroups: [example.org]}").cover("a.example.org"));
    assert!(groups("crds: {apiGroups: ['*']}").cover("a.example.org"));
    assert!(!groups("{}").cover("example.org"));
}

#[test]
fn removed_keys_name_their_successor() {
    for (yaml, key, next) in [
        ("unmanagedResources: ignore", "unmanagedResources", "all objects block a deletion"),
        ("clusterTimeout: 3s", "clusterTimeout", "webhook.timeoutSeconds"),
        ("breakGlass: permission", "breakGlass", "overrides: annotation or permission"),
        (
            "exempt: {namespaceSelector: {matchLabels: {a: b}}}",
            "exempt.namespaceSelector",
            "exempt.namespaces",
        ),
        ("webhook: {admissionReviewVersions: [v1]}", "webhook.admissionReviewVersions", "remove it"),
        (
            "unreachableClusters: [{cluster: a, clusterSelector: {matchLabels: {b: c}}, until: 2026-12-01, reason: x}]",
            "unreachableClusters[0].clusterSelector",
            "name each cluster",
        ),
    ] {
        let (_, problems) = configured(yaml);
        assert_eq!(problems.len(), 1, "{yaml}: {problems:?}");
        assert!(
            problems[0].contains(&format!("{key:?} was removed")) && problems[0].contains(next),
            "{problems:?}"
        );
    }
}
