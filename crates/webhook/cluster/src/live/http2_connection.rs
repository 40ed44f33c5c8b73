//! One HTTP/2 connection to an API server, opened when it is first needed, and again after it ended or is too old.
//!
//! Requests that need the connection while it is opened share the attempt and its failure. hyper-util's client would look up the
//! connection of each request in a pool by scheme and host, and a verdict over a fleet sends thousands of requests.

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use admission::BoxFuture;
use futures_util::FutureExt as _;
use futures_util::future::Shared;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::rt::{Read, Write};
use hyper::{Request, Response, Uri};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::Body;
use tokio::time::Instant;
use tower::{BoxError, Service, ServiceExt as _};

use crate::lock;

/// A connection whose peer vanished without a FIN (power loss, a firewall that forgot it) closes 20 s after the last byte,
/// before the watch cache becomes stale (75 s).
pub(super) const PING_INTERVAL: Duration = Duration::from_secs(10);
pub(super) const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection is replaced at this age. The name of an API server can lead to another cluster by then, while the old one still
/// answers. Pings and probes would keep the connection in use forever.
const MAX_AGE: Duration = Duration::from_secs(300);

type Opened = Result<SendRequest<Body>, NotOpened>;

/// The connection.
pub(super) struct Http2Connection<C> {
    connector: C,
    server: Uri,
    latest: Mutex<Option<Opening>>,
}

/// An attempt to open the connection, and its result.
struct Opening {
    since: Instant,
    opened: Shared<BoxFuture<'static, Opened>>,
}

/// The connection could not be opened. Every request that waited for it gets the same error.
#[derive(Debug, Clone)]
struct NotOpened(Arc<dyn Error + Send + Sync>);

impl std::fmt::Display for NotOpened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the connection could not be opened")
    }
}

impl Error for NotOpened {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

impl<C> Http2Connection<C>
where
    C: Service<Uri, Response: Read + Write + Unpin + Send + 'static, Error = BoxError, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
{
    pub(super) fn new(connector: C, server: Uri) -> Self {
        Self { connector, server, latest: Mutex::default() }
    }

    /// Sends a request. If the connection ends before the request is sent, a new connection is opened.
    pub(super) async fn send(&self, mut request: Request<Body>) -> Result<Response<Incoming>, BoxError> {
        loop {
            let (mut connection, was_open) = self.connection().await?;
            let mut error = match connection.try_send_request(request).await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            match error.take_message() {
                Some(unsent) if was_open => request = unsent,
                _ => return Err(error.into_error().into()),
            }
        }
    }

    /// Returns the connection, and whether it was already open.
    async fn connection(&self) -> Result<(SendRequest<Body>, bool), NotOpened> {
        let opening = {
            let mut latest = lock(&self.latest);
            match latest.as_ref().map(|opening| (opening, opening.opened.peek())) {
                Some((opening, Some(Ok(connection))))
                    if !connection.is_closed() && opening.since.elapsed() < MAX_AGE =>
                {
                    return Ok((connection.clone(), true));
                }
                Some((opening, None)) => opening.opened.clone(),
                Some((_, Some(_))) | None => {
                    // A task of its own, so that a caller that gives up does not stop it for the others.
                    let opening = tokio::spawn(open(self.connector.clone(), self.server.clone()));
                    let opened =
                        opening.map(|opened| opened.unwrap_or_else(|error| Err(NotOpened(Arc::new(error)))));
                    let opened = opened.boxed().shared();
                    latest.insert(Opening { since: Instant::now(), opened }).opened.clone()
                }
            }
        };
        Ok((opening.await?, false))
    }
}

async fn open<C>(connector: C, server: Uri) -> Opened
where
    C: Service<Uri, Response: Read + Write + Unpin + Send + 'static, Error = BoxError>,
{
    let stream = connector.oneshot(server).await.map_err(|error| NotOpened(error.into()))?;
    let mut http = Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true);
    let (sender, connection) = http.handshake(stream).await.map_err(|error| NotOpened(Arc::new(error)))?;
    // The task ends when all senders are dropped, or the connection ends. Its error reaches the requests.
    tokio::spawn(connection);
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hyper::service::service_fn as http_service;
    use hyper_util::rt::TokioIo;
    use tokio::time::sleep;
    use tower::service_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_replaced_at_its_maximum_age_although_pings_are_answered() {
        let opened = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&opened);
        let connector = service_fn(move |_: Uri| {
            count.fetch_add(1, Ordering::Relaxed);
            let (client, server) = tokio::io::duplex(1 << 16);
            let answer = http_service(|_: Request<Incoming>| async {
                Ok::<_, Infallible>(Response::new(Body::empty()))
            });
            let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(http.serve_connection(TokioIo::new(server), answer));
            futures_util::future::ready(Ok::<_, BoxError>(TokioIo::new(client)))
        });
        let connection = Http2Connection::new(connector, Uri::from_static("https://m1"));
        let send = || connection.send(Request::get("https://m1/api").body(Body::empty()).unwrap());
        for (wait, expected) in [(0, 1), (299, 1), (2, 2), (299, 2), (300, 3)] {
            sleep(Duration::from_secs(wait)).await;
            assert!(send().await.unwrap().status().is_success());
            assert_eq!(opened.load(Ordering::Relaxed), expected, "after {wait} s more");
        }
    }
}
