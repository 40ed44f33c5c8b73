//! The expiry of certificates and tokens that Durward uses and does not renew.
//!
//! A kubeconfig is read once, so its expiries are recorded when its client is created: a file that was replaced since is not in
//! use yet. Credentials of plugins, tokens in files and the CA of a pod's service account are omitted: they are read again, and
//! other programs renew them.

use admission::file::read_file;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use kube::Config;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;
use serde_json::Value;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// 1 MiB: a chain has a few certificates.
const FILE_LIMIT: u64 = 1 << 20;

/// Assumed lifetime of a token without the time of its issue: half a year, of which a sixth is a month.
const TOKEN_LIFETIME: i64 = 180 * 86_400;

/// The validity of a certificate, of several in one place, or of a token. It contains no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expiry {
    /// The use.
    pub kind: CredentialKind,
    /// The file, kubeconfig or Secret in messages.
    pub source: String,
    /// The beginning, in seconds since 1970.
    pub not_before: i64,
    /// The end, in seconds since 1970. That of the first one that expires, if there are several.
    pub not_after: i64,
}

/// The use of a certificate or token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CredentialKind {
    /// The CA of Durward's certificate files.
    ServingCa,
    /// The CA of client certificates that callers of Durward present.
    ClientCa,
    /// The CA of an API server that Durward calls.
    ApiServerCa,
    /// The client certificate for an API server.
    ApiServerClient,
    /// The token for an API server.
    ApiServerToken,
    /// The CA of a member cluster.
    MemberCa,
    /// The client certificate for a member cluster.
    MemberClient,
    /// The token for a member cluster.
    MemberToken,
    /// The CA of etcd members.
    EtcdCa,
    /// The client certificate for etcd members.
    EtcdClient,
}

impl CredentialKind {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::ServingCa,
        Self::ClientCa,
        Self::ApiServerCa,
        Self::ApiServerClient,
        Self::ApiServerToken,
        Self::MemberCa,
        Self::MemberClient,
        Self::MemberToken,
        Self::EtcdCa,
        Self::EtcdClient,
    ];

    /// The kinds in a kubeconfig of a control plane: CA, client certificate, token.
    pub(super) const OF_API_SERVER: [Self; 3] =
        [Self::ApiServerCa, Self::ApiServerClient, Self::ApiServerToken];

    /// The kinds in a kubeconfig of a member cluster.
    pub(super) const OF_MEMBER: [Self; 3] = [Self::MemberCa, Self::MemberClient, Self::MemberToken];

    /// Returns the label of the metric.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ServingCa => "serving_ca",
            Self::ClientCa => "client_ca",
            Self::ApiServerCa => "api_server_ca",
            Self::ApiServerClient => "api_server_client",
            Self::ApiServerToken => "api_server_token",
            Self::MemberCa => "member_ca",
            Self::MemberClient => "member_client",
            Self::MemberToken => "member_token",
            Self::EtcdCa => "etcd_ca",
            Self::EtcdClient => "etcd_client",
        }
    }
}

impl Expiry {
    /// Returns the first expiry of the certificates in a PEM text. Returns `None` if it has none that can be read: the code that
    /// uses them reports that.
    pub fn of_pem(kind: CredentialKind, source: &str, pem: &[u8]) -> Option<Self> {
        Self::first(kind, source, CertificateDer::pem_slice_iter(pem).filter_map(Result::ok))
    }

    /// Returns the expiries in a client configuration. `kinds` are those of CA, client certificate and token.
    pub(super) fn of_config(config: &Config, kinds: [CredentialKind; 3], source: &str) -> Vec<Self> {
        let [ca, client, token] = kinds;
        // kube reads the file again and ignores the certificates that it read first.
        let roots = config.root_cert.iter().filter(|_| config.root_cert_file.is_none());
        let roots = Self::first(ca, source, roots.flatten());
        let certificate = client_certificate(config).and_then(|pem| Self::of_pem(client, source, &pem));
        let token = token_of(config).and_then(|text| Self::of_token(token, source, &text));
        roots.into_iter().chain(certificate).chain(token).collect()
    }

    fn first(
        kind: CredentialKind,
        source: &str,
        certificates: impl Iterator<Item = impl AsRef<[u8]>>,
    ) -> Option<Self> {
        let validity = |der: &[u8]| {
            let (_, certificate) = X509Certificate::from_der(der).ok()?;
            let validity = certificate.validity();
            Some((validity.not_after.timestamp(), validity.not_before.timestamp()))
        };
        let (not_after, not_before) = certificates.filter_map(|der| validity(der.as_ref())).min()?;
        Some(Self { kind, source: source.to_owned(), not_before, not_after })
    }

    /// Reads the claims of a JSON Web Token. Other tokens and tokens without `exp` do not expire, as far as Durward knows.
    fn of_token(kind: CredentialKind, source: &str, token: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct Claims {
            exp: Value,
            #[serde(default)]
            iat: Value,
        }
        // Times can have fractions.
        let seconds = |time: &Value| time.to_string().split('.').next()?.parse::<i64>().ok();
        let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
        let Claims { exp, iat } = serde_json::from_slice(&claims).ok()?;
        let not_after = seconds(&exp)?;
        let issued = seconds(&iat).filter(|issued| *issued < not_after);
        let not_before = issued.unwrap_or_else(|| not_after.saturating_sub(TOKEN_LIFETIME));
        Some(Self { kind, source: source.to_owned(), not_before, not_after })
    }
}

/// Returns the client certificate of a kubeconfig. The inline one outranks the file, as in kube.
fn client_certificate(config: &Config) -> Option<Vec<u8>> {
    let user = &config.auth_info;
    match (&user.client_certificate_data, &user.client_certificate) {
        (Some(data), _) => STANDARD.decode(data).ok(),
        (None, Some(path)) => read_file(path.as_ref(), FILE_LIMIT).ok(),
        (None, None) => None,
    }
}

/// Returns the inline token of a kubeconfig. Its type hides the text except from serde.
fn token_of(config: &Config) -> Option<String> {
    let user = serde_json::to_value(&config.auth_info).ok()?;
    Some(user.get("token")?.as_str()?.to_owned())
}
