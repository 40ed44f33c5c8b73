//! A CA with its key: creates, reads and signs certificates. All keys that it creates are on the elliptic curve P-256.

use std::net::IpAddr;
use std::time::SystemTime;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData as _, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use crate::settings::CertificatePem;
use crate::tls::certificate::{moment, rfc3339};

/// A CA certificate with its key.
pub struct Authority {
    cert: String,
    der: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    not_after: SystemTime,
}

/// A name for which a serving certificate is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServingName {
    /// A DNS name.
    Dns(String),
    /// An IP address.
    Address(IpAddr),
}

/// The time in which a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// The first moment.
    pub not_before: SystemTime,
    /// The last moment.
    pub not_after: SystemTime,
}

/// Error: a CA can't be created, read or used.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The text has no certificate.
    #[error("the certificate can't be read: {0}")]
    Certificate(String),
    /// The certificate isn't allowed to sign others.
    #[error("the certificate {subject:?} is not a CA: it isn't allowed to sign others")]
    NotAuthority {
        /// Its subject.
        subject: String,
    },
    /// The text has no key.
    #[error("the key can't be read: {0}")]
    Key(#[source] rcgen::Error),
    /// The key belongs to another certificate.
    #[error("the key does not belong to the certificate")]
    KeyMismatch,
    /// A certificate can't be created.
    #[error("the certificate can't be created: {0}")]
    Creation(#[from] rcgen::Error),
}

impl Authority {
    /// Creates a CA.
    pub fn new(validity: Validity) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        // The time distinguishes this CA from its predecessor when an operator looks at a bundle of both.
        let expires = rfc3339(seconds(validity.not_after));
        params.distinguished_name.push(DnType::CommonName, format!("Durward CA until {expires}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.not_before = validity.not_before.into();
        params.not_after = validity.not_after.into();
        let cert = params.self_signed(&key)?;
        Ok(Self {
            cert: cert.pem(),
            der: cert.der().clone(),
            issuer: Issuer::new(params, key),
            not_after: validity.not_after,
        })
    }

    /// Reads a CA and its key from PEM.
    pub fn from_pem(cert: &str, key: &str) -> Result<Self, AuthorityError> {
        let unreadable = |error: &dyn std::fmt::Display| AuthorityError::Certificate(error.to_string());
        let der = CertificateDer::from_pem_slice(cert.as_bytes()).map_err(|error| unreadable(&error))?;
        let (_, parsed) = X509Certificate::from_der(&der).map_err(|error| unreadable(&error))?;
        if !parsed.is_ca() {
            return Err(AuthorityError::NotAuthority { subject: parsed.subject().to_string() });
        }
        let key = KeyPair::from_pem(key).map_err(AuthorityError::Key)?;
        if key.subject_public_key_info() != parsed.public_key().raw {
            return Err(AuthorityError::KeyMismatch);
        }
        let not_after = moment(parsed.validity().not_after.timestamp());
        let issuer = Issuer::from_ca_cert_der(&der, key)?;
        Ok(Self { cert: cert.to_owned(), der, issuer, not_after })
    }

    /// Returns the certificate in PEM.
    pub fn cert(&self) -> &str {
        &self.cert
    }

    /// Returns the key in PEM.
    pub fn key(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Returns the certificate in DER.
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// Returns when the CA expires.
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// Signs a serving certificate with a new key. It expires with the CA at the latest.
    pub fn sign(&self, names: &[ServingName], validity: Validity) -> Result<CertificatePem, AuthorityError> {
        let key = KeyPair::generate()?;
        let mut params = params(names)?;
        params.use_authority_key_identifier_extension = true;
        params.not_before = validity.not_before.into();
        params.not_after = validity.not_after.min(self.not_after).into();
        let cert = params.signed_by(&key, &self.issuer)?;
        Ok(CertificatePem { cert: cert.pem().into_bytes(), key: key.serialize_pem().into_bytes() })
    }
}

// `{:?}` must not write a key to a log.
impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("not_after", &self.not_after).finish_non_exhaustive()
    }
}

/// A key, and a request for a certificate of it.
pub struct SigningRequest {
    /// The request in PEM (PKCS #10).
    pub request: String,
    /// The key in PEM.
    pub key: String,
}

impl SigningRequest {
    /// Creates a key and a request for a serving certificate.
    pub fn new(names: &[ServingName]) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate()?;
        let request = params(names)?.serialize_request(&key)?.pem()?;
        Ok(Self { request, key: key.serialize_pem() })
    }
}

/// Returns the fields of a serving certificate. Its subject is the first name.
fn params(names: &[ServingName]) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let subject = match names.first() {
        Some(ServingName::Dns(name)) => name.clone(),
        Some(ServingName::Address(address)) => address.to_string(),
        None => "durward".to_owned(),
    };
    params.distinguished_name.push(DnType::CommonName, subject);
    for name in names {
        params.subject_alt_names.push(match name {
            ServingName::Dns(name) => SanType::DnsName(name.clone().try_into()?),
            ServingName::Address(address) => SanType::IpAddress(*address),
        });
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

/// Returns the seconds since 1970.
pub(super) fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
