//! A scanner over JSON text. It checks the grammar and returns spans, without a tree.
//!
//! `serde_json`'s `RawValue` skips a value too, but reading `metadata.labels` of a raw object needs a second pass. This scanner
//! does both in one pass. [`Raw::parse`] parses a span with `serde_json`.
//!
//! The limit of nesting is that of Go's `encoding/json` (10,000), so an object that an API server can store is not rejected.

use std::borrow::Cow;

use serde::Deserialize;

use crate::text::unescape;

/// Limit of nested arrays and objects, as in Go's `encoding/json`.
const MAX_DEPTH: usize = 10_000;

/// Error: a text is not JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {at}")]
pub struct JsonError {
    /// Offset of the invalid byte.
    pub at: usize,
    /// The error, as the end of a sentence.
    pub what: &'static str,
}

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
    pub fn peek(&mut self) -> Result<Shape, JsonError> {
        self.white();
        match self.byte() {
            Some(b'{') => Ok(Shape::Object),
            Some(b'[') => Ok(Shape::Array),
            Some(b'"') => Ok(Shape::String),
            Some(b't' | b'f') => Ok(Shape::Bool),
            Some(b'n') => Ok(Shape::Null),
            Some(b'-' | b'0'..=b'9') => Ok(Shape::Number),
            Some(_) => {
                Err(self.error("a value must begin with one of {, [, \", a digit, -, true, false, null"))
            }
            None => Err(self.error("the text ends where a value is expected")),
        }
    }

    /// Reads the next value.
    pub fn value(&mut self) -> Result<Raw<'a>, JsonError> {
        self.white();
        let start = self.at;
        self.skip_value()?;
        Ok(Raw(self.span(start, self.at)))
    }

    /// Skips the next value.
    pub fn skip(&mut self) -> Result<(), JsonError> {
        self.skip_value()
    }

    /// Reads the next value, which must be a string, without its escapes.
    pub fn string(&mut self) -> Result<Cow<'a, str>, JsonError> {
        self.white();
        if self.byte() != Some(b'"') {
            return Err(self.error("a string is expected"));
        }
        let start = self.at + 1;
        let escaped = self.skip_string()?;
        let inner = self.span(start, self.at - 1);
        Ok(if escaped { unescape(inner) } else { Cow::Borrowed(inner) })
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
            if self.closes(b'}') {
                return Ok(());
            }
            self.expect(b',', "a comma or } is expected")?;
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
        self.white();
        Raw(self.span(self.at, later.at))
    }

    /// Checks that only white space is left.
    pub fn end(&mut self) -> Result<(), JsonError> {
        self.white();
        if self.at < self.text.len() {
            Err(self.error("unexpected text after the end of the value"))
        } else {
            Ok(())
        }
    }

    /// Skips a value without recursion. `open` has for each level whether it is an object.
    fn skip_value(&mut self) -> Result<(), JsonError> {
        let mut open = Levels::default();
        loop {
            match self.peek()? {
                Shape::Object => {
                    self.at += 1;
                    if !self.closes(b'}') {
                        open.push(true).map_err(|what| self.error(what))?;
                        self.key()?;
                        continue;
                    }
                }
                Shape::Array => {
                    self.at += 1;
                    if !self.closes(b']') {
                        open.push(false).map_err(|what| self.error(what))?;
                        continue;
                    }
                }
                Shape::String => {
                    self.skip_string()?;
                }
                Shape::Number => self.skip_number()?,
                Shape::Bool | Shape::Null => self.skip_word()?,
            }
            // A value has ended: close its parents, or continue with its sibling.
            loop {
                match open.innermost() {
                    None => return Ok(()),
                    Some(true) if self.closes(b'}') => open.pop(),
                    Some(false) if self.closes(b']') => open.pop(),
                    Some(in_object) => {
                        self.expect(
                            b',',
                            if in_object { "a comma or } is expected" } else { "a comma or ] is expected" },
                        )?;
                        if in_object {
                            self.key()?;
                        }
                        break;
                    }
                }
            }
        }
    }

    fn key(&mut self) -> Result<(), JsonError> {
        self.white();
        if self.byte() != Some(b'"') {
            return Err(self.error("a key in double quotes is expected"));
        }
        self.skip_string()?;
        self.expect(b':', "a colon is expected after the key")
    }

    /// Skips a string from its opening quote. Returns whether it has escapes.
    fn skip_string(&mut self) -> Result<bool, JsonError> {
        let bytes = self.text.as_bytes();
        let mut at = self.at + 1;
        let mut escaped = false;
        loop {
            at = plain_until(bytes, at);
            match bytes.get(at) {
                Some(b'"') => {
                    self.at = at + 1;
                    return Ok(escaped);
                }
                Some(b'\\') => {
                    escaped = true;
                    at += match bytes.get(at + 1) {
                        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 2,
                        Some(b'u')
                            if bytes
                                .get(at + 2..at + 6)
                                .is_some_and(|h| h.iter().all(u8::is_ascii_hexdigit)) =>
                        {
                            6
                        }
                        _ => return Err(JsonError { at, what: "invalid escape in a string" }),
                    };
                }
                Some(_) => {
                    return Err(JsonError { at, what: "a control character must be escaped in a string" });
                }
                None => return Err(JsonError { at, what: "the text ends within a string" }),
            }
        }
    }

    fn skip_number(&mut self) -> Result<(), JsonError> {
        if self.byte() == Some(b'-') {
            self.at += 1;
        }
        match self.byte() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.error("a digit is expected")),
        }
        if self.byte() == Some(b'.') {
            self.at += 1;
            self.some_digits()?;
        }
        if matches!(self.byte(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.byte(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.some_digits()?;
        }
        Ok(())
    }

    fn some_digits(&mut self) -> Result<(), JsonError> {
        let before = self.at;
        self.digits();
        if self.at == before { Err(self.error("a digit is expected")) } else { Ok(()) }
    }

    fn digits(&mut self) {
        while matches!(self.byte(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
    }

    fn skip_word(&mut self) -> Result<(), JsonError> {
        let rest = &self.text.as_bytes()[self.at..];
        for word in ["true", "false", "null"] {
            if rest.starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(());
            }
        }
        Err(self.error("true, false or null is expected"))
    }

    fn expect(&mut self, byte: u8, what: &'static str) -> Result<(), JsonError> {
        self.white();
        if self.byte() == Some(byte) {
            self.at += 1;
            Ok(())
        } else {
            Err(self.error(what))
        }
    }

    fn closes(&mut self, bracket: u8) -> bool {
        self.white();
        let closes = self.byte() == Some(bracket);
        if closes {
            self.at += 1;
        }
        closes
    }

    fn white(&mut self) {
        while matches!(self.byte(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn span(&self, start: usize, end: usize) -> &'a str {
        // Both ends are ASCII bytes, so they are character boundaries.
        self.text.get(start..end).unwrap_or_default()
    }

    fn error(&self, what: &'static str) -> JsonError {
        JsonError { at: self.at, what }
    }
}

/// For each open level, whether it is an object (true) or an array. The first 64 levels need no allocation.
#[derive(Default)]
struct Levels {
    depth: usize,
    near: u64,
    far: Vec<bool>,
}

impl Levels {
    fn push(&mut self, object: bool) -> Result<(), &'static str> {
        if self.depth >= MAX_DEPTH {
            return Err("arrays and objects are nested deeper than 10000 levels");
        }
        if self.depth < 64 {
            let bit = 1 << self.depth;
            self.near = if object { self.near | bit } else { self.near & !bit };
        } else {
            self.far.push(object);
        }
        self.depth += 1;
        Ok(())
    }

    fn innermost(&self) -> Option<bool> {
        let level = self.depth.checked_sub(1)?;
        if level < 64 { Some(self.near >> level & 1 == 1) } else { self.far.last().copied() }
    }

    fn pop(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        if self.depth >= 64 {
            self.far.pop();
        }
    }
}

/// Returns the offset of the next quote, backslash or control character. It reads eight bytes at a time, because most of a large
/// review is a string of a config map.
fn plain_until(bytes: &[u8], mut at: usize) -> usize {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    while let Some(chunk) = bytes.get(at..at + 8).and_then(|chunk| <[u8; 8]>::try_from(chunk).ok()) {
        let word = u64::from_le_bytes(chunk);
        let quote = word ^ (LOW * u64::from(b'"'));
        let slash = word ^ (LOW * u64::from(b'\\'));
        // The usual tests for a zero byte and for a byte below n. `!word` excludes bytes above 0x7f.
        let found = (quote.wrapping_sub(LOW) & !quote
            | slash.wrapping_sub(LOW) & !slash
            | word.wrapping_sub(LOW * 0x20) & !word)
            & HIGH;
        if found != 0 {
            return at + (found.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while bytes.get(at).is_some_and(|&byte| byte != b'"' && byte != b'\\' && byte >= 0x20) {
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
    fn finds_the_end_of_a_string_at_every_alignment() {
        for length in 0..40 {
            let text = format!("\"{}\\\"{}\"", "é".repeat(length), "x".repeat(length));
            assert_eq!(Raw::from_text(&text).map(Raw::get), Ok(text.as_str()));
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
