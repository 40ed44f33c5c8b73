//! A TCP stream that lingers before it closes and that limits stalled writes.
//!
//! After the last byte, the stream reads and discards input for a moment. A request can be answered before its body was read
//! (413, 503). Closing with unread bytes makes the kernel send a reset, and a reset discards an answer that the peer has not
//! read yet.
//!
//! A peer that takes no byte of its answer for `write_stall` is disconnected.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// How long the peer has to close its side. A client that has read `Connection: close` does so at once.
const LINGER: Duration = Duration::from_secs(1);
/// Limit of discarded input: two bodies of the largest size.
const LINGER_BYTES: usize = 20 << 20;

/// The stream.
pub(crate) struct Socket {
    tcp: TcpStream,
    write_stall: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
    lingering: Option<Lingering>,
}

struct Lingering {
    until: Pin<Box<Sleep>>,
    discarded: usize,
}

impl Socket {
    pub(crate) fn new(tcp: TcpStream, write_stall: Duration) -> Self {
        Self { tcp, write_stall, stalled: None, lingering: None }
    }

    /// Fails a write that stays pending for `write_stall`.
    fn limit_stall<T>(&mut self, cx: &mut Context<'_>, write: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if write.is_ready() {
            self.stalled = None;
            return write;
        }
        let stall = self.write_stall;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(stall)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read its response")))
    }

    /// Discards input until the peer closes, or a limit is reached.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let lingering =
            self.lingering.get_or_insert_with(|| Lingering { until: Box::pin(sleep(LINGER)), discarded: 0 });
        let mut space = [0; 8 << 10];
        while lingering.discarded < LINGER_BYTES {
            let mut buffer = ReadBuf::new(&mut space);
            match Pin::new(&mut self.tcp).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    lingering.discarded += buffer.filled().len();
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return lingering.until.as_mut().poll(cx),
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
        let write = Pin::new(&mut self.tcp).poll_write(cx, bytes);
        self.limit_stall(cx, write)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.tcp).poll_write_vectored(cx, slices);
        self.limit_stall(cx, write)
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
        }
        ready!(self.poll_linger(cx));
        Poll::Ready(Ok(()))
    }
}
