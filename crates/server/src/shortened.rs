//! Foreign text in a log line or an answer. Whoever reaches the port chooses the names in a review, and a body may be 8 MiB: as
//! long as a name may be, it must not fill the log.

use std::borrow::Cow;

/// So many characters of one value stand in a log line. Names of Kubernetes end at 253; names of users have no end of their
/// own.
const LINE: usize = 256;

/// `text` as it stands in a log line.
pub(crate) fn in_line(text: &str) -> Cow<'_, str> {
    to(LINE, text)
}

/// `text`, or its first `most` characters and a sign that there were more.
pub(crate) fn to(most: usize, text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        None => Cow::Borrowed(text),
        Some((end, _)) => Cow::Owned(format!("{}…", text.get(..end).unwrap_or_default())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_longer_than_a_line_is_cut_between_characters() {
        assert!(matches!(in_line("shop"), Cow::Borrowed("shop")));
        let name = "ü".repeat(LINE);
        assert_eq!(in_line(&name), name);
        assert_eq!(in_line(&format!("{name}x")), format!("{name}…"));
    }
}
