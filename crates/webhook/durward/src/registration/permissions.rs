//! The permissions that Durward needs: those of its guards, those to create Events, and those for its own objects. `durward manifests --only rbac` prints them.

use guards::{GuardedNamespaces, NativePolicy, Permission, Permissions, WebhookType};

use super::names::{BINDING, POLICY, kind, plural};
use super::secret::SECRET;
use crate::file::{File, Guarded, Manage};

/// The API group of webhook configurations and native policies.
pub(super) const GROUP: &str = "admissionregistration.k8s.io";

/// The namespace of Events about cluster-wide objects.
pub(crate) const EVENTS_OF_CLUSTER: &str = "default";

/// Returns the permissions of a guard, and those to create Events about the objects that it protects.
pub(crate) fn of_guard(file: &File, guard: &Guarded) -> Permissions {
    let mut all = guard.configured.permissions();
    if !file.events {
        return all;
    }
    let create = Permission::on("events.k8s.io", "events", &["create"]);
    for objects in guard.configured.requirements().guarded {
        let namespace = match objects.namespaces {
            GuardedNamespaces::None => EVENTS_OF_CLUSTER.to_owned(),
            GuardedNamespaces::Named(namespace) => namespace,
            GuardedNamespaces::All | GuardedNamespaces::Labeled(_) => {
                all.own.extend((!all.own.contains(&create)).then(|| create.clone()));
                continue;
            }
        };
        let pair = (namespace, create.clone());
        all.namespaced.extend((!all.namespaced.contains(&pair)).then_some(pair));
    }
    all
}

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
