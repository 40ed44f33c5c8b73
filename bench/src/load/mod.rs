//! The load generator: HTTP/1.1 over TLS 1.3 on connections that stay open, from one thread that polls and never sleeps.
//!
//! If a client sleeps, the server must wake it for each answer, and the kernel charges this time to the server. A client behind a
//! slower server sleeps more often, so the comparison would be distorted. This client has a core of its own, and reads its sockets one
//! after another until an answer is complete.

mod connection;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use crate::Result;

pub(crate) use connection::Connection;

/// A run fails if no answer arrives for so long.
const PATIENCE: Duration = Duration::from_secs(30);

/// Returns the TLS configuration of the API server's client: HTTP/1.1 by ALPN, and AES-128 as the first cipher, as Go has it.
pub(crate) fn trusting(certificate: &Path) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate)?)?;
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    let first = rustls::CipherSuite::TLS13_AES_128_GCM_SHA256;
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != first);
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
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

/// Open connections to a server, which send one request again and again.
pub(crate) struct Load<'r> {
    request: &'r [u8],
    connections: Vec<Connection>,
}

impl<'r> Load<'r> {
    pub(crate) fn open(
        address: SocketAddr,
        config: &Arc<ClientConfig>,
        request: &'r [u8],
        connections: usize,
    ) -> Result<Self> {
        let connections =
            (0..connections).map(|_| Connection::open(address, config)).collect::<Result<_>>()?;
        Ok(Self { request, connections })
    }

    /// Sends requests, the next one of a connection as soon as its answer is there. Returns the latencies in ascending order.
    pub(crate) fn closed(&mut self, count: usize) -> Result<Vec<Duration>> {
        let mut latencies = Vec::with_capacity(count);
        let mut sent = 0;
        let mut begun = Vec::new();
        for connection in self.connections.iter_mut().take(count) {
            begun.push(Instant::now());
            connection.send(self.request)?;
            sent += 1;
        }
        let mut last = Instant::now();
        while latencies.len() < count {
            for (connection, begun) in self.connections.iter_mut().zip(&mut begun) {
                if !connection.poll()? {
                    continue;
                }
                last = Instant::now();
                latencies.push(last - *begun);
                if sent < count {
                    *begun = last;
                    connection.send(self.request)?;
                    sent += 1;
                }
            }
            if last.elapsed() > PATIENCE {
                return Err(format!("no answer within {PATIENCE:?}").into());
            }
        }
        latencies.sort_unstable();
        Ok(latencies)
    }

    /// Sends requests at a fixed rate. A latency counts from when the request was due: if the server stalls, the requests that wait
    /// for a connection count too. Returns the latencies in ascending order.
    pub(crate) fn at_rate(&mut self, rate: u32, lasting: Duration) -> Result<Vec<Duration>> {
        let interval = Duration::from_secs(1) / rate;
        let total = (lasting.as_secs_f64() * f64::from(rate)).round();
        let mut due = Instant::now() + Duration::from_millis(10);
        let end = due + interval.mul_f64(total);
        let mut waiting = VecDeque::new();
        let mut idle: Vec<usize> = (0..self.connections.len()).collect();
        let mut busy: Vec<Option<Instant>> = vec![None; self.connections.len()];
        let mut latencies = Vec::new();
        let mut last = due;
        loop {
            let now = Instant::now();
            while due <= now && due < end {
                waiting.push_back(due);
                due += interval;
            }
            while !waiting.is_empty()
                && let Some(index) = idle.pop()
                && let (Some(connection), Some(slot)) = (self.connections.get_mut(index), busy.get_mut(index))
            {
                *slot = waiting.pop_front();
                connection.send(self.request)?;
            }
            for (index, (connection, slot)) in self.connections.iter_mut().zip(&mut busy).enumerate() {
                if let Some(due) = *slot
                    && connection.poll()?
                {
                    last = Instant::now();
                    latencies.push(last - due);
                    *slot = None;
                    idle.push(index);
                }
            }
            if due >= end && waiting.is_empty() && idle.len() == self.connections.len() {
                latencies.sort_unstable();
                return Ok(latencies);
            }
            if last.elapsed() > PATIENCE && idle.len() < self.connections.len() {
                return Err(format!("no answer within {PATIENCE:?}").into());
            }
        }
    }
}

/// Returns the latency below which this share of them is, in thousandths.
pub(crate) fn quantile(sorted: &[Duration], thousandths: usize) -> Result<Duration> {
    let index = (sorted.len() * thousandths / 1000).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().ok_or_else(|| "no latencies were measured".into())
}
