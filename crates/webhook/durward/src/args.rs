//! Flags that several commands share.

use std::net::SocketAddr;
use std::path::PathBuf;

use logging::LogFormat;

/// Flags that select the log level and the log format.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct LogArgs {
    /// Log filter, until the file's changes [default: the file's `log`]
    #[arg(long = "log-level", value_name = "FILTER")]
    pub(crate) level: Option<String>,
    /// Log format
    #[arg(long = "log-format", value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) format: LogFormat,
}

/// Flags that override the `server` section of the file.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ServerArgs {
    /// Address for the API server (TLS); port 0 selects a free port
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) bind_address: Option<SocketAddr>,
    /// Address of /livez, /readyz and /metrics
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics_bind_address: Option<SocketAddr>,
    /// Serving certificate, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Key of the certificate, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
}

/// Selects the cluster or the snapshot that guards read.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ClusterArgs {
    /// Kubeconfig of the cluster [default: as kubectl, or the pod's]
    #[arg(long, value_name = "FILE", conflicts_with = "snapshot")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME", conflicts_with = "snapshot")]
    pub(crate) context: Option<String>,
    /// Snapshot to read instead of a cluster
    #[arg(long, value_name = "DIR")]
    pub(crate) snapshot: Option<PathBuf>,
}
