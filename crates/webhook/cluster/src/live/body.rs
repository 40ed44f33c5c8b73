//! Response bodies: the limit of each, the memory budget of all, and parsing.
//!
//! A server chooses the size of its response, and Durward queries hundreds in parallel. So all responses share one budget. If
//! the budget is exhausted, the request fails; a response is never cut. A reader of a fleet then drops what has arrived, waits for
//! all the memory that a response can need, and sends its request again. So no reader that waits has memory that others need. Long
//! responses are parsed on a blocking thread, so that deadlines hold and other reviews do not wait.

use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;

use admission::Cause;
use admission::budget::{Budget, ReservedBytes};
use http_body_util::BodyExt as _;
use tokio::sync::{Mutex, Notify, Semaphore};
use tokio::time::{Instant, timeout_at};
use tower::BoxError;

use super::failure::Failure;
use crate::cause;

/// 64 MiB: two of the longest responses (32 MiB), or 8 pages of the longest length (8 MiB).
const BUDGET: usize = 64 << 20;

/// Bytes of each response that are not counted, so that members with long responses cannot block the short ones of others.
/// There are at most 400 concurrent requests: 6.4 MB.
pub(crate) const UNCOUNTED: usize = 16 << 10;

/// Longer responses are parsed on a blocking thread: 256 KiB take about a millisecond.
const LONG: usize = 256 << 10;

/// Blocking threads for parsing. Each holds a few times the bytes that it parses.
const PARSERS: usize = 4;

/// Reads bodies within one budget. Cloning shares it.
#[derive(Debug, Clone)]
pub(crate) struct BodyReader {
    budget: Arc<Budget>,
    /// Notified when a response is dropped.
    returned: Arc<Notify>,
    /// Held by the first of those that wait for memory.
    turn: Arc<Mutex<()>>,
    parsers: Arc<Semaphore>,
}

/// The bytes of a response, counted in the budget until they are dropped.
#[derive(Debug)]
pub(crate) struct Bytes {
    bytes: Vec<u8>,
    _reservation: ReservedBytes,
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Default for BodyReader {
    fn default() -> Self {
        Self::with_budget(BUDGET)
    }
}

impl BodyReader {
    pub(crate) fn with_budget(bytes: usize) -> Self {
        let returned = Arc::new(Notify::new());
        let notify = Arc::clone(&returned);
        let on_change = move |change| {
            if change < 0 {
                notify.notify_waiters();
            }
        };
        let (turn, parsers) = (Arc::default(), Arc::new(Semaphore::new(PARSERS)));
        Self { budget: Budget::observed(bytes, on_change), returned, turn, parsers }
    }

    /// Returns the memory for a response, which grows with it.
    pub(crate) fn memory(&self) -> ReservedBytes {
        self.budget.empty()
    }

    /// Waits for the memory of the longest response with this limit. Those who wait get it in their order.
    pub(crate) async fn wait_for_memory(&self, limit: usize) -> ReservedBytes {
        let _turn = self.turn.lock().await;
        loop {
            let mut returned = pin!(self.returned.notified());
            returned.as_mut().enable();
            match self.budget.reserve(limit) {
                Some(memory) => return memory,
                None => returned.await,
            }
        }
    }

    /// Reads a whole body of at most `limit` bytes. The memory grows with the bytes that arrive, because a server may announce more
    /// than it sends. `broken` maps an error of the connection.
    pub(crate) async fn read<B>(
        &self,
        mut body: B,
        limit: usize,
        mut memory: ReservedBytes,
        broken: impl Fn(&(dyn std::error::Error + 'static)) -> Failure,
    ) -> Result<Bytes, Failure>
    where
        B: hyper::body::Body<Data = bytes::Bytes> + Unpin,
        B::Error: Into<BoxError>,
    {
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|error| broken(&*error.into()))?.into_data() else { continue };
            let needed = bytes.len() + data.len();
            if needed > limit {
                let begun = if bytes.is_empty() { &data[..] } else { &bytes[..] };
                return Err(too_long(limit, begun));
            }
            if needed > bytes.capacity() {
                let capacity = needed.next_power_of_two().min(limit);
                // It fails instead of waiting: other requests that hold parts of the budget can need more too.
                let counted = capacity.saturating_sub(UNCOUNTED);
                if counted > memory.amount() && !memory.resize(counted) {
                    let text = "Durward has no memory left for responses (64 MiB); retry";
                    return Err(Failure { lacks_memory: true, ..Failure::new(cause::OVERLOADED, text) });
                }
                bytes.reserve_exact(capacity - bytes.len());
            }
            bytes.extend_from_slice(&data);
        }
        memory.resize(bytes.capacity().saturating_sub(UNCOUNTED));
        Ok(Bytes { bytes, _reservation: memory })
    }

    /// Parses a response. Returns `None` if that takes longer than the deadline.
    pub(crate) async fn parse<T: Send + 'static>(
        &self,
        bytes: Bytes,
        deadline: Instant,
        parser: impl FnOnce(&[u8]) -> T + Send + 'static,
    ) -> Option<Result<T, Cause>> {
        if bytes.len() <= LONG {
            return Some(Ok(parser(&bytes)));
        }
        let Ok(permit) = timeout_at(deadline, Arc::clone(&self.parsers).acquire_owned()).await else {
            let text = "Durward is parsing too many long responses; retry";
            return Some(Err(Cause::new(cause::OVERLOADED, text)));
        };
        // The thread continues if the caller is dropped, and keeps its permit and its reservation until it ends.
        let parsing = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            parser(&bytes)
        });
        let parsed = timeout_at(deadline, parsing).await.ok()?;
        Some(parsed.map_err(|error| Cause::new(cause::GARBAGE, format!("it could not be read: {error}"))))
    }
}

/// Only a body that begins as JSON does is an answer that is too long; others, like a login page, are garbage.
fn too_long(limit: usize, begun: &[u8]) -> Failure {
    let failure = Failure::new(cause::GARBAGE, format!("the answer is longer than {} MiB", limit >> 20));
    Failure { is_too_long: begun.trim_ascii_start().starts_with(b"{"), ..failure }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    async fn read(reader: &BodyReader, length: usize) -> Result<Bytes, Failure> {
        let body = Full::new(bytes::Bytes::from(vec![b' '; length]));
        reader.read(body, 4 << 20, reader.memory(), |_| Failure::new(cause::UNREACHABLE, "broken")).await
    }

    #[tokio::test]
    async fn reads_a_body_up_to_its_limit_and_returns_its_reservation() {
        let reader = BodyReader::default();
        for length in [0, 1, UNCOUNTED, 3 << 20, (4 << 20) - 1, 4 << 20] {
            assert_eq!(read(&reader, length).await.unwrap().len(), length);
        }
        let failure = read(&reader, (4 << 20) + 1).await.unwrap_err();
        assert_eq!(failure.cause, Cause::new(cause::GARBAGE, "the answer is longer than 4 MiB"));
        assert!(reader.budget.reserve(BUDGET).is_some());
    }

    #[tokio::test]
    async fn an_exhausted_budget_fails_long_responses_and_never_short_ones() {
        let reader = BodyReader::with_budget(1 << 20);
        let long = read(&reader, 900 << 10).await.unwrap();
        let failure = read(&reader, 200 << 10).await.unwrap_err();
        assert_eq!(failure.cause.code, cause::OVERLOADED);
        let mut short = Vec::new();
        for _ in 0..1000 {
            short.push(read(&reader, UNCOUNTED).await.unwrap());
        }
        drop(long);
        assert!(read(&reader, 200 << 10).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn waits_for_memory_in_order_and_holds_none_meanwhile() {
        let reader = BodyReader::with_budget(1 << 20);
        let long = read(&reader, 900 << 10).await.unwrap();
        let (first, second) = (reader.clone(), reader.clone());
        let first = tokio::spawn(async move { first.wait_for_memory(1 << 20).await });
        tokio::task::yield_now().await;
        let second = tokio::spawn(async move { second.wait_for_memory(1).await });
        tokio::task::yield_now().await;
        assert!(!first.is_finished() && !second.is_finished());
        drop(long);
        let first = first.await.unwrap();
        assert_eq!(first.amount(), 1 << 20);
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        drop(first);
        assert_eq!(second.await.unwrap().amount(), 1);
        let all = reader.wait_for_memory(1 << 20).await;
        let body = Full::new(bytes::Bytes::from(vec![b' '; 100 << 10]));
        let broken = |_: &(dyn std::error::Error + 'static)| Failure::new(cause::UNREACHABLE, "broken");
        let short = reader.read(body, 4 << 20, all, broken).await.unwrap();
        assert!(short.len() == 100 << 10 && reader.budget.reserve(900 << 10).is_some());
    }

    #[tokio::test]
    async fn parses_a_long_response_on_another_thread_until_the_deadline() {
        let reader = BodyReader::default();
        let bytes = read(&reader, LONG + 1).await.unwrap();
        let (go_on, waits) = std::sync::mpsc::channel::<()>();
        // On this thread the parser would wait forever.
        let deadline = Instant::now() + std::time::Duration::from_millis(20);
        let parsed = reader.parse(bytes, deadline, move |_| waits.recv().is_ok()).await;
        assert!(parsed.is_none());
        assert_eq!(reader.parsers.available_permits(), PARSERS - 1);
        assert!(reader.budget.reserve(BUDGET).is_none());
        go_on.send(()).unwrap();
        let all = u32::try_from(PARSERS).unwrap();
        drop(reader.parsers.acquire_many(all).await.unwrap());
    }
}
