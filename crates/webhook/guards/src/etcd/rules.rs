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

use ::config::all_of;
use cluster::Resource;
use k8s_openapi::api::admissionregistration::v1::{MatchCondition, RuleWithOperations};

use super::NAME;
use super::config::{Config, EtcdClusterConfig, NamespaceMatch, OwnerKind};
use super::kube_reader::{PODS, PVCS, STATEFUL_SETS};
use crate::cel;
use crate::common::NAMESPACE_NAME;
use crate::kind::{GuardedNamespaces, GuardedObjects, Permission};
use crate::overrides;
use crate::webhook::{WebhookEntry, WebhookType, condition, rule};
use ::config::{Expression, Selector};

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
    let deletion = rule("DELETE", "", "pods", "Namespaced");
    let eviction = rule("CREATE", "", "pods/eviction", "Namespaced");
    // An eviction has no labels of the pod.
    entries_of(config, "etcd-pods", deletion, scopes(config, true), &deletions)
        .chain(entries_of(config, "etcd-evictions", eviction, scopes(config, false), &[]))
        .collect()
}

/// Returns one entry per scope. The first has the plain name, the second ends in `-2`.
fn entries_of<'c>(
    config: &'c Config,
    name: &'c str,
    rule: RuleWithOperations,
    scopes: Vec<Scoped<'c>>,
    conditions: &[MatchCondition],
) -> impl Iterator<Item = WebhookEntry> {
    let common = &config.common_config;
    scopes.into_iter().enumerate().map(move |(at, scope)| {
        let name = if at == 0 { name.to_owned() } else { format!("{name}-{}", at + 1) };
        WebhookEntry {
            match_conditions: conditions.iter().cloned().chain(not_install_namespace(config)).collect(),
            namespace_selector: all_of(scope.namespaces.into_iter().chain(common.namespace_selector.clone())),
            object_selector: scope.pods.cloned().unwrap_or_default(),
            has_side_effects: true,
            ..WebhookEntry::new(WebhookType::Validating, name, vec![rule.clone()], common)
        }
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
    let user = cel::string("system:serviceaccount:kube-system:namespace-controller");
    condition("not-the-namespace-controller", format!("request.userInfo.username != {user}"))
}

fn not_install_namespace(config: &Config) -> Option<MatchCondition> {
    let name = config.common_config.namespace.as_str();
    (!name.is_empty()).then(|| {
        condition("not-the-install-namespace", format!("request.namespace != {}", cel::string(name)))
    })
}

/// Returns the objects that the guard protects.
pub(super) fn guarded(config: &Config) -> Vec<GuardedObjects> {
    let mut all = Vec::new();
    for entry in &config.clusters {
        let namespaces = match &entry.namespaces {
            NamespaceMatch::Named(name) => GuardedNamespaces::Named(name.clone()),
            NamespaceMatch::Labeled(selector) => GuardedNamespaces::Labeled(selector.clone()),
        };
        for resource in guarded_resources(config) {
            let objects =
                GuardedObjects { resource, namespaces: namespaces.clone(), overrides: config.overrides };
            if !all.contains(&objects) {
                all.push(objects);
            }
        }
    }
    all
}

/// Returns the kinds of objects that the guard or one of its policies protects.
fn guarded_resources(config: &Config) -> Vec<Resource> {
    let of_sets = if config.protect_stateful_sets { &[STATEFUL_SETS, PVCS][..] } else { &[] };
    [&[PODS][..], of_sets].concat()
}

/// Returns the permissions for the reads of one etcd cluster. The doctor lists sets and PVCs with overrides.
fn permissions_of(config: &Config, entry: &EtcdClusterConfig) -> Vec<Permission> {
    let has_sets = config.protect_stateful_sets;
    let of_sets: &[&str] = if has_sets { &["get", "list"] } else { &["get"] };
    let mut permissions =
        vec![Permission::on("", "pods", &["get", "list"]), Permission::on("apps", "statefulsets", of_sets)];
    permissions.extend(has_sets.then(|| Permission::on("", "persistentvolumeclaims", &["list"])));
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
