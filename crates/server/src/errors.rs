//! Errors at the start: what failed, where, why, and the next step.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use crate::tls::CertificateError;

/// A socket of the server, by its key in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Socket {
    /// `server.listen`
    Listen,
    /// `server.admin`
    Admin,
    /// `server.local`
    Local,
}

impl fmt::Display for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Listen => "server.listen",
            Self::Admin => "server.admin",
            Self::Local => "server.local",
        })
    }
}

/// Error: the server cannot start. Its text is one sentence; the parts are also available alone.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// A socket cannot be opened.
    #[error("{}: {source}; {}", self.what(), self.next())]
    Address {
        /// The socket.
        socket: Socket,
        /// Its address.
        address: SocketAddr,
        /// The error of the kernel.
        source: io::Error,
    },
    /// `server.local` is not a loopback address.
    #[error("{}: {}; {}", self.what(), self.why(), self.next())]
    NotLoopback {
        /// Its address.
        address: SocketAddr,
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
            Self::Address { socket, address, .. } => format!("cannot listen on {address} ({socket})"),
            Self::NotLoopback { address } => format!("server.local cannot be {address}"),
            Self::Certificate { source } => format!("the certificate cannot be served ({})", source.place),
            Self::Setting { key, .. } => format!("{key} cannot be used as it is set"),
        }
    }

    /// Returns the reason.
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

    /// Returns the next step.
    pub fn next(&self) -> String {
        match self {
            Self::Address { socket, source, .. } => match source.kind() {
                io::ErrorKind::AddrInUse => {
                    format!("stop who listens there, or set {socket} to another port")
                }
                io::ErrorKind::AddrNotAvailable => {
                    format!("set {socket} to an address of this machine, or to 0.0.0.0 or [::] for all")
                }
                io::ErrorKind::PermissionDenied => {
                    format!("set {socket} to a port from 1024 up, or grant CAP_NET_BIND_SERVICE")
                }
                _ => format!("look at {socket}"),
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
    fn an_error_has_what_where_why_and_the_next_step() {
        let address = "10.0.0.7:8081".parse().unwrap();
        assert_eq!(
            BindError::NotLoopback { address }.to_string(),
            "server.local cannot be 10.0.0.7:8081: whoever reaches this port changes what is logged, so it listens on \
             loopback only; set it to 127.0.0.1:8081 and reach it by `kubectl port-forward`"
        );
        let source = io::Error::from(io::ErrorKind::AddrInUse);
        let error = BindError::Address { socket: Socket::Listen, address, source };
        assert!(error.to_string().starts_with("cannot listen on 10.0.0.7:8081 (server.listen): "));
        assert!(error.to_string().ends_with("or set server.listen to another port"));
    }
}
