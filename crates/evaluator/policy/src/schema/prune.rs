//! Removes fields that a schema does not declare.

use super::defaults::{replace_entries, replace_items};
use super::model::Schema;
use crate::field::Path;
use crate::place::ValuePlace;
use crate::value::{Arena, Value};

/// Unknown fields that are reported of one value.
const MAX_UNKNOWN: usize = 10_000;

/// Removes unknown fields. Returns the value and the paths of the removed fields, sorted by text. `is_root` keeps `apiVersion`, `kind` and
/// `metadata`.
pub(crate) fn prune<'a>(
    value: Value<'a>,
    schema: &Schema,
    is_root: bool,
    arena: &'a Arena,
) -> (Value<'a>, Vec<Path>) {
    let mut pruner = Pruner { arena, unknown: Vec::new() };
    let value = pruner.node(value, Some(schema), is_root, &ValuePlace::root());
    pruner.unknown.sort_by_cached_key(ToString::to_string);
    (value, pruner.unknown)
}

/// Whether a field belongs to every object.
fn is_meta(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

struct Pruner<'a> {
    arena: &'a Arena,
    unknown: Vec<Path>,
}

impl<'a> Pruner<'a> {
    /// Without a schema, objects become empty.
    fn node(
        &mut self,
        value: Value<'a>,
        schema: Option<&Schema>,
        is_root: bool,
        place: &ValuePlace<'_>,
    ) -> Value<'a> {
        if let Some(schema) = schema.filter(|schema| schema.preserves_unknown_fields()) {
            return self.preserved(value, schema, is_root, place);
        }
        let arena = self.arena;
        match value {
            Value::Object(entries) => replace_entries(entries, Vec::new(), arena, |name, value| {
                let is_embedded = is_root || schema.is_some_and(|schema| schema.is_embedded_resource);
                if is_embedded && is_meta(name) {
                    return Some(value);
                }
                let kept = self.known(name, value, schema, place);
                if kept.is_none() && !(place.is_root() && schema.is_some() && is_meta(name)) {
                    self.record(&place.property(name));
                }
                kept
            })
            .unwrap_or(value),
            Value::List(items) => {
                let items_schema = schema.and_then(|schema| schema.items.as_deref());
                let mut index = 0;
                replace_items(value, items, arena, |item| {
                    let item = self.node(item, items_schema, false, &place.index(index));
                    index += 1;
                    item
                })
            }
            scalar => scalar,
        }
    }

    /// Prunes a value that keeps its unknown fields.
    fn preserved(
        &mut self,
        value: Value<'a>,
        schema: &Schema,
        is_root: bool,
        place: &ValuePlace<'_>,
    ) -> Value<'a> {
        let arena = self.arena;
        match value {
            Value::Object(entries) => replace_entries(entries, Vec::new(), arena, |name, value| {
                if (is_root || schema.is_embedded_resource) && is_meta(name) {
                    return Some(value);
                }
                self.known(name, value, Some(schema), place).or(Some(value))
            })
            .unwrap_or(value),
            Value::List(items) => {
                let Some(items_schema) = schema.items.as_deref() else { return value };
                let mut index = 0;
                replace_items(value, items, arena, |item| {
                    let item = self.preserved(item, items_schema, false, &place.index(index));
                    index += 1;
                    item
                })
            }
            scalar => scalar,
        }
    }

    /// Prunes a field that the schema declares. With `additionalProperties: true`, the objects in it become empty.
    fn known(
        &mut self,
        name: &'a str,
        value: Value<'a>,
        schema: Option<&Schema>,
        place: &ValuePlace<'_>,
    ) -> Option<Value<'a>> {
        let schema = schema?;
        let field = schema.property(name).or_else(|| schema.additional_schema());
        if field.is_none() && schema.additional.is_none() {
            return None;
        }
        Some(self.node(value, field, false, &place.property(name)))
    }

    fn record(&mut self, place: &ValuePlace<'_>) {
        if self.unknown.len() < MAX_UNKNOWN {
            self.unknown.push(place.path(&Path::default()));
        }
    }
}
