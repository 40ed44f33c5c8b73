//! The deletion guard on a real Karmada fleet: two members that are pushed to, one that pulls.
//!
//! One Durward stands on the control plane for the whole run ([`house`]), registered and permitted by what
//! `durward manifests` prints and nothing else. Most cases stand beside each other in it, each with namespaces
//! and definitions that no other has. Those that freeze, stop or reconfigure something have the fleet alone,
//! and what they did is undone when they let go, whatever way they end.
//!
//! A case that ends with an allowed deletion looks into the members afterwards: an allow is right only if what
//! was told beforehand is what happens.

pub(crate) mod acknowledged;
pub(crate) mod all;
pub(crate) mod commands;
pub(crate) mod configured;
pub(crate) mod definitions;
pub(crate) mod faults;
pub(crate) mod glass;
pub(crate) mod kept;
pub(crate) mod members;
pub(crate) mod namespaces;
pub(crate) mod permissions;
pub(crate) mod replicas;
pub(crate) mod soak;

mod attempt;
mod house;
mod objects;
