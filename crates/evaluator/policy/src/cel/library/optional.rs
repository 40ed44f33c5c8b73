//! Optional values, and the map that two-variable macros build.

use super::{Library, any};
use crate::cel::operators;
use crate::cel::outcome::{EvalContext, EvalResult, no_such_overload};
use crate::value::Value;

/// Declares the functions of optional values.
pub(super) fn declare(library: &mut Library) {
    library.add("optional_of", "optional.of(V): optional(V)", |context, args| match args {
        [value] => Ok(context.some(*value)),
        _ => Err(no_such_overload()),
    });
    library.add("optional_ofNonZeroValue", "optional.ofNonZeroValue(V): optional(V)", |context, args| {
        match args {
            [value] if value.is_zero() => Ok(Value::Optional(None)),
            [value] => Ok(context.some(*value)),
            _ => Err(no_such_overload()),
        }
    });
    library.add_variadic("optional_none", "optional.none(): optional(V)", |_, _| Ok(Value::Optional(None)));
    library.add("optional_value", "(optional(V)).value(): V", |context, args| match args {
        [Value::Optional(Some(value))] => context.unwrapped(**value),
        [Value::Optional(None)] => context.error("optional.none() dereference"),
        _ => Err(no_such_overload()),
    });
    library.add("optional_hasValue", "(optional(V)).hasValue(): bool", |_, args| match args {
        [Value::Optional(value)] => Ok(Value::Bool(value.is_some())),
        _ => Err(no_such_overload()),
    });
    library.add_special("optional_or_optional", "(optional(V)).or(optional(V)): optional(V)");
    library.add_special("optional_orValue_value", "(optional(V)).orValue(V): V");
    library.add_special("select_optional_field", "_?._(dyn, string): optional(V)");
    library.add_special("list_optindex_optional_int", "_[?_](list(V), int): optional(V)");
    library.add_special("optional_list_optindex_optional_int", "_[?_](optional(list(V)), int): optional(V)");
    library.add_special("map_optindex_optional_value", "_[?_](map(K, V), K): optional(V)");
    library.add_special("optional_map_optindex_optional_value", "_[?_](optional(map(K, V)), K): optional(V)");
    library.add_special("optional_list_index_int", "_[_](optional(list(V)), int): optional(V)");
    library.add_special("optional_map_index_value", "_[_](optional(map(K, V)), K): optional(V)");
    if library.release.has_first_and_last() {
        library.add("list_last", "(list(V)).last(): optional(V)", |context, args| {
            end(context, args, |len| len.checked_sub(1))
        });
        library.add("list_first", "(list(V)).first(): optional(V)", |context, args| {
            end(context, args, |_| Some(0))
        });
        library.add("optional_unwrap", "optional.unwrap(list(optional(V))): list(V)", unwrap);
        library.add("optional_unwrapOpt", "(list(optional(V))).unwrapOpt(): list(V)", unwrap);
    }
}

/// Declares the function that `transformMap` expands to.
pub(super) fn declare_map_insert(library: &mut Library) {
    library.add_singleton(
        operators::MAP_INSERT,
        &[
            ("@mapInsert_map_key_value", "cel.@mapInsert(map(K, V), K, V): map(K, V)"),
            ("@mapInsert_map_map", "cel.@mapInsert(map(K, V), map(K, V)): map(K, V)"),
        ],
        |_, _| Err(no_such_overload()),
        any,
    );
}

fn end<'a>(
    context: &EvalContext<'a>,
    args: &[Value<'a>],
    index: fn(usize) -> Option<usize>,
) -> EvalResult<'a> {
    let [list] = args else { return Err(no_such_overload()) };
    let element = list.list_len().and_then(index).and_then(|index| list.element(index));
    Ok(element.map_or(Value::Optional(None), |element| context.some(element)))
}

fn unwrap<'a>(context: &EvalContext<'a>, args: &[Value<'a>]) -> EvalResult<'a> {
    let [list] = args else { return Err(no_such_overload()) };
    let mut values = Vec::new();
    for element in list.elements() {
        match element {
            Value::Optional(Some(value)) => values.push(*value),
            Value::Optional(None) => {}
            other => {
                let text = crate::value::format::plain(&other);
                return context.error(&format!("value {text} is not optional"));
            }
        }
    }
    Ok(context.list(&values))
}
