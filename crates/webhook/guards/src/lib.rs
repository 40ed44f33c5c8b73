//! The guards of Durward.
//!
//! A guard is one directory with its configuration, facts, decision and messages. To add a guard, add a directory and two lines
//! here: the `mod` and the entry in [`GUARD_KINDS`]. Route, metric label, configuration section, webhook entries, permissions,
//! command line and documentation are derived from that list.

pub mod deletion;
pub mod etcd;
pub mod lxcfs;
pub mod resources;

mod cel;
mod common;
mod exempt;
mod identity;
mod install_namespace;
mod kind;
#[cfg(test)]
mod match_conditions;
mod memory;
mod message;
mod native_policy;
pub mod overrides;
mod webhook;

pub use common::{CommonConfig, Defaults, FailurePolicy, NAMESPACE, NAMESPACE_NAME, Remark, label_keys};
pub use exempt::Exempt;
pub use install_namespace::PURPOSE as INSTALL_NAMESPACE;
pub use kind::{
    Configured, GuardKind, GuardedNamespaces, GuardedObjects, Permission, Permissions, Requirements,
};
pub use message::{lines_without_override, reason_on_one_line, without_steps};
pub use native_policy::{MANAGED_BY, NativePolicy, PURPOSES, purposes_of};
pub use webhook::{WebhookEntry, WebhookType, rule_names};

/// All guards.
pub static GUARD_KINDS: &[&dyn GuardKind] =
    &[&deletion::Deletion, &lxcfs::Lxcfs, &etcd::Etcd, &resources::Resources];
