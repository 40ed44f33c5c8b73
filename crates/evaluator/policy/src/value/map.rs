//! Entries of maps, sorted by key.

use std::cmp::Ordering;

use super::typed::{self, ShapeKind, ValueShape};
use super::{Arena, Value, work};

/// The entries of a map value.
#[derive(Clone, Copy)]
pub(crate) enum MapEntries<'a> {
    Object(&'a [(&'a str, Value<'a>)]),
    Map(&'a [(Value<'a>, Value<'a>)]),
    Typed(&'a [(&'a str, Value<'a>)], &'a ValueShape),
}

impl<'a> MapEntries<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            MapEntries::Object(entries) | MapEntries::Typed(entries, _) => entries.len(),
            MapEntries::Map(entries) => entries.len(),
        }
    }

    /// The value of a key. Numbers are found under an equal number of another type, as in cel-go.
    pub(crate) fn get(&self, key: &Value<'a>) -> Option<Value<'a>> {
        match self {
            MapEntries::Object(_) | MapEntries::Typed(..) => self.named(key.as_str()?),
            MapEntries::Map(entries) => {
                let find = |key: &Value<'a>| {
                    let found = entries.binary_search_by(|(entry, _)| order(entry, key)).ok()?;
                    entries.get(found).map(|(_, value)| *value)
                };
                find(key).or_else(|| alternatives(key).iter().flatten().find_map(find))
            }
        }
    }

    /// The value of a string key.
    pub(crate) fn named(&self, name: &str) -> Option<Value<'a>> {
        match self {
            MapEntries::Object(entries) => {
                let found = if entries.len() <= 8 {
                    entries.iter().position(|(key, _)| *key == name)?
                } else {
                    entries.binary_search_by(|(key, _)| (*key).cmp(name)).ok()?
                };
                entries.get(found).map(|(_, value)| *value)
            }
            MapEntries::Typed(entries, shape) => typed::named(entries, shape, name),
            MapEntries::Map(entries) => {
                entries.iter().find(|(key, _)| key.as_str() == Some(name)).map(|(_, value)| *value)
            }
        }
    }

    /// The entry at a position.
    pub(crate) fn at(&self, index: usize) -> Option<(Value<'a>, Value<'a>)> {
        match self {
            MapEntries::Object(entries) => {
                entries.get(index).map(|(key, value)| (Value::String(key), *value))
            }
            MapEntries::Map(entries) => entries.get(index).copied(),
            MapEntries::Typed(entries, shape) => typed::at(entries.get(index)?, shape),
        }
    }

    /// The entries in order. In an evaluation there are none above the limit of [`work`].
    pub(crate) fn iter(self) -> impl Iterator<Item = (Value<'a>, Value<'a>)> {
        let len = if work::read(self.len()) { self.len() } else { 0 };
        (0..len).filter_map(move |index| self.at(index))
    }
}

/// Lossless forms of a numeric key in the other numeric types.
fn alternatives<'a>(key: &Value<'a>) -> [Option<Value<'a>>; 2] {
    match *key {
        Value::Int(int) => [u64::try_from(int).ok().map(Value::Uint), None],
        Value::Uint(uint) => [i64::try_from(uint).ok().map(Value::Int), None],
        Value::Double(double) => [
            super::number::lossless_int(double).map(Value::Int),
            super::number::lossless_uint(double).map(Value::Uint),
        ],
        _ => [None, None],
    }
}

/// Total order of keys: by type, then by value.
pub(crate) fn order(left: &Value<'_>, right: &Value<'_>) -> Ordering {
    let rank = |value: &Value<'_>| match value {
        Value::Bool(_) => 0,
        Value::Int(_) => 1,
        Value::Uint(_) => 2,
        Value::Double(_) => 3,
        Value::String(_) => 4,
        Value::Bytes(_) => 5,
        Value::Timestamp(_) => 6,
        Value::Duration(_) => 7,
        _ => 8,
    };
    match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Int(left), Value::Int(right)) | (Value::Duration(left), Value::Duration(right)) => {
            left.cmp(right)
        }
        (Value::Uint(left), Value::Uint(right)) => left.cmp(right),
        (Value::Double(left), Value::Double(right)) => left.total_cmp(right),
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bytes(left), Value::Bytes(right)) => left.cmp(right),
        (Value::Timestamp(left), Value::Timestamp(right)) => left.cmp(right),
        _ => rank(left).cmp(&rank(right)),
    }
}

impl Arena {
    /// Creates an object; of entries with equal keys the last one stays.
    pub fn object<'a>(&'a self, entries: &[(&'a str, Value<'a>)]) -> Value<'a> {
        let mut entries = entries.to_vec();
        entries.reverse();
        entries.sort_by(|left, right| left.0.cmp(right.0));
        entries.dedup_by(|later, earlier| later.0 == earlier.0);
        Value::Object(self.slice(&entries))
    }
}

impl<'a> Value<'a> {
    /// The field of an object or the entry of a map with string keys.
    pub fn field(&self, name: &str) -> Option<Value<'a>> {
        self.entries()?.named(name)
    }

    /// Returns an object with a field set. A value that is not an object counts as an empty one.
    #[must_use]
    pub fn with_field(self, name: &'static str, value: Value<'a>, arena: &'a Arena) -> Value<'a> {
        let entries = if let Value::Object(entries) = self { entries } else { &[] };
        let mut entries = entries.to_vec();
        entries.push((name, value));
        arena.object(&entries)
    }

    /// The entries of a map.
    pub(crate) fn entries(&self) -> Option<MapEntries<'a>> {
        match self {
            Value::Object(entries) => Some(MapEntries::Object(entries)),
            Value::Map(entries) => Some(MapEntries::Map(entries)),
            Value::Typed(Value::Object(entries), shape) => match shape.kind {
                ShapeKind::Object(_) | ShapeKind::Map(_) => Some(MapEntries::Typed(entries, shape)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Builds a map; of entries with equal keys the last one stays. Maps that are built differ from JSON objects in their errors.
    pub(crate) fn map(arena: &'a Arena, mut entries: Vec<(Value<'a>, Value<'a>)>) -> Value<'a> {
        entries.sort_by(|(left, _), (right, _)| order(left, right));
        let mut unique: Vec<(Value<'a>, Value<'a>)> = Vec::with_capacity(entries.len());
        for entry in entries {
            match unique.last_mut() {
                Some(last) if order(&last.0, &entry.0) == Ordering::Equal => *last = entry,
                _ => unique.push(entry),
            }
        }
        if unique.is_empty() { Value::Object(&[]) } else { Value::Map(arena.slice(&unique)) }
    }
}
