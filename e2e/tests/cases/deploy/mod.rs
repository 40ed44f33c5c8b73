//! `deploy/lxcfs` on a node without its own LXCFS.
//!
//! - [`process`]: LXCFS itself, its replacement and its failures
//! - [`label`], [`device`]: what pods and the scheduler learn of the node, by the label and by the device plugin
//! - [`doctor`], [`runbooks`]: the report and the fix for each of these states
//!
//! The area `container_view` tests what containers see, `opt_in` how pods are changed, and `chart` Durward in pods.

mod device;
mod doctor;
mod environment;
mod label;
mod pods;
mod process;
mod removal;
mod runbooks;
