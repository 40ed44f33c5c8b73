//! The state of a connection: whether it waits for its peer, and since when. The connection's task changes it. The
//! [limit](crate::connection_limit) of connections and the timeouts use it.

use std::sync::Mutex;
use std::time::Duration;

use admission::lock;
use tokio::time::Instant;

/// The phase of a connection, and its beginning.
pub(crate) struct ConnectionState(Mutex<(Phase, Instant)>);

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

impl ConnectionState {
    pub(crate) fn new() -> Self {
        Self(Mutex::new((Phase::New, Instant::now())))
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

    /// Returns whether there was no request yet.
    pub(crate) fn is_new(&self) -> bool {
        lock(&self.0).0 == Phase::New
    }

    /// Returns whether the connection waits for its peer.
    pub(crate) fn is_waiting(&self) -> bool {
        lock(&self.0).0 != Phase::Busy
    }

    /// Returns when the connection times out without another request. Returns none while a request is under way.
    pub(crate) fn times_out_at(&self, first: Duration, idle: Duration) -> Option<Instant> {
        let (phase, since) = *lock(&self.0);
        match phase {
            Phase::New => Some(since + first),
            Phase::Idle => Some(since + idle),
            Phase::Body | Phase::Busy => None,
        }
    }

    fn set(&self, phase: Phase) {
        *lock(&self.0) = (phase, Instant::now());
    }

    /// Returns the beginning of the phase.
    pub(crate) fn since(&self) -> Instant {
        lock(&self.0).1
    }
}
