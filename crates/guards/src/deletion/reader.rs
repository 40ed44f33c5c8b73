//! Reads one cluster: the objects there that the deletion would delete.
//!
//! A namespace is read in two steps, so that a cluster without it costs one small request: a GET of the namespace, then all
//! Lists at once. Only the last page of a List proves that nothing more is there: 5,000 finished pods can precede one that runs.
//! The objects of a CRD are listed at a version that this cluster serves. The control plane's version may be another one, and a
//! 404 for it proves nothing.

use std::sync::Arc;
use std::time::Duration;

use admission::Cause;
use admission::budget::Budget;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use serde::Deserialize;
use tokio::time::Instant;

use super::config::Config;
use super::findings::{ClusterFindings, ObjectCount};
use super::owners::{ListedObject, ObjectSet, is_managed, survivors};
use super::queries::{InUseRule, Noun, ResourceQuery, Unmanaged};
use super::target::{CRD_GROUP, DeletionKind, Target};
use cluster::fleet::{Cluster, GetQuery, ListQuery, Object, Part};
use cluster::{Address, Clients, Pages, Resource, cause};

/// Objects of one List that are kept to find out what Karmada deployed: a few megabytes.
const MAX_OBJECTS: usize = 20_000;
/// With this annotation, Karmada takes over an object of the same name in a member cluster, and then deletes it there.
const CONFLICT_RESOLUTION: (&str, &str) = ("work.karmada.io/conflict-resolution", "overwrite");

/// The objects of a cluster that the deletion would delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counted {
    /// All.
    All,
    /// Those that Karmada deployed, and their dependents.
    Managed,
}

/// The objects that were read of one List.
struct ListResult {
    objects: ObjectSet,
    /// Whether the budget had no memory for more objects.
    is_full: bool,
    /// Whether there may be more objects than were read.
    more: bool,
    /// The reasons for what could not be read.
    unknown: Vec<Cause>,
    /// Whether it failed after its first page.
    is_interrupted: bool,
}

impl ListResult {
    /// Ends the List before its last page.
    fn incomplete(mut self, cause: Cause) -> Self {
        self.unknown.push(cause);
        Self { more: true, ..self }
    }

    /// Adds the objects of a page. Returns whether one of them is enough for a denial.
    fn add(
        &mut self,
        objects: Vec<Object>,
        query: &ResourceQuery,
        namespace: &str,
        counted: Counted,
    ) -> bool {
        let mut is_enough = false;
        for object in objects {
            let in_use = query.rule.applies(&object).unwrap_or_else(|what| {
                // One reason is enough: further objects may be invalid in as many ways.
                if self.unknown.is_empty() {
                    self.unknown.push(Cause::new(cause::GARBAGE, what));
                }
                false
            });
            if !in_use && counted == Counted::All {
                continue;
            }
            let name = if namespace.is_empty() && !object.namespace.is_empty() {
                &format!("{}/{}", object.namespace, object.name)
            } else {
                &object.name
            };
            let listed = ListedObject::of(&object, name, in_use);
            if in_use && (counted == Counted::All || listed.managed) {
                is_enough = true;
                self.objects.add_deleted(listed);
            } else if !self.is_full
                && let Err(why) = self.objects.add(listed)
            {
                (self.is_full, self.more) = (true, true);
                self.unknown.push(why);
            }
        }
        is_enough
    }
}

/// Whether Karmada takes over objects of this name in member clusters. Its agent can do so after the review.
fn is_overwritten(target: &Target) -> bool {
    target.annotations.get(CONFLICT_RESOLUTION.0).is_some_and(|value| value == CONFLICT_RESOLUTION.1)
}

/// Reads one cluster for one review.
#[derive(Clone, Copy)]
pub(super) struct ClusterReader<'r> {
    /// The clients of the control plane.
    pub(super) clients: &'r Clients,
    /// The configuration of the guard.
    pub(super) config: &'r Config,
    /// The cluster to read.
    pub(super) cluster: &'r Cluster,
    /// Whether member clusters keep the CRD, because its propagation policy requires that.
    pub(super) is_preserved: bool,
    /// The memory budget of all clusters.
    pub(super) budget: &'r Arc<Budget>,
    /// The deadline of each request.
    pub(super) deadline: Instant,
}

impl ClusterReader<'_> {
    /// Reads what the deletion would delete.
    pub(super) async fn findings(&self, target: &Target) -> ClusterFindings {
        let findings = match target.kind {
            DeletionKind::Namespace => self.namespace(target).await,
            DeletionKind::Crd => self.crd(target).await,
        };
        findings.unwrap_or_else(ClusterFindings::unknown).on_one_line()
    }

    async fn namespace(&self, target: &Target) -> Result<ClusterFindings, Cause> {
        // The namespace exists here: its stored object was read before.
        if *self.cluster == Cluster::Local {
            return Ok(self.contents(target, Counted::All).await);
        }
        let found = self.get(&Resource::NAMESPACES, &target.name, Part::Metadata).await?;
        let Some(namespace) = found else { return Ok(ClusterFindings::default()) };
        Ok(self
            .contents(target, self.counted(is_managed(&namespace.metadata) || is_overwritten(target)))
            .await)
    }

    /// Reads the objects in a namespace.
    async fn contents(&self, target: &Target, counted: Counted) -> ClusterFindings {
        // Lists that only show owner references are needed only if owners matter.
        let needed = |query: &&ResourceQuery| query.rule != InUseRule::Never || counted == Counted::Managed;
        // `FuturesOrdered` polls only the List that is ready to continue. `join_all` polls all of them, up to 30 futures.
        let lists: FuturesOrdered<_> = self
            .config
            .queries
            .iter()
            .filter(needed)
            .map(async |query| {
                let mut list = self.list(query, &target.name, counted).await;
                list.unknown = list.unknown.into_iter().map(|why| explain(query, why)).collect();
                (&query.noun, list)
            })
            .collect();
        summarize(&lists.collect::<Vec<_>>().await, counted)
    }

    async fn crd(&self, target: &Target) -> Result<ClusterFindings, Cause> {
        let found = self.get(&target.kind.resource(), &target.name, Part::Whole).await?;
        let Some(found) = found else { return Ok(ClusterFindings::default()) };
        let (resource, noun, part) = (served(&found, target)?, Noun::OBJECT, Part::Metadata);
        let query = ResourceQuery { resource, field_selector: "", part, noun, rule: InUseRule::Always };
        let counted =
            self.counted((is_managed(&found.metadata) || is_overwritten(target)) && !self.is_preserved);
        let list = self.list(&query, "", counted).await;
        Ok(summarize(&[(&query.noun, list)], counted))
    }

    /// Returns the objects that count, if the target itself is deleted here or not.
    fn counted(&self, is_target_deleted: bool) -> Counted {
        let is_all = is_target_deleted
            || self.config.unmanaged == Unmanaged::Block
            || !self.config.is_karmada()
            || *self.cluster == Cluster::Local;
        if is_all { Counted::All } else { Counted::Managed }
    }

    /// Whether Karmada keeps a propagated CRD in member clusters when it is deleted here. It does not keep the objects that it
    /// deployed. Without an answer, nothing counts as kept.
    pub(super) async fn preserves(&self, target: &Target) -> bool {
        let bindings = Resource {
            group: "work.karmada.io".into(),
            version: "v1alpha2".into(),
            plural: "clusterresourcebindings".into(),
        };
        // Karmada's `names.GenerateBindingName`: the object's name, a hyphen, its kind in lower case.
        let name = format!("{}-customresourcedefinition", target.name);
        let Ok(Some(binding)) = self.get(&bindings, &name, Part::Whole).await else { return false };
        let read = binding.raw.and_then(|raw| serde_json::from_str::<Binding>(raw.get()).ok());
        read.is_some_and(|Binding { spec }| spec.preserve_resources_on_deletion && spec.resource.is(target))
    }

    async fn get(&self, resource: &Resource, name: &str, part: Part) -> Result<Option<Object>, Cause> {
        let query = GetQuery { address: Address { resource, namespace: "", name }, part };
        self.clients.reader.get_object(self.cluster, query, self.deadline.into_std()).await
    }

    /// Reads a List until a page is enough for a denial, to its end, or as far as it can be read.
    async fn list(&self, query: &ResourceQuery, namespace: &str, counted: Counted) -> ListResult {
        let mut list = ListResult {
            objects: ObjectSet::new(self.budget),
            is_full: false,
            more: false,
            unknown: Vec::new(),
            is_interrupted: false,
        };
        let ResourceQuery { resource, field_selector, part, .. } = query;
        let list_query = ListQuery { namespace, field_selector, part: *part, ..ListQuery::new(resource) };
        let time = self.deadline.saturating_duration_since(Instant::now());
        let (reader, deadline) = (self.clients.reader.as_ref(), self.deadline.into_std());
        let mut pages = Pages::new(reader, self.cluster, list_query, deadline);
        loop {
            let page = match pages.next().await {
                Ok(Some(page)) => page,
                Ok(None) => return list,
                Err(why) => {
                    list.is_interrupted = pages.pages_read() > 0;
                    return list.incomplete(self.explain_failure(query, &pages, why, time));
                }
            };
            let (more, is_enough) = (page.next.is_some(), list.add(page.objects, query, namespace, counted));
            if more && (is_enough || list.is_full) {
                return ListResult { more, ..list };
            }
            if more && list.objects.len() >= MAX_OBJECTS {
                let noun = &query.noun.many;
                let text = format!(
                    "more than {MAX_OBJECTS} {noun}: too many to find out which of them Karmada deployed"
                );
                return list.incomplete(Cause::new(cause::TOO_LONG, text));
            }
        }
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
                let pages = if read == 1 { "one page".to_owned() } else { format!("{read} pages") };
                format!("received {pages} of {many}, but not the last one in {:.1} s", time.as_secs_f64())
            }
            (None, ..) => return why,
        };
        Cause::new(cause::TOO_LONG, text)
    }
}

/// Returns the resource at the version at which the cluster's objects are read: the stored version if it is served, since its
/// objects need no conversion.
fn served(found: &Object, target: &Target) -> Result<Resource, Cause> {
    let name = &target.name;
    let garbage = |what: String| Cause::new(cause::GARBAGE, format!("its {name} {what}"));
    let raw = found.raw.as_ref().ok_or_else(|| garbage("has no versions".to_owned()))?;
    let Crd { spec } =
        serde_json::from_str(raw.get()).map_err(|error| garbage(format!("is not valid: {error}")))?;
    if spec.group != target.group() || spec.names.plural != target.plural() {
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

/// The part of a `ClusterResourceBinding` that tells whether member clusters keep the object.
#[derive(Deserialize)]
struct Binding {
    spec: BindingSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BindingSpec {
    preserve_resources_on_deletion: bool,
    resource: BoundObject,
}

/// The object that a binding is about. The name of a binding proves nothing: everyone who can create bindings chooses it.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BoundObject {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
}

impl BoundObject {
    /// Whether it is the CRD to delete, and not an earlier one of that name.
    fn is(&self, target: &Target) -> bool {
        let is_same = |uid: &String| self.uid.is_empty() || self.uid == *uid;
        self.api_version.split_once('/').is_some_and(|(group, _)| group == CRD_GROUP)
            && self.kind == "CustomResourceDefinition"
            && self.name == target.name
            && target.reviewed_uid.as_ref().is_none_or(is_same)
    }
}

/// Derives the findings of a cluster from its Lists.
fn summarize(lists: &[(&Noun, ListResult)], counted: Counted) -> ClusterFindings {
    let mut findings = ClusterFindings::default();
    for why in lists.iter().flat_map(|(_, list)| &list.unknown) {
        findings = findings.and_unknown(why.clone());
    }
    findings.is_interrupted = lists.iter().any(|(_, list)| list.is_interrupted);
    // If owners are missing for lack of memory, another attempt may find them. Only managed objects are certain.
    let is_certain = |object: &ListedObject| counted == Counted::All || object.managed;
    let is_overloaded = findings.unknown.iter().any(|why| why.code == cause::OVERLOADED);
    let mut survives = survivors(lists.iter().flat_map(|(_, list)| list.objects.iter())).into_iter();
    for (noun, list) in lists {
        let (mut in_use, mut stays) = (Vec::new(), Vec::new());
        for (object, survives) in
            list.objects.iter().zip(survives.by_ref()).filter(|(object, _)| object.in_use)
        {
            match (is_certain(object), survives) {
                (false, _) if is_overloaded => {}
                (false, true) => stays.push(object.name.to_string()),
                _ => in_use.push(object.name.to_string()),
            }
        }
        if let Some(mut count) = ObjectCount::of(noun, list.more, in_use) {
            count.objects += list.objects.only_counted();
            findings.in_use.push(count);
        }
        findings.stays.extend(ObjectCount::of(noun, list.more, stays));
    }
    // A message leaves out the ReplicaSets if it names a Deployment, which owns most of them. They count in any case: an owner reference
    // can name a Deployment that does not exist.
    for counts in [&mut findings.in_use, &mut findings.stays] {
        let is = |count: &ObjectCount, kind: &str| count.noun.one == kind;
        if counts.iter().any(|count| is(count, "Deployment")) {
            counts.retain(|count| !is(count, "ReplicaSet"));
        }
    }
    findings
}

/// Adds to a failure of a List that the configuration names its resource, and that every cluster must serve it.
fn explain(query: &ResourceQuery, why: Cause) -> Cause {
    if query.rule != InUseRule::Always || !matches!(why.code, cause::NOT_SERVED | cause::GARBAGE) {
        return why;
    }
    let text = format!(
        "{}; {} is in guards.deletion.namespaces.extraResources, which every cluster must serve",
        why.text, query.resource
    );
    Cause::new(why.code, text)
}
