//! Escapes in JSON strings.

use std::borrow::Cow;

/// Returns a string that the scanner has checked without its escapes. Half a surrogate pair becomes U+FFFD, as in Go.
pub(crate) fn unescape(inner: &str) -> Cow<'_, str> {
    let Some(first) = inner.find('\\') else { return Cow::Borrowed(inner) };
    let (plain, mut rest) = inner.split_at(first);
    let mut out = String::with_capacity(inner.len());
    out.push_str(plain);
    while let Some(tail) = rest.strip_prefix('\\') {
        let mut chars = tail.chars();
        match chars.next() {
            Some('b') => out.push('\u{8}'),
            Some('f') => out.push('\u{c}'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('u') => {
                let (char, after) = unicode_escape(chars.as_str());
                out.push(char);
                chars = after.chars();
            }
            Some(other) => out.push(other),
            None => {}
        }
        let tail = chars.as_str();
        let next = tail.find('\\').unwrap_or(tail.len());
        let (plain, escape) = tail.split_at(next);
        out.push_str(plain);
        rest = escape;
    }
    Cow::Owned(out)
}

/// Reads the four digits after `\u`, and the second half of a surrogate pair if it follows.
fn unicode_escape(text: &str) -> (char, &str) {
    let unit = |text: &str| text.get(..4).and_then(|hex| u32::from_str_radix(hex, 16).ok());
    let Some(first) = unit(text) else { return (char::REPLACEMENT_CHARACTER, text) };
    let rest = text.get(4..).unwrap_or_default();
    if (0xd800..0xdc00).contains(&first)
        && let Some(low) = rest.strip_prefix("\\u").and_then(unit)
        && (0xdc00..0xe000).contains(&low)
    {
        let code = 0x1_0000 + ((first - 0xd800) << 10) + (low - 0xdc00);
        return (
            char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER),
            rest.get(6..).unwrap_or_default(),
        );
    }
    (char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unescapes_as_go_does() {
        assert_eq!(unescape(r"a\/b\u00e9\t\\"), "a/bé\t\\");
        assert_eq!(unescape(r"\ud83d\ude00!"), "😀!");
        assert_eq!(unescape(r"\ud83dx\ude00"), "\u{fffd}x\u{fffd}");
    }
}
