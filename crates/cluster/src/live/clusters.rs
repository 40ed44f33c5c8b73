//! The clusters of a fleet, and the questions to them.
//!
//! Nothing here is remembered: each question is asked, has its deadline and its place, and leaves nothing behind but an answer
//! or a named cause. Which clusters there are is read for each review too (`gather.rs` has the rule).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use admission::{BoxFuture, Cause};
use futures_util::FutureExt as _;
use hyper::StatusCode;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use super::access::{Access, Contexts};
use super::api::{Api, MANY, OBJECT_LIMIT, ONE, PAGE_ITEMS, WHOLE};
use super::body::Bytes;
use super::failure::{Failure, brief, short};
use super::gather::Gathering;
use super::lanes::For;
use super::roads::{Road, Roads};
use super::{answer, member, path};
use crate::fleet::{
    Cluster, FLEET, Fleet, FleetMember, GetQuery, ListQuery, MEMBER, MembersResult, ObjectResult, PageResult,
    PageSize, Part, no_secret,
};
use crate::metadata::Wire;
use crate::{Address, Metadata, Resource, cause};

/// Less than an API server may fill a page with, because hundreds of clusters answer at once and anybody may be behind one; an
/// answer that is longer is a cause and not an empty List. One object's metadata is some kB; a page of 500 has 16 kB for each,
/// and a page of whole objects (Jobs) 64 kB. Whoever finds a page too long asks for fewer objects ([`PageSize`]), down to a single
/// one, whose metadata may be as long as an object that is looked up.
const METADATA_LIMIT: usize = 8 << 20;
const WHOLE_LIMIT: usize = 32 << 20;

/// The one object that a round asks for, at 32 clusters at once, and does not look at.
const FIRST_LIMIT: usize = 1 << 20;

/// A page of the list of the fleet, which comes from here: 64 kB for each Cluster's metadata.
const FLEET_LIMIT: usize = 32 << 20;

/// To find out which Secret a refused token is from; the answer that it is for must not wait longer.
const NAMED_WITHIN: Duration = Duration::from_secs(1);

/// To make sense of a page of the fleet's list.
const READ_WITHIN: Duration = Duration::from_secs(60);

/// How often a List that expired half way is begun again.
const BEGINS: usize = 4;

/// Everything beside the single look-ups and watches here.
pub(super) struct Clusters {
    roads: Arc<Roads>,
    gathering: Gathering<Fleet, MembersResult>,
}

impl Clusters {
    pub(super) fn new(api: Api, access: Access, runtime: Handle) -> Self {
        Self { roads: Arc::new(Roads::new(api, access, runtime)), gathering: Gathering::default() }
    }

    /// One object of one cluster.
    pub(super) async fn find(
        &self,
        of: &Cluster,
        look: GetQuery<'_>,
        on_behalf: For,
        deadline: Instant,
    ) -> ObjectResult {
        let accept = if look.part == Part::Whole { WHOLE } else { ONE };
        let path = path::object(look.address).ok_or("there can be no object of that name");
        let asked = self.ask(of, path, accept, OBJECT_LIMIT, on_behalf, deadline).await;
        let (status, body) = asked.map_err(short)?;
        let (cluster, resource, part) = (of.clone(), look.address.resource.clone(), look.part);
        let (namespace, name) = (look.address.namespace.to_owned(), look.address.name.to_owned());
        let read = move |body: &[u8]| {
            let address = Address { resource: &resource, namespace: &namespace, name: &name };
            answer::found(&cluster, GetQuery { address, part }, status, body)
        };
        match self.read(of, body, deadline, read).await {
            Ok(found) => Ok(found),
            Err(cause) => Err(short(self.in_full(of, cause, on_behalf, deadline).await)),
        }
    }

    /// One page of a List of one cluster.
    pub(super) async fn list(
        &self,
        of: &Cluster,
        query: ListQuery<'_>,
        on_behalf: For,
        deadline: Instant,
    ) -> PageResult {
        let accept = if query.part == Part::Whole { WHOLE } else { MANY };
        let path = path::page(&query).ok_or("there can be no namespace of that name");
        let limit = match query {
            ListQuery { part: Part::Whole, .. } => WHOLE_LIMIT,
            ListQuery { limit: 1, .. } if on_behalf == For::Round => FIRST_LIMIT,
            ListQuery { limit: 1, .. } => OBJECT_LIMIT,
            ListQuery { .. } => METADATA_LIMIT,
        };
        let asked = self.ask(of, path, accept, limit, on_behalf, deadline).await;
        let (status, body) = asked.map_err(short)?;
        let (cluster, asked) = (of.clone(), Asked::from(&query));
        let read = move |body: &[u8]| answer::listed(&cluster, &asked.query(), status, body);
        match self.read(of, body, deadline, read).await {
            Ok(page) => Ok(page),
            Err(cause) => Err(short(self.in_full(of, cause, on_behalf, deadline).await)),
        }
    }

    /// What `work` makes of an answer, before the deadline.
    async fn read<T: Send + 'static>(
        &self,
        of: &Cluster,
        body: Bytes,
        deadline: Instant,
        work: impl FnOnce(&[u8]) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Cause> {
        match self.roads.here.api.room.parsed(body, deadline, work).await {
            Some(read) => read?.map_err(|failure| failure.cause),
            None => {
                Err(Cause::new(cause::TOO_LONG, format!("{of}'s answer was too long to be read in time")))
            }
        }
    }

    async fn ask(
        &self,
        of: &Cluster,
        path: Result<String, &'static str>,
        accept: &'static str,
        limit: usize,
        on_behalf: For,
        deadline: Instant,
    ) -> Result<(StatusCode, Bytes), Cause> {
        let began = Instant::now();
        let who = called(of);
        let refused = |why| Cause::new(cause::REFUSED, format!("{} cannot be asked: {why}", brief(who)));
        let before = match of {
            Cluster::Member(name) => {
                path::through(name).ok_or_else(|| refused("there can be no cluster of that name"))?
            }
            Cluster::Local | Cluster::Context(_) | Cluster::Secret(..) => String::new(),
        };
        let path = before + &path.map_err(refused)?;
        if began >= deadline {
            return Err(Cause::new(cause::TIMEOUT, format!("there was no time left to ask {who}")));
        }
        let road =
            timeout_at(deadline, self.roads.to(of)).await.map_err(|_| silent(who, began, deadline))??;
        let first = one_way(&road, of, &path, accept, limit, on_behalf, deadline).await;
        let asked = match first {
            // Nobody was asked yet, and there are fewer places now.
            Ok(Err(failure)) if failure.is_only_http1 => {
                one_way(&road, of, &path, accept, limit, on_behalf, deadline).await
            }
            first => first,
        };
        asked?.map_err(|Failure { cause: Cause { code, text }, .. }| {
            let text = if *of == Cluster::Local { text } else { format!("{who} could not be asked: {text}") };
            Cause::new(code, text)
        })
    }

    /// A cause with what only another question can tell: which Secret has the token that a member refuses. Where the control
    /// plane refuses that question too, the token is Durward's own.
    async fn in_full(&self, of: &Cluster, cause: Cause, on_behalf: For, deadline: Instant) -> Cause {
        let Cluster::Member(name) = of else { return cause };
        if cause.code != cause::CREDENTIALS {
            return cause;
        }
        let now = Instant::now();
        let limit = now + NAMED_WITHIN.min(deadline.saturating_duration_since(now) / 2);
        let path = path::object(Address { resource: &Resource::CLUSTERS, namespace: "", name }).ok_or("");
        match self.ask(&Cluster::Local, path, WHOLE, OBJECT_LIMIT, on_behalf, limit).await {
            Ok((StatusCode::UNAUTHORIZED, _)) => Cause::new(
                cause::CREDENTIALS,
                "the control plane does not accept Durward's credentials (401)",
            ),
            Ok((StatusCode::OK, body)) => match member::secret_of(&body) {
                Some(secret) => {
                    let text = format!("{}: Karmada has them from Secret {secret}", cause.text);
                    Cause::new(cause::CREDENTIALS, text)
                }
                None => cause,
            },
            Ok(_) | Err(_) => cause,
        }
    }

    /// The clusters of a fleet, as they are now.
    pub(super) async fn members(&self, fleet: &Fleet, deadline: Instant) -> MembersResult {
        let unread = |code, why: &str| {
            Cause::new(code, format!("the list of the fleet's clusters could not be read: {why}"))
        };
        let stale = |why: &str| unread(cause::STALE_FLEET, why);
        let began = Instant::now();
        let late = |_| {
            let waited = deadline.saturating_duration_since(began).as_secs_f64();
            let server = self.roads.here.api.called();
            stale(&format!("{server} did not answer in {waited:.1} s"))
        };
        if began >= deadline {
            return Err(stale("there was no time left to ask"));
        }
        match fleet {
            Fleet::None => Ok(Arc::default()),
            Fleet::Contexts(names) => {
                let access = self.roads.access.clone();
                let reading = tokio::task::spawn_blocking(move || access.contexts());
                let read = timeout_at(deadline, reading).await.map_err(late)?;
                let read = read.map_err(|error| stale(&error.to_string()))?;
                let there = read.map_err(|problem| stale(&brief(&problem.to_string())))?;
                let members = contexts(names, &there).map_err(|why| short(unread(cause::REFUSED, &why)))?;
                self.roads.contexts_are(&there);
                Ok(members)
            }
            Fleet::Karmada | Fleet::Secrets { .. } => {
                let read = self.gathering.join(fleet, || read(Arc::clone(&self.roads), fleet.clone()));
                let read = timeout_at(deadline, read).await.map_err(late)?;
                read.map_err(|why| {
                    // These are mended here, and not by waiting.
                    let is_own = matches!(why.code, cause::FORBIDDEN | cause::CREDENTIALS | cause::REFUSED);
                    short(unread(if is_own { why.code } else { cause::STALE_FLEET }, &why.text))
                })
            }
        }
    }
}

/// One way of asking: a place, and the question by it.
async fn one_way(
    road: &Road,
    of: &Cluster,
    path: &str,
    accept: &'static str,
    limit: usize,
    on_behalf: For,
    deadline: Instant,
) -> Result<Result<(StatusCode, Bytes), Failure>, Cause> {
    let place = road.lanes.enter(on_behalf, deadline).await;
    // A place that is had in the moment in which those before gave theirs up is none.
    let Some(place) = place.filter(|_| Instant::now() < deadline) else {
        let (who, places) = (called(of), road.lanes.places());
        let text =
            format!("{who} was not asked: Durward has {places} questions under way already; try again");
        return Err(Cause::new(cause::CROWDED, text));
    };
    // From here on: a member is not silent while Durward waits for a place.
    let began = Instant::now();
    let asking = road.api.fetch(path, accept, place.lane(), limit);
    let who = if *of == Cluster::Local { road.api.called() } else { of.name() };
    let asked = timeout_at(deadline, asking).await.map_err(|_| silent(who, began, deadline))?;
    match &asked {
        Ok(_) => place.spoke_http2(true),
        Err(failure) if failure.is_only_http1 => place.spoke_http2(false),
        Err(_) => {}
    }
    Ok(asked)
}

fn called(of: &Cluster) -> &str {
    if *of == Cluster::Local { "the API server" } else { of.name() }
}

fn silent(who: &str, began: Instant, deadline: Instant) -> Cause {
    let waited = deadline.saturating_duration_since(began).as_secs_f64();
    Cause::new(cause::TIMEOUT, format!("{who} did not answer in {waited:.1} s"))
}

/// A [`Query`] that owns its parts.
struct Asked {
    resource: Resource,
    namespace: String,
    fields: String,
    part: Part,
    limit: u32,
    from: Option<String>,
}

impl From<&ListQuery<'_>> for Asked {
    fn from(query: &ListQuery<'_>) -> Self {
        Self {
            resource: query.resource.clone(),
            namespace: query.namespace.to_owned(),
            fields: query.field_selector.to_owned(),
            part: query.part,
            limit: query.limit,
            from: query.continue_token.map(ToOwned::to_owned),
        }
    }
}

impl Asked {
    fn query(&self) -> ListQuery<'_> {
        let Self { resource, namespace, fields, part, limit, from } = self;
        ListQuery {
            resource,
            namespace,
            field_selector: fields,
            part: *part,
            limit: *limit,
            continue_token: from.as_deref(),
        }
    }
}

fn contexts(names: &[String], there: &Contexts) -> Result<Arc<[FleetMember]>, String> {
    let Contexts { versions, source } = there;
    let member = |name: &String| {
        if versions.iter().any(|(known, _)| known == name) {
            let cluster = Cluster::Context(name.as_str().into());
            return Ok(FleetMember { cluster, metadata: Metadata::default() });
        }
        let known: Vec<&str> = versions.iter().map(|(name, _)| name.as_str()).collect();
        Err(format!("there is no context {name:?} in {source}; it has: {}", known.join(", ")))
    };
    names.iter().map(member).collect()
}

/// Reads the list of a fleet, all its pages, from the newest state.
fn read(roads: Arc<Roads>, fleet: Fleet) -> BoxFuture<'static, MembersResult> {
    async move {
        let mut expired = None;
        for _ in 0..BEGINS {
            match read_once(&roads, &fleet).await {
                Ok(members) => return Ok(members),
                // The state that the first page was of is forgotten already: only a new List is consistent.
                Err(failure) if failure.is_expired => expired = Some(failure.cause),
                Err(failure) => return Err(failure.cause),
            }
        }
        Err(expired.unwrap_or_else(|| Cause::new(cause::BUSY, "the List expired again and again")))
    }
    .boxed()
}

async fn read_once(roads: &Roads, fleet: &Fleet) -> Result<Arc<[FleetMember]>, Failure> {
    let (resource, namespace) = match fleet {
        Fleet::Secrets { namespace } => (&Resource::SECRETS, namespace.as_str()),
        Fleet::None | Fleet::Karmada | Fleet::Contexts(_) => (&Resource::CLUSTERS, ""),
    };
    let mut size = PageSize::of(u32::try_from(PAGE_ITEMS).unwrap_or(u32::MAX));
    let mut from: Option<String> = None;
    let mut members: Vec<FleetMember> = Vec::new();
    let mut versions = HashMap::new();
    loop {
        let (part, limit) = (Part::Metadata, size.limit());
        let query = ListQuery {
            resource,
            namespace,
            field_selector: "",
            part,
            limit,
            continue_token: from.as_deref(),
        };
        let path = path::page(&query)
            .ok_or_else(|| Failure::new(cause::REFUSED, "there can be no namespace of that name"))?;
        let path = match fleet {
            Fleet::Secrets { .. } => {
                format!("{path}&labelSelector={}", path::encoded(&format!("{FLEET}={MEMBER}")))
            }
            Fleet::None | Fleet::Karmada | Fleet::Contexts(_) => path,
        };
        // By the connection of single look-ups, before which no crowd of questions stands.
        let (status, body) = match roads.here.api.fetch(&path, MANY, None, FLEET_LIMIT).await {
            Err(failure) if size.shrinks_for(&failure.cause) => continue,
            asked => asked?,
        };
        let (asked, of) = (Asked::from(&query), fleet.clone());
        let read = move |body: &[u8]| {
            answer::page(&Cluster::Local, &asked.query(), status, body, |wire, _| member_of(&of, wire))
        };
        // Each who waits for it has a deadline of its own, which is sooner.
        let Some(read) = roads.here.api.room.parsed(body, Instant::now() + READ_WITHIN, read).await else {
            return Err(Failure::new(cause::TIMEOUT, "its answer was too long to be read in time"));
        };
        let (page, next) = match read.map_err(|cause| Failure::new(cause.code, cause.text))? {
            Err(failure) if size.shrinks_for(&failure.cause) => continue,
            read => read?,
        };
        for (version, member) in page {
            if let Fleet::Secrets { .. } = fleet {
                versions.insert(member.cluster.clone(), version);
            }
            members.push(member);
        }
        let Some(next) = next else { break };
        from = Some(next);
    }
    if let Fleet::Secrets { namespace } = fleet {
        roads.secrets_are(versions);
        if members.is_empty() {
            return Err(Failure::new(cause::REFUSED, no_secret(namespace)));
        }
    }
    Ok(members.into())
}

/// A cluster of a fleet out of its metadata, and at which version that is.
fn member_of(fleet: &Fleet, wire: Wire) -> (String, FleetMember) {
    let name: Arc<str> = wire.name.as_str().into();
    let cluster = match fleet {
        Fleet::Secrets { namespace } => Cluster::Secret(namespace.as_str().into(), name),
        Fleet::None | Fleet::Karmada | Fleet::Contexts(_) => Cluster::Member(name),
    };
    (wire.resource_version.clone(), FleetMember { cluster, metadata: wire.kept() })
}
