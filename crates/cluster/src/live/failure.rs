//! What an answer means that is not the one that was hoped for.
//!
//! This is where certainty is made: absence is believed only from a 404 that carries a `Status` of reason `NotFound` about the
//! very object. A path that is not served, a proxy on the way, a mistyped server all answer 404 too, as plain text.

use admission::Cause;
use hyper::StatusCode;
use serde::Deserialize;

use super::access::with_sources;
use crate::{Address, Resource, cause};

/// A question that came to nothing. The cause's text is the end of a sentence: `no connection: refused`.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) cause: Cause,
    /// 410: the version that was asked from is too old, and only a new List helps.
    pub(super) is_expired: bool,
    /// The question went by a lane, and the server does not speak HTTP/2: it was not asked yet.
    pub(super) is_only_http1: bool,
    /// There was more of it than may be, and it began like an answer.
    pub(super) is_too_long: bool,
}

impl Failure {
    pub(super) fn new(code: &'static str, text: impl Into<String>) -> Self {
        Self { cause: Cause::new(code, text), is_expired: false, is_only_http1: false, is_too_long: false }
    }
}

/// What an API server says in place of what was asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    pub(super) kind: String,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) code: Option<u16>,
    pub(super) details: Option<Details>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Details {
    pub(super) name: String,
    pub(super) group: String,
    pub(super) kind: String,
}

/// Whether a 404 is about this very object. `details.kind` holds the plural name in truth.
pub(super) fn is_about(body: &[u8], address: Address<'_>) -> bool {
    let Ok(Status { kind, reason, details: Some(details), .. }) = serde_json::from_slice(body) else {
        return false;
    };
    kind == "Status"
        && reason == "NotFound"
        && details.name == address.name
        && details.group == address.resource.group
        && details.kind == address.resource.plural
}

/// The cause of an answer other than 200.
pub(super) fn refusal(status: StatusCode, body: &[u8], verb: &str, resource: &Resource) -> Failure {
    let told: Status = serde_json::from_slice(body).unwrap_or_default();
    let number = status.as_u16();
    let (code, text) = match number {
        401 => (cause::CREDENTIALS, "the API server does not accept Durward's credentials".to_owned()),
        403 => {
            (cause::FORBIDDEN, format!("Durward is not permitted to {verb} {resource} (RBAC: verb {verb})"))
        }
        404 => {
            let doubt = if told.kind == "Status" { "" } else { ", or it is none (404 without a Status)" };
            let version = resource.api_version();
            (cause::GARBAGE, format!("the API server does not know {resource} in {version}{doubt}"))
        }
        410 => (cause::BUSY, "the API server has forgotten the version that was asked from".to_owned()),
        429 | 500..=599 => {
            (cause::BUSY, format!("the API server cannot answer now ({number}{})", said(&told)))
        }
        _ => (cause::REFUSED, format!("the API server answers {number}{}", said(&told))),
    };
    let is_expired = number == 410 || matches!(told.reason.as_str(), "Expired" | "Gone");
    Failure { is_expired, ..Failure::new(code, text) }
}

pub(super) fn said(status: &Status) -> String {
    if status.message.is_empty() { String::new() } else { format!(": {}", brief(&status.message)) }
}

/// A request without an answer of `who`, which says where that is, for people with more than one kubeconfig.
pub(super) fn not_sent(error: &(dyn std::error::Error + 'static), who: &str) -> Failure {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        if source.is::<kube::client::AuthError>() {
            // What a credential plugin wrote is not for whoever asked at kubectl.
            tracing::debug!("no credentials: {}", with_sources(source));
            let text =
                "there are no credentials: the plugin or the token file of Durward's kubeconfig gives none";
            return Failure::new(cause::CREDENTIALS, text);
        }
        innermost = source;
    }
    if innermost.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == std::io::ErrorKind::TimedOut)
    {
        return Failure::new(cause::TIMEOUT, format!("{who} takes no connection in time"));
    }
    let why = brief(&innermost.to_string());
    Failure::new(cause::UNREACHABLE, format!("no connection to {who}: {why}"))
}

/// What an API server is called whose connection broke while it answered: by then it is known which one it is.
pub(super) const SERVER: &str = "the API server";

/// Bytes that make no sense.
pub(super) fn not_understood(error: &serde_json::Error, body: &[u8]) -> Failure {
    let begins = String::from_utf8_lossy(body.get(..40).unwrap_or(body)).into_owned();
    Failure::new(
        cause::GARBAGE,
        format!(
            "the answer cannot be understood: {}; it begins {:?}",
            brief(&error.to_string()),
            brief(&begins)
        ),
    )
}

/// Text from outside, cut so that a sentence around it stays one.
pub(crate) fn brief(text: &str) -> String {
    cut(text, 160)
}

/// A cause as it leaves the world. Its sentence is ours, but names in it may be long: no denial is made of pages of it.
pub(super) fn short(Cause { code, text }: Cause) -> Cause {
    Cause::new(code, cut(&text, 400))
}

fn cut(text: &str, most: usize) -> String {
    let mut line: String = text.chars().take(most).map(|c| if is_unprintable(c) { ' ' } else { c }).collect();
    if line.len() < text.len() && text.chars().nth(most).is_some() {
        line.push('…');
    }
    line
}

/// What moves a terminal's cursor, breaks a line, or turns the direction of the text around it.
pub(crate) fn is_unprintable(c: char) -> bool {
    let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns || matches!(c, '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::*;

    #[test]
    fn a_connection_that_takes_too_long_is_a_timeout_and_any_other_is_unreachable() {
        let late = not_sent(&Error::new(ErrorKind::TimedOut, "x"), "it");
        assert_eq!(late.cause, Cause::new(cause::TIMEOUT, "it takes no connection in time"));
        let refused = Error::new(ErrorKind::ConnectionRefused, "no");
        let refused = not_sent(&kube::Error::Service(Box::new(refused)), "it");
        assert_eq!(refused.cause, Cause::new(cause::UNREACHABLE, "no connection to it: no"));
    }
}
