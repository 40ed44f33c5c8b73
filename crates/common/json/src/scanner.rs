//! A scanner over JSON text. It checks the grammar and returns spans, without a tree.
//!
//! `serde_json`'s `RawValue` skips a value too, but reading `metadata.labels` of a raw object needs a second pass. This scanner
//! does both in one pass. [`Raw::parse`] parses a span with `serde_json`.
//!
//! The limit of nesting is that of Go's `encoding/json` (10,000), so an object that an API server can store is not rejected.

use std::borrow::Cow;
use std::ops::Range;

use serde::Deserialize;

use crate::json_error::JsonError;
use crate::skip;
use crate::text::unescape;

/// The type of a JSON value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `{…}`
    Object,
    /// `[…]`
    Array,
    /// `"…"`
    String,
    /// A number.
    Number,
    /// `true` or `false`.
    Bool,
    /// `null`
    Null,
}

/// The text of one JSON value, checked by the scanner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Raw<'a>(&'a str);

impl<'a> Raw<'a> {
    /// `null`
    pub const NULL: Self = Self("null");

    /// Checks that `text` is one JSON value, and trims white space.
    pub fn from_text(text: &'a str) -> Result<Self, JsonError> {
        let mut scanner = Scanner::new(text);
        let raw = scanner.value()?;
        scanner.end()?;
        Ok(raw)
    }

    /// Returns the text of the value.
    pub fn get(self) -> &'a str {
        self.0
    }

    /// Returns the type of the value.
    pub fn shape(self) -> Shape {
        match self.0.as_bytes().first() {
            Some(b'{') => Shape::Object,
            Some(b'[') => Shape::Array,
            Some(b'"') => Shape::String,
            Some(b't' | b'f') => Shape::Bool,
            Some(b'n') => Shape::Null,
            _ => Shape::Number,
        }
    }

    /// Returns the value that a scanner over this value has read between two offsets. Returns none for an empty range.
    pub fn part(self, offsets: Range<usize>) -> Option<Self> {
        self.0.get(offsets).filter(|part| !part.is_empty()).map(Raw)
    }

    /// Returns the value if it is a string.
    pub fn text(self) -> Option<Cow<'a, str>> {
        let inner = self.0.strip_prefix('"')?.strip_suffix('"')?;
        Some(unescape(inner))
    }

    /// Returns whether the value is `true`.
    pub fn is_true(self) -> bool {
        self.0 == "true"
    }

    /// Parses the value.
    pub fn parse<T: Deserialize<'a>>(self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.0)
    }

    /// Returns a scanner over this value.
    pub fn scan(self) -> Scanner<'a> {
        Scanner::new(self.0)
    }
}

/// Reads one JSON text from start to end. Offsets are in bytes.
#[derive(Debug, Clone)]
pub struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    /// Creates a scanner at the start of `text`.
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Returns the offset of the next byte.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Skips white space and returns the type of the next value.
    #[inline]
    pub fn peek(&mut self) -> Result<Shape, JsonError> {
        match self.byte_after_white() {
            Some(b'{') => Ok(Shape::Object),
            Some(b'[') => Ok(Shape::Array),
            Some(b'"') => Ok(Shape::String),
            Some(b't' | b'f') => Ok(Shape::Bool),
            Some(b'n') => Ok(Shape::Null),
            Some(b'-' | b'0'..=b'9') => Ok(Shape::Number),
            _ => Err(skip::not_a_value(self.text.as_bytes(), self.at)),
        }
    }

    /// Reads the next value.
    pub fn value(&mut self) -> Result<Raw<'a>, JsonError> {
        self.byte_after_white();
        let start = self.at;
        self.skip()?;
        Ok(Raw(self.span(start, self.at)))
    }

    /// Skips the next value.
    pub fn skip(&mut self) -> Result<(), JsonError> {
        self.at = skip::value(self.text.as_bytes(), self.at)?;
        Ok(())
    }

    /// Reads the next value, which must be a string, without its escapes.
    // Inlined because many callers only compare or drop the text. The compiler then doesn't build the `Cow`.
    #[expect(clippy::inline_always, reason = "5 % fewer instructions for a review")]
    #[inline(always)]
    pub fn string(&mut self) -> Result<Cow<'a, str>, JsonError> {
        self.at = skip::white(self.text.as_bytes(), self.at);
        let start = self.at + 1;
        let Some(end) = skip::short_string(self.text.as_bytes(), self.at) else { return self.long_string() };
        self.at = end + 1;
        Ok(Cow::Borrowed(self.span(start, end)))
    }

    #[inline(never)]
    fn long_string(&mut self) -> Result<Cow<'a, str>, JsonError> {
        let start = self.at + 1;
        let (after, is_escaped) = skip::long_string(self.text.as_bytes(), self.at)?;
        self.at = after;
        let inner = self.span(start, after - 1);
        Ok(if is_escaped { unescape(inner) } else { Cow::Borrowed(inner) })
    }

    /// Reads an object. `each` is called with every key and must read or skip its value.
    pub fn object<E: From<JsonError>>(
        &mut self,
        mut each: impl FnMut(&mut Self, Cow<'a, str>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.expect(b'{', "an object is expected")?;
        if self.closes(b'}') {
            return Ok(());
        }
        loop {
            let key = self.string()?;
            self.expect(b':', "a colon is expected after the key")?;
            each(self, key)?;
            match self.byte_after_white() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.error("a comma or } is expected").into()),
            }
        }
    }

    /// Reads an array. `each` is called with every index and must read or skip the element.
    pub fn array<E: From<JsonError>>(
        &mut self,
        mut each: impl FnMut(&mut Self, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        self.expect(b'[', "an array is expected")?;
        if self.closes(b']') {
            return Ok(());
        }
        for index in 0.. {
            each(self, index)?;
            if self.closes(b']') {
                break;
            }
            self.expect(b',', "a comma or ] is expected")?;
        }
        Ok(())
    }

    /// Returns the value between this scanner and `later`, which has read exactly that value.
    pub fn value_until(&mut self, later: &Self) -> Raw<'a> {
        self.byte_after_white();
        Raw(self.span(self.at, later.at))
    }

    /// Checks that only white space is left.
    pub fn end(&mut self) -> Result<(), JsonError> {
        match self.byte_after_white() {
            Some(_) => Err(self.error("unexpected text after the end of the value")),
            None => Ok(()),
        }
    }

    #[inline]
    fn expect(&mut self, byte: u8, what: &'static str) -> Result<(), JsonError> {
        self.at = skip::expect(self.text.as_bytes(), self.at, byte, what)?;
        Ok(())
    }

    #[inline]
    fn closes(&mut self, bracket: u8) -> bool {
        let closes = self.byte_after_white() == Some(bracket);
        if closes {
            self.at += 1;
        }
        closes
    }

    /// Skips white space and returns the next byte.
    #[inline]
    fn byte_after_white(&mut self) -> Option<u8> {
        self.at = skip::white(self.text.as_bytes(), self.at);
        self.text.as_bytes().get(self.at).copied()
    }

    #[inline]
    fn span(&self, start: usize, end: usize) -> &'a str {
        // Both ends are beside ASCII bytes, so they are character boundaries.
        self.text.get(start..end).unwrap_or_default()
    }

    fn error(&self, what: &'static str) -> JsonError {
        JsonError { at: self.at, what }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::skip::MAX_DEPTH;

    fn accepts(text: &str) -> bool {
        Raw::from_text(text).is_ok()
    }

    #[test]
    fn accepts_only_json() {
        for good in ["{}", " [ ] ", "[1,2.5e-3,-0]", r#"{"a":{"b":[null,true,false]}}"#, r#""\u00e9\n""#, "0"]
        {
            assert!(accepts(good), "{good}");
        }
        for bad in [
            "",
            "{",
            "[1,]",
            "{\"a\"}",
            "{\"a\":1,}",
            "{a:1}",
            "01",
            "1.",
            "-",
            "+1",
            "tru",
            "nul",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\n\"",
            "[1 2]",
            "{\"a\":1 \"b\":2}",
            "[}",
            "{]",
            "1 2",
            "'a'",
            "NaN",
            "\u{feff}{}",
        ] {
            assert!(!accepts(bad), "{bad:?}");
        }
    }

    #[test]
    fn limits_nesting_as_go_does() {
        assert!(accepts(&("[".repeat(MAX_DEPTH) + "1" + &"]".repeat(MAX_DEPTH))));
        assert!(!accepts(&("[".repeat(MAX_DEPTH + 1) + "1" + &"]".repeat(MAX_DEPTH + 1))));
        let mixed = "{\"a\":[".repeat(200) + "1" + &"]}".repeat(200);
        assert!(accepts(&mixed));
        assert!(!accepts(&mixed.replace("1]", "1}")));
    }

    #[test]
    fn matches_the_brackets_of_every_level() {
        for depth in (1..130).chain([MAX_DEPTH - 1, MAX_DEPTH]) {
            let open = |level: usize| if level.is_multiple_of(3) { "{\"a\":" } else { "[" };
            let close = |level: usize| if level.is_multiple_of(3) { "}" } else { "]" };
            let before: String = (0..depth).map(open).collect();
            let after: Vec<&str> = (0..depth).rev().map(close).collect();
            assert!(accepts(&format!("{before}1{}", after.concat())), "{depth}");
            assert!(!accepts(&format!("{before}1{}", after[1..].concat())), "{depth}");
            for wrong in [0, depth / 2, depth - 1] {
                let mut after = after.clone();
                after[wrong] = if after[wrong] == "}" { "]" } else { "}" };
                assert!(!accepts(&format!("{before}1{}", after.concat())), "{depth} {wrong}");
            }
        }
    }

    #[test]
    fn finds_the_end_of_a_string_at_every_alignment() {
        for length in 0..40 {
            let text = format!("\"{}\\\"{}\"", "é".repeat(length), "x".repeat(length));
            assert_eq!(Raw::from_text(&text).map(Raw::get), Ok(text.as_str()));
        }
    }

    /// A step of the scanner reads several bytes, so each byte is tried at each place of a step and beside any other.
    #[test]
    fn agrees_with_serde_json_on_every_byte_at_every_offset() {
        for filler in ["x", "é", "\u{7f}", " "] {
            for (byte, offset) in (0..128_u8).flat_map(|byte| (0..36).map(move |offset| (byte, offset))) {
                let (before, after) = (filler.repeat(offset), filler.repeat(36 - offset));
                let text = format!("[\"{before}{}{after}\"]", char::from(byte));
                let expected = serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok();
                assert_eq!(accepts(&text), expected, "{text:?}");
            }
        }
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<f32>().prop_map(|f| serde_json::json!(f)),
            ".*".prop_map(Into::into),
        ];
        leaf.prop_recursive(6, 64, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Into::into),
                prop::collection::hash_map(".*", inner, 0..8)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn accepts_every_document_that_serde_json_writes(value in json()) {
            let text = serde_json::to_string_pretty(&value).unwrap();
            let raw = Raw::from_text(&text).unwrap();
            prop_assert_eq!(raw.parse::<serde_json::Value>().unwrap(), serde_json::from_str::<serde_json::Value>(&text).unwrap());
        }

        #[test]
        fn agrees_with_serde_json_on_damaged_documents(value in json(), at in any::<prop::sample::Index>(), byte in 0u8..128) {
            let mut text = serde_json::to_string(&value).unwrap().into_bytes();
            let at = at.index(text.len());
            text[at] = byte;
            if let Ok(text) = String::from_utf8(text) {
                let expected = serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok();
                prop_assert_eq!(accepts(&text), expected, "{}", text);
            }
        }

        #[test]
        fn reads_every_string_as_serde_json_does(text in ".*") {
            let quoted = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(Raw::from_text(&quoted).unwrap().text().unwrap().into_owned(), text);
        }
    }
}
