//! An HTTPS client that sends reviews as the API server does: one kept connection, one trusted CA.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::Problem;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::certs::Pem;

/// Timeout of each step. On loopback a step takes milliseconds.
const TIMEOUT: Duration = Duration::from_secs(15);

/// An open connection.
pub(super) struct Client {
    sender: SendRequest<Full<Bytes>>,
    address: SocketAddr,
}

/// An answer and the time it took.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
    pub(super) took: Duration,
}

impl Client {
    /// Connects to `address` and trusts `authority`, a CA in PEM.
    pub(super) async fn connect(address: SocketAddr, authority: &str) -> Result<Self, Problem> {
        let failed =
            |why: String| Problem::new(format!("the demo's server at {address} cannot be reached")).why(why);
        let mut roots = RootCertStore::empty();
        for certificate in Pem::read("the demo's authority", authority.as_bytes())?.certificates {
            roots.add(certificate).map_err(|error| failed(error.to_string()))?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let connecting = async {
            let tcp = TcpStream::connect(address).await?;
            tcp.set_nodelay(true)?;
            TlsConnector::from(Arc::new(config)).connect(ServerName::from(address.ip()), tcp).await
        };
        let tls = tokio::time::timeout(TIMEOUT, connecting)
            .await
            .map_err(|_| failed("no answer".to_owned()))?
            .map_err(|error| failed(error.to_string()))?;
        let (sender, connection) =
            handshake(TokioIo::new(tls)).await.map_err(|error| failed(error.to_string()))?;
        // The task ends when the sender is dropped. The next request reports errors.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Self { sender, address })
    }

    /// Posts a review to a guard.
    pub(super) async fn ask(&mut self, guard: &str, review: &'static str) -> Result<Answer, Problem> {
        let failed =
            |why: String| Problem::new(format!("the demo's server did not answer /{guard}")).why(why);
        let request = Request::post(format!("/{guard}?timeout=10s"))
            .header("host", self.address.to_string())
            .header("content-type", "application/json")
            .body(Full::from(review))
            .map_err(|error| failed(error.to_string()))?;
        let began = Instant::now();
        let asking = async {
            self.sender.ready().await?;
            let response = self.sender.send_request(request).await?;
            let status = response.status();
            Ok::<_, hyper::Error>((status, response.into_body().collect().await?.to_bytes()))
        };
        let (status, body) = tokio::time::timeout(TIMEOUT, asking)
            .await
            .map_err(|_| failed("no answer".to_owned()))?
            .map_err(|error| failed(error.to_string()))?;
        Ok(Answer { status, body, took: began.elapsed() })
    }
}
