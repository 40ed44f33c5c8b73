//! Loads a serving certificate from PEM, and checks it before it is used.
//!
//! The checks are those of kube-apiserver's client (Go's `crypto/tls`): names in the subject alternative name (the common name is
//! ignored), server authentication if usages are present, the time. In addition, the key must belong to the leaf, and each
//! certificate must be issued by the next one.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer,
};
use rustls::sign::CertifiedKey;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;
use x509_parser::time::ASN1Time;

use admission::file::{FileError, read_file};

use crate::issued::CertificatePem;
use crate::settings::CertificateSource;

/// Limit of a PEM file. It keeps a wrong path from filling the memory.
const MAX_FILE: u64 = 1 << 20;

/// A certificate with its key.
#[derive(Debug, Clone)]
pub struct Certificate {
    pub(super) certified: Arc<CertifiedKey>,
    serial: String,
    names: Vec<String>,
    not_before: i64,
    not_after: i64,
}

/// Error: a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {fault}")]
pub struct CertificateError {
    /// The file, or "the certificate in memory".
    pub place: String,
    /// The fault.
    pub fault: CertificateFault,
}

/// A fault of a certificate, its key, or a client CA.
#[derive(Debug, thiserror::Error)]
pub enum CertificateFault {
    /// The file cannot be read, or is not a file.
    #[error("cannot be read: {0}")]
    File(#[source] FileError),
    /// A damaged PEM block.
    #[error("contains a damaged PEM block: {0}")]
    Damaged(String),
    /// The file has no certificate.
    #[error("contains no PEM block CERTIFICATE{}", if *.key { ", but a private key; are certificate and key swapped?" } else { "" })]
    NoCertificate {
        /// Whether it has a key instead.
        key: bool,
    },
    /// The file has no key.
    #[error("contains no PEM block PRIVATE KEY{}", if *.certificate { ", but a certificate; are certificate and key swapped?" } else { "" })]
    NoKey {
        /// Whether it has a certificate instead.
        certificate: bool,
    },
    /// The key is encrypted.
    #[error("contains an encrypted private key; decrypt it with `openssl pkey -in FILE -out FILE`")]
    EncryptedKey,
    /// The file has more than one key.
    #[error("contains {0} private keys; keep one")]
    SeveralKeys(usize),
    /// The key cannot be used.
    #[error(
        "contains an unsupported private key ({0}); use RSA (2048 bits or more), ECDSA P-256, P-384, P-521 or Ed25519"
    )]
    UnusableKey(#[source] rustls::Error),
    /// A certificate cannot be parsed.
    #[error("certificate {number} of the chain cannot be parsed: {why}")]
    Unparsable {
        /// Counted from 1.
        number: usize,
        /// The parser's error.
        why: String,
    },
    /// The key does not belong to the leaf.
    #[error(
        "the private key does not belong to the first certificate; write both files together, the leaf before its issuers"
    )]
    KeyMismatch,
    /// A certificate was not issued by the next one.
    #[error(
        "certificate {number} of the chain was issued by {issuer:?}, but the next one is {next:?}; order them from leaf to root"
    )]
    BrokenChain {
        /// Counted from 1.
        number: usize,
        /// Its issuer.
        issuer: String,
        /// Subject of the next one.
        next: String,
    },
    /// The certificate has no names.
    #[error("the certificate has no subject alternative name; API servers ignore the common name")]
    NoNames,
    /// The certificate is not for servers.
    #[error("the certificate's extended key usage does not allow server authentication")]
    NotForServers,
    /// The certificate has expired.
    #[error("the certificate expired at {not_after}; renew it")]
    Ended {
        /// In RFC 3339.
        not_after: String,
    },
    /// The certificate is not valid yet.
    #[error("the certificate is not valid before {not_before}; check the clock of this machine")]
    NotYet {
        /// In RFC 3339.
        not_before: String,
    },
    /// rustls rejects the certificate together with the other settings.
    #[error("cannot be used: {0}")]
    Unservable(#[source] rustls::Error),
    /// The client CA cannot be used.
    #[error("contains no usable client CA: {0}")]
    Authorities(String),
}

/// The PEM of certificate and key, and where it is from.
pub(super) struct KeyPair {
    pub(super) cert: Vec<u8>,
    pub(super) cert_place: String,
    pub(super) key: Vec<u8>,
    pub(super) key_place: String,
}

impl KeyPair {
    /// Reads a source. Returns `None` if a self-managed certificate is not signed yet.
    pub(super) fn read(source: &CertificateSource) -> Result<Option<Self>, CertificateError> {
        Ok(match source {
            CertificateSource::Files(files) => Some(Self {
                cert: read_pem(&files.cert)?,
                cert_place: files.cert.display().to_string(),
                key: read_pem(&files.key)?,
                key_place: files.key.display().to_string(),
            }),
            CertificateSource::Pem(pem) => Some(Self::in_memory(pem)),
            CertificateSource::SelfManaged(issued) => {
                issued.current().leaf.map(|leaf| Self::in_memory(&leaf.pem))
            }
        })
    }

    fn in_memory(pem: &CertificatePem) -> Self {
        Self {
            cert: pem.cert.clone(),
            cert_place: "the certificate in memory".to_owned(),
            key: pem.key.clone(),
            key_place: "the key in memory".to_owned(),
        }
    }
}

impl Certificate {
    /// Loads and checks a certificate and its key. [`Certificate::valid_at`] checks the time.
    pub fn load(source: &CertificateSource) -> Result<Self, CertificateError> {
        let unsigned = || CertificateError {
            place: "the certificate in memory".to_owned(),
            fault: CertificateFault::NoCertificate { key: false },
        };
        Self::from_material(&KeyPair::read(source)?.ok_or_else(unsigned)?)
    }

    pub(super) fn from_material(material: &KeyPair) -> Result<Self, CertificateError> {
        let in_cert = |fault| CertificateError { place: material.cert_place.clone(), fault };
        let in_key = |fault| CertificateError { place: material.key_place.clone(), fault };
        let chain = chain(&material.cert).map_err(in_cert)?;
        let key = key(&material.key).map_err(in_key)?;
        let leaf = leaf(&chain).map_err(in_cert)?;
        let certified = CertifiedKey::from_der(chain, key, &provider()).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => in_key(CertificateFault::KeyMismatch),
            other => in_key(CertificateFault::UnusableKey(other)),
        })?;
        Ok(Self {
            certified: Arc::new(certified),
            serial: leaf.serial,
            names: leaf.names,
            not_before: leaf.not_before,
            not_after: leaf.not_after,
        })
    }

    /// Returns the leaf's serial number, as `openssl x509 -serial` groups it: `0a:1b:…`.
    pub fn serial(&self) -> &str {
        &self.serial
    }

    /// Returns the DNS names and addresses of the leaf.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns when the leaf expires.
    pub fn not_after(&self) -> SystemTime {
        moment(self.not_after)
    }

    /// Returns when the leaf expires, in RFC 3339.
    pub fn not_after_text(&self) -> String {
        rfc3339(self.not_after)
    }

    /// Returns the first and the last moment, in seconds since 1970.
    pub(super) fn validity(&self) -> (i64, i64) {
        (self.not_before, self.not_after)
    }

    /// Checks whether the leaf is valid at a time.
    pub fn valid_at(&self, now: SystemTime) -> Result<(), CertificateFault> {
        if now > moment(self.not_after) {
            return Err(CertificateFault::Ended { not_after: rfc3339(self.not_after) });
        }
        if now < moment(self.not_before) {
            return Err(CertificateFault::NotYet { not_before: rfc3339(self.not_before) });
        }
        Ok(())
    }
}

/// Returns the provider of the process, or the built-in one.
pub(super) fn provider() -> Arc<CryptoProvider> {
    CryptoProvider::get_default()
        .cloned()
        .unwrap_or_else(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
}

/// Reads a PEM file.
pub(super) fn read_pem(path: &Path) -> Result<Vec<u8>, CertificateError> {
    read_file(path, MAX_FILE).map_err(|fault| CertificateError {
        place: path.display().to_string(),
        fault: CertificateFault::File(fault),
    })
}

/// Returns all known PEM blocks in order.
fn blocks(pem: &[u8]) -> Result<Vec<(SectionKind, Vec<u8>)>, CertificateFault> {
    <(SectionKind, Vec<u8>)>::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| CertificateFault::Damaged(error.to_string()))
}

fn is_key(kind: SectionKind) -> bool {
    matches!(kind, SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey)
}

/// Returns the certificates of a PEM file, at least one.
pub(super) fn chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, CertificateFault> {
    let blocks = blocks(pem)?;
    let key = blocks.iter().any(|(kind, _)| is_key(*kind));
    let chain: Vec<_> = blocks
        .into_iter()
        .filter(|(kind, _)| *kind == SectionKind::Certificate)
        .map(|(_, der)| CertificateDer::from(der))
        .collect();
    if chain.is_empty() { Err(CertificateFault::NoCertificate { key }) } else { Ok(chain) }
}

fn key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, CertificateFault> {
    if is_encrypted(pem) {
        return Err(CertificateFault::EncryptedKey);
    }
    let blocks = blocks(pem)?;
    let certificate = blocks.iter().any(|(kind, _)| *kind == SectionKind::Certificate);
    let mut keys: Vec<_> = blocks.into_iter().filter(|(kind, _)| is_key(*kind)).collect();
    if keys.len() > 1 {
        return Err(CertificateFault::SeveralKeys(keys.len()));
    }
    Ok(match keys.pop() {
        Some((SectionKind::RsaPrivateKey, der)) => PrivatePkcs1KeyDer::from(der).into(),
        Some((SectionKind::EcPrivateKey, der)) => PrivateSec1KeyDer::from(der).into(),
        Some((_, der)) => PrivatePkcs8KeyDer::from(der).into(),
        None => return Err(CertificateFault::NoKey { certificate }),
    })
}

/// Returns whether the key is encrypted: PKCS#8 has a block of its own, older formats have a header. These are words of OpenSSL:
/// `include/openssl/pem.h`, `crypto/pem/pem_lib.c`.
fn is_encrypted(pem: &[u8]) -> bool {
    let text = String::from_utf8_lossy(pem);
    text.contains("-----BEGIN ENCRYPTED PRIVATE KEY-----") || text.contains("Proc-Type: 4,ENCRYPTED")
}

/// The first certificate of a checked chain.
struct Leaf {
    serial: String,
    names: Vec<String>,
    not_before: i64,
    not_after: i64,
}

fn leaf(chain: &[CertificateDer<'_>]) -> Result<Leaf, CertificateFault> {
    let mut parsed = Vec::with_capacity(chain.len());
    for (index, der) in chain.iter().enumerate() {
        let unparsable = |why: String| CertificateFault::Unparsable { number: index + 1, why };
        let (_, certificate) =
            X509Certificate::from_der(der).map_err(|error| unparsable(error.to_string()))?;
        parsed.push(certificate);
    }
    for (index, pair) in parsed.windows(2).enumerate() {
        if let [certificate, next] = pair
            && certificate.issuer().as_raw() != next.subject().as_raw()
        {
            return Err(CertificateFault::BrokenChain {
                number: index + 1,
                issuer: certificate.issuer().to_string(),
                next: next.subject().to_string(),
            });
        }
    }
    let first = parsed.first().ok_or(CertificateFault::NoCertificate { key: false })?;
    let names = names(first)?;
    let usage = first.extended_key_usage().ok().flatten();
    if usage.is_some_and(|usage| !usage.value.server_auth && !usage.value.any) {
        return Err(CertificateFault::NotForServers);
    }
    Ok(Leaf {
        serial: first.raw_serial_as_string(),
        names,
        not_before: first.validity().not_before.timestamp(),
        not_after: first.validity().not_after.timestamp(),
    })
}

fn names(certificate: &X509Certificate<'_>) -> Result<Vec<String>, CertificateFault> {
    let extension = certificate
        .subject_alternative_name()
        .map_err(|error| CertificateFault::Unparsable { number: 1, why: error.to_string() })?;
    let names: Vec<String> = extension
        .iter()
        .flat_map(|extension| &extension.value.general_names)
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            GeneralName::IPAddress(bytes) => address(bytes),
            _ => None,
        })
        .collect();
    if names.is_empty() { Err(CertificateFault::NoNames) } else { Ok(names) }
}

fn address(bytes: &[u8]) -> Option<String> {
    let four = <[u8; 4]>::try_from(bytes).map(|bytes| std::net::Ipv4Addr::from(bytes).to_string());
    let sixteen = || <[u8; 16]>::try_from(bytes).map(|bytes| std::net::Ipv6Addr::from(bytes).to_string());
    four.or_else(|_| sixteen()).ok()
}

/// Converts seconds since 1970, which can be negative for `not_before`.
pub(super) fn moment(seconds: i64) -> SystemTime {
    let distance = Duration::from_secs(seconds.unsigned_abs());
    let moment =
        if seconds < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) };
    moment.unwrap_or(UNIX_EPOCH)
}

/// Formats seconds since 1970 in UTC.
pub(super) fn rfc3339(seconds: i64) -> String {
    ASN1Time::from_timestamp(seconds).map_or_else(
        |_| format!("{seconds} s after 1970"),
        |time| {
            let time = time.to_datetime();
            format!(
                "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
                time.year(),
                u8::from(time.month()),
                time.day(),
                time.hour(),
                time.minute(),
                time.second()
            )
        },
    )
}
