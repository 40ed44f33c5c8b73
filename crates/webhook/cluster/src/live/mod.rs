//! A live control plane: one API server, the clusters of its fleet, and etcd members.
//!
//! Fresh watched objects come from the cache; `reflector.rs` has the rule. For all other objects, a request is sent. Each
//! failure is a named cause. [`Live`] owns its tasks and connections, and stops them when it is dropped.

mod access;
mod answer;
mod api_server;
mod body;
mod cluster_servers;
mod etcd;
mod expiry;
mod failure;
mod fleet_client;
mod http2_connection;
mod karmada;
mod kubeconfig_secret;
mod path;
mod pool;
mod probes;
mod recent_map;
mod reflector;
mod single_flight;
mod writer;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::future::ready;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use admission::{BoxFuture, Cause};
use kube::client::ConfigExt as _;
use kube::{Client, Config};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};
use tower::{Layer as _, service_fn};

use super::etcd::{Endpoint, EtcdRequest, EtcdResult, Material};
use super::fleet::{
    Cluster, ClusterHealth, Fleet, GetQuery, ListQuery, MembersResult, ObjectResult, PageResult,
};
use super::{Address, EtcdClient, MetadataResult, Reader, Readiness, Resource, cause};
use body::BodyReader;
use config::Problem;
use fleet_client::FleetClient;
use pool::FLEET_CONNECTIONS;
use probes::Prober;
use reflector::{Cached, Reflector};
use single_flight::SingleFlight;

pub use access::Access;
pub(crate) use api_server::ApiServer;
pub(crate) use etcd::Members;
pub use expiry::{CredentialKind, Expiry};
pub(crate) use failure::{brief, short};
pub use writer::LiveWriter;

/// Credential plugins send requests to a cloud. One that waits for input cannot be used by a server.
const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(30);

/// A control plane.
pub struct Live {
    url: String,
    pub(crate) server: ApiServer,
    runtime: Handle,
    watches: RwLock<HashMap<Resource, Watch>>,
    gets: SingleFlight<Key, MetadataResult>,
    fleet: Arc<FleetClient>,
    pub(crate) members: Members,
    prober: Prober,
}

/// An [`Address`] that owns its parts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    resource: Resource,
    namespace: String,
    name: String,
}

/// Creates a client of the API server that `access` names, and returns it with the server's URL. Must be called within a
/// runtime, which runs the connections.
pub async fn client(access: &Access) -> Result<(Client, String), Problem> {
    with_config(access, |config, _| {
        let sender = pool::connect(config, 0)?.shared;
        let service = config.base_uri_layer().layer(service_fn(move |request| sender(request)));
        Ok((Client::new(service, config.default_namespace.clone()), config.cluster_url.to_string()))
    })
    .await
}

/// Reads the kubeconfig and runs `connect` on a blocking thread, since it may run a credential plugin. `connect` also gets the
/// name of the kubeconfig.
async fn with_config<T: Send + 'static>(
    access: &Access,
    connect: impl FnOnce(&Config, &str) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let (config, source) = access.config().await?;
    let problem = format!("the credentials for {}", config.cluster_url);
    let connecting = tokio::task::spawn_blocking(move || connect(&config, &source));
    match tokio::time::timeout(CREDENTIALS_TIMEOUT, connecting).await {
        Ok(Ok(connected)) => connected,
        Ok(Err(error)) => Err(Problem::new(problem).why(error.to_string())),
        Err(_) => Err(Problem::new(problem)
            .why(format!("the credential plugin did not finish in {} s", CREDENTIALS_TIMEOUT.as_secs()))
            .next("run it by hand; it must not wait for input")),
    }
}

/// A reflector and its task.
struct Watch {
    reflector: Arc<Reflector>,
    task: AbortHandle,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Live {
    /// Finds the API server and the credentials, and sends no request yet. An API server that is down now is the cause of each
    /// Unknown answer until it is up, not a reason to fail here.
    ///
    /// Must be called within a tokio runtime, which runs the watches and connections.
    pub async fn connect(access: &Access) -> Result<Self, Problem> {
        let connect = |config: &Config, source: &str| {
            let server = ApiServer::connect(config, FLEET_CONNECTIONS, BodyReader::default())?;
            let expiry = Expiry::of_config(config, CredentialKind::ApiServerClient, source);
            Ok((server.with_expiry(expiry), config.cluster_url.to_string()))
        };
        let (server, url) = with_config(access, connect).await?;
        Ok(Self::new(server, url, access.clone()))
    }

    fn new(server: ApiServer, url: String, access: Access) -> Self {
        let runtime = Handle::current();
        let fleet = Arc::new(FleetClient::new(server.clone(), access, runtime.clone()));
        let members = Members::new(Arc::clone(&fleet), server.bodies.clone());
        Self {
            url,
            server,
            runtime,
            watches: RwLock::default(),
            gets: SingleFlight::default(),
            fleet,
            members,
            prober: Prober::default(),
        }
    }

    /// Returns the URL of the API server, for messages.
    pub fn server(&self) -> &str {
        &self.url
    }

    /// Returns the expiries of the client certificates in use. `configured` are sources of those for etcd members, which are read now.
    pub async fn expiries(&self, configured: &[Material]) -> Vec<Expiry> {
        let mut expiries = self.fleet.expiries();
        expiries.extend(self.members.expiries(configured).await);
        expiries
    }

    /// Starts a watch of this resource, whose objects [`Reader::get`] then answers from the cache. Does nothing if the
    /// resource is watched already.
    pub fn watch(&self, resource: &Resource) {
        let mut watches = self.watches.write().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Vacant(entry) = watches.entry(resource.clone()) {
            let reflector = Arc::new(Reflector::new(resource.clone()));
            let task = self.runtime.spawn(Arc::clone(&reflector).run(self.server.clone()));
            entry.insert(Watch { reflector, task: task.abort_handle() });
        }
    }

    /// Probes the local cluster and each one of a fleet every minute, from now on. Without a fleet, it stops.
    pub fn probe(&self, fleet: Option<Fleet>) {
        self.prober.start(fleet, &self.fleet, &self.runtime);
    }

    /// Returns the results of the last probes, one for each cluster. Empty before the first probes end.
    pub fn health(&self) -> Vec<ClusterHealth> {
        self.prober.health()
    }

    /// Returns a line for `/readyz` for each watched resource.
    pub fn readiness(&self) -> Vec<Readiness> {
        let now = Instant::now();
        let watches = self.watches.read().unwrap_or_else(PoisonError::into_inner);
        let mut lines: Vec<_> = watches.values().map(|watch| watch.reflector.readiness(now)).collect();
        lines.sort_by(|a, b| a.name.cmp(&b.name));
        lines
    }

    fn cached(&self, address: Address<'_>, now: Instant) -> Cached {
        let watches = self.watches.read().unwrap_or_else(PoisonError::into_inner);
        watches
            .get(address.resource)
            .map_or(Cached::Nothing, |watch| watch.reflector.get(address.namespace, address.name, now))
    }

    async fn get_stale(&self, address: Address<'_>, deadline: Instant) -> MetadataResult {
        let now = Instant::now();
        let limit = match self.cached(address, now) {
            Cached::Fresh(object) => return Ok(Some(object)),
            // There is a fallback: half of the time is left for the guard.
            Cached::Recent(_) => now + deadline.saturating_duration_since(now) / 2,
            Cached::Nothing => deadline,
        };
        let answer = self.request(address, now, limit).await;
        if let Err(Cause { code: cause::UNREACHABLE | cause::TIMEOUT | cause::BUSY, .. }) = answer {
            // Read again: the watch may have received an event meanwhile.
            if let Cached::Fresh(object) | Cached::Recent(object) = self.cached(address, Instant::now()) {
                return Ok(Some(object));
            }
        }
        answer
    }

    async fn request(&self, address: Address<'_>, now: Instant, limit: Instant) -> MetadataResult {
        if now >= limit {
            let text =
                format!("{address} could not be read: the deadline passed before the request was sent");
            return Err(Cause::new(cause::TIMEOUT, text));
        }
        let key = Key {
            resource: address.resource.clone(),
            namespace: address.namespace.to_owned(),
            name: address.name.to_owned(),
        };
        let (server, of) = (self.server.clone(), key.clone());
        let request = self.gets.join(key, move || {
            Box::pin(async move {
                let Key { resource, namespace, name } = &of;
                server.get(Address { resource, namespace, name }).await
            })
        });
        timeout_at(limit, request).await.unwrap_or_else(|_| {
            let waited = limit.saturating_duration_since(now).as_secs_f64();
            let server = self.server.name();
            let text = format!("{address} could not be read: {server} did not answer in {waited:.1} s");
            Err(Cause::new(cause::TIMEOUT, text))
        })
    }
}

impl Reader for Live {
    fn get<'a>(
        &'a self,
        address: Address<'a>,
        deadline: std::time::Instant,
    ) -> BoxFuture<'a, MetadataResult> {
        // Most reviews take this path; a ready future costs no task switch.
        match self.cached(address, Instant::now()) {
            Cached::Fresh(object) => Box::pin(ready(Ok(Some(object)))),
            Cached::Recent(_) | Cached::Nothing => {
                Box::pin(self.get_stale(address, Instant::from_std(deadline)))
            }
        }
    }

    fn get_uncached<'a>(
        &'a self,
        address: Address<'a>,
        deadline: std::time::Instant,
    ) -> BoxFuture<'a, MetadataResult> {
        Box::pin(self.request(address, Instant::now(), Instant::from_std(deadline)))
    }

    fn get_object<'a>(
        &'a self,
        of: &'a Cluster,
        query: GetQuery<'a>,
        deadline: std::time::Instant,
    ) -> BoxFuture<'a, ObjectResult> {
        Box::pin(self.fleet.get_object(of, query, Instant::from_std(deadline)))
    }

    fn list<'a>(
        &'a self,
        of: &'a Cluster,
        query: ListQuery<'a>,
        deadline: std::time::Instant,
    ) -> BoxFuture<'a, PageResult> {
        Box::pin(self.fleet.list(of, query, Instant::from_std(deadline)))
    }

    fn members<'a>(&'a self, fleet: &'a Fleet, deadline: std::time::Instant) -> BoxFuture<'a, MembersResult> {
        Box::pin(self.fleet.members(fleet, Instant::from_std(deadline)))
    }
}

impl EtcdClient for Live {
    fn call<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        request: EtcdRequest,
        deadline: std::time::Instant,
    ) -> BoxFuture<'a, EtcdResult> {
        Box::pin(self.members.call(endpoint, request, Instant::from_std(deadline)))
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("server", &self.url).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
