//! A load generator: HTTP/1.1 over rustls, with one thread for each connection.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::Result;

/// A keep-alive connection.
pub(crate) struct Connection {
    stream: StreamOwned<ClientConnection, TcpStream>,
    answer: Vec<u8>,
}

/// Returns a TLS configuration that trusts the certificate.
pub(crate) fn trusting(certificate: &Path) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate)?)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Returns a whole request.
pub(crate) fn request(path: &str, body: &[u8]) -> Vec<u8> {
    let mut request = head(path, body.len()).into_bytes();
    request.extend_from_slice(body);
    request
}

/// Returns the head of a request, as the API server writes it.
pub(crate) fn head(path: &str, length: usize) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: durward.durward-system.svc\r\nUser-Agent: kube-apiserver-admission\r\nContent-Length: {length}\r\nAccept: application/json, */*\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
    )
}

impl Connection {
    pub(crate) fn open(address: SocketAddr, config: &Arc<ClientConfig>) -> Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        let session = ClientConnection::new(Arc::clone(config), ServerName::try_from("localhost")?)?;
        Ok(Self { stream: StreamOwned::new(session, socket), answer: vec![0; 64 * 1024] })
    }

    /// Writes bytes without waiting for an answer.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes)?;
        Ok(self.stream.flush()?)
    }

    /// Sends a request and reads its answer, which must be 200.
    pub(crate) fn ask(&mut self, request: &[u8]) -> Result<()> {
        self.send(request)?;
        self.answer()
    }

    /// Reads an answer.
    pub(crate) fn answer(&mut self) -> Result<()> {
        let mut filled = 0;
        loop {
            let free = self.answer.get_mut(filled..).ok_or("an answer over 64 KiB")?;
            let read = self.stream.read(free)?;
            if read == 0 {
                return Err("the server closed the connection".into());
            }
            filled += read;
            let so_far = self.answer.get(..filled).unwrap_or_default();
            let Some(end) = so_far.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
            let head = std::str::from_utf8(so_far.get(..end).unwrap_or_default())?.to_ascii_lowercase();
            if !head.starts_with("http/1.1 200") {
                return Err(format!("not a 200: {head}").into());
            }
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length:"))
                .ok_or("no content-length")?;
            if filled >= end + 4 + length.trim().parse::<usize>()? {
                return Ok(());
            }
        }
    }
}

/// Sends `count` requests over `connections`, as fast as possible.
pub(crate) fn closed(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
    request: &[u8],
    connections: usize,
    count: usize,
) -> Result<()> {
    let each = count / connections;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..connections)
            .map(|_| {
                scope.spawn(move || -> Result<()> {
                    let mut connection = Connection::open(address, config)?;
                    (0..each).try_for_each(|_| connection.ask(request))
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a connection panicked")?)
    })
}

/// Sends requests at a fixed rate. A latency counts from when the request was due, not from when it was sent.
pub(crate) fn open(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
    request: &[u8],
    connections: u32,
    rate: u32,
    lasting: Duration,
) -> Result<Vec<Duration>> {
    let interval = Duration::from_secs(1) * connections / rate;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..connections)
            .map(|n| {
                scope.spawn(move || -> Result<Vec<Duration>> {
                    let mut connection = Connection::open(address, config)?;
                    connection.ask(request)?;
                    let mut due = Instant::now() + Duration::from_millis(200) + interval * n / connections;
                    let end = due + lasting;
                    let mut latencies = Vec::new();
                    while due < end {
                        std::thread::sleep(due.saturating_duration_since(Instant::now()));
                        connection.ask(request)?;
                        latencies.push(due.elapsed());
                        due += interval;
                    }
                    Ok(latencies)
                })
            })
            .collect();
        let mut all = Vec::new();
        for worker in workers {
            all.extend(worker.join().map_err(|_| "a connection panicked")??);
        }
        all.sort_unstable();
        Ok(all)
    })
}
