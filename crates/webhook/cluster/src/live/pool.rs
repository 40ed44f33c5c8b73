//! The connections to one API server: TLS, HTTP/2 by ALPN, kube's authentication, and a limit of concurrent requests.
//!
//! kube's own connector (`kube-client` 5.0, `client/builder.rs`) offers HTTP/1.1 only, so each request and each watch would
//! need a connection. [`ConnectionPool`] combines the same parts with HTTP/2. Watches and single gets share one connection.
//! Requests to the clusters behind the API server use further connections, so that a thousand of those never delay a get. It
//! omits kube's retries (15 on 429, 503 and 504: a review has a deadline, and the reflector its own backoff) and kube's read
//! timeout (each request has its own).
//!
//! API servers accept 100 to 250 streams on a connection (`--http2-max-streams-per-connection`), and hyper hides the wait for
//! one. Here a request waits for a permit first. That wait does not count against the API server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use admission::BoxFuture;
use bytes::Bytes;
use futures_util::TryFutureExt as _;
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::{Request, Response, Version};
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::client::legacy::{Builder, Client as HttpClient};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Config;
use kube::client::{Body, ConfigExt as _};
use rustls::pki_types::ServerName;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt as _, service_fn};

use super::access::with_sources;
use super::failure::chain;
use super::http2_connection::{Http2Connection, PING_INTERVAL, PING_TIMEOUT};
use crate::lock;
use config::Problem;

/// Connections to an API server behind which a fleet may be. A thousand concurrent requests are enough for a thousand members
/// within two round trips, and ten connections from each of eight replicas stay few.
pub(crate) const FLEET_CONNECTIONS: usize = 10;

/// Requests on a connection at once: the streams that every API server accepts.
const REQUESTS_PER_CONNECTION: usize = 100;

/// Requests at once to an API server that speaks only HTTP/1.1, where each takes a connection.
const HTTP1_REQUESTS: usize = 48;

/// TCP and TLS together. On one continent a handshake takes well under a second; a review has some seconds in all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The permits of the requests to one API server.
#[derive(Debug)]
pub(crate) struct RequestLimiter {
    http2: Permits,
    http1: Permits,
    /// Whether the API server speaks only HTTP/1.1, as far as is known.
    is_http1: AtomicBool,
    /// Requests in flight on each HTTP/2 connection.
    load: Mutex<Vec<usize>>,
}

#[derive(Debug)]
struct Permits {
    free: Semaphore,
    max: usize,
}

/// The right to send one request, until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit<'l> {
    limiter: &'l RequestLimiter,
    /// `None` for HTTP/1.1.
    connection: Option<usize>,
    _permit: SemaphorePermit<'l>,
}

/// The body of a response.
pub(crate) type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;

/// A function that sends a request to one API server with its credentials. `kube::Client` would send it through a channel to
/// another task.
pub(crate) type Sender =
    Arc<dyn Fn(Request<Body>) -> BoxFuture<'static, Result<Response<ResponseBody>, BoxError>> + Send + Sync>;

/// All connections to one API server, each opened when it is first needed. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct ConnectionPool {
    /// For requests without a permit. In HTTP/1.1 each request has a connection of its own.
    pub(crate) shared: Sender,
    /// For requests with the permit of an HTTP/2 connection.
    pub(crate) http2: Arc<[Sender]>,
}

impl Permits {
    fn new(max: usize) -> Self {
        Self { free: Semaphore::new(max), max }
    }
}

impl RequestLimiter {
    /// A limiter for this many connections, at least one.
    pub(crate) fn new(connections: usize) -> Self {
        Self {
            http2: Permits::new(connections * REQUESTS_PER_CONNECTION),
            http1: Permits::new(HTTP1_REQUESTS),
            is_http1: AtomicBool::new(false),
            load: Mutex::new(vec![0; connections]),
        }
    }

    fn permits(&self) -> &Permits {
        if self.is_http1.load(Ordering::Relaxed) { &self.http1 } else { &self.http2 }
    }

    /// The number of concurrent requests.
    pub(crate) fn max_requests(&self) -> usize {
        self.permits().max
    }

    /// Waits for a permit, and assigns the connection with the fewest requests. Returns `None` at the deadline.
    pub(crate) async fn acquire(&self, deadline: Instant) -> Option<Permit<'_>> {
        let permits = self.permits();
        let permit = timeout_at(deadline, permits.free.acquire()).await.ok()?.ok()?;
        let is_http2 = std::ptr::eq(permits, &raw const self.http2);
        let connection = if is_http2 { Some(self.assign()?) } else { None };
        Some(Permit { limiter: self, connection, _permit: permit })
    }

    fn assign(&self) -> Option<usize> {
        let mut load = lock(&self.load);
        let (connection, count) = load.iter_mut().enumerate().min_by_key(|(_, count)| **count)?;
        *count += 1;
        Some(connection)
    }
}

impl Permit<'_> {
    /// Records the HTTP version of the answer, or that the API server refused HTTP/2. New connections offer HTTP/2 always, so
    /// a load balancer that speaks it again is noticed.
    pub(crate) fn record(&self, version: Version) {
        self.limiter.is_http1.store(version != Version::HTTP_2, Ordering::Relaxed);
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut load = lock(&self.limiter.load);
        if let Some(count) = self.connection.and_then(|at| load.get_mut(at)) {
            *count = count.saturating_sub(1);
        }
    }
}

/// Prepares the connections for `config`. Blocks while a credential plugin runs.
pub(crate) fn connect(config: &Config, connections: usize) -> Result<ConnectionPool, Problem> {
    let problem = |error: kube::Error| {
        let why = with_sources(&error);
        // These are words of rustls-webpki: src/error.rs, Error::UnsupportedCertVersion.
        let is_version_1 = why.contains("UnsupportedCertVersion");
        let problem = Problem::new(format!("the credentials for {}", config.cluster_url)).why(why);
        // OpenSSL 3.0 signs a request without extensions in this way, and other clients accept it.
        let next = "the client certificate has X.509 version 1; sign it with an extension, which makes it version 3: openssl x509 -req -extfile <(echo extendedKeyUsage=clientAuth)";
        if is_version_1 { problem.next(next) } else { problem }
    };
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error means that another thread installed it first.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
    let tls = config.rustls_client_config().map_err(problem)?;
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    let https = match &config.tls_server_name {
        None => https,
        Some(name) => {
            let name = ServerName::try_from(name.clone())
                .map_err(|error| Problem::new(format!("tls-server-name {name:?}")).why(error.to_string()))?;
            https.with_server_name_resolver(FixedServerNameResolver::new(name))
        }
    };
    let mut connector = TimeoutConnector::new(https.enable_all_versions().wrap_connector(tcp));
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));

    let only_http2 =
        connector.clone().map_result(|stream: Result<_, BoxError>| stream.and_then(require_http2));
    let layers = ServiceBuilder::new()
        .option_layer(config.auth_layer().map_err(problem)?)
        .layer(config.extra_headers_layer().map_err(problem)?);
    let http2 = (0..connections).map(|_| {
        let connection = Arc::new(Http2Connection::new(only_http2.clone(), config.cluster_url.clone()));
        sender(layers.service(service_fn(move |request| {
            let connection = Arc::clone(&connection);
            async move { Ok(boxed(connection.send(request).await?)) }
        })))
    });
    let http2 = http2.collect();
    let client = Arc::new(http_client().build(connector));
    let shared =
        sender(layers.service(service_fn(move |request| client.request(request).err_into().map_ok(boxed))));
    Ok(ConnectionPool { shared, http2 })
}

/// Returns a [`Sender`] that clones `service` for each request.
fn sender<S>(service: S) -> Sender
where
    S: Service<Request<Body>, Response = Response<ResponseBody>, Error = BoxError, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
{
    Arc::new(move |request| Box::pin(service.clone().oneshot(request)))
}

fn boxed(response: Response<Incoming>) -> Response<ResponseBody> {
    response.map(|body| body.map_err(BoxError::from).boxed_unsync())
}

fn http_client() -> Builder {
    let mut builder = HttpClient::builder(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .http2_keep_alive_while_idle(true);
    builder
}

/// The API server did not choose HTTP/2.
#[derive(Debug, thiserror::Error)]
#[error("the server does not speak HTTP/2")]
struct OnlyHttp1;

/// Fails unless the connection negotiated HTTP/2. hyper must know the version before the first byte, or a hundred concurrent
/// requests would open a connection each.
fn require_http2<S: Connection>(stream: S) -> Result<S, BoxError> {
    if stream.connected().is_negotiated_h2() { Ok(stream) } else { Err(Box::new(OnlyHttp1)) }
}

/// Whether a request was not sent because the API server does not speak HTTP/2.
pub(crate) fn is_only_http1(error: &(dyn std::error::Error + 'static)) -> bool {
    chain(error).any(<dyn std::error::Error>::is::<OnlyHttp1>)
}

impl ConnectionPool {
    /// Returns the connection of `permit`, or the shared one.
    pub(crate) fn of(&self, permit: Option<&Permit<'_>>) -> &Sender {
        let connection = permit.and_then(|permit| self.http2.get(permit.connection?));
        connection.unwrap_or(&self.shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(1)
    }

    #[tokio::test(start_paused = true)]
    async fn requests_spread_evenly_and_few_requests_open_few_connections() {
        let limiter = RequestLimiter::new(3);
        let first = limiter.acquire(soon()).await.unwrap();
        assert_eq!(first.connection, Some(0));
        drop(first);
        let mut held = Vec::new();
        for _ in 0..9 {
            held.push(limiter.acquire(soon()).await.unwrap());
        }
        for connection in 0..3 {
            assert_eq!(held.iter().filter(|permit| permit.connection == Some(connection)).count(), 3);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_a_permit_fails_at_its_deadline() {
        let limiter = RequestLimiter::new(1);
        let mut held = Vec::new();
        for _ in 0..limiter.max_requests() {
            held.push(limiter.acquire(soon()).await.unwrap());
        }
        assert!(limiter.acquire(soon()).await.is_none());
        let (permit, ()) = tokio::join!(limiter.acquire(soon()), async { drop(held.pop()) });
        assert!(permit.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn http1_has_a_permit_for_each_of_48_connections_until_an_answer_comes_in_http2() {
        let limiter = RequestLimiter::new(8);
        limiter.acquire(soon()).await.unwrap().record(Version::HTTP_11);
        let mut held = Vec::new();
        for _ in 0..HTTP1_REQUESTS {
            held.push(limiter.acquire(soon()).await.unwrap());
        }
        assert!(held.len() == 48 && held.iter().all(|permit| permit.connection.is_none()));
        assert!(limiter.acquire(soon()).await.is_none());
        held.pop().unwrap().record(Version::HTTP_2);
        assert_eq!(limiter.max_requests(), 8 * REQUESTS_PER_CONNECTION);
        assert!(limiter.acquire(soon()).await.unwrap().connection.is_some());
    }
}
