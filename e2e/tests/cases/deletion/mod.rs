//! The deletion guard on a real Karmada fleet with two push members and one pull member.
//!
//! One Durward guards the control plane for the whole run, with exactly the webhooks and permissions that
//! `durward manifests` prints. Most cases share it and use their own namespaces and CRDs. A case that freezes, stops
//! or reconfigures something has the fleet for itself, and its changes are undone on drop.
//!
//! A case that ends with an allowed deletion checks the members afterwards: the verdict must match the result.

mod acknowledgement;
mod commands;
pub(in crate::cases) mod configuration;
mod crds;
mod delete_all;
mod environment;
mod faults;
mod in_use;
mod members;
mod memory;
mod namespaces;
pub(in crate::cases) mod objects;
mod overrides;
mod permissions;
mod replicas;
mod retained;
mod soak;
