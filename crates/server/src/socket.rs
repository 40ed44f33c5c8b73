//! A TCP stream under TLS with two habits of its own.
//!
//! It lingers: after its last byte it goes on reading and throwing away for a moment. A request may be answered before its body
//! was read (413, 503); closing with unread bytes makes the kernel send a reset, and a reset takes away an answer that the
//! peer has not read yet.
//!
//! It does not wait for ever: a peer that takes no byte of its answer for `write_stall` is given up.
//!
//! What the peer has still to take is noted at its [`Seat`], so that nobody ends the connection before.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use crate::house::{Owed, Seat};

/// How long a peer gets to close its side; a client that has read `Connection: close` does so at once.
const LINGER: Duration = Duration::from_secs(1);
/// How much is thrown away for it: two bodies of the largest size that is announced in earnest.
const LINGER_BYTES: usize = 16 << 20;

/// The stream.
pub(crate) struct Socket {
    tcp: TcpStream,
    write_stall: Duration,
    seat: Arc<Seat>,
    stalled: Option<Pin<Box<Sleep>>>,
    lingering: Option<Lingering>,
}

struct Lingering {
    over: Pin<Box<Sleep>>,
    thrown_away: usize,
}

impl Socket {
    pub(crate) fn new(tcp: TcpStream, write_stall: Duration, seat: Arc<Seat>) -> Self {
        Self { tcp, write_stall, seat, stalled: None, lingering: None }
    }

    fn watched<T>(&mut self, cx: &mut Context<'_>, wrote: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if wrote.is_ready() {
            if self.stalled.take().is_some() {
                self.seat.owes(Owed::Nothing);
            }
            return wrote;
        }
        self.seat.owes(Owed::Answer);
        let time = self.write_stall;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(time)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not take its answer")))
    }

    /// Reads and throws away until the peer has closed too, or has had its time.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let lingering =
            self.lingering.get_or_insert_with(|| Lingering { over: Box::pin(sleep(LINGER)), thrown_away: 0 });
        let mut space = [0; 8 << 10];
        while lingering.thrown_away < LINGER_BYTES {
            let mut buffer = ReadBuf::new(&mut space);
            match Pin::new(&mut self.tcp).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    lingering.thrown_away += buffer.filled().len();
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return lingering.over.as_mut().poll(cx),
            }
        }
        Poll::Ready(())
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.tcp).poll_write(cx, bytes);
        self.watched(cx, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.tcp).poll_write_vectored(cx, slices);
        self.watched(cx, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingering.is_none() {
            ready!(Pin::new(&mut self.tcp).poll_shutdown(cx))?;
            self.seat.owes(Owed::Close);
        }
        ready!(self.poll_linger(cx));
        Poll::Ready(Ok(()))
    }
}
