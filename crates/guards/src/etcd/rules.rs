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
//! loses the label. Some subresources write metadata too: `status` (of pods no owners), and `finalize` of a namespace.
//!
//! Requests about a pod that is being deleted are not sent, unless they shorten its grace period to zero. The last deletion by the
//! kubelet is never sent. Neither are deletions by the namespace controller: it deletes objects of terminating namespaces only, which the
//! guard allows, and while Durward is down the namespace would stay Terminating.

use admission::Operation;
use k8s_openapi::api::admissionregistration::v1::{MatchCondition, RuleWithOperations};

use super::NAME;
use super::config::{Config, EtcdClusterConfig, NamespaceMatch, OwnerKind, Related};
use super::kube_reader::PODS;
use super::labels;
use super::namespaces;
use crate::common::{self, NAMESPACE_NAME};
use crate::kind::{GuardedNamespaces, GuardedObjects, Permission};
use crate::overrides;
use crate::webhook::{WebhookEntry, WebhookType, cel_string, condition, rule};
use ::config::{Expression, Selector};
use cluster::Resource;

/// A resource and its subresource whose updates write metadata.
const WITH_METADATA: &[&str] = &["", "status"];

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
    let pods = |operation, subresources| namespaced(operation, "", "pods", subresources).collect::<Vec<_>>();
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
        .flat_map(|related| {
            let (group, plural, ..) = related.requests();
            namespaced(Operation::Update, group, plural, WITH_METADATA)
        })
        .collect();
    let of_owned = vec![overrides::condition(NAME), not_deleting(), adds_owner()];
    let mut entries = entries_of(config, "etcd-pods", &pods(Operation::Delete, &[""]), |_| deletions.clone());
    entries.extend(entries_of(config, "etcd-evictions", &pods(Operation::Create, &["eviction"]), |_| {
        Vec::new()
    }));
    entries.extend(entries_of(config, "etcd-updates", &pods(Operation::Update, WITH_METADATA), updates));
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
    let subresources = &["", "status", "finalize"];
    let rules = rules(Operation::Update, ("", "namespaces"), subresources, "Cluster").collect();
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
/// own.
fn scopes(config: &Config, selects_pods: bool) -> Vec<Scoped<'_>> {
    let mut named: Vec<(Option<&Selector>, Vec<&str>)> = Vec::new();
    let mut labeled: Vec<Scoped<'_>> = Vec::new();
    for entry in &config.clusters {
        let pods = selects_pods.then_some(&entry.selector);
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

/// Returns a rule for each subresource. The empty one is the resource itself.
fn rules(
    operation: Operation,
    (group, plural): (&'static str, &'static str),
    subresources: &'static [&'static str],
    scope: &'static str,
) -> impl Iterator<Item = RuleWithOperations> {
    subresources.iter().map(move |subresource| {
        let resource =
            if subresource.is_empty() { plural.to_owned() } else { format!("{plural}/{subresource}") };
        rule(operation.as_str(), group, &resource, scope)
    })
}

fn namespaced(
    operation: Operation,
    group: &'static str,
    plural: &'static str,
    subresources: &'static [&'static str],
) -> impl Iterator<Item = RuleWithOperations> {
    rules(operation, (group, plural), subresources, "Namespaced")
}

fn related_rules(related: Related) -> impl Iterator<Item = RuleWithOperations> {
    let (group, plural, operation, subresources) = related.requests();
    namespaced(operation, group, plural, subresources)
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

/// Matches updates that add or change an owner reference, by which the garbage collector can delete the object.
fn adds_owner() -> MatchCondition {
    let owners = |object: &str| {
        format!(
            "{object}.metadata.?ownerReferences.orValue([]).map(o, [o.apiVersion, o.kind, o.name, o.uid])"
        )
    };
    // A list in a list computes the old owners once. For each new owner again, some hundred owners would exceed the cost limit.
    condition(
        "adds-an-owner",
        format!("[{}].exists(old, {}.exists(n, !(n in old)))", owners("oldObject"), owners("object")),
    )
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
    if !config.clusters.is_empty() {
        permissions.push((config.common_config.namespace.clone(), lease_permission()));
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

/// Returns the permission for the Leases of reservations. Their names contain those of owners, so they are not known. The admission
/// plugin `OwnerReferencesPermissionEnforcement` requires `delete` for an object with an owner.
fn lease_permission() -> Permission {
    Permission::on("coordination.k8s.io", "leases", &["get", "create", "update", "delete"])
}

#[cfg(test)]
mod tests;
