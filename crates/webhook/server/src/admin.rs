//! The metrics port, without TLS and read-only: for kubelet and Prometheus.
//!
//! A connection has one request and ten seconds. At the [limit](crate::connection_limit) one is closed, so that idle
//! connections do not keep kubelet out, which would restart the pod.
//!
//! Every pod can reach this port. The reasons of checks name clusters, objects and files, so only a caller on loopback
//! gets them, for example `kubectl port-forward`. The log has them too.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::ready;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::checks::{Checks, ChecksReport};
use crate::connection_limit::ConnectionLimit;
use crate::listener::accept_forever;
use crate::metrics::{self, Metrics};
use crate::socket::Socket;

/// Limit of a connection's time.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit of connections to the port. Kubelet needs two and Prometheus one.
const MAX_CONNECTIONS: usize = 256;

/// An answer.
pub(crate) struct AdminResponse {
    status: StatusCode,
    media_type: &'static str,
    text: String,
    allow: Option<&'static str>,
}

impl AdminResponse {
    fn plain(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, media_type: "text/plain; charset=utf-8", text: text.into(), allow: None }
    }

    fn wrong_method(allow: &'static str) -> Self {
        let text = format!("method not allowed; use {allow}\n");
        Self { allow: Some(allow), ..Self::plain(StatusCode::METHOD_NOT_ALLOWED, text) }
    }

    fn response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(Bytes::from(self.text)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.media_type));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let nosniff = HeaderName::from_static("x-content-type-options");
        headers.insert(nosniff, HeaderValue::from_static("nosniff"));
        if let Some(allow) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        response
    }
}

/// Serves the port until it is dropped.
pub(crate) async fn serve(listener: Arc<TcpListener>, port: Arc<MetricsPort>) {
    let limit = ConnectionLimit::new("metrics", MAX_CONNECTIONS);
    let mut tasks = JoinSet::new();
    let serve = |tcp, peer: SocketAddr| {
        let (limit, port) = (Arc::clone(&limit), Arc::clone(&port));
        async move {
            let Some(permit) = limit.acquire(peer) else { return };
            let state = permit.state();
            let service = service_fn(|request| {
                state.begin_request();
                let response = port.respond(&request, peer).response();
                state.end_request();
                ready(Ok::<_, Infallible>(response))
            });
            let mut http = http1::Builder::new();
            http.keep_alive(false).max_buf_size(16 << 10);
            let socket = Socket::new(tcp, CONNECTION_TIMEOUT);
            let connection = http.serve_connection(TokioIo::new(socket), service);
            tokio::select! {
                biased;
                _ = timeout(CONNECTION_TIMEOUT, connection) => {}
                () = permit.replaced() => {}
            }
        }
    };
    match accept_forever(listener.as_ref(), &mut tasks, port.metrics.server(), serve).await {}
}

/// Serves `/livez` (also as `/healthz`, its older name), `/readyz` and `/metrics`.
pub(crate) struct MetricsPort {
    pub(crate) checks: Checks,
    pub(crate) metrics: Metrics,
}

impl MetricsPort {
    fn respond(&self, request: &Request<Incoming>, peer: SocketAddr) -> AdminResponse {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return AdminResponse::wrong_method("GET, HEAD");
        }
        let verbose = request.uri().query().is_some_and(|query| {
            query.split('&').any(|pair| pair == "verbose" || pair.starts_with("verbose="))
        });
        let is_loopback = peer.ip().to_canonical().is_loopback() && is_local(request.headers());
        match request.uri().path() {
            // The same runtime answers reviews, so an answer shows that it is alive.
            "/livez" | "/healthz" if verbose => {
                AdminResponse::plain(StatusCode::OK, "[+]ping ok\nlivez check passed\n")
            }
            "/livez" | "/healthz" => AdminResponse::plain(StatusCode::OK, "ok"),
            "/readyz" => readyz(self.checks.readiness(), verbose, is_loopback),
            "/metrics" => AdminResponse {
                media_type: metrics::CONTENT_TYPE,
                ..AdminResponse::plain(StatusCode::OK, self.metrics.encode())
            },
            path => match path.strip_prefix("/readyz/") {
                Some(name) => self.check(name, is_loopback),
                None => AdminResponse::plain(
                    StatusCode::NOT_FOUND,
                    "not found; paths are /livez, /readyz (?verbose lists every check), /readyz/<check> and /metrics\n",
                ),
            },
        }
    }

    fn check(&self, name: &str, is_loopback: bool) -> AdminResponse {
        if let Some(readiness) = self.checks.readiness_of(name) {
            return readyz(readiness, true, is_loopback);
        }
        let mut text = "unknown check; checks are:\n".to_owned();
        for name in self.checks.names() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name}");
        }
        AdminResponse::plain(StatusCode::NOT_FOUND, text)
    }
}

/// Answers like kube-apiserver: `ok`, or all checks if one has failed or the query contains `verbose`.
fn readyz(readiness: ChecksReport, verbose: bool, is_loopback: bool) -> AdminResponse {
    let ChecksReport { ready, text, public_text } = readiness;
    let text = if is_loopback { text } else { public_text };
    match ready {
        true if !verbose => AdminResponse::plain(StatusCode::OK, "ok"),
        true => AdminResponse::plain(StatusCode::OK, text),
        false => AdminResponse::plain(StatusCode::SERVICE_UNAVAILABLE, text),
    }
}

/// Returns whether `Host` is a loopback name. A web page whose name resolves to loopback can send requests here, but only with
/// its own name in `Host`.
fn is_local(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    matches!(name, "localhost" | "127.0.0.1" | "[::1]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_are_local() {
        for (host, expected) in [
            ("localhost:8081", true),
            ("127.0.0.1:8081", true),
            ("[::1]:8081", true),
            ("[::1]", true),
            ("localhost", true),
            ("evil.example:8081", false),
            ("localhost.evil.example", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static(host));
            assert_eq!(is_local(&headers), expected, "{host}");
        }
    }
}
