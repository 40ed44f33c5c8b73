//! A live control plane: one API server, the clusters of its fleet, and etcd members.
//!
//! Namespaces can come from a cache that a watch fills. For all other objects, a request is sent. Each failure is a named cause. [`Live`] owns its tasks and connections, and stops them when it is dropped.

mod access;
mod answer;
mod api_server;
mod body;
mod client;
mod cluster_servers;
mod etcd;
mod expiry;
mod failure;
mod fleet_client;
mod karmada;
mod kubeconfig_secret;
mod namespaces;
mod path;
mod probes;
mod recent_map;
mod request;
mod single_flight;
mod writer;

use std::fmt;
use std::future::ready;
use std::sync::{Arc, OnceLock};

use admission::BoxFuture;
use kube::Client;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use super::etcd::{Endpoint, EtcdRequest, EtcdResult, Material};
use super::fleet::{
    Cluster, ClusterHealth, Fleet, GetQuery, ListQuery, MembersResult, ObjectResult, PageResult,
};
use super::{Address, EtcdClient, Metadata, MetadataResult, Reader, Readiness, Resource, cause, words};
use body::BodyReader;
use client::MEMBER_CLIENTS;
use config::Problem;
use fleet_client::FleetClient;
use namespaces::Namespaces;
use probes::FleetProber;
use single_flight::SingleFlight;

pub use access::Access;
pub(crate) use api_server::ApiServer;
pub(crate) use etcd::Members;
pub use expiry::{CredentialKind, Expiry};
pub(crate) use failure::{brief, short};
pub use request::{Fault, Written, request, write};
pub use writer::LiveWriter;

/// A control plane.
pub struct Live {
    pub(crate) server: ApiServer,
    runtime: Handle,
    namespaces: OnceLock<Namespaces>,
    gets: SingleFlight<GetKey, MetadataResult>,
    fleet: Arc<FleetClient>,
    pub(crate) members: Members,
    prober: FleetProber,
}

/// An [`Address`] that owns its parts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct GetKey {
    resource: Resource,
    namespace: String,
    name: String,
}

/// Creates a client of the API server that `access` names, and returns it with the server's URL. Must be called within a
/// runtime, which runs the connections.
pub async fn client(access: &Access) -> Result<(Client, String), Problem> {
    let connections = client::follow(access, 0).await?;
    let url = connections.borrow().url.clone();
    Ok((client::following(connections), url))
}

impl Live {
    /// Finds the API server and the credentials, and sends no request yet. An API server that is down now is the cause of each
    /// Unknown answer until it is up, not a reason to fail here.
    ///
    /// Must be called within a tokio runtime, which runs the watches and connections.
    pub async fn connect(access: &Access) -> Result<Self, Problem> {
        let connections = client::follow(access, MEMBER_CLIENTS).await?;
        Ok(Self::new(ApiServer::new(connections, BodyReader::default()), access.clone()))
    }

    fn new(server: ApiServer, access: Access) -> Self {
        let runtime = Handle::current();
        let fleet = Arc::new(FleetClient::new(server.clone(), access, runtime.clone()));
        let members = Members::new(Arc::clone(&fleet), server.bodies.clone());
        Self {
            server,
            runtime,
            namespaces: OnceLock::new(),
            gets: SingleFlight::default(),
            fleet,
            members,
            prober: FleetProber::default(),
        }
    }

    /// Returns the URL of the API server, for messages.
    pub fn server(&self) -> String {
        self.server.connections().url.clone()
    }

    /// Returns the expiries of the client certificates in use. `configured` are sources of those for etcd members, which are read now.
    pub async fn expiries(&self, configured: &[Material]) -> Vec<Expiry> {
        let mut expiries = self.fleet.expiries();
        expiries.extend(self.members.expiries(configured).await);
        expiries
    }

    /// Starts a watch of namespaces, which [`Reader::get`] then answers from the cache. Does nothing if there is one already.
    pub fn watch_namespaces(&self) {
        self.namespaces.get_or_init(|| Namespaces::watch(self.server.clone(), &self.runtime));
    }

    /// Probes the local cluster and each one of a fleet every minute, from now on. Without a fleet, it stops.
    pub fn probe(&self, fleet: Option<Fleet>) {
        self.prober.start(fleet, &self.fleet, &self.runtime);
    }

    /// Returns the results of the last probes, one for each cluster. Empty before the first probes end.
    pub fn health(&self) -> Vec<ClusterHealth> {
        self.prober.health()
    }

    /// Returns a line for `/readyz` if namespaces are watched.
    pub fn readiness(&self) -> Option<Readiness> {
        self.namespaces.get().map(Namespaces::readiness)
    }

    fn cached(&self, address: Address<'_>) -> Option<Arc<Metadata>> {
        let namespaces = self.namespaces.get().filter(|_| *address.resource == Resource::NAMESPACES);
        namespaces?.get(address.name)
    }

    async fn request(&self, address: Address<'_>, now: Instant, limit: Instant) -> MetadataResult {
        if now >= limit {
            return Err(words::unread(cause::TIMEOUT, address, words::NOT_SENT));
        }
        let key = GetKey {
            resource: address.resource.clone(),
            namespace: address.namespace.to_owned(),
            name: address.name.to_owned(),
        };
        let (server, of) = (self.server.clone(), key.clone());
        let request = self.gets.join(key, move || {
            Box::pin(async move {
                let GetKey { resource, namespace, name } = &of;
                server.get(Address { resource, namespace, name }).await
            })
        });
        timeout_at(limit, request).await.unwrap_or_else(|_| {
            let why = words::no_answer(self.server.name(), limit.saturating_duration_since(now));
            Err(words::unread(cause::TIMEOUT, address, why))
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
        match self.cached(address) {
            Some(object) => Box::pin(ready(Ok(Some(object)))),
            None => Box::pin(self.request(address, Instant::now(), Instant::from_std(deadline))),
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
        f.debug_struct("Live").field("server", &self.server()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
