//! How members are reached: port, TLS, login. Files and Secrets have different keys, so a password is never taken for a file name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::config::{Section, names};
use cluster::etcd::{ClientOptions, Login, Material, Tls};

/// The client settings of an entry, for any namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in super::super) struct ClientConfig {
    tls: Option<TlsConfig>,
    login: Option<LoginConfig>,
    sends_password_unverified: bool,
    server_name: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct TlsConfig {
    secret: Option<String>,
    files: Option<(PathBuf, Option<(PathBuf, PathBuf)>)>,
    insecure: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum LoginConfig {
    Secret(String),
    Files(PathBuf, PathBuf),
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
        let tls = self.tls.as_ref().map(|tls| {
            let secret = tls
                .secret
                .as_ref()
                .map(|name| Material::Secret { namespace: namespace.to_owned(), name: name.clone() });
            let files = tls.files.clone().map(|(ca, identity)| Material::Files { authority: ca, identity });
            Tls { material: secret.or(files), server_name, insecure: tls.insecure }
        });
        let login = self.login.as_ref().map(|login| match login {
            LoginConfig::Secret(name) => {
                Login::Secret { namespace: namespace.to_owned(), name: name.clone() }
            }
            LoginConfig::Files(user, password) => {
                Login::Files { user: user.clone(), password: password.clone() }
            }
        });
        Arc::new(ClientOptions { tls, login, open: self.sends_password_unverified })
    }

    /// Returns the names of the Secrets in the members' namespace.
    pub(in super::super) fn secrets(&self) -> Vec<&str> {
        let of_tls = self.tls.as_ref().and_then(|tls| tls.secret.as_deref());
        let of_login = self.login.as_ref().and_then(|login| match login {
            LoginConfig::Secret(name) => Some(name.as_str()),
            LoginConfig::Files(..) => None,
        });
        of_tls.into_iter().chain(of_login).collect()
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
        if let Some(LoginConfig::Files(user, password)) = &self.login {
            files.extend([("auth.files.user", user.as_path()), ("auth.files.password", password)]);
        }
        files
    }

    /// Whether the server name contains the name of the owner.
    pub(super) fn has_owner_name(&self) -> bool {
        self.server_name.as_ref().is_some_and(|name| name.contains(NAME))
    }
}

const SERVER_NAME: &str =
    "DNS name or address, as etcd.db.svc; {namespace} and {name} stand for those of the members' StatefulSet";

/// Reads `client`. Returns the port separately.
pub(super) fn read(section: &mut Section<'_>) -> (u16, ClientConfig) {
    let port = section.number("port", "Where members serve clients.", 2379, (1, 65_535));
    let server_name = section.optional_name(
        "serverName",
        SERVER_NAME,
        "The name in the members' certificates; the pod's address must be in them where absent. {namespace} and {name} are those of the StatefulSet.",
        server_name,
    );
    let has_tls = section.has("tls");
    if section.is_blank("tls") {
        let next = "write tls: {secret: NAME}, or leave it out for plain HTTP".to_owned();
        section.problem("tls", "stands there with nothing behind it", Some(next));
    }
    let tls = section.section("tls", "TLS to the members; plain HTTP where absent.", tls);
    let (login, sends_password_unverified) =
        section.section("auth", "Who asks, where the ensemble has authentication on.", login);
    if login.is_some() && !sends_password_unverified && (!has_tls || tls.insecure) {
        let next = "add tls with the ensemble's authority, or auth.insecure: true".to_owned();
        section.problem("auth", "would send a password to members that nobody verified", Some(next));
    }
    if section.has("serverName") && !has_tls {
        section.problem(
            "serverName",
            "says nothing without tls",
            Some("add: tls: {secret: NAME}".to_owned()),
        );
    }
    let tls = has_tls.then_some(tls);
    (u16::try_from(port).unwrap_or(2379), ClientConfig { tls, login, sends_password_unverified, server_name })
}

/// Validates a server name with placeholders.
fn server_name(text: &str) -> Result<(), names::Fault> {
    let filled = text.replace(NAMESPACE, "n").replace(NAME, "n");
    if filled.contains(['{', '}']) {
        return Err("has other braces than {namespace} and {name}");
    }
    names::host(&filled)
}

fn tls(section: &mut Section<'_>) -> TlsConfig {
    let secret = section.optional_name(
        "secret",
        names::SECRET,
        "A Secret in the members' namespace: ca.crt, and tls.crt with tls.key where they ask for a certificate.",
        names::secret,
    );
    let files = section.section("files", "Files in PEM in place of a Secret.", files_of_tls);
    let insecure = section.bool("insecure", "Whether their certificates are taken unverified.", false);
    let (has_secret, has_files) = (section.has("secret"), section.has("files"));
    if has_secret && has_files {
        section.problem("secret", "stands beside files", Some("keep one of them".to_owned()));
    }
    if !has_secret && !has_files && !insecure && section.is_written() {
        let next =
            "add secret: NAME, or files: {ca: FILE}; insecure: true takes anybody for a member".to_owned();
        section.problem("secret", "nothing says whose certificates are trusted", Some(next));
    }
    TlsConfig { secret, files, insecure }
}

fn files_of_tls(section: &mut Section<'_>) -> Option<(PathBuf, Option<(PathBuf, PathBuf)>)> {
    let ca = path(section, "ca", "The authority of their certificates.");
    let certificate = path(section, "cert", "The certificate to show them, where they ask for one.");
    let key = path(section, "key", "The key of that certificate.");
    if section.is_written() && ca.is_none() && !section.has("ca") {
        section.problem("ca", "is missing", Some("add: ca: FILE".to_owned()));
    }
    if section.has("cert") != section.has("key") {
        let next = "add the other one, or take this one out".to_owned();
        section.problem("cert", "a certificate and its key belong together", Some(next));
    }
    ca.map(|ca| (ca, certificate.zip(key)))
}

fn login(section: &mut Section<'_>) -> (Option<LoginConfig>, bool) {
    let secret = section.optional_name(
        "secret",
        names::SECRET,
        "A Secret in the members' namespace: username and password.",
        names::secret,
    );
    let files = section.section("files", "Files in place of a Secret.", |s| {
        let user = path(s, "user", "The file in which the user's name stands, and nothing else.");
        let password = path(s, "password", "The file in which the password stands, and nothing else.");
        if s.is_written() && s.has("user") != s.has("password") {
            let next = "write files: {user: FILE, password: FILE}".to_owned();
            s.problem("password", "user and password belong together", Some(next));
        }
        user.zip(password).map(|(user, password)| LoginConfig::Files(user, password))
    });
    let insecure =
        section.bool("insecure", "Whether the password may go to members that nobody verified.", false);
    if section.is_written() && section.has("secret") == section.has("files") {
        let next = "write secret: NAME, or files: {user: FILE, password: FILE}".to_owned();
        section.problem("secret", "not exactly one of a Secret and two files says who asks", Some(next));
    }
    (secret.map(LoginConfig::Secret).or(files), insecure)
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
