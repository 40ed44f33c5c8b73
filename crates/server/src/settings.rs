//! What the server is told before it binds. Values only: where they come from (file, flags, a test) is the caller's business.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Everything that a server needs to know. All of it holds from start to stop; what changes while it runs is the
/// [`Plan`](crate::Plan) and the contents of the certificate files.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the API server calls, over TLS. Port 0 takes any free one.
    pub listen: SocketAddr,
    /// Where kubelet and Prometheus look: `/livez`, `/readyz`, `/metrics`, without TLS, read-only.
    pub admin: SocketAddr,
    /// Where an operator changes the log level, reached by `kubectl port-forward`. Anything but a loopback address is refused.
    pub local: Option<SocketAddr>,
    /// Certificate, versions, client certificates.
    pub tls: TlsSettings,
    /// How much is taken on at once.
    pub limits: Limits,
    /// How long a peer may take over what.
    pub timeouts: Timeouts,
    /// How the server leaves.
    pub drain: Drain,
}

/// How the server shows itself, and what it asks of the caller.
#[derive(Debug, Clone)]
pub struct TlsSettings {
    /// The serving certificate and its key.
    pub certificate: CertificateSource,
    /// The oldest version that is spoken.
    pub min_version: TlsVersion,
    /// What is done about certificates of callers.
    pub client: ClientCertificates,
    /// How often files are read again. They are compared by content, so kubelet's swap of `..data` is seen like any other change.
    pub poll: Duration,
}

impl TlsSettings {
    /// TLS 1.2 and up, no client certificates, files read every 10 s.
    pub fn new(certificate: CertificateSource) -> Self {
        Self {
            certificate,
            min_version: TlsVersion::V1_2,
            client: ClientCertificates::Off,
            poll: Duration::from_secs(10),
        }
    }
}

/// Where the serving certificate comes from.
#[derive(Debug, Clone)]
pub enum CertificateSource {
    /// Two files, watched.
    Files(CertificateFiles),
    /// PEM in hand, for as long as the server runs: demos and tests.
    Pem(CertificatePem),
}

/// Paths of a certificate and its key, both PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The leaf first, then what issued it, in order.
    pub cert: PathBuf,
    /// One key, not encrypted: PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
}

/// A certificate and its key in memory, both PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct CertificatePem {
    /// The leaf first, then what issued it, in order.
    pub cert: Vec<u8>,
    /// One key, not encrypted.
    pub key: Vec<u8>,
}

// A key must not reach a log by way of `{:?}`.
impl std::fmt::Debug for CertificatePem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertificatePem").finish_non_exhaustive()
    }
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

/// A version that is not spoken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{got:?} is no version of TLS that is spoken here, only \"1.2\" and \"1.3\"")]
pub struct UnknownTlsVersion {
    got: String,
}

/// What is done about certificates of callers. An API server shows none unless its `AdmissionConfiguration` names a kubeconfig
/// for this webhook, so requiring one before counting them stops the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientCertificates {
    /// None is asked for.
    Off,
    /// One is asked for and counted as valid, invalid or absent; nobody is refused.
    Count {
        /// PEM file with the authorities that callers are checked against; watched like the serving certificate.
        ca: PathBuf,
    },
    /// Without a valid one the handshake fails.
    Require {
        /// PEM file with the authorities that callers are checked against; watched like the serving certificate.
        ca: PathBuf,
    },
}

impl ClientCertificates {
    /// The file with the authorities, where one is needed.
    pub fn ca(&self) -> Option<&PathBuf> {
        match self {
            Self::Off => None,
            Self::Count { ca } | Self::Require { ca } => Some(ca),
        }
    }
}

/// How much is taken on at once. Past a limit the answer is 503 with `Retry-After: 1` and `Connection: close`, which makes the
/// API server try again, likely at another replica: shed, never queued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Reviews that are being decided.
    pub in_flight: usize,
    /// One body. 8 MiB: old and new object at the API server's 3 MiB write limit, plus envelope, rounded up.
    pub body_bytes: usize,
    /// All bodies and answers together: a body's bytes as they arrive, then those of its answer in their place until the peer has
    /// taken it, each with [`Limits::BODY_COST`] on top: this bounds memory, not letters.
    pub bytes_in_flight: usize,
    /// The longest that a review may take, whatever the caller's `?timeout=` says.
    pub deadline: Duration,
    /// Open connections. For one more the one that has been without a request the longest is ended; while all have one, a new
    /// one is closed at once. HTTP/1.1 takes one for each review under way, so twice `in_flight`; an API server keeps at most 25
    /// idle ones to a host. One costs about 30 kB, so 512 stay near 16 MiB.
    pub connections: usize,
}

impl Limits {
    /// What a body takes beside its bytes from the moment it begins to arrive: the buffers, the TLS session and the task of a
    /// connection at work, measured at 38 kB. Without it many small bodies would come to twice the memory of few large ones.
    pub const BODY_COST: usize = 32 << 10;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            in_flight: 256,
            body_bytes: 8 << 20,
            bytes_in_flight: 64 << 20,
            deadline: Duration::from_secs(10),
            connections: 512,
        }
    }
}

/// How long a peer may take over what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// From TCP accept to the end of the TLS handshake.
    pub handshake: Duration,
    /// From the handshake to the end of the first request's head.
    pub first_header: Duration,
    /// Without a request. Longer than the 90 s after which the API server's own client drops an idle connection, so that it is
    /// never we who close one that it is about to use.
    pub idle: Duration,
    /// From the head of a review to its last byte. The API server gives up on a review after at most 30 s and sends its body
    /// at once; 10 s for 8 MiB is 6.7 Mbit/s.
    pub body: Duration,
    /// For a peer that does not take its answer: with no byte taken for so long, the connection is dropped.
    pub write_stall: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            first_header: Duration::from_secs(10),
            idle: Duration::from_secs(120),
            body: Duration::from_secs(10),
            write_stall: Duration::from_secs(30),
        }
    }
}

/// How the server leaves: not ready, then `Connection: close` on every answer while it still accepts, then no new connection
/// while what is in flight ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drain {
    /// For how long it still accepts: what kube-proxy and the API server's endpoint cache need to look elsewhere.
    pub lame_duck: Duration,
    /// The longest wait for reviews in flight after that.
    pub finish: Duration,
}

impl Default for Drain {
    fn default() -> Self {
        Self { lame_duck: Duration::from_secs(10), finish: Duration::from_secs(30) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tls_version_is_one_of_two() {
        assert_eq!("1.2".parse(), Ok(TlsVersion::V1_2));
        assert_eq!("1.3".parse(), Ok(TlsVersion::V1_3));
        let error = "1.1".parse::<TlsVersion>().unwrap_err();
        assert!(error.to_string().contains("\"1.1\" is no version of TLS"));
    }

    #[test]
    fn the_time_limits_leave_the_callers_of_this_server_the_first_word() {
        let Timeouts { handshake, first_header, idle, body, write_stall } = Timeouts::default();
        // Go's client drops an idle connection after 90 s. Whoever closes earlier than that fails a call with a reset.
        assert!(idle > Duration::from_secs(90), "{idle:?}");
        assert_eq!(idle, Duration::from_secs(120));
        // An API server waits for 30 s at most; what takes longer than a third of it here is not one.
        for time in [handshake, first_header, body] {
            assert_eq!(time, Duration::from_secs(10));
        }
        assert_eq!(write_stall, Duration::from_secs(30));
    }

    #[test]
    fn each_review_under_way_finds_a_connection_and_the_largest_body_finds_room() {
        let limits = Limits::default();
        assert!(limits.connections >= 2 * limits.in_flight);
        assert!(limits.bytes_in_flight >= limits.body_bytes + Limits::BODY_COST);
        // All of it together: bodies with what holds them, idle connections at 30 kB.
        assert!(limits.bytes_in_flight + limits.connections * 30_000 < 80 << 20);
    }

    #[test]
    fn a_key_in_memory_is_not_shown_by_debug() {
        let pem = CertificatePem { cert: b"c".to_vec(), key: b"secret".to_vec() };
        assert_eq!(format!("{pem:?}"), "CertificatePem { .. }");
    }
}
