//! Sums of a list of a document and another list, `Add` in `pkg/cel/common/values*.go` of `k8s.io/apiserver`.
//!
//! The API server keeps the elements of a sum as values of Go, and reads them through the schema of the first list. A number or a text
//! of the second list is the same there. Other elements are errors when an expression reads them: a time is `time.Time` and not the
//! text of a document, and a list that an expression builds is `[]ref.Val`.
//!
//! From 1.37 on, a sum has the elements as expressions have them, and a set with lists or maps is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use super::typed::{
    ItemKey, NoScalar, Order, ShapeKind, Sums, ValueShape, converted_key, decode_base64, is_unhashable,
};
use super::{Arena, Value};
use crate::cel::escape::unescape;

/// The API server's error about a list or map in a set.
pub(crate) const NO_SCALAR: &str = "listSet operations are only supported on lists of scalar values";

/// Why two lists have no sum.
pub(crate) enum NoSum {
    /// An error of the expression.
    Error(&'static str),
    /// A failure within the API server.
    Internal,
}

/// Adds a list to a list of a document. In a set, equal elements occur once. In a list of type `map`, elements replace those with the
/// same keys. Returns `None` if the sum is simply both lists.
pub(crate) fn add<'a>(
    arena: &'a Arena,
    left: &Value<'a>,
    right: &Value<'a>,
) -> Option<Result<Value<'a>, NoSum>> {
    let shape = shape_of(left).filter(|_| right.is_list())?;
    match &shape.kind {
        ShapeKind::List { order: Order::Set, sums: Sums::Converted, .. } => {
            Some(add_converted(arena, left, right).map_err(|NoScalar| NoSum::Error(NO_SCALAR)))
        }
        ShapeKind::List { order: Order::Atomic, sums: Sums::Converted, .. } => {
            // The sum is not a list of the document, even if it has the elements of the second list only.
            let is_second = left.list_len() == Some(0) && matches!(right, Value::Typed(..));
            is_second.then(|| Ok(Value::List(arena.slice(&right.elements().collect::<Vec<_>>()))))
        }
        _ => Some(add_raw(arena, left, right, shape)?),
    }
}

/// Adds a list to a set from 1.37 on.
fn add_converted<'a>(arena: &'a Arena, left: &Value<'a>, right: &Value<'a>) -> Result<Value<'a>, NoScalar> {
    static SHAPE: LazyLock<ValueShape> = LazyLock::new(|| {
        let items = Box::new(ValueShape { kind: ShapeKind::Converted, is_nullable: false });
        ValueShape {
            kind: ShapeKind::List { items, order: Order::Set, sums: Sums::Converted },
            is_nullable: false,
        }
    });
    let mut sum: Vec<Value<'a>> = left.elements().collect();
    let mut known = BTreeSet::new();
    for element in &sum {
        known.extend(converted_key(element, arena)?);
    }
    for element in right.elements() {
        let is_new = converted_key(&element, arena)?.is_none_or(|key| known.insert(key));
        if is_new {
            sum.push(element);
        }
    }
    Ok(Value::Typed(arena.store(Value::List(arena.slice(&sum))), &SHAPE))
}

/// Adds a list to one whose elements are kept as values of Go.
fn add_raw<'a>(
    arena: &'a Arena,
    left: &Value<'a>,
    right: &Value<'a>,
    shape: &'a ValueShape,
) -> Option<Result<Value<'a>, NoSum>> {
    let ShapeKind::List { order, items, sums } = &shape.kind else { return None };
    let is_atomic = matches!(order, Order::Atomic);
    if is_atomic && left.list_len() != Some(0) && right.elements().all(|element| stays(&element, items)) {
        return None;
    }
    let mut sum = Vec::new();
    collect(left, arena, &mut sum);
    let mut positions = BTreeMap::new();
    for (position, element) in sum.iter().enumerate() {
        match key(element, (order, *sums)) {
            Ok(key) => positions.extend(key.map(|key| (key, position))),
            Err(failure) => return Some(Err(failure)),
        }
    }
    for element in right.elements() {
        let element = native(arena, &element);
        let key = match key(&element, (order, *sums)) {
            Ok(key) => key,
            Err(failure) => return Some(Err(failure)),
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
fn shape_of<'a>(list: &Value<'a>) -> Option<&'a ValueShape> {
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
fn stays(element: &Value<'_>, items: &ValueShape) -> bool {
    match element {
        Value::Typed(_, shape) => std::ptr::eq(*shape, items) && !matches!(items.kind, ShapeKind::Bytes),
        Value::Bool(_) => matches!(items.kind, ShapeKind::Bool),
        Value::Int(_) => matches!(items.kind, ShapeKind::Int | ShapeKind::IntOrString),
        Value::Double(_) => matches!(items.kind, ShapeKind::Double),
        Value::String(_) => matches!(items.kind, ShapeKind::Text | ShapeKind::IntOrString),
        _ => false,
    }
}

/// An element as the API server keeps it. An optional value stands for one that no document has.
fn native<'a>(arena: &'a Arena, element: &Value<'a>) -> Value<'a> {
    match *element {
        Value::Typed(Value::String(text), ValueShape { kind: ShapeKind::Bytes, .. }) => {
            match decode_base64(text) {
                Some(bytes) => Value::Bytes(arena.slice(&bytes)),
                None => Value::String(text),
            }
        }
        Value::Typed(value, _) => *value,
        Value::Concat(_) => {
            let elements: Vec<Value<'a>> =
                element.elements().map(|element| native(arena, &element)).collect();
            Value::List(arena.slice(&elements))
        }
        // An object is one of a document, which an optional value has without its schema. A list can be one as well, which is not known.
        Value::Null | Value::List(_) | Value::Map(_) => Value::Optional(Some(arena.store(*element))),
        scalar => scalar,
    }
}

/// The key of an element in a sum of this order, if it has one. The API server fails within itself if Go can't hash the element.
fn key<'a>(element: &Value<'a>, (order, sums): (&Order, Sums)) -> Result<Option<ItemKey<'a>>, NoSum> {
    match order {
        Order::Atomic => Ok(None),
        Order::Map(keys) if sums == Sums::Converted => {
            let names = keys.iter().map(|key| unescape(key).map_or_else(|| key.clone(), Into::into));
            Ok(ItemKey::of(element, &names.collect::<Vec<Box<str>>>()))
        }
        Order::Map(keys) => Ok(ItemKey::of(element, keys)),
        Order::Set if is_unhashable(element) => Err(NoSum::Internal),
        Order::Set => Ok(Some(ItemKey(vec![*element]))),
    }
}
