//! Counts the values that the functions of one expression read.
//!
//! Sums of lists are not copied, and a list can contain another list many times, so 40 variables can stand for 2^40 values. The
//! cost of a call is charged after the call and often depends on the outermost list only. Above the limit, functions stop early
//! with a wrong result, and the evaluator replaces it.
//!
//! Some comparisons fail within the API server, which ends the evaluation. They are noted here in the same way.
//!
//! The count belongs to the thread. Outside of an evaluation there is none, and every value is read.

use std::cell::Cell;

/// Values that one expression can read. An expression within its cost limit rarely reads more.
pub(crate) const MAX_READ: usize = 1 << 22;

/// Bytes of text that count as one value.
const BYTES: usize = 16;

/// Counts the values that an expression has read.
#[derive(Clone, Copy, Default)]
pub(crate) struct Count {
    values: usize,
    /// The type of Go of the first value that was looked up in a set and can't be in one.
    unhashable: Option<&'static str>,
}

thread_local! {
    static COUNT: Cell<Option<Count>> = const { Cell::new(None) };
}

/// Counts values. Returns false above the limit.
pub(crate) fn read(values: usize) -> bool {
    let Some(before) = COUNT.get() else { return true };
    let values = before.values.saturating_add(values);
    COUNT.set(Some(Count { values, ..before }));
    values <= MAX_READ
}

/// Counts text that is copied. Returns false above the limit.
pub(crate) fn copy(text: &[u8]) -> bool {
    read(1 + text.len() / BYTES)
}

/// Notes that the API server fails in a comparison, because a value of this type can't be in a set. Functions stop as above the limit.
pub(crate) fn fail_to_hash(name: &'static str) {
    if let Some(before) = COUNT.get() {
        COUNT.set(Some(Count { values: usize::MAX, unhashable: before.unhashable.or(Some(name)) }));
    }
}

/// Returns the type of [`fail_to_hash`], if a comparison has failed.
pub(crate) fn unhashable() -> Option<&'static str> {
    COUNT.get()?.unhashable
}

/// Returns whether a result is wrong.
pub(crate) fn is_exceeded() -> bool {
    COUNT.get().is_some_and(|count| count.values > MAX_READ)
}

/// Counts a function apart from what was read before, so that its result is at least that of [`MAX_READ`] values.
pub(crate) fn apart<T>(function: impl FnOnce() -> T) -> T {
    let before = start();
    let result = function();
    let here = COUNT.replace(before).unwrap_or_default();
    read(here.values);
    if let Some(name) = here.unhashable {
        fail_to_hash(name);
    }
    result
}

/// Starts the count of an expression. Returns that of the expression around it, for [`end`].
pub(crate) fn start() -> Option<Count> {
    COUNT.replace(Some(Count::default()))
}

/// Ends the count of an expression.
pub(crate) fn end(outer: Option<Count>) {
    COUNT.set(outer);
}
