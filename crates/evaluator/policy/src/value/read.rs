//! JSON text to values, in one pass and without recursion.
//!
//! Numbers are read as the API server reads them: an integer that fits into 64 bits is an integer, all others are doubles.
//! The last one of duplicate keys stays, as in Go.

use super::arena::MAPPED;
use super::{Arena, Value};

/// Levels of nesting that are read. Go reads 10,000. Durward compares and writes values recursively: in a debug build, 2 MiB of stack
/// suffice for 1,400 levels.
const MAX_DEPTH: usize = 1_000;

/// Lists and objects of more bytes have a mapping.
const MAPPED_FROM: usize = 1 << 20;

/// The text is not JSON or too deep.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} at byte {offset}")]
pub struct ReadError {
    /// Offset in bytes.
    pub offset: usize,
    /// The problem.
    pub message: &'static str,
}

enum OpenValue<'a> {
    List(Vec<Value<'a>>),
    Object(Vec<(&'a str, Value<'a>)>, &'a str),
}

impl OpenValue<'_> {
    /// Items for which a new list or object has memory. It is not counted: at most 320 kB are open at once.
    const CAPACITY: usize = 8;
}

/// Reads one JSON value.
pub fn read_json<'a>(text: &'a str, arena: &'a Arena) -> Result<Value<'a>, ReadError> {
    let mut reader = JsonReader { text, at: 0, arena, open: 0 };
    let value = reader.read()?;
    reader.skip_space();
    if reader.at < text.len() {
        return Err(reader.error("invalid character after the value"));
    }
    if arena.is_full() { Err(reader.error(NO_MEMORY)) } else { Ok(value) }
}

const NO_MEMORY: &str = "the value needs too much memory";

struct JsonReader<'a> {
    text: &'a str,
    at: usize,
    arena: &'a Arena,
    /// Bytes of the open lists and objects. They are not in the arena, which needs room for them nevertheless.
    open: usize,
}

impl<'a> JsonReader<'a> {
    fn error(&self, message: &'static str) -> ReadError {
        ReadError { offset: self.at, message }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\t' | b'\r')) {
            self.at += 1;
        }
    }

    fn read(&mut self) -> Result<Value<'a>, ReadError> {
        let mut stack: Vec<OpenValue<'a>> = Vec::new();
        loop {
            self.skip_space();
            let mut value = match self.peek() {
                Some(b'{') => {
                    self.at += 1;
                    self.skip_space();
                    if self.peek() == Some(b'}') {
                        self.at += 1;
                        Value::Object(&[])
                    } else {
                        let key = self.key()?;
                        self.push(
                            &mut stack,
                            OpenValue::Object(Vec::with_capacity(OpenValue::CAPACITY), key),
                        )?;
                        continue;
                    }
                }
                Some(b'[') => {
                    self.at += 1;
                    self.skip_space();
                    if self.peek() == Some(b']') {
                        self.at += 1;
                        Value::List(&[])
                    } else {
                        self.push(&mut stack, OpenValue::List(Vec::with_capacity(OpenValue::CAPACITY)))?;
                        continue;
                    }
                }
                _ => self.scalar()?,
            };
            // The value ends here; it is added to its parent, which can end as well.
            loop {
                let Some(open) = stack.last_mut() else { return Ok(value) };
                self.skip_space();
                let next = self.peek();
                match open {
                    OpenValue::List(items) => self.add(items, value)?,
                    OpenValue::Object(entries, key) => self.add(entries, (*key, value))?,
                }
                match (next, open) {
                    (Some(b','), OpenValue::List(_)) => {
                        self.at += 1;
                        break;
                    }
                    (Some(b','), OpenValue::Object(_, key)) => {
                        self.at += 1;
                        self.skip_space();
                        *key = self.key()?;
                        break;
                    }
                    (Some(b']'), OpenValue::List(items)) => {
                        self.close(items)?;
                        value = Value::List(self.arena.slice(items));
                    }
                    (Some(b'}'), OpenValue::Object(entries, _)) => {
                        self.close(entries)?;
                        value = object(self.arena, entries);
                    }
                    _ => return Err(self.error("expected ',' or the end of the list or object")),
                }
                self.at += 1;
                stack.pop();
            }
        }
    }

    /// Adds an item to an open list or object. It doubles its memory, up to a size from which it has a mapping that it fills.
    fn add<T>(&mut self, items: &mut Vec<T>, item: T) -> Result<(), ReadError> {
        if items.len() >= OpenValue::CAPACITY && items.len().is_power_of_two() {
            let size = size_of_val(items.as_slice());
            // While it grows, the old memory is in use too.
            let copied = if size < MAPPED_FROM { size } else { 0 };
            if !self.arena.has_room(self.open + size + copied) {
                return Err(self.error(NO_MEMORY));
            }
            self.open += size;
            let more = if size < MAPPED_FROM { size } else { MAPPED.saturating_sub(size) };
            items.reserve_exact(more / size_of::<T>());
        }
        items.push(item);
        Ok(())
    }

    /// Ends a list or object, which is copied to the arena while its memory is in use.
    fn close<T>(&mut self, items: &[T]) -> Result<(), ReadError> {
        if !self.arena.has_room(self.open + size_of_val(items)) {
            return Err(self.error(NO_MEMORY));
        }
        let capacity = items.len().next_power_of_two().max(OpenValue::CAPACITY);
        self.open -= (capacity - OpenValue::CAPACITY) * size_of::<T>();
        Ok(())
    }

    fn push(&self, stack: &mut Vec<OpenValue<'a>>, open: OpenValue<'a>) -> Result<(), ReadError> {
        if stack.len() >= MAX_DEPTH {
            return Err(self.error("nested too deeply"));
        }
        stack.push(open);
        Ok(())
    }

    fn key(&mut self) -> Result<&'a str, ReadError> {
        if self.peek() != Some(b'"') {
            return Err(self.error("expected a key"));
        }
        let key = self.string()?;
        self.skip_space();
        if self.peek() != Some(b':') {
            return Err(self.error("expected ':'"));
        }
        self.at += 1;
        Ok(key)
    }

    fn scalar(&mut self) -> Result<Value<'a>, ReadError> {
        match self.peek() {
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => {
                let words =
                    [("true", Value::Bool(true)), ("false", Value::Bool(false)), ("null", Value::Null)];
                let rest = self.text.get(self.at..).unwrap_or_default();
                for (word, value) in words {
                    if rest.starts_with(word) {
                        self.at += word.len();
                        return Ok(value);
                    }
                }
                Err(self.error("expected a value"))
            }
        }
    }

    fn string(&mut self) -> Result<&'a str, ReadError> {
        let start = self.at + 1;
        let rest = self.text.as_bytes().get(start..).unwrap_or_default();
        let end = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f));
        if let Some(end) = end
            && rest.get(end) == Some(&b'"')
        {
            self.at = start + end + 1;
            return self.text.get(start..start + end).ok_or_else(|| self.error("invalid string"));
        }
        let mut scanner = json::Scanner::new(self.text.get(self.at..).unwrap_or_default());
        let text = scanner.string().map_err(|_| self.error("invalid string"))?;
        self.at += scanner.offset();
        Ok(self.arena.text(&text))
    }

    fn number(&mut self) -> Result<Value<'a>, ReadError> {
        let start = self.at;
        let mut integer = true;
        while let Some(byte) = self.peek() {
            match byte {
                b'0'..=b'9' => {}
                b'-' if self.at == start => {}
                b'.' | b'e' | b'E' | b'+' | b'-' => integer = false,
                _ => break,
            }
            self.at += 1;
        }
        let text = self.text.get(start..self.at).unwrap_or_default();
        let digits = text.trim_start_matches('-');
        if digits.len() > 1
            && digits.starts_with('0')
            && digits.as_bytes().get(1).is_some_and(u8::is_ascii_digit)
        {
            return Err(self.error("invalid number"));
        }
        if integer && let Ok(int) = text.parse() {
            return Ok(Value::Int(int));
        }
        let valid = digits.starts_with(|first: char| first.is_ascii_digit()) && !text.ends_with('.');
        match text.parse::<f64>() {
            Ok(double) if valid && double.is_finite() => Ok(Value::Double(double)),
            _ => Err(self.error("invalid number")),
        }
    }
}

fn object<'a>(arena: &'a Arena, entries: &mut Vec<(&'a str, Value<'a>)>) -> Value<'a> {
    if !entries.is_sorted_by(|left, right| left.0 < right.0) {
        entries.sort_by(|left, right| left.0.cmp(right.0));
        // The last one of equal keys stays: the sort is stable.
        let mut kept = 0;
        for index in 0..entries.len() {
            if entries.get(index).map(|entry| entry.0) == entries.get(index + 1).map(|entry| entry.0) {
                continue;
            }
            entries.swap(kept, index);
            kept += 1;
        }
        entries.truncate(kept);
    }
    Value::Object(arena.slice(entries))
}
