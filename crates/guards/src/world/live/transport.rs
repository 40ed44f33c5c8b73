//! The way to an API server: TLS, HTTP/2 by ALPN, kube's authentication.
//!
//! kube's own connector (`kube-client` 5.0, `client/builder.rs`) offers HTTP/1.1 only: a connection for each request that is
//! under way, and for each watch. Here the same parts are put together with HTTP/2 offered first, so that everything one API
//! server is asked is streams of one connection. Left out on purpose: kube's retries (15 of them, on 429, 503 and 504: a review
//! has a deadline, and a watch a backoff of its own) and its read timeout (each request has its own limit).

use std::time::Duration;

use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client as HttpClient, Error as HttpError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::{Client, Config};
use rustls::pki_types::ServerName;
use tower::{BoxError, ServiceExt as _};

use super::access::with_sources;
use crate::config::Problem;

/// TCP and TLS together. On one continent a handshake takes well under a second; a review has some seconds in all.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// A connection whose other end is gone without a word (a node that lost power, a firewall that forgot) is noticed this long
/// after the last byte, and again this long after the ping: 20 s, so that it is gone before the watch's word is stale (75 s).
const PING_EVERY: Duration = Duration::from_secs(10);
const PONG_WITHIN: Duration = Duration::from_secs(10);

/// A client for `config`. Blocks while a credential plugin runs; must be called within a runtime, which runs its connections.
pub(super) fn client(config: &Config) -> Result<Client, Problem> {
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
    let http: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(PING_EVERY)
        .http2_keep_alive_timeout(PONG_WITHIN)
        .http2_keep_alive_while_idle(true)
        // A window that grows with the line: the fixed one of 64 KiB would make a List of many pages slow over a distance.
        .http2_adaptive_window(true)
        .build(connector);

    let inner = http.map_err(|error: HttpError| BoxError::from(error));
    let headers = config.extra_headers_layer().map_err(problem)?;
    let base = config.base_uri_layer();
    let builder = ClientBuilder::new(inner, config.default_namespace.clone()).with_layer(&headers);
    Ok(match config.auth_layer().map_err(problem)? {
        Some(auth) => builder.with_layer(&auth).with_layer(&base).build(),
        None => builder.with_layer(&base).build(),
    })
}
