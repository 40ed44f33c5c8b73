//! Finds duplicates in lists of type `set` and `map`.

use std::collections::HashMap;

use super::model::Schema;
use crate::field::{FieldError, Path};
use crate::value::format::go_json;
use crate::value::{Arena, Value};

/// Errors that are reported of one value.
const MAX_ERRORS: usize = 10_000;

/// Validates the lists of a value below a path.
pub(crate) fn validate(value: Value<'_>, schema: &Schema, path: &Path) -> Vec<FieldError> {
    let mut finder = DuplicateFinder { errors: Vec::new() };
    finder.node(value, schema, path);
    finder.errors
}

struct DuplicateFinder {
    errors: Vec<FieldError>,
}

impl DuplicateFinder {
    fn push(&mut self, error: FieldError) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(error);
        }
    }

    fn node(&mut self, value: Value<'_>, schema: &Schema, path: &Path) {
        match value {
            Value::Object(entries) => {
                if let Some(additional) = schema.additional_schema() {
                    for (name, value) in entries.iter().filter(|(_, value)| is_compound(value)) {
                        self.node(*value, additional, &path.key(name));
                    }
                }
                for (name, value) in entries.iter().filter(|(_, value)| is_compound(value)) {
                    if let Some(property) = schema.property(name) {
                        self.node(*value, property, &path.child(name));
                    }
                }
            }
            Value::List(items) => {
                match schema.list_type.as_deref() {
                    Some("set") => self.set(items, path),
                    Some("map") => self.map(items, schema, path),
                    _ => {}
                }
                let Some(schema) = schema.items.as_deref() else { return };
                for (index, item) in items.iter().enumerate().filter(|(_, item)| is_compound(item)) {
                    self.node(*item, schema, &path.index(index));
                }
            }
            _ => {}
        }
    }

    fn set(&mut self, items: &[Value<'_>], path: &Path) {
        for index in second_ones(items.iter().map(|item| identity(*item))) {
            let item = items.get(index).copied().unwrap_or_default();
            self.push(FieldError::duplicate_value(&path.index(index), item));
        }
    }

    fn map(&mut self, items: &[Value<'_>], schema: &Schema, path: &Path) {
        let is_entry = |item: &Value<'_>| matches!(item, Value::Object(_) | Value::Null);
        if let Some(index) = items.iter().position(|item| !is_entry(item)) {
            let item = items.get(index).copied().unwrap_or_default();
            let detail = "must be an object for an array of list-type map";
            self.push(FieldError::invalid_value(&path.index(index), item, detail));
            return;
        }
        if items.len() < 2 {
            return;
        }
        let arena = Arena::new();
        let key_of = |item: &Value<'_>| -> String {
            match &*schema.map_keys {
                // A single key keeps the type of its value.
                [name] => item.field(name).map_or(String::new(), identity),
                _ => go_json(keys(*item, schema, &arena)),
            }
        };
        for index in second_ones(items.iter().map(key_of)) {
            let item = items.get(index).copied().unwrap_or_default();
            let shown = keys(item, schema, &arena);
            self.push(FieldError::duplicate_value(&path.index(index), shown));
        }
    }
}

fn is_compound(value: &Value<'_>) -> bool {
    matches!(value, Value::Object(_) | Value::List(_))
}

/// The keys of an element as an object. Absent keys are left out.
fn keys<'a>(item: Value<'a>, schema: &'a Schema, arena: &'a Arena) -> Value<'a> {
    let names = schema.map_keys.iter().map(AsRef::as_ref);
    let entries: Vec<(&'a str, Value<'a>)> =
        names.filter_map(|name| Some((name, item.field(name)?))).collect();
    arena.object(&entries)
}

/// A text that is equal for equal values. Scalars differ by type, and compounds are compared as JSON.
fn identity(value: Value<'_>) -> String {
    match value {
        Value::Double(value) => format!("d{}", value + 0.0),
        Value::String(text) => format!("s{text}"),
        other => go_json(other),
    }
}

/// The indexes of the second occurrence of each text that occurs more than once.
fn second_ones(texts: impl Iterator<Item = String>) -> Vec<usize> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut found = Vec::new();
    for (index, text) in texts.enumerate() {
        let times = seen.entry(text).or_default();
        *times += 1;
        if *times == 2 {
            found.push(index);
        }
    }
    found
}
