//! The connections to one member: HTTP/1.1 to an IP address, without proxies. Redirects are not followed.
//!
//! HTTP/1.1 because a member serves gRPC and its gateway on one port and selects by the protocol. A request that hangs blocks one
//! connection and no other request.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use admission::Cause;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::time::Instant;

use super::credentials::User;
use super::errors::connection_failure;
use crate::etcd::Endpoint;
use crate::live::body::{BodyReader, Bytes};
use crate::live::{Failure, brief};
use crate::{cause, lock};

/// TCP and TLS together. Connecting continues if the caller is dropped.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A verdict sends several requests within a second. The next verdict may be days away.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The concurrent requests of one review to one member.
const MAX_IDLE: usize = 4;

/// 1 MiB, for every answer but metrics.
pub(super) const LIMIT: usize = 1 << 20;

type Connector = TimeoutConnector<HttpsConnector<HttpConnector>>;

/// The connections to one member.
pub(super) struct Connection {
    http: HttpClient<Connector, Full<bytes::Bytes>>,
    base: String,
    at: SocketAddr,
    /// The TLS configuration. The connection is replaced when it changes.
    pub(super) tls: Option<Arc<ClientConfig>>,
    known: Mutex<Known>,
    /// Serializes logins: other requests wait for the token.
    pub(super) login: tokio::sync::Mutex<()>,
}

/// State of the member that earlier requests found.
#[derive(Default)]
pub(super) struct Known {
    /// The prefix of its gateway.
    pub(super) prefix: Option<&'static str>,
    /// When it had no gateway.
    pub(super) no_gateway_at: Option<Instant>,
    pub(super) token: Option<Token>,
    /// The last failed login: user, time and cause.
    pub(super) failed_login: Option<(Arc<User>, Instant, Cause)>,
}

/// The token of a login.
#[derive(Clone)]
pub(super) struct Token {
    pub(super) of: Arc<User>,
    pub(super) text: HeaderValue,
}

/// A response.
pub(super) struct Response {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

impl Connection {
    /// Connects to nothing yet.
    pub(super) fn new(
        endpoint: &Endpoint,
        address: IpAddr,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<Self, Cause> {
        let server_name = endpoint.client.tls.as_ref().and_then(|tls| tls.server_name.as_ref());
        let name = match server_name {
            None => ServerName::from(address),
            Some(name) => ServerName::try_from(name.clone()).map_err(|_| {
                let text = format!("{:?} is not a valid name in a certificate", brief(name));
                Cause::new(cause::TLS, text)
            })?,
        };
        let at = SocketAddr::new(address, endpoint.port);
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // Plain HTTP does not use it.
        let config = match &tls {
            Some(config) => ClientConfig::clone(config),
            None => no_roots()?,
        };
        let https = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http();
        let https = https.with_server_name_resolver(FixedServerNameResolver::new(name));
        let mut connector = TimeoutConnector::new(https.enable_http1().wrap_connector(tcp));
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let http = HttpClient::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(MAX_IDLE)
            .build(connector);
        let scheme = if tls.is_some() { "https" } else { "http" };
        let (known, login) = (Mutex::default(), tokio::sync::Mutex::default());
        Ok(Self { http, base: format!("{scheme}://{at}"), at, tls, known, login })
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.known)
    }

    /// Sends a GET that needs no login.
    pub(super) async fn get(&self, path: &str, limit: usize, bodies: &BodyReader) -> Result<Response, Cause> {
        self.send(&Method::GET, path, "", None, limit, bodies).await
    }

    /// Posts JSON.
    pub(super) async fn post(
        &self,
        path: &str,
        body: &str,
        token: Option<&HeaderValue>,
        bodies: &BodyReader,
    ) -> Result<Response, Cause> {
        self.send(&Method::POST, path, body, token, LIMIT, bodies).await
    }

    async fn send(
        &self,
        method: &Method,
        path: &str,
        body: &str,
        token: Option<&HeaderValue>,
        limit: usize,
        bodies: &BodyReader,
    ) -> Result<Response, Cause> {
        let broken = |error: &(dyn std::error::Error + 'static)| {
            connection_failure(error, self.at, self.tls.is_some())
        };
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request.body(Full::from(body.to_owned())).map_err(|error| {
            Cause::new(cause::REFUSED, format!("invalid request: {}", brief(&error.to_string())))
        })?;
        let response = self.http.request(request).await.map_err(|error| broken(&error))?;
        let status = response.status();
        let limit = if status == StatusCode::OK { limit } else { limit.min(LIMIT) };
        let failed = |error: &(dyn std::error::Error + 'static)| {
            let Cause { code, text, .. } = broken(error);
            Failure::new(code, text)
        };
        let body = bodies.read(response.into_body(), limit, bodies.memory(), failed).await;
        Ok(Response { status, body: body.map_err(|failure| failure.cause)? })
    }
}

/// A TLS configuration without CAs.
fn no_roots() -> Result<ClientConfig, Cause> {
    let builder =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|error| Cause::new(cause::TLS, error.to_string()))?;
    Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}
