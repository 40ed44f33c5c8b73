//! Whom an ensemble's members are recognised by, and who Durward is to them: out of Secrets or files, read again when they change.
//!
//! Kept for half a minute, as nobody could wait for the API server before each question; and read again at once when a member
//! refuses what is kept, or cannot be recognised by it. What stands in them is never part of a sentence.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use admission::Cause;
use k8s_openapi::ByteString;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use serde::Deserialize;
use tokio::time::{Instant, timeout};

use crate::etcd::{Login, Material, Tls};
use crate::fleet::{Cluster, GetQuery, Part};
use crate::live::clusters::Clusters;
use crate::live::failure::brief;
use crate::live::lanes::For;
use crate::{Address, Resource, cause};

/// What was read is not read again for so long. Kubelet brings a changed Secret to a pod's files within about a minute.
const KEPT: Duration = Duration::from_secs(30);

/// After that, when it cannot be read just now, what was read before serves for so much longer.
const AGAIN: Duration = Duration::from_secs(5);

/// What nobody has wanted for so long is forgotten: its namespace may be gone, and it may be a password.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);

/// To read it: the first time somebody waits for it, later there is something to go on with.
const FIRST_WITHIN: Duration = Duration::from_secs(5);
const AGAIN_WITHIN: Duration = Duration::from_millis(500);

/// 1 MiB: no Secret is larger, and no file of certificates has to be.
const FILE_LIMIT: u64 = 1 << 20;

/// Who logs in.
pub(super) struct User {
    pub(super) name: String,
    pub(super) password: String,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Everything that was read of authorities, certificates and passwords.
pub(super) struct Keys {
    clusters: Arc<Clusters>,
    trusts: Store<Tls, ClientConfig>,
    users: Store<Login, User>,
}

impl Keys {
    pub(super) fn new(clusters: Arc<Clusters>) -> Self {
        Self { clusters, trusts: Store::default(), users: Store::default() }
    }

    /// The TLS to speak; the same value for as long as what it is made of stays the same. Read `since` or later, if that can be.
    pub(super) async fn trust(&self, tls: &Tls, since: Instant) -> Result<Arc<ClientConfig>, Cause> {
        self.trusts.get(tls, since, self.material(tls), |parts| config(tls, parts)).await
    }

    /// The user to log in as.
    pub(super) async fn user(&self, login: &Login, since: Instant) -> Result<Arc<User>, Cause> {
        self.users.get(login, since, self.login(login), user).await
    }

    async fn material(&self, tls: &Tls) -> Result<Parts, Cause> {
        match &tls.material {
            None => Ok(Parts::default()),
            Some(Material::Secret { namespace, name }) => {
                self.secret(namespace, name, ["ca.crt", "tls.crt", "tls.key"]).await
            }
            Some(Material::Files { authority, identity }) => {
                let (certificate, key) = identity.clone().unzip();
                files([Some(authority.clone()), certificate, key]).await
            }
        }
    }

    async fn login(&self, login: &Login) -> Result<Parts, Cause> {
        match login {
            Login::Secret { namespace, name } => {
                self.secret(namespace, name, ["username", "password", ""]).await
            }
            Login::Files { user, password } => {
                files([Some(user.clone()), Some(password.clone()), None]).await
            }
        }
    }

    async fn secret(&self, namespace: &str, name: &str, keys: [&str; 3]) -> Result<Parts, Cause> {
        #[derive(Deserialize)]
        struct Secret {
            data: Option<HashMap<String, ByteString>>,
        }
        let source = format!("Secret {namespace}/{name}");
        let unusable = |why: &str| Cause::new(cause::CREDENTIALS, format!("{source} {why}"));
        let address = Address { resource: &Resource::SECRETS, namespace, name };
        let look = GetQuery { address, part: Part::Whole };
        let deadline = Instant::now() + FIRST_WITHIN;
        let found = self.clusters.find(&Cluster::Local, look, For::Review, deadline).await?;
        let found = found.ok_or_else(|| unusable("is not there"))?;
        let raw = found.raw.ok_or_else(|| unusable("was not read whole"))?;
        // Nothing of it is repeated.
        let secret: Secret = serde_json::from_str(raw.get()).map_err(|_| unusable("cannot be read"))?;
        let mut data = secret.data.unwrap_or_default();
        let of = keys.map(|key| data.remove(key).map(|ByteString(bytes)| bytes));
        let names = keys.map(|key| format!("{source}'s {key}"));
        Ok(Parts { source, names, of })
    }
}

/// What one Secret holds, or the files that stand for one; each with what it is called.
#[derive(Default)]
struct Parts {
    source: String,
    names: [String; 3],
    of: [Option<Vec<u8>>; 3],
}

async fn files(paths: [Option<PathBuf>; 3]) -> Result<Parts, Cause> {
    let reading = tokio::task::spawn_blocking(move || {
        let mut parts = Parts { source: "the files of the configuration".to_owned(), ..Parts::default() };
        for ((path, name), part) in paths.iter().zip(&mut parts.names).zip(&mut parts.of) {
            let Some(path) = path else { continue };
            *name = format!("file {}", path.display());
            let bytes = file(path)
                .map_err(|error| Cause::new(cause::CREDENTIALS, format!("{name} cannot be read: {error}")))?;
            *part = Some(bytes);
        }
        Ok(parts)
    });
    reading.await.unwrap_or_else(|error| Err(Cause::new(cause::CREDENTIALS, error.to_string())))
}

fn file(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::{Error, Read as _};
    let file = std::fs::File::open(path)?;
    // A pipe would be waited for, and for ever.
    if !file.metadata()?.is_file() {
        return Err(Error::other("it is no file"));
    }
    let mut bytes = Vec::new();
    file.take(FILE_LIMIT + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_LIMIT {
        return Err(Error::other("it is larger than 1 MiB"));
    }
    Ok(bytes)
}

/// Things that are made of what is read somewhere, by where that is.
struct Store<K, T> {
    /// Each with when it was wanted last.
    kept: Mutex<HashMap<K, (Slot<T>, Instant)>>,
}

/// Who reads holds it, and the others wait for what is read.
type Slot<T> = Arc<tokio::sync::Mutex<Option<Held<T>>>>;

struct Held<T> {
    of: [Option<Vec<u8>>; 3],
    made: Arc<T>,
    fresh_at: Instant,
}

impl<K, T> Default for Store<K, T> {
    fn default() -> Self {
        Self { kept: Mutex::default() }
    }
}

impl<K: Clone + Eq + Hash, T> Store<K, T> {
    async fn get(
        &self,
        key: &K,
        since: Instant,
        read: impl Future<Output = Result<Parts, Cause>>,
        build: impl FnOnce(&Parts) -> Result<T, String>,
    ) -> Result<Arc<T>, Cause> {
        let slot = {
            let (mut kept, now) = (self.kept.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
            kept.retain(|_, (_, wanted)| now.saturating_duration_since(*wanted) < FORGOTTEN_AFTER);
            let (slot, wanted) = kept.entry(key.clone()).or_insert_with(|| (Slot::default(), now));
            *wanted = now;
            Arc::clone(slot)
        };
        let mut held = slot.lock().await;
        if let Some(held) = held.as_ref()
            && held.fresh_at >= since
        {
            return Ok(Arc::clone(&held.made));
        }
        let began = Instant::now();
        let within = if held.is_some() { AGAIN_WITHIN } else { FIRST_WITHIN };
        let late = || Cause::new(cause::TIMEOUT, "the API server did not answer in time");
        let came = timeout(within, read).await.unwrap_or_else(|_| Err(late()));
        let parts = match (came, held.as_mut()) {
            (Ok(parts), _) => parts,
            // Nobody says that it is not so any more.
            (Err(why), Some(held)) if is_passing(&why) => {
                held.fresh_at = (began + AGAIN).checked_sub(KEPT).unwrap_or(began);
                return Ok(Arc::clone(&held.made));
            }
            (Err(why), _) => {
                *held = None;
                return Err(credentials(&why.text));
            }
        };
        if let Some(held) = held.as_mut()
            && held.of == parts.of
        {
            held.fresh_at = began;
            return Ok(Arc::clone(&held.made));
        }
        *held = None;
        let made = Arc::new(build(&parts).map_err(|why| credentials(&why))?);
        *held = Some(Held { of: parts.of, made: Arc::clone(&made), fresh_at: began });
        Ok(made)
    }
}

fn is_passing(why: &Cause) -> bool {
    matches!(why.code, cause::TIMEOUT | cause::UNREACHABLE | cause::BUSY | cause::CROWDED)
}

fn credentials(why: &str) -> Cause {
    Cause::new(cause::CREDENTIALS, format!("Durward has no credentials for it: {why}"))
}

/// Since when what is kept must have been read for a question that is asked now.
pub(super) fn recently() -> Instant {
    let now = Instant::now();
    now.checked_sub(KEPT).unwrap_or(now)
}

fn user(parts: &Parts) -> Result<User, String> {
    let [name, password, _] = [0, 1, 2].map(|at| text(parts, at));
    let (name, password) = (name?, password?);
    if name.is_empty() {
        return Err(format!("{} is empty", parts.names[0]));
    }
    Ok(User { name, password })
}

/// A part as text, without the end of its last line.
fn text(parts: &Parts, at: usize) -> Result<String, String> {
    let (name, part) = named(parts, at);
    let bytes = part.ok_or_else(|| format!("{name} is not there"))?;
    let text = std::str::from_utf8(bytes).map_err(|_| format!("{name} is not UTF-8"))?;
    let text = text.strip_suffix('\n').unwrap_or(text);
    Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
}

fn named(parts: &Parts, at: usize) -> (&str, Option<&[u8]>) {
    let name = parts.names.get(at).map_or("", String::as_str);
    (name, parts.of.get(at).and_then(Option::as_deref))
}

fn config(tls: &Tls, parts: &Parts) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    let builder = if tls.insecure {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(Unverified(provider)))
    } else {
        builder.with_root_certificates(roots(parts)?)
    };
    match (named(parts, 1), named(parts, 2)) {
        ((_, None), (_, None)) => Ok(builder.with_no_client_auth()),
        ((certificate, Some(chain)), (key_name, Some(key))) => {
            let chain = certificates(certificate, chain)?;
            // What is wrong with a key is not told in the words of who read it.
            let key = PrivateKeyDer::from_pem_slice(key)
                .map_err(|_| format!("{key_name} is no private key in PEM"))?;
            let fits =
                |_| format!("{key_name} does not fit {certificate}, or is of a kind that is not known");
            builder.with_client_auth_cert(chain, key).map_err(fits)
        }
        ((name, None), _) | (_, (name, None)) => Err(format!(
            "{} has only one of the client's certificate and key: {name} is not there",
            parts.source
        )),
    }
}

fn roots(parts: &Parts) -> Result<RootCertStore, String> {
    let (name, authority) = named(parts, 0);
    let authority = match authority {
        Some(authority) => authority,
        None if name.is_empty() => return Err("no authority is configured by which to know it".to_owned()),
        None => return Err(format!("{name} is not there")),
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(name, authority)? {
        roots.add(certificate).map_err(|error| format!("{name}: {}", brief(&error.to_string())))?;
    }
    Ok(roots)
}

fn certificates(name: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match read {
        Ok(read) if !read.is_empty() => Ok(read),
        Ok(_) | Err(_) => Err(format!("{name} holds no certificate in PEM")),
    }
}

/// Takes whatever certificate a member has, because the configuration says so. That it holds the key is still proven.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
