//! Checks whether keys, certificates and CAs match, with the verifier that TLS clients use.

use std::sync::Arc;
use std::time::Duration;

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

/// Checks whether a client that trusts `authorities` and calls `name` accepts `chain` at time `now`.
pub(crate) fn signs(
    authorities: &[CertificateDer<'static>],
    chain: &[CertificateDer<'static>],
    name: &ServerName<'_>,
    now: i64,
) -> Result<(), String> {
    let (leaf, between) = chain.split_first().ok_or("no certificate")?;
    let mut roots = RootCertStore::empty();
    let (taken, _) = roots.add_parsable_certificates(authorities.iter().cloned());
    if taken == 0 {
        return Err("no CA".to_owned());
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| error.to_string())?;
    let now = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now).unwrap_or_default()));
    verifier.verify_server_cert(leaf, between, name, &[], now).map(drop).map_err(|error| error.to_string())
}

/// Returns whether `certificate` contains `name`.
pub(crate) fn is_for(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> bool {
    let parsed = rustls::server::ParsedCertificate::try_from(certificate);
    parsed.is_ok_and(|parsed| rustls::client::verify_server_name(&parsed, name).is_ok())
}

/// Returns whether `key` belongs to a certificate with `public_key`.
pub(crate) fn opens(key: &PrivateKeyDer<'_>, public_key: &[u8]) -> Result<bool, String> {
    let key = aws_lc_rs::sign::any_supported_type(key).map_err(|error| error.to_string())?;
    Ok(key.public_key().is_some_and(|own| own.as_ref() == public_key))
}

/// Returns a certificate name as a client calls it. For a wildcard, this is one name that the wildcard covers.
pub(crate) fn server_name(name: &str) -> Option<ServerName<'static>> {
    let called = name.strip_prefix("*.").map_or_else(|| name.to_owned(), |rest| format!("any.{rest}"));
    ServerName::try_from(called).ok()
}
