//! Reads one cluster: the objects there that the deletion would delete, or that use the deleted object.
//!
//! A namespace is read in two steps, so that a cluster without it costs one small request: a GET of the namespace, then all
//! Lists at once. Only the last page of a List proves that nothing more is there: 5,000 finished pods can precede one that runs.
//! The objects of a CRD are listed at a version that this cluster serves. The control plane's version may be another one, and a
//! 404 for it proves nothing.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use admission::Cause;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use serde::Deserialize;
use tokio::time::Instant;

use super::case::Case;
use super::cluster_facts::{ClusterFacts, ObjectCount};
use super::facts::FactsReader;
use super::queries::{self, InUseRule, ListScope, ResourceQuery};
use super::target::DeletionKind;
use cluster::fleet::{Cluster, GetQuery, ListQuery, Object, Part};
use cluster::{Address, Pages, Resource, cause};

/// The result of one List.
#[derive(Default)]
struct ListResult {
    /// The names of objects that are in use. They are of one page, since one object is enough for a denial.
    in_use: Vec<String>,
    /// Whether there may be more objects than were read.
    more: bool,
    /// The reasons for what could not be read.
    unknown: Vec<Cause>,
    /// Whether it failed after its first page.
    is_interrupted: bool,
}

impl ListResult {
    /// Adds the objects of a page.
    fn add(&mut self, objects: &[Object], query: &ResourceQuery, space: &str, deadline: Instant) {
        let is_all = query.scope == ListScope::All || space.is_empty();
        let is_by_rule = matches!(query.rule, InUseRule::Uses(_));
        let code = if is_by_rule { cause::POLICY_LIMIT } else { cause::GARBAGE };
        query.rule.apply(objects, deadline.into_std(), |object, is_in_use| match is_in_use {
            Ok(true) if is_all && !object.namespace.is_empty() => {
                self.in_use.push(format!("{}/{}", object.namespace, object.name));
            }
            Ok(true) => self.in_use.push(object.name.clone()),
            // One reason is enough: further objects may be invalid in as many ways.
            Err(what) if self.unknown.is_empty() => self.unknown.push(Cause::new(code, what)),
            Ok(false) | Err(_) => {}
        });
    }
}

impl FactsReader<'_> {
    /// Reads what the deletion would delete in a cluster, or what uses the object there, each request until the deadline.
    pub(super) async fn cluster(
        &self,
        cluster: &Cluster,
        case: &Case<'_>,
        deadline: Instant,
    ) -> ClusterFacts {
        let facts = match self.queries(cluster, case, deadline).await {
            Ok(queries) => {
                let space = case.target.subject.space();
                // `FuturesOrdered` polls only the List that is ready to continue. `join_all` polls all of them, up to 30 futures.
                let lists: FuturesOrdered<_> = queries
                    .iter()
                    .filter(|query| !query.is_local || *cluster == Cluster::Local)
                    .map(async |query| (query, self.list(cluster, query, space, deadline).await))
                    .collect();
                summarize(lists.collect::<Vec<_>>().await)
            }
            Err(cause) => ClusterFacts::unknown(cause),
        };
        // No read confirms the review of a Secret, so its caller learns numbers only.
        let is_unconfirmed = case.target.subject.kind.is_secret() && case.target.reviewed_uid.is_some();
        let facts = if is_unconfirmed { facts.without_names() } else { facts };
        facts.on_one_line()
    }

    /// Returns the Lists that decide in a cluster; none if it does not have the namespace or the CRD.
    async fn queries<'q>(
        &'q self,
        cluster: &Cluster,
        case: &'q Case<'_>,
        deadline: Instant,
    ) -> Result<Cow<'q, [ResourceQuery]>, Cause> {
        let part = match case.target.subject.kind {
            // An object of this name can be used where it does not exist.
            DeletionKind::InUse(_) => return case.queries().map(Cow::Borrowed),
            // The namespace exists here: its stored object was read before.
            DeletionKind::Namespace if *cluster == Cluster::Local => {
                return Ok(Cow::Borrowed(&self.config.queries));
            }
            DeletionKind::Namespace => Part::Metadata,
            DeletionKind::Crd => Part::Whole,
        };
        let query = GetQuery { address: case.target.address(), part };
        let found = self.clients.reader.get_object(cluster, query, deadline.into_std()).await?;
        Ok(match found {
            None => Cow::Borrowed(&[]),
            Some(found) if case.target.subject.kind == DeletionKind::Crd => {
                Cow::Owned(vec![queries::of_crd(served(&found, &case.target.subject.name)?)])
            }
            Some(_) => Cow::Borrowed(&self.config.queries),
        })
    }

    /// Reads a List until a page has an object in use, to its end, or as far as it can be read.
    async fn list(
        &self,
        cluster: &Cluster,
        query: &ResourceQuery,
        space: &str,
        deadline: Instant,
    ) -> ListResult {
        let mut list = ListResult::default();
        let ResourceQuery { field_selector, label_selector, part, .. } = query;
        let resource = match self.at_served_version(cluster, &query.resource, deadline).await {
            Ok(Some(resource)) => resource,
            Ok(None) => return list,
            Err(why) => return ListResult { unknown: vec![why], ..list },
        };
        let namespace = if query.scope == ListScope::OfTarget { space } else { "" };
        let list_query =
            ListQuery { namespace, field_selector, label_selector, part: *part, ..ListQuery::new(&resource) };
        let time = deadline.saturating_duration_since(Instant::now());
        let mut pages = Pages::new(&*self.clients.reader, cluster, list_query, deadline.into_std());
        loop {
            let mut page = match pages.next().await {
                Ok(Some(page)) => page,
                Ok(None) => return list,
                Err(why) if why.code == cause::NOT_SERVED && matches!(query.rule, InUseRule::Uses(_)) => {
                    list.unknown.extend(self.other_version(cluster, &resource, why, deadline).await);
                    return list;
                }
                Err(why) => {
                    let why = self.explain_failure(query, &pages, why, time);
                    list.unknown.push(if namespace.is_empty() { why } else { explain(query, why) });
                    return ListResult { is_interrupted: pages.pages_read() > 0, more: true, ..list };
                }
            };
            let more = page.next.is_some();
            if query.scope == ListScope::OfTargetOrNone && !space.is_empty() {
                page.objects.retain(|object| object.namespace.is_empty() || object.namespace == space);
            }
            list.add(&page.objects, query, space, deadline);
            // `add` examines no object after the deadline, so a use can be among those that it left out.
            if Instant::now() >= deadline {
                let (many, read) = (&query.noun.many, pages_of(pages.pages_read()));
                let text = format!(
                    "received {read} of {many}, but did not examine all in {:.1} s",
                    time.as_secs_f64()
                );
                list.unknown.push(Cause::new(cause::TOO_LONG, text));
                return ListResult { is_interrupted: true, more: true, ..list };
            }
            if more && !list.in_use.is_empty() {
                return ListResult { more, ..list };
            }
        }
    }

    /// Returns why objects of a kind that is not served can exist nevertheless; none if the cluster certainly has no such kind.
    async fn other_version(
        &self,
        cluster: &Cluster,
        resource: &Resource,
        why: Cause,
        deadline: Instant,
    ) -> Option<Cause> {
        if policy::kinds::is_of_kubernetes(&resource.group) {
            return Some(why);
        }
        let any_version = Resource { version: Cow::Borrowed(""), ..resource.clone() };
        match self.at_served_version(cluster, &any_version, deadline).await {
            Ok(None) => None,
            Ok(Some(served)) => {
                let text = format!(
                    "{resource} is not served at version {}, but at {}",
                    resource.version, served.version
                );
                Some(Cause::new(cause::NOT_SERVED, text))
            }
            Err(why) => Some(why),
        }
    }

    /// Returns a custom resource without a version at one that the cluster serves; none if the cluster does not have its CRD.
    async fn at_served_version<'r>(
        &self,
        cluster: &Cluster,
        resource: &'r Resource,
        deadline: Instant,
    ) -> Result<Option<Cow<'r, Resource>>, Cause> {
        if !resource.version.is_empty() {
            return Ok(Some(Cow::Borrowed(resource)));
        }
        let (crds, name) = (DeletionKind::Crd.resource(), resource.to_string());
        let address = Address { resource: &crds, namespace: "", name: &name };
        let query = GetQuery { address, part: Part::Whole };
        let found = self.clients.reader.get_object(cluster, query, deadline.into_std()).await?;
        found.map(|found| served(&found, &name).map(Cow::Owned)).transpose()
    }

    /// Explains why a List could not be read to its end.
    fn explain_failure(&self, query: &ResourceQuery, pages: &Pages<'_>, why: Cause, time: Duration) -> Cause {
        let many = &query.noun.many;
        // A snapshot repeats the recorded failure, which is explained already.
        let too_long = pages.too_long().filter(|_| !self.clients.context.is_snapshot);
        // Another attempt can succeed, or nothing has been read that needs an explanation.
        if why.code == cause::OVERLOADED || (too_long.is_none() && pages.pages_read() == 0) {
            return why;
        }
        let text = match (too_long, why.code, pages.pages_read()) {
            (Some(_), cause::TOO_LONG, _) => {
                format!("its {many} cannot be read one at a time either: {}", why.text)
            }
            (Some(long), ..) => format!("{}; with smaller pages: {}", long.text, why.text),
            (None, cause::TIMEOUT, read) => {
                let pages = pages_of(read);
                format!("received {pages} of {many}, but not the last one in {:.1} s", time.as_secs_f64())
            }
            (None, ..) => return why,
        };
        Cause::new(cause::TOO_LONG, text)
    }
}

fn pages_of(number: usize) -> String {
    if number == 1 { "one page".to_owned() } else { format!("{number} pages") }
}

/// Returns the resource at the version at which the cluster's objects are read: the stored version if it is served, since its
/// objects need no conversion.
fn served(found: &Object, name: &str) -> Result<Resource, Cause> {
    let garbage = |what: String| Cause::new(cause::GARBAGE, format!("its {name} {what}"));
    let raw = found.raw.as_ref().ok_or_else(|| garbage("has no versions".to_owned()))?;
    let Crd { spec } =
        serde_json::from_str(raw.get()).map_err(|error| garbage(format!("is not valid: {error}")))?;
    if format!("{}.{}", spec.names.plural, spec.group) != name {
        return Err(garbage("defines another resource than its name says".to_owned()));
    }
    let served = || spec.versions.iter().filter(|version| version.served);
    let Some(version) = served().find(|version| version.storage).or_else(|| served().next()) else {
        let text = format!("no version of {name} is served, so its objects cannot be read");
        return Err(Cause::new(cause::NOT_SERVED, text));
    };
    let version = version.name.clone().into();
    Ok(Resource { group: spec.group.into(), version, plural: spec.names.plural.into() })
}

/// The part of a CRD that tells how to read its objects. All fields are required, unlike those of k8s-openapi's type.
#[derive(Deserialize)]
struct Crd {
    spec: CrdSpec,
}

#[derive(Deserialize)]
struct CrdSpec {
    group: String,
    names: CrdNames,
    versions: Vec<CrdVersion>,
}

#[derive(Deserialize)]
struct CrdNames {
    plural: String,
}

#[derive(Deserialize)]
struct CrdVersion {
    name: String,
    served: bool,
    storage: bool,
}

/// Derives the facts of a cluster from its Lists.
fn summarize(lists: Vec<(&ResourceQuery, ListResult)>) -> ClusterFacts {
    let mut facts = ClusterFacts::default();
    for (query, list) in lists {
        if let (InUseRule::Uses(usage), false) = (&query.rule, list.in_use.is_empty()) {
            facts.rules.insert(Arc::clone(&usage.rule));
        }
        facts = list.unknown.into_iter().fold(facts, ClusterFacts::and_unknown);
        facts.is_interrupted |= list.is_interrupted;
        facts.in_use.extend(ObjectCount::of(&query.noun, list.more, list.in_use));
    }
    // A message leaves out the ReplicaSets if it names a Deployment, which owns most of them. They count in any case: an owner reference
    // can name a Deployment that does not exist.
    let is = |count: &ObjectCount, kind: &str| count.noun.one == kind;
    if facts.in_use.iter().any(|count| is(count, "Deployment")) {
        facts.in_use.retain(|count| !is(count, "ReplicaSet"));
    }
    facts
}

/// Adds to a failure of a List that the configuration names its resource, and that every cluster must serve it.
fn explain(query: &ResourceQuery, why: Cause) -> Cause {
    if !matches!(query.rule, InUseRule::Always) || !matches!(why.code, cause::NOT_SERVED | cause::GARBAGE) {
        return why;
    }
    let text = format!(
        "{}; {} is in guards.deletion.namespaces.extraResources, which every cluster must serve",
        why.text, query.resource
    );
    Cause::new(why.code, text)
}
