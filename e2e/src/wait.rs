//! Waits for the effects of other processes by polling. Each wait has a name, and its error contains the last state.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// The shortest pause between two polls.
const MIN_PAUSE: Duration = Duration::from_millis(20);

/// The longest one. A poll costs the programs of a case processor time, for example a whole review by Durward.
const MAX_PAUSE: Duration = Duration::from_millis(500);

/// A pause is this part of the time that the wait has taken, so it makes the wait at most this much longer.
const PAUSE_SHARE: u32 = 10;

/// The result of one poll.
#[derive(Debug)]
pub enum Poll<T> {
    /// The condition holds; its value.
    Ready(T),
    /// The condition does not hold yet; the current state for the error.
    Pending(String),
}

impl<T> From<Result<T>> for Poll<T> {
    /// An error means that the condition does not hold yet.
    fn from(result: Result<T>) -> Self {
        result.map_or_else(|error| Self::Pending(format!("{error:#}")), Self::Ready)
    }
}

/// Sets a flag when it is dropped, also by a panic. Threads of a scope that work until the flag is set would otherwise
/// block the scope.
#[derive(Debug)]
#[must_use = "the flag is raised when this is dropped"]
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Polls until `look` returns [`Poll::Ready`]. An error of `look` ends the wait at once.
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
        let waited = began.elapsed();
        if waited >= within {
            bail!("timed out after {within:?}, waiting for {what}; last state: {last}");
        }
        std::thread::sleep((waited / PAUSE_SHARE).clamp(MIN_PAUSE, MAX_PAUSE));
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
