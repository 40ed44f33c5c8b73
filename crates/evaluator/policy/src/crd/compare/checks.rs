//! Compares the value validations of two schemas: bounds, enumerations, patterns, formats, `allOf` and its like.
//!
//! A validation that is removed or accepts more is not reported. Whether one pattern accepts less than another one is not decided: each
//! other pattern is reported.

use std::cmp::Ordering;
use std::collections::HashSet;

use super::change::{Class, SchemaPlace};
use super::{Comparer, types};
use crate::cel::constant::Constant;
use crate::release::{NEWEST, Release};
use crate::schema::{Schema, ValueChecks, formats, structural};
use crate::value::Arena;
use crate::value::format::{go_json, quote};

/// Values of an enumeration that are printed.
const MAX_VALUES: usize = 10;

/// Formats that accept all values of another one. Without a format, integers have 64 bits and other numbers are doubles.
const WIDER: [(&str, &str); 6] = [
    ("int32", "int64"),
    ("float", "double"),
    ("isbn10", "isbn"),
    ("isbn13", "isbn"),
    ("uuid3", "uuid"),
    ("uuid4", "uuid"),
];

/// Formats that accept all values.
const WIDEST: [&str; 3] = ["int64", "double", "password"];

/// Compares the value validations. `values` are the types of values that the old schema accepts.
pub(super) fn compare(
    comparer: &mut Comparer<'_>,
    old: &Schema,
    new: &Schema,
    values: u8,
    place: &SchemaPlace<'_>,
) {
    let Some(checks) = new.checks.as_deref() else { return };
    let none = ValueChecks::default();
    let before = old.checks.as_deref().unwrap_or(&none);
    // A field that is added to the model must be added to the comparison.
    let ValueChecks {
        format: _,
        maximum: _,
        exclusive_maximum: _,
        minimum: _,
        exclusive_minimum: _,
        multiple_of: _,
        max_length: _,
        min_length: _,
        pattern: _,
        max_items: _,
        min_items: _,
        unique_items: _,
        max_properties: _,
        min_properties: _,
        // Compared with the properties.
        required: _,
        values: _,
        all_of: _,
        any_of: _,
        one_of: _,
        not: _,
    } = checks;
    if values & (types::INTEGER | types::FRACTION) != 0 {
        numbers(comparer, before, checks, place);
    }
    let counts = [
        (
            types::STRING,
            "maxLength",
            "minLength",
            bounds(before.max_length, before.min_length),
            bounds(checks.max_length, checks.min_length),
        ),
        (
            types::LIST,
            "maxItems",
            "minItems",
            bounds(before.max_items, before.min_items),
            bounds(checks.max_items, checks.min_items),
        ),
        (
            types::OBJECT,
            "maxProperties",
            "minProperties",
            bounds(before.max_properties, before.min_properties),
            bounds(checks.max_properties, checks.min_properties),
        ),
    ];
    for (of, max, min, before, after) in counts {
        if values & of == 0 {
            continue;
        }
        if let Some(new) = after.max.filter(|new| before.max.is_none_or(|old| *new < old)) {
            comparer.push(Class::BoundsTightened, place, Some(max), was(max, before.max, new));
        }
        if let Some(new) = after.min.filter(|new| *new > before.min.unwrap_or(0)) {
            comparer.push(Class::BoundsTightened, place, Some(min), was(min, before.min, new));
        }
    }
    if values & types::LIST != 0 && checks.unique_items && !before.unique_items {
        let detail = "the items must be unique".to_owned();
        comparer.push(Class::BoundsTightened, place, Some("uniqueItems"), detail);
    }
    enumeration(comparer, before, checks, place);
    if values & types::STRING != 0
        && let Some(pattern) = &checks.pattern
        && before.pattern.as_ref().is_none_or(|before| before.source != pattern.source)
    {
        let detail = match &before.pattern {
            Some(before) => {
                format!("the pattern was {}, now it is {}", quote(&before.source), quote(&pattern.source))
            }
            None => format!("values must match {}", quote(&pattern.source)),
        };
        comparer.push(Class::PatternChanged, place, Some("pattern"), detail);
    }
    format(comparer, old, new, place);
    conditions(comparer, old, new, place);
}

/// The bounds of a length or a count.
struct Bounds {
    max: Option<i64>,
    min: Option<i64>,
}

fn bounds(max: Option<i64>, min: Option<i64>) -> Bounds {
    Bounds { max, min }
}

fn was<T: std::fmt::Display>(name: &str, old: Option<T>, new: T) -> String {
    match old {
        Some(old) => format!("{name} was {old}, now it is {new}"),
        None => format!("{name} {new} is new"),
    }
}

fn numbers(comparer: &mut Comparer<'_>, old: &ValueChecks, new: &ValueChecks, place: &SchemaPlace<'_>) {
    // A bound that excludes itself is narrower than one that does not.
    let shown =
        |bound: f64, is_exclusive: bool| format!("{bound}{}", if is_exclusive { " (exclusive)" } else { "" });
    let ends = [
        ("maximum", (old.maximum, old.exclusive_maximum), (new.maximum, new.exclusive_maximum), 1.0),
        ("minimum", (old.minimum, old.exclusive_minimum), (new.minimum, new.exclusive_minimum), -1.0),
    ];
    for (name, (before, was_exclusive), (after, is_exclusive), sign) in ends {
        let Some(after) = after else { continue };
        let is_kept = before.is_some_and(|before| match (after * sign).total_cmp(&(before * sign)) {
            Ordering::Greater => true,
            Ordering::Equal => was_exclusive || !is_exclusive,
            Ordering::Less => false,
        });
        if !is_kept {
            let before = before.map(|before| shown(before, was_exclusive));
            comparer.push(
                Class::BoundsTightened,
                place,
                Some(name),
                was(name, before, shown(after, is_exclusive)),
            );
        }
    }
    if let Some(after) = new.multiple_of {
        let is_kept = old.multiple_of.is_some_and(|before| {
            before.total_cmp(&after).is_eq() || (after.fract() == 0.0 && before % after == 0.0)
        });
        if !is_kept {
            let detail = was("multipleOf", old.multiple_of, after);
            comparer.push(Class::BoundsTightened, place, Some("multipleOf"), detail);
        }
    }
}

fn enumeration(comparer: &mut Comparer<'_>, old: &ValueChecks, new: &ValueChecks, place: &SchemaPlace<'_>) {
    if new.values.is_empty() {
        return;
    }
    let arena = Arena::new();
    let json = |value: &Constant| go_json(value.value(&arena));
    let detail = if old.values.is_empty() {
        let values: Vec<String> = new.values.iter().take(MAX_VALUES).map(json).collect();
        format!("only these values are valid: {}{}", values.join(", "), more(new.values.len()))
    } else {
        let valid: HashSet<String> = new.values.iter().map(json).collect();
        let gone: Vec<String> = old.values.iter().map(json).filter(|value| !valid.contains(value)).collect();
        if gone.is_empty() {
            return;
        }
        let values: Vec<&str> = gone.iter().take(MAX_VALUES).map(String::as_str).collect();
        format!("not valid any more: {}{}", values.join(", "), more(gone.len()))
    };
    comparer.push(Class::EnumTightened, place, Some("enum"), detail);
}

fn more(values: usize) -> String {
    match values.saturating_sub(MAX_VALUES) {
        0 => String::new(),
        more => format!(", and {more} more"),
    }
}

/// Compares the formats that an API server of any release checks.
fn format(comparer: &mut Comparer<'_>, old: &Schema, new: &Schema, place: &SchemaPlace<'_>) {
    let name = |schema: &Schema| formats::name(schema, Release::for_stored(NEWEST));
    let Some(after) = name(new) else { return };
    let before = name(old);
    let is_kept = WIDEST.contains(&&*after)
        || before.as_deref().is_some_and(|before| {
            before == after || WIDER.iter().any(|(narrow, wide)| *narrow == before && *wide == after)
        });
    if !is_kept {
        let detail = was("format", before, after);
        comparer.push(Class::FormatChanged, place, Some("format"), detail);
    }
}

/// Compares `allOf`, `anyOf`, `oneOf` and `not`. A condition accepts all old values if each alternative of the old schema is accepted.
fn conditions(comparer: &mut Comparer<'_>, old: &Schema, new: &Schema, place: &SchemaPlace<'_>) {
    let none = ValueChecks::default();
    let before = old.checks.as_deref().unwrap_or(&none);
    let Some(after) = new.checks.as_deref().filter(|checks| checks.has_junctors()) else { return };
    let report = |comparer: &mut Comparer<'_>, keyword: &str, detail: &str| {
        comparer.push(Class::ConditionTightened, place, Some(keyword), detail.to_owned());
    };
    for (index, condition) in after.all_of.iter().enumerate() {
        let is_kept = before.all_of.iter().any(|old| comparer.accepts(old, condition))
            || comparer.accepts(old, condition);
        if !is_kept {
            report(comparer, "allOf", &format!("allOf[{index}] can refuse values that were valid"));
        }
    }
    // The API server ignores it.
    let is_plain = new.is_int_or_string && structural::is_int_or_string_any_of(new);
    if !after.any_of.is_empty() && !is_plain {
        let mut accepted = |old: &Schema| after.any_of.iter().any(|new| comparer.accepts(old, new));
        let alternatives = if before.any_of.is_empty() { &before.one_of } else { &before.any_of };
        let is_kept = accepted(old) || (!alternatives.is_empty() && alternatives.iter().all(accepted));
        if !is_kept {
            report(comparer, "anyOf", "anyOf can refuse values that were valid");
        }
    }
    if !after.one_of.is_empty() && !are_same(comparer, &before.one_of, &after.one_of) {
        report(comparer, "oneOf", "oneOf has changed, so it can refuse values that were valid");
    }
    if let Some(condition) = &after.not {
        let is_kept = before.not.as_ref().is_some_and(|old| comparer.accepts(condition, old));
        if !is_kept {
            report(comparer, "not", "not can refuse values that were valid");
        }
    }
}

/// Whether two lists have the same alternatives in any order. With `oneOf`, an alternative that accepts more can refuse a value: two of
/// them are valid then.
fn are_same(comparer: &mut Comparer<'_>, old: &[Schema], new: &[Schema]) -> bool {
    let mut left: Vec<&Schema> = old.iter().collect();
    left.len() == new.len()
        && new.iter().all(|new| {
            let found = left.iter().position(|old| comparer.accepts(old, new) && comparer.accepts(new, old));
            found.map(|index| left.swap_remove(index)).is_some()
        })
}
