//! Foreign text in log lines. Callers choose the names in a review, and a body can have 10 MiB, so a name must not fill the log.

use std::borrow::Cow;

use admission::text::truncate;

/// Limit of a value in a log line. Names in Kubernetes have at most 253 characters; names of users have no limit.
const MAX_CHARS: usize = 256;

/// Returns the value for a log line. The subscriber escapes it.
pub(crate) fn for_log(text: &str) -> Cow<'_, str> {
    truncate(text, MAX_CHARS)
}
