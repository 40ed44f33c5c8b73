//! TLS for the API server's client: HTTP/1.1 by ALPN, a certificate that is replaced under load, optional client certificates.
//! The client offers only HTTP/1.1 to a webhook, and rustls fails a handshake without a common protocol.

mod certificate;
mod client_certificate;
mod reloader;

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SingleCertAndKey};

pub use certificate::{Certificate, CertificateError, CertificateFault};
use client_certificate::{CountingVerifier, NamedVerifier};
pub(crate) use client_certificate::{OtherName, with_key_proof};
pub(crate) use reloader::{CertReloader, reload_periodically};

use crate::settings::{ClientAuth, TlsVersion};

/// TLS configuration of new connections. Certificate, client CA and sessions are one value and change together: a session that
/// is resumed after a change would show the old certificate and skip the new CA.
#[derive(Debug)]
pub(crate) struct ServerTls {
    pub(crate) config: Arc<ServerConfig>,
    verifier: Option<Arc<NamedVerifier>>,
}

/// Fails every handshake, until the first self-managed certificate is signed.
#[derive(Debug)]
struct NoCertificate;

impl ResolvesServerCert for NoCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}

impl ServerTls {
    fn new(
        certificate: Option<&Certificate>,
        min_version: TlsVersion,
        client: &ClientAuth,
        ca: Option<&[u8]>,
    ) -> Result<Self, CertificateFault> {
        let verifier = match (ca, client.allowed_names()) {
            (Some(ca), Some(names)) => Some(Arc::new(NamedVerifier::new(ca, names.clone())?)),
            _ => None,
        };
        let versions: &[&rustls::SupportedProtocolVersion] = match min_version {
            TlsVersion::V1_2 => &[&rustls::version::TLS13, &rustls::version::TLS12],
            TlsVersion::V1_3 => &[&rustls::version::TLS13],
        };
        let builder = ServerConfig::builder_with_provider(certificate::provider())
            .with_protocol_versions(versions)
            .map_err(CertificateFault::Unservable)?;
        let builder = match (client, &verifier) {
            (ClientAuth::Request { .. }, Some(verifier)) => {
                builder.with_client_cert_verifier(Arc::new(CountingVerifier(Arc::clone(verifier))))
            }
            (ClientAuth::Require { .. }, Some(verifier)) => {
                let verifier: Arc<dyn ClientCertVerifier> = Arc::<NamedVerifier>::clone(verifier);
                builder.with_client_cert_verifier(verifier)
            }
            _ => builder.with_no_client_auth(),
        };
        let served: Arc<dyn ResolvesServerCert> = match certificate {
            Some(certificate) => Arc::new(SingleCertAndKey::from(certificate.certified.as_ref().clone())),
            None => Arc::new(NoCertificate),
        };
        let mut config = builder.with_cert_resolver(served);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        if verifier.is_some() {
            // A resumed session skips the verifier: the result of the first handshake would be lost, and a name that is not
            // allowed any more would still be accepted.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(Self { config: Arc::new(config), verifier })
    }

    /// Returns the result for the metric, if clients are asked for a certificate, and the names of a verified one. `has_key` is from
    /// [`with_key_proof`].
    pub(crate) fn client_certificate(
        &self,
        certificates: Option<&[CertificateDer<'_>]>,
        has_key: bool,
    ) -> Option<(&'static str, Option<String>)> {
        Some(self.verifier.as_deref()?.result(certificates, has_key))
    }
}
