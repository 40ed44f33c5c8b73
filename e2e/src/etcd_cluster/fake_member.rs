//! What listens where a member is expected and is none: another service, a page, a way to somebody else.
//!
//! It keeps all that it was told, for a case to look whether it was told a secret.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::address::{self, CLIENT};

/// How long a connection without a word is looked at before it is asked whether the impostor is over.
const LOOK: Duration = Duration::from_millis(50);

/// What it does with whoever comes.
#[derive(Debug, Clone)]
enum Manner {
    /// Answers every request with these bytes, and closes.
    Says(Vec<u8>),
    /// Says nothing.
    Silent,
    /// Answers, and never comes to an end.
    Endless,
    /// Hands every byte on to this one, and back.
    Relays(SocketAddr),
}

/// A listener on a loopback address of its own, on the port of etcd. It ends when it is dropped.
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

    /// Sends everybody to this URL.
    pub fn redirecting(to: &str) -> Result<Self> {
        let page = format!(
            "HTTP/1.1 307 Temporary Redirect\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        Self::start(Manner::Says(page.into_bytes()))
    }

    /// A service that is no HTTP server: it greets with this line.
    pub fn greeting(line: &str) -> Result<Self> {
        Self::start(Manner::Says(line.as_bytes().to_vec()))
    }

    /// Takes connections and says nothing.
    pub fn silent() -> Result<Self> {
        Self::start(Manner::Silent)
    }

    /// Begins an answer that has no end.
    pub fn endless() -> Result<Self> {
        Self::start(Manner::Endless)
    }

    /// Passes for somebody else: whatever it is asked, it asks there, and hands the answer back.
    pub fn passing_for(address: Ipv4Addr) -> Result<Self> {
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
                        // Whoever leaves early is no failure of an impostor's.
                        thread::spawn(move || serve(stream, &manner, &told, &over));
                    }
                    Err(_) => thread::sleep(LOOK),
                }
            }
        });
        Ok(impostor)
    }

    /// Where it listens.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// How many connections were made to it.
    pub fn met(&self) -> usize {
        self.met.load(Ordering::Relaxed)
    }

    /// All that it was told, as text where it is text.
    pub fn told(&self) -> String {
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
    // A socket that was accepted does not inherit this on every system.
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
