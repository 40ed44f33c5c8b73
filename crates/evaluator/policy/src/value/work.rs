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
    /// Whether a comparison fails within the API server.
    has_failed: bool,
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

/// Notes that the API server fails in a comparison. Functions stop as above the limit.
pub(crate) fn fail() {
    if COUNT.get().is_some() {
        COUNT.set(Some(Count { values: usize::MAX, has_failed: true }));
    }
}

/// Returns whether a comparison has failed.
pub(crate) fn has_failed() -> bool {
    COUNT.get().is_some_and(|count| count.has_failed)
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
    if here.has_failed {
        fail();
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
