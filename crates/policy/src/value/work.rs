//! Counts the values that the functions of one expression read.
//!
//! Sums of lists are not copied, and a list can contain another list many times, so 40 variables can stand for 2^40 values. The
//! cost of a call is charged after the call and often depends on the outermost list only. Above the limit, functions stop early
//! with a wrong result, and the evaluator replaces it.
//!
//! The count belongs to the thread. Outside of an evaluation there is none, and every value is read.

use std::cell::Cell;

/// Values that one expression can read. An expression within its cost limit rarely reads more.
pub(crate) const MAX_READ: usize = 1 << 22;

/// Bytes of text that count as one value.
const BYTES: usize = 16;

thread_local! {
    static READ: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Counts values. Returns false above the limit.
pub(crate) fn read(values: usize) -> bool {
    READ.with(|count| match count.get() {
        None => true,
        Some(before) => {
            let sum = before.saturating_add(values);
            count.set(Some(sum));
            sum <= MAX_READ
        }
    })
}

/// Counts text that is copied. Returns false above the limit.
pub(crate) fn copy(text: &[u8]) -> bool {
    read(1 + text.len() / BYTES)
}

/// Returns whether a result is wrong.
pub(crate) fn is_exceeded() -> bool {
    READ.get().is_some_and(|read| read > MAX_READ)
}

/// Counts a function apart from what was read before, so that its result is at least that of [`MAX_READ`] values.
pub(crate) fn apart<T>(function: impl FnOnce() -> T) -> T {
    let before = start();
    let result = function();
    let read_here = READ.replace(before).unwrap_or_default();
    read(read_here);
    result
}

/// Starts the count of an expression. Returns that of the expression around it, for [`end`].
pub(crate) fn start() -> Option<usize> {
    READ.replace(Some(0))
}

/// Ends the count of an expression.
pub(crate) fn end(outer: Option<usize>) {
    READ.set(outer);
}
