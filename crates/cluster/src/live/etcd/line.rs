//! The connections to one member, and what goes over them: HTTP/1.1 to an address, never to a name, without proxies; a redirect is
//! an answer like any other.
//!
//! HTTP/1.1 because a member serves gRPC and its gateway on one port, and tells them apart by what is asked; so a question that
//! hangs holds one connection and no other question.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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

use super::broken::broken;
use super::trust::User;
use crate::cause;
use crate::etcd::Endpoint;
use crate::live::body::{Bytes, Room};
use crate::live::failure::{Failure, brief};

/// A connection whose making goes on while nobody waits for it any more.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// A verdict asks several times within a second; after that the next one may be days away.
const IDLE_FOR: Duration = Duration::from_secs(60);

/// As many questions as one review asks of one member at a time.
const IDLE_AT_MOST: usize = 4;

/// What stands in place of an answer is a sentence.
pub(super) const LIMIT: usize = 1 << 20;

type Connector = TimeoutConnector<HttpsConnector<HttpConnector>>;

/// The way to one member.
pub(super) struct Line {
    http: HttpClient<Connector, Full<bytes::Bytes>>,
    base: String,
    at: SocketAddr,
    /// What TLS it was made with, to be made anew when that changes.
    pub(super) trust: Option<Arc<ClientConfig>>,
    known: Mutex<Known>,
    /// One login at a time: the others wait for its token.
    pub(super) login: tokio::sync::Mutex<()>,
}

/// What questions have found out about the member.
#[derive(Default)]
pub(super) struct Known {
    /// Under which prefix its gateway is.
    pub(super) prefix: Option<&'static str>,
    /// When it had none.
    pub(super) had_none: Option<Instant>,
    pub(super) token: Option<Token>,
    /// Who was not let in, when, and what it said.
    pub(super) not_let_in: Option<(Arc<User>, Instant, Cause)>,
}

/// That somebody is logged in.
#[derive(Clone)]
pub(super) struct Token {
    pub(super) of: Arc<User>,
    pub(super) text: HeaderValue,
}

/// An answer, whatever it is.
pub(super) struct Said {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

impl Line {
    /// Nothing is connected yet.
    pub(super) fn new(
        peer: &Endpoint,
        address: IpAddr,
        trust: Option<Arc<ClientConfig>>,
    ) -> Result<Self, Cause> {
        let tls = peer.client.tls.as_ref();
        let name = match tls.and_then(|tls| tls.server_name.as_ref()) {
            None => ServerName::from(address),
            Some(name) => ServerName::try_from(name.clone()).map_err(|_| {
                let text = format!("{:?} is no name that a certificate could have", brief(name));
                Cause::new(cause::TLS, text)
            })?,
        };
        let at = SocketAddr::new(address, peer.port);
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // Without TLS nothing of it is used: the address says http.
        let config = match &trust {
            Some(config) => ClientConfig::clone(config),
            None => nobody()?,
        };
        let https = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http();
        let https = https.with_server_name_resolver(FixedServerNameResolver::new(name));
        let mut connector = TimeoutConnector::new(https.enable_http1().wrap_connector(tcp));
        connector.set_connect_timeout(Some(CONNECT_WITHIN));
        let http = HttpClient::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_FOR)
            .pool_max_idle_per_host(IDLE_AT_MOST)
            .build(connector);
        let scheme = if trust.is_some() { "https" } else { "http" };
        let (known, login) = (Mutex::default(), tokio::sync::Mutex::default());
        Ok(Self { http, base: format!("{scheme}://{at}"), at, trust, known, login })
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `GET`, of what needs no login.
    pub(super) async fn get(&self, path: &str, limit: usize, room: &Room) -> Result<Said, Cause> {
        self.send(&Method::GET, path, "", None, limit, room).await
    }

    /// `POST` of JSON.
    pub(super) async fn post(
        &self,
        path: &str,
        body: &str,
        token: Option<&HeaderValue>,
        room: &Room,
    ) -> Result<Said, Cause> {
        self.send(&Method::POST, path, body, token, LIMIT, room).await
    }

    async fn send(
        &self,
        method: &Method,
        path: &str,
        body: &str,
        token: Option<&HeaderValue>,
        limit: usize,
        room: &Room,
    ) -> Result<Said, Cause> {
        let broken = |error: &(dyn std::error::Error + 'static)| broken(error, self.at, self.trust.is_some());
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request.body(Full::from(body.to_owned())).map_err(|error| {
            Cause::new(cause::REFUSED, format!("it cannot be asked: {}", brief(&error.to_string())))
        })?;
        let response = self.http.request(request).await.map_err(|error| broken(&error))?;
        let status = response.status();
        let limit = if status == StatusCode::OK { limit } else { limit.min(LIMIT) };
        let failed = |error: &(dyn std::error::Error + 'static)| {
            let Cause { code, text } = broken(error);
            Failure::new(code, text)
        };
        let body = room.collect(response.into_body(), limit, failed).await;
        Ok(Said { status, body: body.map_err(|failure| failure.cause)? })
    }
}

/// A TLS that trusts nobody.
fn nobody() -> Result<ClientConfig, Cause> {
    let builder =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|error| Cause::new(cause::TLS, error.to_string()))?;
    Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}
