//! A minimal HTTP client without TLS, for admin ports and etcd.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

/// A listener that takes longer is not ready.
const WITHIN: Duration = Duration::from_secs(5);

/// An answer.
#[derive(Debug, Clone)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: String,
}

/// Sends a GET on a connection of its own.
pub fn get(at: SocketAddr, path: &str) -> Result<Response> {
    exchange(at, "GET", path, "")
}

/// Fails unless a GET returns 200.
pub fn probe(at: SocketAddr, path: &str) -> Result<()> {
    let page = get(at, path)?;
    ensure!(page.status == 200, "{} {}", page.status, page.body);
    Ok(())
}

/// Sends a request with a body on a connection of its own. The answer to HTTP/1.0 has no chunks and closes the
/// connection.
pub fn exchange(at: SocketAddr, method: &str, path: &str, body: &str) -> Result<Response> {
    exchange_within((WITHIN, WITHIN), at, method, path, body)
}

/// Does the same with timeouts to connect and for each read.
pub fn exchange_within(
    (connect, read): (Duration, Duration),
    at: SocketAddr,
    method: &str,
    path: &str,
    body: &str,
) -> Result<Response> {
    let what = || format!("{method} http://{at}{path}");
    let mut stream = TcpStream::connect_timeout(&at, connect).with_context(what)?;
    stream.set_read_timeout(Some(read))?;
    let length = body.len();
    let request = format!("{method} {path} HTTP/1.0\r\nHost: {at}\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).with_context(what)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).with_context(what)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) =
        answer.split_once("\r\n\r\n").with_context(|| format!("{}: no HTTP answer", what()))?;
    let status = head.split_ascii_whitespace().nth(1).and_then(|status| status.parse().ok());
    Ok(Response {
        status: status.with_context(|| format!("{}: an HTTP answer without a status", what()))?,
        body: body.to_owned(),
    })
}
