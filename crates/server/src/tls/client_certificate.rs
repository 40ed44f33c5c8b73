//! Verifies client certificates and their names. In mode `request` every handshake succeeds, and the certificate is verified
//! afterwards: this mode shows which callers `require` would refuse.
//!
//! A CA alone is too wide: the CA of a cluster also issues certificates to kubelets and users. So the common name or a DNS name
//! must be in a list, compared as text.
//!
//! Fact: webpki parses the certificate again to check the handshake's signature. It rejects X.509 v1 (which `openssl x509 -req`
//! creates without extensions) and RSA keys below 2048 bits. In mode `request` such a certificate is only counted as invalid.

use std::cell::Cell;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    SignatureScheme,
};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;
use x509_parser::x509::AttributeTypeAndValue;

use super::certificate::{CertificateFault, chain, provider};
use crate::settings::AllowedNames;

/// Error: a client certificate is valid, but none of its names is allowed.
#[derive(Debug, thiserror::Error)]
#[error("none of its names is in server.tls.clientAuth.allowedNames: {names}")]
pub(crate) struct OtherName {
    /// The names of the certificate.
    names: String,
}

/// Accepts certificates of a CA that have an allowed name.
#[derive(Debug)]
pub(super) struct NamedVerifier {
    issued: Arc<dyn ClientCertVerifier>,
    names: AllowedNames,
}

impl NamedVerifier {
    /// Creates a verifier for the CA certificates of a PEM file.
    pub(super) fn new(ca: &[u8], names: AllowedNames) -> Result<Self, CertificateFault> {
        let mut roots = RootCertStore::empty();
        for (index, certificate) in chain(ca)?.into_iter().enumerate() {
            roots.add(certificate).map_err(|error| CertificateFault::Unparsable {
                number: index + 1,
                why: error.to_string(),
            })?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
        let issued = verifier.build().map_err(|error| CertificateFault::Authorities(error.to_string()))?;
        Ok(Self { issued, names })
    }

    /// Checks the names of a certificate that the CA has issued. Without a list, no name is allowed.
    fn check_names(&self, leaf: &CertificateDer<'_>) -> Result<(), Error> {
        let names = names(leaf)?;
        let allowed = self.names.current();
        if names.iter().any(|name| allowed.contains(name)) {
            return Ok(());
        }
        let other = OtherName { names: names.join(", ") };
        Err(CertificateError::Other(OtherError(Arc::new(other))).into())
    }

    /// Returns the label of `durward_client_certificates_total`, and the names if the CA issued the certificate to the caller.
    pub(super) fn result(
        &self,
        certificates: Option<&[CertificateDer<'_>]>,
        has_key: bool,
    ) -> (&'static str, Option<String>) {
        let [leaf, issuers @ ..] = certificates.unwrap_or_default() else { return ("absent", None) };
        if !has_key || self.issued.verify_client_cert(leaf, issuers, UnixTime::now()).is_err() {
            return ("invalid", None);
        }
        let is_other = !self.names.current().is_empty() && self.check_names(leaf).is_err();
        let label = if is_other { "other_name" } else { "valid" };
        (label, names(leaf).ok().map(|names| names.join(", ")))
    }
}

/// Returns the common names and the DNS names of a certificate. Fails if a part can't be parsed: webpki does not read the
/// subject, and a name that is read differently elsewhere must not be accepted.
fn names(leaf: &CertificateDer<'_>) -> Result<Vec<String>, Error> {
    let unreadable = || Error::from(CertificateError::BadEncoding);
    let (_, leaf) = X509Certificate::from_der(leaf).map_err(|_| unreadable())?;
    let common = leaf.subject().iter_common_name().map(AttributeTypeAndValue::as_str);
    let mut names = common
        .map(|name| name.map(str::to_owned).map_err(|_| unreadable()))
        .collect::<Result<Vec<_>, _>>()?;
    let alternative = leaf.subject_alternative_name().map_err(|_| unreadable())?;
    for name in alternative.iter().flat_map(|extension| &extension.value.general_names) {
        match name {
            GeneralName::DNSName(name) => names.push((*name).to_owned()),
            GeneralName::Invalid(..) => return Err(unreadable()),
            _ => {}
        }
    }
    Ok(names)
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

/// Asks for a certificate and accepts any.
#[derive(Debug)]
pub(super) struct CountingVerifier(pub(super) Arc<NamedVerifier>);

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
        self.0.issued.root_hint_subjects()
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
        Ok(recorded(self.0.issued.verify_tls12_signature(message, certificate, signature)))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(recorded(self.0.issued.verify_tls13_signature(message, certificate, signature)))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.issued.supported_verify_schemes()
    }
}

/// Asks for a certificate and requires it.
impl ClientCertVerifier for NamedVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.issued.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        issuers: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.issued.verify_client_cert(leaf, issuers, now)?;
        self.check_names(leaf)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.issued.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.issued.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.issued.supported_verify_schemes()
    }
}
