//! The phases of a shutdown, as connections and the pipeline see them.

use tokio::sync::watch;

/// A phase of the server's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DrainPhase {
    Serving,
    /// Every answer closes its connection.
    LameDuck,
    /// Idle connections are closed too.
    Draining,
}

/// Reports the phase to all connections.
#[derive(Debug)]
pub(crate) struct DrainSignal(watch::Sender<DrainPhase>);

/// Reads the phase.
#[derive(Debug, Clone)]
pub(crate) struct DrainWatch(watch::Receiver<DrainPhase>);

impl DrainSignal {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(DrainPhase::Serving))
    }

    /// Makes every answer close its connection.
    pub(crate) fn start_lame_duck(&self) {
        self.0.send_replace(DrainPhase::LameDuck);
    }

    /// Makes idle connections close.
    pub(crate) fn start_drain(&self) {
        self.0.send_replace(DrainPhase::Draining);
    }

    pub(crate) fn watch(&self) -> DrainWatch {
        DrainWatch(self.0.subscribe())
    }
}

impl DrainWatch {
    /// Returns whether answers close their connections.
    pub(crate) fn closes_connections(&self) -> bool {
        *self.0.borrow() != DrainPhase::Serving
    }

    /// Returns when the server drains.
    pub(crate) async fn drained(&mut self) {
        if self.0.wait_for(|phase| *phase == DrainPhase::Draining).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
