//! Shares one request between callers that ask for the same thing.
//!
//! A caller joins a request only if that request has not been sent yet. An answer is therefore never older than the call: a
//! cluster that joined the fleet a second ago is in it. `kubectl delete ns --all` starts a hundred reviews at once, and they
//! share a few reads of the cluster list instead of sending a hundred.
//!
//! Answers are not cached. A request is cancelled when its last caller is dropped.

use std::hash::Hash;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use admission::BoxFuture;
use futures_util::FutureExt as _;
use futures_util::future::{Shared, WeakShared};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::recent_map::RecentMap;
use crate::lock;

/// Delay before the next request for a key while another one is in flight, so that callers can join it. A list of 500 clusters
/// takes about as long.
const BATCH_DELAY: Duration = Duration::from_millis(100);

/// Concurrent requests for a key, so that one that hangs does not block the next. A list of 5,000 clusters takes 12 MB.
const MAX_IN_FLIGHT: usize = 4;

/// Longer than any request: the entries of requests that are finished are removed before.
const MAX_IDLE: Duration = Duration::from_secs(300);

/// A request that several callers await. Dropping the last handle cancels it.
pub(super) type SharedRequest<A> = Shared<BoxFuture<'static, A>>;

/// Requests by key `K`, answered with `A`.
pub(super) struct SingleFlight<K, A> {
    flights: Mutex<RecentMap<K, Arc<Flight<A>>>>,
}

/// The requests for one key.
struct Flight<A> {
    /// The request that callers can still join.
    unsent: Mutex<Option<WeakShared<BoxFuture<'static, A>>>>,
    /// Held by the request that is in flight; the next one waits for it, at most [`BATCH_DELAY`].
    in_flight: Semaphore,
    /// Bounds concurrent requests.
    permits: Semaphore,
}

impl<K: Clone + Eq + Hash, A> Default for SingleFlight<K, A> {
    fn default() -> Self {
        Self { flights: Mutex::new(RecentMap::new(MAX_IDLE)) }
    }
}

impl<A> Default for Flight<A> {
    fn default() -> Self {
        Self {
            unsent: Mutex::default(),
            in_flight: Semaphore::new(1),
            permits: Semaphore::new(MAX_IN_FLIGHT),
        }
    }
}

impl<K: Clone + Eq + Hash, A: Clone + Send + Sync + 'static> SingleFlight<K, A> {
    /// Joins the unsent request for a key, or starts a new one.
    pub(super) fn join(&self, key: K, request: impl FnOnce() -> BoxFuture<'static, A>) -> SharedRequest<A> {
        let flight = self.flight(key);
        let mut unsent = lock(&flight.unsent);
        if let Some(request) = unsent.as_ref().and_then(WeakShared::upgrade)
            && request.peek().is_none()
        {
            return request;
        }
        let new = Arc::clone(&flight).send(request()).boxed().shared();
        *unsent = new.downgrade();
        new
    }

    fn flight(&self, key: K) -> Arc<Flight<A>> {
        let mut flights = lock(&self.flights);
        if let Some(flight) = flights.get(&key) {
            return Arc::clone(flight);
        }
        // Entries are removed here: there are at most as many as there were concurrent reviews.
        flights.retain(|_, flight| !flight.is_idle());
        let flight = Arc::<Flight<A>>::default();
        flights.insert(key, Arc::clone(&flight));
        flight
    }
}

impl<A: Clone + Send + Sync + 'static> Flight<A> {
    fn is_idle(&self) -> bool {
        let has_unsent = lock(&self.unsent).as_ref().is_some_and(|request| request.upgrade().is_some());
        !has_unsent && self.permits.available_permits() == MAX_IN_FLIGHT
    }

    async fn send(self: Arc<Self>, request: BoxFuture<'static, A>) -> A {
        // A timeout is fine: the request in flight may hang.
        let in_flight = timeout(BATCH_DELAY, self.in_flight.acquire()).await;
        let permit = self.permits.acquire().await;
        // Later callers must not share an answer that may be older than their call.
        *lock(&self.unsent) = None;
        let answer = request.await;
        drop((in_flight, permit));
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::live::recent_map::MAX_ENTRIES;

    const REQUEST: Duration = Duration::from_millis(10);

    fn counted(sent: &Arc<AtomicUsize>) -> BoxFuture<'static, usize> {
        let sent = Arc::clone(sent);
        Box::pin(async move {
            let number = sent.fetch_add(1, Ordering::Relaxed) + 1;
            sleep(REQUEST).await;
            number
        })
    }

    #[tokio::test(start_paused = true)]
    async fn shares_only_requests_that_are_sent_after_the_caller_asked() {
        let (flights, sent) = (SingleFlight::default(), Arc::<AtomicUsize>::default());
        let first = tokio::spawn(flights.join("a", || counted(&sent)));
        sleep(REQUEST / 2).await;
        assert_eq!(sent.load(Ordering::Relaxed), 1);
        let later = futures_util::future::join_all((0..50).map(|_| flights.join("a", || counted(&sent))));
        assert_eq!(later.await, vec![2; 50]);
        assert_eq!(first.await.unwrap(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_hangs_delays_the_next_for_a_short_time_and_other_keys_not_at_all() {
        let (flights, sent) = (SingleFlight::default(), Arc::<AtomicUsize>::default());
        let hanging = tokio::spawn(flights.join("a", || Box::pin(std::future::pending())));
        sleep(REQUEST).await;
        let began = Instant::now();
        flights.join("b", || counted(&sent)).await;
        assert_eq!(began.elapsed(), REQUEST);
        flights.join("a", || counted(&sent)).await;
        assert_eq!(began.elapsed(), REQUEST + BATCH_DELAY + REQUEST);
        hanging.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn dropping_the_last_caller_cancels_the_request_and_its_entry() {
        let (flights, sent) = (SingleFlight::default(), Arc::<AtomicUsize>::default());
        let (one, two) = (flights.join("a", || counted(&sent)), flights.join("a", || counted(&sent)));
        drop((one, two));
        assert_eq!(flights.join("b", || counted(&sent)).await, 1);
        assert_eq!(lock(&flights.flights).len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_hang_fill_the_map_to_its_limit_only() {
        let flights: SingleFlight<usize, ()> = SingleFlight::default();
        let hanging: Vec<_> =
            (0..MAX_ENTRIES + 10).map(|key| flights.join(key, || Box::pin(std::future::pending()))).collect();
        assert_eq!(lock(&flights.flights).len(), MAX_ENTRIES);
        drop(hanging);
    }
}
