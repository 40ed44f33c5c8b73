//! Limits the connections of a port. At the limit, a new connection closes a waiting one, so that a caller that sends nothing doesn't
//! keep the API server and kubelet out.
//!
//! A connection waits from its handshake to the last byte of a request, and after the answer. The address with the most waiting
//! connections loses the one that has waited longest. If all connections have a complete request, the new one is refused.
//!
//! A request can be on the wire when its connection closes. Every server that closes idle connections has this race.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use admission::lock;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::connection_state::ConnectionState;

/// Interval of log lines about a reached limit.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The connections of a port, at most `max`, and those that are being closed.
pub(crate) struct ConnectionLimit {
    port: &'static str,
    max: usize,
    table: Mutex<OpenConnections>,
}

#[derive(Default)]
struct OpenConnections {
    next_id: u64,
    open: BTreeMap<u64, Arc<OpenConnection>>,
    logged_at: Option<Instant>,
}

impl ConnectionLimit {
    pub(crate) fn new(port: &'static str, max: usize) -> Arc<Self> {
        Arc::new(Self { port, max, table: Mutex::default() })
    }

    /// Returns a permit for a new connection. Returns none at the limit, if no connection waits.
    pub(crate) fn acquire(self: &Arc<Self>, peer: SocketAddr) -> Option<Permit> {
        let address = peer.ip().to_canonical();
        let mut table = lock(&self.table);
        if table.open.len() >= self.max {
            let is_closed = table.close_one();
            if table.logged_at.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
                table.logged_at = Some(Instant::now());
                tracing::warn!(listener = self.port, limit = self.max, is_closed, %peer, "connection limit reached: closing waiting connections");
            }
            if !is_closed {
                return None;
            }
        }
        let connection =
            Arc::new(OpenConnection { address, state: ConnectionState::new(), replaced: Notify::new() });
        let id = table.next_id;
        table.next_id += 1;
        table.open.insert(id, Arc::clone(&connection));
        Some(Permit { limit: Arc::clone(self), id, connection })
    }
}

impl OpenConnections {
    /// Takes the place of the waiting connection that is to close. Returns whether there is one.
    fn close_one(&mut self) -> bool {
        let waiting = || self.open.iter().filter(|(_, connection)| connection.state.is_waiting());
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for (_, connection) in waiting() {
            *counts.entry(connection.address).or_default() += 1;
        }
        let first = waiting().max_by_key(|(id, connection)| {
            (counts.get(&connection.address).copied(), Reverse(connection.state.since()), Reverse(**id))
        });
        let id = first.map(|(id, _)| *id);
        let Some(connection) = id.and_then(|id| self.open.remove(&id)) else { return false };
        connection.replaced.notify_one();
        true
    }
}

/// An open connection.
struct OpenConnection {
    address: IpAddr,
    state: ConnectionState,
    replaced: Notify,
}

/// The right to one connection.
pub(crate) struct Permit {
    limit: Arc<ConnectionLimit>,
    id: u64,
    connection: Arc<OpenConnection>,
}

impl Permit {
    pub(crate) fn state(&self) -> &ConnectionState {
        &self.connection.state
    }

    /// Returns when another connection has taken this one's place. A whole request can have arrived since.
    pub(crate) async fn replaced(&self) {
        self.connection.replaced.notified().await;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        lock(&self.limit.table).open.remove(&self.id);
    }
}

#[cfg(test)]
mod tests;
