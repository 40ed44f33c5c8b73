//! A member on a loopback port, with or without TLS. It returns the answers of a test, and records the requests.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tonic::Code;

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Heard {
    /// `Maintenance/Status`.
    pub(super) call: String,
    body: Bytes,
    pub(super) token: String,
}

impl Heard {
    pub(super) fn message<M: Message + Default>(&self) -> M {
        M::decode(&self.body[5..]).unwrap()
    }
}

/// The answer.
#[derive(Debug, Clone)]
pub(super) enum Say {
    /// A message, so many times.
    Messages(Vec<u8>, usize),
    Refusal(Code, String),
    /// The answer of another program.
    Http(u16, String),
    /// A message of this length, of which one byte is missing.
    Truncated(u32),
    /// No answer; the connection stays open.
    Nothing,
    /// No answer; the connection closes.
    Close,
}

pub(super) fn say(message: &impl Message) -> Say {
    Say::Messages(message.encode_to_vec(), 1)
}

pub(super) fn refuse(code: Code, text: &str) -> Say {
    Say::Refusal(code, text.to_owned())
}

/// Returns the answer for a request.
pub(super) type Script = dyn Fn(&Heard) -> Say + Send + Sync;

/// The member.
pub(super) struct FakeMember {
    pub(super) address: SocketAddr,
    heard: Arc<Mutex<Vec<Heard>>>,
    script: Arc<Mutex<Arc<Script>>>,
    tls: Arc<Mutex<Option<TlsAcceptor>>>,
}

impl FakeMember {
    /// Without TLS.
    pub(super) async fn plain(script: impl Fn(&Heard) -> Say + Send + Sync + 'static) -> Self {
        Self::start(None, script).await
    }

    /// With this certificate. With a CA for clients, it requires a client certificate of that CA.
    pub(super) async fn tls(
        own: &Issued,
        clients: Option<&Authority>,
        script: impl Fn(&Heard) -> Say + Send + Sync + 'static,
    ) -> Self {
        Self::start(Some(acceptor(own, clients)), script).await
    }

    async fn start(
        acceptor: Option<TlsAcceptor>,
        script: impl Fn(&Heard) -> Say + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heard = Arc::<Mutex<Vec<Heard>>>::default();
        let script: Arc<Mutex<Arc<Script>>> = Arc::new(Mutex::new(Arc::new(script)));
        let tls = Arc::new(Mutex::new(acceptor));
        let (received, current, acceptors) = (Arc::clone(&heard), Arc::clone(&script), Arc::clone(&tls));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (received, current) = (Arc::clone(&received), Arc::clone(&current));
                let acceptor = acceptors.lock().unwrap().clone();
                tokio::spawn(async move {
                    match acceptor {
                        None => serve(stream, received, current).await,
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                serve(stream, received, current).await;
                            }
                        }
                    }
                });
            }
        });
        Self { address, heard, script, tls }
    }

    /// Replaces the answers.
    pub(super) fn says(&self, script: impl Fn(&Heard) -> Say + Send + Sync + 'static) {
        *self.script.lock().unwrap() = Arc::new(script);
    }

    /// Uses this certificate for new connections.
    pub(super) fn shows(&self, own: &Issued) {
        *self.tls.lock().unwrap() = Some(acceptor(own, None));
    }

    /// Returns the requests since the last call.
    pub(super) fn heard(&self) -> Vec<Heard> {
        std::mem::take(&mut *self.heard.lock().unwrap())
    }

    /// Returns only the calls of these requests.
    pub(super) fn calls(&self) -> Vec<String> {
        self.heard().into_iter().map(|heard| heard.call).collect()
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    received: Arc<Mutex<Vec<Heard>>>,
    current: Arc<Mutex<Arc<Script>>>,
) {
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (received, current) = (Arc::clone(&received), Arc::clone(&current));
        async move {
            let call = request.uri().path().trim_start_matches("/etcdserverpb.").to_owned();
            let token = request.headers().get("token").map_or("", |value| value.to_str().unwrap()).to_owned();
            let body = request.into_body().collect().await.map_err(|_| "gone")?.to_bytes();
            let heard = Heard { call, body, token };
            received.lock().unwrap().push(heard.clone());
            let script = Arc::clone(&current.lock().unwrap());
            answer(script(&heard)).await
        }
    });
    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

type Frames = StreamBody<futures_util::stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>>>;

async fn answer(say: Say) -> Result<Response<Frames>, &'static str> {
    let response = Response::builder().header("content-type", "application/grpc");
    let prefixed = |length: u32, bytes: &[u8]| [&[0][..], &length.to_be_bytes(), bytes].concat();
    let data = |bytes: Vec<u8>| Frame::data(Bytes::from(bytes));
    let (response, frames) = match say {
        Say::Messages(message, times) => {
            let one = prefixed(u32::try_from(message.len()).unwrap(), &message);
            let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from(0))]);
            let all = std::iter::repeat_n(one, times).map(data);
            (response, all.chain([Frame::trailers(trailers)]).collect())
        }
        Say::Refusal(code, text) => {
            // Tonic's decoder panics on these details.
            let response = response.header("grpc-status-details-bin", "%");
            (response.header("grpc-status", code as i32).header("grpc-message", text), vec![])
        }
        Say::Http(status, body) => (Response::builder().status(status), vec![data(body.into_bytes())]),
        Say::Truncated(length) => {
            let bytes = vec![0; usize::try_from(length).unwrap() - 1];
            (response, vec![data(prefixed(length, &bytes))])
        }
        Say::Nothing => return Ok(std::future::pending::<Result<_, Infallible>>().await.unwrap()),
        Say::Close => return Err("closed by the test"),
    };
    let frames: Vec<_> = frames.into_iter().map(Ok).collect();
    Ok(response.body(StreamBody::new(futures_util::stream::iter(frames))).unwrap())
}

fn acceptor(own: &Issued, clients: Option<&Authority>) -> TlsAcceptor {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let chain = vec![CertificateDer::from_pem_slice(own.cert.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
    let builder = rustls::ServerConfig::builder();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(clients) => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(clients.pem.as_bytes()).unwrap()).unwrap();
            builder.with_client_cert_verifier(WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap())
        }
    };
    let mut config = builder.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// A CA.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(super) pem: String,
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub(super) struct Issued {
    pub(super) cert: String,
    pub(super) key: String,
}

impl Authority {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate for these names and addresses.
    pub(super) fn issue(&self, names: &[&str]) -> Issued {
        self.issue_with(names, |_| {})
    }

    /// An expired certificate.
    pub(super) fn issue_old(&self, names: &[&str]) -> Issued {
        self.issue_with(names, |params| params.not_after = rcgen::date_time_ymd(2021, 1, 1))
    }

    fn issue_with(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Issued {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap().pem();
        Issued { cert, key: key.serialize_pem() }
    }
}
