//! The proxy's connections to the API server.

use anyhow::{Context as _, Result, bail};
use http::header::{CONNECTION, HOST, HeaderName, TRANSFER_ENCODING, UPGRADE};
use http::uri::{Authority as Host, PathAndQuery, Scheme};
use http::{HeaderMap, Request, Response, Uri};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::certificates::Ca;

/// An API server. Cloning is cheap.
#[derive(Clone)]
pub(super) struct Upstream {
    host: Host,
    client: Client<HttpsConnector<HttpConnector>, Incoming>,
}

impl Upstream {
    /// Uses HTTP/1.1, so that a watch that its reader leaves closes a connection.
    pub(super) fn new(url: &str, ca: &Ca) -> Result<Self> {
        let uri: Uri = url.parse().with_context(|| format!("{url:?} is no URL"))?;
        let (Some(host), Some("https")) = (uri.authority().cloned(), uri.scheme_str()) else {
            bail!("{url:?} is not of the form https://host:port")
        };
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // An error means that another thread was first.
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        }
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca.pem().as_bytes())?)?;
        let tls = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1().wrap_connector(tcp);
        Ok(Self { host, client: Client::builder(TokioExecutor::new()).build(connector) })
    }

    /// Forwards a request with all headers but those of its connection.
    pub(super) async fn ask(&self, request: Request<Incoming>) -> Result<Response<Incoming>> {
        let (mut parts, body) = request.into_parts();
        let mut uri = http::uri::Parts::default();
        uri.scheme = Some(Scheme::HTTPS);
        uri.authority = Some(self.host.clone());
        uri.path_and_query =
            Some(parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")));
        parts.uri = Uri::from_parts(uri)?;
        parts.version = http::Version::HTTP_11;
        of_the_connection(&mut parts.headers);
        parts.headers.remove(HOST);
        let mut answer = self.client.request(Request::from_parts(parts, body)).await?;
        of_the_connection(answer.headers_mut());
        *answer.version_mut() = http::Version::default();
        Ok(answer)
    }
}

/// Removes hop-by-hop headers.
fn of_the_connection(headers: &mut HeaderMap) {
    for name in [CONNECTION, TRANSFER_ENCODING, UPGRADE, HeaderName::from_static("keep-alive")] {
        headers.remove(name);
    }
}
