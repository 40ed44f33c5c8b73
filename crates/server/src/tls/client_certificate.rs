//! Verifies client certificates. In mode `request` every handshake succeeds, and the certificate is verified afterwards: this
//! mode shows which callers `require` would refuse.
//!
//! Fact: webpki parses the certificate again to check the handshake's signature. It rejects X.509 v1 (which `openssl x509 -req`
//! creates without extensions) and RSA keys below 2048 bits. In mode `request` such a certificate is only counted as invalid.

use std::cell::Cell;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};

use super::certificate::{CertificateFault, chain, provider};

/// Creates a verifier for the CA certificates of a PEM file.
pub(super) fn verifier(ca: &[u8]) -> Result<Arc<dyn ClientCertVerifier>, CertificateFault> {
    let mut roots = RootCertStore::empty();
    for (index, certificate) in chain(ca)?.into_iter().enumerate() {
        roots
            .add(certificate)
            .map_err(|error| CertificateFault::Unparsable { number: index + 1, why: error.to_string() })?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
    verifier.build().map_err(|error| CertificateFault::Authorities(error.to_string()))
}

tokio::task_local! {
    /// Whether the client of the current handshake has proved that it has the key of its certificate. All handshakes share the
    /// verifier, so it reports the result of one handshake through this.
    static HAS_KEY: Cell<bool>;
}

/// Runs a handshake. Returns its output, and whether the client has proved that it has the key of its certificate.
pub(crate) async fn with_key_proof<T>(handshake: impl Future<Output = T>) -> (T, bool) {
    let watched = async {
        let output = handshake.await;
        (output, HAS_KEY.with(Cell::get))
    };
    HAS_KEY.scope(Cell::new(true), watched).await
}

/// Returns the label of `durward_client_certificates_total`.
pub(super) fn result(
    verifier: &dyn ClientCertVerifier,
    certificates: Option<&[CertificateDer<'_>]>,
    has_key: bool,
) -> &'static str {
    match certificates.unwrap_or_default() {
        [] => "absent",
        _ if !has_key => "invalid",
        [leaf, issuers @ ..] => match verifier.verify_client_cert(leaf, issuers, UnixTime::now()) {
            Ok(_) => "valid",
            Err(_) => "invalid",
        },
    }
}

/// Asks for a certificate and accepts any.
#[derive(Debug)]
pub(super) struct CountingVerifier(pub(super) Arc<dyn ClientCertVerifier>);

/// Records an invalid signature, and lets the handshake continue.
fn recorded(signature: Result<HandshakeSignatureValid, Error>) -> HandshakeSignatureValid {
    signature.unwrap_or_else(|error| {
        tracing::debug!(reason = %error, "a client certificate is counted as invalid");
        // Fails only outside of `with_key_proof`.
        let _ = HAS_KEY.try_with(|has_key| has_key.set(false));
        HandshakeSignatureValid::assertion()
    })
}

impl ClientCertVerifier for CountingVerifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(recorded(self.0.verify_tls12_signature(message, certificate, signature)))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(recorded(self.0.verify_tls13_signature(message, certificate, signature)))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
