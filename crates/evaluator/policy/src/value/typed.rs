//! Values of documents that are seen through their schemas, `pkg/cel/common/values*.go` of `k8s.io/apiserver`.
//!
//! A value is converted when an expression reads it: a number of a schema becomes a double, a date becomes a time. Fields of objects
//! are found by their escaped names, and fields without a type stay hidden. Equality and sums of lists follow their type.
//!
//! A value that does not fit its schema is an error when it is read. Only the old object and unchanged parts of the new one can have
//! such values, since the API server skips rules if another type is wrong.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::{Arena, Value, equal, identical, key_order, number, work};
use crate::cel::escape::unescape;

/// How expressions see a value of a document.
#[derive(Debug)]
pub struct ValueShape {
    pub(crate) kind: ShapeKind,
    pub(crate) is_nullable: bool,
}

/// The type of a [`ValueShape`].
#[derive(Debug)]
pub(crate) enum ShapeKind {
    Bool,
    Int,
    Double,
    Text,
    Bytes,
    Date,
    DateTime,
    Duration,
    IntOrString,
    List {
        items: Box<ValueShape>,
        order: Order,
        sums: Sums,
    },
    /// An element of a sum that is converted already.
    Converted,
    /// An object with properties, sorted by name.
    Object(Vec<(Box<str>, ValueShape)>),
    /// An object with additional properties.
    Map(Box<ValueShape>),
    /// A value of any type that expressions can't read.
    Hidden,
}

/// How the order of a list counts, `x-kubernetes-list-type`.
#[derive(Debug)]
pub(crate) enum Order {
    Atomic,
    Set,
    /// The escaped names of the keys. The API server looks for these in the objects.
    Map(Box<[Box<str>]>),
}

/// How the API server compares and adds the elements of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sums {
    /// As values of the document, before 1.37.
    Raw,
    /// As values that expressions have.
    Converted,
}

impl ValueShape {
    /// The shape of a field.
    pub(crate) fn property(&self, name: &str) -> Option<&ValueShape> {
        match &self.kind {
            ShapeKind::Object(properties) => {
                let found = properties.binary_search_by(|(key, _)| (**key).cmp(name)).ok()?;
                properties.get(found).map(|(_, shape)| shape)
            }
            ShapeKind::Map(values) => Some(values),
            _ => None,
        }
    }

    /// The shape of the elements of a list.
    pub(crate) fn items(&self) -> Option<&ValueShape> {
        match &self.kind {
            ShapeKind::List { items, .. } => Some(items),
            _ => None,
        }
    }
}

/// A value as expressions see it.
pub(crate) fn view<'a>(value: &'a Value<'a>, shape: &'a ValueShape) -> Value<'a> {
    let converted = match (value, &shape.kind) {
        (Value::Null, _) if shape.is_nullable => Some(Value::Null),
        (_, ShapeKind::Converted)
        | (Value::Bool(_), ShapeKind::Bool)
        | (Value::Int(_), ShapeKind::Int | ShapeKind::IntOrString)
        | (Value::Double(_), ShapeKind::Double)
        | (Value::String(_), ShapeKind::Text | ShapeKind::IntOrString) => Some(*value),
        (Value::Int(number), ShapeKind::Double) => Some(Value::Double(*number as f64)),
        (Value::String(text), ShapeKind::Date) if text.len() == 10 => {
            number::parse_timestamp(&format!("{text}T00:00:00Z")).map(Value::Timestamp)
        }
        (Value::String(text), ShapeKind::DateTime) => date_time(text),
        (Value::String(text), ShapeKind::Duration) => number::parse_long_duration(text).map(Value::Duration),
        _ => None,
    };
    converted.unwrap_or(Value::Typed(value, shape))
}

fn date_time(text: &str) -> Option<Value<'static>> {
    if text.is_empty() {
        return number::parse_timestamp("1970-01-01T00:00:00Z").map(Value::Timestamp);
    }
    let local = || number::parse_timestamp(&format!("{text}Z"));
    number::parse_timestamp(text).or_else(local).map(Value::Timestamp)
}

/// Reads a value whose conversion needs memory, or fails. Lists and maps stay as they are.
pub(crate) fn read<'a>(
    value: &'a Value<'a>,
    shape: &'a ValueShape,
    arena: &'a Arena,
) -> Result<Value<'a>, &'a str> {
    match (value, &shape.kind) {
        (Value::List(_), ShapeKind::List { .. })
        | (Value::Object(_), ShapeKind::Object(_) | ShapeKind::Map(_)) => {
            return Ok(Value::Typed(value, shape));
        }
        (_, ShapeKind::Hidden) => return Ok(Value::Typed(value, shape)),
        (Value::String(text), ShapeKind::Bytes) => {
            if let Some(bytes) = decode_base64(text) {
                return Ok(Value::Bytes(arena.slice(&bytes)));
            }
        }
        _ => {}
    }
    Err(arena.text(&failure(value, shape)))
}

/// The text about a value that does not fit. The API server names types and errors of Go.
fn failure(value: &Value<'_>, shape: &ValueShape) -> String {
    let expected = |name: &str| format!("invalid data, expected {name}, got {}", value.type_name());
    let format = |name: &str| match value {
        Value::String(text) => format!("Invalid {name} {text}"),
        _ => expected("string"),
    };
    match shape.kind {
        _ if matches!(value, Value::Null) => {
            "invalid data, got null for schema with nullable=false".to_owned()
        }
        ShapeKind::Bool => expected("bool"),
        ShapeKind::Int => expected("int"),
        ShapeKind::Double => expected("float"),
        ShapeKind::Text | ShapeKind::Hidden | ShapeKind::Converted => expected("string"),
        ShapeKind::Bytes => format("byte formatted string"),
        ShapeKind::Date => format("date formatted string"),
        ShapeKind::DateTime => format("date-time formatted string"),
        ShapeKind::Duration => format("duration"),
        ShapeKind::IntOrString => {
            "invalid data, expected XIntOrString value to be either a string or integer".to_owned()
        }
        ShapeKind::List { .. } => {
            "invalid data, expected an array for the provided schema with type=array".to_owned()
        }
        ShapeKind::Object(_) | ShapeKind::Map(_) => {
            "invalid data, expected a map for the provided schema with type=object".to_owned()
        }
    }
}

/// Decodes base64 with the alphabet of URLs, which the API server expects here.
pub(super) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let symbols: Vec<u8> = text.bytes().filter(|symbol| !matches!(symbol, b'\r' | b'\n')).collect();
    if !symbols.len().is_multiple_of(4) {
        return None;
    }
    let padding = symbols.iter().rev().take_while(|symbol| **symbol == b'=').count();
    if padding > 2 {
        return None;
    }
    let (mut bytes, mut bits, mut count) = (Vec::with_capacity(symbols.len() / 4 * 3), 0u32, 0);
    for symbol in symbols.get(..symbols.len() - padding)? {
        let six = match symbol {
            b'A'..=b'Z' => symbol - b'A',
            b'a'..=b'z' => symbol - b'a' + 26,
            b'0'..=b'9' => symbol - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(six);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).unwrap_or_default());
        }
    }
    Some(bytes)
}

/// The entry of an object by its escaped name, or of a map by its key. A null of a property counts as absent.
pub(super) fn named<'a>(
    entries: &'a [(&'a str, Value<'a>)],
    shape: &'a ValueShape,
    name: &str,
) -> Option<Value<'a>> {
    let unescaped = match shape.kind {
        ShapeKind::Object(_) => unescape(name)?,
        _ => name.into(),
    };
    let found = entries.binary_search_by(|(key, _)| (**key).cmp(&unescaped)).ok()?;
    let (key, value) = entries.get(found)?;
    if matches!((&shape.kind, value), (ShapeKind::Object(_), Value::Null)) {
        return None;
    }
    Some(view(value, shape.property(key)?))
}

/// The entry at a position. Fields without a type are hidden.
pub(super) fn at<'a>(
    (key, value): &'a (&'a str, Value<'a>),
    shape: &'a ValueShape,
) -> Option<(Value<'a>, Value<'a>)> {
    Some((Value::String(key), view(value, shape.property(key)?)))
}

/// Whether two values have no equality, which is an error: a list or map of a document and a value of another type, except null.
pub(crate) fn is_incomparable(left: &Value<'_>, right: &Value<'_>) -> bool {
    matches!(left, Value::Typed(..))
        && !matches!(right, Value::Null)
        && (left.is_list() != right.is_list() || left.entries().is_some() != right.entries().is_some())
}

/// The result of a comparison.
pub(crate) enum Equality<'a> {
    Equal,
    Different,
    /// A value that does not fit its schema.
    Misfit(&'a Value<'a>, &'a ValueShape),
    /// A value in a set that Go can't hash: the API server fails within itself.
    Unhashable,
    /// A list or a map in a set, which is an error from 1.37 on.
    NoScalar,
    /// A field that the schema does not declare, and an object without a schema: an error.
    Incomparable,
}

impl Equality<'_> {
    fn of(is_equal: bool) -> Self {
        if is_equal { Self::Equal } else { Self::Different }
    }

    pub(crate) fn is_equal(&self) -> bool {
        matches!(self, Self::Equal)
    }

    /// The first of several results that is not equal.
    fn all(results: impl IntoIterator<Item = Self>) -> Self {
        results.into_iter().find(|result| !result.is_equal()).unwrap_or(Self::Equal)
    }
}

/// A value that fits no conversion: an error when it is read.
fn misfit<'a>(value: &Value<'a>) -> Option<Equality<'a>> {
    let Value::Typed(of, shape) = *value else { return None };
    let is_fit = value.is_list()
        || value.entries().is_some()
        || matches!((of, &shape.kind), (_, ShapeKind::Hidden))
        || matches!((of, &shape.kind), (Value::String(text), ShapeKind::Bytes) if decode_base64(text).is_some());
    (!is_fit).then_some(Equality::Misfit(of, shape))
}

/// Compares two values, of which the first can be one of a document.
pub(crate) fn compare<'a>(left: &Value<'a>, right: &Value<'a>) -> Equality<'a> {
    let Value::Typed(value, shape) = left else { return Equality::of(equal(left, right)) };
    if !work::read(1) {
        return Equality::Different;
    }
    if let Some(misfit) = misfit(left) {
        return misfit;
    }
    if let Some(misfit) = misfit(right).filter(|_| left.is_list() || left.entries().is_some()) {
        return misfit;
    }
    equals(value, shape, right)
}

/// Compares a value of a document with another value.
pub(super) fn equals<'a>(value: &'a Value<'a>, shape: &'a ValueShape, other: &Value<'a>) -> Equality<'a> {
    match (value, &shape.kind) {
        (Value::List(elements), ShapeKind::List { items, order, sums }) => {
            if other.list_len() != Some(elements.len()) {
                return Equality::Different;
            }
            match order {
                Order::Atomic => {
                    let pairs = elements.iter().zip(other.elements());
                    Equality::all(pairs.map(|(element, other)| compare(&view(element, items), &other)))
                }
                Order::Set if *sums == Sums::Converted => equal_converted_sets(elements, items, other),
                Order::Set => equal_sets(elements, other),
                Order::Map(keys) => equal_by_key(elements, items, (keys, *sums), other),
            }
        }
        (Value::Object(entries), ShapeKind::Object(_) | ShapeKind::Map(_)) => {
            equal_entries(entries, shape, other)
        }
        (value, ShapeKind::Hidden) => Equality::of(match other {
            Value::Typed(other, _) => identical(*value, **other, &mut || work::read(1)),
            // The plain form, as an optional value has it.
            other => identical(*value, *other, &mut || work::read(1)),
        }),
        (Value::String(text), ShapeKind::Bytes) => Equality::of(match (decode_base64(text), other) {
            (Some(bytes), Value::Bytes(other)) => bytes == *other,
            (Some(_), Value::Typed(Value::String(other), _)) => text == other,
            _ => false,
        }),
        _ => Equality::Different,
    }
}

/// Objects are equal by their properties. A hidden field counts only if both have it. The API server compares fields in random order;
/// here a field that does not fit comes first.
fn equal_entries<'a>(
    entries: &'a [(&'a str, Value<'a>)],
    shape: &'a ValueShape,
    other: &Value<'a>,
) -> Equality<'a> {
    let Some(others) = other.entries().filter(|others| others.len() == entries.len()) else {
        return Equality::Different;
    };
    let mut result = Equality::Equal;
    for (key, value) in entries {
        let field = if shape.property(key).is_some() {
            match (named(entries, shape, key), others.named(key)) {
                (Some(left), Some(right)) => compare(&left, &right),
                (left, right) => Equality::of(left.is_none() && right.is_none()),
            }
        } else {
            let Value::Typed(Value::Object(others), _) = other else { return Equality::Incomparable };
            let found = others.binary_search_by(|(other, _)| other.cmp(key)).ok();
            let other = found.and_then(|found| others.get(found));
            Equality::of(other.is_none_or(|(_, other)| identical(*value, *other, &mut || work::read(1))))
        };
        match field {
            Equality::Equal => {}
            Equality::Different => result = field,
            _ => return field,
        }
    }
    result
}

/// Values in the order of keys. An absent value is null.
pub(super) struct ItemKey<'a>(pub(super) Vec<Value<'a>>);

impl<'a> ItemKey<'a> {
    /// The key of an element of a list of type `map`.
    pub(super) fn of(element: &Value<'a>, names: &[Box<str>]) -> Option<Self> {
        let object = match element {
            Value::Typed(object, _) => **object,
            object => *object,
        };
        let Value::Object(_) = object else { return None };
        Some(Self(names.iter().map(|name| object.field(name).unwrap_or_default()).collect()))
    }
}

impl Ord for ItemKey<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let orders = self.0.iter().zip(&other.0).map(|(left, right)| key_order(left, right));
        orders.fold(Ordering::Equal, Ordering::then)
    }
}

impl PartialOrd for ItemKey<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ItemKey<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for ItemKey<'_> {}

/// Compares a set with a list of the same length. The API server looks for the elements of the other list among those of the set as the
/// document has them: a time or a number that was converted is never found, and elements that occur twice don't matter.
fn equal_sets<'a>(elements: &'a [Value<'a>], other: &Value<'a>) -> Equality<'a> {
    if elements.iter().any(is_unhashable) {
        return Equality::Unhashable;
    }
    let known: BTreeSet<ItemKey<'_>> = elements.iter().map(|element| ItemKey(vec![*element])).collect();
    for element in other.elements() {
        let is_found = match element {
            Value::Typed(Value::String(_), ValueShape { kind: ShapeKind::Bytes, .. }) | Value::Bytes(_) => {
                return Equality::Unhashable;
            }
            Value::Typed(value, _) if element.is_list() || element.entries().is_some() => {
                return if is_unhashable(value) { Equality::Unhashable } else { Equality::Different };
            }
            // A null is another value of Go than that of the document.
            Value::Bool(_) | Value::Int(_) | Value::Double(_) | Value::String(_) => {
                known.contains(&ItemKey(vec![element]))
            }
            _ => false,
        };
        if !is_found {
            return Equality::Different;
        }
    }
    Equality::Equal
}

/// The same from 1.37 on. The elements are converted, and each one of the set must occur.
fn equal_converted_sets<'a>(
    elements: &'a [Value<'a>],
    items: &'a ValueShape,
    other: &Value<'a>,
) -> Equality<'a> {
    let arena = Arena::new();
    let mut known = BTreeSet::new();
    for element in elements {
        let Ok(key) = converted_key(&view(element, items), &arena) else { return Equality::NoScalar };
        known.extend(key);
    }
    let mut seen = BTreeSet::new();
    for element in other.elements() {
        match converted_key(&element, &arena) {
            Err(NoScalar) => return Equality::NoScalar,
            Ok(Some(key)) if known.contains(&key) => seen.insert(key),
            Ok(_) => return Equality::Different,
        };
    }
    Equality::of(seen.len() == known.len())
}

fn equal_by_key<'a>(
    elements: &'a [Value<'a>],
    items: &'a ValueShape,
    (keys, sums): (&[Box<str>], Sums),
    other: &Value<'a>,
) -> Equality<'a> {
    let mut by_key = BTreeMap::new();
    for element in elements {
        let Some(key) = ItemKey::of(element, keys) else { return Equality::Different };
        by_key.insert(key, element);
    }
    let mut seen = BTreeSet::new();
    for other in other.elements() {
        let Some(key) = ItemKey::of(&other, keys) else { return Equality::Different };
        let Some(element) = by_key.get(&key) else { return Equality::Different };
        let result = compare(&view(element, items), &other);
        if !result.is_equal() {
            return result;
        }
        seen.insert(key);
    }
    // Before 1.37, elements of the other list can have the same key.
    Equality::of(sums == Sums::Raw || seen.len() == by_key.len())
}

/// A list or map in a set.
pub(super) struct NoScalar;

/// The key of an element of a set from 1.37 on. Times with an offset for which Go has no common zone are never equal, and neither are
/// values that don't fit their schema.
pub(super) fn converted_key<'a>(
    element: &Value<'a>,
    arena: &'a Arena,
) -> Result<Option<ItemKey<'a>>, NoScalar> {
    if element.is_list() || element.entries().is_some() {
        return Err(NoScalar);
    }
    let is_common = |offset: i16| offset % 60 == 0 && (-12 * 60..=14 * 60).contains(&offset);
    Ok(match *element {
        Value::Typed(Value::String(text), ValueShape { kind: ShapeKind::Bytes, .. }) => {
            decode_base64(text).map(|bytes| ItemKey(vec![Value::Bytes(arena.slice(&bytes))]))
        }
        Value::Timestamp(time) => {
            is_common(time.offset).then(|| ItemKey(vec![*element, Value::Int(i64::from(time.offset))]))
        }
        // Zero has a sign that does not count.
        Value::Double(number) => Some(ItemKey(vec![Value::Double(number + 0.0)])),
        Value::Typed(..) => None,
        scalar => Some(ItemKey(vec![scalar])),
    })
}

/// Whether Go can't hash a value, so that it can't be an element of a set.
pub(super) fn is_unhashable(value: &Value<'_>) -> bool {
    match value {
        Value::List(_) | Value::Object(_) | Value::Bytes(_) => true,
        Value::Optional(Some(value)) => !matches!(value, Value::Null),
        _ => false,
    }
}
