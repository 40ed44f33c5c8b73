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
//! its address has more waiting connections than that of the new one. A younger connection is not closed instead: that could be a
//! handshake of the API server, and the API server does not repeat a call whose handshake fails.
//!
//! The new connection asks one connection to close, and gets its permit. That connection closes in its own task, after it has read
//! what the kernel holds for it. If this is a request, it answers before it closes. If the answer takes longer than
//! [`EVICT_TIMEOUT`], the new connection is refused.
//!
//! A new connection of an address with fewer waiting connections takes the place of one that has asked before with a grace. So a
//! pod can't reserve its own connections.
//!
//! A request can still be on the wire when an idle connection closes. Every server that closes idle connections has this race.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use admission::lock;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

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
        let address = peer.ip().to_canonical();
        let permit = if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            permit
        } else {
            let asked = self.lock().ask(address);
            self.log(peer, asked.is_some());
            let asked = asked?;
            let freed = Arc::clone(&self.permits).acquire_owned();
            let next = async {
                tokio::select! {
                    permit = asked => permit.ok(),
                    permit = freed => permit.ok(),
                }
            };
            timeout(EVICT_TIMEOUT, next).await.ok()??
        };
        let state = Arc::new(ConnectionState::new(address));
        let mut open = self.lock();
        let id = open.next_id;
        open.next_id += 1;
        open.states.insert(id, Arc::clone(&state));
        Some(Permit { limit: Arc::clone(self), id, state, permit: Some(permit) })
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
    /// Asks a connection to close for a new one, which receives its permit. Returns none if no connection can be asked. With the
    /// default of 512 connections this takes some microseconds.
    fn ask(&self, newcomer: IpAddr) -> Option<oneshot::Receiver<OwnedSemaphorePermit>> {
        let mut waiting: HashMap<IpAddr, usize> = HashMap::new();
        for state in self.states.values().filter(|state| state.is_waiting()) {
            *waiting.entry(state.peer).or_default() += 1;
        }
        let count = |peer: IpAddr| waiting.get(&peer).copied().unwrap_or_default();
        let evictable = self.states.values().filter_map(|state| {
            let grace = match count(state.peer).cmp(&count(newcomer)) {
                Ordering::Less => return None,
                Ordering::Equal => BODY_GRACE,
                Ordering::Greater => Duration::ZERO,
            };
            Some((state.evictable_since(grace)?, grace, state))
        });
        let (_, grace, state) =
            evictable.max_by_key(|(since, _, state)| (count(state.peer), Reverse(*since)))?;
        let (permit, asked) = oneshot::channel();
        state.lock().eviction = Some(Eviction { grace, permit });
        state.changed.notify_waiters();
        Some(asked)
    }
}

/// The right to one connection. Dropping it lets the connection in that has asked for it, or the next one.
pub(crate) struct Permit {
    limit: Arc<ConnectionLimit>,
    id: u64,
    state: Arc<ConnectionState>,
    /// Present until the permit is dropped.
    permit: Option<OwnedSemaphorePermit>,
}

impl Permit {
    pub(crate) fn state(&self) -> &Arc<ConnectionState> {
        &self.state
    }

    /// Returns when a new connection has asked this one to close.
    pub(crate) async fn asked_to_close(&self) {
        loop {
            let changed = self.state.changed.notified();
            if self.state.lock().eviction.is_some() {
                return;
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
                Some(at) if at <= Instant::now() => return,
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
        self.limit.lock().states.remove(&self.id);
        let eviction = self.state.lock().eviction.take();
        if let (Some(eviction), Some(permit)) = (eviction, self.permit.take()) {
            // A new connection that has not waited so long leaves the permit to others.
            drop(eviction.permit.send(permit));
        }
    }
}

/// The state of a connection. Its own task changes it, except for `eviction`.
pub(crate) struct ConnectionState {
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
    eviction: Option<Eviction>,
}

/// A request to close a connection for a new one.
struct Eviction {
    /// How long a body can take, or the peer can take to read an answer.
    grace: Duration,
    /// The new connection, which gets the permit.
    permit: oneshot::Sender<OwnedSemaphorePermit>,
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
        Self { peer, inner: Mutex::new(state), changed: Notify::new() }
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
        if state.eviction.is_some() {
            self.changed.notify_waiters();
        }
    }

    /// Returns whether the connection waits for its peer.
    fn is_waiting(&self) -> bool {
        self.lock().phase != Phase::Busy
    }

    /// Returns since when the connection waits. Returns none if it can't be closed, or was asked by a connection with the same claim.
    fn evictable_since(&self, grace: Duration) -> Option<Instant> {
        let state = self.lock();
        let is_taken = |asked: &Eviction| asked.grace <= grace && !asked.permit.is_closed();
        let is_evictable = state.closes_at(grace).is_some() && !state.eviction.as_ref().is_some_and(is_taken);
        is_evictable.then_some(state.since)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.inner)
    }
}

impl State {
    /// Returns when the connection must close, if it was asked to.
    fn must_close_at(&self) -> Option<Instant> {
        self.closes_at(self.eviction.as_ref()?.grace)
    }

    /// Returns when the connection can be closed without losing a complete request or an answer. Returns none while a request is
    /// processed.
    fn closes_at(&self, grace: Duration) -> Option<Instant> {
        let reading = match self.unflushed {
            Unflushed::Nothing => Duration::ZERO,
            Unflushed::Answer => grace,
            Unflushed::Close => LAST_READ,
        };
        match self.phase {
            Phase::New | Phase::Idle => Some(self.since + reading),
            Phase::Body => Some(self.since + reading.max(grace)),
            Phase::Busy => None,
        }
    }
}

#[cfg(test)]
mod tests;
