//! A CA with its key: creates, reads and signs certificates. All keys that it creates are on the elliptic curve P-256.
//!
//! A new CA can issue certificates only for servers, and only for its names (RFC 5280, 4.2.1.10). If it has no name of a type, it
//! permits a reserved one instead, because a type without a permitted name is not limited.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, SystemTime};

use config::Problem;
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints, PublicKeyData as _, SanType,
};
use rustls::pki_types::CertificateDer;
use server::CertificatePem;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

use crate::pem;

/// A CA certificate with its key.
pub struct Authority {
    cert: String,
    der: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    not_after: SystemTime,
    /// The name constraints. A type without an entry is not limited.
    permitted: Vec<ServingName>,
}

/// A DNS name that no server can have (RFC 2606), and an address that no server can have (RFC 5737).
const RESERVED_NAME: &str = "invalid";
const RESERVED_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 0));

/// A name for which a serving certificate is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServingName {
    /// A DNS name.
    Dns(String),
    /// An IP address.
    Address(IpAddr),
}

impl ServingName {
    fn is_dns(&self) -> bool {
        matches!(self, Self::Dns(_))
    }

    /// Returns whether a constraint with this name includes another name. A DNS name includes the names below it.
    fn covers(&self, name: &Self) -> bool {
        match (self, name) {
            (Self::Dns(base), Self::Dns(name)) => {
                let (base, name) = (base.to_ascii_lowercase(), name.to_ascii_lowercase());
                let rest = name.strip_suffix(&base);
                rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.') || base.starts_with('.'))
            }
            _ => self == name,
        }
    }
}

impl std::fmt::Display for ServingName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Dns(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// The time in which a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// The first moment.
    pub not_before: SystemTime,
    /// The last moment.
    pub not_after: SystemTime,
}

/// How long before now a certificate of [`Validity::from_now`] becomes valid, because clocks in a cluster differ.
const SKEW: Duration = Duration::from_secs(300);

impl Validity {
    /// Returns a validity that begins now.
    pub fn from_now(lasts: Duration) -> Self {
        let now = SystemTime::now();
        Self { not_before: now - SKEW, not_after: now + lasts }
    }
}

/// Returns the DNS names of a Service. The API server calls the first one.
pub fn names_of_service(name: &str, namespace: &str) -> [String; 3] {
    [".svc", "", ".svc.cluster.local"].map(|tail| format!("{name}.{namespace}{tail}"))
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

impl From<AuthorityError> for Problem {
    fn from(error: AuthorityError) -> Self {
        Self::new("the certificate cannot be created").why(error.to_string())
    }
}

impl Authority {
    /// Creates a CA for these names.
    pub fn new(validity: Validity, names: &[ServingName]) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        // The time distinguishes this CA from its predecessor when an operator looks at a bundle of both.
        let expires = config::time::format(validity.not_after);
        params.distinguished_name.push(DnType::CommonName, format!("Durward CA until {expires}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let permitted = constraints(names);
        params.name_constraints = Some(NameConstraints {
            permitted_subtrees: permitted.iter().map(subtree).collect(),
            excluded_subtrees: Vec::new(),
        });
        params.not_before = validity.not_before.into();
        params.not_after = validity.not_after.into();
        let cert = params.self_signed(&key)?;
        Ok(Self {
            cert: cert.pem(),
            der: cert.der().clone(),
            issuer: Issuer::new(params, key),
            not_after: validity.not_after,
            permitted,
        })
    }

    /// Reads a CA and its key from PEM.
    pub fn from_pem(cert: &str, key: &str) -> Result<Self, AuthorityError> {
        let unreadable = |error: &dyn std::fmt::Display| AuthorityError::Certificate(error.to_string());
        let der = pem::first(cert).map_err(|error| unreadable(&error))?;
        let (_, parsed) = X509Certificate::from_der(&der).map_err(|error| unreadable(&error))?;
        if !parsed.is_ca() {
            return Err(AuthorityError::NotAuthority { subject: parsed.subject().to_string() });
        }
        let key = KeyPair::from_pem(key).map_err(AuthorityError::Key)?;
        if key.subject_public_key_info() != parsed.public_key().raw {
            return Err(AuthorityError::KeyMismatch);
        }
        let not_after = parsed.validity().not_after.to_datetime().into();
        let constraints = parsed.name_constraints().map_err(|error| unreadable(&error))?;
        let subtrees = constraints.and_then(|extension| extension.value.permitted_subtrees.as_ref());
        let permitted =
            subtrees.into_iter().flatten().filter_map(|subtree| serving_name(&subtree.base)).collect();
        let issuer = Issuer::from_ca_cert_der(&der, key)?;
        Ok(Self { cert: cert.to_owned(), der, issuer, not_after, permitted })
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

    /// Returns the names of its constraints.
    pub fn permitted(&self) -> &[ServingName] {
        &self.permitted
    }

    /// Returns whether clients accept a certificate of this CA for a name.
    pub fn permits(&self, name: &ServingName) -> bool {
        let mut same_type =
            self.permitted.iter().filter(|permitted| permitted.is_dns() == name.is_dns()).peekable();
        same_type.peek().is_none() || same_type.any(|permitted| permitted.covers(name))
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

    /// Creates a key and a request for the client certificate of a user. The API server reads the user from the common name.
    pub fn for_user(name: &str) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let request = params.serialize_request(&key)?.pem()?;
        Ok(Self { request, key: key.serialize_pem() })
    }
}

/// Returns the names that a CA for these names permits, with both types.
fn constraints(names: &[ServingName]) -> Vec<ServingName> {
    let mut permitted: Vec<ServingName> = Vec::new();
    for name in names {
        let base = match name {
            ServingName::Dns(name) => ServingName::Dns(name.strip_prefix("*.").unwrap_or(name).to_owned()),
            ServingName::Address(_) => name.clone(),
        };
        if !permitted.contains(&base) {
            permitted.push(base);
        }
    }
    for reserved in [ServingName::Dns(RESERVED_NAME.to_owned()), ServingName::Address(RESERVED_ADDRESS)] {
        if !permitted.iter().any(|name| name.is_dns() == reserved.is_dns()) {
            permitted.push(reserved);
        }
    }
    permitted
}

fn subtree(name: &ServingName) -> GeneralSubtree {
    match name {
        ServingName::Dns(name) => GeneralSubtree::DnsName(name.clone()),
        ServingName::Address(IpAddr::V4(address)) => {
            GeneralSubtree::IpAddress(CidrSubnet::V4(address.octets(), [0xff; 4]))
        }
        ServingName::Address(IpAddr::V6(address)) => {
            GeneralSubtree::IpAddress(CidrSubnet::V6(address.octets(), [0xff; 16]))
        }
    }
}

/// Returns the name of a constraint: a DNS name, or one address. Durward creates no other constraints.
fn serving_name(base: &GeneralName<'_>) -> Option<ServingName> {
    match base {
        GeneralName::DNSName(name) => Some(ServingName::Dns((*name).to_owned())),
        GeneralName::IPAddress([a, b, c, d, 0xff, 0xff, 0xff, 0xff]) => {
            Some(ServingName::Address([*a, *b, *c, *d].into()))
        }
        GeneralName::IPAddress(bytes) => {
            let (address, mask) = bytes.split_at_checked(16)?;
            let address: [u8; 16] = address.try_into().ok()?;
            (mask == [0xff; 16]).then(|| ServingName::Address(address.into()))
        }
        _ => None,
    }
}

/// Returns the fields of a serving certificate. Its subject is the first name, or `durward` instead of an address: OpenSSL compares a
/// subject with a dot with the permitted DNS names of the CA.
fn params(names: &[ServingName]) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let subject = match names.first() {
        Some(ServingName::Dns(name)) => name.clone(),
        Some(ServingName::Address(_)) | None => "durward".to_owned(),
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
pub(crate) fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls::crypto::aws_lc_rs;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{ServerName, UnixTime};

    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn names(all: &[&str]) -> Vec<ServingName> {
        let name = |text: &&str| {
            text.parse().map_or_else(|_| ServingName::Dns((*text).to_owned()), ServingName::Address)
        };
        all.iter().map(name).collect()
    }

    /// Returns whether a client that trusts the CA accepts a certificate for this name alone.
    fn is_accepted(ca: &Authority, name: &str) -> bool {
        let now = SystemTime::now();
        let validity = Validity { not_before: now - DAY, not_after: now + DAY };
        let pem = ca.sign(&names(&[name]), validity).unwrap();
        let leaf = CertificateDer::from_pem_slice(&pem.cert).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(ca.der().clone()).unwrap();
        let verifier = WebPkiServerVerifier::builder_with_provider(
            Arc::new(roots),
            Arc::new(aws_lc_rs::default_provider()),
        )
        .build()
        .unwrap();
        let called = ServerName::try_from(name.replace("*.", "any.")).unwrap();
        verifier.verify_server_cert(&leaf, &[], &called, &[], UnixTime::now()).is_ok()
    }

    #[test]
    fn a_new_ca_permits_its_names_only_and_clients_agree() {
        let now = SystemTime::now();
        let validity = Validity { not_before: now - DAY, not_after: now + DAY };
        for (own, others) in [
            (&["d.a.svc", "d.a"][..], &["e.a.svc", "xd.a.svc", "a.svc", "10.0.0.7", "::1"][..]),
            (&["10.0.0.7"], &["10.0.0.8", "d.a.svc", "::1"]),
            (&["fd00::7", "d.a.svc"], &["fd00::8", "10.0.0.7", "e.a.svc"]),
            (&["*.example.org"], &["example.net", "10.0.0.7"]),
        ] {
            let new = Authority::new(validity, &names(own)).unwrap();
            let read = Authority::from_pem(new.cert(), &new.key()).unwrap();
            assert_eq!(new.permitted(), read.permitted());
            for ca in [&new, &read] {
                for (all, expected) in [(own, true), (others, false)] {
                    for name in all {
                        assert_eq!(ca.permits(&names(&[name])[0]), expected, "{own:?} {name}");
                        assert_eq!(is_accepted(ca, name), expected, "{own:?} {name}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_ca_without_constraints_permits_all_names() {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let cert = params.self_signed(&key).unwrap().pem();
        let ca = Authority::from_pem(&cert, &key.serialize_pem()).unwrap();
        for name in ["d.a.svc", "10.0.0.7", "::1"] {
            assert!(ca.permits(&names(&[name])[0]) && is_accepted(&ca, name), "{name}");
        }
    }
}
