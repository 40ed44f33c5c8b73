//! The faults and their answers.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use serde_json::{Value, json};

/// The answer to a request in place of the API server's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// No answer until the rule ends.
    Silence,
    /// A reset connection (RST).
    Reset,
    /// The true answer after this delay.
    Slow(Duration),
    /// 410 Expired, the API server's answer to an old continue token.
    Expired,
    /// 429 `TooManyRequests` with `Retry-After`, the answer of priority and fairness.
    TooMany {
        /// Seconds.
        retry_after: u32,
    },
    /// Another Status.
    Status {
        /// Its code, also the HTTP status.
        code: u16,
        /// Its reason.
        reason: &'static str,
        /// Its message.
        message: &'static str,
    },
    /// 500 with a Status without a reason, Karmada's answer to errors of its own.
    EmptyReason,
    /// 404 in plain text, the API server's answer for a group or version that it does not serve.
    NotFoundText,
    /// 200 with a JSON content type and a body that is not JSON.
    Garbage,
    /// 200 with plain text.
    Text,
    /// 200 with a web page, as of a captive portal or a load balancer.
    Html,
    /// 200 with an empty body.
    Empty,
    /// The first half of the true answer with its own length: truncated JSON.
    Cut,
    /// The first half of the true answer with the whole answer's length; then the connection breaks.
    BrokenOff,
    /// The true answer with another kind: `ConfigMapList` for a List, `ConfigMap` for an object.
    OtherKind,
    /// The true List with `"items": null`.
    ItemsNull,
    /// The first page again and again, each with a continue token.
    EndlessPages,
    /// A page with a continue token, and 410 Expired for that token.
    ExpiringPages,
    /// This answer.
    Answer {
        /// The code.
        status: u16,
        /// The `Content-Type`.
        content_type: &'static str,
        /// The body.
        body: String,
    },
}

/// The answer to one request.
pub(super) enum Step {
    /// This answer.
    Say(Response<Bytes>),
    /// The true answer without a continue token, changed by [`Fault::of`].
    Change,
}

/// A changed body. With a `claimed` length other than its own, the connection breaks at its end.
pub(super) struct Changed {
    pub(super) body: Bytes,
    pub(super) claimed: Option<usize>,
}

/// The continue token.
const AGAIN: &str = "e2e-again";

impl Fault {
    /// Returns the answer, or that the true answer is changed. The three faults that delay an answer change nothing.
    pub(super) fn step(&self, query: &str) -> Step {
        Step::Say(match self {
            Self::Expired => expired(),
            Self::ExpiringPages if query.contains(AGAIN) => expired(),
            Self::TooMany { retry_after } => {
                let mut answer = status(429, "TooManyRequests", "too many requests, please try again later");
                answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(*retry_after));
                answer
            }
            Self::Status { code, reason, message } => status(*code, reason, message),
            Self::EmptyReason => status(500, "", "the member's answer could not be understood"),
            Self::NotFoundText => say(404, "text/plain; charset=utf-8", "404 page not found\n"),
            Self::Garbage => say(200, "application/json", "{\"kind\":\"Pod\u{1}%%% out of order"),
            Self::Text => say(200, "text/plain; charset=utf-8", "the service is in maintenance\n"),
            Self::Html => say(200, "text/html", "<!doctype html><title>Welcome</title><h1>It works</h1>\n"),
            Self::Empty => say(200, "application/json", ""),
            Self::Answer { status, content_type, body } => say(*status, content_type, body.clone()),
            Self::Silence
            | Self::Reset
            | Self::Slow(_)
            | Self::Cut
            | Self::BrokenOff
            | Self::OtherKind
            | Self::ItemsNull
            | Self::EndlessPages
            | Self::ExpiringPages => return Step::Change,
        })
    }

    /// Changes the true answer. A body that is not a JSON object stays as it is.
    pub(super) fn of(&self, truth: Bytes) -> Changed {
        let half = truth.len() / 2;
        match self {
            Self::Cut => Changed { body: truth.slice(..half), claimed: None },
            Self::BrokenOff => Changed { body: truth.slice(..half), claimed: Some(truth.len()) },
            _ => {
                let Ok(mut object) = serde_json::from_slice::<Value>(&truth) else {
                    return Changed { body: truth, claimed: None };
                };
                self.change(&mut object);
                Changed { body: object.to_string().into(), claimed: None }
            }
        }
    }

    fn change(&self, object: &mut Value) {
        let is_list = object.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
        let Some(fields) = object.as_object_mut() else { return };
        match self {
            Self::OtherKind => {
                fields.insert("apiVersion".to_owned(), json!("v1"));
                let kind = if is_list { "ConfigMapList" } else { "ConfigMap" };
                fields.insert("kind".to_owned(), json!(kind));
            }
            Self::ItemsNull if is_list => {
                fields.insert("items".to_owned(), Value::Null);
            }
            Self::EndlessPages | Self::ExpiringPages if is_list => {
                if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
                    metadata.insert("continue".to_owned(), json!(AGAIN));
                }
            }
            _ => {}
        }
    }
}

fn expired() -> Response<Bytes> {
    let message = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.";
    status(410, "Expired", message)
}

fn status(code: u16, reason: &str, message: &str) -> Response<Bytes> {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {},
        "status": "Failure", "message": message, "reason": reason, "code": code,
    });
    say(code, "application/json", body.to_string())
}

fn say(code: u16, content_type: &str, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut answer = Response::new(body.into());
    *answer.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Ok(value) = HeaderValue::from_str(content_type) {
        answer.headers_mut().insert(CONTENT_TYPE, value);
    }
    answer
}
