//! A value with the places of its parts.

use super::Position;
use crate::field::{Path, PathStep};
use crate::value::{Arena, Value};

/// A [`Position`] in little memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct SmallPosition {
    line: u32,
    column: u32,
}

impl From<Position> for SmallPosition {
    fn from(place: Position) -> Self {
        let number = |number| u32::try_from(number).unwrap_or(u32::MAX);
        Self { line: number(place.line), column: number(place.column) }
    }
}

impl From<SmallPosition> for Position {
    fn from(mark: SmallPosition) -> Self {
        Self { line: mark.line as usize, column: mark.column as usize }
    }
}

/// A value and its place.
#[derive(Clone, Debug)]
pub struct DocumentNode {
    pub(super) mark: SmallPosition,
    /// The value.
    pub content: Content,
}

/// The value of a [`DocumentNode`].
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// `null`, `~`, or nothing.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer of 64 bits with sign.
    Int(i64),
    /// A larger integer of 64 bits without sign, which the API server reads as a double.
    Uint(u64),
    /// A finite number.
    Float(f64),
    /// Text.
    Text(Box<str>),
    /// A list.
    List(Vec<DocumentNode>),
    /// A map in the order of the text. No key occurs twice.
    Map(Vec<DocumentEntry>),
}

/// An entry of a map.
#[derive(Clone, Debug)]
pub struct DocumentEntry {
    /// The key.
    pub key: Box<str>,
    pub(super) mark: SmallPosition,
    /// The value.
    pub node: DocumentNode,
}

impl PartialEq for DocumentNode {
    fn eq(&self, other: &Self) -> bool {
        self.content == other.content
    }
}

impl PartialEq for DocumentEntry {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && self.node == other.node
    }
}

/// The result of a search.
pub(super) struct FoundNode<'n> {
    /// The last value on the path that exists.
    pub(super) node: &'n DocumentNode,
    /// The place of its key, or of the list element.
    pub(super) field: Position,
    /// Whether the whole path exists.
    pub(super) is_whole: bool,
}

impl DocumentNode {
    pub(super) fn new(place: Position, content: Content) -> Self {
        Self { mark: place.into(), content }
    }

    /// The place of the first character.
    pub fn place(&self) -> Position {
        self.mark.into()
    }

    /// The value of an entry.
    pub fn field(&self, key: &str) -> Option<&DocumentNode> {
        self.entry(key).map(|entry| &entry.node)
    }

    fn entry(&self, key: &str) -> Option<&DocumentEntry> {
        match &self.content {
            Content::Map(entries) => entries.iter().find(|entry| *entry.key == *key),
            _ => None,
        }
    }

    /// The text, unless the value is another one.
    pub fn as_text(&self) -> Option<&str> {
        match &self.content {
            Content::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The memory of the value in an arena.
    pub fn size(&self) -> usize {
        let own = size_of::<Value<'_>>();
        let parts: usize = match &self.content {
            Content::Text(text) => text.len(),
            Content::List(items) => items.iter().map(DocumentNode::size).sum(),
            Content::Map(entries) => {
                entries.iter().map(|entry| size_of::<&str>() + entry.key.len() + entry.node.size()).sum()
            }
            _ => 0,
        };
        own.saturating_add(parts)
    }

    /// Levels of lists and maps.
    pub(super) fn height(&self) -> usize {
        match &self.content {
            Content::List(items) => 1 + items.iter().map(DocumentNode::height).max().unwrap_or_default(),
            Content::Map(entries) => {
                1 + entries.iter().map(|entry| entry.node.height()).max().unwrap_or_default()
            }
            _ => 0,
        }
    }

    /// Follows a path as far as it exists.
    pub(super) fn at(&self, path: &Path) -> FoundNode<'_> {
        let mut found = FoundNode { node: self, field: self.place(), is_whole: true };
        for step in path.steps() {
            let next = match (step, &found.node.content) {
                (PathStep::Index(index), Content::List(items)) => {
                    items.get(*index).map(|item| (item, item.place()))
                }
                (PathStep::Field(name) | PathStep::Key(name), _) => {
                    found.node.entry(name).map(|entry| (&entry.node, entry.mark.into()))
                }
                _ => None,
            };
            let Some((node, field)) = next else { return FoundNode { is_whole: false, ..found } };
            found = FoundNode { node, field, is_whole: true };
        }
        found
    }

    /// The value, in an arena.
    pub(super) fn value<'a>(&self, arena: &'a Arena) -> Value<'a> {
        match &self.content {
            Content::Null => Value::Null,
            Content::Bool(value) => Value::Bool(*value),
            Content::Int(value) => Value::Int(*value),
            Content::Uint(value) => Value::Double(*value as f64),
            Content::Float(value) => Value::Double(*value),
            Content::Text(text) => Value::String(arena.text(text)),
            Content::List(items) => {
                let values: Vec<Value<'a>> = items.iter().map(|item| item.value(arena)).collect();
                Value::List(arena.slice(&values))
            }
            Content::Map(entries) => {
                let mut values: Vec<(&'a str, Value<'a>)> =
                    entries.iter().map(|entry| (arena.text(&entry.key), entry.node.value(arena))).collect();
                values.sort_unstable_by(|left, right| left.0.cmp(right.0));
                Value::Object(arena.slice(&values))
            }
        }
    }
}
