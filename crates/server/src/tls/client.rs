//! What is asked of the caller's certificate. In count mode the handshake takes whatever is shown, and what it is worth is
//! judged afterwards: nobody is turned away by a mode that is there to find out whom a stricter one would.
//!
//! Fact: webpki reads the certificate a second time to check the handshake's signature, and takes neither X.509 v1 (what
//! `openssl x509 -req` makes without extensions) nor RSA keys under 2048 bits. In count mode that, too, only makes it invalid.

use std::cell::Cell;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};

use super::certificate::{CertificateFault, chain, provider};

/// A verifier against the authorities of a PEM file.
pub(super) fn verifier(authorities: &[u8]) -> Result<Arc<dyn ClientCertVerifier>, CertificateFault> {
    let mut roots = RootCertStore::empty();
    for (index, authority) in chain(authorities)?.into_iter().enumerate() {
        roots
            .add(authority)
            .map_err(|error| CertificateFault::Unparsable { number: index + 1, why: error.to_string() })?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
    verifier.build().map_err(|error| CertificateFault::Authorities(error.to_string()))
}

tokio::task_local! {
    /// Whether the caller of the handshake under way has proved that it holds the key of what it shows. The verifier is one
    /// for all handshakes, and this is how it tells of one.
    static PROVED: Cell<bool>;
}

/// Runs a handshake, and returns beside its outcome whether the caller has proved to hold the key of what it showed.
pub(crate) async fn proving<T>(handshake: impl Future<Output = T>) -> (T, bool) {
    let watched = async {
        let outcome = handshake.await;
        (outcome, PROVED.with(Cell::get))
    };
    PROVED.scope(Cell::new(true), watched).await
}

/// What a caller showed: the label of `durward_client_certificates_total`.
pub(super) fn presented(
    verifier: &dyn ClientCertVerifier,
    shown: Option<&[CertificateDer<'_>]>,
    proved: bool,
) -> &'static str {
    match shown.unwrap_or_default() {
        [] => "absent",
        _ if !proved => "invalid",
        [leaf, issuers @ ..] => match verifier.verify_client_cert(leaf, issuers, UnixTime::now()) {
            Ok(_) => "valid",
            Err(_) => "invalid",
        },
    }
}

/// Asks for a certificate and takes what comes.
#[derive(Debug)]
pub(super) struct Counting(pub(super) Arc<dyn ClientCertVerifier>);

/// A proof that failed is noted, and the handshake goes on.
fn noted(proof: Result<HandshakeSignatureValid, Error>) -> HandshakeSignatureValid {
    proof.unwrap_or_else(|error| {
        tracing::debug!(reason = %error, "a client certificate is counted as invalid");
        // Outside of a handshake that is watched nobody asks.
        let _ = PROVED.try_with(|proved| proved.set(false));
        HandshakeSignatureValid::assertion()
    })
}

impl ClientCertVerifier for Counting {
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
        Ok(noted(self.0.verify_tls12_signature(message, certificate, signature)))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(noted(self.0.verify_tls13_signature(message, certificate, signature)))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
