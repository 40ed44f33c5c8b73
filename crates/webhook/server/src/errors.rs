//! Errors at the start: what failed, where, why, and the next step.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use crate::tls::CertificateError;

/// A key of the configuration with an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindAddress {
    /// `server.bindAddress`
    Webhook,
    /// `server.metricsBindAddress`
    Metrics,
}

impl fmt::Display for BindAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Webhook => "server.bindAddress",
            Self::Metrics => "server.metricsBindAddress",
        })
    }
}

/// Error: the server cannot start. Its text is one sentence; the parts are also available alone.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// A socket cannot be opened.
    #[error("{}: {source}; {}", self.what(), self.next())]
    Address {
        /// The key.
        key: BindAddress,
        /// The address.
        address: SocketAddr,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The certificate, its key or the client CA cannot be used.
    #[error("{}: {source}; {}", self.what(), self.next())]
    Certificate {
        /// The error, and the file.
        #[from]
        source: CertificateError,
    },
    /// A setting with which the server could not serve.
    #[error("{}: {}; {}", self.what(), self.why(), self.next())]
    Setting {
        /// Its key in the configuration.
        key: &'static str,
        /// The fault.
        why: String,
    },
}

impl BindError {
    /// Returns what failed.
    pub fn what(&self) -> String {
        match self {
            Self::Address { key, address, .. } => format!("cannot listen on {address} ({key})"),
            Self::Certificate { source } => {
                format!("the serving certificate cannot be used ({})", source.place)
            }
            Self::Setting { key, .. } => format!("{key}: invalid value"),
        }
    }

    /// Returns the reason.
    pub fn why(&self) -> String {
        match self {
            Self::Address { source, .. } => source.to_string(),
            Self::Certificate { source } => source.fault.to_string(),
            Self::Setting { why, .. } => why.clone(),
        }
    }

    /// Returns the next step.
    pub fn next(&self) -> String {
        match self {
            Self::Address { key, source, .. } => match source.kind() {
                io::ErrorKind::AddrInUse => {
                    format!("stop the program that listens there, or set {key} to another port")
                }
                io::ErrorKind::AddrNotAvailable => {
                    format!(
                        "set {key} to an address of this machine, or to 0.0.0.0 or [::] for all addresses"
                    )
                }
                io::ErrorKind::PermissionDenied => {
                    format!("set {key} to a port of at least 1024, or grant CAP_NET_BIND_SERVICE")
                }
                _ => format!("check {key}"),
            },
            Self::Certificate { source } => format!("fix {} and start again", source.place),
            Self::Setting { key, .. } => format!("change {key}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_what_where_why_and_the_next_step() {
        let address = "10.0.0.7:8081".parse().unwrap();
        let source = io::Error::from(io::ErrorKind::AddrInUse);
        let error = BindError::Address { key: BindAddress::Webhook, address, source };
        assert!(error.to_string().starts_with("cannot listen on 10.0.0.7:8081 (server.bindAddress): "));
        assert!(error.to_string().ends_with("or set server.bindAddress to another port"));
    }
}
