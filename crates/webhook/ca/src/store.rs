//! Traits for the Secret with the CA, and for the webhook configurations that must trust it. Their implementations use
//! Kubernetes; this crate does not.

use std::collections::BTreeMap;
use std::time::SystemTime;

use admission::BoxFuture;

/// The Secret that contains the CA. All replicas share it.
pub trait Store: Send + Sync {
    /// Returns the name of the Secret in messages: `Secret durward-system/durward-ca`.
    fn place(&self) -> &str;

    /// Returns the command that empties the Secret. Durward then creates a new CA.
    fn reset_command(&self) -> String;

    /// Reads the Secret. The answer isn't from a cache.
    fn read(&self) -> BoxFuture<'_, Result<Stored, StoreError>>;

    /// Replaces the data if the Secret still has this version.
    fn write<'a>(
        &'a self,
        version: &'a str,
        data: &'a BTreeMap<String, Vec<u8>>,
    ) -> BoxFuture<'a, Result<StoreResult, StoreError>>;
}

/// The contents of the Secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Stored {
    /// The values by key; empty in a new Secret.
    pub data: BTreeMap<String, Vec<u8>>,
    /// The version that [`Store::write`] requires.
    pub version: String,
    /// The time of the answer by the clock of the API server, to the second. It reveals a wrong clock of this machine.
    pub server_time: Option<SystemTime>,
}

// `{:?}` must not write a key to a log.
impl std::fmt::Debug for Stored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let keys: Vec<_> = self.data.keys().collect();
        f.debug_struct("Stored").field("keys", &keys).field("version", &self.version).finish_non_exhaustive()
    }
}

/// The outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreResult {
    /// The data was stored.
    Done,
    /// Another replica changed the Secret first.
    Conflict,
}

/// Error: the Secret can't be read, written or used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}; next: {next}")]
pub struct StoreError {
    /// The label of the metric.
    pub reason: StoreFault,
    /// The object and the reason.
    pub text: String,
    /// The next step, with a command.
    pub next: String,
}

/// The kind of a [`StoreError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreFault {
    /// The Secret or its namespace does not exist.
    Missing,
    /// The Secret lacks the label of Durward, so it belongs to another program.
    Foreign,
    /// A permission is missing. The text names the verb.
    Forbidden,
    /// The API server did not answer, or answered with an error of its own.
    Unreachable,
    /// The contents can't be used.
    Invalid,
}

impl StoreFault {
    /// Returns the label of the metric.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Foreign => "foreign",
            Self::Forbidden => "forbidden",
            Self::Unreachable => "unreachable",
            Self::Invalid => "invalid",
        }
    }
}

/// The webhook configurations of Durward in all API servers that call it.
pub trait Registrations: Send + Sync {
    /// Asks for a pass that writes the current bundle. It can return before the pass has run.
    fn publish(&self) -> BoxFuture<'_, ()>;

    /// Reads the caBundles now. The answer isn't from a cache.
    fn read(&self) -> BoxFuture<'_, Registered>;
}

/// The caBundles of Durward's webhook configurations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Registered {
    /// The caBundle of each entry that calls Durward. Empty if no configuration of Durward has an entry.
    Bundles(Vec<RegisteredBundle>),
    /// At least one API server did not answer. The text names it, and the reason.
    Unknown(String),
}

/// The caBundle of one webhook entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredBundle {
    /// The entry in messages: `webhook etcd.durward.dev of ValidatingWebhookConfiguration durward`.
    pub place: String,
    /// The decoded caBundle: PEM, or empty.
    pub pem: Vec<u8>,
    /// The command that applies the webhook configuration.
    pub apply_command: String,
}

/// Source of the CA certificates that a caBundle must contain.
///
/// A pass over the webhook configurations first reads the objects, then calls [`Bundle::read`], and then writes with the
/// `resourceVersion` of the objects that it read.
pub trait Bundle: Send + Sync {
    /// Reads the bundle. The answer isn't from a cache.
    fn read(&self) -> BoxFuture<'_, Result<CaBundle, StoreError>>;
}

/// CA certificates in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaBundle {
    /// The CA that signs the serving certificates. If a caBundle lacks it, calls fail.
    pub signer: String,
    /// The value of caBundle: the signer, the CA that replaces it, and the one that it replaced.
    pub pem: String,
}
