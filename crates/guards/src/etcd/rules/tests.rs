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
    assert_eq!(names(&entries), ["etcd-pods", "etcd-evictions", "etcd-updates"]);
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
        [
            "etcd-pods",
            "etcd-pods-2",
            "etcd-pods-3",
            "etcd-evictions",
            "etcd-evictions-2",
            "etcd-updates",
            "etcd-updates-2",
            "etcd-updates-3",
            "etcd-namespaces"
        ]
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
    assert_eq!(
        names(&entries),
        ["etcd-pods", "etcd-pods-2", "etcd-evictions", "etcd-updates", "etcd-updates-2"]
    );
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
    let namespaces = entries.last().unwrap();
    assert_eq!(namespaces.name, "etcd-namespaces");
    assert!(namespaces.namespace_selector.selects_all(), "the API server would match the new labels");
    let labels = &namespaces.match_conditions[2].expression;
    assert!(labels.contains(r#"?labels[?"t"]"#) && labels.contains(r#"?labels[?"w"]"#), "{labels}");
}

fn resources(entry: &WebhookEntry) -> Vec<&str> {
    entry.rules.iter().flat_map(|rule| rule.resources.iter().flatten()).map(String::as_str).collect()
}

#[test]
fn updates_of_metadata_are_sent_by_each_resource_that_writes_it() {
    let yaml = "alsoProtect: [statefulsets, scale]\nclusters: [{namespaceSelector: t=u, selector: a=b}]";
    let entries = all(yaml);
    let of = |name: &str| resources(entries.iter().find(|entry| entry.name == name).unwrap());
    assert_eq!(of("etcd-updates"), ["pods", "pods/status"]);
    assert_eq!(of("etcd-related-updates"), ["statefulsets", "statefulsets/status"]);
    assert_eq!(of("etcd-namespaces"), ["namespaces", "namespaces/status", "namespaces/finalize"]);
}

#[test]
fn updates_are_sent_if_they_change_the_member() {
    let entry = all(LEAST).remove(2);
    let names: Vec<&str> = entry.match_conditions.iter().map(|one| one.name.as_str()).collect();
    let expected = ["no-break-glass", "not-terminating", "changes-the-member", "not-the-install-namespace"];
    assert_eq!(names, expected);
    let changes: Vec<&str> = entry.match_conditions[2].expression.split(" || ").collect();
    assert_eq!(
        changes,
        [
            r#"oldObject.metadata.?labels[?"app"].orValue(null) != object.metadata.?labels[?"app"].orValue(null)"#,
            "oldObject.metadata.?ownerReferences.orValue([]).filter(o, o.?controller.orValue(false)).map(o, [o.apiVersion, o.kind, o.name, o.uid]) != object.metadata.?ownerReferences.orValue([]).filter(o, o.?controller.orValue(false)).map(o, [o.apiVersion, o.kind, o.name, o.uid])",
            r#"oldObject.spec.?containers.orValue([]).map(c, c.?image.orValue("")) != object.spec.?containers.orValue([]).map(c, c.?image.orValue(""))"#,
            r#"oldObject.spec.?initContainers.orValue([]).map(c, c.?image.orValue("")) != object.spec.?initContainers.orValue([]).map(c, c.?image.orValue(""))"#,
            "oldObject.spec.?activeDeadlineSeconds.orValue(0) != object.spec.?activeDeadlineSeconds.orValue(0)",
        ]
    );
    assert_eq!(entry.object_selector.to_string(), "app=etcd");
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

#[test]
fn related_objects_have_an_entry_only_if_configured() {
    let yaml =
        format!("{LEAST}\nalsoProtect: [scale, statefulsets, persistentvolumeclaims, poddisruptionbudgets]");
    let entries = all(&yaml);
    assert_eq!(
        names(&entries),
        ["etcd-pods", "etcd-evictions", "etcd-updates", "etcd-related", "etcd-related-updates"]
    );
    let conditions = |entry: &WebhookEntry| -> Vec<String> {
        entry.match_conditions.iter().map(|condition| condition.name.clone()).collect()
    };
    assert_eq!(
        conditions(&entries[3]),
        ["no-break-glass", "not-the-namespace-controller", "fewer-replicas", "not-the-install-namespace"]
    );
    assert_eq!(
        entries[3].match_conditions[2].expression,
        "request.operation != \"UPDATE\" || (has(object.spec) && has(object.spec.replicas) ? object.spec.replicas : 0) < (has(oldObject.spec) && has(oldObject.spec.replicas) ? oldObject.spec.replicas : 0)"
    );
    let without = all(&format!("{LEAST}\nalsoProtect: [statefulsets]"));
    assert_eq!(
        conditions(&without[3]),
        ["no-break-glass", "not-the-namespace-controller", "not-the-install-namespace"]
    );
    assert_eq!(
        conditions(&entries[4]),
        ["no-break-glass", "not-terminating", "adds-an-owner", "not-the-install-namespace"]
    );
    assert_eq!(
        resources(&entries[3]),
        [
            "statefulsets",
            "statefulsets/scale",
            "statefulsets",
            "persistentvolumeclaims",
            "poddisruptionbudgets"
        ]
    );
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

/// Whether the API server sends the update to the entry.
fn is_sent(yaml: &str, entry: &str, old: &serde_json::Value, new: &serde_json::Value) -> bool {
    let all = all(yaml);
    let entry = all.iter().find(|one| one.name == entry).unwrap();
    let request = json!({"operation": "UPDATE", "namespace": "db", "userInfo": {"username": "ann"}});
    crate::match_conditions::send(entry, &request, new, old)
}

/// Checks that a change in both directions is sent, or is not.
fn check_changes(
    yaml: &str,
    entry: &str,
    old: &serde_json::Value,
    changes: &[(serde_json::Value, bool, bool)],
) {
    for (patch, there, back) in changes {
        let mut new = old.clone();
        json_patch::merge(&mut new, patch);
        assert_eq!(is_sent(yaml, entry, old, &new), *there, "{entry}: {old} -> {new}");
        assert_eq!(is_sent(yaml, entry, &new, old), *back, "{entry}: {new} -> {old}");
    }
}

#[test]
fn updates_of_pods_are_sent_if_a_member_can_leave_the_guard() {
    let yaml = "clusters: [{namespace: db, selector: {matchExpressions: [{key: app, operator: In, values: [etcd]}, {key: off, operator: DoesNotExist}]}}]";
    let owner = |more: serde_json::Value| {
        let mut owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "etcd", "uid": "1", "controller": true});
        json_patch::merge(&mut owner, &more);
        json!({"metadata": {"ownerReferences": [owner]}})
    };
    let pod = json!({
        "metadata": {"name": "etcd-0", "labels": {"app": "etcd"}, "ownerReferences": owner(json!({}))["metadata"]["ownerReferences"]},
        "spec": {"containers": [{"name": "etcd", "image": "etcd:3"}]},
    });
    let sent = |patch: serde_json::Value| (patch, true, true);
    let not_sent = |patch: serde_json::Value| (patch, false, false);
    check_changes(
        yaml,
        "etcd-updates",
        &pod,
        &[
            sent(json!({"metadata": {"labels": null}})),
            sent(json!({"metadata": {"labels": {"app": "other"}}})),
            sent(json!({"metadata": {"labels": {"off": ""}}})),
            sent(json!({"metadata": {"ownerReferences": null}})),
            sent(json!({"metadata": {"ownerReferences": []}})),
            sent(owner(json!({"uid": "2"}))),
            sent(owner(json!({"name": "x"}))),
            sent(owner(json!({"kind": "x"}))),
            sent(owner(json!({"apiVersion": "x/v1"}))),
            sent(owner(json!({"controller": null}))),
            sent(json!({"spec": {"containers": [{"name": "etcd", "image": "x"}]}})),
            sent(json!({"spec": {"initContainers": [{"name": "i", "image": "x"}]}})),
            sent(json!({"spec": {"activeDeadlineSeconds": 1}})),
            not_sent(owner(json!({"blockOwnerDeletion": true}))),
            not_sent(
                json!({"metadata": {"labels": {"more": "1"}, "annotations": {"a": "b"}, "finalizers": ["x"]}}),
            ),
            not_sent(json!({"status": {"phase": "Failed"}})),
        ],
    );
}

#[test]
fn updates_of_related_objects_are_sent_if_an_owner_is_added_or_changed() {
    let yaml = format!("alsoProtect: [statefulsets, persistentvolumeclaims]\n{LEAST}");
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1"});
    let set = json!({"metadata": {"name": "etcd", "ownerReferences": [owner]}});
    let with = |key: &str, value: &str| {
        let mut owner = owner.clone();
        owner[key] = value.into();
        json!({"metadata": {"ownerReferences": [owner]}})
    };
    let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "y", "uid": "2"});
    let blocking =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1", "blockOwnerDeletion": true});
    check_changes(
        &yaml,
        "etcd-related-updates",
        &set,
        &[
            (with("uid", "3"), true, true),
            (with("name", "gone"), true, true),
            (with("kind", "Secret"), true, true),
            (with("apiVersion", "x/v1"), true, true),
            (json!({"metadata": {"ownerReferences": null}}), false, true),
            (json!({"metadata": {"ownerReferences": [owner, other]}}), true, false),
            (json!({"metadata": {"ownerReferences": [blocking]}}), false, false),
            (
                json!({"metadata": {"labels": {"app": "x"}, "finalizers": ["x"]}, "spec": {"replicas": 1}}),
                false,
                false,
            ),
        ],
    );
}

#[test]
fn labels_of_namespaces_are_sent_if_a_selector_names_them() {
    let yaml = "clusters: [{namespaceSelector: {matchExpressions: [{key: t, operator: In, values: [u]}]}, selector: a=b}]\nexempt: {namespaceSelector: {matchLabels: {free: \"\"}}}";
    let namespace = json!({"metadata": {"name": "db"}});
    check_changes(
        yaml,
        "etcd-namespaces",
        &namespace,
        &[
            (json!({"metadata": {"labels": {"t": "u"}}}), true, true),
            (json!({"metadata": {"labels": {"free": ""}}}), true, true),
            (json!({"metadata": {"labels": {}}}), false, false),
            (json!({"metadata": {"labels": {"more": "1"}}}), false, false),
        ],
    );
}
