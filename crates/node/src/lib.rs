//! Agents that run on each LXCFS node, and the checks that `durward doctor lxcfs` shares with them.
//!
//! The lxcfs guard promises files to pods. [`label`] reports on the Node whether LXCFS serves those files. [`device_plugin`] offers the
//! files to the kubelet as an extended resource. Both [`probe`] the files as a pod would read them, and look at no process. Neither
//! mounts, starts or stops LXCFS.
//!
//! The commands return exit code 0 after SIGTERM or SIGINT, 1 if the label of the Node may be wrong, and bad input as problems. They
//! don't exist on Windows, where `durward doctor lxcfs` reads what the agents of Linux nodes report.
#![cfg_attr(windows, allow(dead_code, reason = "the agents use it"))]

mod annotation;
#[cfg(unix)]
pub mod device_plugin;
#[cfg(unix)]
mod health;
#[cfg(unix)]
pub mod label;
#[cfg(unix)]
mod log;
mod mount;
mod probe;
#[cfg(unix)]
mod runtime;
mod settings;

pub use annotation::NodeAnnotation;
pub use mount::Mount;
pub use probe::{FileState, ProbeResult, Prober};
pub use settings::{NodeConfig, read_settings};
