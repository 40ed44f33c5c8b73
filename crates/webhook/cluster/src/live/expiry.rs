//! The expiry of client certificates that Durward uses and does not renew.
//!
//! The expiry is recorded when a client is created: a file that was replaced a moment ago is not in use yet.
//! Certificates of credential plugins are omitted: the plugins renew them.

use admission::file::read_file;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Config;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// 1 MiB: a chain has a few certificates.
const FILE_LIMIT: u64 = 1 << 20;

/// The expiry of a client certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expiry {
    /// The use.
    pub kind: CredentialKind,
    /// The file, kubeconfig or Secret in messages.
    pub source: String,
    /// The end of the validity, in seconds since 1970. That of the first one that expires, if there are issuers.
    pub not_after: i64,
}

/// The use of a client certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CredentialKind {
    /// For the API server of a control plane.
    ApiServerClient,
    /// For a member cluster.
    MemberClient,
    /// For etcd members.
    EtcdClient,
}

impl CredentialKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::ApiServerClient, Self::MemberClient, Self::EtcdClient];

    /// Returns the label of the metric.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ApiServerClient => "api_server_client",
            Self::MemberClient => "member_client",
            Self::EtcdClient => "etcd_client",
        }
    }
}

impl Expiry {
    /// Returns the first expiry of the certificates in a PEM text. Returns `None` if it has none that can be read: the code that
    /// uses them reports that.
    pub(super) fn of_pem(kind: CredentialKind, source: &str, pem: &[u8]) -> Option<Self> {
        let not_after = |der: &CertificateDer<'_>| {
            let (_, certificate) = X509Certificate::from_der(der).ok()?;
            Some(certificate.validity().not_after.timestamp())
        };
        let certificates = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok);
        let not_after = certificates.filter_map(|der| not_after(&der)).min()?;
        Some(Self { kind, source: source.to_owned(), not_after })
    }

    /// Returns the expiry of the client certificate in a client configuration. The inline one outranks the file, as in kube.
    pub(super) fn of_config(config: &Config, kind: CredentialKind, source: &str) -> Option<Self> {
        let user = &config.auth_info;
        let pem = match (&user.client_certificate_data, &user.client_certificate) {
            (Some(data), _) => STANDARD.decode(data).ok(),
            (None, Some(path)) => read_file(path.as_ref(), FILE_LIMIT).ok(),
            (None, None) => None,
        };
        Self::of_pem(kind, source, &pem?)
    }
}
