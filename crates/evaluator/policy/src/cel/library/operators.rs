//! Operators, `size` and membership.

use super::{Library, any};
use crate::cel::operators;
use crate::cel::outcome::{EvalContext, EvalResult, INTERNAL, NoValue, no_such_overload};
use crate::cel::select;
use crate::value::sum::{self, NoSum};
use crate::value::{NotANumber, Timestamp, Value, compare, equal, number};
use std::cmp::Ordering;

/// Declares the operators.
pub(super) fn declare(library: &mut Library) {
    library.add_singleton(operators::CONDITIONAL, &[("conditional", "_?_:_(bool, A, A): A")], unused, any);
    library.add_singleton(operators::LOGICAL_AND, &[("logical_and", "_&&_(bool, bool): bool")], unused, any);
    library.add_singleton(operators::LOGICAL_OR, &[("logical_or", "_||_(bool, bool): bool")], unused, any);
    library.add_singleton(operators::LOGICAL_NOT, &[("logical_not", "!_(bool): bool")], not, any);
    library.add_singleton(
        operators::NOT_STRICTLY_FALSE,
        &[("not_strictly_false", "@not_strictly_false(bool): bool")],
        unused,
        any,
    );
    library.add_singleton(operators::EQUALS, &[("equals", "_==_(A, A): bool")], unused, any);
    library.add_singleton(operators::NOT_EQUALS, &[("not_equals", "_!=_(A, A): bool")], unused, any);
    declare_arithmetic(library);
    declare_order(library);
    library.add_singleton(
        operators::INDEX,
        &[("index_list", "_[_](list(A), int): A"), ("index_map", "_[_](map(A, B), A): B")],
        unused,
        any,
    );
    library.add_singleton(
        operators::IN,
        &[("in_list", "@in(A, list(A)): bool"), ("in_map", "@in(A, map(A, B)): bool")],
        contains,
        any,
    );
    library.add_singleton(
        "size",
        &[
            ("size_bytes", "size(bytes): int"),
            ("bytes_size", "(bytes).size(): int"),
            ("size_list", "size(list(A)): int"),
            ("list_size", "(list(A)).size(): int"),
            ("size_map", "size(map(A, B)): int"),
            ("map_size", "(map(A, B)).size(): int"),
            ("size_string", "size(string): int"),
            ("string_size", "(string).size(): int"),
        ],
        size,
        |value| !matches!(value, Value::Opaque(_)) && value.size().is_some(),
    );
}

fn declare_arithmetic(library: &mut Library) {
    library.add_singleton(
        operators::ADD,
        &[
            ("add_bytes", "_+_(bytes, bytes): bytes"),
            ("add_double", "_+_(double, double): double"),
            ("add_duration_duration", "_+_(duration, duration): duration"),
            ("add_duration_timestamp", "_+_(duration, timestamp): timestamp"),
            ("add_timestamp_duration", "_+_(timestamp, duration): timestamp"),
            ("add_int64", "_+_(int, int): int"),
            ("add_list", "_+_(list(A), list(A)): list(A)"),
            ("add_string", "_+_(string, string): string"),
            ("add_uint64", "_+_(uint, uint): uint"),
        ],
        |context, args| binary(context, args, add),
        |value| {
            is_number(value)
                || value.is_list()
                || matches!(
                    value,
                    Value::String(_) | Value::Bytes(_) | Value::Duration(_) | Value::Timestamp(_)
                )
        },
    );
    library.add_singleton(
        operators::DIVIDE,
        &[
            ("divide_double", "_/_(double, double): double"),
            ("divide_int64", "_/_(int, int): int"),
            ("divide_uint64", "_/_(uint, uint): uint"),
        ],
        |context, args| binary(context, args, divide),
        is_number,
    );
    library.add_singleton(
        operators::MODULO,
        &[("modulo_int64", "_%_(int, int): int"), ("modulo_uint64", "_%_(uint, uint): uint")],
        |context, args| binary(context, args, modulo),
        |value| matches!(value, Value::Int(_) | Value::Uint(_)),
    );
    library.add_singleton(
        operators::MULTIPLY,
        &[
            ("multiply_double", "_*_(double, double): double"),
            ("multiply_int64", "_*_(int, int): int"),
            ("multiply_uint64", "_*_(uint, uint): uint"),
        ],
        |context, args| binary(context, args, multiply),
        is_number,
    );
    library.add_singleton(
        operators::NEGATE,
        &[("negate_double", "-_(double): double"), ("negate_int64", "-_(int): int")],
        negate,
        |value| matches!(value, Value::Bool(_) | Value::Int(_) | Value::Double(_) | Value::Duration(_)),
    );
    library.add_singleton(
        operators::SUBTRACT,
        &[
            ("subtract_double", "_-_(double, double): double"),
            ("subtract_duration_duration", "_-_(duration, duration): duration"),
            ("subtract_int64", "_-_(int, int): int"),
            ("subtract_timestamp_duration", "_-_(timestamp, duration): timestamp"),
            ("subtract_timestamp_timestamp", "_-_(timestamp, timestamp): duration"),
            ("subtract_uint64", "_-_(uint, uint): uint"),
        ],
        |context, args| binary(context, args, subtract),
        |value| is_number(value) || matches!(value, Value::Duration(_) | Value::Timestamp(_)),
    );
}

macro_rules! declare_comparison {
    ($library:expr, $function:literal, $prefix:literal, $call:expr) => {
        $library.add_singleton(
            $function,
            &[
                (concat!($prefix, "_bool"), concat!($function, "(bool, bool): bool")),
                (concat!($prefix, "_int64"), concat!($function, "(int, int): bool")),
                (concat!($prefix, "_int64_double"), concat!($function, "(int, double): bool")),
                (concat!($prefix, "_int64_uint64"), concat!($function, "(int, uint): bool")),
                (concat!($prefix, "_uint64"), concat!($function, "(uint, uint): bool")),
                (concat!($prefix, "_uint64_double"), concat!($function, "(uint, double): bool")),
                (concat!($prefix, "_uint64_int64"), concat!($function, "(uint, int): bool")),
                (concat!($prefix, "_double"), concat!($function, "(double, double): bool")),
                (concat!($prefix, "_double_int64"), concat!($function, "(double, int): bool")),
                (concat!($prefix, "_double_uint64"), concat!($function, "(double, uint): bool")),
                (concat!($prefix, "_string"), concat!($function, "(string, string): bool")),
                (concat!($prefix, "_bytes"), concat!($function, "(bytes, bytes): bool")),
                (concat!($prefix, "_timestamp"), concat!($function, "(timestamp, timestamp): bool")),
                (concat!($prefix, "_duration"), concat!($function, "(duration, duration): bool")),
            ],
            $call,
            is_comparable,
        );
    };
}

fn declare_order(library: &mut Library) {
    declare_comparison!(library, "_<_", "less", |context, args| order(context, args, Ordering::is_lt));
    declare_comparison!(library, "_<=_", "less_equals", |context, args| order(
        context,
        args,
        Ordering::is_le
    ));
    declare_comparison!(library, "_>_", "greater", |context, args| order(context, args, Ordering::is_gt));
    declare_comparison!(library, "_>=_", "greater_equals", |context, args| order(
        context,
        args,
        Ordering::is_ge
    ));
}

/// The planner replaces calls of these operators.
fn unused<'a>(_: &EvalContext<'a>, _: &[Value<'a>]) -> EvalResult<'a> {
    Err(no_such_overload())
}

fn is_number(value: &Value<'_>) -> bool {
    matches!(value, Value::Int(_) | Value::Uint(_) | Value::Double(_))
}

/// Whether a value has an order.
pub(crate) fn is_comparable(value: &Value<'_>) -> bool {
    is_number(value)
        || matches!(
            value,
            Value::Bool(_) | Value::String(_) | Value::Bytes(_) | Value::Duration(_) | Value::Timestamp(_)
        )
}

type Binary = for<'a> fn(&EvalContext<'a>, Value<'a>, Value<'a>) -> EvalResult<'a>;

fn binary<'a>(context: &EvalContext<'a>, args: &[Value<'a>], call: Binary) -> EvalResult<'a> {
    match args {
        [left, right] => call(context, *left, *right),
        _ => Err(no_such_overload()),
    }
}

fn not<'a>(_: &EvalContext<'a>, args: &[Value<'a>]) -> EvalResult<'a> {
    match args {
        [Value::Bool(value)] => Ok(Value::Bool(!value)),
        _ => Err(no_such_overload()),
    }
}

fn order<'a>(context: &EvalContext<'a>, args: &[Value<'a>], test: fn(Ordering) -> bool) -> EvalResult<'a> {
    let [left, right] = args else { return Err(no_such_overload()) };
    match compare(left, right) {
        Some(Ok(ordering)) => Ok(Value::Bool(test(ordering))),
        Some(Err(NotANumber)) => context.error("NaN values cannot be ordered"),
        None => Err(no_such_overload()),
    }
}

fn contains<'a>(context: &EvalContext<'a>, args: &[Value<'a>]) -> EvalResult<'a> {
    let [element, container] = args else { return Err(no_such_overload()) };
    if let Some(entries) = container.entries() {
        if matches!(container, Value::Map(_)) {
            select::hash(element)?;
        }
        let found = entries.get(element);
        if let Value::Typed(..) = container {
            // In a document, a key that is not a text and a value that does not fit its schema are errors.
            if element.as_str().is_none() {
                return Err(no_such_overload());
            }
            found.map_or(Ok(Value::Null), |value| context.unwrapped(value))?;
        }
        return Ok(Value::Bool(found.is_some()));
    }
    if matches!(container, Value::Typed(..)) && container.is_list() {
        return contains_typed(context, element, container);
    }
    if container.is_list() {
        return Ok(Value::Bool(container.elements().any(|other| equal(element, &other))));
    }
    Err(no_such_overload())
}

/// Looks for an element in a list of a document. An element that can't be compared is an error if no other one is equal.
fn contains_typed<'a>(context: &EvalContext<'a>, element: &Value<'a>, list: &Value<'a>) -> EvalResult<'a> {
    let mut error = None;
    for other in list.elements() {
        match context.equality(&other, element) {
            Ok(true) => return Ok(Value::Bool(true)),
            Ok(false) => {}
            Err(fault @ NoValue::Error(_)) => error = error.or(Some(fault)),
            Err(fault) => return Err(fault),
        }
    }
    error.map_or(Ok(Value::Bool(false)), Err)
}

fn size<'a>(_: &EvalContext<'a>, args: &[Value<'a>]) -> EvalResult<'a> {
    let size = args.first().and_then(Value::size).and_then(|size| i64::try_from(size).ok());
    size.map(Value::Int).ok_or_else(no_such_overload)
}

fn checked<'a>(context: &EvalContext<'a>, result: Option<Value<'a>>, error: &str) -> EvalResult<'a> {
    match result {
        Some(value) => Ok(value),
        None => context.error(error),
    }
}

const INT: &str = "integer overflow";
const UINT: &str = "unsigned integer overflow";
const TIMESTAMP: &str = "timestamp overflow";

/// `+`
pub(crate) fn add<'a>(context: &EvalContext<'a>, left: Value<'a>, right: Value<'a>) -> EvalResult<'a> {
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => {
            checked(context, left.checked_add(right).map(Value::Int), INT)
        }
        (Value::Uint(left), Value::Uint(right)) => {
            checked(context, left.checked_add(right).map(Value::Uint), UINT)
        }
        (Value::Double(left), Value::Double(right)) => Ok(Value::Double(left + right)),
        (Value::String(left), Value::String(right)) => {
            // The text is built before it is copied.
            context.reserve((left.len() + right.len()).saturating_mul(2))?;
            let mut text = String::with_capacity(left.len() + right.len());
            text.push_str(left);
            text.push_str(right);
            Ok(context.text(&text))
        }
        (Value::Bytes(left), Value::Bytes(right)) => {
            context.reserve((left.len() + right.len()).saturating_mul(2))?;
            Ok(Value::Bytes(context.arena.slice(&[left, right].concat())))
        }
        (Value::Duration(left), Value::Duration(right)) => {
            checked(context, left.checked_add(right).map(Value::Duration), INT)
        }
        (Value::Timestamp(time), Value::Duration(nanos))
        | (Value::Duration(nanos), Value::Timestamp(time)) => {
            checked(context, shift(time, i128::from(nanos)), TIMESTAMP)
        }
        (left, right) if left.is_list() && right.is_list() => match sum::add(context.arena, &left, &right) {
            Some(Err(NoSum::Error(text))) => context.error(text),
            Some(Err(NoSum::Internal)) => Err(INTERNAL),
            Some(Ok(sum)) => Ok(sum),
            None => Ok(Value::concat(context.arena, left, right)),
        },
        _ => Err(no_such_overload()),
    }
}

fn shift<'a>(time: Timestamp, nanos: i128) -> Option<Value<'a>> {
    let total = i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos) + nanos;
    let seconds = i64::try_from(total.div_euclid(1_000_000_000)).ok()?;
    let nanos = u32::try_from(total.rem_euclid(1_000_000_000)).ok()?;
    let valid = (number::YEAR_ONE..=number::YEAR_9999).contains(&seconds);
    valid.then_some(Value::Timestamp(Timestamp { seconds, nanos, ..time }))
}

fn subtract<'a>(context: &EvalContext<'a>, left: Value<'a>, right: Value<'a>) -> EvalResult<'a> {
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => {
            checked(context, left.checked_sub(right).map(Value::Int), INT)
        }
        (Value::Uint(left), Value::Uint(right)) => {
            checked(context, left.checked_sub(right).map(Value::Uint), UINT)
        }
        (Value::Double(left), Value::Double(right)) => Ok(Value::Double(left - right)),
        (Value::Duration(left), Value::Duration(right)) => {
            checked(context, left.checked_sub(right).map(Value::Duration), INT)
        }
        (Value::Timestamp(time), Value::Duration(nanos)) => match nanos.checked_neg() {
            Some(nanos) => checked(context, shift(time, i128::from(nanos)), TIMESTAMP),
            None => context.error(INT),
        },
        (Value::Timestamp(left), Value::Timestamp(right)) => {
            let nanos = (i128::from(left.seconds) - i128::from(right.seconds)) * 1_000_000_000
                + i128::from(left.nanos)
                - i128::from(right.nanos);
            checked(context, i64::try_from(nanos).ok().map(Value::Duration), INT)
        }
        _ => Err(no_such_overload()),
    }
}

fn multiply<'a>(context: &EvalContext<'a>, left: Value<'a>, right: Value<'a>) -> EvalResult<'a> {
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => {
            checked(context, left.checked_mul(right).map(Value::Int), INT)
        }
        (Value::Uint(left), Value::Uint(right)) => {
            checked(context, left.checked_mul(right).map(Value::Uint), UINT)
        }
        (Value::Double(left), Value::Double(right)) => Ok(Value::Double(left * right)),
        _ => Err(no_such_overload()),
    }
}

fn divide<'a>(context: &EvalContext<'a>, left: Value<'a>, right: Value<'a>) -> EvalResult<'a> {
    match (left, right) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => {
            context.error("division by zero")
        }
        (Value::Int(left), Value::Int(right)) => {
            checked(context, left.checked_div(right).map(Value::Int), INT)
        }
        (Value::Uint(left), Value::Uint(right)) => {
            checked(context, left.checked_div(right).map(Value::Uint), UINT)
        }
        (Value::Double(left), Value::Double(right)) => Ok(Value::Double(left / right)),
        _ => Err(no_such_overload()),
    }
}

fn modulo<'a>(context: &EvalContext<'a>, left: Value<'a>, right: Value<'a>) -> EvalResult<'a> {
    match (left, right) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => context.error("modulus by zero"),
        (Value::Int(left), Value::Int(right)) => {
            checked(context, left.checked_rem(right).map(Value::Int), INT)
        }
        (Value::Uint(left), Value::Uint(right)) => {
            checked(context, left.checked_rem(right).map(Value::Uint), UINT)
        }
        _ => Err(no_such_overload()),
    }
}

fn negate<'a>(context: &EvalContext<'a>, args: &[Value<'a>]) -> EvalResult<'a> {
    match args {
        [Value::Int(value)] => checked(context, value.checked_neg().map(Value::Int), INT),
        [Value::Double(value)] => Ok(Value::Double(-value)),
        [Value::Duration(value)] => checked(context, value.checked_neg().map(Value::Duration), INT),
        _ => Err(no_such_overload()),
    }
}
