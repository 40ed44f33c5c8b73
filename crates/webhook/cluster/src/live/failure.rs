//! Maps errors of API servers and connections to causes.
//!
//! Only a 404 with a `Status` of reason `NotFound` that names the object proves absence. A path that is not served, a proxy or a
//! mistyped server answer 404 too, in plain text.

use admission::Cause;
use admission::text::excerpt;
use hyper::StatusCode;
use serde::Deserialize;

use crate::{Address, ApiError, Resource, cause};
use config::with_sources;

/// A failed request. The text of the cause is the end of a sentence: `no connection: refused`.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) cause: Cause,
    /// The kind of the answer, if the API server answered with an error.
    pub(crate) kind: Option<ApiError>,
    /// The body is longer than its limit, and begins like an answer.
    pub(crate) is_too_long: bool,
    /// Other answers use the memory for answers.
    pub(crate) lacks_memory: bool,
}

impl Failure {
    /// The same, where a long body is garbage and no smaller request is possible.
    pub(crate) fn into_garbage(self) -> Self {
        let code = if self.cause.code == cause::TOO_LONG { cause::GARBAGE } else { self.cause.code };
        Self { cause: Cause::new(code, self.cause.text), ..self }
    }

    pub(crate) fn new(code: &'static str, text: impl Into<String>) -> Self {
        let cause = Cause::new(code, text);
        Self { cause, kind: None, is_too_long: false, lacks_memory: false }
    }
}

/// The `Status` of an error. All fields are optional, since proxies send incomplete ones.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    pub(crate) kind: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) code: Option<u16>,
    pub(crate) details: Option<Details>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Details {
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) kind: String,
}

impl Status {
    /// Parses the body of an error. Returns an empty `Status` if the body can't be parsed.
    pub(crate) fn of(body: &[u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_default()
    }

    /// Whether a 404 is about this object. `details.kind` contains the plural name.
    pub(crate) fn is_about(&self, address: Address<'_>) -> bool {
        let is_this = |details: &Details| {
            details.name == address.name
                && details.group == address.resource.group
                && details.kind == address.resource.plural
        };
        self.kind == "Status" && self.reason == "NotFound" && self.details.as_ref().is_some_and(is_this)
    }
}

impl From<&kube::core::Status> for Status {
    fn from(status: &kube::core::Status) -> Self {
        let details = status.details.as_ref().map(|details| Details {
            name: details.name.clone(),
            group: details.group.clone(),
            kind: details.kind.clone(),
        });
        Self {
            kind: "Status".to_owned(),
            reason: status.reason.clone(),
            message: status.message.clone(),
            code: Some(status.code),
            details,
        }
    }
}

/// Whether a 404 is about the path and not about an object. API servers answer so for a group or version that is not served: in
/// plain text (`http.NotFound`) or as a Status without a name.
pub(crate) fn is_not_served(status: StatusCode, body: &[u8]) -> bool {
    if status != StatusCode::NOT_FOUND {
        return false;
    }
    if body.trim_ascii() == b"404 page not found" {
        return true;
    }
    let Status { kind, reason, details, .. } = Status::of(body);
    kind == "Status" && reason == "NotFound" && details.is_none_or(|details| details.name.is_empty())
}

pub(crate) fn not_served(who: &str, resource: &Resource) -> Failure {
    let version = resource.api_version();
    Failure::new(cause::NOT_SERVED, format!("{who} does not serve {resource} in {version} (404)"))
}

/// Returns the cause of an answer other than 200.
pub(crate) fn refusal(status: StatusCode, body: &[u8], verb: &str, resource: &Resource) -> Failure {
    refused(&Status { code: Some(status.as_u16()), ..Status::of(body) }, verb, resource)
}

/// Returns the cause of an error of kube's client. `who` names the server, for users with several kubeconfigs.
pub(crate) fn of_error(error: &kube::Error, who: &str, verb: &str, resource: &Resource) -> Failure {
    match error {
        // About an object, and not about its resource.
        kube::Error::Api(status)
            if status.is_not_found() && status.details.as_ref().is_some_and(|of| !of.name.is_empty()) =>
        {
            let failure = Failure::new(cause::REFUSED, brief(&status.message));
            Failure { kind: Some(ApiError::NotFound), ..failure }
        }
        kube::Error::Api(status) => refused(&Status::from(&**status), verb, resource),
        kube::Error::SerdeError(error) => {
            let text = format!("the answer cannot be parsed: {}", brief(&error.to_string()));
            Failure::new(cause::GARBAGE, text)
        }
        error => not_sent(error, who),
    }
}

/// Returns the cause of an error that the API server answered.
pub(crate) fn refused(parsed: &Status, verb: &str, resource: &Resource) -> Failure {
    let number = parsed.code.unwrap_or_default();
    let kind = ApiError::of(number, &parsed.reason);
    let (code, text) = match kind {
        ApiError::Credentials => {
            (cause::CREDENTIALS, "the API server does not accept Durward's credentials".to_owned())
        }
        ApiError::Forbidden => {
            (cause::FORBIDDEN, format!("Durward is not permitted to {verb} {resource} (RBAC: verb {verb})"))
        }
        ApiError::NotFound => {
            let doubt = if parsed.kind == "Status" {
                ""
            } else {
                "; it may be another program (404 without a Status)"
            };
            let version = resource.api_version();
            (cause::GARBAGE, format!("the API server does not know {resource} in {version}{doubt}"))
        }
        ApiError::Expired => (cause::BUSY, "the requested version has expired on the API server".to_owned()),
        ApiError::Unavailable => {
            (cause::BUSY, format!("the API server cannot answer now ({number}{})", message(&parsed.message)))
        }
        ApiError::Conflict | ApiError::Rejected => {
            (cause::REFUSED, format!("the API server answers {number}{}", message(&parsed.message)))
        }
    };
    Failure { kind: Some(kind), ..Failure::new(code, text) }
}

/// Returns the message of a `Status` as the end of a sentence.
pub(crate) fn message(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {}", brief(text)) }
}

/// Returns an error and its sources, from the outermost to the innermost.
pub(crate) fn chain<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'e (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

/// Returns the cause of a request without an answer. `who` names the server, for users with several kubeconfigs.
pub(crate) fn not_sent(error: &(dyn std::error::Error + 'static), who: &str) -> Failure {
    if let Some(error) = chain(error).find(|error| error.is::<kube::client::AuthError>()) {
        // The output of a credential plugin is not for the user of kubectl.
        tracing::debug!("no credentials: {}", with_sources(error));
        let text = "no credentials: the plugin or the token file of Durward's kubeconfig returned none";
        return Failure::new(cause::CREDENTIALS, text);
    }
    let innermost = chain(error).last().unwrap_or(error);
    if innermost.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == std::io::ErrorKind::TimedOut)
    {
        return Failure::new(cause::TIMEOUT, format!("{who} did not accept a connection in time"));
    }
    let why = brief(&innermost.to_string());
    Failure::new(cause::UNREACHABLE, format!("no connection to {who}: {why}"))
}

/// The name of an API server in messages that follow its answer.
pub(crate) const SERVER: &str = "the API server";

/// Returns the failure of a body that does not parse.
pub(crate) fn not_understood(error: &serde_json::Error, body: &[u8]) -> Failure {
    let begins = String::from_utf8_lossy(body.get(..40).unwrap_or(body)).into_owned();
    Failure::new(
        cause::GARBAGE,
        format!(
            "the answer cannot be parsed: {}; it starts with {:?}",
            brief(&error.to_string()),
            brief(&begins)
        ),
    )
}

/// Foreign text, short enough for a sentence around it.
pub(crate) fn brief(text: &str) -> String {
    excerpt(text, 160)
}

/// Shortens the text of a cause. The sentence is Durward's own, but names in it may be long.
pub(crate) fn short(cause: Cause) -> Cause {
    Cause { text: excerpt(&cause.text, 400), ..cause }
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::*;

    #[test]
    fn a_slow_connection_is_a_timeout_and_any_other_error_is_unreachable() {
        let late = not_sent(&Error::new(ErrorKind::TimedOut, "x"), "it");
        assert_eq!(late.cause, Cause::new(cause::TIMEOUT, "it did not accept a connection in time"));
        let refused = Error::new(ErrorKind::ConnectionRefused, "no");
        let refused = not_sent(&kube::Error::Service(Box::new(refused)), "it");
        assert_eq!(refused.cause, Cause::new(cause::UNREACHABLE, "no connection to it: no"));
    }
}
