//! Objects with their positions in the text. Only the part of the text that contains the object is read again, so that places cost the
//! same in a file of one object and of ten thousand.

use std::fmt;
use std::ops::Range;

use super::{json_text, locate, yaml};
use crate::field::{Path, Step};
use crate::value::Value;

pub(super) const BOM: char = '\u{feff}';

/// The format of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Documents separated by `---`.
    Yaml,
    /// Values one after the other.
    Json,
}

/// A position in a text. Lines and columns are counted from 1, and columns in code points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl Place {
    pub(super) fn of(text: &str, offset: usize) -> Self {
        Self { line: 1, column: 1 }.after(text.get(..offset).unwrap_or(text))
    }

    /// The place after a text that begins here.
    pub(super) fn after(self, text: &str) -> Self {
        let lines = text.bytes().filter(|byte| *byte == b'\n').count();
        let last = text.rfind('\n').and_then(|newline| text.get(newline + 1..));
        let columns = last.unwrap_or(text).trim_start_matches(BOM).chars().count();
        Self { line: self.line + lines, column: if lines == 0 { self.column } else { 1 } + columns }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.line, self.column)
    }
}

/// An object of a text: a document, or an item of a `List`.
#[derive(Clone, Debug)]
pub struct Document<'a> {
    pub(super) value: Value<'a>,
    pub(super) text: &'a str,
    pub(super) origin: Origin,
}

impl<'a> Document<'a> {
    /// The value.
    pub fn value(&self) -> Value<'a> {
        self.value
    }

    /// The object's origin, which stays usable without the arena.
    pub fn origin(&self) -> Origin {
        self.origin.clone()
    }

    /// The place of a field, as [`Origin::place`] finds it.
    pub fn place(&self, path: &Path) -> Place {
        self.origin.place(self.text, path)
    }

    /// The place of a field's value, as [`Origin::value_place`] finds it.
    pub fn value_place(&self, path: &Path) -> Place {
        self.origin.value_place(self.text, path)
    }
}

/// The part of a text that contains an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    format: Format,
    /// The byte range of the document, or of the item of a list.
    range: Range<usize>,
    /// The place of the first byte.
    base: Place,
    /// The path of the object in its document.
    item: Path,
    /// The path of the object in the range.
    inner: Path,
}

impl Origin {
    /// The origin of a whole document. `base` is the place of the first byte of its range.
    pub(super) fn of_document(format: Format, range: Range<usize>, base: Place) -> Self {
        Self { format, range, base, item: Path::default(), inner: Path::default() }
    }

    /// The path of the object in its document: `items[2]` for an item of a `List`, otherwise empty.
    pub fn item(&self) -> &Path {
        &self.item
    }

    /// The origin of a value in this object, so that its fields have places too.
    #[must_use]
    pub fn within(&self, path: &Path) -> Self {
        Self { item: self.item.join(path), inner: self.inner.join(path), ..self.clone() }
    }

    /// The origins of the elements of a list.
    pub(super) fn elements(&self, text: &str, list: &Path, count: usize) -> Vec<Self> {
        let whole = self.within(list);
        let steps: Vec<&Step> = whole.inner.steps().iter().collect();
        let (part, shift) = self.part(text);
        let starts = match self.format {
            Format::Yaml => locate::elements(yaml::Events::new(&part, 0), &steps),
            Format::Json => locate::elements(json_text::Events::new(&part, 0), &steps),
        };
        let starts: Vec<usize> =
            starts.into_iter().map(|start| (start + self.range.start).saturating_sub(shift)).collect();
        let mut cursor = (self.range.start, self.base);
        let element = |index: usize| {
            let within = self.within(&list.index(index));
            // An alias has no elements of its own.
            let Some(start) = starts.get(index).copied().filter(|_| starts.len() == count) else {
                return within;
            };
            let end = starts.get(index + 1).copied().unwrap_or(self.range.end).max(start);
            let between = text.get(cursor.0..start).unwrap_or_default();
            cursor = (start, cursor.1.after(between));
            Self { range: start..end, base: cursor.1, inner: Path::default(), ..within }
        };
        (0..count).map(element).collect()
    }

    /// The place of a field: its key, or the first character of a list element. A field that does not exist has the place of
    /// the nearest parent that does. The empty path is the place of the object itself. `text` is the whole text.
    pub fn place(&self, text: &str, path: &Path) -> Place {
        self.find(text, path).0
    }

    /// The place of the first character of a field's value.
    pub fn value_place(&self, text: &str, path: &Path) -> Place {
        self.find(text, path).1
    }

    fn find(&self, text: &str, path: &Path) -> (Place, Place) {
        let path = self.inner.join(path);
        let steps: Vec<&Step> = path.steps().iter().collect();
        let (part, shift) = self.part(text);
        let found = match self.format {
            Format::Yaml => locate::locate(yaml::Events::new(&part, 0), &steps),
            Format::Json => locate::locate(json_text::Events::new(&part, 0), &steps),
        };
        let place = |offset: usize| self.base.after(part.get(shift..offset).unwrap_or_default());
        (place(found.field), place(found.value))
    }

    /// The part of the text, and the number of spaces before it. The first line of a YAML list's element begins after its
    /// dash; the spaces give it the indentation of the lines below.
    fn part(&self, text: &str) -> (String, usize) {
        let part = text.get(self.range.clone()).unwrap_or_default();
        let shift = if self.format == Format::Yaml { self.base.column - 1 } else { 0 };
        let mut shifted = " ".repeat(shift);
        shifted.push_str(part);
        (shifted, shift)
    }
}
