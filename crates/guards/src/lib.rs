//! The guards of Durward, and the world that they look at.
//!
//! A guard lives in a room of its own: a folder with its configuration, its decision, its page for users and its cases. To add
//! one, add a folder and two lines here: the `mod` and the entry in [`KINDS`]. Route, metric label, configuration section,
//! webhook entries, permissions, command line listing and documentation all come from that list.

pub mod config;
pub mod deletion;
pub mod etcd;
pub mod hands;
pub mod lxcfs;
pub mod world;

mod breakglass;
mod exempt;
mod kind;
mod terms;
mod time;

pub use exempt::{Exempt, Exemption};
pub use kind::{Configured, Kind, Permission};
pub use terms::{Defaults, INSTALL_NAMESPACE, INSTALL_NAMESPACE_KEY, Terms};

/// Every kind of guard there is.
pub static KINDS: &[&dyn Kind] = &[&deletion::Deletion, &lxcfs::Lxcfs, &etcd::Etcd];
