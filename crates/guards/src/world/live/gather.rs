//! Reading the list of a fleet: one read for all who began to ask before it was sent, and for nobody who came later.
//!
//! A cluster that joined a second ago counts, so an answer that was asked for earlier is worth nothing; but a hundred reviews
//! at once (`kubectl delete ns --all`) need not read five thousand Clusters a hundred times. So one read at a time is not sent
//! yet, and newcomers wait with it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use admission::BoxFuture;
use futures_util::FutureExt as _;
use futures_util::future::{Shared, WeakShared};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::world::fleet::{Fleet, Members};

/// While one read is under way newcomers gather for so long before the next is sent: a read takes about that.
const GATHERS_FOR: Duration = Duration::from_millis(100);

/// So many reads at once, so that one that hangs does not hold the others; each may be 12 MB (5,000 Clusters).
const READS: usize = 4;

/// A read, sent or not. It goes on while anyone waits for it, and no longer.
pub(super) type Read = Shared<BoxFuture<'static, Members>>;

/// All reads of lists of fleets.
#[derive(Clone)]
pub(super) struct Gathering {
    /// Those that are not sent yet.
    waiting: Arc<Mutex<HashMap<Fleet, WeakShared<BoxFuture<'static, Members>>>>>,
    calm: Arc<Semaphore>,
    slots: Arc<Semaphore>,
}

impl Default for Gathering {
    fn default() -> Self {
        Self {
            waiting: Arc::default(),
            calm: Arc::new(Semaphore::new(1)),
            slots: Arc::new(Semaphore::new(READS)),
        }
    }
}

impl Gathering {
    /// A read that is not sent yet: the one that others wait for, or a new one that is sent when it is its turn.
    pub(super) fn join(&self, fleet: &Fleet, read: impl FnOnce() -> BoxFuture<'static, Members>) -> Read {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(read) = waiting.get(fleet).and_then(WeakShared::upgrade)
            && read.peek().is_none()
        {
            return read;
        }
        let new = self.clone().take_turn(fleet.clone(), read()).boxed().shared();
        if let Some(weak) = new.downgrade() {
            waiting.insert(fleet.clone(), weak);
        }
        new
    }

    async fn take_turn(self, fleet: Fleet, read: BoxFuture<'static, Members>) -> Members {
        // At once where nothing is under way; after a while all the same, for that may hang.
        let calm = timeout(GATHERS_FOR, self.calm.acquire()).await;
        let slot = self.slots.acquire().await;
        // From here on nobody joins: what they ask for may be younger than what is read.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&fleet);
        let members = read.await;
        drop((calm, slot));
        members
    }
}
