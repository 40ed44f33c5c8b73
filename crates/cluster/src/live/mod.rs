//! The live world: one API server, watched and asked.
//!
//! What is watched is answered out of memory while it is fresh; everything else is asked for. `watch.rs` has the rule, all of it.
//! Whatever fails is a named cause: `failure.rs` tells which. The world owns its tasks and connections, and ends them when dropped.

mod access;
mod answer;
mod api;
mod body;
mod clusters;
mod etcd;
mod events;
mod failure;
mod flights;
mod follow;
mod gather;
mod lanes;
mod member;
mod path;
mod roads;
mod rounds;
mod secret;
mod tools;
mod transport;
mod watch;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::future::ready;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use admission::{BoxFuture, Cause};
use kube::Client;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use super::etcd::{Endpoint, EtcdRequest, EtcdResult};
use super::fleet::{
    Cluster, ClusterHealth, Fleet, GetQuery, ListQuery, MembersResult, ObjectResult, PageResult, ProbeTargets,
};
use super::{Address, EtcdClient, MetadataResult, Reader, Readiness, Resource, cause};
use api::Api;
use clusters::Clusters;
use config::Problem;
use etcd::Ensembles;
use flights::{Flights, Key};
use lanes::{For, LANES};
use watch::{Held, Watch};

pub use access::Access;
pub(super) use failure::{brief, is_unprintable};
pub(crate) use tools::{Tools, Unwritten};

/// Credential plugins ask a cloud; one that waits for somebody to type is not for a server.
const CREDENTIALS_WITHIN: Duration = Duration::from_secs(30);

/// A question under way for longer is not joined: it may hang where a new one would not.
const JOINED_WITHIN: Duration = Duration::from_secs(1);

/// What is left of a deadline for whoever asked, to say that there was no answer: 100 ms, and a tenth of a short one.
const MARGIN: Duration = Duration::from_millis(100);

/// An API server, watched and asked.
pub struct Live {
    server: String,
    api: Api,
    runtime: Handle,
    watches: RwLock<HashMap<Resource, Kept>>,
    flights: Flights,
    clusters: Arc<Clusters>,
    ensembles: Ensembles,
    rounds: rounds::Keeper,
}

/// A client of the API server that `access` leads to, and that server's URL: for what a world is not for, which is to write.
/// Must be called within a tokio runtime, which its connections then live in.
pub async fn client(access: &Access) -> Result<(Client, String), Problem> {
    let config = access.config().await?;
    let server = config.cluster_url.to_string();
    // A credential plugin is a program that is run and waited for.
    let making = tokio::task::spawn_blocking(move || transport::client(&config, LANES));
    match tokio::time::timeout(CREDENTIALS_WITHIN, making).await {
        Ok(Ok(client)) => Ok((client?, server)),
        Ok(Err(error)) => Err(Problem::new(format!("the credentials for {server}")).why(error.to_string())),
        Err(_) => Err(Problem::new(format!("the credentials for {server}"))
            .why(format!("the credential plugin was not done after {} s", CREDENTIALS_WITHIN.as_secs()))
            .next("run it by hand; it must not ask for anything")),
    }
}

/// A watch and the task that keeps it.
struct Kept {
    watch: Arc<Watch>,
    task: AbortHandle,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Live {
    /// Finds the API server and the credentials, and makes everything ready to ask. It is not asked yet: one that is down now
    /// is a cause of each question until it is up, no reason not to start.
    ///
    /// Must be called within a tokio runtime, which the watches and connections then live in.
    pub async fn connect(access: &Access) -> Result<Self, Problem> {
        let (client, server) = client(access).await?;
        Ok(Self::over(client, server, access.clone()))
    }

    fn over(client: Client, server: String, access: Access) -> Self {
        let (api, runtime) = (Api::new(client, &server, body::Room::default()), Handle::current());
        let clusters = Arc::new(Clusters::new(api.clone(), access, runtime.clone()));
        let ensembles = Ensembles::new(Arc::clone(&clusters), api.room.clone());
        Self {
            server,
            api,
            runtime,
            watches: RwLock::default(),
            flights: Flights::default(),
            clusters,
            ensembles,
            rounds: rounds::Keeper::default(),
        }
    }

    /// By what hands reach what this world looks at.
    pub(crate) fn tools(&self) -> Tools {
        Tools::new(self.api.clone(), self.ensembles.clone())
    }

    /// The API server's URL, for the log.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Starts a watch of this resource, whose objects [`Reader::get`] then answers from the cache. Does nothing if the
    /// resource is watched already.
    pub fn watch(&self, resource: &Resource) {
        let mut watches = self.watches.write().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Vacant(entry) = watches.entry(resource.clone()) {
            let watch = Arc::new(Watch::new(resource.clone()));
            let task = self.runtime.spawn(follow::follow(self.api.clone(), Arc::clone(&watch)));
            entry.insert(Kept { watch, task: task.abort_handle() });
        }
    }

    /// Probes each cluster of a fleet every minute, from now on. Replaces the targets of an earlier call.
    pub fn start_probes(&self, targets: ProbeTargets) {
        self.rounds.go(targets, Arc::clone(&self.clusters), &self.runtime);
    }

    /// Returns the results of the last probes, one for each cluster. Empty before the first probes end.
    pub fn health(&self) -> Vec<ClusterHealth> {
        self.rounds.health()
    }

    /// Returns a line for `/readyz` for each watched resource.
    pub fn readiness(&self) -> Vec<Readiness> {
        let now = Instant::now();
        let watches = self.watches.read().unwrap_or_else(PoisonError::into_inner);
        let mut lines: Vec<_> = watches.values().map(|kept| kept.watch.readiness(now)).collect();
        lines.sort_by(|a, b| a.name.cmp(&b.name));
        lines
    }

    fn held(&self, address: Address<'_>, now: Instant) -> Held {
        let watches = self.watches.read().unwrap_or_else(PoisonError::into_inner);
        watches
            .get(address.resource)
            .map_or(Held::Nothing, |kept| kept.watch.held(address.namespace, address.name, now))
    }

    async fn look_up(&self, address: Address<'_>, deadline: Instant) -> MetadataResult {
        let now = Instant::now();
        let left = deadline.saturating_duration_since(now);
        let limit = match self.held(address, now) {
            Held::Fresh(object) => return Ok(Some(object)),
            // There is something to fall back on: half of the time stays for what the guard does with it.
            Held::Recent(_) => now + left / 2,
            Held::Nothing => nearly(now, left),
        };
        // An object that was there a moment ago is one; that there was none may have been true only then.
        let answer = self.together(address, now, limit, |answer| matches!(answer, Ok(Some(_)))).await;
        if let Err(Cause { code: cause::UNREACHABLE | cause::TIMEOUT | cause::BUSY, .. }) = answer {
            // Looked at again: the watch may have heard something since.
            if let Held::Fresh(object) | Held::Recent(object) = self.held(address, Instant::now()) {
                return Ok(Some(object));
            }
        }
        answer
    }

    /// Asks the API server, together with others who ask the same right now. `will_do` says which answers to a question from
    /// before this one are taken; after any other one it is asked again, and again together.
    async fn together(
        &self,
        address: Address<'_>,
        now: Instant,
        limit: Instant,
        will_do: fn(&MetadataResult) -> bool,
    ) -> MetadataResult {
        let late = || {
            let waited = limit.saturating_duration_since(now).as_secs_f64();
            let text = format!(
                "{address} could not be looked up: {} did not answer in {waited:.1} s",
                self.api.called()
            );
            Cause::new(cause::TIMEOUT, text)
        };
        let not_before = now.checked_sub(JOINED_WITHIN).unwrap_or(now);
        let (flight, was_joined) =
            self.flights.join(Key::from(address), not_before, now, |key| self.question(key));
        let answer = timeout_at(limit, flight).await.unwrap_or_else(|_| Err(late()));
        if !was_joined || will_do(&answer) || Instant::now() >= limit {
            return answer;
        }
        let (flight, _) =
            self.flights.join(Key::from(address), now, Instant::now(), |key| self.question(key));
        timeout_at(limit, flight).await.unwrap_or_else(|_| Err(late()))
    }

    fn question(&self, key: Key) -> BoxFuture<'static, MetadataResult> {
        let api = self.api.clone();
        Box::pin(async move { api.get(key.address()).await })
    }
}

/// When to stop waiting, so that whoever asked can still say that there was no answer.
fn nearly(now: Instant, left: Duration) -> Instant {
    now + left.saturating_sub(MARGIN.min(left / 10))
}

impl Reader for Live {
    fn get<'a>(
        &'a self,
        address: Address<'a>,
        deadline: std::time::Instant,
    ) -> BoxFuture<'a, MetadataResult> {
        // Most reviews take this path; a ready future costs no task switch.
        match self.held(address, Instant::now()) {
            Held::Fresh(object) => Box::pin(ready(Ok(Some(object)))),
            Held::Recent(_) | Held::Nothing => Box::pin(self.look_up(address, Instant::from_std(deadline))),
        }
    }

    fn get_uncached<'a>(
        &'a self,
        address: Address<'a>,
        deadline: std::time::Instant,
    ) -> BoxFuture<'a, MetadataResult> {
        let deadline = Instant::from_std(deadline);
        Box::pin(async move {
            let now = Instant::now();
            let limit = nearly(now, deadline.saturating_duration_since(now));
            self.together(address, now, limit, |_| false).await
        })
    }

    fn get_object<'a>(
        &'a self,
        of: &'a Cluster,
        query: GetQuery<'a>,
        deadline: std::time::Instant,
    ) -> BoxFuture<'a, ObjectResult> {
        Box::pin(self.clusters.find(of, query, For::Review, Instant::from_std(deadline)))
    }

    fn list<'a>(
        &'a self,
        of: &'a Cluster,
        query: ListQuery<'a>,
        deadline: std::time::Instant,
    ) -> BoxFuture<'a, PageResult> {
        Box::pin(self.clusters.list(of, query, For::Review, Instant::from_std(deadline)))
    }

    fn members<'a>(&'a self, fleet: &'a Fleet, deadline: std::time::Instant) -> BoxFuture<'a, MembersResult> {
        Box::pin(self.clusters.members(fleet, Instant::from_std(deadline)))
    }
}

impl EtcdClient for Live {
    fn call<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        request: EtcdRequest,
        deadline: std::time::Instant,
    ) -> BoxFuture<'a, EtcdResult> {
        Box::pin(self.ensembles.ask(endpoint, request, Instant::from_std(deadline)))
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("server", &self.server).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
