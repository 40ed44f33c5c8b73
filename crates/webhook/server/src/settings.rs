//! Settings of a server. They hold from start to stop; what changes while it runs is the [`Plan`](crate::Plan) and the contents of
//! the certificate files.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::issued::{CertificatePem, IssuedCertificates};

/// Options of a server. [`Settings::new`](crate::Settings::new) checks them.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// HTTPS address for the API server. Port 0 lets the kernel choose.
    pub bind_address: SocketAddr,
    /// Address for kubelet and Prometheus: `/livez`, `/readyz`, `/metrics`, without TLS, read-only.
    pub metrics_bind_address: SocketAddr,
    /// Certificate, versions, client certificates.
    pub tls: TlsSettings,
    /// Limits of concurrent work.
    pub limits: Limits,
    /// Time limits of peers.
    pub timeouts: Timeouts,
    /// Times of the shutdown.
    pub shutdown: ShutdownTimes,
}

/// TLS of the HTTPS port.
#[derive(Debug, Clone)]
pub struct TlsSettings {
    /// The serving certificate and its key.
    pub certificate: CertificateSource,
    /// The oldest version that the server accepts.
    pub min_version: TlsVersion,
    /// Use of client certificates.
    pub client_auth: ClientAuth,
    /// Interval at which files are read again. They are compared by content, so a swap of `..data` by kubelet is noticed.
    pub poll: Duration,
}

impl TlsSettings {
    /// Creates settings with TLS 1.2 and 1.3, without client certificates; files are read every 10 s.
    pub fn new(certificate: CertificateSource) -> Self {
        Self {
            certificate,
            min_version: TlsVersion::V1_2,
            client_auth: ClientAuth::None,
            poll: Duration::from_secs(10),
        }
    }
}

/// Source of the serving certificate.
#[derive(Debug, Clone)]
pub enum CertificateSource {
    /// Two files, read again periodically.
    Files(CertificateFiles),
    /// PEM in memory, for demos and tests.
    Pem(CertificatePem),
    /// The certificate that the process issues itself.
    SelfManaged(IssuedCertificates),
}

/// Paths of a certificate and its key, both PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The leaf first, then its issuers in order.
    pub cert: PathBuf,
    /// One key, not encrypted: PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsVersion {
    /// 1.2
    V1_2,
    /// 1.3
    V1_3,
}

impl FromStr for TlsVersion {
    type Err = UnknownTlsVersion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "1.2" => Ok(Self::V1_2),
            "1.3" => Ok(Self::V1_3),
            other => Err(UnknownTlsVersion { got: other.to_owned() }),
        }
    }
}

/// Error: a TLS version that the server does not accept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{got:?} is not a supported TLS version; use \"1.2\" or \"1.3\"")]
pub struct UnknownTlsVersion {
    got: String,
}

/// Use of client certificates. An API server sends none unless its `AdmissionConfiguration` names a kubeconfig for this webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientAuth {
    /// Clients are not asked for one.
    None,
    /// The handshake fails without a valid one that has an allowed name.
    Require {
        /// PEM file of the client CA, read again like the serving certificate.
        ca_file: PathBuf,
        /// Names of callers. Without names, no caller is accepted.
        allowed_names: AllowedNames,
    },
}

/// Common names and DNS names of client certificates. Clones share them, so that they can change while the server runs.
#[derive(Debug, Clone, Default)]
pub struct AllowedNames(Arc<ArcSwap<Vec<String>>>);

impl AllowedNames {
    /// Creates a list of names.
    pub fn new(names: Vec<String>) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(names)))
    }

    /// Returns the current names.
    pub fn current(&self) -> Arc<Vec<String>> {
        self.0.load_full()
    }

    /// Replaces the names for handshakes that begin from now on.
    pub fn replace(&self, names: Arc<Vec<String>>) {
        self.0.store(names);
    }
}

impl PartialEq for AllowedNames {
    fn eq(&self, other: &Self) -> bool {
        self.current() == other.current()
    }
}

impl Eq for AllowedNames {}

impl ClientAuth {
    /// Returns the file of the client CA, if one is needed.
    pub fn ca_file(&self) -> Option<&PathBuf> {
        match self {
            Self::None => None,
            Self::Require { ca_file, .. } => Some(ca_file),
        }
    }

    /// Returns the names of callers, if they are used.
    pub fn allowed_names(&self) -> Option<&AllowedNames> {
        match self {
            Self::None => None,
            Self::Require { allowed_names, .. } => Some(allowed_names),
        }
    }
}

/// Limits of concurrent work. Above a limit the answer is 503 with `Retry-After: 1` and `Connection: close`, so that the API
/// server retries, likely at another replica. Requests are not queued: a queue would only move the timeout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Reviews in progress.
    pub max_concurrent_requests: usize,
    /// Size of a body. 10 MiB: the old object of a deletion, with 1.5 MiB the largest that etcd stores by default, and the envelope. The
    /// API server can need six bytes for a character, for example `<`. A refused review is allowed if the webhook ignores failures.
    /// The review of an update has two objects, so it can have 20 MiB. With a limit of 20 MiB, glibc kept 150 MiB after large reviews.
    pub max_request_bytes: usize,
    /// Size of all bodies and answers together, each with [`Limits::BODY_COST`] on top, and of what guards parse from bodies. A body
    /// counts as it arrives, not by its `Content-Length`. Its answer counts in its place until the peer has taken it. A quarter is
    /// only for bodies up to [`Limits::SMALL_BODY`], so that large ones can't keep ordinary reviews out.
    pub max_total_bytes: usize,
    /// Upper limit of the caller's `?timeout=`. API servers accept a `timeoutSeconds` of at most 30.
    pub request_timeout: Duration,
    /// Open connections. A new one above the limit closes one that waits for its peer, or is closed if none can be closed.
    /// HTTP/1.1 needs one for each review in progress, so twice `max_concurrent_requests`. An API server keeps at most 25 idle ones to a host.
    /// One costs about 30 kB, so 512 cost about 16 MiB.
    pub max_connections: usize,
}

impl Limits {
    /// Memory that a body needs in addition to its bytes: buffers, TLS session and task of its connection, measured at 38 kB.
    /// Without it, many small bodies would take twice the memory of a few large ones.
    pub const BODY_COST: usize = 32 << 10;

    /// Bodies up to this size can use all of `max_total_bytes`. Most reviews have 2 to 20 kB.
    pub const SMALL_BODY: usize = 256 << 10;

    /// Returns the part of a total that larger bodies can use.
    pub const fn for_large_bodies(max_total_bytes: usize) -> usize {
        max_total_bytes - max_total_bytes / 4
    }
}

const DEFAULT_LIMITS: Limits = Limits {
    max_concurrent_requests: 256,
    max_request_bytes: 10 << 20,
    max_total_bytes: 64 << 20,
    request_timeout: Duration::from_secs(30),
    max_connections: 512,
};

impl Default for Limits {
    fn default() -> Self {
        DEFAULT_LIMITS
    }
}

/// Time limits of peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// TLS handshake.
    pub handshake: Duration,
    /// From the handshake to the first complete request head.
    pub first_header: Duration,
    /// Between requests. Longer than the 90 s after which the API server closes an idle connection, so that the server never
    /// closes one that is about to be used.
    pub idle: Duration,
    /// From the head of a request to the last byte of its body. The API server waits at most 30 s and sends the body at once.
    /// 10 s for 10 MiB is 8.4 Mbit/s.
    pub body: Duration,
    /// Time without a byte taken, after which a peer that does not read its answer is disconnected.
    pub write_stall: Duration,
    /// From a graceful shutdown of a connection to its end.
    pub close: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            first_header: Duration::from_secs(10),
            idle: Duration::from_secs(120),
            body: Duration::from_secs(10),
            write_stall: Duration::from_secs(30),
            close: Duration::from_secs(2),
        }
    }
}

/// Times of a shutdown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShutdownTimes {
    /// How long a server that is not ready still accepts connections: kube-proxy and the API server need it to update endpoints.
    pub delay: Duration,
    /// Limit of the wait for reviews in flight after that.
    pub timeout: Duration,
}

impl Default for ShutdownTimes {
    fn default() -> Self {
        Self { delay: Duration::from_secs(10), timeout: Duration::from_secs(30) }
    }
}

// Each review needs a connection, and the largest body must fit.
const _: () = assert!(DEFAULT_LIMITS.max_connections >= 2 * DEFAULT_LIMITS.max_concurrent_requests);
const _: () = assert!(
    Limits::for_large_bodies(DEFAULT_LIMITS.max_total_bytes)
        >= DEFAULT_LIMITS.max_request_bytes + Limits::BODY_COST
);
// Bodies, and idle connections at 30 kB.
const _: () = assert!(DEFAULT_LIMITS.max_total_bytes + DEFAULT_LIMITS.max_connections * 30_000 < 80 << 20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_two_tls_versions() {
        assert_eq!("1.2".parse(), Ok(TlsVersion::V1_2));
        assert_eq!("1.3".parse(), Ok(TlsVersion::V1_3));
        let error = "1.1".parse::<TlsVersion>().unwrap_err();
        assert!(error.to_string().contains("\"1.1\" is not a supported TLS version"));
    }
}
