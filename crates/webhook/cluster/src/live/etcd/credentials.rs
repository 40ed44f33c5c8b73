//! TLS configurations and logins for members, from Secrets or files.
//!
//! They are cached for half a minute, since waiting for the API server before each request would take too long. They are read
//! again at once if a member refuses them or is not verified by them. No message contains their values.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use admission::Cause;
use admission::file::read_file;
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
use crate::live::brief;
use crate::live::expiry::{CredentialKind, Expiry};
use crate::live::fleet_client::FleetClient;
use crate::live::recent_map::RecentMap;
use crate::{Address, Resource, cause, lock};

/// Age until which cached values are used. Kubelet updates a Secret in a pod's files within about a minute.
const MAX_AGE: Duration = Duration::from_secs(30);

/// The extension if they cannot be read now.
const EXTENSION: Duration = Duration::from_secs(5);

/// Unused values are dropped after this time: they may be passwords.
const DROP_AFTER: Duration = Duration::from_secs(300);

/// To read a value the first time, and again while the old one can still be used.
const FIRST_TIMEOUT: Duration = Duration::from_secs(5);

const REFRESH_TIMEOUT: Duration = Duration::from_millis(500);

/// 1 MiB: no Secret is larger.
const FILE_LIMIT: u64 = 1 << 20;

/// A login.
pub(super) struct User {
    pub(super) name: String,
    pub(super) password: String,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The cached credentials.
pub(super) struct Credentials {
    fleet: Arc<FleetClient>,
    tls: Cache<Tls, ClientConfig>,
    users: Cache<Login, User>,
}

impl Credentials {
    pub(super) fn new(fleet: Arc<FleetClient>) -> Self {
        Self { fleet, tls: Cache::default(), users: Cache::default() }
    }

    /// Returns the TLS configuration, read after `since` if possible. It is the same value while its sources do not change.
    pub(super) async fn tls(&self, tls: &Tls, since: Instant) -> Result<Arc<ClientConfig>, Cause> {
        let read = async {
            match &tls.material {
                None => Ok(PemParts::default()),
                Some(material) => self.material(material).await,
            }
        };
        self.tls.get(tls, since, read, |parts| config(tls, parts)).await
    }

    /// Returns the login, read after `since` if possible.
    pub(super) async fn user(&self, login: &Login, since: Instant) -> Result<Arc<User>, Cause> {
        let read = self.secret(&login.namespace, &login.name, ["username", "password", ""]);
        self.users.get(login, since, read, user).await
    }

    /// Reads these sources, and returns the expiries of their client certificates. The next review that needs one reports a failure.
    pub(super) async fn expiries(&self, configured: &[Material]) -> Vec<Expiry> {
        let mut expiries = Vec::new();
        for material in configured {
            let read = timeout(FIRST_TIMEOUT, self.material(material)).await;
            let Ok(Ok(parts)) = read else { continue };
            if let (name, Some(pem)) = named(&parts, 1) {
                expiries.extend(Expiry::of_pem(CredentialKind::EtcdClient, name, pem));
            }
        }
        expiries
    }

    /// Reads CA, client certificate and key.
    async fn material(&self, material: &Material) -> Result<PemParts, Cause> {
        match material {
            Material::Secret { namespace, name } => {
                self.secret(namespace, name, ["ca.crt", "tls.crt", "tls.key"]).await
            }
            Material::Files { authority, identity } => {
                let (certificate, key) = identity.clone().unzip();
                files([Some(authority.clone()), certificate, key]).await
            }
        }
    }

    async fn secret(&self, namespace: &str, name: &str, keys: [&str; 3]) -> Result<PemParts, Cause> {
        #[derive(Deserialize)]
        struct Secret {
            data: Option<HashMap<String, ByteString>>,
        }
        let source = format!("Secret {namespace}/{name}");
        let unusable = |why: &str| Cause::new(cause::CREDENTIALS, format!("{source} {why}"));
        let address = Address { resource: &Resource::SECRETS, namespace, name };
        let query = GetQuery { address, part: Part::Whole };
        let deadline = Instant::now() + FIRST_TIMEOUT;
        let found = self.fleet.get_object(&Cluster::Local, query, deadline).await?;
        let found = found.ok_or_else(|| unusable("does not exist"))?;
        let raw = found.raw.ok_or_else(|| unusable("was not read in full"))?;
        // The error would repeat its values.
        let secret: Secret = serde_json::from_str(raw.get()).map_err(|_| unusable("is invalid"))?;
        let mut data = secret.data.unwrap_or_default();
        let of = keys.map(|key| data.remove(key).map(|ByteString(bytes)| bytes));
        let names = keys.map(|key| format!("{source}'s {key}"));
        Ok(PemParts { source, names, of })
    }
}

/// The values of one Secret, or the files instead of one, each with its name in messages.
#[derive(Default)]
struct PemParts {
    source: String,
    names: [String; 3],
    of: [Option<Vec<u8>>; 3],
}

async fn files(paths: [Option<PathBuf>; 3]) -> Result<PemParts, Cause> {
    let reading = tokio::task::spawn_blocking(move || {
        let mut parts =
            PemParts { source: "the files of the configuration".to_owned(), ..PemParts::default() };
        for ((path, name), part) in paths.iter().zip(&mut parts.names).zip(&mut parts.of) {
            let Some(path) = path else { continue };
            *name = format!("file {}", path.display());
            let bytes = read_file(path, FILE_LIMIT)
                .map_err(|error| Cause::new(cause::CREDENTIALS, format!("{name} cannot be read: {error}")))?;
            *part = Some(bytes);
        }
        Ok(parts)
    });
    reading.await.unwrap_or_else(|error| Err(Cause::new(cause::CREDENTIALS, error.to_string())))
}

/// Values by their source.
struct Cache<K, T> {
    kept: Mutex<RecentMap<K, CacheSlot<T>>>,
}

/// Locked by the caller that reads; the others wait for its result.
type CacheSlot<T> = Arc<tokio::sync::Mutex<Option<Held<T>>>>;

struct Held<T> {
    of: [Option<Vec<u8>>; 3],
    made: Arc<T>,
    fresh_at: Instant,
}

impl<K: Clone + Eq + Hash, T> Default for Cache<K, T> {
    fn default() -> Self {
        Self { kept: Mutex::new(RecentMap::new(DROP_AFTER)) }
    }
}

impl<K: Clone + Eq + Hash, T> Cache<K, T> {
    async fn get(
        &self,
        key: &K,
        since: Instant,
        read: impl Future<Output = Result<PemParts, Cause>>,
        build: impl FnOnce(&PemParts) -> Result<T, String>,
    ) -> Result<Arc<T>, Cause> {
        let slot = {
            let mut kept = lock(&self.kept);
            kept.drop_idle();
            if let Some(slot) = kept.get(key) {
                Arc::clone(slot)
            } else {
                let slot = CacheSlot::default();
                kept.insert(key.clone(), Arc::clone(&slot));
                slot
            }
        };
        let mut held = slot.lock().await;
        if let Some(held) = held.as_ref()
            && held.fresh_at >= since
        {
            return Ok(Arc::clone(&held.made));
        }
        let began = Instant::now();
        let within = if held.is_some() { REFRESH_TIMEOUT } else { FIRST_TIMEOUT };
        let late = || Cause::new(cause::TIMEOUT, "no answer from the API server in time");
        let came = timeout(within, read).await.unwrap_or_else(|_| Err(late()));
        let parts = match (came, held.as_mut()) {
            (Ok(parts), _) => parts,
            // The old value may still be right.
            (Err(why), Some(held)) if is_temporary(&why) => {
                held.fresh_at = (began + EXTENSION).checked_sub(MAX_AGE).unwrap_or(began);
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

fn is_temporary(why: &Cause) -> bool {
    matches!(why.code, cause::TIMEOUT | cause::UNREACHABLE | cause::BUSY | cause::OVERLOADED)
}

fn credentials(why: &str) -> Cause {
    Cause::new(cause::CREDENTIALS, format!("no credentials: {why}"))
}

/// Returns the oldest time at which a cached value may have been read.
pub(super) fn recently() -> Instant {
    let now = Instant::now();
    now.checked_sub(MAX_AGE).unwrap_or(now)
}

fn user(parts: &PemParts) -> Result<User, String> {
    let [name, password, _] = [0, 1, 2].map(|at| text(parts, at));
    let (name, password) = (name?, password?);
    if name.is_empty() {
        return Err(format!("{} is empty", parts.names[0]));
    }
    Ok(User { name, password })
}

/// Returns a value as text, without its last line end.
fn text(parts: &PemParts, at: usize) -> Result<String, String> {
    let (name, part) = named(parts, at);
    let bytes = part.ok_or_else(|| format!("{name} does not exist"))?;
    let text = std::str::from_utf8(bytes).map_err(|_| format!("{name} is not UTF-8"))?;
    let text = text.strip_suffix('\n').unwrap_or(text);
    Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
}

fn named(parts: &PemParts, at: usize) -> (&str, Option<&[u8]>) {
    let name = parts.names.get(at).map_or("", String::as_str);
    (name, parts.of.get(at).and_then(Option::as_deref))
}

fn config(tls: &Tls, parts: &PemParts) -> Result<ClientConfig, String> {
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
            // The parser's error could contain parts of the key.
            let key = PrivateKeyDer::from_pem_slice(key)
                .map_err(|_| format!("{key_name} is not a PEM private key"))?;
            let fits = |_| format!("{key_name} does not match {certificate}, or has an unsupported type");
            builder.with_client_auth_cert(chain, key).map_err(fits)
        }
        ((name, None), _) | (_, (name, None)) => {
            Err(format!("{} has only one of client certificate and key: {name} does not exist", parts.source))
        }
    }
}

fn roots(parts: &PemParts) -> Result<RootCertStore, String> {
    let (name, authority) = named(parts, 0);
    let authority = match authority {
        Some(authority) => authority,
        None if name.is_empty() => return Err("no CA is configured".to_owned()),
        None => return Err(format!("{name} does not exist")),
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
        Ok(_) | Err(_) => Err(format!("{name} contains no PEM certificate")),
    }
}

/// Accepts every certificate, for `insecure`. The handshake still proves that the member has its key.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::recent_map::MAX_ENTRIES;

    #[tokio::test]
    async fn keeps_a_limited_number_of_credentials() {
        let cache = Cache::default();
        for key in 0..MAX_ENTRIES + 10 {
            let read = async { Ok(PemParts::default()) };
            cache.get(&key, recently(), read, |_| Ok(())).await.unwrap();
        }
        assert_eq!(lock(&cache.kept).len(), MAX_ENTRIES);
    }
}
