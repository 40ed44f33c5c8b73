//! Environments that many cases share. The first case that needs one creates it, and the supervisor stops it.
//!
//! Most cases share an environment at the same time and use their own namespaces. A case that freezes, stops or removes
//! a part of it waits until it has the environment for itself.

use std::ops::Deref;
use std::sync::{
    Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

use anyhow::Result;

use crate::console::print;

/// A value that the first caller creates. A failure is returned to all callers.
#[derive(Debug)]
pub struct Lazy<T>(OnceLock<Result<T, String>>);

impl<T> Lazy<T> {
    /// Returns an empty one.
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Returns the value. The first call creates it.
    pub fn get(&self, create: impl FnOnce() -> Result<T>) -> Result<&T> {
        let created = self.0.get_or_init(|| create().map_err(|error| format!("{error:#}")));
        created.as_ref().map_err(|error| anyhow::Error::msg(error.clone()))
    }

    /// Returns the value if it exists.
    pub fn created(&self) -> Option<&T> {
        self.0.get()?.as_ref().ok()
    }
}

impl<T> Default for Lazy<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// An environment that a case can change.
pub trait Fixture {
    /// Waits until changes of the last exclusive case are undone.
    fn await_restored(&self) -> Result<()> {
        Ok(())
    }
}

/// An environment for many shared cases or one exclusive case at a time.
#[derive(Debug)]
pub struct SharedFixture<T> {
    fixture: T,
    users: RwLock<()>,
}

/// An environment that the holder shares with other cases.
pub type Shared<'a, T> = FixtureGuard<'a, T, RwLockReadGuard<'a, ()>>;

/// An environment that no other case uses.
pub type Exclusive<'a, T> = FixtureGuard<'a, T, RwLockWriteGuard<'a, ()>>;

impl<T: Fixture> SharedFixture<T> {
    /// Makes an environment available to cases.
    pub fn new(fixture: T) -> Self {
        Self { fixture, users: RwLock::new(()) }
    }

    /// Returns the environment without waiting for the cases that use it.
    pub fn fixture(&self) -> &T {
        &self.fixture
    }

    /// Waits until no exclusive case uses it.
    pub fn shared(&self) -> Result<Shared<'_, T>> {
        let guard = self.users.read().unwrap_or_else(PoisonError::into_inner);
        self.fixture.await_restored()?;
        Ok(FixtureGuard { fixture: &self.fixture, _guard: guard })
    }

    /// Waits until no case uses it.
    pub fn exclusive(&self) -> Result<Exclusive<'_, T>> {
        let guard = self.users.write().unwrap_or_else(PoisonError::into_inner);
        self.fixture.await_restored()?;
        Ok(FixtureGuard { fixture: &self.fixture, _guard: guard })
    }
}

/// Access to an environment, until this is dropped.
#[derive(Debug)]
#[must_use = "the access ends when this is dropped"]
pub struct FixtureGuard<'a, T, G> {
    fixture: &'a T,
    _guard: G,
}

impl<'a, T, G> FixtureGuard<'a, T, G> {
    /// Returns the environment for longer than the access: for what is created in it once and outlives the case.
    pub fn fixture(&self) -> &'a T {
        self.fixture
    }
}

impl<T, G> Deref for FixtureGuard<'_, T, G> {
    type Target = T;

    fn deref(&self) -> &T {
        self.fixture
    }
}

/// The configuration of an environment. Cases with the same configuration run at the same time.
#[derive(Debug)]
pub struct ConfigurationLock {
    current: Mutex<Current>,
    released: Condvar,
}

#[derive(Debug)]
struct Current {
    configuration: String,
    users: usize,
}

impl ConfigurationLock {
    /// Returns a lock for an environment that was created with this configuration.
    pub fn new(configuration: &str) -> Self {
        let current = Current { configuration: configuration.to_owned(), users: 0 };
        Self { current: Mutex::new(current), released: Condvar::new() }
    }

    /// Waits until no case uses another configuration. Calls `apply` if this one is not in use yet.
    pub fn acquire(
        &self,
        configuration: &str,
        apply: impl FnOnce() -> Result<()>,
    ) -> Result<ConfigurationGuard<'_>> {
        let is_other = |current: &mut Current| current.users > 0 && current.configuration != configuration;
        let current = self.released.wait_while(self.current(), is_other);
        let mut current = current.unwrap_or_else(PoisonError::into_inner);
        if current.configuration != configuration {
            // After a failure neither the old nor the new configuration is known to be in use.
            current.configuration.clear();
            apply()?;
            configuration.clone_into(&mut current.configuration);
        }
        current.users += 1;
        Ok(ConfigurationGuard(self))
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The use of a configuration, until this is dropped.
#[derive(Debug)]
#[must_use = "another case can change the configuration when this is dropped"]
pub struct ConfigurationGuard<'a>(&'a ConfigurationLock);

impl Drop for ConfigurationGuard<'_> {
    fn drop(&mut self) {
        self.0.current().users -= 1;
        self.0.released.notify_all();
    }
}

/// Undoes a change on drop. If that fails, the case fails: later cases would use a changed cluster.
#[must_use = "the change is undone when this is dropped"]
pub struct Undo<'a> {
    failure: &'static str,
    undo: Option<Box<dyn FnOnce() -> Result<()> + Send + Sync + 'a>>,
}

impl<'a> Undo<'a> {
    /// Calls `undo` on drop. `failure` describes the error.
    pub fn new(failure: &'static str, undo: impl FnOnce() -> Result<()> + Send + Sync + 'a) -> Self {
        Self { failure, undo: Some(Box::new(undo)) }
    }

    /// Undoes the change now.
    pub fn undo(mut self) -> Result<()> {
        self.undo.take().map_or(Ok(()), |undo| undo())
    }
}

impl std::fmt::Debug for Undo<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Undo")
    }
}

impl Drop for Undo<'_> {
    #[allow(clippy::panic, reason = "a drop cannot return an error")]
    fn drop(&mut self) {
        if let Some(undo) = self.undo.take()
            && let Err(error) = undo()
        {
            print(format_args!("{}: {error:#}", self.failure));
            assert!(std::thread::panicking(), "{}: {error:#}", self.failure);
        }
    }
}
