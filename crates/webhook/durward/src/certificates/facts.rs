//! The fields of a certificate that commands print and compare.

use config::Problem;
use rustls::pki_types::CertificateDer;
use serde::Serialize;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::time::rfc3339;

/// The fields of a certificate, as `doctor install -o json` prints them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CertificateFacts {
    /// The distinguished name of the subject.
    pub(crate) subject: String,
    /// The distinguished name of the issuer.
    pub(crate) issuer: String,
    /// The serial number in hexadecimal.
    pub(crate) serial: String,
    /// DNS names and IP addresses of the certificate.
    pub(crate) names: Vec<String>,
    /// Whether this is a CA certificate.
    pub(crate) authority: bool,
    /// RFC 3339.
    pub(crate) not_before: String,
    /// RFC 3339.
    pub(crate) not_after: String,
    /// In seconds since 1970.
    #[serde(skip)]
    pub(crate) begins: i64,
    /// In seconds since 1970.
    #[serde(skip)]
    pub(crate) ends: i64,
    /// The public key in DER.
    #[serde(skip)]
    pub(crate) public_key: Vec<u8>,
}

impl CertificateFacts {
    /// Parses a certificate. `name` is its name in errors.
    pub(crate) fn of(name: &str, certificate: &CertificateDer<'_>) -> Result<Self, Problem> {
        let (_, parsed) = X509Certificate::from_der(certificate).map_err(|error| {
            Problem::new(format!("a certificate in {name} cannot be read")).why(error.to_string())
        })?;
        let (begins, ends) =
            (parsed.validity().not_before.timestamp(), parsed.validity().not_after.timestamp());
        Ok(Self {
            subject: parsed.subject().to_string(),
            issuer: parsed.issuer().to_string(),
            serial: parsed.raw_serial_as_string(),
            names: names(&parsed),
            authority: parsed.is_ca(),
            not_before: rfc3339(begins),
            not_after: rfc3339(ends),
            begins,
            ends,
            public_key: parsed.public_key().raw.to_vec(),
        })
    }
}

fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let mut names = Vec::new();
    for extension in certificate.extensions() {
        let ParsedExtension::SubjectAlternativeName(alternatives) = extension.parsed_extension() else {
            continue;
        };
        for name in &alternatives.general_names {
            match name {
                GeneralName::DNSName(dns) => names.push((*dns).to_owned()),
                GeneralName::IPAddress(bytes) => names.extend(address(bytes)),
                _ => {}
            }
        }
    }
    names
}

fn address(bytes: &[u8]) -> Option<String> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(std::net::Ipv4Addr::from(four).to_string());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|sixteen| std::net::Ipv6Addr::from(sixteen).to_string())
}
