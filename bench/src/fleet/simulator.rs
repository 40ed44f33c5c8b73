//! A simulated Karmada control plane with members: HTTP/2 over TLS, 100 streams for each connection, every answer delayed by a
//! round trip. It counts requests. Answers are prepared, so that it costs little CPU time.

use std::convert::Infallible;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep_until};
use tokio_rustls::TlsAcceptor;

use super::answers::{Answer, Answers};
use super::{DELAY, Shape};
use crate::Result;
use crate::servers::Folder;

/// The smallest limit that API servers have in practice (`--http2-max-streams-per-connection`; the default is 250, later 1,000).
const STREAMS: u32 = 100;

/// A simulated control plane. It stops when this is dropped.
pub(super) struct Simulator {
    pub(super) kubeconfig: PathBuf,
    counts: Arc<Counts>,
    _runtime: Runtime,
}

/// Counts of requests and connections.
#[derive(Default)]
struct Counts {
    requests: AtomicUsize,
    open: AtomicUsize,
    most: AtomicUsize,
}

impl Simulator {
    pub(super) fn start(shape: Shape, folder: &Folder) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let answers = Arc::new(Answers::new(shape));
        let counts = Arc::<Counts>::default();
        let tls = acceptor(folder)?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let kubeconfig = kubeconfig(folder, listener.local_addr()?)?;
        runtime.spawn(accept(listener, tls, answers, Arc::clone(&counts)));
        Ok(Self { kubeconfig, counts, _runtime: runtime })
    }

    /// Returns the number of requests.
    pub(super) fn requests(&self) -> usize {
        self.counts.requests.load(Ordering::Relaxed)
    }

    /// Returns the peak number of open connections.
    pub(super) fn connections(&self) -> usize {
        self.counts.most.load(Ordering::Relaxed)
    }
}

/// Returns HTTP/2 over TLS with the directory's certificate.
fn acceptor(folder: &Folder) -> Result<TlsAcceptor> {
    let certificate = CertificateDer::from_pem_file(folder.certificate())?;
    let key = PrivateKeyDer::from_pem_file(folder.file("tls.key"))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(tls)))
}

/// Writes a kubeconfig as JSON, which is valid YAML.
fn kubeconfig(folder: &Folder, address: SocketAddr) -> Result<PathBuf> {
    let path = folder.file("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "karmada",
        "contexts": [{"name": "karmada", "context": {"cluster": "karmada", "user": "durward"}}],
        "clusters": [{"name": "karmada", "cluster": {"server": format!("https://{address}"), "certificate-authority": folder.certificate()}}],
        "users": [{"name": "durward", "user": {"token": "a-token-as-long-as-tokens-in-tests-are"}}],
    });
    fs::write(&path, config.to_string())?;
    Ok(path)
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, answers: Arc<Answers>, counts: Arc<Counts>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(connection(stream, tls.clone(), Arc::clone(&answers), Arc::clone(&counts)));
    }
}

/// Serves a connection. Its client can close it at any time.
async fn connection(
    stream: TcpStream,
    tls: TlsAcceptor,
    answers: Arc<Answers>,
    counts: Arc<Counts>,
) -> Result<()> {
    stream.set_nodelay(true)?;
    let open = counts.open.fetch_add(1, Ordering::Relaxed) + 1;
    counts.most.fetch_max(open, Ordering::Relaxed);
    let _closed = Closed(Arc::clone(&counts));
    let stream = tls.accept(stream).await?;
    let service = service_fn(|request: Request<Incoming>| {
        let due = Instant::now() + DELAY;
        // The first request of each client only opens its connection.
        if request.uri().path() != "/version" {
            counts.requests.fetch_add(1, Ordering::Relaxed);
        }
        let answers = Arc::clone(&answers);
        async move {
            let wants_metadata =
                |value: &HeaderValue| value.as_bytes().windows(17).any(|part| part == b"as=PartialObjectM");
            let accepts_metadata = request.headers().get(ACCEPT).is_some_and(wants_metadata);
            let query = request.uri().query().unwrap_or_default();
            let Answer::Say(code, body) = answers.to(request.uri().path(), query, accepts_metadata) else {
                return std::future::pending().await;
            };
            sleep_until(due).await;
            Ok::<_, Infallible>(respond(code, body))
        }
    });
    let mut server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    server.max_concurrent_streams(STREAMS);
    Ok(server.serve_connection(TokioIo::new(stream), service).await?)
}

struct Closed(Arc<Counts>);

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns a response with the headers of an API server.
fn respond(code: u16, body: Bytes) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in [
        (CONTENT_TYPE, "application/json"),
        (CACHE_CONTROL, "no-cache, private"),
        (HeaderName::from_static("audit-id"), "8f4f0f5e-36b8-4f4c-a1c5-5f2f0d8c8a51"),
        (HeaderName::from_static("x-kubernetes-pf-flowschema-uid"), "5c2e2a1f-2d4a-49f5-a0bb-3f2d5f5a4c1d"),
        (
            HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid"),
            "0d1f4b7c-5f0b-41d8-9e34-7d5a9b6c2e8f",
        ),
    ] {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}
