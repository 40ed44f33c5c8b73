//! Bounds for strings of a pod.
//!
//! The API server checks lengths after mutating webhooks. Before that, a name, a path or an annotation can be as long as the review.
//! Copies of it are not in any memory budget.
//!
//! A longer string makes the pod unreadable. The API server rejects such a pod, or no container starts with it.

use std::borrow::Cow;

use admission::Raw;
use admission::text::truncate;

/// Bound of all annotations of an object (`TotalAnnotationSizeLimitB` in `apimachinery/pkg/api/validation`).
pub(super) const MAX_ANNOTATIONS: usize = 256 << 10;
/// Bound of names in Kubernetes (a DNS subdomain). Names of containers and volumes have at most 63 bytes.
pub(super) const MAX_NAME: usize = 253;
/// Bound of paths in Linux (`PATH_MAX`).
pub(super) const MAX_PATH: usize = 4096;

/// Bound of the characters of a pod's string in a message. Names of containers and namespaces have at most 63.
const MAX_CHARS: usize = 64;

/// Bytes that JSON needs for one byte of a string, as in `\u0041`.
const ESCAPED: usize = 6;
const QUOTES: usize = 2;

/// Error: a string is longer than its bound.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Returns a string of at most `max` bytes, or none for another type. A string that is much longer is not unescaped.
pub(super) fn text(value: Raw<'_>, max: usize) -> Result<Option<Cow<'_, str>>, TooLong> {
    if value.get().len() > ESCAPED * max + QUOTES {
        return Err(TooLong);
    }
    match value.text() {
        Some(text) if text.len() > max => Err(TooLong),
        other => Ok(other),
    }
}

/// Returns a required name. The error is the end of a sentence.
pub(super) fn name(value: Option<Raw<'_>>) -> Result<Cow<'_, str>, &'static str> {
    optional(value, MAX_NAME, "has a name longer than 253 bytes")?.ok_or("has no name")
}

/// Returns a string that can be absent, or `problem` if it is too long.
pub(super) fn optional<'a>(
    value: Option<Raw<'a>>,
    max: usize,
    problem: &'static str,
) -> Result<Option<Cow<'a, str>>, &'static str> {
    value.map_or(Ok(None), |value| text(value, max)).map_err(|TooLong| problem)
}

/// Returns as much of a pod's string as a message contains.
pub(super) fn shortened(value: &str) -> Cow<'_, str> {
    truncate(value, MAX_CHARS)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::fixture::with_pod;
    use super::super::pod::PodField;
    use super::*;

    #[test]
    fn counts_unescaped_bytes() {
        let read = |value: &Value| {
            with_pod(&json!({"metadata": {}, "spec": {"nodeName": value}}), |pod| {
                text(pod.field(PodField::NodeName).unwrap(), 4).map(|text| text.map(Cow::into_owned))
            })
        };
        assert_eq!(read(&json!("abcd")), Ok(Some("abcd".to_owned())));
        assert_eq!(read(&json!("\u{1}\u{1}\u{1}\u{1}")), Ok(Some("\u{1}\u{1}\u{1}\u{1}".to_owned())));
        assert_eq!(read(&json!("abcde")), Err(TooLong));
        assert_eq!(read(&json!("ééé")), Err(TooLong));
        assert_eq!(read(&json!("x".repeat(1 << 20))), Err(TooLong));
        assert_eq!(read(&json!(7)), Ok(None));
    }
}
