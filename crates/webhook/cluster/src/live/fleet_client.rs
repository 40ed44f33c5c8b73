//! Requests to the clusters of a fleet, and the list of these clusters.
//!
//! Answers are not cached. Each request has its own deadline and permit. The list of the fleet is read for each review too;
//! reviews share a read by [`SingleFlight`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use admission::{BoxFuture, Cause};
use futures_util::FutureExt as _;
use hyper::StatusCode;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::access::{Access, Contexts};
use super::api_server::{ApiServer, MANY, OBJECT_LIMIT, ONE, OwnedQuery, WHOLE};
use super::body::Bytes;
use super::client::{MEMBER_CLIENTS, REQUESTS_PER_CLIENT};
use super::cluster_servers::ClusterServers;
use super::expiry::Expiry;
use super::failure::{Failure, brief, short};
use super::single_flight::SingleFlight;
use super::{answer, karmada, path};
use crate::fleet::{
    Cluster, FLEET, Fleet, FleetMember, GetQuery, ListQuery, MEMBER, MembersResult, ObjectResult, PageResult,
    Part, no_secret,
};
use crate::metadata::Wire;
use crate::pages::Cursor;
use crate::{Address, ApiError, Metadata, Resource, cause, words};

/// Limits of a page. They are lower than what an API server can send, because hundreds of clusters answer at once and their
/// owners are not trusted. A page of 500 has 16 kB for the metadata of each object, or 64 kB for each whole object (Jobs). The
/// pager requests fewer objects if a page is longer, down to one, which may be as long as an object that is read alone.
const METADATA_LIMIT: usize = 8 << 20;
const WHOLE_LIMIT: usize = 32 << 20;

/// To find the Secret of a refused token. The answer that names it must not wait longer.
const SECRET_NAME_TIMEOUT: Duration = Duration::from_secs(1);

/// Requests to clusters at once. Durward counts them itself, because hyper hides the wait for a free stream of a connection, and that
/// wait does not count against a cluster.
pub(super) const MAX_REQUESTS: usize = MEMBER_CLIENTS * REQUESTS_PER_CLIENT;

/// Attempts to read a List that expires between two pages.
const MAX_LIST_ATTEMPTS: usize = 4;

/// Sends requests to the clusters of a fleet.
pub(crate) struct FleetClient {
    servers: Arc<ClusterServers>,
    members: SingleFlight<Fleet, MembersResult>,
    permits: Semaphore,
}

impl FleetClient {
    pub(crate) fn new(local: ApiServer, access: Access, runtime: Handle) -> Self {
        let servers = Arc::new(ClusterServers::new(local, access, runtime));
        Self { servers, members: SingleFlight::default(), permits: Semaphore::new(MAX_REQUESTS) }
    }

    /// Returns the expiries of the client certificates for all connected clusters.
    pub(crate) fn expiries(&self) -> Vec<Expiry> {
        self.servers.expiries()
    }

    /// Reads one object of one cluster.
    pub(crate) async fn get_object(
        &self,
        of: &Cluster,
        query: GetQuery<'_>,
        deadline: Instant,
    ) -> ObjectResult {
        let accept = if query.part == Part::Whole { WHOLE } else { ONE };
        let path = path::object(query.address).ok_or("no object can have this name");
        let fetched = self.fetch(of, path, (accept, OBJECT_LIMIT), deadline).await;
        let (status, body) = fetched.map_err(short)?;
        let (cluster, resource, part) = (of.clone(), query.address.resource.clone(), query.part);
        let (namespace, name) = (query.address.namespace.to_owned(), query.address.name.to_owned());
        let parser = move |body: &[u8]| {
            let address = Address { resource: &resource, namespace: &namespace, name: &name };
            answer::object(&cluster, GetQuery { address, part }, status, body)
        };
        self.parse(of, body, deadline, parser).await
    }

    /// Reads one page of a List of one cluster.
    pub(crate) async fn list(&self, of: &Cluster, query: ListQuery<'_>, deadline: Instant) -> PageResult {
        let accept = if query.part == Part::Whole { WHOLE } else { MANY };
        let path = path::page(&query).ok_or("no namespace can have this name");
        let limit = match query {
            ListQuery { part: Part::Whole, .. } => WHOLE_LIMIT,
            ListQuery { limit: 1, .. } => OBJECT_LIMIT,
            ListQuery { .. } => METADATA_LIMIT,
        };
        let fetched = self.fetch(of, path, (accept, limit), deadline).await;
        let (status, body) = fetched.map_err(short)?;
        let (cluster, query) = (of.clone(), OwnedQuery::from(&query));
        let parser = move |body: &[u8]| answer::objects(&cluster, &query.borrow(), status, body);
        self.parse(of, body, deadline, parser).await
    }

    /// Parses a response before the deadline, and completes the cause of a failure.
    async fn parse<T: Send + 'static>(
        &self,
        of: &Cluster,
        body: Bytes,
        deadline: Instant,
        parser: impl FnOnce(&[u8]) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Cause> {
        let cause = match self.servers.local.bodies.parse(body, deadline, parser).await {
            Some(Ok(Ok(parsed))) => return Ok(parsed),
            Some(Ok(Err(failure))) => failure.cause,
            Some(Err(cause)) => cause,
            None => Cause::new(cause::TOO_LONG, format!("{of}'s answer was too long to be read in time")),
        };
        Err(short(self.with_secret(of, cause, deadline).await))
    }

    async fn fetch(
        &self,
        of: &Cluster,
        path: Result<String, &'static str>,
        (accept, limit): (&'static str, usize),
        deadline: Instant,
    ) -> Result<(StatusCode, Bytes), Cause> {
        let began = Instant::now();
        let name = name_of(of);
        let refused = |why| Cause::new(cause::REFUSED, format!("{} cannot be asked: {why}", brief(name)));
        let prefix = match of {
            Cluster::Member(name) => {
                path::proxy(name).ok_or_else(|| refused("no cluster can have this name"))?
            }
            Cluster::Local | Cluster::Context(_) | Cluster::Secret(..) => String::new(),
        };
        let path = prefix + &path.map_err(refused)?;
        if began >= deadline {
            return Err(Cause::new(cause::TIMEOUT, format!("no time was left to read {name}")));
        }
        let server = timeout_at(deadline, self.servers.get(of));
        let server = server.await.map_err(|_| no_answer(name, began, deadline))??;
        let mut memory = server.bodies.memory();
        loop {
            // A permit that becomes free at the deadline is too late.
            let permit = timeout_at(deadline, self.permits.acquire()).await;
            let permit = permit.ok().and_then(Result::ok).filter(|_| Instant::now() < deadline);
            let Some(permit) = permit else {
                let text =
                    format!("{name} was not read: Durward has {MAX_REQUESTS} requests in progress; retry");
                return Err(Cause::new(cause::OVERLOADED, text));
            };
            // The wait for the permit does not count against the cluster.
            let began = Instant::now();
            let client = server.connections().of_members();
            let fetching = server.fetch_over(&client, &path, accept, limit, memory);
            let fetched = timeout_at(deadline, fetching).await.map_err(|_| match of {
                Cluster::Local => no_answer(&server.name(), began, deadline),
                _ => no_answer(name, began, deadline),
            });
            match fetched? {
                // Neither the permit nor the part of the response that arrived is kept while others use the memory.
                Err(Failure { lacks_memory: true, cause, .. }) => {
                    drop((permit, client));
                    let waited = timeout_at(deadline, server.bodies.wait_for_memory(limit)).await;
                    memory = waited.map_err(|_| cause)?;
                }
                Ok(fetched) => return Ok(fetched),
                Err(Failure { cause, .. }) if *of == Cluster::Local => return Err(cause),
                Err(Failure { cause, .. }) => return Err(words::unread(cause.code, name, &cause.text)),
            }
        }
    }

    /// Adds the name of the Secret whose token a member cluster refuses. If the control plane refuses that request too, the
    /// token is Durward's own.
    async fn with_secret(&self, of: &Cluster, cause: Cause, deadline: Instant) -> Cause {
        let Cluster::Member(name) = of else { return cause };
        if cause.code != cause::CREDENTIALS {
            return cause;
        }
        let now = Instant::now();
        let limit = now + SECRET_NAME_TIMEOUT.min(deadline.saturating_duration_since(now) / 2);
        let path = path::object(Address { resource: &Resource::CLUSTERS, namespace: "", name }).ok_or("");
        match self.fetch(&Cluster::Local, path, (WHOLE, OBJECT_LIMIT), limit).await {
            Ok((StatusCode::UNAUTHORIZED, _)) => Cause::new(
                cause::CREDENTIALS,
                "the control plane does not accept Durward's credentials (401)",
            ),
            Ok((StatusCode::OK, body)) => match karmada::secret_of(&body) {
                Some(secret) => {
                    let text = format!("{}: Karmada has them from Secret {secret}", cause.text);
                    Cause::new(cause::CREDENTIALS, text)
                }
                None => cause,
            },
            Ok(_) | Err(_) => cause,
        }
    }

    /// Lists the clusters of a fleet.
    pub(crate) async fn members(&self, fleet: &Fleet, deadline: Instant) -> MembersResult {
        let unread = |code, why: &str| words::unread(code, words::FLEET_LIST, why);
        let stale = |why: &str| unread(cause::STALE_FLEET, why);
        let began = Instant::now();
        let late = |_| {
            stale(&words::no_answer(self.servers.local.name(), deadline.saturating_duration_since(began)))
        };
        if began >= deadline {
            return Err(stale("no time was left"));
        }
        match fleet {
            Fleet::None => Ok(Arc::default()),
            Fleet::Contexts(names) => {
                let list = self.servers.begin_list();
                let access = self.servers.access.clone();
                let reading = tokio::task::spawn_blocking(move || access.contexts());
                let read = timeout_at(deadline, reading).await.map_err(late)?;
                let read = read.map_err(|error| stale(&error.to_string()))?;
                let known = read.map_err(|problem| stale(&brief(&problem.to_string())))?;
                let members = contexts(names, &known).map_err(|why| short(unread(cause::REFUSED, &why)))?;
                self.servers.update_contexts(list, &known);
                Ok(members)
            }
            Fleet::Karmada | Fleet::Secrets { .. } => {
                let (servers, of) = (Arc::clone(&self.servers), fleet.clone());
                let read = self.members.join(fleet.clone(), move || list_members(servers, of));
                let read = timeout_at(deadline, read).await.map_err(late)?;
                read.map_err(|why| {
                    // Waiting does not change these.
                    let is_own = matches!(why.code, cause::FORBIDDEN | cause::CREDENTIALS | cause::REFUSED);
                    short(unread(if is_own { why.code } else { cause::STALE_FLEET }, &why.text))
                })
            }
        }
    }
}

fn name_of(of: &Cluster) -> &str {
    if *of == Cluster::Local { "the API server" } else { of.name() }
}

fn no_answer(who: &str, began: Instant, deadline: Instant) -> Cause {
    Cause::new(cause::TIMEOUT, words::no_answer(who, deadline.saturating_duration_since(began)))
}

/// Returns the named contexts, or an error if the kubeconfig lacks one.
fn contexts(names: &[String], known: &Contexts) -> Result<Arc<[FleetMember]>, String> {
    let Contexts { versions, source } = known;
    let member = |name: &String| {
        if versions.iter().any(|(known, _)| known == name) {
            let cluster = Cluster::Context(name.as_str().into());
            return Ok(FleetMember { cluster, metadata: Metadata::default() });
        }
        let known: Vec<&str> = versions.iter().map(|(name, _)| name.as_str()).collect();
        Err(format!("unknown context {name:?} in {source}; it has: {}", known.join(", ")))
    };
    names.iter().map(member).collect()
}

/// Lists the members of a fleet from the newest state of the API server.
fn list_members(servers: Arc<ClusterServers>, fleet: Fleet) -> BoxFuture<'static, MembersResult> {
    async move {
        let mut expired = None;
        for _ in 0..MAX_LIST_ATTEMPTS {
            match try_list_members(&servers, &fleet).await {
                Ok(members) => return Ok(members),
                // The API server forgot the state of the first page. Only a new List is consistent.
                Err(failure) if failure.kind == Some(ApiError::Expired) => expired = Some(failure.cause),
                Err(failure) => return Err(failure.cause),
            }
        }
        Err(expired.unwrap_or_else(|| Cause::new(cause::BUSY, "the List expired repeatedly")))
    }
    .boxed()
}

async fn try_list_members(servers: &ClusterServers, fleet: &Fleet) -> Result<Arc<[FleetMember]>, Failure> {
    let list = servers.begin_list();
    let label = format!("{FLEET}={MEMBER}");
    let (resource, namespace, label_selector) = match fleet {
        Fleet::Secrets { namespace } => (&Resource::SECRETS, namespace.as_str(), label.as_str()),
        Fleet::None | Fleet::Karmada | Fleet::Contexts(_) => (&Resource::CLUSTERS, "", ""),
    };
    let query = ListQuery { namespace, label_selector, ..ListQuery::new(resource) };
    let mut cursor = Cursor::new(query.limit);
    let mut members: Vec<FleetMember> = Vec::new();
    let mut versions = HashMap::new();
    while !cursor.is_done() {
        let of = fleet.clone();
        let keep = move |wire: Wire| member_of(&of, wire);
        let page = match servers.local.list(cursor.query(query), keep).await {
            Ok(page) => page,
            Err(failure) if cursor.shrink(&failure.cause) => continue,
            Err(failure) => return Err(failure),
        };
        cursor.advance(page.next.as_deref()).map_err(|why| Failure::new(why.code, why.text))?;
        for (version, member) in page.items {
            if let Fleet::Secrets { .. } = fleet {
                versions.insert(member.cluster.clone(), version);
            }
            members.push(member);
        }
    }
    if let Fleet::Secrets { namespace } = fleet {
        servers.update_secrets(list, versions);
        if members.is_empty() {
            return Err(Failure::new(cause::REFUSED, no_secret(namespace)));
        }
    }
    Ok(members.into())
}

/// Returns the resource version and the member that an object of the list describes.
fn member_of(fleet: &Fleet, wire: Wire) -> (String, FleetMember) {
    let name: Arc<str> = wire.name.as_str().into();
    let cluster = match fleet {
        Fleet::Secrets { namespace } => Cluster::Secret(namespace.as_str().into(), name),
        Fleet::None | Fleet::Karmada | Fleet::Contexts(_) => Cluster::Member(name),
    };
    (wire.resource_version.clone(), FleetMember { cluster, metadata: wire.whole() })
}
