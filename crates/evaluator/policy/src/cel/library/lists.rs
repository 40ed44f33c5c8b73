//! Functions of lists: those of Kubernetes and cel-go's extension in version 3.

use std::cmp::Ordering;

use super::operators::{add, is_comparable};
use super::{Implementation, Library};
use crate::cel::operators;
use crate::cel::outcome::{Cancel, EvalContext, EvalResult, LIMIT, NoValue, no_such_overload};
use crate::value::work::MAX_READ;
use crate::value::{Value, compare, equal};

/// Declares the functions of Kubernetes.
pub(super) fn declare(library: &mut Library) {
    for (id, signature) in [
        ("list_int_is_sorted_bool", "(list(int)).isSorted(): bool"),
        ("list_uint_is_sorted_bool", "(list(uint)).isSorted(): bool"),
        ("list_double_is_sorted_bool", "(list(double)).isSorted(): bool"),
        ("list_bool_is_sorted_bool", "(list(bool)).isSorted(): bool"),
        ("list_duration_is_sorted_bool", "(list(duration)).isSorted(): bool"),
        ("list_timestamp_is_sorted_bool", "(list(timestamp)).isSorted(): bool"),
        ("list_string_is_sorted_bool", "(list(string)).isSorted(): bool"),
        ("list_bytes_is_sorted_bool", "(list(bytes)).isSorted(): bool"),
    ] {
        library.add(id, signature, is_sorted);
    }
    library
        .add("list_int_sum_int", "(list(int)).sum(): int", |context, args| sum(context, args, Value::Int(0)));
    library.add("list_uint_sum_uint", "(list(uint)).sum(): uint", |context, args| {
        sum(context, args, Value::Uint(0))
    });
    library.add("list_double_sum_double", "(list(double)).sum(): double", |context, args| {
        sum(context, args, Value::Double(0.0))
    });
    library.add("list_duration_sum_duration", "(list(duration)).sum(): duration", |context, args| {
        sum(context, args, Value::Duration(0))
    });
    for (id, signature) in [
        ("list_int_max_int", "(list(int)).max(): int"),
        ("list_uint_max_uint", "(list(uint)).max(): uint"),
        ("list_double_max_double", "(list(double)).max(): double"),
        ("list_bool_max_bool", "(list(bool)).max(): bool"),
        ("list_duration_max_duration", "(list(duration)).max(): duration"),
        ("list_timestamp_max_timestamp", "(list(timestamp)).max(): timestamp"),
        ("list_string_max_string", "(list(string)).max(): string"),
        ("list_bytes_max_bytes", "(list(bytes)).max(): bytes"),
    ] {
        library.add(id, signature, |context, args| extreme(context, args, "max", Ordering::Less));
    }
    for (id, signature) in [
        ("list_int_min_int", "(list(int)).min(): int"),
        ("list_uint_min_uint", "(list(uint)).min(): uint"),
        ("list_double_min_double", "(list(double)).min(): double"),
        ("list_bool_min_bool", "(list(bool)).min(): bool"),
        ("list_duration_min_duration", "(list(duration)).min(): duration"),
        ("list_timestamp_min_timestamp", "(list(timestamp)).min(): timestamp"),
        ("list_string_min_string", "(list(string)).min(): string"),
        ("list_bytes_min_bytes", "(list(bytes)).min(): bytes"),
    ] {
        library.add(id, signature, |context, args| extreme(context, args, "min", Ordering::Greater));
    }
    library.add("list_a_index_of_int", "(list(A)).indexOf(A): int", |_, args| match args {
        [list, item] => Ok(position(list.elements().position(|element| equal(&element, item)))),
        _ => Err(no_such_overload()),
    });
    library.add("list_a_last_index_of_int", "(list(A)).lastIndexOf(A): int", |_, args| match args {
        [list, item] => {
            let found = list.elements().enumerate().filter(|(_, element)| equal(element, item)).last();
            Ok(position(found.map(|(index, _)| index)))
        }
        _ => Err(no_such_overload()),
    });
}

/// Declares `includes`, which environment 1.37 adds.
pub(super) fn declare_includes(library: &mut Library) {
    library.add("list_includes_dyn_dyn", "(dyn).includes(dyn): bool", |_, args| match args {
        [list, item] if list.is_list() => {
            Ok(Value::Bool(list.elements().any(|element| equal(&element, item))))
        }
        [value, item] => Ok(Value::Bool(equal(value, item))),
        _ => Err(no_such_overload()),
    });
}

fn position<'a>(index: Option<usize>) -> Value<'a> {
    Value::Int(index.and_then(|index| i64::try_from(index).ok()).unwrap_or(-1))
}

fn is_sorted<'a>(_: &EvalContext<'a>, args: &[Value<'a>]) -> EvalResult<'a> {
    let [list] = args else { return Err(no_such_overload()) };
    let mut previous: Option<Value<'a>> = None;
    for next in list.elements() {
        if !is_comparable(&next) {
            return Err(no_such_overload());
        }
        if let Some(previous) = previous
            && matches!(compare(&previous, &next), Some(Ok(Ordering::Greater)))
        {
            return Ok(Value::Bool(false));
        }
        previous = Some(next);
    }
    Ok(Value::Bool(true))
}

fn sum<'a>(context: &EvalContext<'a>, args: &[Value<'a>], zero: Value<'a>) -> EvalResult<'a> {
    let [list] = args else { return Err(no_such_overload()) };
    list.elements().try_fold(zero, |sum, next| add(context, sum, next))
}

fn extreme<'a>(
    context: &EvalContext<'a>,
    args: &[Value<'a>],
    name: &str,
    replaces: Ordering,
) -> EvalResult<'a> {
    let [list] = args else { return Err(no_such_overload()) };
    let mut result: Option<Value<'a>> = None;
    for next in list.elements() {
        if !is_comparable(&next) {
            return Err(no_such_overload());
        }
        result = Some(match result {
            Some(best) if !matches!(compare(&best, &next), Some(Ok(ordering)) if ordering == replaces) => {
                best
            }
            _ => next,
        });
    }
    match result {
        Some(value) => Ok(value),
        None => context.error(&format!("{name} called on empty list")),
    }
}

fn is_list(value: &Value<'_>) -> bool {
    value.is_list()
}

fn flatten_one<'a>(context: &EvalContext<'a>, args: &[Value<'a>], optional: &'static str) -> EvalResult<'a> {
    match args {
        [list] if list.is_list() => flatten(context, list, 1),
        [list] => context.error(&format!("no such overload: {}.flatten()", type_text(list, optional))),
        _ => Err(no_such_overload()),
    }
}

fn flatten_depth<'a>(
    context: &EvalContext<'a>,
    args: &[Value<'a>],
    optional: &'static str,
) -> EvalResult<'a> {
    match args {
        [list, Value::Int(depth)] if list.is_list() => flatten(context, list, *depth),
        [list, depth] => {
            let (list, depth) = (type_text(list, optional), type_text(depth, optional));
            context.error(&format!("no such overload: {list}.flatten({depth})"))
        }
        _ => Err(no_such_overload()),
    }
}

/// The type of a value with its parameters. `optional` is the text for optional values.
fn type_text<'a>(value: &Value<'a>, optional: &'static str) -> &'a str {
    match value {
        value if value.is_list() => "list(dyn)",
        value if value.entries().is_some() => "map(dyn, dyn)",
        Value::Optional(_) => optional,
        other => other.type_name(),
    }
}

/// Declares the extension.
pub(super) fn declare_extension(library: &mut Library) {
    library.add_variadic("list_slice", "(list(T)).slice(int, int): list(T)", slice);
    let (flatten_all, flatten_some): (Implementation, Implementation) =
        if library.release.optional_type_has_parameter() {
            (
                |context, args| flatten_one(context, args, "optional_type(dyn)"),
                |context, args| flatten_depth(context, args, "optional_type(dyn)"),
            )
        } else {
            (
                |context, args| flatten_one(context, args, "optional_type"),
                |context, args| flatten_depth(context, args, "optional_type"),
            )
        };
    library.add("list_flatten", "(list(list(T))).flatten(): list(T)", flatten_all);
    library.add("list_flatten_int", "(list(dyn)).flatten(int): list(dyn)", flatten_some);
    library.unguarded("flatten");
    library.add_singleton(
        "sort",
        &[
            ("list_int_sort", "(list(int)).sort(): list(int)"),
            ("list_uint_sort", "(list(uint)).sort(): list(uint)"),
            ("list_double_sort", "(list(double)).sort(): list(double)"),
            ("list_bool_sort", "(list(bool)).sort(): list(bool)"),
            ("list_google.protobuf.Duration_sort", "(list(duration)).sort(): list(duration)"),
            ("list_google.protobuf.Timestamp_sort", "(list(timestamp)).sort(): list(timestamp)"),
            ("list_string_sort", "(list(string)).sort(): list(string)"),
            ("list_bytes_sort", "(list(bytes)).sort(): list(bytes)"),
        ],
        |context, args| match args {
            [list] => sort(context, list, list),
            _ => Err(no_such_overload()),
        },
        is_list,
    );
    library.add_singleton(
        operators::SORT_BY_KEYS,
        &[
            ("list_int_sortByAssociatedKeys", "(list(T)).@sortByAssociatedKeys(list(int)): list(T)"),
            ("list_uint_sortByAssociatedKeys", "(list(T)).@sortByAssociatedKeys(list(uint)): list(T)"),
            ("list_double_sortByAssociatedKeys", "(list(T)).@sortByAssociatedKeys(list(double)): list(T)"),
            ("list_bool_sortByAssociatedKeys", "(list(T)).@sortByAssociatedKeys(list(bool)): list(T)"),
            (
                "list_google.protobuf.Duration_sortByAssociatedKeys",
                "(list(T)).@sortByAssociatedKeys(list(duration)): list(T)",
            ),
            (
                "list_google.protobuf.Timestamp_sortByAssociatedKeys",
                "(list(T)).@sortByAssociatedKeys(list(timestamp)): list(T)",
            ),
            ("list_string_sortByAssociatedKeys", "(list(T)).@sortByAssociatedKeys(list(string)): list(T)"),
            ("list_bytes_sortByAssociatedKeys", "(list(T)).@sortByAssociatedKeys(list(bytes)): list(T)"),
        ],
        |context, args| match args {
            [list, keys] if keys.is_list() => sort(context, list, keys),
            _ => Err(no_such_overload()),
        },
        is_list,
    );
    let checked = library.release.range_is_checked();
    library.add("lists_range", "lists.range(int): list(int)", if checked { checked_range } else { range });
    library.add("list_reverse", "(list(T)).reverse(): list(T)", |context, args| match args {
        [list] => {
            let mut values: Vec<_> = list.elements().collect();
            values.reverse();
            Ok(context.list(&values))
        }
        _ => Err(no_such_overload()),
    });
    library.add("list_distinct", "(list(T)).distinct(): list(T)", distinct);
}

fn slice<'a>(context: &EvalContext<'a>, args: &[Value<'a>]) -> EvalResult<'a> {
    let [list, Value::Int(start), Value::Int(end)] = args else { return Err(no_such_overload()) };
    let length = list.list_len().unwrap_or(0);
    let problem = match (usize::try_from(*start), usize::try_from(*end)) {
        (Ok(from), Ok(to)) if from > to => "start index must be less than or equal to end index".to_owned(),
        (Ok(_), Ok(to)) if length < to => format!("list is length {length}"),
        (Ok(from), Ok(to)) => {
            let values: Vec<_> = list.elements().skip(from).take(to - from).collect();
            return Ok(context.list(&values));
        }
        _ => "negative indexes not supported".to_owned(),
    };
    context.error(&format!("cannot slice({start}, {end}), {problem}"))
}

fn flatten<'a>(context: &EvalContext<'a>, list: &Value<'a>, depth: i64) -> EvalResult<'a> {
    if depth < 0 {
        return context.error("level must be non-negative");
    }
    let mut flat = Vec::new();
    // Lists that are still to be visited, the next one last, with the levels that are left.
    let mut stack: Vec<(Value<'a>, i64)> = vec![(*list, depth.saturating_add(1))];
    while let Some((value, left)) = stack.pop() {
        if flat.len() + stack.len() > MAX_READ {
            return Err(LIMIT);
        }
        if value.is_list() && left > 0 {
            let mut inner: Vec<_> = value.elements().map(|element| (element, left - 1)).collect();
            inner.reverse();
            stack.extend(inner);
        } else {
            flat.push(value);
        }
    }
    Ok(context.list(&flat))
}

fn sort<'a>(context: &EvalContext<'a>, list: &Value<'a>, keys: &Value<'a>) -> EvalResult<'a> {
    let keys: Vec<Value<'a>> = keys.elements().collect();
    let values: Vec<Value<'a>> = list.elements().collect();
    if keys.len() != values.len() {
        return context.error(&format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} elements respectively",
            values.len(),
            keys.len()
        ));
    }
    let Some(first) = keys.first() else { return Ok(*list) };
    if !is_comparable(first) {
        return context.error("list elements must be comparable");
    }
    if keys.iter().any(|key| key.type_name() != first.type_name()) {
        return context.error("list elements must have the same type");
    }
    let mut pairs: Vec<(Value<'a>, Value<'a>)> = keys.into_iter().zip(values).collect();
    pairs.sort_by(|(left, _), (right, _)| match compare(left, right) {
        Some(Ok(ordering)) => ordering,
        _ => Ordering::Equal,
    });
    let sorted: Vec<_> = pairs.into_iter().map(|(_, value)| value).collect();
    Ok(context.list(&sorted))
}

/// Numbers from zero. More than the cost limit allows are not even built.
fn range<'a>(context: &EvalContext<'a>, args: &[Value<'a>]) -> EvalResult<'a> {
    let [Value::Int(end)] = args else { return Err(no_such_overload()) };
    if *end > 1_000_000 {
        return Err(NoValue::Cancelled(Cancel::Cost));
    }
    let values: Vec<_> = (0..*end).map(Value::Int).collect();
    Ok(context.list(&values))
}

/// Refuses negative and large sizes.
fn checked_range<'a>(context: &EvalContext<'a>, args: &[Value<'a>]) -> EvalResult<'a> {
    match args {
        [Value::Int(size)] if *size < 0 => {
            context.error(&format!("lists.range: size must be non-negative, got {size}"))
        }
        [Value::Int(size)] if *size > 1_000_000 => {
            context.error(&format!("lists.range: size {size} exceeds maximum allowed (1000000)"))
        }
        _ => range(context, args),
    }
}

fn distinct<'a>(context: &EvalContext<'a>, args: &[Value<'a>]) -> EvalResult<'a> {
    let [list] = args else { return Err(no_such_overload()) };
    let mut unique: Vec<Value<'a>> = Vec::new();
    for element in list.elements() {
        if !unique.iter().any(|other| equal(&element, other)) {
            unique.push(element);
        }
    }
    Ok(context.list(&unique))
}
