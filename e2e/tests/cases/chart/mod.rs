//! The chart: what it renders, and installations by Helm on a node.

mod audit;
mod cert_manager;
pub(in crate::cases) mod configurations;
pub(in crate::cases) mod environment;
mod guides;
mod hardened;
mod image;
mod installation;
mod karmada;
mod orders;
mod permissions;
mod removal;
pub(in crate::cases) mod rendering;
mod resources;
mod rollouts;
mod upgrade;
