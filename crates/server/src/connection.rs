//! One connection: handshake, then requests one after the other, until the peer leaves, is quiet for too long, or the server
//! leaves.
//!
//! hyper's own `header_read_timeout` also runs while a connection is idle, sets a timer for every request, and cannot tell the
//! first head from the later ones. Here one timer per connection does all of it and is moved only when it fires.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use arc_swap::ArcSwap;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::drain::drains;
use crate::house::Seated;
use crate::metrics::Door;
use crate::pipeline::Pipeline;
use crate::settings::Timeouts;
use crate::shortened::in_line;
use crate::socket::Socket;
use crate::tls::{Greeting, proving};

/// The most that hyper buffers of one connection, and the least that it takes. Heads of the API server are below 1 kB; bodies
/// pass through in pieces, and each connection with one under way holds a buffer.
const READ_BUFFER: usize = 8 << 10;
/// How long a connection that is told to end may take over it before it is dropped.
const GOODBYE: Duration = Duration::from_secs(2);

/// What all connections share.
pub(crate) struct Connections {
    pub(crate) greeting: Arc<ArcSwap<Greeting>>,
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) timeouts: Timeouts,
    pub(crate) numbers: Door,
}

impl Connections {
    /// Serves one connection from accept to its end.
    pub(crate) async fn serve(
        &self,
        tcp: TcpStream,
        peer: SocketAddr,
        leaving: watch::Receiver<bool>,
        seated: &Seated,
    ) {
        // Answers are written in one go; waiting for more to send with them only costs time.
        if let Err(error) = tcp.set_nodelay(true) {
            tracing::debug!(%peer, reason = %error, "TCP_NODELAY cannot be set");
        }
        let socket = Socket::new(tcp, self.timeouts.write_stall, Arc::clone(seated.seat()));
        let stream = tokio::select! {
            biased;
            stream = self.handshake(socket, peer) => stream,
            () = seated.is_to_leave() => {
                self.numbers.connections_made_room.inc();
                None
            }
        };
        if let Some(stream) = stream {
            self.requests(stream, peer, leaving, seated).await;
        }
    }

    async fn handshake(&self, socket: Socket, peer: SocketAddr) -> Option<TlsStream<Socket>> {
        let greeting = self.greeting.load_full();
        let acceptor = TlsAcceptor::from(Arc::clone(&greeting.config));
        let handshake = timeout(self.timeouts.handshake, acceptor.accept(socket));
        let (reason, text) = match proving(handshake).await {
            (Ok(Ok(stream)), proved) => {
                let shown = stream.get_ref().1.peer_certificates();
                if let Some(presented) = greeting.presented(shown, proved) {
                    self.numbers.count_client_certificate(presented);
                }
                return Some(stream);
            }
            (Ok(Err(error)), _) => (failure(&error), error.to_string()),
            (Err(_), _) => ("timeout", "the handshake took too long".to_owned()),
        };
        self.numbers.count_handshake_failed(reason);
        let text = in_line(&text);
        let text = text.as_ref();
        match reason {
            // Load balancers and port probes connect and leave; that is no news.
            "hung_up" => tracing::debug!(%peer, reason, text, "TLS handshake failed"),
            OUR_CERTIFICATE_REFUSED => tracing::warn!(
                %peer,
                reason,
                text,
                "a caller does not trust our certificate: does the caBundle of its webhook configuration fit it?"
            ),
            _ => tracing::info!(%peer, reason, text, "TLS handshake failed"),
        }
        None
    }

    async fn requests(
        &self,
        stream: TlsStream<Socket>,
        peer: SocketAddr,
        mut leaving: watch::Receiver<bool>,
        seated: &Seated,
    ) {
        let Timeouts { first_header, idle, .. } = self.timeouts;
        let seat = seated.seat();
        let service = service_fn(|request| {
            let (pipeline, seat) = (Arc::clone(&self.pipeline), Arc::clone(seat));
            seat.begin();
            async move {
                let response = pipeline.answer(request, peer).await;
                seat.end();
                Ok::<_, Infallible>(response)
            }
        });
        let mut http = http1::Builder::new();
        http.max_buf_size(READ_BUFFER);
        let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
        let mut timer = pin!(sleep_until(Instant::now() + first_header));
        let (mut told_to_leave, mut ending) = (false, false);
        loop {
            tokio::select! {
                biased;
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        self.ended(&error, peer);
                    }
                    return;
                }
                () = timer.as_mut() => {
                    let now = Instant::now();
                    match seat.ends_at(first_header, idle) {
                        None => timer.as_mut().reset(now + idle),
                        Some(later) if !ending && !told_to_leave && later > now => timer.as_mut().reset(later),
                        _ if ending => return,
                        _ => {
                            ending = true;
                            connection.as_mut().graceful_shutdown();
                            timer.as_mut().reset(now + GOODBYE);
                        }
                    }
                }
                () = seated.is_to_leave() => {
                    self.numbers.connections_made_room.inc();
                    connection.as_mut().graceful_shutdown();
                    // The goodbye is written in one go. What a silent peer makes of it nobody waits for: the seat is needed.
                    let mut goodbye = connection.as_mut();
                    std::future::poll_fn(|cx| {
                        let _ = goodbye.as_mut().poll(cx);
                        Poll::Ready(())
                    })
                    .await;
                    return;
                }
                () = drains(&mut leaving), if !told_to_leave => {
                    told_to_leave = true;
                    if seat.is_fresh() {
                        // Its first request may be on the way; the answer will end the connection.
                        timer.as_mut().reset(Instant::now() + GOODBYE);
                    } else {
                        connection.as_mut().graceful_shutdown();
                    }
                }
            }
        }
    }
}

impl Connections {
    /// What is no HTTP never reaches the pipeline: hyper answers it by itself, with an empty body, and says so only here. 400 is
    /// a head that cannot be read, a `Content-Length` that is no number or stands there twice with two values; 431 a head past
    /// [`READ_BUFFER`] or a hundred fields, and also a `Content-Length` from 2^64 - 2 up, which hyper cannot tell from its own
    /// marks for a body without one. Everything below that comes to the pipeline and is 413.
    fn ended(&self, error: &hyper::Error, peer: SocketAddr) {
        if !error.is_parse() {
            tracing::debug!(%peer, reason = %error, "connection ended");
            return;
        }
        self.numbers.count_refused("http");
        tracing::info!(
            target: "durward::refused",
            peer = %peer,
            status = if error.is_parse_too_large() { 431 } else { 400 },
            reason = "http",
            text = in_line(&error.to_string()).as_ref(),
            "request refused"
        );
    }
}

/// What a Go client's alert means when the caBundle does not fit.
const OUR_CERTIFICATE_REFUSED: &str = "our_certificate_refused";

/// Why a handshake failed: the label of `durward_handshakes_failed_total`.
fn failure(error: &std::io::Error) -> &'static str {
    use rustls::{AlertDescription as Alert, Error};

    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match tls {
        None => "hung_up",
        Some(Error::AlertReceived(
            Alert::BadCertificate
            | Alert::UnknownCA
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnsupportedCertificate,
        )) => OUR_CERTIFICATE_REFUSED,
        Some(Error::NoCertificatesPresented | Error::InvalidCertificate(_)) => "client_certificate",
        Some(_) => "protocol",
    }
}
