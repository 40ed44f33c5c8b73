//! Accepts connections and spawns a task for each. An error of `accept` (too few file descriptors, a peer that left at once) is
//! counted, and the listener continues.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use prometheus_client::metrics::counter::Counter;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::metrics::ServerMetrics;
use crate::pipeline::panic_message;
use crate::text::for_log;

/// First delay after an error that is not about one connection. Doubled up to [`MAX_BACKOFF`].
const MIN_BACKOFF: Duration = Duration::from_millis(10);
/// Long enough for other connections to close files, short compared with a webhook's ten seconds.
const MAX_BACKOFF: Duration = Duration::from_secs(1);

/// A source of connections.
pub(crate) trait Listener: Send {
    /// Returns the next connection.
    fn accept(&mut self) -> impl Future<Output = io::Result<(TcpStream, SocketAddr)>> + Send;
}

impl Listener for &TcpListener {
    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        TcpListener::accept(self).await
    }
}

/// Accepts connections forever and spawns the future that `serve` returns for each into `tasks`.
pub(crate) async fn accept_forever<L, S, F>(
    mut listener: L,
    tasks: &mut JoinSet<()>,
    metrics: &ServerMetrics,
    mut serve: S,
) -> Infallible
where
    L: Listener,
    S: FnMut(TcpStream, SocketAddr) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let mut backoff = MIN_BACKOFF;
    loop {
        match listener.accept().await {
            Ok((tcp, peer)) => {
                backoff = MIN_BACKOFF;
                // The end of a connection does not wake this task, so the tasks of ended connections are removed here.
                remove_ended(tasks);
                tasks.spawn(count_panic(serve(tcp, peer), metrics.connection_panics.clone()));
            }
            Err(error) if is_of_connection(&error) => {
                metrics.accept_errors.inc();
            }
            Err(error) => {
                metrics.accept_errors.inc();
                tracing::error!(reason = %error, "accept failed; retrying in {backoff:?}");
                sleep(backoff).await;
                backoff = (backoff * 2).min(MAX_BACKOFF);
            }
        }
    }
}

/// Removes the tasks of ended connections.
pub(crate) fn remove_ended(tasks: &mut JoinSet<()>) {
    while tasks.try_join_next().is_some() {}
}

/// Runs the future of a connection. If it panics, the caller gets no answer, so the panic is logged and counted.
async fn count_panic(connection: impl Future<Output = ()>, panics: Counter) {
    if let Err(panic) = AssertUnwindSafe(connection).catch_unwind().await {
        panics.inc();
        let message = panic_message(panic.as_ref());
        tracing::error!(panic = for_log(&message).as_ref(), "a connection panicked");
    }
}

/// Returns whether the error concerns one connection only.
fn is_of_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns errors first, then connections of a listener.
    struct Faulty(Vec<i32>, TcpListener);

    impl Listener for Faulty {
        async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
            match self.0.pop() {
                Some(code) => Err(io::Error::from_raw_os_error(code)),
                None => self.1.accept().await,
            }
        }
    }

    #[tokio::test]
    async fn counts_errors_of_accept_and_serves_the_next_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let metrics = ServerMetrics::default();
        let mut tasks = JoinSet::new();
        // EMFILE, ENFILE and a peer that left.
        let faulty = Faulty(vec![24, 23, 103], listener);
        let (served, mut is_served) = tokio::sync::mpsc::unbounded_channel();
        let serve = |_, peer: SocketAddr| {
            let served = served.clone();
            async move { served.send(peer).unwrap() }
        };
        tokio::select! {
            never = accept_forever(faulty, &mut tasks, &metrics, serve) => match never {},
            peer = is_served.recv() => assert_eq!(peer, Some(client.local_addr().unwrap())),
        }
        assert_eq!(metrics.accept_errors.get(), 3);
    }

    #[tokio::test]
    async fn counts_a_connection_that_panics_and_removes_ended_ones() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let metrics = ServerMetrics::default();
        let mut tasks = JoinSet::new();
        let (served, mut is_served) = tokio::sync::mpsc::unbounded_channel();
        let serve = |_, _| {
            served.send(()).unwrap();
            async { panic!("broken") }
        };
        let connect = async {
            for _ in 0..20 {
                let _connection = TcpStream::connect(address).await.unwrap();
                is_served.recv().await;
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            never = accept_forever(&listener, &mut tasks, &metrics, serve) => match never {},
            () = connect => {}
        }
        assert!(tasks.len() < 20, "{}", tasks.len());
        while tasks.join_next().await.is_some_and(|end| end.is_ok()) {}
        assert!(tasks.is_empty());
        assert_eq!(metrics.connection_panics.get(), 20);
    }
}
