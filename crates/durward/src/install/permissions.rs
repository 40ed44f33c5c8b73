//! The permissions that Durward needs besides those of its guards. `durward manifests --only rbac` prints them.

use guards::Permission;

use super::webhooks::{LEASE, NAME, WEBHOOK_TYPES, plural};
use crate::file::{File, Manage};
use crate::manifests::ApiServer;

/// Returns the permissions in an API server that calls guards: on the kinds of webhook configurations that these guards need.
pub(crate) fn for_webhooks(file: &File, api_server: &ApiServer<'_>) -> Vec<Permission> {
    let manage = file.server.manage_webhooks;
    let verbs: &[&str] = match manage {
        Manage::None if file.server.tls.self_managed.is_none() => return Vec::new(),
        // A replica signs with a CA only after it has read it in every caBundle.
        Manage::None => &["get"],
        Manage::CaBundle | Manage::All => &["get", "patch"],
    };
    let needed = WEBHOOK_TYPES.into_iter().filter(|webhook_type| api_server.needs(*webhook_type));
    let resources: Vec<String> = needed.map(plural).collect();
    if resources.is_empty() {
        return Vec::new();
    }
    let configurations = Permission {
        resources,
        resource_names: vec![NAME.to_owned()],
        ..Permission::on("admissionregistration.k8s.io", "", verbs)
    };
    // In its own cluster, Durward can read its Namespace by a Role.
    let namespace = (manage == Manage::All && api_server.is_karmada()).then(|| own_namespace(file));
    std::iter::once(configurations).chain(namespace).collect()
}

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
fn own_namespace(file: &File) -> Permission {
    Permission { resource_names: vec![file.namespace.clone()], ..Permission::on("", "namespaces", &["get"]) }
}
