//! The webhook entries and the permissions of the guard.
//!
//! Deletions and evictions need an entry each: an `objectSelector` is matched against the Eviction and never against its pod
//! (kubernetes/kubernetes#110169). The entry for deletions selects pods, the other one only namespaces. Both select exactly the
//! namespaces of the etcd clusters, so a Durward that is down blocks nothing elsewhere.
//!
//! One selector can contain several names of namespaces, but not several label selectors. Each label selector and each selector of
//! pods therefore has entries of its own. A pod that two entries select is reviewed twice, with the same result.
//!
//! Updates are sent only if they can take an object out of the guard: by its owner, by the labels that a selector names, and for pods
//! also by images and `activeDeadlineSeconds`. An `objectSelector` matches the old or the new object, so it also selects a pod that
//! loses the label.
//!
//! Requests about a pod that is being deleted are not sent, unless they shorten its grace period to zero. The last deletion by the
//! kubelet is never sent. Neither are deletions by the namespace controller: it deletes objects of terminating namespaces only, which the
//! guard allows, and while Durward is down the namespace would stay Terminating.

use std::collections::BTreeSet;

use admission::Operation;
use k8s_openapi::api::admissionregistration::v1::{MatchCondition, RuleWithOperations};

use super::NAME;
use super::config::{Config, Coordination, EtcdClusterConfig, NamespaceMatch, OwnerKind, Related};
use super::group;
use super::kube_reader::PODS;
use super::labels;
use super::namespaces;
use crate::common::{self, NAMESPACE_NAME};
use crate::kind::{GuardedNamespaces, GuardedObjects, Permission};
use crate::overrides;
use crate::webhook::{WebhookEntry, WebhookType, cel_string, condition, rule};
use ::config::{Expression, Selector};
use cluster::Resource;

/// The namespaces and pods of one webhook entry.
struct Scoped<'c> {
    namespaces: Selector,
    pods: Option<&'c Selector>,
}

/// Returns the webhook entries.
pub(super) fn entries(config: &Config) -> Vec<WebhookEntry> {
    let deletions = vec![
        overrides::condition(NAME),
        not_last_kubelet_deletion(),
        not_terminating(),
        not_namespace_controller(),
    ];
    let pods = |operation, resource| vec![namespaced(operation, "", resource)];
    let updates =
        |scope: &Scoped<'_>| vec![overrides::condition(NAME), not_deleting(), changes_member(scope.pods)];
    let related: Vec<RuleWithOperations> =
        config.also_protect.iter().flat_map(|related| related_rules(*related)).collect();
    let mut of_related = vec![overrides::condition(NAME), not_namespace_controller()];
    of_related.extend(config.also_protect.contains(&Related::Scale).then(fewer_replicas));
    let owned: Vec<RuleWithOperations> = config
        .also_protect
        .iter()
        .filter(|related| **related != Related::Scale)
        .map(|related| {
            let (group, plural, ..) = related.requests();
            namespaced(Operation::Update, group, plural)
        })
        .collect();
    let of_owned = vec![overrides::condition(NAME), not_deleting(), adds_owner()];
    let mut entries =
        entries_of(config, "etcd-pods", &pods(Operation::Delete, "pods"), |_| deletions.clone());
    entries.extend(entries_of(config, "etcd-evictions", &pods(Operation::Create, "pods/eviction"), |_| {
        Vec::new()
    }));
    entries.extend(entries_of(config, "etcd-updates", &pods(Operation::Update, "pods"), updates));
    entries.extend(entries_of(config, "etcd-related", &related, |_| of_related.clone()));
    entries.extend(entries_of(config, "etcd-related-updates", &owned, |_| of_owned.clone()));
    entries.extend(namespace_updates(config));
    entries
}

/// Returns one entry per scope. The first has the plain name, the second ends in `-2`.
fn entries_of(
    config: &Config,
    name: &str,
    rules: &[RuleWithOperations],
    conditions: impl Fn(&Scoped<'_>) -> Vec<MatchCondition>,
) -> Vec<WebhookEntry> {
    if rules.is_empty() {
        return Vec::new();
    }
    let common = &config.common_config;
    let entry = |(at, scope): (usize, Scoped<'_>)| {
        let name = if at == 0 { name.to_owned() } else { format!("{name}-{}", at + 1) };
        WebhookEntry {
            match_conditions: conditions(&scope).into_iter().chain(not_install_namespace(config)).collect(),
            namespace_selector: labels::all_of(
                scope.namespaces.into_iter().chain(common.namespace_selector.clone()),
            ),
            object_selector: scope.pods.cloned().unwrap_or_default(),
            has_side_effects: true,
            ..WebhookEntry::new(WebhookType::Validating, name, rules.to_vec(), common)
        }
    };
    scopes(config, matches!(name, "etcd-pods" | "etcd-updates")).into_iter().enumerate().map(entry).collect()
}

/// Returns the entry for the labels of namespaces, if labels decide which namespaces are guarded. It selects all namespaces: on an
/// UPDATE, the API server matches a `namespaceSelector` against the new labels.
fn namespace_updates(config: &Config) -> Option<WebhookEntry> {
    let keys = namespaces::label_keys(config);
    if keys.is_empty() || config.clusters.is_empty() {
        return None;
    }
    let home = config.common_config.namespace.as_str();
    let not_home =
        condition("not-the-install-namespace", format!("object.metadata.name != {}", cel_string(home)));
    let is_changed: Vec<String> = keys.iter().map(|key| changed_label(key)).collect();
    let labels = condition("changes-a-guarded-label", is_changed.join(" || "));
    let rules = vec![rule(Operation::Update.as_str(), "", "namespaces", "Cluster")];
    Some(WebhookEntry {
        namespace_selector: Selector::default(),
        match_conditions: [overrides::condition(NAME), not_deleting(), labels]
            .into_iter()
            .chain((!home.is_empty()).then_some(not_home))
            .collect(),
        ..WebhookEntry::new(WebhookType::Validating, "etcd-namespaces", rules, &config.common_config)
    })
}

/// Returns the scopes of all etcd clusters: named namespaces with the same selector of pods share one, each namespace selector has its
/// own. An entry that autodetects its pods has no selector; the guard selects them.
fn scopes(config: &Config, selects_pods: bool) -> Vec<Scoped<'_>> {
    let mut named: Vec<(Option<&Selector>, Vec<&str>)> = Vec::new();
    let mut labeled: Vec<Scoped<'_>> = Vec::new();
    for entry in &config.clusters {
        let pods = entry.selector.as_ref().filter(|_| selects_pods);
        match &entry.namespaces {
            NamespaceMatch::Named(name) => match named.iter_mut().find(|(other, _)| *other == pods) {
                Some((_, all)) => all.push(name),
                None => named.push((pods, vec![name])),
            },
            NamespaceMatch::Labeled(namespaces) => {
                let is_same = |scope: &Scoped<'_>| scope.namespaces == *namespaces && scope.pods == pods;
                if !labeled.iter().any(is_same) {
                    labeled.push(Scoped { namespaces: namespaces.clone(), pods });
                }
            }
        }
    }
    let named = named.into_iter().map(|(pods, names)| Scoped { namespaces: with_names(names), pods });
    named.chain(labeled).collect()
}

/// Returns a selector for the namespaces with these names.
fn with_names(names: Vec<&str>) -> Selector {
    let names = names.into_iter().map(str::to_owned).collect();
    Expression::In(NAMESPACE_NAME.to_owned(), names).into()
}

fn namespaced(operation: Operation, group: &str, resource: &str) -> RuleWithOperations {
    rule(operation.as_str(), group, resource, "Namespaced")
}

fn related_rules(related: Related) -> impl Iterator<Item = RuleWithOperations> {
    let (group, plural, operation, subresources) = related.requests();
    subresources.iter().map(move |subresource| {
        let resource =
            if subresource.is_empty() { plural.to_owned() } else { format!("{plural}/{subresource}") };
        namespaced(operation, group, &resource)
    })
}

/// Matches updates of a `StatefulSet` that reduce its replicas. A Scale omits the value 0.
fn fewer_replicas() -> MatchCondition {
    let replicas = |object: &str| {
        format!("(has({object}.spec) && has({object}.spec.replicas) ? {object}.spec.replicas : 0)")
    };
    let expression =
        format!("request.operation != \"UPDATE\" || {} < {}", replicas("object"), replicas("oldObject"));
    condition("fewer-replicas", expression)
}

/// Returns a CEL expression that is true if the value of a label changes.
fn changed_label(key: &str) -> String {
    let key = cel_string(key);
    let value = |object: &str| format!("{object}.metadata.?labels[?{key}].orValue(null)");
    format!("{} != {}", value("oldObject"), value("object"))
}

/// Matches updates of a pod that can count as its removal: of its controller, of the labels that the selector names, of an image, and
/// of `activeDeadlineSeconds`.
fn changes_member(selector: Option<&Selector>) -> MatchCondition {
    let differs = |value: &dyn Fn(&str) -> String| format!("{} != {}", value("oldObject"), value("object"));
    let controller = |object: &str| {
        format!(
            "{object}.metadata.?ownerReferences.orValue([]).filter(o, o.?controller.orValue(false)).map(o, [o.apiVersion, o.kind, o.name, o.uid])"
        )
    };
    let images = |list: &'static str| {
        move |object: &str| format!("{object}.spec.?{list}.orValue([]).map(c, c.?image.orValue(\"\"))")
    };
    let deadline = |object: &str| format!("{object}.spec.?activeDeadlineSeconds.orValue(0)");
    let mut changes: Vec<String> =
        selector.into_iter().flat_map(common::label_keys).map(|key| changed_label(&key)).collect();
    changes.extend([
        differs(&controller),
        differs(&images("containers")),
        differs(&images("initContainers")),
        differs(&deadline),
    ]);
    condition("changes-the-member", changes.join(" || "))
}

/// Matches updates that add an owner reference, by which the garbage collector can delete the object.
fn adds_owner() -> MatchCondition {
    let owners = |object: &str| format!("{object}.metadata.?ownerReferences.orValue([])");
    let expression =
        format!("{}.exists(n, !{}.exists(o, o.uid == n.uid))", owners("object"), owners("oldObject"));
    condition("adds-an-owner", expression)
}

fn not_deleting() -> MatchCondition {
    condition("not-terminating", format!("!({DELETING})"))
}

const DELETING: &str = "oldObject != null && has(oldObject.metadata.deletionTimestamp)";

fn not_last_kubelet_deletion() -> MatchCondition {
    let nodes = "has(request.userInfo.groups) && \"system:nodes\" in request.userInfo.groups";
    condition("not-the-kubelets-final-delete", format!("!({nodes} && {DELETING})"))
}

fn not_terminating() -> MatchCondition {
    let without_grace_period = "has(request.options) && request.options != null && has(request.options.gracePeriodSeconds) && \
                   request.options.gracePeriodSeconds == 0";
    condition("not-terminating", format!("!({DELETING}) || ({without_grace_period})"))
}

/// With the controller manager's flag `--use-service-account-credentials`, which kubeadm sets, the namespace controller has a user of its
/// own. Without it, its deletions are reviewed.
fn not_namespace_controller() -> MatchCondition {
    let user = cel_string("system:serviceaccount:kube-system:namespace-controller");
    condition("not-the-namespace-controller", format!("request.userInfo.username != {user}"))
}

fn not_install_namespace(config: &Config) -> Option<MatchCondition> {
    let name = config.common_config.namespace.as_str();
    (!name.is_empty())
        .then(|| condition("not-the-install-namespace", format!("request.namespace != {}", cel_string(name))))
}

/// Returns the objects that the guard protects.
pub(super) fn guarded(config: &Config) -> Vec<GuardedObjects> {
    let related = config.also_protect.iter().map(|related| {
        let (group, plural, ..) = related.requests();
        Resource { group: group.into(), version: "v1".into(), plural: plural.into() }
    });
    let resources: Vec<Resource> = std::iter::once(PODS).chain(related).collect();
    let mut all = Vec::new();
    for entry in &config.clusters {
        let namespaces = match &entry.namespaces {
            NamespaceMatch::Named(name) => GuardedNamespaces::Named(name.clone()),
            NamespaceMatch::Labeled(selector) => GuardedNamespaces::Labeled(selector.clone()),
        };
        for resource in &resources {
            let objects = GuardedObjects {
                resource: resource.clone(),
                namespaces: namespaces.clone(),
                break_glass: config.break_glass,
            };
            if !all.contains(&objects) {
                all.push(objects);
            }
        }
    }
    all
}

/// Returns the permissions for the reads of one etcd cluster.
fn permissions_of(config: &Config, entry: &EtcdClusterConfig) -> Vec<Permission> {
    let mut permissions =
        vec![Permission::on("", "pods", &["get", "list"]), Permission::on("apps", "statefulsets", &["get"])];
    // A review reads the stored object. `doctor` and a metric look for annotations of overrides on all of them.
    for related in &config.also_protect {
        let (group, plural, ..) = related.requests();
        permissions.push(Permission::on(group, plural, &["get", "list"]));
    }
    if let Some(OwnerKind { resource, .. }) = &entry.owner {
        permissions.push(Permission::on(&resource.group, &resource.plural, &["get"]));
    }
    let secrets = entry.client.secrets();
    if !secrets.is_empty() {
        let names = secrets.into_iter().map(str::to_owned).collect();
        permissions.push(Permission { resource_names: names, ..Permission::on("", "secrets", &["get"]) });
    }
    permissions
}

/// Returns the permissions in all namespaces: for objects without a namespace, and for etcd clusters with a namespace selector.
pub(super) fn permissions(config: &Config) -> Vec<Permission> {
    if config.clusters.is_empty() {
        return Vec::new();
    }
    let is_labeled = |entry: &&EtcdClusterConfig| matches!(entry.namespaces, NamespaceMatch::Labeled(_));
    let labeled = || config.clusters.iter().filter(is_labeled);
    // A review contains its namespace. `doctor` and `snapshot` must list the namespaces with the labels.
    let verbs: &[&str] = if labeled().next().is_some() { &["get", "list"] } else { &["get"] };
    let mut permissions =
        vec![Permission::on("", "namespaces", verbs), Permission::on("", "nodes", &["get"])];
    for permission in labeled().flat_map(|entry| permissions_of(config, entry)) {
        if !permissions.contains(&permission) {
            permissions.push(permission);
        }
    }
    permissions
}

/// Returns the permissions in single namespaces.
pub(super) fn namespaced_permissions(config: &Config) -> Vec<(String, Permission)> {
    let mut permissions = Vec::new();
    if config.coordination == Coordination::Lease && !config.clusters.is_empty() {
        let home = || config.common_config.namespace.clone();
        permissions.extend(lease_permissions(config).into_iter().map(|leases| (home(), leases)));
    }
    for entry in &config.clusters {
        if let NamespaceMatch::Named(namespace) = &entry.namespaces {
            for permission in permissions_of(config, entry) {
                let pair = (namespace.clone(), permission);
                if !permissions.contains(&pair) {
                    permissions.push(pair);
                }
            }
        }
    }
    permissions
}

/// Returns the permissions for the Leases of reservations. RBAC cannot restrict the names of created objects. For existing Leases, the
/// names are restricted if all namespaces are named.
fn lease_permissions(config: &Config) -> Vec<Permission> {
    let leases = |verbs: &[&str]| Permission::on("coordination.k8s.io", "leases", verbs);
    let names = config.clusters.iter().map(|entry| match &entry.namespaces {
        NamespaceMatch::Named(namespace) => Some(group::lease_name(namespace)),
        NamespaceMatch::Labeled(_) => None,
    });
    let Some(names) = names.collect::<Option<BTreeSet<String>>>() else {
        return vec![leases(&["get", "create", "update"])];
    };
    let named = Permission { resource_names: names.into_iter().collect(), ..leases(&["get", "update"]) };
    vec![leases(&["create"]), named]
}

#[cfg(test)]
mod tests {
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
        let autodetected = all("autodetect: true\nclusters: [{namespace: db}]");
        assert!(autodetected[0].object_selector.selects_all());
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

    #[test]
    fn updates_are_sent_if_they_change_the_member() {
        let entry = all(LEAST).remove(2);
        let names: Vec<&str> = entry.match_conditions.iter().map(|one| one.name.as_str()).collect();
        let expected =
            ["no-break-glass", "not-terminating", "changes-the-member", "not-the-install-namespace"];
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
        let yaml = format!(
            "{LEAST}\nalsoProtect: [scale, statefulsets, persistentvolumeclaims, poddisruptionbudgets]"
        );
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
        let resources: Vec<&str> = entries[3]
            .rules
            .iter()
            .flat_map(|rule| rule.resources.iter().flatten())
            .map(String::as_str)
            .collect();
        assert_eq!(
            resources,
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
                "durward-system coordination.k8s.io/leases [] create",
                "durward-system coordination.k8s.io/leases [\"durward-etcd.db\"] get,update",
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
        let yaml = "coordination: inMemory\nclusters: [{namespaceSelector: {matchLabels: {t: u}}, selector: a=b, client: {tls: {secretName: s}, auth: {secretName: u}}}]";
        let config = config(yaml);
        assert!(namespaced_permissions(&config).is_empty());
        assert_eq!(text(&permissions(&config)[0]), "/namespaces [] get,list");
        assert_eq!(text(&permissions(&config)[4]), "/secrets [\"s\", \"u\"] get");
        let yaml = "clusters: [{namespaceSelector: t=u, selector: a=b}, {namespace: db, selector: a=b}]";
        assert_eq!(
            text(&namespaced_permissions(&self::config(yaml))[0].1),
            "coordination.k8s.io/leases [] get,create,update"
        );
    }

    #[test]
    fn the_configured_owner_kind_can_be_read() {
        let yaml = "clusters: [{namespace: db, selector: a=b, owner: {apiVersion: etcd.example.org/v1, kind: EtcdCluster}}]";
        let namespaced: Vec<String> =
            namespaced_permissions(&config(yaml)).iter().map(|(_, p)| text(p)).collect();
        assert!(namespaced.contains(&"etcd.example.org/etcdclusters [] get".to_owned()), "{namespaced:?}");
    }
}
