//! One fleet for all cases of a run: it is started by the first that asks for it and ended by the keeper.
//!
//! Most cases stand beside each other in it: each has namespaces of its own and leaves the fleet as it is. A
//! case that freezes, stops or unjoins something wants the fleet to itself, and waits until the others are
//! done.

use std::ops::Deref;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use anyhow::Result;

use super::Fleet;
use crate::stage::Stage;

/// The fleet of a run.
#[derive(Debug)]
pub(crate) struct Shared {
    fleet: Fleet,
    visits: RwLock<()>,
}

impl Shared {
    pub(crate) fn start(stage: &Stage) -> Result<Self> {
        Ok(Self { fleet: Fleet::start(stage)?, visits: RwLock::new(()) })
    }

    pub(crate) fn visit(&self) -> Result<Visit<'_, RwLockReadGuard<'_, ()>>> {
        let guard = self.visits.read().unwrap_or_else(PoisonError::into_inner);
        // A case that had the fleet to itself may just have thawed a member.
        self.fleet.await_whole()?;
        Ok(Visit { fleet: &self.fleet, _guard: guard })
    }

    pub(crate) fn alone(&self) -> Result<Visit<'_, RwLockWriteGuard<'_, ()>>> {
        let guard = self.visits.write().unwrap_or_else(PoisonError::into_inner);
        self.fleet.await_whole()?;
        Ok(Visit { fleet: &self.fleet, _guard: guard })
    }
}

/// A case's stay in the fleet, all of whose members are Ready when it begins.
#[derive(Debug)]
#[must_use = "the stay ends when this is dropped"]
pub struct Visit<'a, G> {
    fleet: &'a Fleet,
    _guard: G,
}

impl<'a, G> Visit<'a, G> {
    /// The fleet, for what is built in it once and outlives the case that needed it first.
    pub fn fleet(&self) -> &'a Fleet {
        self.fleet
    }
}

impl<G> Deref for Visit<'_, G> {
    type Target = Fleet;

    fn deref(&self) -> &Fleet {
        self.fleet
    }
}
