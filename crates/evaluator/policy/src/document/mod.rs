//! Documents: YAML or JSON text to trees with positions, in one pass, and from these to values.
//!
//! The text is read as `kubectl` reads it, with `sigs.k8s.io/yaml` and go-yaml 2: `yes` and `on` are booleans, `0644` is octal, and
//! timestamps are texts. Texts that YAML readers read differently are refused with their place:
//!
//! - duplicate keys, and a merge key after a key that it has too
//! - tags
//! - numbers such as `08`, `1_000` and `.inf`

mod json;
mod list;
mod node;
mod scalar;
mod tree;
mod yaml;

use std::fmt;
use std::ops::Range;

pub use node::{Content, DocumentEntry, DocumentNode};

use crate::field::Path;
use crate::value::{Arena, Value};

/// Longest text that is read, in bytes. An API server accepts 3 MiB per object; bundles of CRDs have up to 10 MiB.
pub const MAX_TEXT: usize = 64 << 20;
/// Levels of nesting that are read. Go reads 10,000, but no object that is judged comes near.
pub const MAX_DEPTH: usize = 1_000;
/// Objects of one text. Problems and findings need memory for each of them.
pub const MAX_OBJECTS: usize = 200_000;

const BOM: char = '\u{feff}';
const SPLIT: &str = "split it into several files";

/// A position in a text. Lines and columns are counted from 1, and columns in code points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl Position {
    const START: Self = Self { line: 1, column: 1 };

    /// The place after a text that begins here.
    fn after(self, text: &str) -> Self {
        let lines = text.bytes().filter(|byte| *byte == b'\n').count();
        let last = text.rfind('\n').and_then(|newline| text.get(newline + 1..));
        let columns = last.unwrap_or(text).chars().count();
        Self { line: self.line + lines, column: if lines == 0 { self.column } else { 1 } + columns }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.line, self.column)
    }
}

/// A text that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct SyntaxError {
    /// The place of the problem.
    pub place: Position,
    /// The problem.
    pub message: String,
    /// The next step.
    pub next: String,
}

impl SyntaxError {
    fn new(place: Position, message: impl Into<String>, next: impl Into<String>) -> Self {
        Self { place, message: message.into(), next: next.into() }
    }
}

/// An object of a text: a document, or an item of a `List`.
#[derive(Clone, Debug)]
pub struct Document {
    root: DocumentNode,
    /// The path of the object in its document.
    item: Path,
}

impl Document {
    /// The value, in an arena. If the arena is full, parts are missing.
    pub fn value<'a>(&self, arena: &'a Arena) -> Value<'a> {
        self.root.value(arena)
    }

    /// The object as a tree.
    pub fn root(&self) -> &DocumentNode {
        &self.root
    }

    /// The path of the object in its document: `items[2]` for an item of a `List`, otherwise empty.
    pub fn item(&self) -> &Path {
        &self.item
    }

    /// A value in this object as an object of its own.
    pub fn within(&self, path: &Path) -> Option<Self> {
        let root = Some(self.root.at(path)).filter(|found| found.is_whole)?.node.clone();
        Some(Self { root, item: self.item.join(path) })
    }

    /// The place of a field: its key, or the first character of a list element. A field that does not exist has the place of
    /// the nearest parent that does. The empty path is the place of the object itself.
    pub fn place(&self, path: &Path) -> Position {
        self.root.at(path).field
    }

    /// The place of the first character of a field's value.
    pub fn value_place(&self, path: &Path) -> Position {
        self.root.at(path).node.place()
    }
}

/// The documents of a text. Empty ones are absent, and lists stay lists.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Whether the text is a sequence of JSON values. Otherwise it is YAML.
    pub is_json: bool,
    /// The root of each document, and its byte range in a text of JSON.
    pub documents: Vec<(DocumentNode, Range<usize>)>,
}

/// Reads all objects of a text. The items of a `List` are objects of their own, and empty documents are skipped.
pub fn read(text: &str) -> Result<Vec<Document>, SyntaxError> {
    let stream = read_stream(text)?;
    let mut documents = Vec::with_capacity(stream.documents.len());
    for (root, _) in stream.documents {
        let place = root.place();
        list::flatten(root, &mut documents);
        if documents.len() > MAX_OBJECTS {
            return Err(SyntaxError::new(place, "the text has more than 200,000 objects", SPLIT));
        }
    }
    Ok(documents)
}

/// Reads all documents of a text.
pub fn read_stream(text: &str) -> Result<Stream, SyntaxError> {
    if text.len() > MAX_TEXT {
        return Err(SyntaxError::new(Position::START, "the text is longer than 64 MiB", SPLIT));
    }
    let start = if text.starts_with(BOM) { BOM.len_utf8() } else { 0 };
    let content = text.get(start..).unwrap_or_default();
    if !content.trim_start().starts_with(['{', '[']) {
        return yaml::read(content).map(|documents| Stream { is_json: false, documents });
    }
    let error = match json::read(content) {
        Ok(documents) => {
            let moved =
                |(node, range): (DocumentNode, Range<usize>)| (node, range.start + start..range.end + start);
            return Ok(Stream { is_json: true, documents: documents.into_iter().map(moved).collect() });
        }
        Err(error) => error,
    };
    // As kubectl: a text that begins like JSON can be YAML in flow style. The reader that understood more has the better error.
    match yaml::read(content) {
        Ok(documents) => Ok(Stream { is_json: false, documents }),
        Err(other) => Err(if other.place > error.place { other } else { error }),
    }
}

#[cfg(test)]
mod tests;
