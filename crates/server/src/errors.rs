//! Why a server cannot start: what, where, why, and what to do next.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use crate::tls::CertificateError;

/// One of the server's sockets, by its key in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// `server.listen`
    Listen,
    /// `server.admin`
    Admin,
    /// `server.local`
    Local,
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Listen => "server.listen",
            Self::Admin => "server.admin",
            Self::Local => "server.local",
        })
    }
}

/// Why a server cannot start. As text it is one sentence with everything in it; the parts can be had alone.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// A socket cannot be opened.
    #[error("{}: {source}; {}", self.what(), self.next())]
    Address {
        /// Which one.
        port: Port,
        /// Where.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The local port is reachable from elsewhere.
    #[error("{}: {}; {}", self.what(), self.why(), self.next())]
    NotLoopback {
        /// Where.
        address: SocketAddr,
    },
    /// The certificate, its key or the authorities of callers cannot be served.
    #[error("{}: {source}; {}", self.what(), self.next())]
    Certificate {
        /// What is wrong, and where.
        #[from]
        source: CertificateError,
    },
    /// A setting with which nothing could be served.
    #[error("{}: {}; {}", self.what(), self.why(), self.next())]
    Setting {
        /// Its key in the configuration.
        key: &'static str,
        /// Why it cannot be.
        why: String,
    },
}

impl BindError {
    /// What cannot be done, and where.
    pub fn what(&self) -> String {
        match self {
            Self::Address { port, address, .. } => format!("cannot listen on {address} ({port})"),
            Self::NotLoopback { address } => format!("server.local cannot be {address}"),
            Self::Certificate { source } => format!("the certificate cannot be served ({})", source.place),
            Self::Setting { key, .. } => format!("{key} cannot be used as it is set"),
        }
    }

    /// Why not.
    pub fn why(&self) -> String {
        match self {
            Self::Address { source, .. } => source.to_string(),
            Self::NotLoopback { .. } => {
                "whoever reaches this port changes what is logged, so it listens on loopback only".to_owned()
            }
            Self::Certificate { source } => source.fault.to_string(),
            Self::Setting { why, .. } => why.clone(),
        }
    }

    /// What to do.
    pub fn next(&self) -> String {
        match self {
            Self::Address { port, source, .. } => match source.kind() {
                io::ErrorKind::AddrInUse => format!("stop who listens there, or set {port} to another port"),
                io::ErrorKind::AddrNotAvailable => {
                    format!("set {port} to an address of this machine, or to 0.0.0.0 or [::] for all")
                }
                io::ErrorKind::PermissionDenied => {
                    format!("set {port} to a port from 1024 up, or grant CAP_NET_BIND_SERVICE")
                }
                _ => format!("look at {port}"),
            },
            Self::NotLoopback { address } => {
                format!("set it to 127.0.0.1:{} and reach it by `kubectl port-forward`", address.port())
            }
            Self::Certificate { source } => format!("mend {} and start again", source.place),
            Self::Setting { key, .. } => format!("change {key}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_tells_what_where_why_and_what_next() {
        let address = "10.0.0.7:8081".parse().unwrap();
        assert_eq!(
            BindError::NotLoopback { address }.to_string(),
            "server.local cannot be 10.0.0.7:8081: whoever reaches this port changes what is logged, so it listens on \
             loopback only; set it to 127.0.0.1:8081 and reach it by `kubectl port-forward`"
        );
        let source = io::Error::from(io::ErrorKind::AddrInUse);
        let error = BindError::Address { port: Port::Listen, address, source };
        assert!(error.to_string().starts_with("cannot listen on 10.0.0.7:8081 (server.listen): "));
        assert!(error.to_string().ends_with("or set server.listen to another port"));
    }
}
