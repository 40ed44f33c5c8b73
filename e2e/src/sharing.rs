//! One big thing for all cases of a run, a fleet or a node: it is started by the first that asks for it and
//! ended by the keeper.
//!
//! Most cases stand beside each other in it: each has namespaces of its own and leaves the rest as it is. A
//! case that freezes, stops or takes away something wants it to itself, and waits until the others are done.

use std::ops::Deref;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use anyhow::Result;

/// What can be shared so.
pub trait Whole {
    /// Waits until it is again as it was made, after a case that had it to itself.
    fn await_whole(&self) -> Result<()>;
}

/// The one thing, and who is in it.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    what: T,
    visits: RwLock<()>,
}

impl<T: Whole> Shared<T> {
    pub(crate) fn new(what: T) -> Self {
        Self { what, visits: RwLock::new(()) }
    }

    /// A stay beside others.
    pub(crate) fn visit(&self) -> Result<Visit<'_, T, RwLockReadGuard<'_, ()>>> {
        let guard = self.visits.read().unwrap_or_else(PoisonError::into_inner);
        self.what.await_whole()?;
        Ok(Visit { what: &self.what, _guard: guard })
    }

    /// A stay while nobody else is in it.
    pub(crate) fn alone(&self) -> Result<Visit<'_, T, RwLockWriteGuard<'_, ()>>> {
        let guard = self.visits.write().unwrap_or_else(PoisonError::into_inner);
        self.what.await_whole()?;
        Ok(Visit { what: &self.what, _guard: guard })
    }
}

/// A case's stay in what is shared, which is whole when it begins.
#[derive(Debug)]
#[must_use = "the stay ends when this is dropped"]
pub struct Visit<'a, T, G> {
    what: &'a T,
    _guard: G,
}

impl<'a, T, G> Visit<'a, T, G> {
    /// What is shared, for what is built in it once and outlives the case that needed it first.
    pub fn whole(&self) -> &'a T {
        self.what
    }
}

impl<T, G> Deref for Visit<'_, T, G> {
    type Target = T;

    fn deref(&self) -> &T {
        self.what
    }
}
