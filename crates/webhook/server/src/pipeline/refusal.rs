//! Requests that are not reviewed. Each has a status, a metric label and a sentence as `text/plain`. The API server passes the
//! text of a failed call on to the user only if it is `text/*`.

use std::time::Duration;

use admission::Malformed;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};

use crate::deadline::{BadTimeout, format_duration};

/// The reason why a request is not reviewed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// 404
    #[error(
        "unknown path {path}; guards are at: {known}. A path selects a guard, so it is fixed: \
         apply the webhook configuration that durward manifests prints"
    )]
    UnknownPath { path: String, known: String },
    /// 405
    #[error("method {method} is not allowed: send an AdmissionReview with POST")]
    Method { method: String },
    /// 411
    #[error("the request has no Content-Length; chunked bodies are not supported")]
    NoLength,
    /// 413
    #[error("the body has {length} bytes, more than the limit of {most} (server.limits.maxRequestBytes)")]
    TooLarge { length: u64, most: usize },
    /// 415
    #[error("the Content-Type is {got:?}; it must be application/json")]
    ContentType { got: String },
    /// 400
    #[error("{0}")]
    Timeout(#[from] BadTimeout),
    /// 400
    #[error("{0}")]
    Malformed(#[from] Malformed),
    /// 408
    #[error("only {arrived} of {length} bytes arrived within {}", format_duration(*.time))]
    Slow { length: usize, arrived: usize, time: Duration },
    /// 400
    #[error("only {arrived} of {length} bytes arrived before the connection ended")]
    Broken { length: usize, arrived: usize },
    /// 503
    #[error("too many concurrent requests (server.limits.maxConcurrentRequests); retry in a second")]
    TooManyReviews,
    /// 503
    #[error("requests and responses use all memory (server.limits.maxTotalBytes); retry in a second")]
    TooManyBytes,
}

impl Refusal {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::UnknownPath { .. } => StatusCode::NOT_FOUND,
            Self::Method { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::NoLength => StatusCode::LENGTH_REQUIRED,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::ContentType { .. } => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Timeout(_) | Self::Malformed(_) | Self::Broken { .. } => StatusCode::BAD_REQUEST,
            Self::Slow { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::TooManyReviews | Self::TooManyBytes => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Returns the label of `durward_requests_refused_total`.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::UnknownPath { .. } => "unknown_path",
            Self::Method { .. } => "method",
            Self::NoLength => "no_length",
            Self::TooLarge { .. } => "too_large",
            Self::ContentType { .. } => "content_type",
            Self::Timeout(_) => "timeout_syntax",
            Self::Malformed(_) => "malformed",
            Self::Slow { .. } => "slow_body",
            Self::Broken { .. } => "broken_body",
            Self::TooManyReviews | Self::TooManyBytes => "shed",
        }
    }

    /// Returns the label of `durward_shed_total` if a limit is the reason.
    pub(crate) fn shed(&self) -> Option<&'static str> {
        match self {
            Self::TooManyReviews => Some("in_flight"),
            Self::TooManyBytes => Some("bytes"),
            _ => None,
        }
    }

    /// Returns whether the connection must close: its body was not read to the end, or the caller should use another replica.
    fn closes(&self) -> bool {
        !matches!(self, Self::Malformed(_))
    }

    pub(crate) fn response(&self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(Bytes::from(format!("{self}\n"))));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        if self.closes() {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if self.shed().is_some() {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if matches!(self, Self::Method { .. }) {
            headers.insert(ALLOW, HeaderValue::from_static("POST"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_shed_requests_have_a_retry_after() {
        let shed = Refusal::TooManyBytes.response();
        assert_eq!(shed.status(), 503);
        assert_eq!(shed.headers()[RETRY_AFTER], "1");
        assert_eq!(shed.headers()[CONNECTION], "close");
        let other = Refusal::NoLength.response();
        assert!(!other.headers().contains_key(RETRY_AFTER));
    }

    #[test]
    fn a_malformed_review_keeps_the_connection_open() {
        assert!(!Refusal::Malformed(Malformed::NoRequest).response().headers().contains_key(CONNECTION));
    }
}
