//! Passes the certificate of this replica from the task that signs it to the TLS server.

use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::watch;

use crate::settings::CertificatePem;

/// The certificate that a replica signed for itself, and the problem that it has with the CA.
#[derive(Debug, Clone, Default)]
pub(crate) struct Issued {
    /// `None` until the first one is signed.
    pub(crate) leaf: Option<Arc<Leaf>>,
    /// Why the CA can't be used now.
    pub(crate) problem: Option<String>,
}

/// A serving certificate with its key.
#[derive(Debug)]
pub(crate) struct Leaf {
    /// Certificate and key.
    pub(crate) pem: CertificatePem,
    /// The DER of the CA that signed it.
    pub(super) ca: Vec<u8>,
    /// When it expires.
    pub(super) not_after: SystemTime,
}

/// The receiving side, which is a source of the serving certificate.
#[derive(Debug, Clone)]
pub struct IssuedCertificates(watch::Receiver<Issued>);

impl IssuedCertificates {
    pub(super) fn new(receiver: watch::Receiver<Issued>) -> Self {
        Self(receiver)
    }

    /// Returns the current certificate.
    pub(crate) fn current(&self) -> Issued {
        self.0.borrow().clone()
    }

    /// Waits for a change since the last call. Never returns after the task has ended.
    pub(crate) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
