//! What it means that a member gave no answer at all: who is not there, who is not who it should be, and who speaks something else.

use std::error::Error;
use std::io;
use std::net::SocketAddr;

use admission::Cause;
use rustls::{AlertDescription, CertificateError};

use crate::cause;
use crate::live::failure::brief;

/// The cause, whose text is the end of a sentence about the member.
pub(super) fn broken(error: &(dyn Error + 'static), at: SocketAddr, is_tls: bool) -> Cause {
    let mut innermost = error;
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(tls) = tls(error) {
            return Cause::new(cause::TLS, format!("TLS to {at} does not come about: {}", of_tls(tls)));
        }
        if let Some(hyper) = error.downcast_ref::<hyper::Error>() {
            // Who speaks before it is asked speaks HTTP/2, as gRPC does.
            if hyper.is_parse() || hyper.to_string().contains("unexpected message") {
                let text = format!(
                    "what answers at {at} does not speak HTTP/1.1, as etcd's gateway does (with --listen-client-http-urls that is another port)"
                );
                return Cause::new(cause::NOT_ETCD, text);
            }
            if hyper.is_incomplete_message() {
                let hint = if is_tls {
                    "; what serves gRPC only does that (--listen-client-http-urls)"
                } else {
                    "; it may want TLS"
                };
                let text = format!("the connection to {at} was closed before there was an answer{hint}");
                return Cause::new(cause::UNREACHABLE, text);
            }
        }
        innermost = error;
        next = error.source();
    }
    match innermost.downcast_ref().map(kind) {
        Some(io::ErrorKind::TimedOut) => {
            return Cause::new(cause::TIMEOUT, format!("{at} takes no connection in time"));
        }
        // Only a connection that is not there yet can be refused.
        Some(io::ErrorKind::ConnectionRefused) => {
            return Cause::new(cause::NOT_LISTENING, format!("nobody listens at {at}"));
        }
        Some(io::ErrorKind::UnexpectedEof) if is_tls => {
            let text = format!("{at} ends the handshake of TLS; it may not speak TLS");
            return Cause::new(cause::TLS, text);
        }
        _ => {}
    }
    Cause::new(cause::UNREACHABLE, format!("no connection to {at}: {}", brief(&innermost.to_string())))
}

/// An error of rustls' stands within one of the operating system's, or two, which do not call it their source.
fn tls<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    let within = || tls(error.downcast_ref::<io::Error>()?.get_ref()?);
    error.downcast_ref::<rustls::Error>().or_else(within)
}

/// What an error of the operating system's is at its core.
fn kind(error: &io::Error) -> io::ErrorKind {
    match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(inner) => kind(inner),
        None => error.kind(),
    }
}

fn of_tls(error: &rustls::Error) -> String {
    let told = || brief(&error.to_string());
    match error {
        rustls::Error::InvalidCertificate(why) => match why {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "its certificate is not of the ensemble's authority".to_owned()
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!("its certificate is for another name (client.serverName): {}", told())
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                format!("its certificate has ended: {}", told())
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                format!("its certificate is not valid yet: {}", told())
            }
            _ => format!("its certificate is not accepted: {}", told()),
        },
        rustls::Error::AlertReceived(alert) => match alert {
            AlertDescription::CertificateRequired => {
                "it wants a client certificate, and there is none".to_owned()
            }
            AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRevoked
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::AccessDenied
            | AlertDescription::DecryptError
            | AlertDescription::UnknownCA => {
                format!("it does not accept the client's certificate ({alert:?})")
            }
            _ => format!("it ends the handshake ({alert:?})"),
        },
        rustls::Error::InvalidMessage(_) => "it does not speak TLS there".to_owned(),
        _ => told(),
    }
}
