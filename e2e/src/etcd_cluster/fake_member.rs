//! A server at the address of a member that is not etcd: another service, a page, or a relay to another server.
//!
//! It records what it receives, so that a case can check whether a secret was sent.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use super::address::{self, CLIENT};

/// The answer to a connection.
#[derive(Debug, Clone)]
enum Answer {
    /// These bytes, then the end of the connection.
    Bytes(Vec<u8>),
    /// Nothing.
    Silence,
    /// The start of an answer, and then no end.
    Endless,
    /// The answer of another server.
    Relay(SocketAddr),
}

/// A listener on a loopback address of its own, on etcd's port. It ends when it is dropped.
#[derive(Debug)]
pub struct FakeMember {
    address: Ipv4Addr,
    received: Arc<Mutex<Vec<u8>>>,
    connections: Arc<AtomicUsize>,
    runtime: Option<Runtime>,
}

impl FakeMember {
    /// Answers every request with this page.
    pub fn page(status: &str, kind: &str, body: &str) -> Result<Self> {
        let length = body.len();
        let page = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        Self::start(Answer::Bytes(page.into_bytes()))
    }

    /// Redirects every request to this URL.
    pub fn redirecting(to: &str) -> Result<Self> {
        let page = format!(
            "HTTP/1.1 307 Temporary Redirect\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        Self::start(Answer::Bytes(page.into_bytes()))
    }

    /// Greets with this line, as a service other than HTTP does.
    pub fn greeting(line: &str) -> Result<Self> {
        Self::start(Answer::Bytes(line.as_bytes().to_vec()))
    }

    /// Accepts connections and sends nothing.
    pub fn silent() -> Result<Self> {
        Self::start(Answer::Silence)
    }

    /// Starts an answer that does not end.
    pub fn endless() -> Result<Self> {
        Self::start(Answer::Endless)
    }

    /// Relays all connections to this address.
    pub fn relaying_to(address: Ipv4Addr) -> Result<Self> {
        Self::start(Answer::Relay((address, CLIENT).into()))
    }

    fn start(answer: Answer) -> Result<Self> {
        let address = address::free()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind((address, CLIENT)));
        let listener = listener.with_context(|| format!("cannot listen on {address}"))?;
        let (received, connections) = (Arc::<Mutex<Vec<u8>>>::default(), Arc::<AtomicUsize>::default());
        let (record, count) = (Arc::clone(&received), Arc::clone(&connections));
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(serve(stream, answer.clone(), Arc::clone(&record)));
            }
        });
        Ok(Self { address, received, connections, runtime: Some(runtime) })
    }

    /// Returns its address.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Returns the number of connections.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Returns everything that it received, as text.
    pub fn received(&self) -> String {
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&received).into_owned()
    }
}

impl Drop for FakeMember {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn serve(mut stream: TcpStream, answer: Answer, received: Arc<Mutex<Vec<u8>>>) -> Result<()> {
    let mut upstream = match &answer {
        Answer::Relay(to) => Some(TcpStream::connect(to).await?),
        _ => None,
    };
    let (mut request, mut reply) = ([0; 4_096], [0; 4_096]);
    loop {
        let read = tokio::select! {
            read = stream.read(&mut request) => read?,
            read = read_from(&mut upstream, &mut reply) => {
                let read = read?;
                stream.write_all(reply.get(..read).unwrap_or_default()).await?;
                if read == 0 {
                    return Ok(());
                }
                continue;
            }
        };
        let bytes = request.get(..read).unwrap_or_default();
        if bytes.is_empty() {
            return Ok(());
        }
        received.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        match (&answer, &mut upstream) {
            (Answer::Bytes(bytes), _) => {
                stream.write_all(bytes).await?;
                return Ok(stream.shutdown().await?);
            }
            (Answer::Endless, _) => {
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"a\":\"")
                    .await?;
                loop {
                    stream.write_all(&[b'x'; 4_096]).await?;
                }
            }
            (_, Some(upstream)) => upstream.write_all(bytes).await?,
            (_, None) => {}
        }
    }
}

/// Reads from a server, or waits forever without one.
async fn read_from(upstream: &mut Option<TcpStream>, buffer: &mut [u8]) -> std::io::Result<usize> {
    match upstream {
        Some(upstream) => upstream.read(buffer).await,
        None => std::future::pending().await,
    }
}
