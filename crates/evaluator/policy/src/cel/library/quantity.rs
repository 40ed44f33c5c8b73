//! Functions of quantities.

use super::Library;
use crate::cel::outcome::{Cancel, EvalContext, EvalResult, Limit, NoValue, no_such_overload};
use crate::value::quantity::{Quantity, TOO_LARGE, parse};
use crate::value::{Opaque, Value};

/// Declares the functions of quantities.
pub(super) fn declare(library: &mut Library) {
    library.add("string_to_quantity", "quantity(string): Quantity", |context, args| match args {
        [Value::String(text)] => match parse(text) {
            Ok(quantity) => Ok(store(context, quantity)),
            Err(TOO_LARGE) => Err(LIMIT),
            Err(message) => context.error(message),
        },
        _ => Err(no_such_overload()),
    });
    library.add("is_quantity_string", "isQuantity(string): bool", |_, args| match args {
        [Value::String(text)] => Ok(Value::Bool(matches!(parse(text), Ok(_) | Err(TOO_LARGE)))),
        _ => Err(no_such_overload()),
    });
    library.add("quantity_sign", "sign(Quantity): int", |_, args| {
        one(args).map(|quantity| Value::Int(quantity.sign()))
    });
    library.add("quantity_is_greater_than", "(Quantity).isGreaterThan(Quantity): bool", |_, args| {
        two(args).map(|(left, right)| Value::Bool(left.compare(&right).is_gt()))
    });
    library.add("quantity_is_less_than", "(Quantity).isLessThan(Quantity): bool", |_, args| {
        two(args).map(|(left, right)| Value::Bool(left.compare(&right).is_lt()))
    });
    library.add("quantity_compare_to", "(Quantity).compareTo(Quantity): int", |_, args| {
        two(args).map(|(left, right)| Value::Int(left.compare(&right) as i64))
    });
    library.add("quantity_get_float", "(Quantity).asApproximateFloat(): double", |_, args| {
        one(args).map(|quantity| Value::Double(quantity.float()))
    });
    library.add("quantity_get_int", "(Quantity).asInteger(): int", |context, args| {
        match one(args)?.integer() {
            Some(value) => Ok(Value::Int(value)),
            None => context.error("cannot convert value to integer"),
        }
    });
    library.add("quantity_is_integer", "(Quantity).isInteger(): bool", |_, args| {
        one(args).map(|quantity| Value::Bool(quantity.integer().is_some()))
    });
    library.add("quantity_add", "(Quantity).add(Quantity): Quantity", |context, args| {
        two(args).and_then(|(left, right)| checked(context, left.add(&right)))
    });
    library.add("quantity_add_int", "(Quantity).add(int): Quantity", |context, args| {
        two(args).and_then(|(left, right)| checked(context, left.add(&right)))
    });
    library.add("quantity_sub", "(Quantity).sub(Quantity): Quantity", |context, args| {
        two(args).and_then(|(left, right)| checked(context, left.subtract(&right)))
    });
    library.add("quantity_sub_int", "(Quantity).sub(int): Quantity", |context, args| {
        two(args).and_then(|(left, right)| checked(context, left.subtract(&right)))
    });
}

fn store<'a>(context: &EvalContext<'a>, quantity: Quantity) -> Value<'a> {
    Value::Opaque(context.arena.store(Opaque::Quantity(quantity)))
}

fn one<'a>(args: &[Value<'a>]) -> Result<Quantity, NoValue<'a>> {
    match args {
        [Value::Opaque(Opaque::Quantity(quantity))] => Ok(*quantity),
        _ => Err(no_such_overload()),
    }
}

fn two<'a>(args: &[Value<'a>]) -> Result<(Quantity, Quantity), NoValue<'a>> {
    match args {
        [Value::Opaque(Opaque::Quantity(left)), Value::Opaque(Opaque::Quantity(right))] => {
            Ok((*left, *right))
        }
        [Value::Opaque(Opaque::Quantity(left)), Value::Int(right)] => Ok((*left, Quantity::int(*right))),
        _ => Err(no_such_overload()),
    }
}

/// The fault of a number with too many digits.
const LIMIT: NoValue<'static> = NoValue::Cancelled(Cancel::Limit(Limit::Digits));

fn checked<'a>(context: &EvalContext<'a>, quantity: Option<Quantity>) -> EvalResult<'a> {
    match quantity {
        Some(quantity) => Ok(store(context, quantity)),
        None => Err(LIMIT),
    }
}
