//! The door itself: HTTP/1.1 over TLS, limits, deadlines, drain, readiness, numbers.
//!
//! It knows no guard by name, no cluster and no configuration file: what is served is a [`Plan`] of `dyn Guard`s, how it is
//! served are [`Settings`]. The way of a review, and where each failure leaves, is `pipeline`.
//!
//! The facts it rests on are those of kube-apiserver's webhook client: HTTP/1.1 only, `?timeout=` rounded up to a second, the
//! text of an error shown to the person if it is `text/*`, 503 with `Retry-After` tried again, redirects followed (so none is
//! ever sent), idle connections kept for 90 s.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use server::{CertificateFiles, CertificateSource, Checks, Metrics, Plan, PlanCell, Server, Settings, Shutdown, TlsSettings};
//!
//! let metrics = Metrics::new("1.0.0");
//! let plan = PlanCell::new(Plan::new(1, vec![], &metrics)?);
//! let files = CertificateFiles { cert: "tls.crt".into(), key: "tls.key".into() };
//! let settings = Settings {
//!     listen: "0.0.0.0:8443".parse()?,
//!     admin: "0.0.0.0:8080".parse()?,
//!     local: None,
//!     tls: TlsSettings::new(CertificateSource::Files(files)),
//!     limits: Default::default(),
//!     timeouts: Default::default(),
//!     drain: Default::default(),
//! };
//! let bound = Server::bind(settings, plan, metrics, Checks::new(), None).await?;
//! println!("serving on {}", bound.addresses().listen);
//! let stopped = bound.serve(Shutdown::on_signals()?).await;
//! # Ok(()) }
//! ```

mod admin;
mod beside;
mod body;
mod caught;
mod checks;
mod connection;
mod deadline;
mod drain;
mod errors;
mod file;
mod house;
mod limits;
mod listener;
mod metrics;
mod pipeline;
mod plan;
mod server;
mod settings;
mod shortened;
mod shutdown;
mod socket;
mod tls;

pub use beside::keep_running;
pub use checks::{Check, Checks, Readiness};
pub use errors::{BindError, Port};
pub use file::{FileFault, look_at_file, read_file, read_within};
pub use metrics::Metrics;
pub use plan::{Plan, PlanCell, PlanError};
pub use server::{Addresses, Bound, LogControl, Server};
pub use settings::{
    CertificateFiles, CertificatePem, CertificateSource, ClientCertificates, Drain, Limits, Settings,
    Timeouts, TlsSettings, TlsVersion, UnknownTlsVersion,
};
pub use shutdown::{Shutdown, Stop, Stopped};
pub use tls::{Certificate, CertificateError, CertificateFault};
