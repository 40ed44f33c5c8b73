//! Certificates and kubeconfigs of a run: a CA, certificates that it signs, and the key of service account tokens.
//!
//! All keys are EC P-256, which every program accepts, also for service account tokens (ES256).

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, CertifiedIssuer, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};

/// A server sends its certificate with its first message.
const SHOWN_WITHIN: Duration = Duration::from_secs(30);

/// A certificate authority.
pub struct Ca {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl std::fmt::Debug for Ca {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Ca")
    }
}

impl Ca {
    /// Makes a CA.
    pub fn new(name: &str) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished(name, None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        Ok(Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate()?)? })
    }

    /// Returns its own certificate.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Returns its key, PKCS #8 in PEM, for commands that sign certificates.
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Makes a serving certificate for these names and addresses, with a key and a serial number of its own.
    pub fn server(&self, names: &[&str], addresses: &[IpAddr]) -> Result<Leaf> {
        let mut params =
            CertificateParams::new(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())?;
        params.subject_alt_names.extend(addresses.iter().copied().map(SanType::IpAddress));
        params.distinguished_name = distinguished(names.first().copied().unwrap_or("server"), None);
        self.leaf(params, vec![ExtendedKeyUsagePurpose::ServerAuth])
    }

    /// Makes a certificate for these names that is valid for servers and clients, as Karmada has it for etcd.
    pub fn member(&self, names: &[String]) -> Result<Leaf> {
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = distinguished("karmada-etcd-server", None);
        self.leaf(params, vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth])
    }

    /// Signs a request, base64 of PEM, and returns the certificate in the same format.
    pub fn sign_request(&self, request: &str) -> Result<String> {
        let pem = String::from_utf8(STANDARD.decode(request)?)?;
        let signed = CertificateSigningRequestParams::from_pem(&pem)?.signed_by(&*self.issuer)?;
        Ok(STANDARD.encode(signed.pem()))
    }

    /// Makes a client certificate for this user and this group. rcgen's names hold one group; [`impersonated`] makes a
    /// user with several.
    pub fn client(&self, user: &str, group: Option<&str>) -> Result<Leaf> {
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished(user, group);
        self.leaf(params, vec![ExtendedKeyUsagePurpose::ClientAuth])
    }

    fn leaf(&self, mut params: CertificateParams, purposes: Vec<ExtendedKeyUsagePurpose>) -> Result<Leaf> {
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = purposes;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Leaf { certificate: certificate.pem(), key: key.serialize_pem(), der: certificate.der().clone() })
    }
}

fn distinguished(name: &str, group: Option<&str>) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    if let Some(group) = group {
        distinguished.push(DnType::OrganizationName, group);
    }
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// A certificate with its key, in PEM.
#[derive(Debug, Clone)]
pub struct Leaf {
    /// The certificate.
    pub certificate: String,
    /// The key, PKCS #8.
    pub key: String,
    /// The certificate in DER, to compare it with a served one.
    pub der: CertificateDer<'static>,
}

impl Leaf {
    /// Writes `<name>.crt` and `<name>.key` into a directory and returns the two paths.
    pub fn write(&self, directory: &Path, name: &str) -> Result<(PathBuf, PathBuf)> {
        let certificate = write(directory, &format!("{name}.crt"), &self.certificate)?;
        let key = write(directory, &format!("{name}.key"), &self.key)?;
        Ok((certificate, key))
    }
}

/// Returns the key pair that signs service account tokens, `(private, public)` in PEM.
pub fn token_key() -> Result<(String, String)> {
    let key = KeyPair::generate()?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}

/// The name of each kubeconfig's one context, cluster and user.
pub const CONTEXT: &str = "e2e";

/// Returns a kubeconfig, as JSON, that refers to no other file. `user` is made by [`by_certificate`], [`impersonated`]
/// or [`by_token`].
pub fn kubeconfig(server: &str, ca: &Ca, user: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": {
            "server": server,
            "certificate-authority-data": STANDARD.encode(ca.pem()),
        }}],
        "users": [{"name": CONTEXT, "user": user}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT}}],
        "current-context": CONTEXT,
    })
}

/// Returns the user of a client certificate.
pub fn by_certificate(client: &Leaf) -> Value {
    json!({
        "client-certificate-data": STANDARD.encode(&client.certificate),
        "client-key-data": STANDARD.encode(&client.key),
    })
}

/// Returns a user of this name and these groups, whom the client impersonates. The API server and every webhook see
/// only that user. The client must be allowed to impersonate.
pub fn impersonated(client: &Leaf, name: &str, groups: &[&str]) -> Value {
    let mut user = by_certificate(client);
    user["as"] = json!(name);
    user["as-groups"] = json!(groups);
    user
}

/// Returns the user of a token.
pub fn by_token(token: &str) -> Value {
    json!({"token": token})
}

/// Connects and returns the served certificate, which is verified with the CA and the name.
pub fn served(at: std::net::SocketAddr, name: &str, ca: &Ca) -> Result<CertificateDer<'static>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(ca.issuer.der().clone())?;
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let name =
        ServerName::try_from(name.to_owned()).with_context(|| format!("{name} is not a server name"))?;
    let mut connection = rustls::ClientConnection::new(Arc::new(config), name)?;
    let mut stream = std::net::TcpStream::connect_timeout(&at, SHOWN_WITHIN)
        .with_context(|| format!("cannot connect to {at}"))?;
    stream.set_read_timeout(Some(SHOWN_WITHIN))?;
    while connection.is_handshaking() {
        connection.complete_io(&mut stream).with_context(|| format!("no TLS with {at}"))?;
    }
    let served =
        connection.peer_certificates().and_then(<[_]>::first).context("no certificate was served")?;
    Ok(served.clone().into_owned())
}

/// Decodes base64 and writes it to a file.
pub fn write_base64(directory: &Path, name: &str, content: &str) -> Result<PathBuf> {
    write(directory, name, &String::from_utf8(STANDARD.decode(content.trim())?)?)
}

/// Writes a file that only its owner can read.
pub fn write(directory: &Path, name: &str, content: &str) -> Result<PathBuf> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let path = directory.join(name);
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    file.write_all(content.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
