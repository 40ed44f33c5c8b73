//! Reads certificates and keys from PEM text, and writes certificates to PEM text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use config::Problem;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The contents of a PEM text.
#[derive(Debug, Default)]
pub(crate) struct Pem {
    /// Certificates in the order of the text.
    pub(crate) certificates: Vec<CertificateDer<'static>>,
    /// Keys in the order of the text.
    pub(crate) keys: Vec<PrivateKeyDer<'static>>,
}

impl Pem {
    /// Parses a text. `name` is its source in errors.
    pub(crate) fn read(name: &str, text: &[u8]) -> Result<Self, Problem> {
        let unreadable = |error: rustls::pki_types::pem::Error| {
            Problem::new(format!("{name} cannot be read as PEM")).why(format!("{error:?}"))
        };
        if contains(text, b"ENCRYPTED PRIVATE KEY") || contains(text, b"Proc-Type: 4,ENCRYPTED") {
            return Err(Problem::new(format!("{name} contains an encrypted key"))
                .next("decrypt it: openssl pkey -in KEY -out NEW"));
        }
        let certificates =
            CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
        let keys = PrivateKeyDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
        if certificates.is_empty() && keys.is_empty() {
            return Err(Problem::new(format!("{name} contains no certificate and no key in PEM")));
        }
        Ok(Self { certificates, keys })
    }
}

/// Returns certificates as one PEM text, the format of a caBundle.
pub(crate) fn bundle(certificates: &[CertificateDer<'_>]) -> String {
    let mut out = String::new();
    for certificate in certificates {
        out.push_str("-----BEGIN CERTIFICATE-----\n");
        let text = STANDARD.encode(certificate);
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (line, more) = rest.split_at_checked(64).unwrap_or((rest, ""));
            out.push_str(line);
            out.push('\n');
            rest = more;
        }
        out.push_str("-----END CERTIFICATE-----\n");
    }
    out
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
