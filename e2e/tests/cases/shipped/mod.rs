//! What Durward ships: `deploy/lxcfs` on a node that has no LXCFS of its own, and what `durward manifests` prints of
//! Durward itself.
//!
//! - [`library`], [`process`]: LXCFS itself; what changes under running pods and what ends them
//! - [`label`], [`device`]: what pods and the scheduler are told of the node, by the Node's label and by the
//!   kubelet's device
//! - [`in_pods`]: Durward itself, in pods
//! - [`doctor`]: that each state of these is told with its cure
//!
//! What containers see once all of it serves is the room `seen`'s; how pods are changed is `asking`'s and its
//! neighbours'.

pub(crate) mod device;
pub(crate) mod doctor;
pub(crate) mod in_pods;
pub(crate) mod label;
pub(crate) mod library;
pub(crate) mod process;

mod house;
mod pods;
mod taken;
