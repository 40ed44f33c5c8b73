//! The list of all cases. The attribute [`case`](crate::case) adds a function to it.

use anyhow::Result;
#[doc(hidden)]
pub use inventory;

use crate::context::TestContext;

/// A function that tests one claim. Its error says what was wrong.
pub type Run = fn(&'static TestContext) -> Result<()>;

/// A registered case.
#[derive(Debug)]
pub struct Case {
    module: &'static str,
    function: &'static str,
    run: Run,
    schedule: Schedule,
}

/// When a case runs, relative to the other cases of its environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Schedule {
    /// Before all others, because it takes long.
    Slow,
    /// At the same time as others.
    Shared,
    /// After the shared ones: it needs another configuration of a shared Durward.
    Reconfigures,
    /// Last, because it waits until it has its environment for itself.
    Exclusive,
    /// Only with `--ignored` (`make soak`): it takes minutes or measures times.
    Soak,
}

inventory::collect!(Case);

impl Case {
    /// Returns a case of a function in this module. Only the attribute calls it.
    #[doc(hidden)]
    pub const fn new(module: &'static str, function: &'static str, run: Run, schedule: Schedule) -> Self {
        Self { module, function, run, schedule }
    }

    /// Returns all cases by schedule, and then by name.
    pub fn all() -> Vec<&'static Self> {
        let mut cases: Vec<&Self> = inventory::iter::<Self>.into_iter().collect();
        cases.sort_by_key(|case| (case.schedule, case.module, case.function));
        cases
    }

    /// Returns the name, such as `deletion::namespaces::finished_pods_do_not_deny_the_deletion`.
    pub fn name(&self) -> String {
        format!("{}::{}", self.path(), self.function)
    }

    /// Returns the first part of the name, such as `deletion`.
    pub fn area(&self) -> &'static str {
        self.path().split("::").next().unwrap_or_default()
    }

    /// Returns when it runs.
    pub fn schedule(&self) -> Schedule {
        self.schedule
    }

    /// Runs it.
    pub fn run(&self, context: &'static TestContext) -> Result<()> {
        (self.run)(context)
    }

    /// Returns the path of the module below `cases`.
    fn path(&self) -> &'static str {
        self.module.split_once("::cases::").map_or(self.module, |(_, path)| path)
    }
}
