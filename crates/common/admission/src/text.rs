//! Cleans and cuts text from outside before it is part of an answer, a log line or terminal output.
//!
//! Names and error messages in a review can contain line breaks, escape sequences and direction signs. Such text could forge
//! lines, colors or a reading direction on the terminal of the reader.

use std::borrow::Cow;

/// Returns false for a character that moves the cursor, breaks a line, or turns the direction of the text around it.
#[must_use]
pub fn is_printable(c: char) -> bool {
    let is_direction =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_line_break = matches!(c, '\u{2028}' | '\u{2029}');
    !(c.is_control() || is_direction || is_line_break)
}

/// Returns the text on one line: each run of white space and unprintable characters becomes one blank.
#[must_use]
pub fn one_line(text: &str) -> String {
    // Most texts are already on one line, for instance a name.
    if text.split(' ').all(|word| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_graphic())) {
        return text.to_owned();
    }
    // `split_whitespace` and `collect` would need 16 bytes for each word, and hostile text can consist of one-letter words.
    let mut line = String::with_capacity(text.len());
    let mut is_gap = false;
    for c in text.chars() {
        if c.is_whitespace() || !is_printable(c) {
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

/// Returns the text with its line breaks, and a blank for every other unprintable character.
#[must_use]
pub fn lines(text: &str) -> String {
    text.chars().map(|c| if c == '\n' || is_printable(c) { c } else { ' ' }).collect()
}

/// Returns the first `max_chars` characters. If more follow, the last one is an ellipsis.
#[must_use]
pub fn truncate(text: &str, max_chars: usize) -> Cow<'_, str> {
    if text.char_indices().nth(max_chars).is_none() {
        return Cow::Borrowed(text);
    }
    let end = text.char_indices().nth(max_chars.saturating_sub(1)).map_or(0, |(at, _)| at);
    Cow::Owned(format!("{}…", text.get(..end).unwrap_or_default()))
}

/// Returns the beginning of foreign text on one line, short enough to be part of a sentence.
#[must_use]
pub fn excerpt(text: &str, max_chars: usize) -> String {
    one_line(&truncate(text, max_chars))
}

/// Cuts the middle out of a text that is longer than `max_bytes`, so that the last `end_bytes` stay.
#[must_use]
pub(crate) fn truncate_middle(text: String, max_bytes: usize, end_bytes: usize) -> String {
    const MARK: &str = " … ";
    if text.len() <= max_bytes {
        return text;
    }
    let mark = if end_bytes == 0 { MARK.trim_end() } else { MARK };
    let is_boundary = |at: &usize| text.is_char_boundary(*at);
    let head = (0..=max_bytes - end_bytes - mark.len()).rev().find(is_boundary).unwrap_or_default();
    let tail = (text.len() - end_bytes..=text.len()).find(is_boundary).unwrap_or(text.len());
    format!("{}{mark}{}", text.get(..head).unwrap_or_default(), text.get(tail..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn puts_text_on_one_line_without_control_and_direction_characters() {
        assert_eq!(one_line("web\nError:\t\u{1b}[31mfine\u{9b}0m \u{2028} x"), "web Error: [31mfine 0m x");
        for sign in ["\u{202e}", "\u{2066}", "\u{2069}", "\u{200f}", "\u{61c}"] {
            assert_eq!(one_line(&format!("a{sign}b")), "a b");
        }
        assert_eq!(one_line(" \n  a \u{a0}\t b  \u{7} "), "a b");
        assert_eq!(one_line(" \r "), "");
        assert_eq!(one_line("é 日本 \u{200d}😀"), "é 日本 \u{200d}😀");
    }

    #[test]
    fn keeps_line_breaks_and_no_other_control_character() {
        assert_eq!(lines("in use\n\u{1b}[31m\u{202e}x\r"), "in use\n [31m x ");
    }

    #[test]
    fn truncates_between_characters() {
        assert!(matches!(truncate("shop", 4), Cow::Borrowed("shop")));
        assert_eq!(truncate("üüüüü", 4), "üüü…");
        assert_eq!(truncate("shop", 0), "…");
        assert_eq!(excerpt("a\n\u{1b}bcdef", 5), "a b…");
    }

    #[test]
    fn truncates_the_middle_and_keeps_the_end() {
        let text = truncate_middle(format!("begins {} Empty it", "é".repeat(1 << 10)), 100, 20);
        assert!(text.len() <= 100 && text.len() > 90, "{}", text.len());
        assert!(text.starts_with("begins é") && text.contains("é … é") && text.ends_with("é Empty it"));
        assert_eq!(truncate_middle("x".repeat(100), 100, 20), "x".repeat(100));
    }
}
