//! How long a text of the pod may be. The API server looks at lengths only after mutating webhooks; before that a name, a path
//! or an annotation may be as long as the review, and what is made of it in memory is counted by nobody.
//!
//! A longer text makes the pod unreadable: it is refused by the API server itself, or no container starts with it.

use std::borrow::Cow;

use admission::Raw;

/// All annotations of an object together may have 256 KiB (`TotalAnnotationSizeLimitB` in `apimachinery/pkg/api/validation`).
pub(super) const ANNOTATIONS: usize = 256 << 10;
/// No name of Kubernetes has more bytes (a DNS subdomain); those of containers and volumes may have 63.
pub(super) const NAME: usize = 253;
/// No path that Linux opens has more bytes (`PATH_MAX`).
pub(super) const PATH: usize = 4096;

/// In JSON one byte of a text takes six at most, as in `\u0041`; and there are the quotes.
const ESCAPED: usize = 6;
const QUOTES: usize = 2;

/// A text that has more bytes than it may.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// The text of a value of at most so many bytes; none if it is no text. What is much longer is not even unescaped.
pub(super) fn text(value: Raw<'_>, most: usize) -> Result<Option<Cow<'_, str>>, TooLong> {
    if value.get().len() > ESCAPED * most + QUOTES {
        return Err(TooLong);
    }
    match value.text() {
        Some(text) if text.len() > most => Err(TooLong),
        other => Ok(other),
    }
}

/// The name in a value that has to be one, or what is wrong with it.
pub(super) fn name(value: Option<Raw<'_>>) -> Result<Cow<'_, str>, &'static str> {
    let text = value.map_or(Ok(None), |value| text(value, NAME));
    text.map_err(|TooLong| "has a name longer than any name may be")?.ok_or("has no name")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::fixture::with_pod;
    use super::super::pod::NODE_NAME;
    use super::*;

    #[test]
    fn a_text_may_be_as_long_as_its_bound_however_it_is_written() {
        let read = |value: &Value| {
            with_pod(&json!({"metadata": {}, "spec": {"nodeName": value}}), |pod| {
                text(pod.field(NODE_NAME).unwrap(), 4).map(|text| text.map(Cow::into_owned))
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
