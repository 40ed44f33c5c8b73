//! Documents: YAML or JSON text to values, and back to the line and column of a field.
//!
//! The text is read as `kubectl` reads it, with `sigs.k8s.io/yaml` and go-yaml 2. `yes` and `on` are booleans, `0644` is octal,
//! and timestamps are texts. Keys become texts, and `<<` merges maps. Three things are refused that `kubectl` accepts or reports
//! without a place: duplicate keys, `.nan` and `.inf`, and the tag `!!binary`.
//!
//! A value has no position. [`Document::place`] reads the text again, which costs time only if there is something to report.

mod event;
mod json_text;
mod limits;
mod list;
mod locate;
mod origin;
mod scalar;
mod tree;
mod yaml;

use std::borrow::Cow;

pub use limits::{MAX_DEPTH, MAX_OBJECTS, MAX_TEXT};
pub use origin::{Document, Format, Origin, Place};
pub use scalar::{Refusal, Scalar};
pub use tree::Builder;

use crate::value::{Arena, Value};
use event::Fault;
use limits::{SPLIT, TOO_LARGE, TOO_MANY};
use origin::BOM;
use tree::Tree;

/// A text that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct SyntaxError {
    /// The place of the problem.
    pub place: Place,
    /// The problem.
    pub message: String,
    /// The next step.
    pub next: String,
}

/// The documents of a text as a [`Builder`] builds them. Empty documents are absent, and lists stay lists.
#[derive(Clone, Debug)]
pub struct Stream<V> {
    /// The format of the text.
    pub format: Format,
    /// The value and the byte range of each document. The range of a YAML document ends at an unspecified place before the next.
    pub documents: Vec<(V, std::ops::Range<usize>)>,
}

/// Reads all objects of a text. The items of a `List` are objects of their own, and empty documents are skipped.
pub fn read<'a>(text: &'a str, arena: &'a Arena) -> Result<Vec<Document<'a>>, SyntaxError> {
    let mut builder = ArenaBuilder { arena, entries: Vec::new(), items: Vec::new() };
    let stream = read_with(text, &mut builder)?;
    let mut documents = Vec::with_capacity(stream.documents.len());
    let (mut offset, mut place) = (0, Place { line: 1, column: 1 });
    for (value, range) in stream.documents {
        place = place.after(text.get(offset..range.start).unwrap_or_default());
        offset = range.start;
        let origin = Origin::of_document(stream.format, range, place);
        let root = Document { value, text, origin };
        let is_complete = list::flatten(root, arena, &mut documents);
        // In a full arena, values are missing.
        if arena.is_full() || !is_complete {
            let message = if arena.is_full() { TOO_LARGE } else { TOO_MANY };
            return Err(SyntaxError { place, message: message.to_owned(), next: SPLIT.to_owned() });
        }
    }
    Ok(documents)
}

/// Reads all documents of a text with a builder of the caller.
pub fn read_with<'t, B: Builder<'t>>(
    text: &'t str,
    builder: &mut B,
) -> Result<Stream<B::Value>, SyntaxError> {
    stream(text, builder).map_err(|fault| {
        let earlier =
            fault.earlier.map(|offset| format!(" (the first is in line {})", Place::of(text, offset).line));
        SyntaxError {
            place: Place::of(text, fault.offset),
            message: format!("{}{}", fault.message, earlier.unwrap_or_default()),
            next: fault.next.to_owned(),
        }
    })
}

fn stream<'t, B: Builder<'t>>(text: &'t str, builder: &mut B) -> Result<Stream<B::Value>, Fault> {
    if text.len() > MAX_TEXT {
        return Err(Fault::refused(0, "the text is longer than 64 MiB", SPLIT));
    }
    let start = if text.starts_with(BOM) { BOM.len_utf8() } else { 0 };
    let content = text.get(start..).unwrap_or_default();
    let mut failed = None;
    if content.trim_start().starts_with(['{', '[']) {
        match tree::build(json_text::Events::new(text, start), builder) {
            Ok(trees) => return Ok(Stream::new(Format::Json, text, trees)),
            // As kubectl: a text that begins like JSON can be YAML in flow style.
            Err(fault) if fault.is_syntax => failed = Some(fault),
            Err(fault) => return Err(fault),
        }
    }
    let read =
        yaml::check_characters(text).and_then(|()| tree::build(yaml::Events::new(text, start), builder));
    match (read, failed) {
        (Ok(trees), _) => Ok(Stream::new(Format::Yaml, text, trees)),
        // The reader that understood more of the text has the better error.
        (Err(fault), Some(json)) if fault.is_syntax && json.offset >= fault.offset => Err(json),
        (Err(fault), _) => Err(fault),
    }
}

impl<V> Stream<V> {
    fn new(format: Format, text: &str, trees: Vec<Tree<V>>) -> Self {
        let document = |tree: Tree<V>| {
            let start = match format {
                Format::Json => tree.start,
                // The indentation of the first line belongs to the document.
                Format::Yaml => {
                    text.get(..tree.start).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1)
                }
            };
            (tree.value, start..tree.end.max(start))
        };
        Self { format, documents: trees.into_iter().map(document).collect() }
    }
}

/// Builds values in an arena.
struct ArenaBuilder<'a> {
    arena: &'a Arena,
    entries: Vec<(&'a str, Value<'a>)>,
    items: Vec<Value<'a>>,
}

impl<'a> ArenaBuilder<'a> {
    fn text(&self, text: Cow<'a, str>) -> &'a str {
        match text {
            Cow::Borrowed(text) => text,
            Cow::Owned(text) => self.arena.text(&text),
        }
    }
}

impl<'a> Builder<'a> for ArenaBuilder<'a> {
    type Value = Value<'a>;

    fn scalar(&mut self, scalar: Scalar<'a>) -> Result<Value<'a>, Refusal> {
        if self.arena.is_full() {
            return Err(Refusal { message: TOO_LARGE.into(), next: SPLIT });
        }
        Ok(match scalar {
            Scalar::Null => Value::Null,
            Scalar::Bool(value) => Value::Bool(value),
            Scalar::Int(value) => Value::Int(value),
            // The API server reads integers beyond 64 bits with sign as doubles.
            Scalar::Uint(value) => Value::Double(value as f64),
            Scalar::Float(value) | Scalar::Big(value, _) => Value::Double(value),
            Scalar::Text(text) => Value::String(self.text(text)),
        })
    }

    fn list(&mut self, items: impl Iterator<Item = Value<'a>>) -> Value<'a> {
        self.items.clear();
        self.items.extend(items);
        Value::List(self.arena.slice(&self.items))
    }

    fn map(&mut self, entries: impl Iterator<Item = (Cow<'a, str>, Value<'a>)>) -> Value<'a> {
        let mut scratch = std::mem::take(&mut self.entries);
        scratch.clear();
        scratch.extend(entries.map(|(key, value)| (self.text(key), value)));
        scratch.sort_unstable_by(|left, right| left.0.cmp(right.0));
        let map = Value::Object(self.arena.slice(&scratch));
        self.entries = scratch;
        map
    }

    fn entries(&self, value: &Value<'a>) -> Option<Vec<(Cow<'a, str>, Value<'a>)>> {
        match value {
            Value::Object(entries) => {
                Some(entries.iter().map(|(key, value)| (Cow::Borrowed(*key), *value)).collect())
            }
            _ => None,
        }
    }

    fn elements(&self, value: &Value<'a>) -> Option<Vec<Value<'a>>> {
        match value {
            Value::List(items) => Some(items.to_vec()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
