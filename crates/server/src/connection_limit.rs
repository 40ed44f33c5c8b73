//! Limits the connections of a port. At the limit, one waiting connection is closed for each new one.
//!
//! Refusing new connections instead would let a pod keep the API server and kubelet out: it only has to open connections and
//! send nothing. A connection can be closed while it waits for its peer: in its handshake, with half a head, with half a body,
//! or idle. If no connection can be closed, the new one is refused. A connection can't be closed if it has a complete request, was
//! asked already, or has an address with fewer waiting connections than the new one's address.
//!
//! The peer address with the most waiting connections loses the one that has waited longest. Connections with a complete
//! request are not counted: an API server with many reviews must not lose its idle connections to a pod with fewer. For the same
//! reason, an address keeps its connections if it has fewer waiting ones than the new connection's address. If all peers have the
//! same address (SNAT), the connection that has waited longest is closed.
//!
//! Bodies of the API server arrive in milliseconds, and it can't retry a request after them. So a body has [`BODY_GRACE`], unless
//! its address has more waiting connections than that of the new one. Otherwise a pod that opens connections all the time would
//! take every place when its time has passed. If the connection that has waited longest is a body in its second, the new one
//! waits. Closing a younger connection at once could close a handshake of the API server, which does not repeat such a call.
//!
//! The new connection's task picks a connection from outside and asks it to close. That connection decides in its own task,
//! after it has read what the kernel holds for it. Only this task changes its [`ConnectionState`], so no request can begin
//! between the decision and the end. If a request has begun meanwhile, the connection stays, and asks another one to close.
//!
//! A request can still be on the wire when an idle connection closes. Every server that closes idle connections has this race.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use admission::lock;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

/// How long a new connection waits for the other one to close.
const EVICT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a client has to read its last answer before the connection can be closed for another: a round trip around the world.
const LAST_READ: Duration = Duration::from_millis(250);
/// How long a body can take before its connection can be closed for one of an address that waits as much.
const BODY_GRACE: Duration = Duration::from_secs(1);
/// Interval of log lines about a reached limit.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The connections of a port, at most `max`.
pub(crate) struct ConnectionLimit {
    port: &'static str,
    max: usize,
    permits: Arc<Semaphore>,
    open: Mutex<OpenConnections>,
}

/// Locked when a connection begins or ends, never during a review.
#[derive(Default)]
struct OpenConnections {
    next_id: u64,
    states: BTreeMap<u64, Arc<ConnectionState>>,
    logged_at: Option<Instant>,
    evicted: usize,
    refused: usize,
}

impl ConnectionLimit {
    pub(crate) fn new(port: &'static str, max: usize) -> Arc<Self> {
        let permits = Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS)));
        Arc::new(Self { port, max, permits, open: Mutex::default() })
    }

    /// Returns a permit for a new connection. At the limit, it waits until another one has closed. Returns none if none can be closed.
    pub(crate) async fn acquire(self: &Arc<Self>, peer: SocketAddr) -> Option<Permit> {
        let permit = if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            permit
        } else {
            let victim = self.lock().choose(peer.ip().to_canonical(), BODY_GRACE);
            self.log(peer, victim.is_some());
            let (state, closes_at) = victim?;
            let mut next = pin!(Arc::clone(&self.permits).acquire_owned());
            // A timer of the runtime takes a millisecond or more, also if its time has passed.
            if closes_at > Instant::now()
                && let Ok(permit) = timeout_at(closes_at, &mut next).await
            {
                state.lock().eviction = None;
                permit.ok()?
            } else {
                state.evict.notify_one();
                timeout(EVICT_TIMEOUT, next).await.ok()?.ok()?
            }
        };
        let state = Arc::new(ConnectionState::new(peer.ip().to_canonical()));
        let mut open = self.lock();
        let id = open.next_id;
        open.next_id += 1;
        open.states.insert(id, Arc::clone(&state));
        Some(Permit { limit: Arc::clone(self), id, state, _permit: permit })
    }

    fn log(&self, peer: SocketAddr, is_evicting: bool) {
        let mut open = self.lock();
        *(if is_evicting { &mut open.evicted } else { &mut open.refused }) += 1;
        if open.logged_at.is_some_and(|at| at.elapsed() < LOG_INTERVAL) {
            return;
        }
        open.logged_at = Some(Instant::now());
        let (closed, rejected) = (std::mem::take(&mut open.evicted), std::mem::take(&mut open.refused));
        tracing::warn!(
            listener = self.port,
            limit = self.max,
            closed,
            rejected,
            %peer,
            "connection limit reached: closing waiting connections, and rejecting new ones while none can be closed"
        );
    }

    fn lock(&self) -> MutexGuard<'_, OpenConnections> {
        lock(&self.open)
    }
}

impl OpenConnections {
    /// Returns a connection to close for a new one, and the time at which it can be closed, if that is within `patience`. With the
    /// default of 512 connections this takes some microseconds.
    fn choose(&self, newcomer: IpAddr, patience: Duration) -> Option<(Arc<ConnectionState>, Instant)> {
        let mut waiting: HashMap<IpAddr, usize> = HashMap::new();
        for state in self.states.values().filter(|state| state.is_waiting()) {
            *waiting.entry(state.peer).or_default() += 1;
        }
        let count = |peer: IpAddr| waiting.get(&peer).copied().unwrap_or_default();
        let now = Instant::now();
        let evictable = self.states.values().filter_map(|state| {
            let body_grace = match count(state.peer).cmp(&count(newcomer)) {
                Ordering::Less => return None,
                Ordering::Equal => BODY_GRACE,
                Ordering::Greater => Duration::ZERO,
            };
            let eviction = Eviction { newcomer, body_grace };
            let (since, at) = state.evictable(eviction)?;
            (at <= now + patience).then_some((since, at.max(now), eviction, state))
        });
        let (_, at, eviction, state) =
            evictable.max_by_key(|(since, _, _, state)| (count(state.peer), Reverse(*since)))?;
        state.lock().eviction = Some(eviction);
        Some((Arc::clone(state), at))
    }
}

/// The right to one connection. Dropping it lets the next one in.
pub(crate) struct Permit {
    limit: Arc<ConnectionLimit>,
    id: u64,
    state: Arc<ConnectionState>,
    _permit: OwnedSemaphorePermit,
}

impl Permit {
    pub(crate) fn state(&self) -> &Arc<ConnectionState> {
        &self.state
    }

    /// Returns when this connection must close for another one. Poll it in the connection's task and after the connection, so
    /// that a request that has arrived is seen.
    pub(crate) async fn evicted(&self) {
        loop {
            self.state.evict.notified().await;
            let newcomer = {
                let mut state = self.state.lock();
                let Some(eviction) = state.eviction else { continue };
                if state.evictable_at(eviction.body_grace).is_some_and(|at| at <= Instant::now()) {
                    return;
                }
                state.eviction = None;
                eviction.newcomer
            };
            let other = self.limit.lock().choose(newcomer, BODY_GRACE);
            if let Some((other, closes_at)) = other {
                // If this connection ends meanwhile, the new one gets its permit.
                if closes_at > Instant::now() {
                    sleep_until(closes_at).await;
                }
                other.evict.notify_one();
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.limit.lock().states.remove(&self.id);
    }
}

/// The state of a connection. Only its own task changes it.
pub(crate) struct ConnectionState {
    peer: IpAddr,
    inner: Mutex<State>,
    evict: Notify,
}

struct State {
    phase: Phase,
    /// Beginning of the phase.
    since: Instant,
    unflushed: Unflushed,
    eviction: Option<Eviction>,
}

/// A request to close a connection for a new one.
#[derive(Debug, Clone, Copy)]
struct Eviction {
    /// Address of the new connection.
    newcomer: IpAddr,
    /// Age from which a connection can be closed while its body arrives.
    body_grace: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Without a first request.
    New,
    /// From a request's head to the last byte of its body.
    Body,
    /// From the last byte of a request to its answer.
    Busy,
    /// After an answer.
    Idle,
}

/// Output that the peer has not taken yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unflushed {
    /// The kernel has all bytes.
    Nothing,
    /// Bytes of an answer, for which the kernel has no buffer.
    Answer,
    /// The end of the connection. Closing with unread bytes would take back the last answer.
    Close,
}

impl ConnectionState {
    fn new(peer: IpAddr) -> Self {
        let state =
            State { phase: Phase::New, since: Instant::now(), unflushed: Unflushed::Nothing, eviction: None };
        Self { peer, inner: Mutex::new(state), evict: Notify::new() }
    }

    /// Records that the head of a request has arrived.
    pub(crate) fn begin_request(&self) {
        self.set(Phase::Body);
    }

    /// Records that the whole request has arrived.
    pub(crate) fn end_body(&self) {
        self.set(Phase::Busy);
    }

    /// Records that the request is answered.
    pub(crate) fn end_request(&self) {
        self.set(Phase::Idle);
    }

    pub(crate) fn set_unflushed(&self, unflushed: Unflushed) {
        self.lock().unflushed = unflushed;
    }

    /// Returns whether there was no request yet.
    pub(crate) fn is_new(&self) -> bool {
        self.lock().phase == Phase::New
    }

    /// Returns when the connection times out without another request. Returns none while a request is under way.
    pub(crate) fn times_out_at(&self, first: Duration, idle: Duration) -> Option<Instant> {
        let state = self.lock();
        match state.phase {
            Phase::New => Some(state.since + first),
            Phase::Idle => Some(state.since + idle),
            Phase::Body | Phase::Busy => None,
        }
    }

    fn set(&self, phase: Phase) {
        let mut state = self.lock();
        (state.phase, state.since) = (phase, Instant::now());
    }

    /// Returns whether the connection waits for its peer.
    fn is_waiting(&self) -> bool {
        self.lock().phase != Phase::Busy
    }

    /// Returns since when the connection waits, and when it can be closed. Returns none if it can't, or was already asked.
    fn evictable(&self, eviction: Eviction) -> Option<(Instant, Instant)> {
        let state = self.lock();
        let at = state.evictable_at(eviction.body_grace).filter(|_| state.eviction.is_none())?;
        Some((state.since, at))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.inner)
    }
}

impl State {
    /// Returns when the connection can be closed without losing a complete request or an answer. Returns none if it can't be
    /// closed now, except for a body, which has a known end.
    fn evictable_at(&self, body_grace: Duration) -> Option<Instant> {
        let is_flushed = match self.unflushed {
            Unflushed::Nothing => true,
            Unflushed::Answer => self.since.elapsed() >= body_grace,
            Unflushed::Close => self.since.elapsed() >= LAST_READ,
        };
        match self.phase {
            Phase::New | Phase::Idle if is_flushed => Some(self.since),
            Phase::Body if is_flushed => Some(self.since + body_grace),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A_MOMENT: Duration = Duration::from_millis(10);

    fn peer() -> SocketAddr {
        address(1)
    }

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 1))
    }

    /// Receives a whole request.
    fn begin_review(permit: &Permit) {
        permit.state().begin_request();
        permit.state().end_body();
    }

    async fn full(max: usize) -> (Arc<ConnectionLimit>, Vec<Permit>) {
        let limit = ConnectionLimit::new("webhook", max);
        let mut permits = Vec::new();
        for _ in 0..max {
            permits.push(limit.acquire(peer()).await.unwrap());
            tokio::time::advance(A_MOMENT).await;
        }
        (limit, permits)
    }

    /// All connections receive a body, one after another.
    async fn full_of_bodies(max: usize) -> (Arc<ConnectionLimit>, Vec<Permit>) {
        let (limit, permits) = full(max).await;
        for permit in &permits {
            permit.state().begin_request();
            tokio::time::sleep(A_MOMENT).await;
        }
        (limit, permits)
    }

    /// Starts another connection and returns its task, once it has asked for an eviction.
    async fn another(limit: &Arc<ConnectionLimit>) -> tokio::task::JoinHandle<Option<Permit>> {
        another_from(limit, peer()).await
    }

    async fn another_from(
        limit: &Arc<ConnectionLimit>,
        peer: SocketAddr,
    ) -> tokio::task::JoinHandle<Option<Permit>> {
        let limit = Arc::clone(limit);
        let task = tokio::spawn(async move { limit.acquire(peer).await });
        tokio::task::yield_now().await;
        task
    }

    /// Returns whether the connection closes if its task runs now.
    async fn closes(permit: &Permit) -> bool {
        tokio::select! {
            biased;
            () = permit.evicted() => true,
            () = std::future::ready(()) => false,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_waiting_connection_closes_and_the_new_one_gets_its_permit() {
        let (limit, mut permits) = full(3).await;
        begin_review(&permits[0]);
        permits[0].state().end_request();
        let waiting = another(&limit).await;
        assert!(!closes(&permits[0]).await && !closes(&permits[2]).await);
        assert!(closes(&permits[1]).await);
        assert!(!waiting.is_finished());
        drop(permits.remove(1));
        assert!(waiting.await.unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_got_a_request_after_it_was_asked_stays_and_asks_another() {
        let (limit, permits) = full(2).await;
        let waiting = another(&limit).await;
        begin_review(&permits[0]);
        assert!(!closes(&permits[0]).await);
        assert!(closes(&permits[1]).await);
        waiting.abort();
        // Idle again, it can be asked again.
        permits[0].state().end_request();
        let _waiting = another(&limit).await;
        assert!(closes(&permits[0]).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_or_unflushed_connection_is_not_asked_and_the_new_one_is_refused() {
        let (limit, permits) = full(3).await;
        begin_review(&permits[0]);
        for (permit, unflushed) in permits.iter().skip(1).zip([Unflushed::Answer, Unflushed::Close]) {
            begin_review(permit);
            permit.state().end_request();
            permit.state().set_unflushed(unflushed);
        }
        assert!(limit.acquire(peer()).await.is_none());
        tokio::time::advance(LAST_READ).await;
        let _waiting = another(&limit).await;
        assert!(closes(&permits[2]).await);
        assert!(limit.acquire(peer()).await.is_none());
        tokio::time::advance(BODY_GRACE).await;
        let _waiting = another(&limit).await;
        assert!(closes(&permits[1]).await);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_not_read_does_not_keep_another_address_out() {
        let (limit, permits) = full(2).await;
        for permit in &permits {
            permit.state().set_unflushed(Unflushed::Answer);
        }
        assert!(limit.acquire(peer()).await.is_none());
        let _waiting = another_from(&limit, address(2)).await;
        assert!(closes(&permits[0]).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_arrive_can_be_closed_after_a_second() {
        let (limit, permits) = full_of_bodies(2).await;
        // The new connection waits, instead of being refused: the API server would report a failed call.
        let waiting = another(&limit).await;
        assert!(!closes(&permits[0]).await);
        tokio::time::sleep(BODY_GRACE + A_MOMENT).await;
        assert!(closes(&permits[0]).await);
        assert!(!closes(&permits[1]).await);
        drop(permits);
        assert!(waiting.await.unwrap().is_some());
    }

    /// In the first second of an attack by its own address (SNAT), no body can be closed yet.
    #[tokio::test(start_paused = true)]
    async fn a_handshake_is_not_closed_for_a_body_that_waits_longer() {
        let limit = ConnectionLimit::new("webhook", 2);
        let body = limit.acquire(peer()).await.unwrap();
        body.state().begin_request();
        tokio::time::advance(A_MOMENT).await;
        let handshake = limit.acquire(peer()).await.unwrap();
        let waiting = another(&limit).await;
        tokio::time::sleep(BODY_GRACE).await;
        assert!(!closes(&handshake).await);
        assert!(closes(&body).await);
        drop(body);
        assert!(waiting.await.unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_arrives_in_its_second_is_kept_and_another_connection_is_asked() {
        let (limit, permits) = full_of_bodies(2).await;
        let _waiting = another(&limit).await;
        permits[0].state().end_body();
        tokio::time::sleep(BODY_GRACE + A_MOMENT).await;
        assert!(!closes(&permits[0]).await);
        assert!(closes(&permits[1]).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_closes_meanwhile_lets_the_new_one_in_at_once() {
        let (limit, mut permits) = full_of_bodies(2).await;
        let waiting = another(&limit).await;
        drop(permits.pop());
        tokio::task::yield_now().await;
        assert!(waiting.is_finished());
        // The connection that would have been asked can be asked for the next one.
        let newcomer = waiting.await.unwrap().unwrap();
        tokio::time::sleep(BODY_GRACE).await;
        begin_review(&newcomer);
        let _waiting = another(&limit).await;
        assert!(closes(&permits[0]).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_stays_asks_a_body_when_its_second_has_passed() {
        let (limit, permits) = full(2).await;
        let _waiting = another(&limit).await;
        begin_review(&permits[0]);
        permits[1].state().begin_request();
        let stays = permits[0].evicted();
        tokio::select! {
            () = stays => panic!("a complete request is kept"),
            () = tokio::time::sleep(BODY_GRACE + A_MOMENT) => {}
        }
        assert!(closes(&permits[1]).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_of_an_address_with_more_waiting_connections_is_closed_at_once() {
        let (limit, permits) = full(3).await;
        begin_review(&permits[0]);
        permits[1].state().begin_request();
        tokio::time::advance(A_MOMENT).await;
        permits[2].state().begin_request();
        let waiting = another_from(&limit, address(2)).await;
        assert!(closes(&permits[1]).await);
        drop(permits);
        // A connection that was asked while it was idle, by one that waits as much, keeps a body that has begun since.
        drop(waiting.await.unwrap().unwrap());
        let (limit, permits) = full(2).await;
        let _waiting = another(&limit).await;
        permits[0].state().begin_request();
        assert!(!closes(&permits[0]).await);
        assert!(closes(&permits[1]).await);
    }

    #[tokio::test(start_paused = true)]
    async fn the_address_with_most_waiting_connections_loses_one() {
        let limit = ConnectionLimit::new("webhook", 8);
        let mut permits = Vec::new();
        // The API server has the oldest connection and the most connections, but only one of them is idle.
        for last in [1, 1, 1, 1, 1, 2, 3, 3] {
            permits.push(limit.acquire(address(last)).await.unwrap());
            tokio::time::advance(A_MOMENT).await;
        }
        for permit in &permits[1..5] {
            begin_review(permit);
        }
        for (peer, victim) in [(4, 6), (3, 7)] {
            let waiting = another_from(&limit, address(peer)).await;
            for (at, permit) in permits.iter().enumerate().filter(|(at, _)| *at != victim) {
                assert!(!closes(permit).await, "{at}");
            }
            assert!(closes(&permits[victim]).await);
            waiting.abort();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn keeps_connections_of_an_address_with_fewer_waiting_ones_than_the_new_connection() {
        let limit = ConnectionLimit::new("webhook", 3);
        let mut permits = Vec::new();
        for last in [1, 2, 2] {
            permits.push(limit.acquire(address(last)).await.unwrap());
        }
        // The API server is in its handshake. The other connections are within BODY_GRACE, so they can't be closed yet.
        for permit in &permits[1..] {
            permit.state().begin_request();
            tokio::time::advance(A_MOMENT).await;
        }
        let waiting = another_from(&limit, address(2)).await;
        assert!(!closes(&permits[0]).await);
        tokio::time::sleep(BODY_GRACE + A_MOMENT).await;
        assert!(!closes(&permits[0]).await);
        assert!(closes(&permits[1]).await);
        drop(permits.remove(1));
        assert!(waiting.await.unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_address_in_both_notations_is_one_peer() {
        let limit = ConnectionLimit::new("webhook", 3);
        let mut permits = Vec::new();
        for text in ["10.0.0.1:1", "10.0.0.2:1", "[::ffff:10.0.0.2]:1"] {
            permits.push(limit.acquire(text.parse().unwrap()).await.unwrap());
            tokio::time::advance(A_MOMENT).await;
        }
        let _waiting = another(&limit).await;
        assert!(!closes(&permits[0]).await);
        assert!(closes(&permits[1]).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_connection_is_refused_if_no_other_closes_in_time() {
        let (limit, permits) = full(1).await;
        let waiting = another(&limit).await;
        begin_review(&permits[0]);
        assert!(!closes(&permits[0]).await);
        assert!(waiting.await.unwrap().is_none());
        drop(permits);
        assert!(limit.lock().states.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_reached_limit_is_logged_once_a_minute() {
        let (limit, permits) = full(1).await;
        begin_review(&permits[0]);
        for _ in 0..5 {
            assert!(limit.acquire(peer()).await.is_none());
        }
        assert_eq!(limit.lock().refused, 4);
        tokio::time::advance(LOG_INTERVAL).await;
        assert!(limit.acquire(peer()).await.is_none());
        assert_eq!(limit.lock().refused, 0);
    }
}
