//! Sums of a list of a document and another list, `Add` in `pkg/cel/common/values*.go` of `k8s.io/apiserver`.
//!
//! The API server keeps the elements of a sum as values of Go, and reads them through the schema of the first list. A number or a text
//! of the second list is the same there. Other elements are errors when an expression reads them: a time is `time.Time` and not the
//! text of a document, and a list that an expression builds is `[]ref.Val`.

use std::collections::BTreeMap;

use super::typed::{Key, Kind, Order, Shape, decode_base64};
use super::{Arena, Value};

/// Adds a list to a list of a document. In a set, equal elements occur once. In a list of type `map`, elements replace those with the
/// same keys. Returns `None` if the sum is simply both lists, and the text of the failure within the API server if it can't add them.
pub(crate) fn add<'a>(
    arena: &'a Arena,
    left: &Value<'a>,
    right: &Value<'a>,
) -> Option<Result<Value<'a>, String>> {
    let shape = shape_of(left).filter(|_| right.is_list())?;
    let Kind::List { order, items } = &shape.kind else { return None };
    let is_atomic = matches!(order, Order::Atomic);
    if is_atomic && left.list_len() != Some(0) && right.elements().all(|element| stays(&element, items)) {
        return None;
    }
    let mut sum = Vec::new();
    collect(left, arena, &mut sum);
    let mut positions = BTreeMap::new();
    for (position, element) in sum.iter().enumerate() {
        match key(element, order, false) {
            Ok(key) => positions.extend(key.map(|key| (key, position))),
            Err(text) => return Some(Err(text)),
        }
    }
    for element in right.elements() {
        let element = native(arena, &element);
        let key = match key(&element, order, positions.is_empty()) {
            Ok(key) => key,
            Err(text) => return Some(Err(text)),
        };
        let known = key.as_ref().and_then(|key| positions.get(key)).copied();
        if let Some(place) = known.and_then(|position| sum.get_mut(position)) {
            *place = element;
        } else {
            positions.extend(key.map(|key| (key, sum.len())));
            sum.push(element);
        }
    }
    Some(Ok(Value::Typed(arena.store(Value::List(arena.slice(&sum))), shape)))
}

/// The shape of a list of a document, or of a sum that starts with one.
fn shape_of<'a>(list: &Value<'a>) -> Option<&'a Shape> {
    let mut list = list;
    loop {
        match list {
            Value::Typed(Value::List(_), shape) => return Some(shape),
            Value::Concat(concat) => list = &concat.left,
            _ => return None,
        }
    }
}

/// Adds the elements of a list of a document, or of a sum that starts with one. Those of the document are not converted.
fn collect<'a>(list: &Value<'a>, arena: &'a Arena, into: &mut Vec<Value<'a>>) {
    match list {
        Value::Typed(Value::List(elements), _) => into.extend_from_slice(elements),
        Value::Concat(concat) => {
            collect(&concat.left, arena, into);
            into.extend(concat.right.elements().map(|element| native(arena, &element)));
        }
        _ => {}
    }
}

/// Whether an element of the second list is the same element in the sum.
fn stays(element: &Value<'_>, items: &Shape) -> bool {
    match element {
        Value::Typed(_, shape) => std::ptr::eq(*shape, items) && !matches!(items.kind, Kind::Bytes),
        Value::Bool(_) => matches!(items.kind, Kind::Bool),
        Value::Int(_) => matches!(items.kind, Kind::Int | Kind::IntOrString),
        Value::Double(_) => matches!(items.kind, Kind::Double),
        Value::String(_) => matches!(items.kind, Kind::Text | Kind::IntOrString),
        _ => false,
    }
}

/// An element as the API server keeps it. An optional value stands for one that no document has.
fn native<'a>(arena: &'a Arena, element: &Value<'a>) -> Value<'a> {
    match *element {
        Value::Typed(Value::String(text), Shape { kind: Kind::Bytes, .. }) => match decode_base64(text) {
            Some(bytes) => Value::Bytes(arena.slice(&bytes)),
            None => Value::String(text),
        },
        Value::Typed(value, _) => *value,
        Value::Concat(_) => {
            let elements: Vec<Value<'a>> =
                element.elements().map(|element| native(arena, &element)).collect();
            Value::List(arena.slice(&elements))
        }
        Value::Null | Value::List(_) | Value::Object(_) | Value::Map(_) => {
            Value::Optional(Some(arena.store(*element)))
        }
        scalar => scalar,
    }
}

/// The key of an element in a sum of this order, if it has one. `is_first` says that there are no keys yet.
fn key<'a>(element: &Value<'a>, order: &Order, is_first: bool) -> Result<Option<Key<'a>>, String> {
    match order {
        Order::Atomic => Ok(None),
        Order::Map(keys) => Ok(Key::of(element, keys)),
        Order::Set => match unhashable(element) {
            None => Ok(Some(Key(vec![*element]))),
            // Go has another error for an empty map.
            Some(name) if is_first => Err(format!("hash of unhashable type: {name}")),
            Some(name) => Err(format!("runtime error: hash of unhashable type {name}")),
        },
    }
}

/// The type of a value that can't be an element of a set in Go.
pub(super) fn unhashable(value: &Value<'_>) -> Option<&'static str> {
    let is_unhashable = match value {
        Value::List(_) | Value::Object(_) | Value::Bytes(_) => true,
        Value::Optional(Some(value)) => !matches!(value, Value::Null),
        _ => false,
    };
    is_unhashable.then(|| go_type(value))
}

/// The type of an element of a sum in Go.
pub(super) fn go_type(value: &Value<'_>) -> &'static str {
    match value {
        Value::List(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
        Value::Bytes(_) => "[]uint8",
        Value::Timestamp(_) => "time.Time",
        Value::Duration(_) => "time.Duration",
        Value::Uint(_) => "uint64",
        Value::Optional(Some(Value::Null)) => "structpb.NullValue",
        Value::Optional(Some(Value::List(_))) => "[]ref.Val",
        _ => "map[ref.Val]ref.Val",
    }
}
