//! An HTTPS server for admission webhooks: HTTP/1.1 over TLS, limits, deadlines, drain, readiness, metrics.
//!
//! The server knows no guard by name, no cluster and no configuration file. A [`Plan`] has the guards, [`Settings`] have the
//! options. The path of a review, with the status of each failure, is in `pipeline`.
//!
//! Facts about the webhook client of kube-apiserver: it speaks HTTP/1.1 only and rounds `?timeout=` up to a second. It shows
//! the text of an error to the user if it is `text/*`, and retries 503 with `Retry-After`. It follows redirects (the server
//! sends none), and keeps idle connections for 90 s.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use server::{CertificateFiles, CertificateSource, Checks, Metrics, Plan, PlanCell, Server, ServerOptions, Settings,
//!     Shutdown, TlsSettings};
//!
//! let metrics = Metrics::new("1.0.0");
//! let plan = PlanCell::new(Plan::new(1, vec![], &metrics)?);
//! let files = CertificateFiles { cert: "tls.crt".into(), key: "tls.key".into() };
//! let settings = Settings::new(ServerOptions {
//!     bind_address: "0.0.0.0:8443".parse()?,
//!     metrics_bind_address: "0.0.0.0:8080".parse()?,
//!     tls: TlsSettings::new(CertificateSource::Files(files)),
//!     limits: Default::default(),
//!     timeouts: Default::default(),
//!     shutdown: Default::default(),
//! })?;
//! let bound = Server::bind(settings, plan, metrics, Checks::new())?;
//! println!("serving on {}", bound.addresses().webhook);
//! let stopped = bound.serve(Shutdown::on_signals()?).await;
//! # Ok(()) }
//! ```

mod admin;
mod body;
mod cause;
mod checks;
mod connection;
mod connection_limit;
mod connection_state;
mod deadline;
mod drain;
mod errors;
mod issued;
mod listener;
mod metrics;
mod pipeline;
mod plan;
mod server;
mod settings;
mod shutdown;
mod socket;
mod supervisor;
mod text;
mod tls;

pub use checks::{Check, Checks, ChecksReport};
pub use errors::{BindAddress, BindError};
pub use issued::{CertificatePem, Issued, IssuedCertificate, IssuedCertificates};
pub use metrics::{MetricInfo, Metrics};
pub use plan::{Plan, PlanCell, PlanError};
pub use server::{Addresses, Bound, Server, Settings};
pub use settings::{
    AllowedNames, CertificateFiles, CertificateSource, ClientAuth, Limits, ServerOptions, ShutdownTimes,
    Timeouts, TlsSettings, TlsVersion, UnknownTlsVersion,
};
pub use shutdown::{Shutdown, ShutdownHandle, Stopped};
pub use supervisor::supervise;
pub use tls::{Certificate, CertificateError, CertificateFault};
