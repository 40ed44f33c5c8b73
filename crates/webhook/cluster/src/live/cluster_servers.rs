//! Maps a cluster to its API server and keeps one [`ApiServer`] for each.
//!
//! The local cluster and Karmada's member clusters share the local API server. Clusters of contexts and Secrets have their own.
//! Those are created when they are first needed, and again when their kubeconfig changes. Every review reads the list of the
//! fleet, which contains the version of each Secret and a hash of each context. An old client would query the cluster that the
//! name used to mean, and report that cluster's objects for the new one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use admission::{BoxFuture, Cause};
use futures_util::FutureExt as _;
use futures_util::future::Shared;
use hyper::StatusCode;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};

use super::access::{Access, Contexts};
use super::api_server::{ApiServer, OBJECT_LIMIT, WHOLE};
use super::body::BodyReader;
use super::client::{CREDENTIALS_TIMEOUT, Connections};
use super::expiry::{CredentialKind, Expiry};
use super::failure::{Status, brief};
use super::{kubeconfig_secret, path};
use crate::fleet::Cluster;
use crate::{Address, Resource, cause, lock};

/// To read a Secret, for a client that outlives the review that needs it first.
const SECRET_TIMEOUT: Duration = Duration::from_secs(10);

/// A context whose credentials failed is not tried again for this time unless it changes, because a credential plugin sends
/// requests to a cloud.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// Concurrent credential plugins. One that hangs keeps its thread; without a limit they would take all blocking threads
/// (tokio: 512).
const MAX_PLUGINS: usize = 64;

type Connected = Result<Arc<ApiServer>, Cause>;

/// The API servers of all clusters.
pub(super) struct ClusterServers {
    pub(super) local: Arc<ApiServer>,
    pub(super) access: Access,
    runtime: Handle,
    others: Mutex<Others>,
    plugins: Arc<Semaphore>,
    /// The number of the next list of the fleet.
    next_list: AtomicU64,
}

/// Both maps have an entry only for clusters of the newest list of the fleet.
#[derive(Default)]
struct Others {
    servers: HashMap<Cluster, OtherServer>,
    /// Secrets and contexts, with their versions in the newest list of the fleet.
    versions: HashMap<Cluster, String>,
    /// The number of that list.
    list: u64,
}

/// The API server of a context or a Secret.
struct OtherServer {
    version: String,
    connected: Shared<BoxFuture<'static, Connected>>,
    attempt: Arc<Attempt>,
}

/// The state of one attempt to get credentials.
#[derive(Debug, Default)]
struct Attempt {
    /// Set while a plugin runs, which may be after its callers gave up.
    is_running: AtomicBool,
    failed: OnceLock<Instant>,
}

/// Clears [`Attempt::is_running`] when it is dropped.
struct Running(Arc<Attempt>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.is_running.store(false, Ordering::Release);
    }
}

impl Attempt {
    /// Whether a new attempt would be too early.
    fn blocks_retry(&self, now: Instant) -> bool {
        self.is_running.load(Ordering::Acquire)
            || self.failed.get().is_some_and(|&at| now.saturating_duration_since(at) < RETRY_AFTER)
    }
}

impl ClusterServers {
    pub(super) fn new(local: ApiServer, access: Access, runtime: Handle) -> Self {
        let plugins = Arc::new(Semaphore::new(MAX_PLUGINS));
        let next_list = AtomicU64::new(1);
        Self { local: Arc::new(local), access, runtime, others: Mutex::default(), plugins, next_list }
    }

    /// Returns the number of a list of the fleet that begins now.
    pub(super) fn begin_list(&self) -> u64 {
        self.next_list.fetch_add(1, Ordering::Relaxed)
    }

    /// Stores the Secrets of a list and their versions.
    pub(super) fn update_secrets(&self, list: u64, versions: HashMap<Cluster, String>) {
        self.update(list, |of| matches!(of, Cluster::Secret(..)), versions);
    }

    /// Stores the contexts of the kubeconfig and their versions.
    pub(super) fn update_contexts(&self, list: u64, contexts: &Contexts) {
        let version =
            |(name, version): &(String, u64)| (Cluster::Context(name.as_str().into()), version.to_string());
        let versions = contexts.versions.iter().map(version).collect();
        self.update(list, |of| matches!(of, Cluster::Context(_)), versions);
    }

    /// Replaces the versions of a kind of clusters, and drops the clients of clusters that are gone. A list that began before the newest
    /// one is ignored.
    fn update(&self, list: u64, is_of_kind: fn(&Cluster) -> bool, versions: HashMap<Cluster, String>) {
        let mut others = lock(&self.others);
        if list < others.list {
            return;
        }
        others.list = list;
        others.servers.retain(|of, _| !is_of_kind(of) || versions.contains_key(of));
        others.versions.retain(|of, _| !is_of_kind(of));
        others.versions.extend(versions);
    }

    /// Returns the expiries of the client certificates for all connected clusters.
    pub(super) fn expiries(&self) -> Vec<Expiry> {
        let others = lock(&self.others);
        let members = others.servers.values().filter_map(|member| member.connected.peek()?.as_ref().ok());
        std::iter::once(&self.local)
            .chain(members)
            .filter_map(|server| server.connections().expiry.clone())
            .collect()
    }

    /// Returns the API server of a cluster.
    pub(super) async fn get(&self, of: &Cluster) -> Connected {
        match of {
            Cluster::Local | Cluster::Member(_) => Ok(Arc::clone(&self.local)),
            Cluster::Context(_) | Cluster::Secret(..) => self.connect(of).await,
        }
    }

    fn connect(&self, of: &Cluster) -> Shared<BoxFuture<'static, Connected>> {
        let mut others = lock(&self.others);
        let version = others.versions.get(of).cloned().unwrap_or_default();
        if let Some(known) = others.servers.get(of)
            && known.version == version
            && (!matches!(known.connected.peek(), Some(Err(_))) || known.attempt.blocks_retry(Instant::now()))
        {
            return known.connected.clone();
        }
        let attempt = Arc::<Attempt>::default();
        let connecting = match of {
            Cluster::Secret(namespace, name) => {
                let (local, namespace, name) =
                    (Arc::clone(&self.local), Arc::clone(namespace), Arc::clone(name));
                connect_by_secret(local, namespace, name).boxed()
            }
            Cluster::Context(name) => {
                let access = Access { context: Some(name.to_string()), ..self.access.clone() };
                let (bodies, plugins) = (self.local.bodies.clone(), Arc::clone(&self.plugins));
                connect_by_context(access, bodies, plugins, Arc::clone(&attempt)).boxed()
            }
            Cluster::Local | Cluster::Member(_) => std::future::ready(Ok(Arc::clone(&self.local))).boxed(),
        };
        // A task of its own, so that a plugin that takes longer than one review is done for the next.
        let task = self.runtime.spawn(connecting);
        let connected = async move {
            task.await.unwrap_or_else(|error| Err(Cause::new(cause::CREDENTIALS, error.to_string())))
        };
        let connected = connected.boxed().shared();
        others.servers.insert(of.clone(), OtherServer { version, connected: connected.clone(), attempt });
        connected
    }
}

async fn connect_by_context(
    access: Access,
    bodies: BodyReader,
    plugins: Arc<Semaphore>,
    attempt: Arc<Attempt>,
) -> Connected {
    let name = access.context.clone().unwrap_or_default();
    let problem = |why: String| {
        // The output of a plugin is logged, and not shown to the user of kubectl.
        tracing::warn!(cluster = name, "no credentials: {why}");
        let text = format!("credentials of {name} cannot be read from its context in Durward's kubeconfig");
        Cause::new(cause::CREDENTIALS, text)
    };
    let connected = match access.config().await {
        Ok((config, source)) => {
            let source = format!("context {name} of {source}");
            connect(config, source, bodies, Some((plugins, Arc::clone(&attempt)))).await
        }
        Err(error) => Err(error.to_string()),
    };
    if connected.is_err() {
        // Each attempt sets it once.
        let _ = attempt.failed.set(Instant::now());
    }
    connected.map_err(problem)
}

async fn connect_by_secret(local: Arc<ApiServer>, namespace: Arc<str>, name: Arc<str>) -> Connected {
    let because = |code, why: &str| {
        let text = format!("credentials of {name} cannot be read from Secret {namespace}/{name}: {why}");
        Cause::new(code, text)
    };
    let address = Address { resource: &Resource::SECRETS, namespace: &namespace, name: &name };
    let Some(path) = path::object(address) else {
        return Err(because(cause::REFUSED, "no object can have this name"));
    };
    let fetched = timeout(SECRET_TIMEOUT, local.fetch(&path, WHOLE, OBJECT_LIMIT)).await;
    let fetched = fetched.map_err(|_| because(cause::TIMEOUT, "the API server did not answer"))?;
    let (status, body) = fetched.map_err(|failure| because(failure.cause.code, &failure.cause.text))?;
    if status == StatusCode::NOT_FOUND && Status::of(&body).is_about(address) {
        return Err(Cause::new(cause::VANISHED, format!("{name} is not a cluster of the fleet any more")));
    }
    if status != StatusCode::OK {
        let failure = super::failure::refusal(status, &body, "get", &Resource::SECRETS);
        return Err(because(failure.cause.code, &failure.cause.text));
    }
    let config = kubeconfig_secret::config(&body).await.map_err(|why| because(cause::CREDENTIALS, &why))?;
    let source = format!("Secret {namespace}/{name}");
    let connected = connect(config, source, local.bodies.clone(), None).await;
    connected.map_err(|why| because(cause::CREDENTIALS, &brief(&why)))
}

/// Creates the client of one cluster. `source` is the name of its kubeconfig in messages. A context can run a credential
/// plugin. At most [`MAX_PLUGINS`] plugins run at once.
async fn connect(
    config: kube::Config,
    source: String,
    bodies: BodyReader,
    plugin: Option<(Arc<Semaphore>, Arc<Attempt>)>,
) -> Result<Arc<ApiServer>, String> {
    let late = |_| format!("the credential plugin did not finish in {} s", CREDENTIALS_TIMEOUT.as_secs());
    let end = Instant::now() + CREDENTIALS_TIMEOUT;
    let running = match plugin {
        None => None,
        Some((plugins, attempt)) => {
            let permit = timeout_at(end, plugins.acquire_owned()).await;
            let permit = permit
                .map_err(|_| format!("{MAX_PLUGINS} credential plugins are running and do not finish"))?;
            attempt.is_running.store(true, Ordering::Release);
            Some((permit, Running(attempt)))
        }
    };
    // A plugin that misses the deadline keeps its thread and its permit until it ends.
    let connecting = tokio::task::spawn_blocking(move || {
        let connections = Connections::new(&config, 0, CredentialKind::MemberClient, &source);
        drop(running);
        connections.map(|connections| ApiServer::fixed(connections, bodies))
    });
    match timeout_at(end, connecting).await.map_err(late)? {
        Ok(Ok(server)) => Ok(Arc::new(server)),
        Ok(Err(problem)) => Err(problem.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_blocks_the_next_while_its_plugin_runs_and_for_a_time_after_it_failed() {
        let attempt = Arc::<Attempt>::default();
        let now = Instant::now();
        assert!(!attempt.blocks_retry(now));
        attempt.is_running.store(true, Ordering::Release);
        let running = Running(Arc::clone(&attempt));
        attempt.failed.set(now).unwrap();
        assert!(attempt.blocks_retry(now + 2 * RETRY_AFTER));
        drop(running);
        assert!(!attempt.blocks_retry(now + RETRY_AFTER));
        assert!(attempt.blocks_retry(now + RETRY_AFTER / 2));
    }
}
