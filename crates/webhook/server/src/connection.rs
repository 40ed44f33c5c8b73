//! Serves one connection: the TLS handshake, then one request after another, until the peer closes, a timeout passes, or the
//! server stops.
//!
//! hyper's `header_read_timeout` also runs while a connection is idle, sets a timer for every request, and does not
//! distinguish the first head from later ones. Here one timer per connection covers all of it. It is moved only when it fires.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::connection_limit::Permit;
use crate::drain::DrainWatch;
use crate::metrics::ServerMetrics;
use crate::pipeline::{Caller, Pipeline};
use crate::settings::Timeouts;
use crate::socket::Socket;
use crate::text::for_log;
use crate::tls::{OtherName, client_names};

/// Limit of hyper's read buffer, which is also the smallest that hyper accepts. Heads of the API server are below 1 kB, and
/// bodies pass through in pieces. Each connection with a request holds a buffer.
const READ_BUFFER: usize = 8 << 10;

/// The parts that all connections share.
pub(crate) struct SharedParts {
    pub(crate) tls: Arc<ArcSwap<ServerConfig>>,
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) timeouts: Timeouts,
    pub(crate) metrics: ServerMetrics,
}

impl SharedParts {
    /// Serves a connection until it ends.
    pub(crate) async fn serve(&self, tcp: TcpStream, peer: SocketAddr, drain: DrainWatch, permit: &Permit) {
        // An answer is written at once, so delaying it only costs time.
        if let Err(error) = tcp.set_nodelay(true) {
            tracing::debug!(%peer, reason = %error, "TCP_NODELAY cannot be set");
        }
        let socket = Socket::new(tcp, self.timeouts.write_stall);
        let stream = tokio::select! {
            biased;
            stream = self.handshake(socket, peer) => stream,
            () = permit.replaced() => {
                self.metrics.idle_connections_closed.inc();
                None
            }
        };
        if let Some((stream, certificate)) = stream {
            let caller = Caller { peer, certificate };
            self.serve_requests(stream, &caller, drain, permit).await;
        }
    }

    /// Returns the stream, and the names of the verified client certificate.
    async fn handshake(
        &self,
        socket: Socket,
        peer: SocketAddr,
    ) -> Option<(TlsStream<Socket>, Option<String>)> {
        let tls = self.tls.load_full();
        let handshake = timeout(self.timeouts.handshake, TlsAcceptor::from(tls).accept(socket));
        let (reason, text) = match handshake.await {
            Ok(Ok(stream)) => {
                let names = client_names(stream.get_ref().1.peer_certificates());
                return Some((stream, names));
            }
            Ok(Err(error)) => (failure_reason(&error), error.to_string()),
            Err(_) => ("timeout", "the handshake timed out".to_owned()),
        };
        self.metrics.count_handshake_failed(reason);
        let text = for_log(&text);
        let text = text.as_ref();
        match reason {
            // Load balancers and port probes connect and close.
            "hung_up" => tracing::debug!(%peer, reason, text, "TLS handshake failed"),
            OUR_CERTIFICATE_REFUSED => tracing::warn!(
                %peer,
                reason,
                text,
                "the caller does not trust the serving certificate; check the caBundle of the webhook configuration"
            ),
            _ => tracing::info!(%peer, reason, text, "TLS handshake failed"),
        }
        None
    }

    async fn serve_requests(
        &self,
        stream: TlsStream<Socket>,
        caller: &Caller,
        mut drain: DrainWatch,
        permit: &Permit,
    ) {
        let Timeouts { first_header, idle, close, .. } = self.timeouts;
        let state = permit.state();
        let service = service_fn(|request| {
            state.begin_request();
            async {
                let response = self.pipeline.answer(request, caller, state).await;
                state.end_request();
                Ok::<_, Infallible>(response)
            }
        });
        let mut http = http1::Builder::new();
        http.max_buf_size(READ_BUFFER);
        let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
        let mut timer = pin!(sleep_until(Instant::now() + first_header));
        let (mut is_draining, mut is_closing) = (false, false);
        loop {
            tokio::select! {
                biased;
                end = connection.as_mut() => {
                    if let Err(error) = end {
                        self.log_error(&error, caller);
                    }
                    return;
                }
                () = timer.as_mut() => {
                    let now = Instant::now();
                    match state.times_out_at(first_header, idle) {
                        None => timer.as_mut().reset(now + idle),
                        Some(later) if !is_closing && !is_draining && later > now => timer.as_mut().reset(later),
                        _ if is_closing => return,
                        _ => {
                            is_closing = true;
                            connection.as_mut().graceful_shutdown();
                            timer.as_mut().reset(now + close);
                        }
                    }
                }
                () = permit.replaced() => {
                    self.metrics.idle_connections_closed.inc();
                    // hyper closes an idle connection when it is polled again, and answers a whole request. It would wait for the
                    // rest of a head or a body, and for a peer that doesn't read its answer.
                    connection.as_mut().graceful_shutdown();
                    if state.is_waiting() {
                        drop(timeout(Duration::ZERO, connection).await);
                        return;
                    }
                }
                () = drain.drained(), if !is_draining => {
                    is_draining = true;
                    if state.is_new() {
                        // The first request may be on the way. Its answer closes the connection.
                        timer.as_mut().reset(Instant::now() + close);
                    } else {
                        connection.as_mut().graceful_shutdown();
                    }
                }
            }
        }
    }

    /// Logs an error of the connection. hyper answers invalid HTTP itself, with an empty body, and reports it only here. It
    /// answers 400 to a head that it cannot parse and to a `Content-Length` that is not a number or has two values. It answers
    /// 431 to a head above [`READ_BUFFER`] or a hundred fields, and to a `Content-Length` from 2^64 - 2. A smaller
    /// `Content-Length` reaches the pipeline, which answers 413.
    fn log_error(&self, error: &hyper::Error, caller: &Caller) {
        if !error.is_parse() {
            tracing::debug!(peer = %caller.peer, reason = %error, "connection ended");
            return;
        }
        self.metrics.count_refused("http");
        tracing::info!(
            target: "durward::refused",
            peer = %caller.peer,
            client = caller.certificate().as_deref(),
            status = if error.is_parse_too_large() { 431 } else { 400 },
            reason = "http",
            text = for_log(&error.to_string()).as_ref(),
            "request refused"
        );
    }
}

/// Reason of a handshake that a Go client ended by an alert, because the caBundle does not fit.
const OUR_CERTIFICATE_REFUSED: &str = "our_certificate_refused";

/// Returns why a handshake failed: the label of `durward_handshakes_failed_total`.
fn failure_reason(error: &std::io::Error) -> &'static str {
    use rustls::{AlertDescription as Alert, CertificateError, Error};

    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        None => "hung_up",
        Some(Error::AlertReceived(
            Alert::BadCertificate
            | Alert::UnknownCA
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnsupportedCertificate,
        )) => OUR_CERTIFICATE_REFUSED,
        Some(Error::InvalidCertificate(CertificateError::Other(other))) if other.0.is::<OtherName>() => {
            "other_name"
        }
        Some(Error::NoCertificatesPresented | Error::InvalidCertificate(_)) => "client_certificate",
        Some(_) => "protocol",
    }
}
