//! Sets defaults, and removes nulls that a schema does not allow.

use super::model::Schema;
use crate::value::{Arena, Value};

/// Sets the defaults of absent fields, and of nulls that are not allowed. Defaults within `allOf` and its like do not count.
pub(crate) fn set<'a>(value: Value<'a>, schema: &'a Schema, arena: &'a Arena) -> Value<'a> {
    match value {
        Value::Object(entries) => object(entries, schema, arena).unwrap_or(value),
        Value::List(items) => {
            let Some(schema) = schema.items.as_deref() else { return value };
            let set_item = |item: Value<'a>| set(or_default(item, schema, arena), schema, arena);
            replace_items(value, items, arena, set_item)
        }
        scalar => scalar,
    }
}

/// Returns `None` if no entry changes.
fn object<'a>(
    entries: &'a [(&'a str, Value<'a>)],
    schema: &'a Schema,
    arena: &'a Arena,
) -> Option<Value<'a>> {
    let mut missing: Vec<(&'a str, Value<'a>)> = Vec::new();
    for (name, property) in &schema.properties {
        if let Some(default) = &property.default
            && !has(entries, name)
        {
            missing.push((name, set(default.value(arena), property, arena)));
        }
    }
    let set_entry = |name: &str, value: Value<'a>| {
        let field = schema.property(name).or_else(|| schema.additional_schema());
        Some(field.map_or(value, |field| set(or_default(value, field, arena), field, arena)))
    };
    replace_entries(entries, missing, arena, set_entry)
}

fn has(entries: &[(&str, Value<'_>)], name: &str) -> bool {
    entries.binary_search_by(|(key, _)| (*key).cmp(name)).is_ok()
}

/// The default of a null that is not allowed, or null without one.
fn or_default<'a>(value: Value<'a>, schema: &'a Schema, arena: &'a Arena) -> Value<'a> {
    match (value, &schema.default) {
        (Value::Null, Some(default)) if !schema.nullable => default.value(arena),
        _ => value,
    }
}

/// Removes fields that are null, if their schema does not allow null and has no default.
pub(crate) fn remove_nulls<'a>(value: Value<'a>, schema: &Schema, arena: &'a Arena) -> Value<'a> {
    match value {
        Value::Object(entries) => {
            let replace = |name: &str, value: Value<'a>| {
                let field = schema.property(name).or_else(|| schema.additional_schema());
                let Some(field) = field else { return Some(value) };
                if matches!(value, Value::Null) && !field.nullable && field.default.is_none() {
                    return None;
                }
                Some(remove_nulls(value, field, arena))
            };
            replace_entries(entries, Vec::new(), arena, replace).unwrap_or(value)
        }
        Value::List(items) => {
            let Some(schema) = schema.items.as_deref() else { return value };
            replace_items(value, items, arena, |item| remove_nulls(item, schema, arena))
        }
        scalar => scalar,
    }
}

/// A list with other items, or the list itself if they are the same.
pub(super) fn replace_items<'a>(
    list: Value<'a>,
    items: &'a [Value<'a>],
    arena: &'a Arena,
    mut replace: impl FnMut(Value<'a>) -> Value<'a>,
) -> Value<'a> {
    let mut is_changed = false;
    let replaced: Vec<Value<'a>> = items
        .iter()
        .map(|item| {
            let other = replace(*item);
            is_changed |= !is_same(*item, other);
            other
        })
        .collect();
    if is_changed { Value::List(arena.slice(&replaced)) } else { list }
}

/// An object with other and more entries, or `None` if they are the same. An entry without a replacement is removed.
pub(super) fn replace_entries<'a>(
    entries: &'a [(&'a str, Value<'a>)],
    added: Vec<(&'a str, Value<'a>)>,
    arena: &'a Arena,
    mut replace: impl FnMut(&'a str, Value<'a>) -> Option<Value<'a>>,
) -> Option<Value<'a>> {
    let mut is_changed = !added.is_empty();
    let mut replaced = Vec::with_capacity(entries.len() + added.len());
    for (name, value) in entries {
        match replace(name, *value) {
            Some(other) => {
                is_changed |= !is_same(*value, other);
                replaced.push((*name, other));
            }
            None => is_changed = true,
        }
    }
    if !is_changed {
        return None;
    }
    if !added.is_empty() {
        replaced.extend(added);
        replaced.sort_by(|left, right| left.0.cmp(right.0));
    }
    Some(Value::Object(arena.slice(&replaced)))
}

/// Whether a replacement is the value itself. Scalars are replaced only if they are null.
fn is_same(value: Value<'_>, other: Value<'_>) -> bool {
    match (value, other) {
        (Value::Object(value), Value::Object(other)) => std::ptr::eq(value, other),
        (Value::List(value), Value::List(other)) => std::ptr::eq(value, other),
        (Value::Null, other) => matches!(other, Value::Null),
        _ => true,
    }
}
