//! The files that users deploy: `deploy/lxcfs` on a node without its own LXCFS, and the output of `durward manifests`.
//!
//! - [`library`], [`process`]: LXCFS itself, its update under running pods and its failures
//! - [`label`], [`device`]: what pods and the scheduler learn of the node, by the label and by the device plugin
//! - [`in_cluster`]: Durward in pods
//! - [`doctor`], [`runbooks`]: the report and the fix for each of these states
//!
//! The area `container_view` tests what containers see, and `opt_in` how pods are changed.

mod device;
mod doctor;
mod environment;
mod in_cluster;
mod label;
mod library;
mod pods;
mod process;
mod removal;
mod runbooks;
