//! Roles and bindings: the union of the guards' permissions, on the local cluster and on member clusters.

use cluster::fleet::Fleet;
use config::Problem;
use guards::Permission;
use serde::Serialize;
use serde_json::Value;

use super::api_servers::ApiServer;
use super::{Metadata, NAME, tree};

/// The name of objects for member clusters. On Karmada they are templates in addition to the objects of the control plane.
const MEMBER: &str = "durward-member";

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Account {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata,
}

/// A Role or a `ClusterRole`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Role {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata,
    rules: Vec<Permission>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Binding {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata,
    role_ref: Reference,
    subjects: Vec<Subject>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Reference {
    api_group: &'static str,
    kind: &'static str,
    name: &'static str,
}

/// The subject of a binding.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Subject {
    #[serde(skip_serializing_if = "Option::is_none")]
    api_group: Option<&'static str>,
    kind: &'static str,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
}

/// A `ClusterPropagationPolicy`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Propagation {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata,
    spec: PropagationSpec,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PropagationSpec {
    resource_selectors: Vec<Selected>,
    conflict_resolution: &'static str,
    placement: Placement,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Selected {
    api_version: &'static str,
    kind: &'static str,
    name: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Placement {
    cluster_tolerations: Vec<Toleration>,
}

#[derive(Debug, Serialize)]
struct Toleration {
    operator: &'static str,
}

const RBAC: &str = "rbac.authorization.k8s.io";
const RBAC_V1: &str = "rbac.authorization.k8s.io/v1";

/// Returns the objects for an API server: service account, roles and bindings. `home` is the namespace of Durward.
pub(super) fn objects(api_server: &ApiServer<'_>, home: &str) -> Result<Vec<Value>, Problem> {
    let mut objects = Vec::new();
    if !api_server.is_karmada() {
        objects.push(tree(&account(home))?);
    }
    let subject = subject(api_server.user.as_deref(), home);
    let rules = union(api_server.guards.iter().flat_map(|guard| guard.configured.permissions().own));
    objects.extend(granted(NAME, None, rules, &subject)?);
    let mut within: Vec<(String, Vec<Permission>)> = Vec::new();
    let namespaced = api_server.guards.iter().flat_map(|guard| guard.configured.permissions().namespaced);
    for (namespace, permission) in namespaced {
        match within.iter_mut().find(|(known, _)| *known == namespace) {
            Some((_, rules)) if rules.contains(&permission) => {}
            Some((_, rules)) => rules.push(permission),
            None => within.push((namespace, vec![permission])),
        }
    }
    for (namespace, rules) in within {
        objects.extend(granted(NAME, Some(&namespace), rules, &subject)?);
    }
    Ok(objects)
}

/// Returns the objects for member clusters. Karmada propagates them from the control plane, also to clusters that join later.
pub(super) fn in_members(api_server: &ApiServer<'_>, home: &str) -> Result<Vec<Value>, Problem> {
    let looking = |guard: &&&_| has_fleet(guard);
    let rules = union(
        api_server.guards.iter().filter(looking).flat_map(|guard| guard.configured.permissions().members),
    );
    let mut objects = Vec::new();
    if !api_server.is_karmada() {
        objects.push(tree(&account(home))?);
    }
    objects.extend(granted(MEMBER, None, rules, &subject(api_server.user.as_deref(), home))?);
    if api_server.is_karmada() {
        objects.push(tree(&propagation())?);
    }
    Ok(objects)
}

fn has_fleet(guard: &crate::file::Guarded) -> bool {
    guard.configured.requirements().probes.is_some_and(|probes| probes.fleet != Fleet::None)
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

/// Returns the service account of Durward.
pub(super) fn service_account(home: &str) -> Result<Value, Problem> {
    tree(&account(home))
}

fn account(home: &str) -> Account {
    Account { api_version: "v1", kind: "ServiceAccount", metadata: Metadata::named(NAME, Some(home)) }
}

/// Returns the user, if there is one, or else the service account.
fn subject(user: Option<&str>, home: &str) -> Subject {
    match user {
        Some(user) => Subject { api_group: Some(RBAC), kind: "User", name: user.to_owned(), namespace: None },
        None => Subject {
            api_group: None,
            kind: "ServiceAccount",
            name: NAME.to_owned(),
            namespace: Some(home.to_owned()),
        },
    }
}

/// Returns a role and its binding, in one namespace or cluster-wide.
fn granted(
    name: &'static str,
    namespace: Option<&str>,
    rules: Vec<Permission>,
    subject: &Subject,
) -> Result<[Value; 2], Problem> {
    let (role_kind, binding_kind) = match namespace {
        Some(_) => ("Role", "RoleBinding"),
        None => ("ClusterRole", "ClusterRoleBinding"),
    };
    let metadata = || Metadata::named(name, namespace);
    let role = Role { api_version: RBAC_V1, kind: role_kind, metadata: metadata(), rules };
    let binding = Binding {
        api_version: RBAC_V1,
        kind: binding_kind,
        metadata: metadata(),
        role_ref: Reference { api_group: RBAC, kind: role_kind, name },
        subjects: vec![subject.clone()],
    };
    Ok([tree(&role)?, tree(&binding)?])
}

/// Returns the policy for all member clusters. It has no affinity and tolerates all taints, because tainted clusters are in the
/// fleet too. It takes over objects that were applied by hand.
fn propagation() -> Propagation {
    let selected = |kind| Selected { api_version: RBAC_V1, kind, name: MEMBER };
    Propagation {
        api_version: "policy.karmada.io/v1alpha1",
        kind: "ClusterPropagationPolicy",
        metadata: Metadata::named(MEMBER, None),
        spec: PropagationSpec {
            resource_selectors: vec![selected("ClusterRole"), selected("ClusterRoleBinding")],
            conflict_resolution: "Overwrite",
            placement: Placement { cluster_tolerations: vec![Toleration { operator: "Exists" }] },
        },
    }
}
