//! Shutdown requests, by signal or by a handle. The first one drains the server, the second one stops it at once.

use std::io;

#[cfg(unix)]
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Receives shutdown requests. If every [`ShutdownHandle`] is dropped, the server runs forever.
#[derive(Debug, Clone)]
pub struct Shutdown(watch::Receiver<u8>);

/// Requests a shutdown.
#[derive(Debug, Clone)]
pub struct ShutdownHandle(watch::Sender<u8>);

/// How the server stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Stopped {
    /// Every request in flight was answered.
    Clean,
    /// Some connections were still busy after `shutdown.timeout` and were closed.
    CutOff {
        /// Their number.
        connections: usize,
    },
    /// A second shutdown request closed all connections.
    Aborted,
}

impl Shutdown {
    /// Creates a shutdown that only the handle requests.
    pub fn manual() -> (ShutdownHandle, Self) {
        let (sender, receiver) = watch::channel(0);
        (ShutdownHandle(sender), Self(receiver))
    }

    /// Creates a shutdown that SIGTERM or SIGINT requests. Call it once per process, inside a tokio runtime.
    #[cfg(unix)]
    pub fn on_signals() -> io::Result<Self> {
        let (handle, shutdown) = Self::manual();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::spawn(async move {
            loop {
                let name = tokio::select! {
                    _ = terminate.recv() => "SIGTERM",
                    _ = interrupt.recv() => "SIGINT",
                };
                tracing::info!(signal = name, "stop signal received");
                handle.request();
            }
        });
        Ok(shutdown)
    }

    /// Creates a shutdown that Ctrl-C requests. Call it once per process, inside a tokio runtime.
    #[cfg(windows)]
    pub fn on_signals() -> io::Result<Self> {
        let (handle, shutdown) = Self::manual();
        let mut interrupt = tokio::signal::windows::ctrl_c()?;
        tokio::spawn(async move {
            while interrupt.recv().await.is_some() {
                handle.request();
            }
        });
        Ok(shutdown)
    }

    /// Returns after the first request.
    pub async fn requested(&mut self) {
        self.at_least(1).await;
    }

    /// Returns after the second request.
    pub async fn forced(&mut self) {
        self.at_least(2).await;
    }

    async fn at_least(&mut self, requests: u8) {
        if self.0.wait_for(|count| *count >= requests).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl ShutdownHandle {
    /// Requests a shutdown. A second request aborts.
    pub fn request(&self) {
        self.0.send_modify(|count| *count = count.saturating_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_request_drains_and_the_second_aborts() {
        let (handle, mut shutdown) = Shutdown::manual();
        handle.request();
        shutdown.requested().await;
        assert!(is_pending(shutdown.forced()).await);
        handle.request();
        shutdown.forced().await;
    }

    #[tokio::test]
    async fn a_dropped_handle_never_stops_a_server() {
        let (handle, mut shutdown) = Shutdown::manual();
        drop(handle);
        assert!(is_pending(shutdown.requested()).await);
    }

    async fn is_pending(future: impl Future<Output = ()>) -> bool {
        let mut future = Box::pin(future);
        std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx).is_pending())).await
    }
}
