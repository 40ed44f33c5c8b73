//! Valid sections, and the problems of invalid ones.

use super::super::fixture::{config, configured};
use super::*;

#[test]
fn an_empty_section_reads_this_cluster_and_selects_labelled_objects() {
    let config = config("{}");
    assert_eq!(
        (&config.fleet, config.select, config.unmanaged),
        (&Fleet::None, Select::Labelled, Unmanaged::Deny)
    );
    assert_eq!((config.names, config.break_glass), (Names::Show, BreakGlass::Annotation));
    assert_eq!(config.member_deadline, Duration::from_secs(3));
    assert!(config.groups.0.is_empty() && config.access.is_none());
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
            "services"
        ]
    );
}

#[test]
fn a_fleet_has_one_kind_and_selects_all_objects() {
    for (yaml, expected) in [
        ("fleet: none", Fleet::None),
        ("fleet: {karmada: {}}", Fleet::Karmada),
        ("fleet: {karmada: }", Fleet::Karmada),
        ("fleet: {contexts: [a, b]}", Fleet::Contexts(vec!["a".into(), "b".into()])),
        ("namespace: guards\nfleet: {secrets: {}}", Fleet::Secrets { namespace: "guards".into() }),
    ] {
        let config = config(yaml);
        assert_eq!(config.fleet, expected, "{yaml}");
        assert_eq!(config.select == Select::All, expected != Fleet::None, "{yaml}");
    }
    let access = config("fleet: {karmada: {kubeconfig: k.yaml, context: karmada}}").access.unwrap();
    assert_eq!(access.context.as_deref(), Some("karmada"));
}

#[test]
fn reports_problems_with_position_and_allowed_values() {
    for (yaml, place, text) in [
        ("fleet: {}", "d.yaml:1:8: fleet", "not name exactly one way"),
        ("fleet: {karmada: {}, contexts: [a]}", "d.yaml:1:8: fleet", "allowed: none, {karmada: {}}"),
        ("fleet: karmada", "d.yaml:1:8: fleet", "\"karmada\""),
        ("fleet: {contexts: []}", "d.yaml:1:19: fleet.contexts", "names no context"),
        ("fleet: {contexts: [a, a]}", "d.yaml:1:19: fleet.contexts", "stands there twice"),
        ("unmanaged: ignore", "d.yaml:1:12: unmanaged", "not Karmada's"),
        ("crds: {groups: ['*.example.org']}", "d.yaml:1:16: crds.groups", "RBAC knows no other patterns"),
        ("crds: {groups: [apps]}", "d.yaml:1:16: crds.groups", "\"apps\" is no API group"),
        ("namespaces: {inUse: []}", "d.yaml:1:21: namespaces.inUse", "names nothing"),
        ("namespaces: {inUse: [pod]}", "d.yaml:1:22: namespaces.inUse", "did you mean pods?"),
        (
            "namespaces: {more: [{group: apps, version: v1, resource: deployments}]}",
            "d.yaml:1:20",
            "counted already",
        ),
        ("namespaces: {more: [{version: v1, resource: A/b}]}", "d.yaml:1:45", "is no resource"),
        (
            "namespaces: {more: [{version: v1, resource: secrets}]}",
            "d.yaml:1:20",
            "every Secret of every cluster",
        ),
        ("namespaces: {more: [{version: v1, resource: configmaps}]}", "d.yaml:1:20", "in every namespace"),
        (
            "namespaces: {more: [{version: v1, resource: serviceaccounts}]}",
            "d.yaml:1:20",
            "in every namespace",
        ),
        ("namespaces: {more: [{version: v1, resource: events}]}", "d.yaml:1:20", "left behind"),
        (
            "namespaces: {more: [{group: events.k8s.io, version: v1, resource: events}]}",
            "d.yaml:1:20",
            "left behind",
        ),
        (
            "acknowledge: [{clusterSelector: {matchExpressions: [{key: tier, operator: NotIn, values: [prod]}]}, until: 2026-12-01T00:00:00Z, reason: x}]",
            "d.yaml:1:33",
            "asks for no label",
        ),
        (
            "acknowledge: [{clusterSelector: {matchExpressions: [{key: tier, operator: DoesNotExist}]}, until: 2026-12-01T00:00:00Z, reason: x}]",
            "d.yaml:1:33",
            "asks for no label",
        ),
        (
            "fleet: {contexts: [a]}\nacknowledge: [{clusterSelector: {matchLabels: {b: c}}, until: 2026-12-01T00:00:00Z, reason: x}]",
            "d.yaml:2:14: acknowledge",
            "contexts have no labels",
        ),
        ("namespaces: {more: [{version: v1}]}", "d.yaml:1:21", "resource: is required"),
        ("memberDeadline: 0s", "d.yaml:1:17: memberDeadline", "is too short"),
        ("memberDeadline: 1m", "d.yaml:1:17: memberDeadline", "longer than 30s"),
        ("acknowledge: [{cluster: a, until: tomorrow, reason: x}]", "d.yaml:1:35", "no time in RFC 3339"),
        ("acknowledge: [{cluster: a, reason: x}]", "d.yaml:1:15", "until: is required"),
        ("acknowledge: [{cluster: a, until: 2026-12-01T00:00:00Z}]", "d.yaml:1:15", "reason: is required"),
        ("acknowledge: [{cluster: a, until: 2026-12-01T00:00:00Z, reason: ' '}]", "d.yaml:1:65", "is empty"),
        ("acknowledge: [{until: 2026-12-01T00:00:00Z, reason: x}]", "d.yaml:1:15", "not exactly one of"),
        (
            "acknowledge: [{cluster: a, clusterSelector: {matchLabels: {b: c}}, until: 2026-12-01T00:00:00Z, reason: x}]",
            "d.yaml:1:25",
            "not exactly one of",
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
fn reads_acknowledgements_by_name_and_by_label() {
    let of = |yaml: &str| config(yaml).acknowledged.remove(0).clusters;
    let named = of("acknowledge: [{cluster: edge-7, until: 2026-12-01T00:00:00Z, reason: cut}]");
    assert_eq!(named, ClusterMatch::Name("edge-7".into()));
    let labelled = of(
        "acknowledge: [{clusterSelector: {matchLabels: {a: b}}, until: 2026-12-01T00:00:00Z, reason: cut}]",
    );
    assert!(matches!(labelled, ClusterMatch::Selector(_)));
}

#[test]
fn matches_groups_by_exact_name_or_all() {
    let groups = |yaml: &str| config(yaml).groups;
    assert!(groups("crds: {groups: [example.org]}").cover("example.org"));
    assert!(!groups("crds: {groups: [example.org]}").cover("a.example.org"));
    assert!(groups("crds: {groups: ['*']}").cover("a.example.org"));
    assert!(!groups("{}").cover("example.org"));
}
