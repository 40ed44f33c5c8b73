//! One big thing for all cases of a run, a fleet or a node: it is started by the first that asks for it and
//! ended by the supervisor.
//!
//! Most cases stand beside each other in it: each has namespaces of its own and leaves the rest as it is. A
//! case that freezes, stops or takes away something wants it to itself, and waits until the others are done.

use std::ops::Deref;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use anyhow::Result;

/// What can be shared so.
pub trait Fixture {
    /// Waits until it is again as it was made, after a case that had it to itself.
    fn await_restored(&self) -> Result<()>;
}

/// The one thing, and who is in it.
#[derive(Debug)]
pub(crate) struct SharedFixture<T> {
    what: T,
    visits: RwLock<()>,
}

impl<T: Fixture> SharedFixture<T> {
    pub(crate) fn new(what: T) -> Self {
        Self { what, visits: RwLock::new(()) }
    }

    /// A stay beside others.
    pub(crate) fn shared(&self) -> Result<FixtureGuard<'_, T, RwLockReadGuard<'_, ()>>> {
        let guard = self.visits.read().unwrap_or_else(PoisonError::into_inner);
        self.what.await_restored()?;
        Ok(FixtureGuard { what: &self.what, _guard: guard })
    }

    /// A stay while nobody else is in it.
    pub(crate) fn exclusive(&self) -> Result<FixtureGuard<'_, T, RwLockWriteGuard<'_, ()>>> {
        let guard = self.visits.write().unwrap_or_else(PoisonError::into_inner);
        self.what.await_restored()?;
        Ok(FixtureGuard { what: &self.what, _guard: guard })
    }
}

/// A case's stay in what is shared, which is whole when it begins.
#[derive(Debug)]
#[must_use = "the stay ends when this is dropped"]
pub struct FixtureGuard<'a, T, G> {
    what: &'a T,
    _guard: G,
}

impl<'a, T, G> FixtureGuard<'a, T, G> {
    /// What is shared, for what is built in it once and outlives the case that needed it first.
    pub fn fixture(&self) -> &'a T {
        self.what
    }
}

impl<T, G> Deref for FixtureGuard<'_, T, G> {
    type Target = T;

    fn deref(&self) -> &T {
        self.what
    }
}
