//! The CA certificates that a caBundle must contain, from the Secret of self-managed certificates or from files.

use std::path::PathBuf;
use std::sync::Arc;

use ca::pem::{self, Pem};
use ca::{Bundle, CaBundle};
use config::Problem;
use console::input;
use rustls::pki_types::CertificateDer;

use crate::certificates::{now, server_name, signs};
use crate::file::File;

/// A certificate in DER.
pub(super) type Der = Vec<u8>;

/// The CA certificates of this replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TrustedCa {
    /// The CA that signed the serving certificate. Calls fail if a caBundle lacks it.
    pub(super) signer: Vec<Der>,
    /// All certificates of the caBundle.
    pub(super) certificates: Vec<Der>,
}

/// The source of the CA.
pub(crate) enum CaSource {
    /// Another program writes the caBundle, or the API server uses the CAs of its system.
    Unmanaged,
    /// `server.tls.files`
    Files(CaFiles),
    /// `server.tls.selfManaged`
    SelfManaged(Arc<dyn Bundle>),
}

/// The files of `server.tls.files`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CaFiles {
    /// The CA, or several.
    ca: PathBuf,
    /// The serving certificate.
    cert: Option<PathBuf>,
    /// The name by which the API server calls.
    called: String,
}

#[cfg(test)]
impl CaSource {
    /// Returns a file that doesn't exist.
    pub(super) fn missing_file() -> Self {
        Self::Files(CaFiles { ca: "/nowhere/ca.crt".into(), cert: None, called: "durward".to_owned() })
    }
}

impl CaSource {
    /// Returns the source for a file without self-managed certificates. `cert` outranks the certificate of the file.
    pub(crate) fn of(file: &File, cert: Option<&PathBuf>) -> Self {
        let tls = &file.server.tls;
        let Some(ca) = &tls.ca else { return Self::Unmanaged };
        let cert = cert.or(tls.cert.as_ref()).cloned();
        Self::Files(CaFiles { ca: ca.clone(), cert, called: file.server.webhook_address.called() })
    }

    /// Reads the CA, or returns `None` if it is not managed.
    pub(super) async fn read(&self) -> Result<Option<TrustedCa>, Problem> {
        match self {
            Self::Unmanaged => Ok(None),
            Self::Files(files) => {
                let files = files.clone();
                let read = tokio::task::spawn_blocking(move || files.read()).await;
                let failed = |error: tokio::task::JoinError| {
                    Problem::new("server.tls.files.ca cannot be read").why(error.to_string())
                };
                read.map_err(failed)?.map(Some)
            }
            Self::SelfManaged(bundle) => match bundle.read().await {
                Ok(CaBundle { signer, pem }) => Ok(Some(TrustedCa {
                    signer: certificates(signer.as_bytes()),
                    certificates: certificates(pem.as_bytes()),
                })),
                Err(error) => Err(Problem::new(error.text).next(error.next)),
            },
        }
    }
}

impl CaFiles {
    fn read(&self) -> Result<TrustedCa, Problem> {
        let name = self.ca.display().to_string();
        let all = Pem::read(&name, &input::bytes(&self.ca, input::SMALL)?)?.certificates;
        if all.is_empty() {
            let problem = Problem::new(format!("server.tls.files.ca: {name} contains no certificate"));
            return Err(problem.next("use the ca.crt that durward certs new wrote"));
        }
        // The file can contain several CAs, of which one signed the certificate.
        let served = self.cert.as_ref().and_then(|cert| input::bytes(cert, input::SMALL).ok());
        let served = served.and_then(|text| Pem::read("cert", &text).ok()).unwrap_or_default().certificates;
        let signer: Vec<CertificateDer<'static>> = match server_name(&self.called) {
            Some(name) => {
                let is_signer =
                    |ca: &&CertificateDer<'static>| signs(&[(*ca).clone()], &served, &name, now()).is_ok();
                all.iter().filter(is_signer).take(1).cloned().collect()
            }
            None => Vec::new(),
        };
        let der = |certificates: &[CertificateDer<'_>]| certificates.iter().map(|one| one.to_vec()).collect();
        Ok(TrustedCa { signer: der(&signer), certificates: der(&all) })
    }
}

/// Returns the certificates of a caBundle.
pub(super) fn certificates(bundle: &[u8]) -> Vec<Der> {
    pem::certificates(bundle).iter().map(|certificate| certificate.to_vec()).collect()
}
