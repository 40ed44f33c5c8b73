//! TLS as the API server's client needs it: HTTP/1.1 by ALPN (it offers nothing else to a webhook, and rustls ends a handshake
//! without a common protocol), a certificate that can be exchanged under load, client certificates as an option.

mod certificate;
mod client;
mod keeper;

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::SingleCertAndKey;

pub use certificate::{Certificate, CertificateError, CertificateFault};
pub(crate) use client::proving;
pub(crate) use keeper::{Keeper, keep};

use crate::settings::{ClientCertificates, TlsVersion};

/// What new connections are greeted with. One value, so that certificate, authorities and their sessions change together: a
/// session resumed across a change would show the old certificate and skip the new authorities.
#[derive(Debug)]
pub(crate) struct Greeting {
    pub(crate) config: Arc<ServerConfig>,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
}

impl Greeting {
    fn new(
        certificate: &Certificate,
        min_version: TlsVersion,
        client: &ClientCertificates,
        authorities: Option<&[u8]>,
    ) -> Result<Self, CertificateFault> {
        let verifier = authorities.map(client::verifier).transpose()?;
        let versions: &[&rustls::SupportedProtocolVersion] = match min_version {
            TlsVersion::V1_2 => &[&rustls::version::TLS13, &rustls::version::TLS12],
            TlsVersion::V1_3 => &[&rustls::version::TLS13],
        };
        let builder = ServerConfig::builder_with_provider(certificate::provider())
            .with_protocol_versions(versions)
            .map_err(CertificateFault::Unservable)?;
        let builder = match (client, &verifier) {
            (ClientCertificates::Count { .. }, Some(verifier)) => {
                builder.with_client_cert_verifier(Arc::new(client::Counting(Arc::clone(verifier))))
            }
            (ClientCertificates::Require { .. }, Some(verifier)) => {
                builder.with_client_cert_verifier(Arc::clone(verifier))
            }
            _ => builder.with_no_client_auth(),
        };
        let served = SingleCertAndKey::from(certificate.certified.as_ref().clone());
        let mut config = builder.with_cert_resolver(Arc::new(served));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        if let ClientCertificates::Count { .. } = client {
            // A session that is taken up again proves nothing anew, so that what was noted of the first would be forgotten.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(Self { config: Arc::new(config), verifier })
    }

    /// What the caller showed, where it is asked for a certificate; `proved` is what [`proving`] found.
    pub(crate) fn presented(
        &self,
        shown: Option<&[CertificateDer<'_>]>,
        proved: bool,
    ) -> Option<&'static str> {
        self.verifier.as_ref().map(|verifier| client::presented(verifier.as_ref(), shown, proved))
    }
}
