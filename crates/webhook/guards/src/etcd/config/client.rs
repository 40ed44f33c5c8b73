//! How members are reached: port, TLS, login.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::config::{Section, names};
use cluster::etcd::{ClientOptions, Login, Material, Tls};

/// The client settings of an entry, for any namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in super::super) struct ClientConfig {
    tls: Option<TlsConfig>,
    /// The name of the Secret.
    login: Option<String>,
    allows_unverified: bool,
    server_name: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct TlsConfig {
    secret: Option<String>,
    files: Option<(PathBuf, Option<(PathBuf, PathBuf)>)>,
    skips_verification: bool,
}

/// The placeholder for the namespace of the members in a server name.
const NAMESPACE: &str = "{namespace}";
/// The placeholder for the name of the members' owner in a server name.
const NAME: &str = "{name}";

impl ClientConfig {
    /// Returns the client for members in this namespace with an owner of this name.
    pub(in super::super) fn client(&self, namespace: &str, owner: Option<&str>) -> Arc<ClientOptions> {
        let server_name = self.server_name.as_ref().map(|name| {
            let name = name.replace(NAMESPACE, namespace);
            // Without an owner the placeholder stays, and no certificate has such a name.
            owner.map_or(name.clone(), |owner| name.replace(NAME, owner))
        });
        let tls = self.tls.as_ref().map(|tls| Tls {
            material: tls.material(Some(namespace)),
            server_name,
            insecure: tls.skips_verification,
        });
        let login =
            self.login.as_ref().map(|name| Login { namespace: namespace.to_owned(), name: name.clone() });
        Arc::new(ClientOptions { tls, login, open: self.allows_unverified })
    }

    /// Returns the source of CA and client certificate. A Secret has none if the namespace of the members is not known.
    pub(in super::super) fn material(&self, namespace: Option<&str>) -> Option<Material> {
        self.tls.as_ref()?.material(namespace)
    }

    /// Returns the names of the Secrets in the members' namespace.
    pub(in super::super) fn secrets(&self) -> Vec<&str> {
        let of_tls = self.tls.as_ref().and_then(|tls| tls.secret.as_deref());
        of_tls.into_iter().chain(self.login.as_deref()).collect()
    }

    /// Returns the files, each with its key below `client`.
    pub(in super::super) fn files(&self) -> Vec<(&'static str, &Path)> {
        let mut files: Vec<(&'static str, &Path)> = Vec::new();
        if let Some((ca, identity)) = self.tls.as_ref().and_then(|tls| tls.files.as_ref()) {
            files.push(("tls.files.ca", ca));
            if let Some((certificate, key)) = identity {
                files.extend([("tls.files.cert", certificate.as_path()), ("tls.files.key", key)]);
            }
        }
        files
    }

    /// Whether the server name contains the name of the owner.
    pub(super) fn has_owner_name(&self) -> bool {
        self.server_name.as_ref().is_some_and(|name| name.contains(NAME))
    }
}

impl TlsConfig {
    fn material(&self, namespace: Option<&str>) -> Option<Material> {
        if let Some(name) = &self.secret {
            return Some(Material::Secret { namespace: namespace?.to_owned(), name: name.clone() });
        }
        self.files.clone().map(|(authority, identity)| Material::Files { authority, identity })
    }
}

const SERVER_NAME: &str =
    "DNS name or address, for example etcd.db.svc; {namespace} and {name} are those of the StatefulSet";

/// Reads `client`. Returns the port separately.
pub(super) fn read(section: &mut Section<'_>) -> (u16, ClientConfig) {
    let port = section.number("port", "Client port of the members.", 2379, (1, 65_535));
    let server_name = section.optional_name(
        "serverName",
        SERVER_NAME,
        "Name in the members' certificates; {namespace} and {name} are those of the StatefulSet. Default: the pod's address.",
        server_name,
    );
    let has_tls = section.has("tls");
    if section.is_blank("tls") {
        let next = "write tls: {secretName: NAME}, or remove it for plain HTTP".to_owned();
        section.problem("tls", "is empty", Some(next));
    }
    let tls = section.section("tls", "TLS to the members. Without it, Durward uses plain HTTP.", tls);
    let (login, allows_unverified) =
        section.section("auth", "User and password, if etcd has authentication enabled.", login);
    if login.is_some() && !allows_unverified && (!has_tls || tls.skips_verification) {
        let next = "add tls with the CA of the members, or auth: {allowUnverified: true}".to_owned();
        section.problem("auth", "would send a password to unverified members", Some(next));
    }
    if section.has("serverName") && !has_tls {
        let next = "add: tls: {secretName: NAME}".to_owned();
        section.problem("serverName", "needs tls", Some(next));
    }
    let tls = has_tls.then_some(tls);
    (u16::try_from(port).unwrap_or(2379), ClientConfig { tls, login, allows_unverified, server_name })
}

/// Validates a server name with placeholders.
fn server_name(text: &str) -> Result<(), names::NameFault> {
    let filled = text.replace(NAMESPACE, "n").replace(NAME, "n");
    if filled.contains(['{', '}']) {
        return Err("has a placeholder other than {namespace} and {name}");
    }
    names::host(&filled)
}

fn tls(section: &mut Section<'_>) -> TlsConfig {
    let secret = section.optional_name(
        "secretName",
        names::SECRET,
        "Secret in the members' namespace: ca.crt, and tls.crt with tls.key for client authentication.",
        names::secret,
    );
    let files = section.section("files", "PEM files instead of a Secret.", tls_files);
    let skips_verification =
        section.bool("insecureSkipVerify", "Whether to accept any certificate of the members.", false);
    let (has_secret, has_files) = (section.has("secretName"), section.has("files"));
    if has_secret && has_files {
        section.problem("secretName", "conflicts with files", Some("keep one of them".to_owned()));
    }
    if !has_secret && !has_files && !skips_verification && section.is_written() {
        let next =
            "add secretName: NAME, or files: {ca: FILE}; insecureSkipVerify: true accepts any certificate";
        section.problem("secretName", "is missing, so Durward trusts no CA", Some(next.to_owned()));
    }
    TlsConfig { secret, files, skips_verification }
}

fn tls_files(section: &mut Section<'_>) -> Option<(PathBuf, Option<(PathBuf, PathBuf)>)> {
    let ca = path(section, "ca", "CA of the members' certificates.");
    let certificate = path(section, "cert", "Client certificate, if the members require one.");
    let key = path(section, "key", "Key of the client certificate.");
    if section.is_written() && ca.is_none() && !section.has("ca") {
        section.problem("ca", "is required", Some("add: ca: FILE".to_owned()));
    }
    if section.has("cert") != section.has("key") {
        section.problem("cert", "needs key, and key needs cert", Some("set both or none".to_owned()));
    }
    ca.map(|ca| (ca, certificate.zip(key)))
}

fn login(section: &mut Section<'_>) -> (Option<String>, bool) {
    let secret = section.optional_name(
        "secretName",
        names::SECRET,
        "Secret in the members' namespace: username and password.",
        names::secret,
    );
    section.removed("files", "name the Secret that has them: secretName: NAME");
    let allows_unverified =
        section.bool("allowUnverified", "Whether to send the password to unverified members.", false);
    if section.is_written() && !section.has("secretName") && !section.has("files") {
        section.problem("secretName", "is required", Some("add: secretName: NAME".to_owned()));
    }
    (secret, allows_unverified)
}

/// Reads a path, relative to the configuration file.
fn path(section: &mut Section<'_>, key: &'static str, doc: &'static str) -> Option<PathBuf> {
    let text = section.optional_text(key, "path of a file", doc)?;
    if text.is_empty() {
        section.problem(key, "is empty", Some("allowed: the path of a file".to_owned()));
        return None;
    }
    let directory = Path::new(&section.place().file).parent().map(Path::to_path_buf);
    Some(directory.unwrap_or_default().join(text))
}
