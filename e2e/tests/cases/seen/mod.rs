//! What containers see: from the word on a pod to the figures that programs print in it.
//!
//! The node's own LXCFS serves (version 5.0.3, with `--enable-cfs`), and one Durward stands beside the node, by URL
//! ([`house`]). Most cases stand beside each other; those that take LXCFS away have the node to themselves. What
//! the guard's page promises of what a container sees, and what it says that LXCFS cannot do, is held to be true
//! here: a case that fails because LXCFS has learnt something new is a reason to change the page.

pub(crate) mod asked;
pub(crate) mod away;
pub(crate) mod containers;
pub(crate) mod fields;
pub(crate) mod left;

pub(crate) mod workloads;

mod house;
mod sight;
