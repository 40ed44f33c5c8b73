//! Relays between the members of an etcd cluster, which can isolate one member from the others while clients still reach it.
//!
//! Each member advertises the address of its relay to the others. Requests of raft name their sender in a header (etcd's `rafthttp`), and
//! no connection is used by two senders.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;

use super::address::{self, PEER};

/// The longest head of a request that is read.
const MAX_HEAD: usize = 8 << 10;

/// The relays of one etcd cluster. They end when it is dropped.
#[derive(Debug)]
pub(super) struct PeerRelays {
    runtime: Option<Runtime>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Members with the addresses of their relays.
    relays: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// The id in hexadecimal and the address of the isolated member.
    isolated: Option<(String, Ipv4Addr)>,
    connections: Vec<Connection>,
}

#[derive(Debug)]
struct Connection {
    /// The id in hexadecimal, or nothing for requests that are not of raft.
    from: String,
    to: Ipv4Addr,
    task: AbortHandle,
}

impl State {
    fn is_cut(&self, from: &str, to: Ipv4Addr) -> bool {
        self.isolated.as_ref().is_some_and(|(id, address)| from == id || to == *address)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PeerRelays {
    pub(super) fn new() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        Ok(Self { runtime: Some(runtime), state: Arc::default() })
    }

    /// Returns the address at which other members reach this one.
    pub(super) fn of(&self, member: Ipv4Addr) -> Result<Ipv4Addr> {
        let known = lock(&self.state).relays.iter().find(|(own, _)| *own == member).map(|(_, relay)| *relay);
        if let Some(relay) = known {
            return Ok(relay);
        }
        let relay = address::free()?;
        let runtime = self.runtime.as_ref().context("the relays have ended")?;
        let listener = runtime.block_on(TcpListener::bind((relay, PEER)))?;
        let state = Arc::clone(&self.state);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, member, Arc::clone(&state)));
            }
        });
        lock(&self.state).relays.push((member, relay));
        Ok(relay)
    }

    /// Cuts all connections between this member and the others, and refuses new ones.
    pub(super) fn isolate(&self, id: u64, member: Ipv4Addr) {
        let mut state = lock(&self.state);
        state.isolated = Some((format!("{id:x}"), member));
        let (cut, kept) = std::mem::take(&mut state.connections)
            .into_iter()
            .partition(|one| one.from.is_empty() || state.is_cut(&one.from, one.to));
        state.connections = kept;
        let cut: Vec<Connection> = cut;
        for one in &cut {
            one.task.abort();
        }
    }
}

impl Drop for PeerRelays {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Relays one connection to a member, in a task that can be aborted.
async fn serve(mut stream: TcpStream, to: Ipv4Addr, state: Arc<Mutex<State>>) -> Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") && head.len() < MAX_HEAD {
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    let header = text
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("x-server-from:").map(str::to_owned));
    let from = header.map(|id| id.trim().to_owned()).unwrap_or_default();
    let is_probe = from.is_empty() && text.contains("/raft/");
    let mut all = lock(&state);
    if all.is_cut(&from, to) || is_probe && all.isolated.is_some() {
        return Ok(());
    }
    let relay = tokio::spawn(async move {
        let mut upstream = TcpStream::connect((to, PEER)).await?;
        upstream.write_all(&head).await?;
        tokio::io::copy_bidirectional(&mut stream, &mut upstream).await
    });
    all.connections.retain(|one| !one.task.is_finished());
    all.connections.push(Connection { from, to, task: relay.abort_handle() });
    Ok(())
}
