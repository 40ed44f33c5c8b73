//! The peer that shows the limit: a minimal HTTPS server that returns the body.

use std::convert::Infallible;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::Result;

/// The most bytes of a body that are returned. No answer to a review is larger than the review of a small pod.
const ANSWER: usize = 4096;

/// Serves until it is killed, and prints the port first. Arguments: certificate and key.
pub(crate) fn serve() -> Result<bool> {
    let mut paths = std::env::args().skip(2).map(PathBuf::from);
    let certificate = CertificateDer::from_pem_file(paths.next().ok_or("no certificate given")?)?;
    let key = PrivateKeyDer::from_pem_file(paths.next().ok_or("no key given")?)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(accept(TlsAcceptor::from(Arc::new(config))))
}

async fn accept(acceptor: TlsAcceptor) -> Result<bool> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?.port());
    std::io::stdout().flush()?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            if let Ok(tls) = acceptor.accept(stream).await {
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(tls), service_fn(echo));
                // The load generator closes its connections at the end.
                let _ = connection.await;
            }
        });
    }
}

async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let body =
        request.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    Ok(Response::new(Full::new(body.slice(..body.len().min(ANSWER)))))
}
