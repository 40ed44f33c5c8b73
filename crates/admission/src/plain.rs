//! Texts as they go out: without what would forge lines, colours or directions on somebody's terminal, and no longer than an
//! answer may be. A guard repeats what others wrote, names and error messages among it; here is the last place to hold that.
//!
//! Fact: an answer that grows past what the API server reads is no answer, and with `failurePolicy: Ignore` that lets pass what
//! the guard refused. What is here stays far below it: 16 KiB, 256 KiB, warnings and audit annotations as `courtesy` has them.

use crate::verdict::{Cause, Denial, DenialCause};

/// A denial's message in bytes: a screen or two for a person; of what is longer the beginning and the way out at the end stay.
const MESSAGE: usize = 16 * 1024;
/// Of which this much is its end.
const MESSAGE_END: usize = 2 * 1024;
/// One cause's text in bytes.
const CAUSE: usize = 4 * 1024 - 2 * WORD;
/// Its reason and its field.
const WORD: usize = 256;
/// All causes together in bytes: a few thousand clusters, each with a line.
const CAUSES: usize = 256 * 1024;

/// The text on one line: control characters, line separators and signs that turn the direction of writing are blanks, and of
/// several blanks one stays.
#[must_use]
pub fn one_line(text: &str) -> String {
    // No list of words: it takes sixteen bytes for each, and a hostile text is all words of one letter.
    let mut line = String::with_capacity(text.len());
    let mut is_gap = false;
    for c in text.chars() {
        if c.is_whitespace() || !is_plain(c) {
            is_gap = !line.is_empty();
            continue;
        }
        if is_gap {
            line.push(' ');
            is_gap = false;
        }
        line.push(c);
    }
    line
}

/// The same, but lines stay lines.
fn lines(text: &str) -> String {
    text.chars().map(|c| if c == '\n' || is_plain(c) { c } else { ' ' }).collect()
}

fn is_plain(c: char) -> bool {
    let turns =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let breaks = matches!(c, '\u{2028}' | '\u{2029}');
    !(c.is_control() || turns || breaks)
}

/// At most this many bytes of it, the last `end` bytes among them.
fn cut(text: String, most: usize, end: usize) -> String {
    const MARK: &str = " … ";
    if text.len() <= most {
        return text;
    }
    let mark = if end == 0 { MARK.trim_end() } else { MARK };
    let is_boundary = |at: &usize| text.is_char_boundary(*at);
    let start = (0..=most - end - mark.len()).rev().find(is_boundary).unwrap_or_default();
    let rest = (text.len() - end..=text.len()).find(is_boundary).unwrap_or(text.len());
    let (start, rest) = (text.get(..start).unwrap_or_default(), text.get(rest..).unwrap_or_default());
    format!("{start}{mark}{rest}")
}

/// A denial as it goes out.
pub(crate) fn denial(denial: Denial) -> Denial {
    let whole = denial.causes.len();
    let mut room = CAUSES;
    let mut causes: Vec<DenialCause> = Vec::with_capacity(whole);
    for cause in denial.causes {
        let cause = DenialCause {
            reason: cut(one_line(&cause.reason), WORD, 0),
            message: cut(lines(&cause.message), CAUSE, 0),
            field: cut(one_line(&cause.field), WORD, 0),
        };
        let size = cause.reason.len() + cause.message.len() + cause.field.len();
        let Some(left) = room.checked_sub(size) else { break };
        room = left;
        causes.push(cause);
    }
    let more = whole - causes.len();
    if more > 0 {
        let message = format!("{more} more are not shown");
        causes.push(DenialCause { reason: "More".to_owned(), message, field: String::new() });
    }
    Denial { code: denial.code, message: cut(lines(&denial.message), MESSAGE, MESSAGE_END), causes }
}

/// A cause as it goes into the log and into warnings.
pub(crate) fn cause(cause: &Cause) -> Cause {
    Cause { code: cause.code, text: cut(one_line(&cause.text), CAUSE, 0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_line_in_one_direction() {
        assert_eq!(one_line("web\nError:\t\u{1b}[31mfine\u{9b}0m \u{2028} x"), "web Error: [31mfine 0m x");
        for turning in ["\u{202e}", "\u{2066}", "\u{2069}", "\u{200f}", "\u{61c}"] {
            assert_eq!(one_line(&format!("a{turning}b")), "a b");
        }
        assert_eq!(one_line(" \n  a \u{a0}\t b  \u{7} "), "a b");
        assert_eq!(one_line(" \r "), "");
        assert_eq!(one_line("é 日本 \u{200d}😀"), "é 日本 \u{200d}😀");
    }

    #[test]
    fn a_denial_keeps_its_own_lines_and_no_other_control_character() {
        let mut said = Denial::forbidden("in use\n\u{1b}[31m\u{202e}x\r");
        said.causes.push(DenialCause {
            reason: "In\nUse".into(),
            message: "a\u{7}\u{2067}b".into(),
            field: "m\n1\u{1b}".into(),
        });
        let out = denial(said);
        assert_eq!(out.message, "in use\n [31m x ");
        let cause = &out.causes[0];
        assert_eq!(
            (cause.reason.as_str(), cause.message.as_str(), cause.field.as_str()),
            ("In Use", "a  b", "m 1")
        );
    }

    #[test]
    fn a_message_that_is_too_long_keeps_its_beginning_and_the_way_out() {
        let out = denial(Denial::forbidden(format!("begins {} Empty it", "é".repeat(1 << 20)))).message;
        assert!(out.len() <= MESSAGE && out.len() > MESSAGE - 8, "{}", out.len());
        assert!(out.starts_with("begins é") && out.contains("é … é") && out.ends_with("é Empty it"));
        let fits = "x".repeat(MESSAGE);
        assert_eq!(denial(Denial::forbidden(fits.clone())).message, fits);
    }

    #[test]
    fn causes_are_bounded_each_and_together_and_the_rest_is_counted() {
        let long =
            || DenialCause { reason: "r".repeat(9000), message: "m".repeat(9000), field: "f".repeat(9000) };
        let many = Denial { causes: (0..5000).map(|_| long()).collect(), ..Denial::forbidden("in use") };
        let out = denial(many);
        let size = |cause: &DenialCause| cause.reason.len() + cause.message.len() + cause.field.len();
        assert!(out.causes.iter().all(|cause| size(cause) <= 4096));
        assert!(out.causes.iter().map(size).sum::<usize>() <= CAUSES + 64);
        assert_eq!(out.causes.len(), 65);
        assert_eq!(out.causes[64].message, "4936 more are not shown");
        let few = Denial { causes: vec![DenialCause::default(); 64], ..Denial::forbidden("in use") };
        assert_eq!(denial(few.clone()), few);
    }
}
