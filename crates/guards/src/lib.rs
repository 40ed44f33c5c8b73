//! The guards of Durward.
//!
//! A guard lives in one directory with its configuration, its decision, its page for users and its cases. To add one, add a
//! directory and two lines here: the `mod` and the entry in [`GUARD_KINDS`]. Route, metric label, configuration section,
//! webhook entries, permissions, command line listing and documentation all come from that list.

pub mod deletion;
pub mod etcd;
pub mod lxcfs;

mod common;
mod exempt;
mod kind;
mod overrides;
mod webhook;

pub use common::{CommonConfig, Defaults, INSTALL_NAMESPACE, INSTALL_NAMESPACE_KEY};
pub use exempt::{Exempt, Exemption};
pub use kind::{Configured, GuardKind, Permission, Permissions, Requirements};
pub use webhook::{FailurePolicy, WebhookEntry, WebhookType};

/// All kinds of guards.
pub static GUARD_KINDS: &[&dyn GuardKind] = &[&deletion::Deletion, &lxcfs::Lxcfs, &etcd::Etcd];
