//! Properties of reviews that a stranger sent. The property test and the fuzz target `reviews` use them.
//!
//! Unless the local API server returned the object of the review, from its namespace and with its uid, before that:
//!
//! - nothing is written, and no etcd member and no member cluster is called;
//! - the answer contains the name of no object that the review does not contain;
//! - the removal of an object that the review shows as guarded is not allowed.
//!
//! If the API server returned it:
//!
//! - the answer contains the name of no object of another namespace;
//! - the removal of an object that is in use is not allowed;
//! - the deletion or eviction of an etcd pod is not allowed without a reservation.
//!
//! An eviction contains no pod, so a stored pod with its name is its object. If its preconditions have a uid, the pod must have it.

mod review;
mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use admission::{Fields, Guard, Operation, Raw, Request, Verdict, decode, encode, settle};
use cluster::Clients;
use cluster::testing::FakeWorld;
use guards::GUARD_KINDS;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

pub(crate) use review::body;
pub(crate) use world::Effect;
use world::{CRD, Event, LOCAL, SECRETS, events, reset};

/// A guard with its section.
struct Section {
    guard: &'static str,
    yaml: &'static str,
}

const fn section(guard: &'static str, yaml: &'static str) -> Section {
    Section { guard, yaml }
}

const SECTIONS: [Section; 9] = [
    section(
        "etcd",
        "{clusters: [{namespace: db, selector: app=etcd}], webhook: {namespaceSelector: {matchLabels: {guarded: \"yes\"}}}}",
    ),
    section(
        "etcd",
        "{clusters: [{namespaceSelector: {matchLabels: {guarded: \"yes\"}}, selector: app=etcd, memberOnPodDelete: remove}]}",
    ),
    section("deletion", "{fleet: karmada, crds: {apiGroups: [example.org]}}"),
    section("deletion", "{fleet: {contexts: [plum-east, plum-west]}, crds: {apiGroups: ['*']}}"),
    section("deletion", "{fleet: karmada, scope: labeled, crds: {apiGroups: ['*']}}"),
    section(
        "deletion",
        "{fleet: {contexts: [plum-east, plum-west]}, crds: {apiGroups: ['*']}, webhook: {namespaceSelector: {matchLabels: {guarded: \"yes\"}}}}",
    ),
    section("lxcfs", "{}"),
    section("lxcfs", "{mountMethod: auto, includeInitContainers: true}"),
    section("resources", "{policies: [POLICIES]}"),
];

/// The reviewed resources without a namespace.
const CLUSTER_SCOPED: [&str; 2] = ["namespaces", "customresourcedefinitions"];

/// Resources that the API server does not let Durward read, and none.
const UNREADABLE: [Option<&str>; 8] =
    [None, None, None, None, None, Some("pods"), Some("namespaces"), Some("statefulsets")];

/// The guards, and what they read and write.
pub(crate) struct Bench {
    world: FakeWorld,
    guards: Vec<(Arc<dyn Guard>, &'static Section)>,
    runtime: Runtime,
}

/// The result of a review by one guard.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Whether the API server returned the object of the review.
    pub(crate) is_identified: bool,
    /// The effects, in their order.
    pub(crate) effects: Vec<Effect>,
}

impl Bench {
    /// Creates the guards of this name, or all guards.
    pub(crate) fn new(only: Option<&str>) -> Self {
        let world = world::world();
        let clients = world.clients();
        let sections = SECTIONS.iter().filter(|section| only.is_none_or(|only| only == section.guard));
        let of_section = |section| guards(section, &clients).into_iter().map(move |guard| (guard, section));
        let guards = sections.flat_map(of_section).collect();
        Self { world, guards, runtime: Builder::new_current_thread().enable_time().build().unwrap() }
    }

    /// Checks the answers of all guards to one review. `unreadable` selects a resource that Durward isn't allowed to read. Returns an
    /// error for an answer without one of the properties.
    pub(crate) fn check(&self, body: &[u8], unreadable: u8) -> Result<Vec<Outcome>, String> {
        let unreadable = UNREADABLE[usize::from(unreadable) % UNREADABLE.len()];
        self.guards.iter().filter_map(|guard| self.check_guard(guard, body, unreadable)).collect()
    }

    /// Checks the answer of one guard. Returns none if the body is not a review.
    fn check_guard(
        &self,
        (guard, section): &(Arc<dyn Guard>, &Section),
        body: &[u8],
        unreadable: Option<&'static str>,
    ) -> Option<Result<Outcome, String>> {
        let review = decode(body, guard.fields()).ok()?;
        reset(&self.world, unreadable);
        let deadline = Instant::now() + Duration::from_secs(5);
        let ruling = self.runtime.block_on(guard.review(&review.request, deadline));
        let is_allowed = matches!(ruling.verdict, Verdict::Allow | Verdict::Mutate(_));
        let answer = encode(&review, &settle(&review.request, ruling, guard.settle_policy()));
        let answer = String::from_utf8(answer).unwrap();
        let events = events(&self.world);

        let subject = Subject::read(body);
        let is_identified = |events: &[Event]| events.iter().any(|event| subject.is_returned_by(event));
        let first_effect = events.iter().position(|event| matches!(event, Event::Effect(_)));
        let before_effects = &events[..first_effect.unwrap_or(events.len())];
        let is_identified_first = is_identified(before_effects);
        let is_identified = is_identified(&events);
        let is_secret = |(name, namespaces): (&String, &Vec<String>)| {
            let is_hidden =
                !is_identified || namespaces.iter().all(|namespace| subject.is_elsewhere(namespace));
            is_hidden && answer.contains(name) && !subject.contains(body, name)
        };
        let is_removal = |metadata: &Value| subject.is_removal(section.guard, &review.request, metadata);
        let reviewed = &subject.json["request"]["oldObject"]["metadata"];
        let is_guarded = || unreadable.is_none() && is_removal(reviewed);
        let is_in_use = || subject.used(section.guard).is_some_and(|stored| is_removal(&stored["metadata"]));
        let effect = |event: &Event| if let Event::Effect(effect) = event { Some(*effect) } else { None };
        let effects: Vec<Effect> = events.iter().filter_map(effect).collect();
        let problem = if first_effect.is_some() && !is_identified_first {
            "an effect without the object"
        } else if SECRETS.iter().any(is_secret) {
            "the name of an object is shown"
        } else if is_allowed && !is_identified && is_guarded() {
            "a removal is allowed without its object"
        } else if is_allowed && is_identified && is_in_use() {
            "the removal of an object in use is allowed"
        } else if is_allowed
            && is_identified
            && subject.is_member(section.guard, &review.request)
            && !effects.contains(&Effect::Write)
        {
            "an etcd pod is removed without a reservation"
        } else {
            return Some(Ok(Outcome { is_identified, effects }));
        };
        let body = String::from_utf8_lossy(body);
        Some(Err(format!("{problem}: {}: {body}\n{answer}\n{events:?}", guard.name())))
    }
}

/// Files of policies that were written. Tests run at the same time.
static FILES: AtomicUsize = AtomicUsize::new(0);

fn guards(section: &Section, clients: &Clients) -> Vec<Arc<dyn Guard>> {
    let kind = GUARD_KINDS.iter().find(|kind| kind.name() == section.guard).unwrap();
    // The fuzz target runs in another directory, so the policies are written to a file.
    let file =
        format!("durward-strangers-{}-{}.yaml", std::process::id(), FILES.fetch_add(1, Ordering::Relaxed));
    let policies = std::env::temp_dir().join(file);
    std::fs::write(&policies, include_str!("../policies.yaml")).unwrap();
    let yaml = section.yaml.replace("POLICIES", &policies.display().to_string());
    let root = config::parse("-", &yaml).unwrap();
    let (configured, _, problems) =
        config::read("-", root.as_ref(), |section| kind.read(section, guards::NAMESPACE));
    let _ = std::fs::remove_file(&policies);
    assert_eq!(problems, []);
    configured.build(clients)
}

/// The object that a review is about, in the words of the review.
struct Subject {
    json: Value,
    plural: String,
    /// Empty for objects without a namespace.
    namespace: String,
    /// The names in the request and in its object. Both are empty if the object has a duplicate key.
    names: Vec<String>,
    uid: String,
    is_eviction: bool,
}

impl Subject {
    fn read(body: &[u8]) -> Self {
        let json: Value = serde_json::from_slice(body).unwrap_or_default();
        let fields = Fields::new(&[
            "/metadata/name",
            "/metadata/uid",
            "/deleteOptions/preconditions/uid",
            "/metadata/namespace",
        ]);
        let mut subject = Self {
            json,
            plural: String::new(),
            namespace: String::new(),
            names: Vec::new(),
            uid: String::new(),
            is_eviction: false,
        };
        let Ok(review) = decode(body, &fields) else { return subject };
        let request = &review.request;
        subject.is_eviction = request.subresource == "eviction";
        let object = if subject.is_eviction { &request.object } else { &request.old_object };
        let text = |index: usize| {
            let raw = object.as_ref().and_then(|object| object.field(index));
            raw.and_then(Raw::text).unwrap_or_default().into_owned()
        };
        subject.uid = text(if subject.is_eviction { 2 } else { 1 });
        subject.names = vec![request.name.to_string(), text(0)];
        subject.plural = request.resource.resource.to_string();
        let has_namespace = !CLUSTER_SCOPED.contains(&subject.plural.as_str());
        let namespace = if request.namespace.is_empty() { text(3) } else { request.namespace.to_string() };
        subject.namespace = if has_namespace { namespace } else { String::new() };
        subject
    }

    /// Whether the review contains a name.
    fn contains(&self, body: &[u8], name: &str) -> bool {
        String::from_utf8_lossy(body).contains(name) || self.json.to_string().contains(name)
    }

    fn is_returned_by(&self, event: &Event) -> bool {
        let Event::Returned { plural, namespace, name, uid } = event else { return false };
        let is_there = *plural == self.plural && *namespace == self.namespace;
        let has_name = !name.is_empty() && self.names.contains(name);
        is_there && has_name && (self.is_eviction && self.uid.is_empty() || *uid == self.uid)
    }

    /// Whether the object is neither in this namespace nor the namespace itself. Custom objects of a CRD can be in all namespaces.
    fn is_elsewhere(&self, namespace: &str) -> bool {
        let is_own = match self.plural.as_str() {
            "namespaces" => self.names.iter().any(|name| name == namespace),
            "customresourcedefinitions" => true,
            _ => self.namespace == namespace,
        };
        !namespace.is_empty() && !is_own
    }

    /// Whether a request removes an object from a guard, if the object has this metadata.
    fn is_removal(&self, guard: &str, request: &Request<'_>, metadata: &Value) -> bool {
        let is_deleting = metadata["deletionTimestamp"].as_str().is_some_and(|time| !time.is_empty());
        let is_delete = request.operation == Operation::Delete && request.subresource.is_empty();
        let is = |group: &str, plural: &str| {
            request.resource.group == group && request.resource.resource == plural
        };
        match guard {
            "deletion" => {
                let has_override = !metadata["annotations"].is_null();
                let is_kind = is("", "namespaces") || is("apiextensions.k8s.io", "customresourcedefinitions");
                is_kind && is_delete && !is_deleting && !has_override
            }
            "etcd" if is("", "pods") => {
                let is_eviction = request.operation == Operation::Create && self.is_eviction;
                let is_member =
                    metadata["namespace"] == "db" && metadata["labels"]["app"] == "etcd" && !is_deleting;
                request.namespace != guards::NAMESPACE && (is_eviction || is_delete && is_member)
            }
            _ => false,
        }
    }

    /// Returns the stored object, if it is a namespace or a CRD whose removal a guard never allows.
    fn used(&self, guard: &str) -> Option<&'static Value> {
        let used: &[&str] = if guard == "deletion" { &["db", "shop", CRD] } else { &["db"] };
        let is_it = |(plural, object): &&(&str, Value)| {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            *plural == self.plural && self.names.iter().any(|own| own == name) && used.contains(&name)
        };
        let has_no_namespace = CLUSTER_SCOPED.contains(&self.plural.as_str());
        LOCAL.iter().find(is_it).filter(|_| has_no_namespace).map(|(_, object)| object)
    }

    /// Whether a request deletes or evicts a pod of the etcd cluster.
    fn is_member(&self, guard: &str, request: &Request<'_>) -> bool {
        let is_delete = request.operation == Operation::Delete && request.subresource.is_empty();
        let is_pod = self.plural == "pods"
            && self.namespace == "db"
            && self.names.iter().any(|name| name.starts_with("kiwi"));
        guard == "etcd" && is_pod && (is_delete || self.is_eviction) && !request.dry_run
    }
}
