//! What is asked of the caller's certificate. In count mode the handshake takes any certificate whose key the caller holds, and
//! what it is worth is judged afterwards: nobody is turned away by a mode that is there to find out whom a stricter one would.

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

/// What a caller showed: the label of `durward_client_certificates_total`.
pub(super) fn presented(
    verifier: &dyn ClientCertVerifier,
    shown: Option<&[CertificateDer<'_>]>,
) -> &'static str {
    match shown.unwrap_or_default() {
        [] => "absent",
        [leaf, issuers @ ..] => match verifier.verify_client_cert(leaf, issuers, UnixTime::now()) {
            Ok(_) => "valid",
            Err(_) => "invalid",
        },
    }
}

/// Asks for a certificate and takes what comes.
#[derive(Debug)]
pub(super) struct Counting(pub(super) Arc<dyn ClientCertVerifier>);

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
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
