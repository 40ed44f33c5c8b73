//! The end-to-end harness: real etcd, kube-apiserver, controller-manager and kubectl, and Durward between them.
//!
//! ```no_run
//! # fn case(context: &e2e::context::TestContext) -> anyhow::Result<()> {
//! let cluster = context.cluster(&e2e::controlplane::Options::named("plain"))?;
//! let shop = cluster.namespace("shop")?;
//! shop.pod("web").annotated("durward.dev/lxcfs", "enabled").is_admitted()?.without_warnings()?;
//! # Ok(()) }
//! ```
//!
//! [`binaries`] builds the programs once from pinned sources. [`supervisor`] starts them and leaves the host as it was,
//! however the tests end. A failure keeps the logs of all processes.
//!
//! The harness does not know what a guard decides. Cases are in `tests/cases`, and [`installation`] registers Durward with
//! the output of `durward manifests`.

pub mod api;
pub mod audit;
pub mod binaries;
pub mod browser;
pub mod cert_manager;
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
pub mod helm;
pub mod image;
pub mod installation;
pub mod kubectl;
pub mod lanes;
pub mod local_cluster;
pub mod metrics;
pub mod namespace;
pub mod node;
pub mod parts;
pub mod plain_http;
pub mod pods;
pub mod ports;
pub mod prelude;
pub mod pressure;
pub mod registry;
pub mod report;
pub mod service;
pub mod supervisor;
pub mod third_party;
pub mod wait;

pub use e2e_macros::case;
