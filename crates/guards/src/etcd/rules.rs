//! The webhook entries and the permissions of the guard.
//!
//! Deletions and evictions need an entry each: an `objectSelector` is matched against the Eviction and never against its pod
//! (kubernetes/kubernetes#110169). The entry for deletions selects pods, the other one only namespaces. Both select exactly the
//! namespaces of the etcd clusters, so a Durward that is down blocks nothing elsewhere.
//!
//! One selector can contain several names of namespaces, but not several label selectors. Each label selector and each selector of
//! pods therefore has entries of its own. A pod that two entries select is reviewed twice, with the same result.
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
use crate::common::NAMESPACE_NAME;
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
    let mut related = vec![overrides::condition(NAME), not_namespace_controller()];
    related.extend(config.also_protect.contains(&Related::Scale).then(fewer_replicas));
    [
        ("etcd-pods", vec![namespaced(Operation::Delete, "", "pods")], deletions),
        ("etcd-evictions", vec![namespaced(Operation::Create, "", "pods/eviction")], Vec::new()),
        (
            "etcd-related",
            config.also_protect.iter().flat_map(|related| related_rules(*related)).collect(),
            related,
        ),
    ]
    .into_iter()
    .filter(|(_, rules, _)| !rules.is_empty())
    .flat_map(|(name, rules, conditions)| entries_of(config, name, &rules, conditions))
    .collect()
}

/// Returns one entry per scope. The first has the plain name, the second ends in `-2`.
fn entries_of(
    config: &Config,
    name: &str,
    rules: &[RuleWithOperations],
    mut conditions: Vec<MatchCondition>,
) -> Vec<WebhookEntry> {
    let common = &config.common_config;
    conditions.extend(not_install_namespace(config));
    let entry = |(at, scope): (usize, Scoped<'_>)| {
        let name = if at == 0 { name.to_owned() } else { format!("{name}-{}", at + 1) };
        WebhookEntry {
            namespace_selector: labels::all_of(
                scope.namespaces.into_iter().chain(common.namespace_selector.clone()),
            ),
            object_selector: scope.pods.cloned().unwrap_or_default(),
            match_conditions: conditions.clone(),
            has_side_effects: true,
            ..WebhookEntry::new(WebhookType::Validating, name, rules.to_vec(), common)
        }
    };
    scopes(config, name == "etcd-pods").into_iter().enumerate().map(entry).collect()
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
    // `doctor` and a metric look for annotations of overrides on these objects.
    for related in &config.also_protect {
        let (group, plural, ..) = related.requests();
        permissions.push(Permission::on(group, plural, &["list"]));
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
        let autodetected = all("autodetect: true\nclusters: [{namespace: db}]");
        assert!(autodetected[0].object_selector.selects_all());
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
        let selector = all(yaml).remove(0).namespace_selector;
        assert_eq!(selector.to_string(), "t=u,t in (v),w=x");
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
        assert_eq!(names(&entries), ["etcd-pods", "etcd-evictions", "etcd-related"]);
        let conditions = |entry: &WebhookEntry| -> Vec<String> {
            entry.match_conditions.iter().map(|condition| condition.name.clone()).collect()
        };
        assert_eq!(
            conditions(&entries[2]),
            ["no-break-glass", "not-the-namespace-controller", "fewer-replicas", "not-the-install-namespace"]
        );
        assert_eq!(
            entries[2].match_conditions[2].expression,
            "request.operation != \"UPDATE\" || (has(object.spec) && has(object.spec.replicas) ? object.spec.replicas : 0) < (has(oldObject.spec) && has(oldObject.spec.replicas) ? oldObject.spec.replicas : 0)"
        );
        let without = all(&format!("{LEAST}\nalsoProtect: [statefulsets]"));
        assert_eq!(
            conditions(&without[2]),
            ["no-break-glass", "not-the-namespace-controller", "not-the-install-namespace"]
        );
        let resources: Vec<&str> = entries[2]
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
