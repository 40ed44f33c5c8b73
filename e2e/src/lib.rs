//! The end-to-end harness: real etcd, real kube-apiserver, real controller-manager, real kubectl, and Durward
//! between them.
//!
//! A test reads as a sentence and knows no port, no certificate and no process:
//!
//! ```no_run
//! # fn case(context: &e2e::context::TestContext) -> anyhow::Result<()> {
//! let cluster = context.cluster(&e2e::controlplane::Options::named("plain"))?;
//! let shop = cluster.namespace("shop")?;
//! shop.pod("web").annotated("durward.dev/lxcfs", "enabled").is_admitted()?.without_warnings()?;
//! # Ok(()) }
//! ```
//!
//! What it takes care of: the parts are built once from pinned sources ([`parts`]), every process is started
//! by a supervisor that ends it whatever happens to the test ([`supervisor`]), and a failure leaves the log of every
//! part behind.
//!
//! What it leaves to others: nothing here knows what a guard decides. Cases live in `tests/cases`, and
//! Durward is registered with exactly what `durward manifests` prints ([`installation`]).

pub mod api;
pub mod binaries;
pub mod certificates;
pub mod console;
pub mod context;
pub mod controlplane;
pub mod daemon;
pub mod durward;
pub mod etcd_cluster;
pub mod fault;
pub mod fixture;
pub mod fleet;
pub mod image;
pub mod installation;
pub mod kubectl;
pub mod local_cluster;
pub mod metrics;
pub mod namespace;
pub mod node;
pub mod plain_http;
pub mod pods;
pub mod ports;
pub mod prelude;
pub mod registry;
pub mod service;
pub mod supervisor;
pub mod third_party;
pub mod wait;

pub use e2e_macros::case;
