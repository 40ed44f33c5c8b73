//! Waiting for something that another process does: look, and look again, until it is so or the time is up.
//!
//! No wait in the harness is a guess. What is waited for has a name, and the error says what was seen last.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Between two looks. Short enough to cost nothing beside a second of start-up, long enough not to load the
/// parts that are starting.
const PAUSE: Duration = Duration::from_millis(50);

/// What one look found.
#[derive(Debug)]
pub enum Poll<T> {
    /// It is so, and this is what was wanted of it.
    Ready(T),
    /// Not yet; what there is instead, for the error.
    Pending(String),
}

/// Sets a flag when it goes, be it by a panic: threads of a scope that work until the flag is raised would else
/// be waited for without end.
#[derive(Debug)]
#[must_use = "the flag is raised when this is dropped"]
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Looks until `look` says yes. An error from `look` ends the wait at once: return [`Poll::Pending`] for what
/// may still come right.
pub fn eventually<T>(
    what: impl std::fmt::Display,
    within: Duration,
    mut look: impl FnMut() -> Result<Poll<T>>,
) -> Result<T> {
    let began = Instant::now();
    loop {
        let last = match look()? {
            Poll::Ready(found) => return Ok(found),
            Poll::Pending(last) => last,
        };
        if began.elapsed() >= within {
            bail!("waited {within:?} in vain for {what}; seen last: {last}");
        }
        std::thread::sleep(PAUSE);
    }
}

/// Longest wait of a case for something that usually takes seconds. A loaded machine takes much longer.
pub const WAIT_LIMIT: Duration = Duration::from_secs(300);

/// Waits until `check` returns true. It also returns what it saw, for the error.
pub fn until<S: std::fmt::Display>(
    what: impl std::fmt::Display,
    mut check: impl FnMut() -> Result<(bool, S)>,
) -> Result<()> {
    eventually(what, WAIT_LIMIT, || {
        let (is_done, seen) = check()?;
        Ok(if is_done { Poll::Ready(()) } else { Poll::Pending(seen.to_string()) })
    })
}
