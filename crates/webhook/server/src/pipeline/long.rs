//! Runs reviews of long bodies beside the async workers.
//!
//! A body of 10 MiB takes some 100 ms to be parsed. Meanwhile its thread runs nothing else, so tokio gives the other tasks of the
//! worker to another thread. As many reviews are parsed at once as there are processors; the others wait in order.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::ready;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

/// Longer bodies are long. This many bytes take about a millisecond.
const LONG: usize = 128 << 10;

/// A limit of the long bodies that are parsed at once.
pub(super) struct LongBodies {
    permits: Semaphore,
}

impl LongBodies {
    /// Creates the limit, with a permit for each processor.
    pub(super) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { permits: Semaphore::new(processors) }
    }

    /// Runs a step of the review of a body of this length. A step that waits, for instance for a cluster, holds no permit.
    pub(super) async fn run<F: Future>(&self, length: usize, step: F) -> F::Output {
        if length <= LONG {
            return step.await;
        }
        let mut step = pin!(step);
        let mut acquire = pin!(self.permits.acquire());
        poll_fn(|context| {
            // The semaphore is never closed, so there is always a permit.
            let permit = ready!(acquire.as_mut().poll(context));
            let polled = blocking(|| step.as_mut().poll(context));
            drop(permit);
            acquire.set(self.permits.acquire());
            polled
        })
        .await
    }
}

/// Calls a function that blocks its thread. A runtime with one thread has no other one for its tasks.
fn blocking<T>(call: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => tokio::task::block_in_place(call),
        _ => call(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_step_that_waits_holds_no_permit() {
        let bodies = LongBodies { permits: Semaphore::new(1) };
        let (sender, receiver) = tokio::sync::oneshot::channel::<u8>();
        let waiting = bodies.run(LONG + 1, receiver);
        let parsing = bodies.run(LONG + 1, async { sender.send(7) });
        assert_eq!(tokio::join!(waiting, parsing), (Ok(7), Ok(())));
        assert_eq!(bodies.permits.available_permits(), 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn as_many_long_bodies_are_parsed_at_once_as_there_are_permits() {
        let bodies = Arc::new(LongBodies { permits: Semaphore::new(2) });
        let (running, most) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let tasks = (0..16).map(|_| {
            let (bodies, running, most) = (Arc::clone(&bodies), Arc::clone(&running), Arc::clone(&most));
            tokio::spawn(async move {
                let parse = async {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::yield_now();
                    running.fetch_sub(1, Ordering::SeqCst);
                };
                bodies.run(LONG + 1, parse).await;
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        assert!((1..=2).contains(&most.load(Ordering::SeqCst)));
    }

    #[tokio::test]
    async fn a_short_body_needs_no_permit() {
        let bodies = LongBodies { permits: Semaphore::new(0) };
        assert_eq!(bodies.run(LONG, async { 7 }).await, 7);
    }
}
