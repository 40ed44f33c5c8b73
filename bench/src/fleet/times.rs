//! Times of rounds.

use std::time::{Duration, Instant};

use crate::{Result, kernel};

/// Times in microseconds by round.
#[derive(Default)]
pub(super) struct Times {
    pub(super) took: Vec<u64>,
    pub(super) cpu: Vec<u64>,
}

impl Times {
    /// Adds a round that began at `since`, with the CPU time at its start.
    pub(super) fn note(&mut self, since: Instant, ran: Duration) -> Result<()> {
        self.took.push(u64::try_from(since.elapsed().as_micros())?);
        self.cpu.push(u64::try_from(kernel::cpu("self")?.saturating_sub(ran).as_micros())?);
        Ok(())
    }
}
