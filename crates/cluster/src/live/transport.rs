//! The way to an API server: TLS, HTTP/2 by ALPN, kube's authentication.
//!
//! kube's own connector (`kube-client` 5.0, `client/builder.rs`) offers HTTP/1.1 only: a connection for each request that is
//! under way, and for each watch. Here the same parts are put together with HTTP/2 offered first, so that what one API server
//! is asked is streams of few connections: one for watches and single look-ups, and beside it as many [`Lane`]s as were asked
//! for, so that a thousand questions to a fleet never stand before a look-up. Left out on purpose: kube's retries (15 of them,
//! on 429, 503 and 504: a review has a deadline, and a watch a backoff of its own) and its read timeout (each request has its
//! own limit).

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use admission::BoxFuture;
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::{Connect, Connection, HttpConnector};
use hyper_util::client::legacy::{Builder, Client as HttpClient};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::{Client, Config};
use rustls::pki_types::ServerName;
use tower::{BoxError, Service, ServiceExt as _};

use super::access::with_sources;
use config::Problem;

/// TCP and TLS together. On one continent a handshake takes well under a second; a review has some seconds in all.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// A connection whose other end is gone without a word (a node that lost power, a firewall that forgot) is noticed this long
/// after the last byte, and again this long after the ping: 20 s, so that it is gone before the watch's word is stale (75 s).
const PING_EVERY: Duration = Duration::from_secs(10);
const PONG_WITHIN: Duration = Duration::from_secs(10);

/// On a request: by which lane it goes, which is HTTP/2 or nothing ([`is_only_http1`]). Without, it goes by the connection of
/// watches and look-ups, or in HTTP/1.1 by one of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lane(pub(super) usize);

/// A client for `config`. Blocks while a credential plugin runs; must be called within a runtime, which runs its connections.
pub(super) fn client(config: &Config, lanes: usize) -> Result<Client, Problem> {
    let problem = |error: kube::Error| {
        Problem::new(format!("the credentials for {}", config.cluster_url)).why(with_sources(&error))
    };
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error says that somebody else was quicker, which is as good.
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
    connector.set_connect_timeout(Some(CONNECT_WITHIN));

    let only_http2 = connector.clone().map_result(|stream: Result<_, BoxError>| stream.and_then(negotiated));
    let lanes = (0..lanes).map(|_| pool().http2_only(true).build(only_http2.clone())).collect();
    let streets = Streets { own: pool().build(connector), lanes };
    let headers = config.extra_headers_layer().map_err(problem)?;
    let base = config.base_uri_layer();
    let builder = ClientBuilder::new(streets, config.default_namespace.clone()).with_layer(&headers);
    Ok(match config.auth_layer().map_err(problem)? {
        Some(auth) => builder.with_layer(&auth).with_layer(&base).build(),
        None => builder.with_layer(&base).build(),
    })
}

fn pool() -> Builder {
    let mut builder = HttpClient::builder(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(PING_EVERY)
        .http2_keep_alive_timeout(PONG_WITHIN)
        .http2_keep_alive_while_idle(true)
        // A window that grows with the line: the fixed one of 64 KiB would make a List of many pages slow over a distance.
        .http2_adaptive_window(true);
    builder
}

/// The server did not choose HTTP/2.
#[derive(Debug, thiserror::Error)]
#[error("the server does not speak HTTP/2")]
struct OnlyHttp1;

/// A lane's connection is one that all its questions share; hyper must know so before the first byte, or a hundred questions
/// that come at once each begin a connection of their own.
fn negotiated<S: Connection>(stream: S) -> Result<S, BoxError> {
    if stream.connected().is_negotiated_h2() { Ok(stream) } else { Err(Box::new(OnlyHttp1)) }
}

/// Whether a request by a lane came to nothing because the server does not speak HTTP/2.
pub(super) fn is_only_http1(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<OnlyHttp1>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// All connections to one API server, each made when it is first needed.
#[derive(Clone)]
struct Streets<C, L> {
    own: HttpClient<C, Body>,
    lanes: Arc<[HttpClient<L, Body>]>,
}

impl<C, L> Service<Request<Body>> for Streets<C, L>
where
    C: Connect + Clone + Send + Sync + 'static,
    L: Connect + Clone + Send + Sync + 'static,
{
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Incoming>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let lane = request.extensions().get::<Lane>().and_then(|&Lane(lane)| self.lanes.get(lane));
        if let Some(lane) = lane {
            let lane = lane.clone();
            return Box::pin(async move { lane.request(request).await.map_err(Into::into) });
        }
        let own = self.own.clone();
        Box::pin(async move { own.request(request).await.map_err(Into::into) })
    }
}
