//! How the server leaves, as two facts that connections look at: from now on each answer ends its connection, and from now on
//! idle connections are ended too.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

/// How far the server is on its way out.
#[derive(Debug)]
pub(crate) struct Leaving {
    closes: AtomicBool,
    drains: watch::Sender<bool>,
}

impl Leaving {
    pub(crate) fn new() -> Self {
        Self { closes: AtomicBool::new(false), drains: watch::Sender::new(false) }
    }

    /// From here on every answer carries `Connection: close`.
    pub(crate) fn close_connections(&self) {
        self.closes.store(true, Ordering::Relaxed);
    }

    /// Whether every answer carries `Connection: close`.
    pub(crate) fn closes_connections(&self) -> bool {
        self.closes.load(Ordering::Relaxed)
    }

    /// From here on connections end as soon as they are idle.
    pub(crate) fn drain(&self) {
        self.drains.send_replace(true);
    }

    /// For a connection to hear of it.
    pub(crate) fn listen(&self) -> watch::Receiver<bool> {
        self.drains.subscribe()
    }
}

/// Returns once the server drains.
pub(crate) async fn drains(listener: &mut watch::Receiver<bool>) {
    if listener.wait_for(|drains| *drains).await.is_err() {
        std::future::pending::<()>().await;
    }
}
