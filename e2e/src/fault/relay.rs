//! A relay that copies bytes, TLS and client certificates included, and can stop copying on open connections.
//!
//! [`super::Proxy`] cannot do that, because client certificates end where TLS ends. The connection stays open and
//! accepts bytes but returns none, as behind a firewall that has dropped its state. Later connections work.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};

/// A relay that runs until it is dropped.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    connections: Arc<Connections>,
}

/// The relay's connections.
#[derive(Debug, Default)]
struct Connections {
    over: AtomicBool,
    open: Mutex<Vec<Connection>>,
    held: AtomicUsize,
}

#[derive(Debug)]
struct Connection {
    silent: Arc<AtomicBool>,
    ends: [TcpStream; 2],
}

impl Relay {
    /// Starts a relay for the server at this URL (`https://127.0.0.1:port`) on a port of its own.
    pub fn before(url: &str) -> Result<Self> {
        let upstream: SocketAddr = url
            .trim_start_matches("https://")
            .trim_end_matches('/')
            .parse()
            .with_context(|| format!("{url} is no address"))?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("the relay has no port")?;
        let address = listener.local_addr()?;
        let connections = Arc::new(Connections::default());
        let its = Arc::clone(&connections);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if its.over.load(Ordering::Acquire) {
                    return;
                }
                // The client sees an error of its connection.
                let _ = client.map_err(anyhow::Error::from).and_then(|client| its.connect(client, upstream));
            }
        });
        Ok(Self { address, connections })
    }

    /// Returns the URL of the relay.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Stops copying on the connections that are open now, and leaves them open.
    pub fn silence_open_connections(&self) {
        for connection in self.connections.open().iter() {
            connection.silent.store(true, Ordering::Release);
        }
    }

    /// Returns the number of bytes that were received and not copied. A case with none has proven nothing.
    pub fn dropped_bytes(&self) -> usize {
        self.connections.held.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.connections.over.store(true, Ordering::Release);
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
        for connection in self.connections.open().iter() {
            for end in &connection.ends {
                let _ = end.shutdown(Shutdown::Both);
            }
        }
    }
}

impl Connections {
    fn open(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(self: &Arc<Self>, client: TcpStream, upstream: SocketAddr) -> Result<()> {
        let server = TcpStream::connect(upstream)?;
        let silent = Arc::new(AtomicBool::new(false));
        let connection =
            Connection { silent: Arc::clone(&silent), ends: [client.try_clone()?, server.try_clone()?] };
        self.open().push(connection);
        for (from, to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
            let (connections, silent) = (Arc::clone(self), Arc::clone(&silent));
            std::thread::spawn(move || connections.pass(from, to, &silent));
        }
        Ok(())
    }

    /// Copies one direction to its end.
    fn pass(&self, mut from: TcpStream, mut to: TcpStream, silent: &AtomicBool) {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            if silent.load(Ordering::Acquire) {
                self.held.fetch_add(read, Ordering::Relaxed);
            } else if buffer.get(..read).is_none_or(|bytes| to.write_all(bytes).is_err()) {
                break;
            }
        }
        if !silent.load(Ordering::Acquire) {
            let _ = to.shutdown(Shutdown::Write);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn passes_bytes_both_ways_until_it_goes_silent_and_later_connections_after_that() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
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
