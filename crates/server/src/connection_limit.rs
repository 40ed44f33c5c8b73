//! Limits the connections of a port. At the limit, one waiting connection is closed for each new one.
//!
//! Refusing new connections instead would let a pod keep the API server and kubelet out: it only has to open connections and
//! send nothing. A connection can be closed while it waits for its peer: in its handshake, with half a head, with half a body,
//! or idle. A connection can't be closed if it has a complete request, or an address with fewer waiting connections than the new
//! one's address. If none can be closed, the new one is refused.
//!
//! The peer address with the most waiting connections loses the one that has waited longest. Connections with a complete
//! request are not counted: an API server with many reviews must not lose its idle connections to a pod with fewer. For the same
//! reason, an address keeps its connections if it has fewer waiting ones than the new connection's address. If all peers have the
//! same address (SNAT), the connection that has waited longest is closed.
//!
//! The API server repeats no call whose handshake or body was cut. Both take it milliseconds, so a new connection has
//! [`SHORT_GRACE`], and a body has [`BODY_GRACE`], or [`SHORT_GRACE`] if its address has more waiting connections than that of the
//! new connection.
//!
//! The new connection asks one connection to close, and gets its permit. That connection closes in its own task, after it has read
//! what the kernel holds for it. If this completes a request, it answers before it closes, and the new connection asks another
//! one. If all have been asked, the new connection waits. It is refused after [`EVICT_TIMEOUT`], or if as many others wait as there
//! are connections.
//!
//! A new connection of an address with fewer waiting connections takes what others of the victim's address have asked. So a pod
//! can't reserve its own connections. Behind SNAT, a pod that opens many more connections than the limit can delay the API server
//! or keep it out, because nothing distinguishes them.
//!
//! A request can still be on the wire when an idle connection closes. Every server that closes idle connections has this race.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use admission::lock;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// How long a new connection waits for the other one to close.
const EVICT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a client has to read its last answer before the connection can be closed for another: a round trip around the world.
const LAST_READ: Duration = Duration::from_millis(250);
/// How long a body can take before its connection can be closed for one of an address that waits as much.
const BODY_GRACE: Duration = Duration::from_secs(1);
/// How long a handshake can take, and a body of an address that waits more. Those of the API server take some milliseconds.
const SHORT_GRACE: Duration = Duration::from_millis(100);
/// Interval of attempts while all connections have been asked.
const RETRY: Duration = Duration::from_millis(20);
/// Interval of log lines about a reached limit.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The connections of a port, at most `max`.
pub(crate) struct ConnectionLimit {
    port: &'static str,
    max: usize,
    permits: Arc<Semaphore>,
    /// For new connections that can't ask another one yet. Each has an open file.
    waiting: Semaphore,
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
        let most = max.min(Semaphore::MAX_PERMITS);
        let (permits, waiting) = (Arc::new(Semaphore::new(most)), Semaphore::new(most));
        Arc::new(Self { port, max, permits, waiting, open: Mutex::default() })
    }

    /// Returns a permit for a new connection. At the limit, it waits until another one has closed. Returns none if none can be closed.
    pub(crate) async fn acquire(self: &Arc<Self>, peer: SocketAddr) -> Option<Permit> {
        let address = peer.ip().to_canonical();
        let permit = if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            permit
        } else {
            let permit = timeout(EVICT_TIMEOUT, self.wait(address)).await.ok().flatten();
            self.log(peer, permit.is_some());
            permit?
        };
        let state = Arc::new(ConnectionState::new(address));
        let mut open = self.lock();
        let id = open.next_id;
        open.next_id += 1;
        open.states.insert(id, Arc::clone(&state));
        Some(Permit { limit: Arc::clone(self), id, state, permit: Some(permit) })
    }

    /// Returns the permit of a connection that closes. Returns none if none can be closed.
    async fn wait(&self, newcomer: IpAddr) -> Option<OwnedSemaphorePermit> {
        let mut freed = pin!(Arc::clone(&self.permits).acquire_owned());
        loop {
            let asked = self.lock().ask(newcomer, self.max)?;
            let _place = match asked {
                Asked::Connection(_) => None,
                Asked::AllAsked => Some(self.waiting.try_acquire().ok()?),
            };
            let next = async {
                match asked {
                    Asked::Connection(permit) => permit.await.ok(),
                    Asked::AllAsked => {
                        sleep(RETRY).await;
                        None
                    }
                }
            };
            tokio::select! {
                biased;
                permit = freed.as_mut() => return permit.ok(),
                permit = next => if permit.is_some() { return permit },
            }
        }
    }

    fn log(&self, peer: SocketAddr, has_closed: bool) {
        let mut open = self.lock();
        *(if has_closed { &mut open.evicted } else { &mut open.refused }) += 1;
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
    /// Asks a connection to close for a new one. Returns none if all have a request, or an address with fewer waiting connections.
    /// With the default of 512 connections this takes some microseconds.
    fn ask(&self, newcomer: IpAddr, max: usize) -> Option<Asked> {
        let mut waiting: HashMap<IpAddr, usize> = HashMap::new();
        for state in self.states.values().filter(|state| state.is_waiting()) {
            *waiting.entry(state.peer).or_default() += 1;
        }
        let count = |peer: IpAddr| waiting.get(&peer).copied().unwrap_or_default();
        let evictable = self.states.values().filter_map(|state| {
            let grace = match count(state.peer).cmp(&count(newcomer)) {
                Ordering::Less => return None,
                Ordering::Equal => BODY_GRACE,
                Ordering::Greater => SHORT_GRACE,
            };
            let (since, asked) = state.evictable(grace)?;
            let key = (asked != AskedBy::Equal, count(state.peer), Reverse(asked), Reverse(since));
            Some((key, grace, state))
        });
        let best = evictable.max_by_key(|(key, ..)| *key);
        let Some((.., grace, state)) = best.filter(|((can_be_asked, ..), ..)| *can_be_asked) else {
            // A permit that is handed over has no state for a moment.
            return (best.is_some() || self.states.len() < max).then_some(Asked::AllAsked);
        };
        let (permit, asked) = oneshot::channel();
        state.lock().eviction = Some(Eviction { grace, permit });
        state.changed.notify_waiters();
        Some(Asked::Connection(asked))
    }
}

/// The result of asking a connection to close.
enum Asked {
    /// It will send its permit. If it gets a request first, or another address asks it, the sender is dropped.
    Connection(oneshot::Receiver<OwnedSemaphorePermit>),
    /// All that could close have been asked by others.
    AllAsked,
}

/// The new connection that has asked a connection to close. A connection with a lower value is asked first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum AskedBy {
    /// No new connection waits for this one.
    Nobody,
    /// It waits longer for a body than the one that asks now, which takes its place.
    Weaker,
    /// It waits as long, or shorter.
    Equal,
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
            // If the new connection has left, the permit is free.
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

    /// Records that the whole request has arrived. The answer can take long, so a new connection that has asked this one to close
    /// asks another.
    pub(crate) fn end_body(&self) {
        let mut state = self.lock();
        (state.phase, state.since, state.eviction) = (Phase::Busy, Instant::now(), None);
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

    /// Returns since when the connection waits, and who has asked it to close. Returns none if it does not wait.
    fn evictable(&self, grace: Duration) -> Option<(Instant, AskedBy)> {
        let state = self.lock();
        let asked = match &state.eviction {
            _ if state.phase == Phase::Busy => return None,
            Some(asked) if asked.permit.is_closed() => AskedBy::Nobody,
            Some(asked) if asked.grace > grace => AskedBy::Weaker,
            Some(_) => AskedBy::Equal,
            None => AskedBy::Nobody,
        };
        Some((state.since, asked))
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

    /// Returns when the connection can be closed. Returns none while a request is processed.
    fn closes_at(&self, grace: Duration) -> Option<Instant> {
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
