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
//! its address has more waiting connections than that of the new one. Otherwise a pod that always opens connections would get every
//! permit as soon as this time ends. If the chosen connection is still in its [`BODY_GRACE`], the new connection waits for its end.
//! Durward does not choose a younger connection instead: that could be a handshake of the API server, and the API server does not
//! repeat a call whose handshake fails.
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
            let victim = self.lock().choose(peer.ip().to_canonical());
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
    /// Returns a connection to close for a new one, and the time from which it can be closed: at most [`BODY_GRACE`] ahead. With the
    /// default of 512 connections this takes some microseconds.
    fn choose(&self, newcomer: IpAddr) -> Option<(Arc<ConnectionState>, Instant)> {
        let mut waiting: HashMap<IpAddr, usize> = HashMap::new();
        for state in self.states.values().filter(|state| state.is_waiting()) {
            *waiting.entry(state.peer).or_default() += 1;
        }
        let count = |peer: IpAddr| waiting.get(&peer).copied().unwrap_or_default();
        let evictable = self.states.values().filter_map(|state| {
            let body_grace = match count(state.peer).cmp(&count(newcomer)) {
                Ordering::Less => return None,
                Ordering::Equal => BODY_GRACE,
                Ordering::Greater => Duration::ZERO,
            };
            let eviction = Eviction { newcomer, body_grace };
            let (since, at) = state.evictable(eviction)?;
            Some((since, at, eviction, state))
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
            let other = self.limit.lock().choose(newcomer);
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
mod tests;
