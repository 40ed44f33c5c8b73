//! Places for questions: how many are under way at one API server, and by which of its connections each goes.
//!
//! API servers take 100 to 250 streams on a connection (`--http2-max-streams-per-connection`); what is beyond that would wait
//! within the connection, unseen. Here it waits for a place, in the order in which it came, and says so when it gets none.
//! Where HTTP/2 is not spoken a question is a connection, and there are as many places as connections: who waits for one has not
//! asked anybody yet, and nobody is called silent for it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use super::transport::Lane;

/// Connections for questions to the API server that asks, behind which a whole fleet may stand. 800 questions at once are
/// enough for a thousand members within two round trips; and eight connections of each of eight replicas stay countable.
pub(super) const LANES: usize = 8;

/// 96 questions of reviews and 4 of rounds make the 100 streams that the most careful API servers take.
const REVIEWS_A_LANE: usize = 96;
const ROUNDS_A_LANE: usize = 4;

/// Where a server speaks HTTP/1.1 only: 48 connections, with those that watches keep below 64.
const HTTP1_REVIEWS: usize = 40;
const HTTP1_ROUNDS: usize = 8;

/// A server that did not speak HTTP/2 is asked for it again so much later: it may have been a load balancer, for one failover.
const HTTP2_AGAIN: Duration = Duration::from_secs(60);

/// For whom a question is asked. ProbeTargets have few places and their own, so that neither waits for the other.
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
    /// Both again, for where a question is a connection.
    http1_reviews: Semaphore,
    http1_rounds: Semaphore,
    under_way: Mutex<UnderWay>,
}

/// What a server is known to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spoken {
    Http2,
    Http1,
    /// HTTP/1.1, a while ago.
    Trial,
}

/// How many questions go by each lane.
#[derive(Debug)]
struct UnderWay {
    lanes: Vec<usize>,
    /// Where the next question of a round goes: each lane in turn, so that all of them are open when they are needed.
    next: usize,
    /// When HTTP/2 was not spoken last, if it was not.
    only_http1: Option<Instant>,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(super) struct Place<'l> {
    lanes: &'l Lanes,
    /// None for a connection of its own.
    lane: Option<usize>,
    /// Whether it is there to find out if HTTP/2 is spoken again.
    is_trial: bool,
    _permit: SemaphorePermit<'l>,
}

impl Lanes {
    /// At least one.
    pub(super) fn new(lanes: usize) -> Self {
        Self {
            reviews: Semaphore::new(lanes * REVIEWS_A_LANE),
            rounds: Semaphore::new(lanes * ROUNDS_A_LANE),
            http1_reviews: Semaphore::new(HTTP1_REVIEWS),
            http1_rounds: Semaphore::new(HTTP1_ROUNDS),
            under_way: Mutex::new(UnderWay { lanes: vec![0; lanes], next: 0, only_http1: None }),
        }
    }

    /// How many questions of reviews may be under way.
    pub(super) fn places(&self) -> usize {
        let under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if under_way.only_http1.is_some() { HTTP1_REVIEWS } else { under_way.lanes.len() * REVIEWS_A_LANE }
    }

    /// A place on the lane with the fewest questions; none if there is none until the deadline.
    pub(super) async fn enter(&self, on_behalf: For, deadline: Instant) -> Option<Place<'_>> {
        let spoken = self.spoken(Instant::now());
        let is_http1 = spoken == Spoken::Http1;
        let places = match (on_behalf, is_http1) {
            (For::Review, false) => &self.reviews,
            (For::Round, false) => &self.rounds,
            (For::Review, true) => &self.http1_reviews,
            (For::Round, true) => &self.http1_rounds,
        };
        let permit = timeout_at(deadline, places.acquire()).await.ok()?.ok()?;
        if is_http1 {
            return Some(Place { lanes: self, lane: None, is_trial: false, _permit: permit });
        }
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        let UnderWay { lanes, next, .. } = &mut *under_way;
        let lane = match on_behalf {
            For::Review => lanes.iter().enumerate().min_by_key(|(_, count)| **count)?.0,
            For::Round => {
                *next = (*next + 1) % lanes.len().max(1);
                *next
            }
        };
        *lanes.get_mut(lane)? += 1;
        Some(Place { lanes: self, lane: Some(lane), is_trial: spoken == Spoken::Trial, _permit: permit })
    }

    /// How the next question goes. After a while of HTTP/1.1 one tries; the others go on as they were until it knows.
    fn spoken(&self, now: Instant) -> Spoken {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        match under_way.only_http1 {
            None => Spoken::Http2,
            Some(since) if now.saturating_duration_since(since) < HTTP2_AGAIN => Spoken::Http1,
            Some(_) => {
                under_way.only_http1 = Some(now);
                Spoken::Trial
            }
        }
    }
}

impl Place<'_> {
    /// None where a question is a connection of its own.
    pub(super) fn lane(&self) -> Option<Lane> {
        self.lane.map(Lane)
    }

    /// Whether the question that had this place was answered in HTTP/2, or not because the server does not speak it.
    pub(super) fn spoke_http2(&self, did: bool) {
        // Behind a load balancer one lane may speak what another does not: only who was sent to find out says that all is well.
        if self.lane.is_some() && (!did || self.is_trial) {
            let mut under_way = self.lanes.under_way.lock().unwrap_or_else(PoisonError::into_inner);
            under_way.only_http1 = (!did).then(Instant::now);
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut under_way = self.lanes.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = self.lane.and_then(|lane| under_way.lanes.get_mut(lane)) {
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
        assert_eq!(first.lane(), Some(Lane(0)));
        drop(first);
        let mut held = Vec::new();
        for _ in 0..9 {
            held.push(lanes.enter(For::Review, soon()).await.unwrap());
        }
        for lane in 0..3 {
            assert_eq!(held.iter().filter(|place| place.lane() == Some(Lane(lane))).count(), 3);
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
        assert_eq!(rounds.iter().filter(|place| place.lane() == Some(Lane(0))).count(), ROUNDS_A_LANE);
        assert!(lanes.enter(For::Round, soon()).await.is_none());
        let mut reviews = Vec::new();
        for _ in 0..lanes.places() {
            reviews.push(lanes.enter(For::Review, soon()).await.unwrap());
        }
    }
    #[tokio::test(start_paused = true)]
    async fn where_a_question_is_a_connection_there_are_as_many_places_and_http2_is_tried_again() {
        let lanes = Lanes::new(8);
        let far = Instant::now() + Duration::from_secs(600);
        lanes.enter(For::Review, far).await.unwrap().spoke_http2(false);
        assert_eq!(lanes.places(), HTTP1_REVIEWS);
        let mut held = Vec::new();
        for _ in 0..HTTP1_REVIEWS {
            held.push(lanes.enter(For::Review, soon()).await.unwrap());
        }
        assert!(held.iter().all(|place| place.lane().is_none()));
        assert!(lanes.enter(For::Review, soon()).await.is_none());
        assert!(lanes.enter(For::Round, soon()).await.is_some());
        tokio::time::advance(HTTP2_AGAIN).await;
        // One tries; until it knows the others go on as they were.
        let trying = lanes.enter(For::Review, soon()).await.unwrap();
        assert!(trying.lane().is_some());
        assert!(lanes.enter(For::Review, soon()).await.is_none());
        // What was asked in HTTP/1.1 says nothing of it.
        held.pop().unwrap().spoke_http2(true);
        assert_eq!(lanes.places(), HTTP1_REVIEWS);
        trying.spoke_http2(true);
        assert_eq!(lanes.places(), 8 * REVIEWS_A_LANE);
        assert!(lanes.enter(For::Review, soon()).await.unwrap().lane().is_some());
    }
}
