//! Questions under way: who asks the same at the same time shares one answer.
//!
//! Only while it is under way; an answer is never kept. And sharing must not make anyone believe what was true before they
//! asked: an absence that was found for a question from before one's own is asked for again (see [`Live`](super::Live)).

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use admission::BoxFuture;
use futures_util::FutureExt as _;
use futures_util::future::{Shared, WeakShared};
use tokio::time::Instant;

use crate::{Address, MetadataResult, Resource};

/// A question under way. It goes on while anyone waits for it, and no longer.
pub(super) type Flight = Shared<BoxFuture<'static, MetadataResult>>;

/// The same, without keeping it going; and since when it is under way.
type Known = (Instant, WeakShared<BoxFuture<'static, MetadataResult>>);

/// All questions under way.
#[derive(Default)]
pub(super) struct Flights {
    under_way: Mutex<HashMap<Key, Known>>,
}

/// An address that owns its parts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    resource: Resource,
    namespace: String,
    name: String,
}

impl From<Address<'_>> for Key {
    fn from(address: Address<'_>) -> Self {
        Self {
            resource: address.resource.clone(),
            namespace: address.namespace.to_owned(),
            name: address.name.to_owned(),
        }
    }
}

impl Key {
    pub(super) fn address(&self) -> Address<'_> {
        Address { resource: &self.resource, namespace: &self.namespace, name: &self.name }
    }
}

impl Flights {
    /// The question that is under way since `not_before` or later, or else a new one, begun `now`. Tells whether it was joined.
    pub(super) fn join(
        &self,
        key: Key,
        not_before: Instant,
        now: Instant,
        start: impl FnOnce(Key) -> BoxFuture<'static, MetadataResult>,
    ) -> (Flight, bool) {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((began, weak)) = under_way.get(&key)
            && *began >= not_before
            && let Some(flight) = weak.upgrade()
            && flight.peek().is_none()
        {
            return (flight, true);
        }
        // What has ended is swept out here: there are no more of them than reviews were under way at once.
        under_way.retain(|_, (_, weak)| weak.upgrade().is_some_and(|flight| flight.peek().is_none()));
        let flight = start(key.clone()).shared();
        if let Some(weak) = flight.downgrade() {
            under_way.insert(key, (now, weak));
        }
        (flight, false)
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    #[tokio::test]
    async fn an_answer_that_somebody_still_holds_is_not_given_out_again() {
        let flights = Flights::default();
        let now = Instant::now();
        let address = Address { resource: &Resource::NAMESPACES, namespace: "", name: "shop" };
        let join = || flights.join(Key::from(address), now, now, |_| Box::pin(ready(Ok(None))));
        let (first, was_joined) = join();
        assert!(!was_joined);
        let (held, was_joined) = join();
        assert!(was_joined);
        assert_eq!(first.await, Ok(None));
        assert!(!join().1);
        drop(held);
    }
}
