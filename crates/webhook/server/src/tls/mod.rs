//! TLS for the API server's client: HTTP/1.1 by ALPN, a certificate that is replaced under load, optional client certificates.
//! The client offers only HTTP/1.1 to a webhook, and rustls fails a handshake without a common protocol.

mod certificate;
mod client_certificate;
mod reloader;

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SingleCertAndKey};

pub use certificate::{Certificate, CertificateError, CertificateFault};
use client_certificate::NamedVerifier;
pub(crate) use client_certificate::{OtherName, client_names};
pub(crate) use reloader::{CertReloader, reload_periodically};

use crate::settings::{ClientAuth, TlsVersion};

/// Fails every handshake, until the first self-managed certificate is signed.
#[derive(Debug)]
struct NoCertificate;

impl ResolvesServerCert for NoCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}

/// Creates the TLS configuration of new connections. Certificate, client CA and sessions are one value and change together: a
/// session that is resumed after a change would show the old certificate and skip the new CA.
fn server_config(
    certificate: Option<&Certificate>,
    min_version: TlsVersion,
    client: &ClientAuth,
    ca: Option<&[u8]>,
) -> Result<ServerConfig, CertificateFault> {
    let versions: &[&rustls::SupportedProtocolVersion] = match min_version {
        TlsVersion::V1_2 => &[&rustls::version::TLS13, &rustls::version::TLS12],
        TlsVersion::V1_3 => &[&rustls::version::TLS13],
    };
    let builder = ServerConfig::builder_with_provider(certificate::provider())
        .with_protocol_versions(versions)
        .map_err(CertificateFault::Unservable)?;
    let verifier = match (ca, client.allowed_names()) {
        (Some(ca), Some(names)) => Some(Arc::new(NamedVerifier::new(ca, names.clone())?)),
        _ => None,
    };
    let has_verifier = verifier.is_some();
    let builder = match verifier {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let served: Arc<dyn ResolvesServerCert> = match certificate {
        Some(certificate) => Arc::new(SingleCertAndKey::from(certificate.certified.as_ref().clone())),
        None => Arc::new(NoCertificate),
    };
    let mut config = builder.with_cert_resolver(served);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    if has_verifier {
        // A resumed session skips the verifier, so a name that is not allowed any more would still be accepted.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}
