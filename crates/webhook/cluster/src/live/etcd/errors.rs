//! Maps failed connections and refusals of a member to causes.
//!
//! The texts of refusals are etcd's own (`api/v3rpc/rpctypes/error.go`), the same in every version; the HTTP status differs
//! between versions.

use std::error::Error;
use std::io;
use std::net::SocketAddr;

use admission::Cause;
use hyper::StatusCode;
use rustls::{AlertDescription, CertificateError};

use crate::cause;
use crate::gateway::GatewayError;
use crate::live::brief;

/// Returns the cause of a failed connection. Its text is the end of a sentence about the member.
pub(super) fn connection_failure(error: &(dyn Error + 'static), at: SocketAddr, is_tls: bool) -> Cause {
    let mut innermost = error;
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(tls) = tls(error) {
            return Cause::new(cause::TLS, format!("TLS handshake with {at} failed: {}", tls_text(tls)));
        }
        if let Some(hyper) = error.downcast_ref::<hyper::Error>() {
            // A server that sends first speaks HTTP/2, as gRPC does. These are words of hyper: src/error.rs, Kind::UnexpectedMessage.
            if hyper.is_parse() || hyper.to_string().contains("unexpected message") {
                let text = format!(
                    "{at} does not speak HTTP/1.1 (with --listen-client-http-urls, the gateway has another port)"
                );
                return Cause::new(cause::NOT_ETCD, text);
            }
            if hyper.is_incomplete_message() {
                let hint = if is_tls {
                    "; the port may serve gRPC only (--listen-client-http-urls)"
                } else {
                    "; it may require TLS"
                };
                let text = format!("{at} closed the connection without an answer{hint}");
                return Cause::new(cause::UNREACHABLE, text);
            }
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
        rustls::Error::AlertReceived(alert) => match alert {
            AlertDescription::CertificateRequired => "it requires a client certificate".to_owned(),
            AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRevoked
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::AccessDenied
            | AlertDescription::DecryptError
            | AlertDescription::UnknownCA => {
                format!("it rejects the client certificate ({alert:?})")
            }
            _ => format!("it ended the handshake ({alert:?})"),
        },
        rustls::Error::InvalidMessage(_) => "it does not use TLS on this port".to_owned(),
        _ => text(),
    }
}

/// The login of a request.
#[derive(Debug, Default)]
pub(super) struct LoggedIn {
    /// The user, if the request had a token.
    pub(super) user: Option<String>,
    /// Whether a user is configured.
    pub(super) has_login: bool,
}

/// Status codes of gRPC.
const DEADLINE: i64 = 4;
const DENIED: i64 = 7;
const EXHAUSTED: i64 = 8;
const UNIMPLEMENTED: i64 = 12;
const UNAVAILABLE: i64 = 14;
const UNAUTHENTICATED: i64 = 16;

/// The messages are words of etcd: api/v3rpc/rpctypes/error.go.
impl GatewayError {
    fn says(&self, text: &str) -> bool {
        self.message.contains(text)
    }

    /// Whether the request needs a user.
    pub(super) fn needs_user(&self) -> bool {
        self.says("user name is empty")
    }

    /// Whether the token is no longer valid.
    pub(super) fn has_stale_token(&self) -> bool {
        self.code == Some(UNAUTHENTICATED)
            || self.says("invalid auth token")
            || self.says("revision of auth store is old")
    }

    pub(super) fn is_denied(&self) -> bool {
        self.code == Some(DENIED) || self.says("permission denied")
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
        self.code == Some(DEADLINE)
            || ["no leader", "timed out", "deadline exceeded"].iter().any(|text| self.says(text))
    }

    pub(super) fn is_unknown_call(&self) -> bool {
        self.code == Some(UNIMPLEMENTED)
    }
}

/// Returns the cause of a refusal. Its text is the end of a sentence about the member. The messages are words of etcd:
/// api/v3rpc/rpctypes/error.go.
pub(super) fn refusal_cause(refusal: &GatewayError, login: &LoggedIn) -> Cause {
    let message = brief(&refusal.message);
    let code = refusal.code.unwrap_or_default();
    let (cause, text) = if refusal.needs_user() && !login.has_login {
        (cause::CREDENTIALS, "authentication is enabled, and no user is configured (client.auth)".to_owned())
    } else if refusal.needs_user() || refusal.has_stale_token() {
        (cause::CREDENTIALS, format!("it rejects the login ({message})"))
    } else if refusal.is_denied() {
        let user = login
            .user
            .as_deref()
            .map_or_else(|| "Durward".to_owned(), |user| format!("user {:?}", brief(user)));
        (cause::CREDENTIALS, format!("{user} has no permission ({message})"))
    } else if refusal.is_login_failure() {
        let user = brief(login.user.as_deref().unwrap_or_default());
        (cause::CREDENTIALS, format!("wrong user {user:?} or password"))
    } else if refusal.says("not supported for learner") {
        (cause::UNSUPPORTED, "learners do not support this request".to_owned())
    } else if refusal.is_unknown_call() || refusal.says("not capable") {
        (cause::UNSUPPORTED, format!("this version of etcd does not support it ({message})"))
    } else if refusal.is_without_quorum() {
        (cause::NO_QUORUM, format!("no quorum ({message})"))
    } else if code == EXHAUSTED || refusal.says("too many requests") {
        (cause::BUSY, format!("it is overloaded ({message})"))
    } else if code == UNAVAILABLE {
        // etcd returns this code while the leader changes, for example, or while the member stops.
        (cause::BUSY, format!("it cannot answer now ({message})"))
    } else {
        (cause::REFUSED, format!("etcd error: {message} ({code})"))
    };
    Cause::new(cause, text)
}

/// Returns the cause of an answer that is neither 200 nor from the gateway.
pub(super) fn unexpected_answer(status: StatusCode, body: &[u8]) -> Cause {
    let number = status.as_u16();
    let begins = String::from_utf8_lossy(body.get(..80).unwrap_or(body)).into_owned();
    let begins = brief(begins.trim());
    // These are words of Go: net/http/server.go, conn.serve.
    if begins.contains("HTTP request to an HTTPS server") {
        return Cause::new(cause::TLS, "it requires TLS, and client.tls is not set");
    }
    let (code, text) = match number {
        300..=399 => {
            (cause::NOT_ETCD, format!("another program answers there, not etcd: redirect ({number})"))
        }
        429 | 500..=599 => (cause::BUSY, format!("it is overloaded ({number}: {begins:?})")),
        _ => (cause::NOT_ETCD, format!("another program answers there, not etcd ({number}: {begins:?})")),
    };
    Cause::new(code, text)
}
