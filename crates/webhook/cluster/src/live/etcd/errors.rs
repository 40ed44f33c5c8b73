//! Maps failed connections and refusals of a member to causes.
//!
//! The texts of refusals are etcd's own (`api/v3rpc/rpctypes/error.go`), the same in every version; some codes differ between
//! versions.

use std::error::Error;
use std::io;
use std::net::SocketAddr;

use admission::Cause;
use rustls::CertificateError;
use tonic::{Code, Status};

use super::body::GrpcBodyError;
use crate::cause;
use crate::live::brief;

/// Texts of tonic for answers that are no message.
const UNREADABLE: [&str; 3] =
    ["Missing response message", "Unexpected EOF", "failed to decode Protobuf message"];

/// Why a call has no answer.
pub(super) enum CallError {
    /// The member refused it.
    Refused(CallRefusal),
    /// No answer of etcd arrived. The text of the cause is the end of a sentence about the member.
    Failed(Cause),
}

impl From<Cause> for CallError {
    fn from(why: Cause) -> Self {
        Self::Failed(why)
    }
}

impl CallError {
    pub(super) fn cause(&self) -> Cause {
        match self {
            Self::Refused(refusal) => refusal.cause(),
            Self::Failed(why) => why.clone(),
        }
    }
}

/// Returns why a call has no answer. A status with a source is one of this side.
pub(super) fn call_error(status: &Status, at: SocketAddr, is_tls: bool) -> CallError {
    let message = status.message();
    let not_etcd = || {
        let text = format!("another program answers there, not etcd ({})", brief(message));
        CallError::Failed(Cause::new(cause::NOT_ETCD, text))
    };
    match (status.source(), status.code()) {
        (Some(error), _) => CallError::Failed(connection_failure(error, at, is_tls)),
        // These are words of tonic: src/status.rs.
        (None, _) if message.starts_with("grpc-status header missing") => not_etcd(),
        // These are words of tonic: src/status.rs and src/codec/decode.rs.
        (None, Code::Internal | Code::Unknown) if message.starts_with("protocol error") => not_etcd(),
        (None, Code::Internal) if UNREADABLE.iter().any(|text| message.starts_with(text)) => {
            CallError::Failed(Cause::new(cause::GARBAGE, "invalid answer"))
        }
        // These are words of tonic: src/codec/decode.rs.
        (None, Code::OutOfRange) if message.contains("message length too large") => {
            CallError::Failed(Cause::new(cause::GARBAGE, GrpcBodyError::TooLong.to_string()))
        }
        (None, code) => {
            CallError::Refused(CallRefusal { code, message: message.to_owned(), login: LoggedIn::default() })
        }
    }
}

/// Returns the cause of a failed connection. Its text is the end of a sentence about the member.
fn connection_failure(error: &(dyn Error + 'static), at: SocketAddr, is_tls: bool) -> Cause {
    let mut innermost = error;
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(tls) = tls(error) {
            return Cause::new(cause::TLS, format!("TLS handshake with {at} failed: {}", tls_text(tls)));
        }
        // These are words of rustls: src/error.rs.
        if let Some((_, alert)) = error.to_string().split_once("received fatal alert: ") {
            let text = format!("TLS handshake with {at} failed: {}", alert_text(alert));
            return Cause::new(cause::TLS, text);
        }
        match error.downcast_ref() {
            Some(GrpcBodyError::NoMemory) => {
                return Cause::new(cause::OVERLOADED, GrpcBodyError::NoMemory.to_string());
            }
            Some(GrpcBodyError::TooLong) => {
                return Cause::new(cause::GARBAGE, GrpcBodyError::TooLong.to_string());
            }
            None => {}
        }
        if let Some(broken) = error.downcast_ref::<h2::Error>() {
            return broken_connection(broken, at, is_tls);
        }
        innermost = error;
        next = error.source();
    }
    match innermost.downcast_ref().map(kind) {
        Some(io::ErrorKind::TimedOut) => {
            return Cause::new(cause::TIMEOUT, format!("no connection to {at} in time"));
        }
        // Only a new connection can be refused.
        Some(io::ErrorKind::ConnectionRefused) => {
            return Cause::new(cause::NOT_LISTENING, format!("connection to {at} refused"));
        }
        Some(io::ErrorKind::UnexpectedEof) if is_tls => {
            let text = format!("{at} ended the TLS handshake; it might not use TLS");
            return Cause::new(cause::TLS, text);
        }
        _ => {}
    }
    Cause::new(cause::UNREACHABLE, format!("no connection to {at}: {}", brief(&innermost.to_string())))
}

/// Returns the cause of a connection that broke after it was open. `is_library` means that the other side does not speak HTTP/2.
fn broken_connection(error: &h2::Error, at: SocketAddr, is_tls: bool) -> Cause {
    let hint = if is_tls { "" } else { "; it may require TLS" };
    if error.is_library() {
        return Cause::new(cause::NOT_ETCD, format!("{at} does not speak gRPC{hint}"));
    }
    let text = format!("{at} closed the connection without an answer{hint}: {}", brief(&error.to_string()));
    Cause::new(cause::UNREACHABLE, text)
}

/// Finds an error of rustls, which is nested in one or two I/O errors that do not return it as their source.
fn tls<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    let within = || tls(error.downcast_ref::<io::Error>()?.get_ref()?);
    error.downcast_ref::<rustls::Error>().or_else(within)
}

/// Returns the kind of the innermost I/O error.
fn kind(error: &io::Error) -> io::ErrorKind {
    match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(inner) => kind(inner),
        None => error.kind(),
    }
}

fn tls_text(error: &rustls::Error) -> String {
    let text = || brief(&error.to_string());
    match error {
        rustls::Error::InvalidCertificate(why) => match why {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "its certificate is not signed by the configured CA".to_owned()
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!("its certificate is not valid for the name (client.serverName): {}", text())
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                format!("its certificate has expired: {}", text())
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                format!("its certificate is not valid yet: {}", text())
            }
            _ => format!("its certificate is invalid: {}", text()),
        },
        rustls::Error::AlertReceived(alert) => alert_text(&format!("{alert:?}")),
        rustls::Error::InvalidMessage(_) => "it does not use TLS on this port".to_owned(),
        _ => text(),
    }
}

/// Returns the text for an alert, by the name that rustls gives it. In TLS 1.3, alerts about the client's certificate arrive after the
/// handshake, and hyper keeps only the text of such an error.
fn alert_text(alert: &str) -> String {
    match alert {
        "CertificateRequired" => "it requires a client certificate".to_owned(),
        "BadCertificate"
        | "CertificateUnknown"
        | "CertificateExpired"
        | "CertificateRevoked"
        | "UnsupportedCertificate"
        | "AccessDenied"
        | "DecryptError"
        | "UnknownCA" => {
            format!("it rejects the client certificate ({alert})")
        }
        _ => format!("it ended the handshake ({})", brief(alert)),
    }
}

/// The login of a request.
#[derive(Default)]
pub(super) struct LoggedIn {
    /// The user, if the request had a token.
    pub(super) user: Option<String>,
    /// Whether a user is configured.
    pub(super) has_login: bool,
}

/// The refusal of a member.
pub(super) struct CallRefusal {
    pub(super) code: Code,
    message: String,
    pub(super) login: LoggedIn,
}

/// The messages are words of etcd: api/v3rpc/rpctypes/error.go.
impl CallRefusal {
    /// Replaces a secret that the member may repeat.
    pub(super) fn redact(&mut self, secret: &str, by: &str) {
        if !secret.is_empty() {
            self.message = self.message.replace(secret, by);
        }
    }

    fn says(&self, text: &str) -> bool {
        self.message.contains(text)
    }

    /// Whether the request needs a user.
    pub(super) fn needs_user(&self) -> bool {
        self.says("user name is empty")
    }

    /// Whether the token is no longer valid.
    pub(super) fn has_stale_token(&self) -> bool {
        self.code == Code::Unauthenticated
            || self.says("invalid auth token")
            || self.says("revision of auth store is old")
    }

    pub(super) fn is_denied(&self) -> bool {
        self.code == Code::PermissionDenied || self.says("permission denied")
    }

    /// Whether user or password are wrong.
    pub(super) fn is_login_failure(&self) -> bool {
        self.says("authentication failed")
    }

    pub(super) fn has_no_authentication(&self) -> bool {
        self.says("authentication is not enabled")
    }

    pub(super) fn is_not_leader(&self) -> bool {
        self.says("etcdserver: not leader")
    }

    pub(super) fn is_bad_target(&self) -> bool {
        self.says("bad leader transferee")
    }

    /// Etcd 3.4 reports `context deadline exceeded` for alarms with the unspecific code 2.
    fn is_without_quorum(&self) -> bool {
        self.code == Code::DeadlineExceeded
            || ["no leader", "timed out", "deadline exceeded"].iter().any(|text| self.says(text))
    }

    pub(super) fn is_unknown_call(&self) -> bool {
        self.code == Code::Unimplemented
    }

    /// Returns the cause. Its text is the end of a sentence about the member.
    pub(super) fn cause(&self) -> Cause {
        let message = brief(&self.message);
        let (cause, text) = if self.needs_user() && !self.login.has_login {
            (
                cause::CREDENTIALS,
                "authentication is enabled, and no user is configured (client.auth)".to_owned(),
            )
        } else if self.needs_user() || self.has_stale_token() {
            (cause::CREDENTIALS, format!("it rejects the login ({message})"))
        } else if self.is_denied() {
            let user = self
                .login
                .user
                .as_deref()
                .map_or_else(|| "Durward".to_owned(), |user| format!("user {:?}", brief(user)));
            (cause::CREDENTIALS, format!("{user} has no permission ({message})"))
        } else if self.is_login_failure() {
            let user = brief(self.login.user.as_deref().unwrap_or_default());
            (cause::CREDENTIALS, format!("wrong user {user:?} or password"))
        } else if self.says("not supported for learner") {
            (cause::UNSUPPORTED, "learners do not support this request".to_owned())
        } else if self.is_unknown_call() || self.says("not capable") {
            (cause::UNSUPPORTED, format!("this version of etcd does not support it ({message})"))
        } else if self.is_without_quorum() {
            (cause::NO_QUORUM, format!("no quorum ({message})"))
        } else if self.code == Code::ResourceExhausted || self.says("too many requests") {
            (cause::BUSY, format!("it is overloaded ({message})"))
        } else if self.code == Code::Unavailable {
            // etcd returns this code while the leader changes, for example, or while the member stops.
            (cause::BUSY, format!("it cannot answer now ({message})"))
        } else {
            (cause::REFUSED, format!("etcd error: {message} ({:?})", self.code))
        };
        Cause::new(cause, text)
    }
}
