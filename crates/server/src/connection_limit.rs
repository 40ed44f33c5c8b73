//! Limits the connections of a port. At the limit, one waiting connection is closed for each new one.
//!
//! Refusing new connections instead would let a pod keep the API server and kubelet out: it only has to open connections and
//! send nothing. A connection can be closed while it waits for its peer: in its handshake, with half a head, with half a body,
//! or idle. A connection can't be closed if it has a complete request, or an address with fewer waiting connections than the new
//! one's address.
//!
//! The peer address with the most waiting connections loses the one that has waited longest. Connections with a complete
//! request are not counted: an API server with many reviews must not lose its idle connections to a pod with fewer. If all peers
//! have the same address (SNAT), the connection that has waited longest is closed.
//!
//! The API server repeats no call whose handshake or body was cut. Both take it milliseconds, so a connection has [`SHORT_GRACE`]
//! until its first request, and a body has [`BODY_GRACE`], or [`SHORT_GRACE`] if an address with fewer waiting connections has a
//! new one.
//!
//! As many connections are asked to close as new ones wait. Each closes in its own task, after it has read what the kernel holds
//! for it. If this completes a request, it answers before it closes, and another one is asked. Each place that becomes free goes to
//! the new connection whose address has the fewest waiting ones, new ones before it included. So a pod can't reserve the places of
//! its own connections. A new connection is refused after [`EVICT_TIMEOUT`], or if more than [`MAX_QUEUE`] wait and its address has
//! the most.
//!
//! Behind SNAT, a pod that opens many more connections than the limit can delay the API server or keep it out, because nothing
//! distinguishes them.
//!
//! A request can still be on the wire when an idle connection closes. Every server that closes idle connections has this race.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use admission::lock;
use tokio::sync::{Notify, oneshot};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout};

/// How long a new connection waits for a place.
const EVICT_TIMEOUT: Duration = Duration::from_secs(3);
/// How many new connections can wait for a place. Each has an open file.
const MAX_QUEUE: usize = 256;
/// How long a client has to read its last answer before the connection can be closed for another: a round trip around the world.
const LAST_READ: Duration = Duration::from_millis(250);
/// How long a body can take before its connection can be closed for one of an address that waits as much.
const BODY_GRACE: Duration = Duration::from_secs(1);
/// How long a handshake with the head of the first request can take, and a body of an address that waits more. Those of the API
/// server take some milliseconds.
const SHORT_GRACE: Duration = Duration::from_millis(100);
/// Interval of log lines about a reached limit.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The connections of a port, at most `max`.
pub(crate) struct ConnectionLimit {
    port: &'static str,
    max: usize,
    /// Whether more new connections wait than open ones were asked to close.
    lacks_places: AtomicBool,
    table: Mutex<Table>,
}

/// Locked when a connection begins or ends. Reviews lock it only while new connections wait.
#[derive(Default)]
struct Table {
    next_id: u64,
    open: BTreeMap<u64, Arc<ConnectionState>>,
    /// New connections that wait for a place, the oldest first.
    queue: Vec<Newcomer>,
    logged_at: Option<Instant>,
    evicted: usize,
    refused: usize,
}

/// A new connection that waits for a place.
struct Newcomer {
    address: IpAddr,
    permit: oneshot::Sender<Permit>,
}

impl ConnectionLimit {
    pub(crate) fn new(port: &'static str, max: usize) -> Arc<Self> {
        Arc::new(Self { port, max, lacks_places: AtomicBool::new(false), table: Mutex::default() })
    }

    /// Returns a permit for a new connection. At the limit, it waits until another one has closed. Returns none if none closes in time.
    pub(crate) async fn acquire(self: &Arc<Self>, peer: SocketAddr) -> Option<Permit> {
        let address = peer.ip().to_canonical();
        let admitted = {
            let mut table = self.lock();
            if table.open.len() < self.max {
                return Some(self.open(&mut table, address));
            }
            let (permit, admitted) = oneshot::channel();
            table.queue.push(Newcomer { address, permit });
            self.ask(&mut table);
            admitted
        };
        let permit = timeout(EVICT_TIMEOUT, admitted).await.ok().and_then(Result::ok);
        self.log(peer, permit.is_some());
        permit
    }

    fn open(self: &Arc<Self>, table: &mut Table, address: IpAddr) -> Permit {
        let state = Arc::new(ConnectionState::new(Arc::clone(self), address));
        let id = table.next_id;
        table.next_id += 1;
        table.open.insert(id, Arc::clone(&state));
        Permit { limit: Arc::clone(self), id, state }
    }

    /// Gives the place of a connection to the next new one.
    fn release(self: &Arc<Self>, id: u64) {
        let mut table = self.lock();
        table.open.remove(&id);
        if table.queue.is_empty() {
            return;
        }
        let next = table.next().map(|next| (next.permit, self.open(&mut table, next.address)));
        self.ask(&mut table);
        drop(table);
        if let Some((next, permit)) = next {
            // If that connection has left meanwhile, its permit is dropped, which gives the place to the one after it.
            drop(next.send(permit));
        }
    }

    fn ask(&self, table: &mut Table) {
        // Set before the search, so that a request that ends meanwhile leads to another search.
        self.lacks_places.store(true, Ordering::SeqCst);
        let has_asked_enough = table.ask();
        self.lacks_places.store(!has_asked_enough, Ordering::SeqCst);
    }

    fn log(&self, peer: SocketAddr, has_closed: bool) {
        let mut table = self.lock();
        *(if has_closed { &mut table.evicted } else { &mut table.refused }) += 1;
        if table.logged_at.is_some_and(|at| at.elapsed() < LOG_INTERVAL) {
            return;
        }
        table.logged_at = Some(Instant::now());
        let (closed, rejected) = (std::mem::take(&mut table.evicted), std::mem::take(&mut table.refused));
        drop(table);
        tracing::warn!(
            listener = self.port,
            limit = self.max,
            closed,
            rejected,
            %peer,
            "connection limit reached: closing waiting connections, and rejecting new ones while none can be closed"
        );
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }
}

impl Table {
    /// Counts the open connections of each address that wait for their peer.
    fn waiting(&self) -> HashMap<IpAddr, usize> {
        let mut waiting = HashMap::new();
        for state in self.open.values().filter(|state| state.is_waiting()) {
            *waiting.entry(state.peer).or_default() += 1;
        }
        waiting
    }

    /// Returns the rank of each new connection: how many of its address wait for their peer, or for a place since earlier. A lower
    /// rank gets a place first.
    fn ranks(&self, mut waiting: HashMap<IpAddr, usize>) -> Vec<usize> {
        let rank = |new: &Newcomer| {
            let count = waiting.entry(new.address).or_default();
            *count += 1;
            *count - 1
        };
        self.queue.iter().map(rank).collect()
    }

    /// Takes the new connection that gets the next place.
    fn next(&mut self) -> Option<Newcomer> {
        self.queue.retain(|new| !new.permit.is_closed());
        let ranks = self.ranks(self.waiting());
        let (at, _) = ranks.into_iter().enumerate().min_by_key(|(_, rank)| *rank)?;
        Some(self.queue.remove(at))
    }

    /// Asks as many connections to close as new ones wait. Returns whether so many can be closed.
    fn ask(&mut self) -> bool {
        self.queue.retain(|new| !new.permit.is_closed());
        let waiting = self.waiting();
        let mut ranks = self.ranks(waiting.clone());
        if ranks.len() > MAX_QUEUE
            && let Some((at, _)) = ranks.iter().enumerate().max_by_key(|(_, rank)| **rank)
        {
            self.queue.remove(at);
            ranks.remove(at);
        }
        let mut new: Vec<_> = ranks.into_iter().zip(self.queue.iter().map(|new| new.address)).collect();
        new.sort_by_key(|(rank, _)| *rank);
        let Some(&(lowest, _)) = new.first() else { return true };
        let count = |state: &ConnectionState| waiting.get(&state.peer).copied().unwrap_or_default();
        let grace = |state: &ConnectionState| if lowest < count(state) { SHORT_GRACE } else { BODY_GRACE };
        let (mut asked, mut others): (Vec<_>, Vec<_>) =
            self.open.values().filter(|state| state.is_waiting()).partition(|state| state.is_asked());
        asked.retain(|state| state.ask(grace(state)));
        // The level of a connection: how many of its address would wait with it, once those asked before it have closed.
        let mut left = waiting.clone();
        let mut level = |state: &ConnectionState| {
            let left = left.entry(state.peer).or_default();
            *left = left.saturating_sub(1);
            *left + 1
        };
        for state in &asked {
            level(state);
        }
        others.sort_by_cached_key(|state| state.since());
        let mut others: Vec<_> = others.into_iter().map(|state| (level(state), state)).collect();
        others.sort_by_key(|(level, _)| Reverse(*level));
        // A connection can't be closed for an address that already has more, except for its own.
        new.into_iter().skip(asked.len()).all(|(rank, address)| {
            loop {
                let can_close =
                    |(level, state): &(usize, &Arc<ConnectionState>)| *level >= rank || state.peer == address;
                let Some(at) = others.iter().position(can_close) else { return false };
                let (_, state) = others.remove(at);
                if state.ask(grace(state)) {
                    return true;
                }
            }
        })
    }
}

/// The right to one connection. Dropping it lets the next new one in.
pub(crate) struct Permit {
    limit: Arc<ConnectionLimit>,
    id: u64,
    state: Arc<ConnectionState>,
}

impl Permit {
    pub(crate) fn state(&self) -> &Arc<ConnectionState> {
        &self.state
    }

    /// Returns when this connection was asked to close and its first request has begun. Before that request, only
    /// [`Permit::must_close`] ends it, so that the request has time to arrive.
    pub(crate) async fn asked_to_close(&self) {
        loop {
            let changed = self.state.changed.notified();
            if self.state.lock().is_asked_and_not_new() {
                // The runtime reads from a socket only after it has seen that there is something to read.
                return yield_now().await;
            }
            changed.await;
        }
    }

    /// Returns when this connection must close for another one, even if its peer has not sent or read everything. Poll it in the
    /// connection's task and after the connection, so that a request that has arrived is seen.
    pub(crate) async fn must_close(&self) {
        loop {
            let changed = self.state.changed.notified();
            let closes_at = self.state.lock().must_close_at();
            match closes_at {
                Some(at) if at <= Instant::now() => {
                    yield_now().await;
                    if self.state.lock().must_close_at().is_some_and(|at| at <= Instant::now()) {
                        return;
                    }
                }
                Some(at) => tokio::select! {
                    () = sleep_until(at) => {}
                    () = changed => {}
                },
                None => changed.await,
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.limit.release(self.id);
    }
}

/// The state of a connection. Its own task changes it, except for `grace`.
pub(crate) struct ConnectionState {
    limit: Arc<ConnectionLimit>,
    peer: IpAddr,
    inner: Mutex<State>,
    /// Wakes the task of a connection that was asked to close.
    changed: Notify,
}

struct State {
    phase: Phase,
    /// Beginning of the phase.
    since: Instant,
    unflushed: Unflushed,
    /// If the connection was asked to close: how long its body can take, or its peer can take to read an answer.
    grace: Option<Duration>,
    /// Whether the connection was asked to close and then got a whole request. It closes after the answer, so that a peer that
    /// pipelines requests can't keep its place.
    closes_after_answer: bool,
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
    fn new(limit: Arc<ConnectionLimit>, peer: IpAddr) -> Self {
        let state = State {
            phase: Phase::New,
            since: Instant::now(),
            unflushed: Unflushed::Nothing,
            grace: None,
            closes_after_answer: false,
        };
        Self { limit, peer, inner: Mutex::new(state), changed: Notify::new() }
    }

    /// Records that the head of a request has arrived.
    pub(crate) fn begin_request(&self) {
        self.set(Phase::Body);
    }

    /// Records that the whole request has arrived. The answer can take long, so another connection is asked to close instead.
    pub(crate) fn end_body(&self) {
        let was_asked = {
            let mut state = self.lock();
            (state.phase, state.since) = (Phase::Busy, Instant::now());
            let was_asked = state.grace.take().is_some();
            state.closes_after_answer |= was_asked;
            was_asked
        };
        if was_asked {
            self.limit.ask(&mut self.limit.lock());
        }
    }

    /// Records that the request is answered.
    pub(crate) fn end_request(&self) {
        self.set(Phase::Idle);
        if self.limit.lacks_places.load(Ordering::SeqCst) {
            self.limit.ask(&mut self.limit.lock());
        }
    }

    pub(crate) fn set_unflushed(&self, unflushed: Unflushed) {
        self.change(|state| state.unflushed = unflushed);
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
        self.change(|state| (state.phase, state.since) = (phase, Instant::now()));
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        if state.grace.is_some() {
            self.changed.notify_waiters();
        }
    }

    /// Asks the connection to close, unless it has a request meanwhile. A later call can shorten the time or extend it.
    fn ask(&self, grace: Duration) -> bool {
        let mut state = self.lock();
        let is_waiting = state.phase != Phase::Busy;
        if is_waiting && state.grace.replace(grace) != Some(grace) {
            self.changed.notify_waiters();
        }
        is_waiting
    }

    /// Returns whether the connection waits for its peer.
    fn is_waiting(&self) -> bool {
        self.lock().phase != Phase::Busy
    }

    fn is_asked(&self) -> bool {
        self.lock().grace.is_some()
    }

    fn since(&self) -> Instant {
        self.lock().since
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.inner)
    }
}

impl State {
    fn is_asked_and_not_new(&self) -> bool {
        (self.grace.is_some() || self.closes_after_answer) && self.phase != Phase::New
    }

    /// Returns when the connection must close, if it was asked to. Returns none while a request is processed.
    fn must_close_at(&self) -> Option<Instant> {
        let grace = self.grace?;
        let reading = match self.unflushed {
            Unflushed::Nothing => Duration::ZERO,
            Unflushed::Answer => grace,
            Unflushed::Close => LAST_READ,
        };
        let sending = match self.phase {
            Phase::New => SHORT_GRACE,
            Phase::Body => grace,
            Phase::Idle => Duration::ZERO,
            Phase::Busy => return None,
        };
        Some(self.since + reading.max(sending))
    }
}

#[cfg(test)]
mod tests;
