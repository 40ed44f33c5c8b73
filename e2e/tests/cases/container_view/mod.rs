//! The view of programs in a container, from the opt-in of a pod to the numbers that they print.
//!
//! The node's own LXCFS serves the files (version 5.0.3 with `--enable-cfs`). One Durward runs next to the node and is called
//! by URL ([`environment`]). The cases test the promises of the guard's page, and the limits of LXCFS that it describes. If a
//! case fails because LXCFS can do more now, the page has to change.

mod containers;
mod environment;
mod fields;
mod lxcfs_down;
mod opt_in;
mod skips;
mod view;
mod workloads;
