//! Roles and bindings: the union of the guards' permissions, on the local cluster and on member clusters.

use cluster::fleet::Fleet;
use guards::Permission;
use serde_json::{Value, json};

use super::metadata::metadata;
use crate::file::{File, Guarded, NAME};
use crate::registration::api_servers::GuardedServer;
use crate::registration::permissions;

/// The name of objects for member clusters. On Karmada they are templates in addition to the objects of the control plane.
const MEMBER: &str = "durward-member";

const RBAC: &str = "rbac.authorization.k8s.io";
const RBAC_V1: &str = "rbac.authorization.k8s.io/v1";

/// Returns the objects for an API server: service account, roles and bindings.
pub(super) fn objects(api_server: &GuardedServer<'_>, file: &File) -> Vec<Value> {
    let home = file.namespace.as_str();
    let mut objects = Vec::new();
    if !api_server.is_karmada() {
        objects.extend(service_account(home));
    }
    let subject = subject(api_server.user.as_deref(), home);
    let guards = api_server.guards.iter().flat_map(|guard| permissions::of_guard(file, guard).own);
    let rules = union(guards.chain(api_server.webhook_permissions(file)));
    if !rules.is_empty() {
        objects.extend(granted(NAME, None, &rules, &subject));
    }
    let mut within: Vec<(String, Vec<Permission>)> = Vec::new();
    let namespaced = api_server.guards.iter().flat_map(|guard| permissions::of_guard(file, guard).namespaced);
    let in_home = permissions::in_home(file).into_iter().filter(|_| !api_server.is_karmada());
    for (namespace, permission) in namespaced.chain(in_home.map(|one| (home.to_owned(), one))) {
        match within.iter_mut().find(|(known, _)| *known == namespace) {
            Some((_, rules)) if rules.contains(&permission) => {}
            Some((_, rules)) => rules.push(permission),
            None => within.push((namespace, vec![permission])),
        }
    }
    objects
        .extend(within.iter().flat_map(|(namespace, rules)| granted(NAME, Some(namespace), rules, &subject)));
    objects
}

/// Returns the objects for member clusters. Karmada propagates them from the control plane, also to clusters that join later.
pub(super) fn in_members(api_server: &GuardedServer<'_>, home: &str) -> Vec<Value> {
    let guards = api_server.guards.iter().filter(|guard| has_fleet(guard));
    let rules = union(guards.flat_map(|guard| guard.configured.permissions().members));
    let granted = granted(MEMBER, None, &rules, &subject(api_server.user.as_deref(), home));
    if api_server.is_karmada() {
        granted.into_iter().chain([propagation()]).collect()
    } else {
        service_account(home).into_iter().chain(granted).collect()
    }
}

fn has_fleet(guard: &Guarded) -> bool {
    guard.configured.requirements().probes.is_some_and(|fleet| fleet != Fleet::None)
}

fn union(all: impl Iterator<Item = Permission>) -> Vec<Permission> {
    let mut rules: Vec<Permission> = Vec::new();
    for permission in all {
        if !rules.contains(&permission) {
            rules.push(permission);
        }
    }
    rules
}

/// Returns the service account of Durward. Without a namespace Durward does not run in the cluster, and is a user.
fn service_account(home: &str) -> Option<Value> {
    let metadata = metadata(NAME, Some(home));
    (!home.is_empty()).then(|| json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}))
}

/// Returns the user, if there is one, or else the service account.
fn subject(user: Option<&str>, home: &str) -> Value {
    let user = user.or_else(|| home.is_empty().then_some(NAME));
    match user {
        Some(user) => json!({"apiGroup": RBAC, "kind": "User", "name": user}),
        None => json!({"kind": "ServiceAccount", "name": NAME, "namespace": home}),
    }
}

/// Returns a role and its binding, in one namespace or cluster-wide.
fn granted(name: &str, namespace: Option<&str>, rules: &[Permission], subject: &Value) -> [Value; 2] {
    let (role, binding) = match namespace {
        Some(_) => ("Role", "RoleBinding"),
        None => ("ClusterRole", "ClusterRoleBinding"),
    };
    let metadata = metadata(name, namespace);
    [
        json!({"apiVersion": RBAC_V1, "kind": role, "metadata": metadata, "rules": rules}),
        json!({
            "apiVersion": RBAC_V1,
            "kind": binding,
            "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": role, "name": name},
            "subjects": [subject],
        }),
    ]
}

/// Returns the policy for all member clusters. It has no affinity and tolerates all taints, because tainted clusters are in the
/// fleet too. It takes over objects that were applied by hand.
fn propagation() -> Value {
    let selected = |kind| json!({"apiVersion": RBAC_V1, "kind": kind, "name": MEMBER});
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "ClusterPropagationPolicy",
        "metadata": metadata(MEMBER, None),
        "spec": {
            "resourceSelectors": [selected("ClusterRole"), selected("ClusterRoleBinding")],
            "conflictResolution": "Overwrite",
            "placement": {"clusterTolerations": [{"operator": "Exists"}]},
        },
    })
}
