//! Passes certificates that the process issues itself to the TLS server.

use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::watch;

/// A certificate and its key in memory, both PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct CertificatePem {
    /// The leaf first, then its issuers in order.
    pub cert: Vec<u8>,
    /// One key, not encrypted.
    pub key: Vec<u8>,
}

// `{:?}` must not write a key to a log.
impl std::fmt::Debug for CertificatePem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertificatePem").finish_non_exhaustive()
    }
}

/// The current certificate, and the problem that its issuer has.
#[derive(Debug, Clone, Default)]
pub struct Issued {
    /// `None` until the first one is signed.
    pub leaf: Option<Arc<IssuedCertificate>>,
    /// Why the next certificate can't be issued now.
    pub problem: Option<String>,
}

/// A serving certificate with its key.
#[derive(Debug)]
pub struct IssuedCertificate {
    /// Certificate and key.
    pub pem: CertificatePem,
    /// The DER of the CA that signed it.
    pub ca: Vec<u8>,
    /// When it expires.
    pub not_after: SystemTime,
}

/// The receiving side, which is a source of the serving certificate.
#[derive(Debug, Clone)]
pub struct IssuedCertificates(watch::Receiver<Issued>);

impl IssuedCertificates {
    /// Creates a source from the receiving side of a channel.
    pub fn new(receiver: watch::Receiver<Issued>) -> Self {
        Self(receiver)
    }

    /// Returns the current certificate.
    pub fn current(&self) -> Issued {
        self.0.borrow().clone()
    }

    /// Waits for a change since the last call. Never returns after the task has ended.
    pub(crate) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_does_not_contain_the_key() {
        let pem = CertificatePem { cert: b"c".to_vec(), key: b"secret".to_vec() };
        assert_eq!(format!("{pem:?}"), "CertificatePem { .. }");
    }
}
