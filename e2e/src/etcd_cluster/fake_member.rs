//! A server at the address of a member that is not etcd: another service, a page, or a relay to another server.
//!
//! It records what it receives, so that a case can check whether a secret was sent.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::address::{self, CLIENT};

/// How long a silent connection is read before the server checks whether it was dropped.
const LOOK: Duration = Duration::from_millis(50);

/// The answer to a connection.
#[derive(Debug, Clone)]
enum Manner {
    /// Answers every request with these bytes and closes.
    Says(Vec<u8>),
    /// Sends nothing.
    Silent,
    /// Starts an answer that does not end.
    Endless,
    /// Copies all bytes to another server and back.
    Relays(SocketAddr),
}

/// A listener on a loopback address of its own, on etcd's port. It ends when it is dropped.
#[derive(Debug)]
pub struct FakeMember {
    address: Ipv4Addr,
    told: Arc<Mutex<Vec<u8>>>,
    met: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
}

impl FakeMember {
    /// Answers every request with this page.
    pub fn page(status: &str, kind: &str, body: &str) -> Result<Self> {
        let length = body.len();
        let page = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        Self::start(Manner::Says(page.into_bytes()))
    }

    /// Redirects every request to this URL.
    pub fn redirecting(to: &str) -> Result<Self> {
        let page = format!(
            "HTTP/1.1 307 Temporary Redirect\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        Self::start(Manner::Says(page.into_bytes()))
    }

    /// Greets with this line, as a service other than HTTP does.
    pub fn greeting(line: &str) -> Result<Self> {
        Self::start(Manner::Says(line.as_bytes().to_vec()))
    }

    /// Accepts connections and sends nothing.
    pub fn silent() -> Result<Self> {
        Self::start(Manner::Silent)
    }

    /// Starts an answer that does not end.
    pub fn endless() -> Result<Self> {
        Self::start(Manner::Endless)
    }

    /// Relays all connections to this address.
    pub fn relaying_to(address: Ipv4Addr) -> Result<Self> {
        Self::start(Manner::Relays((address, CLIENT).into()))
    }

    fn start(manner: Manner) -> Result<Self> {
        let address = address::free()?;
        let listener =
            TcpListener::bind((address, CLIENT)).with_context(|| format!("cannot listen on {address}"))?;
        listener.set_nonblocking(true)?;
        let impostor = Self { address, told: Arc::default(), met: Arc::default(), over: Arc::default() };
        let (told, met, over) =
            (Arc::clone(&impostor.told), Arc::clone(&impostor.met), Arc::clone(&impostor.over));
        thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => {
                        met.fetch_add(1, Ordering::Relaxed);
                        let (manner, told, over) = (manner.clone(), Arc::clone(&told), Arc::clone(&over));
                        // A client that disconnects early is not a failure.
                        thread::spawn(move || serve(stream, &manner, &told, &over));
                    }
                    Err(_) => thread::sleep(LOOK),
                }
            }
        });
        Ok(impostor)
    }

    /// Returns its address.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Returns the number of connections.
    pub fn connections(&self) -> usize {
        self.met.load(Ordering::Relaxed)
    }

    /// Returns everything that it received, as text.
    pub fn received(&self) -> String {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&told).into_owned()
    }
}

impl Drop for FakeMember {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

fn serve(mut stream: TcpStream, manner: &Manner, told: &Mutex<Vec<u8>>, over: &AtomicBool) -> Option<()> {
    // Accepted sockets inherit this on some systems.
    stream.set_nonblocking(false).ok()?;
    stream.set_read_timeout(Some(LOOK)).ok()?;
    let mut there = match manner {
        Manner::Relays(to) => {
            let there = TcpStream::connect(to).ok()?;
            let (mut from, mut back) = (there.try_clone().ok()?, stream.try_clone().ok()?);
            thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut back);
                let _ = back.shutdown(Shutdown::Both);
            });
            Some(there)
        }
        Manner::Says(_) | Manner::Silent | Manner::Endless => None,
    };
    let mut some = [0; 4_096];
    while !over.load(Ordering::Relaxed) {
        let read = match stream.read(&mut some) {
            Ok(0) => return None,
            Ok(read) => some.get(..read)?,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(_) => return None,
        };
        told.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(read);
        match manner {
            Manner::Says(bytes) => {
                stream.write_all(bytes).ok()?;
                return stream.shutdown(Shutdown::Write).ok();
            }
            Manner::Silent => {}
            Manner::Endless => {
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"a\":\"")
                    .ok()?;
                while !over.load(Ordering::Relaxed) {
                    stream.write_all(&[b'x'; 4_096]).ok()?;
                }
            }
            Manner::Relays(_) => there.as_mut()?.write_all(read).ok()?,
        }
    }
    None
}
