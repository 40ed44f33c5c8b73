//! What Durward's own account may do: the union of what the guards that are on ask for.

use guards::Permission;
use guards::config::Problem;
use serde::Serialize;

use super::{Metadata, NAME, tree};
use crate::documents::Tree;
use crate::file::File;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Account {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ClusterRole {
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

#[derive(Debug, Serialize)]
struct Subject {
    kind: &'static str,
    name: &'static str,
    namespace: String,
}

const RBAC: &str = "rbac.authorization.k8s.io";
const RBAC_V1: &str = "rbac.authorization.k8s.io/v1";

/// The account, its role and the binding of both.
pub(super) fn objects(file: &File) -> Result<Vec<Tree>, Problem> {
    let namespace = file.home.as_str();
    let mut rules: Vec<Permission> = Vec::new();
    for permission in file.guards.iter().flat_map(|guard| guard.configured.permissions()) {
        if !rules.contains(&permission) {
            rules.push(permission);
        }
    }
    let account =
        Account { api_version: "v1", kind: "ServiceAccount", metadata: Metadata::named(Some(namespace)) };
    let role =
        ClusterRole { api_version: RBAC_V1, kind: "ClusterRole", metadata: Metadata::named(None), rules };
    let binding = Binding {
        api_version: RBAC_V1,
        kind: "ClusterRoleBinding",
        metadata: Metadata::named(None),
        role_ref: Reference { api_group: RBAC, kind: "ClusterRole", name: NAME },
        subjects: vec![Subject { kind: "ServiceAccount", name: NAME, namespace: namespace.to_owned() }],
    };
    Ok(vec![tree(&account)?, tree(&role)?, tree(&binding)?])
}
