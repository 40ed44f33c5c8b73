//! One HTTP/2 connection to an API server, opened when it is first needed, and again after it ended.
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
use tower::{BoxError, Service, ServiceExt as _};

use crate::lock;

/// A connection whose peer vanished without a FIN (power loss, a firewall that forgot it) closes 20 s after the last byte,
/// before the watch cache becomes stale (75 s).
pub(super) const PING_INTERVAL: Duration = Duration::from_secs(10);
pub(super) const PING_TIMEOUT: Duration = Duration::from_secs(10);

type Opened = Result<SendRequest<Body>, NotOpened>;

/// The connection.
pub(super) struct Http2Connection<C> {
    connector: C,
    server: Uri,
    latest: Mutex<Option<Shared<BoxFuture<'static, Opened>>>>,
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
            match latest.as_ref().map(|opening| (opening, opening.peek())) {
                Some((_, Some(Ok(connection)))) if !connection.is_closed() => {
                    return Ok((connection.clone(), true));
                }
                Some((opening, None)) => opening.clone(),
                Some((_, Some(_))) | None => {
                    // A task of its own, so that a caller that gives up does not stop it for the others.
                    let opening = tokio::spawn(open(self.connector.clone(), self.server.clone()));
                    let opened =
                        opening.map(|opened| opened.unwrap_or_else(|error| Err(NotOpened(Arc::new(error)))));
                    latest.insert(opened.boxed().shared()).clone()
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
