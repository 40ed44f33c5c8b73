//! A connection that is polled: its socket does not block.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use crate::Result;

/// A handshake or a single answer fails after so long.
const PATIENCE: Duration = Duration::from_secs(30);
const END_OF_HEAD: &[u8] = b"\r\n\r\n";
const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

/// A keep-alive connection.
pub(crate) struct Connection {
    socket: TcpStream,
    tls: ClientConnection,
    /// Plaintext of the answer so far.
    answer: Vec<u8>,
    /// The form of the body, once the head is complete.
    body: Option<Body>,
}

/// The form of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    /// The body begins and ends at these bytes of the answer.
    Whole(usize, usize),
    /// The chunks begin at this byte. Go sends answers of 2 kB and more in chunks.
    Chunked(usize),
}

impl Connection {
    /// Opens a connection and completes the handshake.
    pub(crate) fn open(address: SocketAddr, config: &Arc<ClientConfig>) -> Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        let mut tls = ClientConnection::new(Arc::clone(config), ServerName::try_from("localhost")?)?;
        // A body of 3 MB is encrypted at once.
        tls.set_buffer_limit(None);
        let mut connection = Self { socket, tls, answer: Vec::with_capacity(16 << 10), body: None };
        let since = Instant::now();
        while connection.tls.is_handshaking() {
            connection.write()?;
            connection.read()?;
            expect_within(since)?;
        }
        connection.write()?;
        Ok(connection)
    }

    /// Queues a request and writes as much of it as the socket takes. [`poll`](Self::poll) writes the rest.
    pub(crate) fn send(&mut self, request: &[u8]) -> Result<()> {
        self.answer.clear();
        self.body = None;
        self.tls.writer().write_all(request)?;
        self.write()
    }

    /// Writes and reads what is possible without waiting. Returns whether the answer is complete.
    pub(crate) fn poll(&mut self) -> Result<bool> {
        self.write()?;
        self.read()
    }

    /// Sends a request, waits for its answer, and returns the body.
    pub(crate) fn ask(&mut self, request: &[u8]) -> Result<Vec<u8>> {
        self.send(request)?;
        let since = Instant::now();
        while !self.poll()? {
            expect_within(since)?;
        }
        match self.body {
            Some(Body::Whole(start, end)) => self.answer.get(start..end).map(<[u8]>::to_vec),
            Some(Body::Chunked(start)) => unchunked(self.answer.get(start..).unwrap_or_default())?,
            None => None,
        }
        .ok_or_else(|| "the answer has no body".into())
    }

    /// Writes everything that is queued, even if the socket is full meanwhile.
    pub(crate) fn flush(&mut self) -> Result<()> {
        let since = Instant::now();
        while self.tls.wants_write() {
            self.write()?;
            expect_within(since)?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn read(&mut self) -> Result<bool> {
        loop {
            match self.tls.read_tls(&mut self.socket) {
                Ok(0) => return Err("the server closed the connection".into()),
                Ok(_) => {
                    self.tls.process_new_packets()?;
                    if self.decrypted()? {
                        return Ok(true);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes over the plaintext. Returns whether the answer is complete.
    fn decrypted(&mut self) -> Result<bool> {
        match self.tls.reader().read_to_end(&mut self.answer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        if self.body.is_none() {
            self.body = body(&self.answer)?;
        }
        Ok(match self.body {
            None => false,
            Some(Body::Whole(_, end)) => self.answer.len() >= end,
            Some(Body::Chunked(_)) => self.answer.ends_with(LAST_CHUNK),
        })
    }
}

fn expect_within(since: Instant) -> Result<()> {
    if since.elapsed() > PATIENCE { Err(format!("no answer within {PATIENCE:?}").into()) } else { Ok(()) }
}

/// Returns the form of the body of an answer, once its head is complete. The answer must be 200.
fn body(answer: &[u8]) -> Result<Option<Body>> {
    let Some(end) = position(answer, END_OF_HEAD) else { return Ok(None) };
    let head = std::str::from_utf8(answer.get(..end).unwrap_or_default())?;
    if !head.starts_with("HTTP/1.1 200") {
        return Err(format!("the answer is not 200: {head}").into());
    }
    let header = |name: &str| {
        let mut headers = head.lines().filter_map(|line| line.split_once(':'));
        headers.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    };
    let start = end + END_OF_HEAD.len();
    if header("transfer-encoding") == Some("chunked") {
        return Ok(Some(Body::Chunked(start)));
    }
    let length: usize = header("content-length").ok_or("the answer has no length")?.parse()?;
    Ok(Some(Body::Whole(start, start + length)))
}

/// Returns the content of all chunks.
fn unchunked(mut chunks: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut content = Vec::new();
    loop {
        let Some(end) = position(chunks, b"\r\n") else { return Ok(None) };
        let (size, rest) = chunks.split_at(end);
        let size = usize::from_str_radix(std::str::from_utf8(size)?, 16)?;
        if size == 0 {
            return Ok(Some(content));
        }
        let Some((chunk, rest)) = rest.get(2..).and_then(|rest| rest.split_at_checked(size)) else {
            return Ok(None);
        };
        content.extend_from_slice(chunk);
        chunks = rest.strip_prefix(b"\r\n").ok_or("a chunk has another size")?;
    }
}

fn position(text: &[u8], pattern: &[u8]) -> Option<usize> {
    text.windows(pattern.len()).position(|window| window == pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_body_once_the_head_is_complete() {
        assert_eq!(body(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n").unwrap(), None);
        assert_eq!(
            body(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab").unwrap(),
            Some(Body::Whole(38, 40))
        );
        assert!(body(b"HTTP/1.1 500 Oops\r\ncontent-length: 2\r\n\r\nab").is_err());
        assert!(body(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n").is_err());
    }

    #[test]
    fn joins_chunks() {
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(body(head).unwrap(), Some(Body::Chunked(head.len())));
        assert_eq!(unchunked(b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n").unwrap(), Some(b"abc".to_vec()));
        assert_eq!(unchunked(b"4\r\nab").unwrap(), None);
        assert!(unchunked(b"1\r\nabc0\r\n\r\n").is_err());
    }
}
