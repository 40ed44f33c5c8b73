//! Accepts connections, come what may: an error of `accept` (too few file descriptors, a peer that left at once) is counted
//! and the next one is waited for. A server that ends because of one connection serves nobody.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinError, JoinSet};
use tokio::time::sleep;

use crate::caught::said;
use crate::metrics::Door;
use crate::shortened::in_line;

/// After an error that will not be gone at once, and doubled up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// Long enough to let others close files, short against a webhook's ten seconds.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Where connections come from.
pub(crate) trait Source: Send {
    /// The next one.
    fn accept(&mut self) -> impl Future<Output = io::Result<(TcpStream, SocketAddr)>> + Send;
}

impl Source for &TcpListener {
    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        TcpListener::accept(self).await
    }
}

/// Accepts for ever; each connection is handed to `take`, which either gives a task for `tasks` or turns it away. Tasks that
/// have ended are cleared away on the side.
pub(crate) async fn accept_for_ever<S, T, F>(
    mut source: S,
    tasks: &mut JoinSet<()>,
    door: &Door,
    mut take: T,
) -> std::convert::Infallible
where
    S: Source,
    T: FnMut(TcpStream, SocketAddr) -> Option<F>,
    F: Future<Output = ()> + Send + 'static,
{
    let mut pause = FIRST_PAUSE;
    loop {
        let accepted = tokio::select! {
            accepted = source.accept() => accepted,
            Some(ended) = tasks.join_next() => {
                tell_panic(ended, door);
                continue;
            }
        };
        match accepted {
            Ok((tcp, peer)) => {
                pause = FIRST_PAUSE;
                if let Some(task) = take(tcp, peer) {
                    tasks.spawn(task);
                }
            }
            Err(error) if is_the_peers(&error) => {
                door.accept_errors.inc();
            }
            Err(error) => {
                door.accept_errors.inc();
                tracing::error!(reason = %error, "a connection cannot be accepted; trying again in {pause:?}");
                sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// A task of a connection that ended by a panic: its caller was not answered, and here is where that is seen.
pub(crate) fn tell_panic(ended: Result<(), JoinError>, door: &Door) {
    if let Err(error) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        door.connection_panics.inc();
        tracing::error!(panic = in_line(&said(panic.as_ref())).as_ref(), "a connection ended by a panic");
    }
}

/// Errors that belong to one connection and say nothing about the next.
fn is_the_peers(error: &io::Error) -> bool {
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

    /// Errors first, then a real listener.
    struct Faulty(Vec<i32>, TcpListener);

    impl Source for Faulty {
        async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
            match self.0.pop() {
                Some(code) => Err(io::Error::from_raw_os_error(code)),
                None => self.1.accept().await,
            }
        }
    }

    #[tokio::test]
    async fn an_error_of_accept_is_counted_and_the_next_connection_is_served() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).await.unwrap();
        let door = Door::default();
        let mut tasks = JoinSet::new();
        // EMFILE, ENFILE and a peer that left.
        let source = Faulty(vec![24, 23, 103], listener);
        let (served, mut was_served) = tokio::sync::mpsc::unbounded_channel();
        let take = |_, peer: SocketAddr| {
            let served = served.clone();
            Some(async move { served.send(peer).unwrap() })
        };
        tokio::select! {
            never = accept_for_ever(source, &mut tasks, &door, take) => match never {},
            got = was_served.recv() => assert_eq!(got, Some(client.local_addr().unwrap())),
        }
        assert_eq!(door.accept_errors.get(), 3);
    }
}
