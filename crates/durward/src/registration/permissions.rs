//! The permissions that Durward needs besides those of its guards. `durward manifests --only rbac` prints them.

use guards::{NativePolicy, Permission, WebhookType};

use super::names::{BINDING, POLICY, kind, plural};
use super::secret::SECRET;
use crate::file::{File, Manage};

/// The API group of webhook configurations and native policies.
pub(super) const GROUP: &str = "admissionregistration.k8s.io";

/// Returns the permissions in Durward's namespace of the cluster where it runs.
pub(crate) fn in_home(file: &File) -> Vec<Permission> {
    let mut permissions = Vec::new();
    // A Secret in another cluster needs no permission here.
    if file.server.tls.self_managed.as_ref().is_some_and(|tls| tls.access.is_none()) {
        let secret = Permission::on("", "secrets", &["get", "update"]);
        permissions.push(Permission { resource_names: vec![SECRET.to_owned()], ..secret });
    }
    if file.server.manage_webhooks == Manage::All {
        permissions.push(own_namespace(file));
    }
    permissions
}

/// Returns the permission to read Durward's Namespace, whose uid is in owner references.
pub(super) fn own_namespace(file: &File) -> Permission {
    Permission { resource_names: vec![file.namespace.clone()], ..Permission::on("", "namespaces", &["get"]) }
}

/// Returns the permissions on the native policies of these purposes. An API server accepts a policy only from an account that can read
/// all objects of the kind of its params.
pub(super) fn on_policies(purposes: &[&str]) -> Vec<Permission> {
    if purposes.is_empty() {
        return Vec::new();
    }
    let named = |kind: &str, verbs: &[&str]| Permission {
        resource_names: purposes.iter().map(|purpose| NativePolicy::name_of(purpose)).collect(),
        ..Permission::on(GROUP, &plural(kind), verbs)
    };
    vec![
        Permission::on(GROUP, &plural(kind(WebhookType::Validating)), &["get"]),
        named(POLICY, &["get", "create", "patch", "delete"]),
        named(BINDING, &["get", "delete"]),
    ]
}
