//! The entries and permissions of configurations.

use crate::common::FailurePolicy;
use serde_json::json;

use super::super::fixture::{LEAST, config};
use super::*;

fn all(yaml: &str) -> Vec<WebhookEntry> {
    entries(&config(yaml))
}

fn names(entries: &[WebhookEntry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.name.as_str()).collect()
}

#[test]
fn deletions_and_evictions_have_an_entry_each_that_fails_closed() {
    let entries = all(LEAST);
    assert_eq!(names(&entries), ["etcd-pods", "etcd-evictions"]);
    for (entry, operation, resource) in
        [(&entries[0], "DELETE", "pods"), (&entries[1], "CREATE", "pods/eviction")]
    {
        assert_eq!(
            serde_json::to_value(&entry.rules).unwrap(),
            json!([{"operations": [operation], "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource], "scope": "Namespaced"}])
        );
        assert_eq!((entry.failure_policy, entry.timeout_seconds), (FailurePolicy::Fail, 10));
        assert!(entry.has_side_effects);
        assert_eq!(entry.namespace_selector.to_string(), "kubernetes.io/metadata.name in (db)");
    }
    assert_eq!(entries[0].object_selector.to_string(), "app=etcd");
    assert!(entries[1].object_selector.selects_all());
}

#[test]
fn named_namespaces_share_an_entry_and_each_namespace_selector_has_its_own() {
    let entries = all(
        "clusters: [{namespace: b, selector: app=etcd}, {namespace: a, selector: app=etcd}, {namespaceSelector: {matchLabels: {t: u}}, selector: x=y}, {namespaceSelector: {matchLabels: {t: u}}, selector: z=y}]",
    );
    assert_eq!(
        names(&entries),
        ["etcd-pods", "etcd-pods-2", "etcd-pods-3", "etcd-evictions", "etcd-evictions-2"]
    );
    assert_eq!(entries[0].namespace_selector.to_string(), "kubernetes.io/metadata.name in (a,b)");
    assert_eq!(entries[0].object_selector.to_string(), "app=etcd");
    for at in [1, 2, 4] {
        assert_eq!(entries[at].namespace_selector.to_string(), "t=u");
    }
    assert_eq!(entries[3].namespace_selector.to_string(), "kubernetes.io/metadata.name in (a,b)");
    assert_eq!(entries[1].object_selector.to_string(), "x=y");
    assert_eq!(entries[2].object_selector.to_string(), "z=y");
}

#[test]
fn namespaces_with_different_pod_selectors_have_different_entries() {
    let entries = all(
        "clusters: [{namespace: a, selector: app=etcd}, {namespace: b, selector: app=db}, {namespace: c, selector: app=etcd}]",
    );
    assert_eq!(names(&entries), ["etcd-pods", "etcd-pods-2", "etcd-evictions"]);
    assert_eq!(entries[0].namespace_selector.to_string(), "kubernetes.io/metadata.name in (a,c)");
    assert_eq!(entries[1].namespace_selector.to_string(), "kubernetes.io/metadata.name in (b)");
    assert_eq!(entries[1].object_selector.to_string(), "app=db");
    assert_eq!(entries[2].namespace_selector.to_string(), "kubernetes.io/metadata.name in (a,b,c)");
}

#[test]
fn the_namespace_selector_of_the_section_is_added() {
    let yaml = "webhook: {namespaceSelector: {matchLabels: {t: v, w: x}}}\nclusters: [{namespaceSelector: {matchLabels: {t: u}}, selector: x=y}]";
    let entries = all(yaml);
    assert_eq!(entries[0].namespace_selector.to_string(), "t=u,t in (v),w=x");
}

#[test]
fn requests_about_terminating_pods_are_not_sent() {
    let entries = all(LEAST);
    let conditions: Vec<(&str, &str)> =
        entries[0].match_conditions.iter().map(|c| (c.name.as_str(), c.expression.as_str())).collect();
    assert_eq!(
        conditions[1..],
        [
            (
                "not-the-kubelets-final-delete",
                r#"!(has(request.userInfo.groups) && "system:nodes" in request.userInfo.groups && oldObject != null && has(oldObject.metadata.deletionTimestamp))"#
            ),
            (
                "not-terminating",
                "!(oldObject != null && has(oldObject.metadata.deletionTimestamp)) || (has(request.options) && request.options != null && has(request.options.gracePeriodSeconds) && request.options.gracePeriodSeconds == 0)"
            ),
            (
                "not-the-namespace-controller",
                r#"request.userInfo.username != "system:serviceaccount:kube-system:namespace-controller""#
            ),
            ("not-the-install-namespace", r#"request.namespace != "durward-system""#),
        ]
    );
    assert_eq!(entries[1].match_conditions.len(), 1);
}

fn text(p: &Permission) -> String {
    format!(
        "{}/{} {:?} {}",
        p.api_groups.join(","),
        p.resources.join(","),
        p.resource_names,
        p.verbs.join(",")
    )
}

#[test]
fn permissions_are_limited_to_named_namespaces() {
    let yaml = "clusters: [{namespace: db, selector: a=b, client: {tls: {secretName: etcd-client}}}, {namespace: db, selector: c=d}]";
    let config = config(yaml);
    assert_eq!(
        permissions(&config).iter().map(text).collect::<Vec<_>>(),
        ["/namespaces [] get", "/nodes [] get"]
    );
    let namespaced: Vec<String> = namespaced_permissions(&config)
        .iter()
        .map(|(namespace, p)| format!("{namespace} {}", text(p)))
        .collect();
    assert_eq!(
        namespaced,
        [
            "durward-system coordination.k8s.io/leases [] get,create,update,delete",
            "db /pods [] get,list",
            "db apps/statefulsets [] get",
            "db /secrets [\"etcd-client\"] get",
        ]
    );
}

#[test]
fn without_etcd_clusters_there_are_no_permissions() {
    let config = config("clusters: []");
    assert!(permissions(&config).is_empty() && namespaced_permissions(&config).is_empty());
}

#[test]
fn a_namespace_selector_needs_permissions_in_all_namespaces_and_named_secrets_only() {
    let yaml = "clusters: [{namespaceSelector: {matchLabels: {t: u}}, selector: a=b, client: {tls: {secretName: s}, auth: {secretName: u}}}]";
    let config = config(yaml);
    assert_eq!(namespaced_permissions(&config).len(), 1, "those of the Leases");
    assert_eq!(text(&permissions(&config)[0]), "/namespaces [] get,list");
    assert_eq!(text(&permissions(&config)[4]), "/secrets [\"s\", \"u\"] get");
}

#[test]
fn the_configured_owner_kind_can_be_read() {
    let yaml = "clusters: [{namespace: db, selector: a=b, owner: {apiVersion: etcd.example.org/v1, kind: EtcdCluster}}]";
    let namespaced: Vec<String> =
        namespaced_permissions(&config(yaml)).iter().map(|(_, p)| text(p)).collect();
    assert!(namespaced.contains(&"etcd.example.org/etcdclusters [] get".to_owned()), "{namespaced:?}");
}
