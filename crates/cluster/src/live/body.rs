//! The bytes of answers: how many one may have, how many all of them may have together, and where they are read.
//!
//! Whoever is asked decides how long its answer is, and hundreds are asked at once. So an answer is taken only as far as there is
//! room for it in one budget; without room there is a cause, and never half an answer. What is long is parsed on a thread of its
//! own, so that a deadline can pass meanwhile and no other review waits.

use std::ops::Deref;
use std::sync::Arc;

use admission::Cause;
use http_body_util::BodyExt as _;
use hyper::Response;
use kube::client::Body;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::failure::{Failure, SERVER, not_sent};
use crate::cause;

/// 96 MiB: room for three of the longest answers at once (32 MiB), or for 12 pages that are as long as they may be (8 MiB).
const BUDGET: usize = 96 << 20;

/// So much of each answer is not counted, so that members that fill the budget cannot crowd out the short answers of the
/// others. 800 questions are under way at once: 13 MB.
const FREE: usize = 16 << 10;

/// The budget is counted in these.
const UNIT: usize = 1 << 10;

/// What is longer is parsed on a thread of its own: 256 KiB take about a millisecond.
const LONG: usize = 256 << 10;

/// So many threads at once, each of which may hold a few times what it parses.
const PARSERS: usize = 4;

/// The room that there is for all answers under way. Cloning it shares it.
#[derive(Debug, Clone)]
pub(super) struct Room {
    bytes: Arc<Semaphore>,
    parsers: Arc<Semaphore>,
}

/// An answer's bytes, which keep their room until they are dropped.
#[derive(Debug)]
pub(super) struct Bytes {
    bytes: Vec<u8>,
    _room: Option<OwnedSemaphorePermit>,
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Default for Room {
    fn default() -> Self {
        Self::of(BUDGET)
    }
}

impl Room {
    pub(super) fn of(bytes: usize) -> Self {
        Self { bytes: Arc::new(Semaphore::new(bytes / UNIT)), parsers: Arc::new(Semaphore::new(PARSERS)) }
    }

    /// The whole body, of at most `limit` bytes. Room is taken as it grows, because a member may say that it sends more than
    /// it does.
    pub(super) async fn body(&self, response: Response<Body>, limit: usize) -> Result<Bytes, Failure> {
        self.collect(response.into_body(), limit, |error| not_sent(error, SERVER)).await
    }

    /// The same of whoever answers; `broken` says what it means that it stopped half way.
    pub(super) async fn collect<B>(
        &self,
        mut body: B,
        limit: usize,
        broken: impl Fn(&(dyn std::error::Error + 'static)) -> Failure,
    ) -> Result<Bytes, Failure>
    where
        B: hyper::body::Body<Data = bytes::Bytes> + Unpin,
        B::Error: std::error::Error + 'static,
    {
        let mut bytes = Vec::new();
        let mut room: Option<OwnedSemaphorePermit> = None;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|error| broken(&error))?.into_data() else { continue };
            let needed = bytes.len() + data.len();
            if needed > limit {
                let begun = if bytes.is_empty() { &data[..] } else { &bytes[..] };
                return Err(too_long(limit, begun));
            }
            if needed > bytes.capacity() {
                let capacity = needed.next_power_of_two().max(FREE / 4).min(limit);
                let had = bytes.capacity().max(FREE);
                if let Some(more) = capacity.checked_sub(had).filter(|&more| more > 0) {
                    let more = self.take(more)?;
                    match &mut room {
                        None => room = Some(more),
                        Some(room) => room.merge(more),
                    }
                }
                bytes.reserve_exact(capacity - bytes.len());
            }
            bytes.extend_from_slice(&data);
        }
        Ok(Bytes { bytes, _room: room })
    }

    fn take(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Failure> {
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        // Nobody waits: those that hold room may wait for more of it themselves.
        Arc::clone(&self.bytes).try_acquire_many_owned(units).map_err(|_| {
            let text = "Durward has no room left for the answers that are under way (96 MiB); try again";
            Failure::new(cause::CROWDED, text)
        })
    }

    /// What `work` makes of an answer; none when that is not done by the deadline.
    pub(super) async fn parsed<T: Send + 'static>(
        &self,
        bytes: Bytes,
        deadline: Instant,
        work: impl FnOnce(&[u8]) -> T + Send + 'static,
    ) -> Option<Result<T, Cause>> {
        if bytes.len() <= LONG {
            return Some(Ok(work(&bytes)));
        }
        // Whose turn does not come: that says nothing of the answer.
        let Ok(turn) = timeout_at(deadline, Arc::clone(&self.parsers).acquire_owned()).await else {
            let text = "Durward is reading too many long answers already; try again";
            return Some(Err(Cause::new(cause::CROWDED, text)));
        };
        // The thread goes on when nobody waits for it any more; until then it keeps its turn and its room.
        let working = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work(&bytes)
        });
        let worked = timeout_at(deadline, working).await.ok()?;
        Some(worked.map_err(|error| Cause::new(cause::GARBAGE, format!("it could not be read: {error}"))))
    }
}

/// A login page may be long too: only what begins as JSON does is an answer of which there is too much.
fn too_long(limit: usize, begun: &[u8]) -> Failure {
    let failure = Failure::new(cause::GARBAGE, format!("the answer is longer than {} MiB", limit >> 20));
    Failure { is_too_long: begun.trim_ascii_start().starts_with(b"{"), ..failure }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(length: usize) -> Response<Body> {
        Response::new(Body::from(vec![b' '; length]))
    }

    #[tokio::test]
    async fn an_answer_is_taken_up_to_its_limit_and_not_beyond() {
        let room = Room::default();
        for length in [0, 1, FREE, 3 << 20, (4 << 20) - 1, 4 << 20] {
            assert_eq!(room.body(response(length), 4 << 20).await.unwrap().len(), length);
        }
        let failure = room.body(response((4 << 20) + 1), 4 << 20).await.unwrap_err();
        assert_eq!(failure.cause, Cause::new(cause::GARBAGE, "the answer is longer than 4 MiB"));
        assert_eq!(room.bytes.available_permits(), BUDGET / UNIT);
    }

    #[tokio::test]
    async fn all_answers_share_one_room_in_which_short_ones_always_have_a_place() {
        let room = Room::of(1 << 20);
        let long = room.body(response(900 << 10), 4 << 20).await.unwrap();
        let failure = room.body(response(200 << 10), 4 << 20).await.unwrap_err();
        assert_eq!(failure.cause.code, cause::CROWDED);
        let mut short = Vec::new();
        for _ in 0..1000 {
            short.push(room.body(response(FREE), 4 << 20).await.unwrap());
        }
        drop(long);
        assert!(room.body(response(200 << 10), 4 << 20).await.is_ok());
    }

    #[tokio::test]
    async fn a_long_answer_is_read_while_others_go_on_and_given_up_at_its_deadline() {
        let room = Room::default();
        let bytes = room.body(response(LONG + 1), 4 << 20).await.unwrap();
        let (go_on, waits) = std::sync::mpsc::channel::<()>();
        // On this one thread the work below would wait for ever for what comes after it.
        let deadline = Instant::now() + std::time::Duration::from_millis(20);
        let parsed = room.parsed(bytes, deadline, move |_| waits.recv().is_ok()).await;
        assert!(parsed.is_none());
        assert_eq!(room.parsers.available_permits(), PARSERS - 1);
        assert!(room.bytes.available_permits() < BUDGET / UNIT);
        go_on.send(()).unwrap();
        let all = u32::try_from(PARSERS).unwrap();
        drop(room.parsers.acquire_many(all).await.unwrap());
    }
}
