//! Reads certificates and keys from PEM text, and writes certificates to PEM text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use config::Problem;
use rustls::pki_types::pem::{Error, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The contents of a PEM text.
#[derive(Debug, Default)]
pub struct Pem {
    /// Certificates in the order of the text.
    pub certificates: Vec<CertificateDer<'static>>,
    /// Keys in the order of the text.
    pub keys: Vec<PrivateKeyDer<'static>>,
}

impl Pem {
    /// Parses a text. `name` is its source in errors.
    pub fn read(name: &str, text: &[u8]) -> Result<Self, Problem> {
        let unreadable =
            |error: Error| Problem::new(format!("{name} cannot be read as PEM")).why(format!("{error:?}"));
        if has(text, b"ENCRYPTED PRIVATE KEY") || has(text, b"Proc-Type: 4,ENCRYPTED") {
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

/// Returns the first certificate of a text.
pub(crate) fn first(text: &str) -> Result<CertificateDer<'static>, Error> {
    CertificateDer::from_pem_slice(text.as_bytes())
}

/// Returns the certificates of a caBundle. One that can't be parsed has none.
pub fn certificates(bundle: &[u8]) -> Vec<CertificateDer<'static>> {
    Pem::read("caBundle", bundle).unwrap_or_default().certificates
}

/// Returns whether a caBundle contains the certificate of a CA, which is in DER. An API server with this caBundle then trusts what
/// the CA signs.
pub fn contains(bundle: &[u8], ca: &[u8]) -> bool {
    certificates(bundle).iter().any(|certificate| certificate.as_ref() == ca)
}

/// Returns certificates as one PEM text, the format of a caBundle.
pub fn bundle(certificates: &[impl AsRef<[u8]>]) -> String {
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

fn has(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
