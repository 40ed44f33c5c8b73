//! One read for all who began to ask before it was sent, and for nobody who came later: of the list of a fleet, and of each
//! question to an etcd member.
//!
//! A cluster that joined a second ago counts, so an answer that was asked for earlier is worth nothing; but a hundred reviews
//! at once (`kubectl delete ns --all`) need not read five thousand Clusters a hundred times. So one read at a time is not sent
//! yet, and newcomers wait with it.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use admission::BoxFuture;
use futures_util::FutureExt as _;
use futures_util::future::{Shared, WeakShared};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// While one read is under way newcomers gather for so long before the next is sent: a read takes about that.
const GATHERS_FOR: Duration = Duration::from_millis(100);

/// So many reads at once, so that one that hangs does not hold the others; each may be 12 MB (5,000 Clusters).
const READS: usize = 4;

/// A read, sent or not. It goes on while anyone waits for it, and no longer.
pub(super) type Read<A> = Shared<BoxFuture<'static, A>>;

/// The same, without keeping it going.
type Known<A> = WeakShared<BoxFuture<'static, A>>;

/// All reads of what is called by keys `K` and answered with an `A`.
pub(super) struct Gathering<K, A> {
    /// Those that are not sent yet.
    waiting: Arc<Mutex<HashMap<K, Known<A>>>>,
    calm: Arc<Semaphore>,
    slots: Arc<Semaphore>,
}

impl<K, A> Default for Gathering<K, A> {
    fn default() -> Self {
        Self {
            waiting: Arc::default(),
            calm: Arc::new(Semaphore::new(1)),
            slots: Arc::new(Semaphore::new(READS)),
        }
    }
}

impl<K, A> Clone for Gathering<K, A> {
    fn clone(&self) -> Self {
        Self {
            waiting: Arc::clone(&self.waiting),
            calm: Arc::clone(&self.calm),
            slots: Arc::clone(&self.slots),
        }
    }
}

impl<K, A> Gathering<K, A>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    A: Clone + Send + Sync + 'static,
{
    /// A read that is not sent yet: the one that others wait for, or a new one that is sent when it is its turn.
    pub(super) fn join(&self, key: &K, read: impl FnOnce() -> BoxFuture<'static, A>) -> Read<A> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(read) = waiting.get(key).and_then(WeakShared::upgrade)
            && read.peek().is_none()
        {
            return read;
        }
        let new = self.clone().take_turn(key.clone(), read()).boxed().shared();
        if let Some(weak) = new.downgrade() {
            waiting.insert(key.clone(), weak);
        }
        new
    }

    /// Whether nothing waits and nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.slots.available_permits() == READS && waiting.values().all(|read| read.upgrade().is_none())
    }

    async fn take_turn(self, key: K, read: BoxFuture<'static, A>) -> A {
        // At once where nothing is under way; after a while all the same, for that may hang.
        let calm = timeout(GATHERS_FOR, self.calm.acquire()).await;
        let slot = self.slots.acquire().await;
        // From here on nobody joins: what they ask for may be younger than what is read.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        let answer = read.await;
        drop((calm, slot));
        answer
    }
}
