//! A relay that copies bytes, TLS and client certificates included, and can stop copying on open connections.
//!
//! [`super::Proxy`] cannot do that, because client certificates end where TLS ends. The connection stays open and
//! accepts bytes but returns none, as behind a firewall that has dropped its state. Later connections work.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

/// A relay that runs until it is dropped.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    state: Arc<State>,
    runtime: Option<Runtime>,
}

#[derive(Debug, Default)]
struct State {
    /// A flag for each connection that stops the copying.
    silent: Mutex<Vec<Arc<AtomicBool>>>,
    dropped_bytes: AtomicUsize,
}

impl Relay {
    /// Starts a relay for the server at this URL (`https://127.0.0.1:port`) on a port of its own.
    pub fn before(url: &str) -> Result<Self> {
        let upstream = url.trim_start_matches("https://").trim_end_matches('/').parse();
        let upstream: SocketAddr = upstream.with_context(|| format!("{url} is not an address"))?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener =
            runtime.block_on(TcpListener::bind(("127.0.0.1", 0))).context("the relay has no port")?;
        let address = listener.local_addr()?;
        let state = Arc::<State>::default();
        let shared = Arc::clone(&state);
        runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connect(client, upstream, Arc::clone(&shared)));
            }
        });
        Ok(Self { address, state, runtime: Some(runtime) })
    }

    /// Returns the URL of the relay.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Stops copying on the connections that are open now, and leaves them open.
    pub fn silence_open_connections(&self) {
        for silent in self.state.silent.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            silent.store(true, Ordering::Release);
        }
    }

    /// Returns the number of bytes that were received and not copied. A case with none has proven nothing.
    pub fn dropped_bytes(&self) -> usize {
        self.state.dropped_bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Copies both directions. The client sees an error of its connection.
async fn connect(client: TcpStream, upstream: SocketAddr, state: Arc<State>) -> Result<()> {
    let (client_reads, client_writes) = client.into_split();
    let (server_reads, server_writes) = TcpStream::connect(upstream).await?.into_split();
    let silent = Arc::new(AtomicBool::new(false));
    state.silent.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&silent));
    tokio::join!(
        copy(client_reads, server_writes, &silent, &state),
        copy(server_reads, client_writes, &silent, &state)
    );
    Ok(())
}

/// Copies one direction to its end. A silent connection stays open.
async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, silent: &AtomicBool, state: &State) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if silent.load(Ordering::Acquire) {
            state.dropped_bytes.fetch_add(read, Ordering::Relaxed);
        } else if to.write_all(buffer.get(..read).unwrap_or_default()).await.is_err() {
            break;
        }
    }
    if silent.load(Ordering::Acquire) {
        std::future::pending::<()>().await;
    }
    let _ = to.shutdown().await;
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::Relay;

    #[test]
    fn copies_bytes_except_on_silenced_connections() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let mut byte = [0];
                    while stream.read_exact(&mut byte).is_ok() {
                        stream.write_all(&[byte[0] + 1]).unwrap();
                    }
                });
            }
        });
        let relay = Relay::before(&url).unwrap();
        let connect = || {
            let stream = TcpStream::connect(relay.address).unwrap();
            stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            stream
        };
        let ask = |mut stream: &TcpStream| {
            stream.write_all(&[1]).unwrap();
            let mut byte = [0];
            stream.read_exact(&mut byte).map(|()| byte[0])
        };
        let early = connect();
        assert_eq!(ask(&early).unwrap(), 2);
        relay.silence_open_connections();
        ask(&early).unwrap_err();
        assert_eq!(relay.dropped_bytes(), 1);
        assert_eq!(ask(&connect()).unwrap(), 2);
    }
}
