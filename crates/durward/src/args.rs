//! Flags that several commands share.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::ValueEnum;

/// Text for people or JSON for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs; the fields stay as they are.
    Json,
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum LogFormat {
    /// One JSON object a line.
    #[default]
    Json,
    /// For reading along.
    Text,
}

/// Flags that select the log level and the log format.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct LogArgs {
    /// What is logged: error, warn, info, debug, trace, or per part: info,server=debug
    #[arg(long = "log-level", value_name = "FILTER", default_value = "info")]
    pub(crate) level: String,
    /// How it is logged
    #[arg(long = "log-format", value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) format: LogFormat,
}

/// Flags that override the `server` section of the file.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ServerArgs {
    /// Where the API server calls, over TLS; port 0 takes any free one
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// Where /livez, /readyz and /metrics are
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin: Option<SocketAddr>,
    /// Where the log level is changed; loopback only
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) local: Option<SocketAddr>,
    /// The serving certificate, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its key, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
}

/// Selects the cluster or the snapshot that guards read.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ClusterArgs {
    /// The cluster to look at; within a pod its own cluster needs no flag
    #[arg(long, value_name = "FILE", conflicts_with = "world")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Another context of that kubeconfig, or of the file's, than its current one
    #[arg(long, value_name = "NAME", conflicts_with = "world")]
    pub(crate) context: Option<String>,
    /// A world on disk instead of a cluster
    #[arg(id = "world", long = "world", value_name = "DIR")]
    pub(crate) snapshot: Option<PathBuf>,
}
