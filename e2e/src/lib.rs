//! The end-to-end harness: real etcd, real kube-apiserver, real controller-manager, real kubectl, and Durward
//! between them.
//!
//! A test reads as a sentence and knows no port, no certificate and no process:
//!
//! ```no_run
//! # fn case(stage: &e2e::stage::Stage) -> anyhow::Result<()> {
//! let cluster = stage.cluster(&e2e::controlplane::Options::named("plain"))?;
//! let shop = cluster.namespace("shop")?;
//! shop.pod("web").annotated("durward.dev/lxcfs", "enabled").is_admitted()?.without_warnings()?;
//! # Ok(()) }
//! ```
//!
//! What it takes care of: the parts are built once from pinned sources ([`parts`]), every process is started
//! by a keeper that ends it whatever happens to the test ([`keeper`]), and a failure leaves the log of every
//! part behind.
//!
//! What it leaves to others: nothing here knows what a guard decides. Cases live in `tests/cases`, and
//! Durward is registered with exactly what `durward manifests` prints ([`installation`]).

pub mod api;
pub mod certificates;
pub mod controlplane;
pub mod daemon;
pub mod durward;
pub mod ensemble;
pub mod fault;
pub mod fleet;
pub mod foreign;
pub mod image;
pub mod installation;
pub mod keeper;
pub mod kubectl;
pub mod metrics;
pub mod namespace;
pub mod node;
pub mod parts;
pub mod patience;
pub mod pods;
pub mod ports;
pub mod service;
pub mod sharing;
pub mod stage;
pub mod standing;
pub mod web;
pub mod words;
