//! Events of JSON: values one after the other.

use std::borrow::Cow;

use super::event::{Event, Fault, Item};
use super::scalar::Scalar;

const NEXT: &str = "check the commas, quotes and brackets up to this place";

/// The events of a text.
pub(super) struct Events<'t> {
    text: &'t str,
    at: usize,
    /// Whether each open value is a map.
    open: Vec<bool>,
    expected: Expected,
}

enum Expected {
    /// A document or the end of the text.
    Document,
    Value,
    FirstItem,
    FirstKey,
    Key,
    /// A comma, or the end of the open list, map or document.
    Next,
    /// The end, since the text has an error.
    Stopped,
}

impl<'t> Events<'t> {
    /// Starts at an offset.
    pub(super) fn new(text: &'t str, at: usize) -> Self {
        Self { text, at, open: Vec::new(), expected: Expected::Document }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\t' | b'\r')) {
            self.at += 1;
        }
    }

    fn fault(&self, message: &'static str) -> Fault {
        let message = if self.at >= self.text.len() { "the text ends too early" } else { message };
        Fault::syntax(self.at, format!("this is not JSON: {message}"), NEXT)
    }

    fn event(&mut self) -> Result<Option<(Event<'t>, usize)>, Fault> {
        loop {
            let ended = self.at;
            self.skip_space();
            let (start, byte) = (self.at, self.peek());
            match self.expected {
                Expected::Stopped => return Ok(None),
                Expected::Document => {
                    if byte.is_none() {
                        return Ok(None);
                    }
                    self.expected = Expected::Value;
                    return Ok(Some((Event::DocumentStart, start)));
                }
                Expected::FirstItem if byte == Some(b']') => return Ok(Some(self.close(start))),
                Expected::FirstItem => self.expected = Expected::Value,
                Expected::FirstKey if byte == Some(b'}') => return Ok(Some(self.close(start))),
                Expected::FirstKey | Expected::Key => return self.key().map(|key| Some((key, start))),
                Expected::Value => return self.value().map(|value| Some((value, start))),
                Expected::Next => match (self.open.last(), byte) {
                    (None, _) => {
                        self.expected = Expected::Document;
                        return Ok(Some((Event::DocumentEnd, ended)));
                    }
                    (Some(is_map), Some(b',')) => {
                        self.expected = if *is_map { Expected::Key } else { Expected::Value };
                        self.at += 1;
                    }
                    (Some(true), Some(b'}')) | (Some(false), Some(b']')) => {
                        return Ok(Some(self.close(start)));
                    }
                    (Some(true), _) => return Err(self.fault("expected ',' or '}'")),
                    (Some(false), _) => return Err(self.fault("expected ',' or ']'")),
                },
            }
        }
    }

    fn close(&mut self, start: usize) -> (Event<'t>, usize) {
        self.at += 1;
        self.open.pop();
        self.expected = Expected::Next;
        (Event::End, start)
    }

    fn key(&mut self) -> Result<Event<'t>, Fault> {
        if self.peek() != Some(b'"') {
            return Err(self.fault("expected a key in double quotes"));
        }
        let text = self.string()?;
        self.skip_space();
        if self.peek() != Some(b':') {
            return Err(self.fault("expected ':'"));
        }
        self.at += 1;
        self.expected = Expected::Value;
        Ok(Event::Scalar { scalar: Scalar::Text(text), anchor: 0, merges: false })
    }

    fn value(&mut self) -> Result<Event<'t>, Fault> {
        let scalar = match self.peek() {
            Some(b'{') => {
                self.at += 1;
                self.open.push(true);
                self.expected = Expected::FirstKey;
                return Ok(Event::MapStart(0));
            }
            Some(b'[') => {
                self.at += 1;
                self.open.push(false);
                self.expected = Expected::FirstItem;
                return Ok(Event::ListStart(0));
            }
            Some(b'"') => Scalar::Text(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => self.word()?,
        };
        self.expected = Expected::Next;
        Ok(Event::Scalar { scalar, anchor: 0, merges: false })
    }

    fn word(&mut self) -> Result<Scalar<'t>, Fault> {
        let words = [("true", Scalar::Bool(true)), ("false", Scalar::Bool(false)), ("null", Scalar::Null)];
        let rest = self.rest();
        for (word, scalar) in words {
            if let Some(rest) = rest.strip_prefix(word)
                && !rest.starts_with(|next: char| next.is_alphanumeric())
            {
                self.at += word.len();
                return Ok(scalar);
            }
        }
        Err(self.fault("expected a value"))
    }

    fn string(&mut self) -> Result<Cow<'t, str>, Fault> {
        let start = self.at + 1;
        let content = self.text.get(start..).unwrap_or_default();
        let end = content.bytes().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f));
        if let Some(end) = end
            && content.as_bytes().get(end) == Some(&b'"')
        {
            self.at = start + end + 1;
            return Ok(Cow::Borrowed(content.get(..end).unwrap_or_default()));
        }
        let mut scanner = json::Scanner::new(self.rest());
        let text =
            scanner.string().map_err(|_| self.fault("a string is not closed or has an invalid character"))?;
        self.at += scanner.offset();
        Ok(text)
    }

    fn number(&mut self) -> Result<Scalar<'t>, Fault> {
        let rest = self.rest();
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let text = rest.get(..rest.bytes().take_while(is_part).count()).unwrap_or_default();
        let scalar = number(text).ok_or_else(|| self.fault("invalid number"))?;
        if matches!(scalar, Scalar::Float(value) | Scalar::Big(value, _) if value.is_infinite()) {
            return Err(Fault::refused(self.at, "a number is out of range", "write a smaller number"));
        }
        self.at += text.len();
        Ok(scalar)
    }
}

/// Reads a number of JSON: `-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?`. It is infinite if it is out of range.
fn number<'t>(text: &str) -> Option<Scalar<'t>> {
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let valid = is_digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(is_digits)
        && exponent.is_none_or(is_digits);
    if !valid {
        return None;
    }
    let is_integer = fraction.is_none() && exponent.is_none();
    if is_integer {
        if let Ok(value) = text.parse() {
            return Some(Scalar::Int(value));
        }
        if let Ok(value) = text.parse() {
            return Some(Scalar::Uint(value));
        }
    }
    let value: f64 = text.parse().ok()?;
    Some(if is_integer { Scalar::Big(value, text.to_owned()) } else { Scalar::Float(value) })
}

impl<'t> Iterator for Events<'t> {
    type Item = Item<'t>;

    fn next(&mut self) -> Option<Item<'t>> {
        let event = self.event().transpose();
        if matches!(event, Some(Err(_))) {
            self.expected = Expected::Stopped;
        }
        event
    }
}
