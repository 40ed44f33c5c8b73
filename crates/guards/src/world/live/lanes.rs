//! Places for questions: how many are under way at one API server, and by which of its connections each goes.
//!
//! API servers take 100 to 250 streams on a connection (`--http2-max-streams-per-connection`); what is beyond that would wait
//! within the connection, unseen. Here it waits for a place, in the order in which it came, and says so when it gets none.

use std::sync::{Mutex, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use super::transport::Lane;

/// Connections for questions to the API server that asks, behind which a whole fleet may stand. 800 questions at once are
/// enough for a thousand members within two round trips; and eight connections of each of eight replicas stay countable.
pub(super) const LANES: usize = 8;

/// 96 questions of reviews and 4 of rounds make the 100 streams that the most careful API servers take.
const REVIEWS_A_LANE: usize = 96;
const ROUNDS_A_LANE: usize = 4;

/// For whom a question is asked. Rounds have few places and their own, so that neither waits for the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    /// Somebody who waits at kubectl.
    Review,
    /// The round that is made every minute.
    Round,
}

/// The places at one API server.
#[derive(Debug)]
pub(super) struct Lanes {
    reviews: Semaphore,
    rounds: Semaphore,
    under_way: Mutex<UnderWay>,
}

/// How many questions go by each lane.
#[derive(Debug)]
struct UnderWay {
    lanes: Vec<usize>,
    /// Where the next question of a round goes: each lane in turn, so that all of them are open when they are needed.
    next: usize,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(super) struct Place<'l> {
    lanes: &'l Lanes,
    lane: usize,
    _permit: SemaphorePermit<'l>,
}

impl Lanes {
    /// At least one.
    pub(super) fn new(lanes: usize) -> Self {
        Self {
            reviews: Semaphore::new(lanes * REVIEWS_A_LANE),
            rounds: Semaphore::new(lanes * ROUNDS_A_LANE),
            under_way: Mutex::new(UnderWay { lanes: vec![0; lanes], next: 0 }),
        }
    }

    /// How many questions of reviews may be under way.
    pub(super) fn places(&self) -> usize {
        self.count() * REVIEWS_A_LANE
    }

    fn count(&self) -> usize {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner).lanes.len()
    }

    /// A place on the lane with the fewest questions; none if there is none until the deadline.
    pub(super) async fn enter(&self, on_behalf: For, deadline: Instant) -> Option<Place<'_>> {
        let places = match on_behalf {
            For::Review => &self.reviews,
            For::Round => &self.rounds,
        };
        let permit = timeout_at(deadline, places.acquire()).await.ok()?.ok()?;
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        let UnderWay { lanes, next } = &mut *under_way;
        let lane = match on_behalf {
            For::Review => lanes.iter().enumerate().min_by_key(|(_, count)| **count)?.0,
            For::Round => {
                *next = (*next + 1) % lanes.len().max(1);
                *next
            }
        };
        *lanes.get_mut(lane)? += 1;
        Some(Place { lanes: self, lane, _permit: permit })
    }
}

impl Place<'_> {
    pub(super) fn lane(&self) -> Lane {
        Lane(self.lane)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut under_way = self.lanes.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = under_way.lanes.get_mut(self.lane) {
            *count = count.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(1)
    }

    #[tokio::test(start_paused = true)]
    async fn questions_spread_evenly_and_few_of_them_open_few_lanes() {
        let lanes = Lanes::new(3);
        let first = lanes.enter(For::Review, soon()).await.unwrap();
        assert_eq!(first.lane(), Lane(0));
        drop(first);
        let mut held = Vec::new();
        for _ in 0..9 {
            held.push(lanes.enter(For::Review, soon()).await.unwrap());
        }
        for lane in 0..3 {
            assert_eq!(held.iter().filter(|place| place.lane() == Lane(lane)).count(), 3);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_gets_no_place_until_the_deadline_is_told_and_the_next_one_gets_what_is_free() {
        let lanes = Lanes::new(1);
        let mut held = Vec::new();
        for _ in 0..lanes.places() {
            held.push(lanes.enter(For::Review, soon()).await.unwrap());
        }
        assert!(lanes.enter(For::Review, soon()).await.is_none());
        let (place, ()) = tokio::join!(lanes.enter(For::Review, soon()), async { drop(held.pop()) });
        assert!(place.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn rounds_take_no_place_of_a_review_and_go_by_every_lane() {
        let lanes = Lanes::new(2);
        let mut rounds = Vec::new();
        for _ in 0..2 * ROUNDS_A_LANE {
            rounds.push(lanes.enter(For::Round, soon()).await.unwrap());
        }
        assert_eq!(rounds.iter().filter(|place| place.lane() == Lane(0)).count(), ROUNDS_A_LANE);
        assert!(lanes.enter(For::Round, soon()).await.is_none());
        let mut reviews = Vec::new();
        for _ in 0..lanes.places() {
            reviews.push(lanes.enter(For::Review, soon()).await.unwrap());
        }
    }
}
