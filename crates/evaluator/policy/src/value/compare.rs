//! Equality and order of values, as in cel-go: numbers are compared across their types.

use std::cmp::Ordering;

use super::typed::{self, Equality};
use super::{Opaque, Value, work};

/// Whether two values are equal. Values of different types are unequal, except numbers. An error is not equal.
pub(crate) fn equal(left: &Value<'_>, right: &Value<'_>) -> bool {
    equality(left, right) == Some(true)
}

/// Whether two values are equal within others. There, an error is not unequal.
fn equal_within(left: &Value<'_>, right: &Value<'_>) -> bool {
    equality(left, right) != Some(false)
}

/// The result of a comparison, or `None` if it is an error.
fn equality(left: &Value<'_>, right: &Value<'_>) -> Option<bool> {
    if !work::read(1) {
        return Some(false);
    }
    Some(match (left, right) {
        (Value::Typed(..), _) => match typed::compare(left, right) {
            Equality::Unhashable => {
                work::fail();
                false
            }
            Equality::Misfit(..) | Equality::NoScalar | Equality::Incomparable => return None,
            _ if typed::is_incomparable(left, right) => return None,
            result => result.is_equal(),
        },
        (Value::Null, Value::Null) | (Value::Variables, Value::Variables) => true,
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::String(left), Value::String(right)) | (Value::Type(left), Value::Type(right)) => {
            left == right
        }
        (Value::Bytes(left), Value::Bytes(right)) => left == right,
        (Value::Timestamp(left), Value::Timestamp(right)) => left == right,
        (Value::Duration(left), Value::Duration(right)) => left == right,
        (Value::Optional(left), Value::Optional(right)) => match (left, right) {
            (Some(left), Some(right)) => return equality(left, right),
            (left, right) => left.is_none() && right.is_none(),
        },
        (Value::Opaque(left), Value::Opaque(right)) => left.equal(right),
        (
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
        ) => numbers(left, right) == Some(Ordering::Equal),
        _ => match (left.list_len(), right.list_len()) {
            (Some(left_len), Some(right_len)) => {
                left_len == right_len
                    && left.elements().zip(right.elements()).all(|(left, right)| equal_within(&left, &right))
            }
            (None, None) => match (left.entries(), right.entries()) {
                (Some(left), Some(right)) => {
                    left.len() == right.len()
                        && left.iter().all(|(key, value)| {
                            right.get(&key).is_some_and(|other| equal_within(&value, &other))
                        })
                }
                _ => false,
            },
            _ => false,
        },
    })
}

/// Whether two JSON values are equal and of the same type, as `reflect.DeepEqual` of Go has it: 1 and 1.0 are not. `charge` counts the
/// values and ends the comparison.
pub(crate) fn identical(left: Value<'_>, right: Value<'_>, charge: &mut dyn FnMut() -> bool) -> bool {
    charge()
        && match (left, right) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(left), Value::Bool(right)) => left == right,
            (Value::Int(left), Value::Int(right)) => left == right,
            (Value::Double(left), Value::Double(right)) => left.partial_cmp(&right) == Some(Ordering::Equal),
            (Value::String(left), Value::String(right)) => left == right,
            (Value::List(left), Value::List(right)) => {
                left.len() == right.len()
                    && left.iter().zip(right).all(|(left, right)| identical(*left, *right, charge))
            }
            (Value::Object(left), Value::Object(right)) => {
                left.len() == right.len()
                    && left.iter().zip(right).all(|((left_key, left), (right_key, right))| {
                        left_key == right_key && identical(*left, *right, charge)
                    })
            }
            _ => false,
        }
}

/// Order of two values, or nothing if they have no order. Incomparable doubles (NaN) are `Err`.
pub(crate) fn compare(left: &Value<'_>, right: &Value<'_>) -> Option<Result<Ordering, NotANumber>> {
    let order = match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bytes(left), Value::Bytes(right)) => left.cmp(right),
        (Value::Timestamp(left), Value::Timestamp(right)) => left.cmp(right),
        (Value::Duration(left), Value::Duration(right)) => left.cmp(right),
        (
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
        ) => {
            return Some(numbers(left, right).ok_or(NotANumber));
        }
        _ => return None,
    };
    Some(Ok(order))
}

/// A double is not a number and has no order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotANumber;

fn numbers(left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    match (*left, *right) {
        (Value::Int(left), Value::Int(right)) => Some(left.cmp(&right)),
        (Value::Uint(left), Value::Uint(right)) => Some(left.cmp(&right)),
        (Value::Double(left), Value::Double(right)) => left.partial_cmp(&right),
        (Value::Int(left), Value::Uint(right)) => Some(i128::from(left).cmp(&i128::from(right))),
        (Value::Uint(left), Value::Int(right)) => Some(i128::from(left).cmp(&i128::from(right))),
        (Value::Double(left), Value::Int(right)) => double_int(left, right),
        (Value::Int(left), Value::Double(right)) => double_int(right, left).map(Ordering::reverse),
        (Value::Double(left), Value::Uint(right)) => double_uint(left, right),
        (Value::Uint(left), Value::Double(right)) => double_uint(right, left).map(Ordering::reverse),
        _ => None,
    }
}

/// Go converts the integer, so integers above 2^53 can equal a neighboring double.
fn double_int(left: f64, right: i64) -> Option<Ordering> {
    if left < i64::MIN as f64 {
        Some(Ordering::Less)
    } else if left > i64::MAX as f64 {
        Some(Ordering::Greater)
    } else {
        left.partial_cmp(&(right as f64))
    }
}

fn double_uint(left: f64, right: u64) -> Option<Ordering> {
    if left < 0.0 {
        Some(Ordering::Less)
    } else if left > u64::MAX as f64 {
        Some(Ordering::Greater)
    } else {
        left.partial_cmp(&(right as f64))
    }
}

impl Opaque<'_> {
    /// Whether equality with the other value is defined. The Kubernetes types answer other types with an error.
    pub(crate) fn comparable(&self, other: &Value<'_>) -> bool {
        let same = match other {
            Value::Opaque(other) => other.type_name() == self.type_name(),
            _ => false,
        };
        same && !self.type_name().starts_with("kubernetes.authorization.")
    }
}
