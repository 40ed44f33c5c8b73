//! Verifies client certificates and their names.
//!
//! A CA alone is too wide: the CA of a cluster also issues certificates to kubelets and users. So the common name or a DNS name
//! must be in a list, compared as text.
//!
//! Fact: webpki parses the certificate again to check the handshake's signature. It rejects X.509 v1 (which `openssl x509 -req`
//! creates without extensions) and RSA keys below 2048 bits.

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
}

/// Returns the names of the client certificate of a connection, if clients must show one.
pub(crate) fn client_names(certificates: Option<&[CertificateDer<'_>]>) -> Option<String> {
    Some(names(certificates?.first()?).ok()?.join(", "))
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
