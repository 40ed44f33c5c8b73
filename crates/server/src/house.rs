//! How many connections a port has at once, and which one makes room when there are as many as there may be.
//!
//! A port that turned away the newest would belong to whoever came first: a pod that opens connections and says nothing on them
//! would keep the API server out, and kubelet. So the one that has been quiet the longest ends for whoever comes, and a newcomer
//! is turned away only where each connection has a request under way.
//!
//! Who asks and who leaves are two. The one who accepts chooses by a look from outside, and asks. Whether it leaves is decided by
//! the connection's own task, after it has read what the kernel holds for it: all that changes a [`Seat`] happens in that task,
//! so nothing can begin between the decision and the end. Who has got a request meanwhile stays, and passes the question on. No
//! more connections are ever served than there are seats: who comes waits for the seat.
//!
//! What is still on the wire when a connection ends, no end of it can know; it is so for every server that closes idle ones.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

/// How long a newcomer waits for the seat of one that was asked: it takes as long as that one needs to be run.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long one that was answered for the last time may wait for its peer to have read that: a round trip around the world.
const LAST_READ: Duration = Duration::from_millis(250);
/// Between two lines about a full house.
const LINE_EVERY: Duration = Duration::from_secs(60);

/// The connections of one port.
pub(crate) struct House {
    port: &'static str,
    most: usize,
    free: Arc<Semaphore>,
    within: Mutex<Within>,
}

/// Locked when a connection comes or ends, never on the way of a review.
#[derive(Default)]
struct Within {
    next: u64,
    seats: BTreeMap<u64, Arc<Seat>>,
    told: Option<Instant>,
    asked: usize,
    turned_away: usize,
}

impl House {
    /// Room for `most` connections to the port of that name.
    pub(crate) fn new(port: &'static str, most: usize) -> Arc<Self> {
        let free = Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        Arc::new(Self { port, most, free, within: Mutex::default() })
    }

    /// A place for one that has just come: at once, or as soon as another has left for it. None if all are busy.
    pub(crate) fn room(self: &Arc<Self>, peer: SocketAddr) -> Option<Room> {
        let permit = Arc::clone(&self.free).try_acquire_owned().ok();
        if permit.is_none() {
            let mut within = self.lock();
            let asked = within.ask();
            within.tell(self, peer, asked);
            if !asked {
                return None;
            }
        }
        Some(Room { house: Arc::clone(self), permit })
    }

    fn lock(&self) -> MutexGuard<'_, Within> {
        self.within.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Within {
    /// Asks the one that is quiet the longest to leave, and says whether there is one. One look at each seat: some microseconds
    /// for the 512 of the default.
    fn ask(&self) -> bool {
        let quiet = self.seats.values().filter(|seat| !seat.asked.load(Ordering::Relaxed));
        let oldest =
            quiet.filter_map(|seat| Some((seat.quiet_since()?, seat))).min_by_key(|(since, _)| *since);
        let Some((_, seat)) = oldest else { return false };
        seat.asked.store(true, Ordering::Relaxed);
        seat.ask.notify_one();
        true
    }

    fn tell(&mut self, house: &House, peer: SocketAddr, asked: bool) {
        if asked {
            self.asked += 1;
        } else {
            self.turned_away += 1;
        }
        if self.told.is_some_and(|told| told.elapsed() < LINE_EVERY) {
            return;
        }
        self.told = Some(Instant::now());
        let (ended, turned_away) = (std::mem::take(&mut self.asked), std::mem::take(&mut self.turned_away));
        tracing::warn!(
            port = house.port,
            most = house.most,
            ended,
            turned_away,
            %peer,
            "as many connections are open as may be: the one that is quiet the longest ends for each that comes, and while all \
             are busy who comes is turned away"
        );
    }
}

/// The promise of a seat.
pub(crate) struct Room {
    house: Arc<House>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Room {
    /// Waits for the seat. None if whoever was asked to leave had a request after all, and so had all others.
    pub(crate) async fn seated(self) -> Option<Seated> {
        let Self { house, permit } = self;
        let permit = match permit {
            Some(permit) => permit,
            None => timeout(PATIENCE, Arc::clone(&house.free).acquire_owned()).await.ok()?.ok()?,
        };
        let seat = Arc::new(Seat::new());
        let number = {
            let mut within = house.lock();
            let number = within.next;
            within.next += 1;
            within.seats.insert(number, Arc::clone(&seat));
            number
        };
        Some(Seated { house, number, seat, _permit: permit })
    }
}

/// One connection in the house; the seat is free when this is dropped.
pub(crate) struct Seated {
    house: Arc<House>,
    number: u64,
    seat: Arc<Seat>,
    _permit: OwnedSemaphorePermit,
}

impl Seated {
    pub(crate) fn seat(&self) -> &Arc<Seat> {
        &self.seat
    }

    /// Returns when another needs the seat and nothing is lost by giving it up. To be polled after the connection itself and in
    /// its task: what was there to read has then been read.
    pub(crate) async fn is_to_leave(&self) {
        loop {
            self.seat.ask.notified().await;
            if self.seat.quiet_since().is_some() {
                return;
            }
            let within = self.house.lock();
            // Asked anew it may be quiet again; now it is another's turn.
            within.ask();
            self.seat.asked.store(false, Ordering::Relaxed);
        }
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        self.house.lock().seats.remove(&self.number);
    }
}

/// Whether a connection is at work, and since when it is not. Written by the connection's task: twice per request, and by its
/// socket where the peer does not keep up.
pub(crate) struct Seat {
    born: Instant,
    state: AtomicU64,
    owed: AtomicU8,
    asked: AtomicBool,
    ask: Notify,
}

/// No request yet. Any other number is the age in milliseconds at which the last request was answered.
const FRESH: u64 = u64::MAX;
/// A request is being answered.
const BUSY: u64 = u64::MAX - 1;

/// What the peer has still to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Owed {
    /// Nothing: all that was written is the kernel's.
    Nothing,
    /// Bytes of an answer, for which the kernel has no room.
    Answer,
    /// Its turn to close: the last answer is on its way, and closing with unread bytes would take it back.
    Close,
}

impl Seat {
    pub(crate) fn new() -> Self {
        Self {
            born: Instant::now(),
            state: AtomicU64::new(FRESH),
            owed: AtomicU8::new(Owed::Nothing as u8),
            asked: AtomicBool::new(false),
            ask: Notify::new(),
        }
    }

    /// A request has come.
    pub(crate) fn begin(&self) {
        self.state.store(BUSY, Ordering::Relaxed);
    }

    /// It is answered.
    pub(crate) fn end(&self) {
        let age = u64::try_from(self.born.elapsed().as_millis()).unwrap_or(BUSY - 1);
        self.state.store(age, Ordering::Relaxed);
    }

    /// What the peer has to take before the connection can end without a loss.
    pub(crate) fn owes(&self, owed: Owed) {
        self.owed.store(owed as u8, Ordering::Relaxed);
    }

    pub(crate) fn is_fresh(&self) -> bool {
        self.state.load(Ordering::Relaxed) == FRESH
    }

    /// When it ends if nothing more comes: after so long without a first request, or without another. None while it is at work.
    pub(crate) fn ends_at(&self, first: Duration, idle: Duration) -> Option<Instant> {
        let wait = if self.is_fresh() { first } else { idle };
        self.without_request_since().map(|since| since + wait)
    }

    fn without_request_since(&self) -> Option<Instant> {
        match self.state.load(Ordering::Relaxed) {
            BUSY => None,
            FRESH => Some(self.born),
            age => Some(self.born + Duration::from_millis(age)),
        }
    }

    /// Since when it could end without a loss. None while it cannot.
    fn quiet_since(&self) -> Option<Instant> {
        let since = self.without_request_since()?;
        let owed = self.owed.load(Ordering::Relaxed);
        let may_end =
            owed == Owed::Nothing as u8 || owed == Owed::Close as u8 && since.elapsed() >= LAST_READ;
        may_end.then_some(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer() -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], 1))
    }

    async fn full(most: usize) -> (Arc<House>, Vec<Seated>) {
        let house = House::new("listen", most);
        let mut seated = Vec::new();
        for _ in 0..most {
            seated.push(house.room(peer()).unwrap().seated().await.unwrap());
            tokio::time::advance(Duration::from_millis(10)).await;
        }
        (house, seated)
    }

    /// Whether it would leave if it were run now.
    async fn leaves(seated: &Seated) -> bool {
        tokio::select! {
            biased;
            () = seated.is_to_leave() => true,
            () = std::future::ready(()) => false,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_one_that_is_quiet_the_longest_leaves_and_the_newcomer_has_its_seat() {
        let (house, mut seated) = full(3).await;
        seated[0].seat().begin();
        seated[0].seat().end();
        let room = house.room(peer()).unwrap();
        assert!(!leaves(&seated[0]).await && !leaves(&seated[2]).await);
        assert!(leaves(&seated[1]).await);
        let waiting = tokio::spawn(room.seated());
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(seated.remove(1));
        assert!(waiting.await.unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_got_a_request_after_it_was_asked_stays_and_passes_the_question_on() {
        let (house, seated) = full(2).await;
        let room = house.room(peer()).unwrap();
        seated[0].seat().begin();
        assert!(!leaves(&seated[0]).await);
        assert!(leaves(&seated[1]).await);
        drop(room);
        // Quiet once more, it can be asked again.
        seated[0].seat().end();
        assert!(house.room(peer()).is_some());
        assert!(leaves(&seated[0]).await);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_busy_or_is_owed_something_is_not_asked_and_the_newcomer_is_turned_away() {
        let (house, seated) = full(3).await;
        seated[0].seat().begin();
        for (seated, owed) in seated.iter().skip(1).zip([Owed::Answer, Owed::Close]) {
            seated.seat().begin();
            seated.seat().end();
            seated.seat().owes(owed);
        }
        assert!(house.room(peer()).is_none());
        tokio::time::advance(LAST_READ).await;
        assert!(house.room(peer()).is_some());
        assert!(leaves(&seated[2]).await);
        assert!(house.room(peer()).is_none());
        seated[1].seat().owes(Owed::Nothing);
        assert!(house.room(peer()).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_newcomer_for_whom_nobody_leaves_is_turned_away_after_a_while() {
        let (house, seated) = full(1).await;
        let room = house.room(peer()).unwrap();
        seated[0].seat().begin();
        assert!(!leaves(&seated[0]).await);
        assert!(room.seated().await.is_none());
        drop(seated);
        assert!(house.lock().seats.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_house_is_told_once_a_minute() {
        let (house, seated) = full(1).await;
        seated[0].seat().begin();
        for _ in 0..5 {
            assert!(house.room(peer()).is_none());
        }
        assert_eq!(house.lock().turned_away, 4);
        tokio::time::advance(LINE_EVERY).await;
        assert!(house.room(peer()).is_none());
        assert_eq!(house.lock().turned_away, 0);
    }
}
