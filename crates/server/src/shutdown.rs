//! When to leave: asked once, the server drains; asked twice, it stops at once. Asked by signal, or by hand in demos and tests.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The server's ear. Dropping every [`Stop`] leaves it waiting for ever, which is what a server wants that nobody stops.
#[derive(Debug, Clone)]
pub struct Shutdown(watch::Receiver<u8>);

/// The hand that stops a server.
#[derive(Debug, Clone)]
pub struct Stop(watch::Sender<u8>);

/// How serving ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Stopped {
    /// Asked once, and everything in flight was answered.
    Clean,
    /// Asked once, and after `drain.finish` these connections were still busy and were cut.
    CutOff {
        /// How many.
        connections: usize,
    },
    /// Asked a second time: everything was dropped where it stood.
    Aborted,
}

impl Shutdown {
    /// Stopped by hand only.
    pub fn by_hand() -> (Stop, Self) {
        let (sender, receiver) = watch::channel(0);
        (Stop(sender), Self(receiver))
    }

    /// Stopped by SIGTERM or SIGINT, the second of either aborting. Must be called inside a tokio runtime, once per process.
    pub fn on_signals() -> io::Result<Self> {
        let (stop, shutdown) = Self::by_hand();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::spawn(async move {
            loop {
                let name = tokio::select! {
                    _ = terminate.recv() => "SIGTERM",
                    _ = interrupt.recv() => "SIGINT",
                };
                tracing::info!(signal = name, "asked to stop");
                stop.ask();
            }
        });
        Ok(shutdown)
    }

    /// Returns once the server was asked to leave.
    pub async fn asked(&mut self) {
        self.at_least(1).await;
    }

    /// Returns once the server was asked to leave twice.
    pub async fn asked_twice(&mut self) {
        self.at_least(2).await;
    }

    async fn at_least(&mut self, times: u8) {
        if self.0.wait_for(|asked| *asked >= times).await.is_err() {
            // Nobody is left who could ask.
            std::future::pending::<()>().await;
        }
    }
}

impl Stop {
    /// Asks the server to leave; asking again aborts.
    pub fn ask(&self) {
        self.0.send_modify(|asked| *asked = asked.saturating_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_ask_drains_and_the_second_aborts() {
        let (stop, mut shutdown) = Shutdown::by_hand();
        stop.ask();
        shutdown.asked().await;
        assert!(futures_are_pending(shutdown.asked_twice()).await);
        stop.ask();
        shutdown.asked_twice().await;
    }

    #[tokio::test]
    async fn a_dropped_hand_never_stops_a_server() {
        let (stop, mut shutdown) = Shutdown::by_hand();
        drop(stop);
        assert!(futures_are_pending(shutdown.asked()).await);
    }

    /// Whether a future has nothing to say when it is polled once.
    async fn futures_are_pending(future: impl Future<Output = ()>) -> bool {
        let mut future = Box::pin(future);
        std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx).is_pending())).await
    }
}
