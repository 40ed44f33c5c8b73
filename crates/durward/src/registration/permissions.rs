//! The permissions that Durward needs besides those of its guards. `durward manifests --only rbac` prints them.

use guards::Permission;

use super::names::LEASE;
use crate::file::{File, Manage};

/// Returns the permissions in Durward's namespace of the cluster where it runs.
pub(crate) fn in_home(file: &File) -> Vec<Permission> {
    let mut permissions = Vec::new();
    // A Secret in another cluster needs no permission here.
    if let Some(tls) = file.server.tls.self_managed.as_ref().filter(|tls| tls.access.is_none()) {
        let secret = Permission::on("", "secrets", &["get", "update"]);
        permissions.push(Permission { resource_names: vec![tls.secret.clone()], ..secret });
    }
    if file.server.manage_webhooks == Manage::All {
        let lease = Permission::on("coordination.k8s.io", "leases", &["get", "update"]);
        permissions.push(own_namespace(file));
        permissions.push(Permission { resource_names: vec![LEASE.to_owned()], ..lease });
        // RBAC can't restrict `create` to a name.
        permissions.push(Permission::on("coordination.k8s.io", "leases", &["create"]));
    }
    permissions
}

/// Returns the permission to read Durward's Namespace, whose uid is in owner references.
pub(super) fn own_namespace(file: &File) -> Permission {
    Permission { resource_names: vec![file.namespace.clone()], ..Permission::on("", "namespaces", &["get"]) }
}
