//! What runs on nodes beside LXCFS: `lxcfs-device` and `lxcfs-node`. The guard promises files to pods; here is seen to it that
//! the promise holds, node by node, and told where it does not.
//!
//! LXCFS itself is somebody else's program: nothing here mounts, starts or ends it. It is read as a pod would read it ([`probe`]),
//! and told to load its library anew once that is known to be safe ([`library`]).

mod device;
mod library;
mod mount;
mod node;
mod probe;
mod process;
mod report;
mod runtime;
mod settings;
mod tools;
mod watcher;

pub(crate) use device::{Args as DeviceArgs, run as device};
pub(crate) use mount::Mount;
pub(crate) use node::{Args as NodeArgs, run as node};
pub(crate) use probe::{Prober, Seen, Sight};
pub(crate) use process::{PID_FILE, Process, find, is_elsewhere};
pub(crate) use report::Report;
pub(crate) use settings::on_node;
pub(crate) use tools::{lxcfs_version, runc};
