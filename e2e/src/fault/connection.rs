//! The proxy's connections to clients.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, HeaderValue};
use http::uri::PathAndQuery;
use http::{Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

use super::answer::{Changed, Step};
use super::upstream::Upstream;
use super::{Entry, Fault, ProxyState};
use crate::certificates::Leaf;

type Body = UnsyncBoxBody<Bytes, anyhow::Error>;

/// A page of the API server is far smaller; a larger answer fails.
const LARGEST: usize = 64 << 20;

/// Returns a TLS acceptor that offers these protocols.
pub(crate) fn acceptor(leaf: &Leaf, protocols: &[&str]) -> Result<TlsAcceptor> {
    let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes())?;
    let chain = vec![CertificateDer::from_pem_slice(leaf.certificate.as_bytes())?];
    let mut tls = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
    tls.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Ok(TlsAcceptor::from(Arc::new(tls)))
}

/// Accepts connections as long as the runtime lives.
pub(super) async fn accept(
    listener: TcpListener,
    tls: TlsAcceptor,
    upstream: Upstream,
    state: Arc<ProxyState>,
) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Probably there are no file descriptors left.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        if let Some(mut ended) = state.mute() {
            tokio::spawn(async move {
                while ended.changed().await.is_ok() {}
                drop(stream);
            });
            continue;
        }
        // The client sees an error of its connection.
        tokio::spawn(connection(stream, tls.clone(), upstream.clone(), Arc::clone(&state)));
    }
}

async fn connection(
    stream: TcpStream,
    tls: TlsAcceptor,
    upstream: Upstream,
    state: Arc<ProxyState>,
) -> Result<()> {
    stream.set_nodelay(true)?;
    let stream = stream.into_std()?;
    // The same socket, to set how it closes; hyper has the other handle.
    let socket = stream.try_clone()?;
    let stream = tls.accept(TcpStream::from_std(stream)?).await?;
    let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let reset = Arc::new(Notify::new());
    let service = service_fn(|request: Request<Incoming>| {
        let (upstream, state, reset) = (upstream.clone(), Arc::clone(&state), Arc::clone(&reset));
        async move {
            let rule = state.rule(&request);
            if let Ok(answer) = answer(request, &upstream, rule.as_deref()).await {
                return Ok::<_, Infallible>(answer);
            }
            reset.notify_one();
            std::future::pending().await
        }
    });
    let stream = TokioIo::new(stream);
    let served = async {
        if is_h2 {
            http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await
        } else {
            http1::Builder::new().serve_connection(stream, service).await
        }
    };
    tokio::select! {
        served = served => served?,
        () = reset.notified() => SockRef::from(&socket).set_linger(Some(Duration::ZERO))?,
    }
    Ok(())
}

/// Returns the answer to one request. An error resets the connection, so an API server that is down looks like one that
/// breaks connections.
async fn answer(
    request: Request<Incoming>,
    upstream: &Upstream,
    rule: Option<&Entry>,
) -> Result<Response<Body>> {
    let Some(rule) = rule else { return pass(request, upstream).await };
    match &rule.fault {
        Fault::Reset => Err(anyhow!("reset")),
        Fault::Silence => {
            rule.ended().await;
            Err(anyhow!("the rule has ended"))
        }
        Fault::Slow(by) => {
            tokio::time::sleep(*by).await;
            pass(request, upstream).await
        }
        fault => match fault.step(request.uri().query().unwrap_or_default()) {
            Step::Say(answer) => Ok(answer.map(whole)),
            Step::Change => change(request, upstream, fault).await,
        },
    }
}

async fn pass(request: Request<Incoming>, upstream: &Upstream) -> Result<Response<Body>> {
    let answer = upstream.ask(request).await?;
    Ok(answer.map(|body| body.map_err(anyhow::Error::from).boxed_unsync()))
}

/// Requests the true answer, uncompressed and from its first page, and changes it. Errors of the API server are not
/// changed.
async fn change(
    mut request: Request<Incoming>,
    upstream: &Upstream,
    fault: &Fault,
) -> Result<Response<Body>> {
    request.headers_mut().remove(ACCEPT_ENCODING);
    *request.uri_mut() = from_the_first_page(request.uri())?;
    let (mut head, body) = upstream.ask(request).await?.into_parts();
    let truth = http_body_util::Limited::new(body, LARGEST)
        .collect()
        .await
        .map_err(|error| anyhow!("the answer that was to be changed: {error}"))?
        .to_bytes();
    if !head.status.is_success() {
        return Ok(Response::from_parts(head, whole(truth)));
    }
    let Changed { body, claimed } = fault.of(truth);
    head.headers.insert(CONTENT_LENGTH, HeaderValue::from(claimed.unwrap_or(body.len())));
    let body = if claimed.is_some() { broken(body) } else { whole(body) };
    Ok(Response::from_parts(head, body))
}

/// Removes `continue=…`.
fn from_the_first_page(uri: &Uri) -> Result<Uri> {
    let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.starts_with("continue="));
    let query = pairs.collect::<Vec<_>>().join("&");
    let path = uri.path();
    let asked: PathAndQuery =
        if query.is_empty() { path.parse()? } else { format!("{path}?{query}").parse()? };
    let mut parts = http::uri::Parts::default();
    parts.path_and_query = Some(asked);
    Ok(Uri::from_parts(parts)?)
}

fn whole(body: Bytes) -> Body {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}

/// A body that breaks off.
fn broken(body: Bytes) -> Body {
    let frames = [Ok(Frame::data(body)), Err(anyhow!("broken off"))];
    StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync()
}
