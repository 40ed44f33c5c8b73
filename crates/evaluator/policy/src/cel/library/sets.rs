//! Lists as sets.

use super::Library;
use crate::cel::outcome::{EvalContext, EvalResult, no_such_overload};
use crate::value::{Value, equal};

/// Declares the functions of sets.
pub(super) fn declare(library: &mut Library) {
    library.add("list_sets_contains_list", "sets.contains(list(T), list(T)): bool", |context, args| {
        test(context, args, contains)
    });
    library.add("list_sets_equivalent_list", "sets.equivalent(list(T), list(T)): bool", |context, args| {
        test(context, args, |left, right| contains(left, right) && contains(right, left))
    });
    library.add("list_sets_intersects_list", "sets.intersects(list(T), list(T)): bool", |context, args| {
        test(context, args, |left, right| {
            left.iter().any(|element| right.iter().any(|other| equal(element, other)))
        })
    });
}

fn contains(left: &[Value<'_>], right: &[Value<'_>]) -> bool {
    right.iter().all(|element| left.iter().any(|other| equal(element, other)))
}

fn test<'a>(
    _: &EvalContext<'a>,
    args: &[Value<'a>],
    test: fn(&[Value<'a>], &[Value<'a>]) -> bool,
) -> EvalResult<'a> {
    let [left, right] = args else { return Err(no_such_overload()) };
    let (left, right): (Vec<_>, Vec<_>) = (left.elements().collect(), right.elements().collect());
    Ok(Value::Bool(test(&left, &right)))
}
