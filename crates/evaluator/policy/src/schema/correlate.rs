//! Pairs values of an update with the values before it.
//!
//! Objects are paired by field, lists of type `map` by their keys, and no other lists. From 1.30 on the API server ignores errors of
//! the schema in a value that equals its pair. Rules use the same pairs.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::fmt::Write as _;

use super::model::Schema;
use crate::value::{Value, identical};

/// A value, the value before the update, and the schema of both.
pub(crate) struct Correlation<'a> {
    pub(crate) new: Value<'a>,
    pub(crate) old: Value<'a>,
    schema: &'a Schema,
    /// The elements of the old list by their keys.
    elements: OnceCell<HashMap<String, Value<'a>>>,
}

impl<'a> Correlation<'a> {
    pub(crate) fn new(new: Value<'a>, old: Value<'a>, schema: &'a Schema) -> Self {
        Self { new, old, schema, elements: OnceCell::new() }
    }

    /// The pair of a field.
    pub(crate) fn field(&self, name: &str) -> Option<Self> {
        let schema = self.schema.property(name).or_else(|| self.schema.additional_schema())?;
        Some(Self::new(self.new.field(name)?, self.old.field(name)?, schema))
    }

    /// The pair of an element.
    pub(crate) fn element(&self, index: usize) -> Option<Self> {
        let schema = self.schema.items.as_deref()?;
        if !self.is_map_list() || !self.old.is_list() {
            return None;
        }
        let new = self.new.element(index)?;
        let elements = self.elements.get_or_init(|| {
            let mut elements = HashMap::new();
            for old in self.old.all_elements() {
                if let Some(key) = key(old, self.schema) {
                    elements.entry(key).or_insert(old);
                }
            }
            elements
        });
        let old = elements.get(&key(new, self.schema)?)?;
        Some(Self::new(new, *old, schema))
    }

    fn is_map_list(&self) -> bool {
        self.schema.list_type.as_deref() == Some("map")
    }

    /// Whether the value equals its pair. Lists of type `map` are equal in any order, and objects with fields that the schema
    /// does not declare are never equal. `charge` counts the values and ends the comparison.
    pub(crate) fn is_unchanged(&self, charge: &mut dyn FnMut() -> bool) -> bool {
        if !charge() {
            return false;
        }
        match (self.new, self.old) {
            (Value::List(new), Value::List(old)) => {
                if new.len() != old.len() {
                    return false;
                }
                if self.is_map_list() {
                    return (0..new.len())
                        .all(|index| self.element(index).is_some_and(|pair| pair.is_unchanged(charge)));
                }
                identical(self.new, self.old, charge)
            }
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len()
                    && new
                        .iter()
                        .all(|(name, _)| self.field(name).is_some_and(|pair| pair.is_unchanged(charge)))
            }
            (new, old) => identical(new, old, charge),
        }
    }
}

/// The values of the keys of an element, or `None` if one of them is absent or not a scalar. If there are several keys, a double has
/// six decimal places, as in Go.
fn key(element: Value<'_>, schema: &Schema) -> Option<String> {
    if !matches!(element, Value::Object(_)) {
        return None;
    }
    let is_single = schema.map_keys.len() == 1;
    let mut text = String::new();
    for name in &schema.map_keys {
        let _ = match element.field(name)? {
            Value::Bool(value) => write!(text, "\0{value}"),
            Value::Int(value) => write!(text, "\0{value}"),
            // Negative zero equals zero. The letter tells a double from an integer.
            Value::Double(value) if is_single => write!(text, "\0d{}", value + 0.0),
            Value::Double(value) => write!(text, "\0{value:.6}"),
            Value::String(value) => write!(text, "\0{}", crate::value::format::quote(value)),
            _ => return None,
        };
    }
    Some(text)
}
