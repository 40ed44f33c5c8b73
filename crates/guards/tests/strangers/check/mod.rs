//! Properties of reviews that a stranger sent. The property test and the fuzz target `reviews` use them.
//!
//! Unless the local API server returned the object of the review with its uid before that:
//!
//! - nothing is written, and no etcd member and no member cluster is called;
//! - the answer contains the name of no object that the review does not contain;
//! - the removal of an object that the review shows as guarded is not allowed.
//!
//! An eviction contains no pod, so a stored pod with its name is its object. If its preconditions have a uid, the pod must have it.

mod review;
mod world;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use admission::{Fields, Guard, Operation, Raw, Request, Verdict, decode, encode, settle};
use cluster::{Clients, Context};
use guards::GUARD_KINDS;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

pub(crate) use review::body;
pub(crate) use world::Effect;
use world::{Event, SECRETS, World};

/// 2026-11-21T10:00:00Z.
const NOW: Duration = Duration::from_secs(1_795_255_200);

/// The guards with their sections.
const SECTIONS: [(&str, &str); 6] = [
    (
        "etcd",
        "{clusters: [{namespace: db, selector: app=etcd}], alsoProtect: [scale, statefulsets, persistentvolumeclaims, poddisruptionbudgets]}",
    ),
    (
        "etcd",
        "{clusters: [{namespaceSelector: {matchLabels: {guarded: \"yes\"}}, selector: app=etcd, memberOnPodDelete: remove}]}",
    ),
    ("deletion", "{fleet: karmada, crds: {apiGroups: [example.org]}}"),
    ("deletion", "{fleet: {contexts: [plum-east, plum-west]}, crds: {apiGroups: ['*']}}"),
    ("lxcfs", "{}"),
    ("lxcfs", "{mountMethod: auto, includeInitContainers: true}"),
];

/// Resources that the API server does not let Durward read, and none.
const UNREADABLE: [Option<&str>; 8] =
    [None, None, None, None, None, Some("pods"), Some("namespaces"), Some("statefulsets")];

/// The guards, and what they read and write.
pub(crate) struct Bench {
    world: Arc<World>,
    guards: Vec<Arc<dyn Guard>>,
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
        let world = Arc::new(World::default());
        let context = Context { fixed_time: Some(SystemTime::UNIX_EPOCH + NOW), ..Context::default() };
        let writer = Some(Arc::clone(&world) as _);
        let clients = Clients { context, writer, ..Clients::new(Arc::clone(&world)) };
        let sections = SECTIONS.iter().filter(|(name, _)| only.is_none_or(|only| only == *name));
        let guards = sections.map(|(name, section)| guard(name, section, &clients)).collect();
        Self { world, guards, runtime: Builder::new_current_thread().enable_time().build().unwrap() }
    }

    /// Checks the answers of all guards to one review. `unreadable` selects a resource that Durward isn't allowed to read. Returns an
    /// error for an answer without one of the properties.
    pub(crate) fn check(&self, body: &[u8], unreadable: u8) -> Result<Vec<Outcome>, String> {
        let unreadable = UNREADABLE[usize::from(unreadable) % UNREADABLE.len()];
        self.guards.iter().filter_map(|guard| self.check_guard(&**guard, body, unreadable)).collect()
    }

    /// Checks the answer of one guard. Returns none if the body is not a review.
    fn check_guard(
        &self,
        guard: &dyn Guard,
        body: &[u8],
        unreadable: Option<&'static str>,
    ) -> Option<Result<Outcome, String>> {
        let review = decode(body, guard.fields()).ok()?;
        self.world.reset(unreadable);
        let deadline = Instant::now() + Duration::from_secs(5);
        let ruling = self.runtime.block_on(guard.review(&review.request, deadline));
        let is_allowed = matches!(ruling.verdict, Verdict::Allow | Verdict::Mutate(_));
        let answer = encode(&review, &settle(&review.request, ruling, guard.settle_policy()));
        let answer = String::from_utf8(answer).unwrap();
        let events = self.world.events();

        let subject = Subject::read(body);
        let is_identified = |events: &[Event]| events.iter().any(|event| subject.is_returned_by(event));
        let first_effect = events.iter().position(|event| matches!(event, Event::Effect(_)));
        let before_effects = &events[..first_effect.unwrap_or(events.len())];
        let is_secret = |name: &&String| answer.contains(*name) && !subject.contains(body, name);
        let is_guarded = || unreadable.is_none() && subject.is_guarded_removal(guard.name(), &review.request);
        let problem = if first_effect.is_some() && !is_identified(before_effects) {
            "an effect without the object"
        } else if is_identified(&events) {
            let effect = |event: &Event| if let Event::Effect(effect) = event { Some(*effect) } else { None };
            let effects = events.iter().filter_map(effect).collect();
            return Some(Ok(Outcome { is_identified: true, effects }));
        } else if SECRETS.iter().any(|name| is_secret(&name)) {
            "the name of an object is shown"
        } else if is_allowed && is_guarded() {
            "a removal is allowed without its object"
        } else {
            return Some(Ok(Outcome { is_identified: false, effects: Vec::new() }));
        };
        let body = String::from_utf8_lossy(body);
        Some(Err(format!("{problem}: {}: {body}\n{answer}\n{events:?}", guard.name())))
    }
}

fn guard(name: &str, section: &str, clients: &Clients) -> Arc<dyn Guard> {
    let kind = GUARD_KINDS.iter().find(|kind| kind.name() == name).unwrap();
    let root = config::parse("-", section).unwrap();
    let (configured, _, problems) =
        config::read("-", root.as_ref(), |section| kind.read(section, guards::NAMESPACE));
    assert_eq!(problems, []);
    configured.build(clients)
}

/// The object that a review is about, in the words of the review.
struct Subject {
    json: Value,
    /// The names in the request and in its object. Both are empty if the object has a duplicate key.
    names: Vec<String>,
    uid: String,
    is_eviction: bool,
}

impl Subject {
    fn read(body: &[u8]) -> Self {
        let json: Value = serde_json::from_slice(body).unwrap_or_default();
        let fields = Fields::new(&["/metadata/name", "/metadata/uid", "/deleteOptions/preconditions/uid"]);
        let mut subject = Self { json, names: Vec::new(), uid: String::new(), is_eviction: false };
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
        subject
    }

    /// Whether the review contains a name.
    fn contains(&self, body: &[u8], name: &str) -> bool {
        String::from_utf8_lossy(body).contains(name) || self.json.to_string().contains(name)
    }

    fn is_returned_by(&self, event: &Event) -> bool {
        let Event::Returned { plural, name, uid, .. } = event else { return false };
        let has_name = !name.is_empty() && self.names.contains(name);
        let has_uid =
            if self.is_eviction && self.uid.is_empty() { plural == "pods" } else { *uid == self.uid };
        has_name && has_uid
    }

    /// Whether a request removes an object that a guard with any of the sections guards, if the objects of the review are real.
    fn is_guarded_removal(&self, guard: &str, request: &Request<'_>) -> bool {
        let old = &self.json["request"]["oldObject"]["metadata"];
        let is_deleting = old["deletionTimestamp"].as_str().is_some_and(|time| !time.is_empty());
        let is_delete = request.operation == Operation::Delete && request.subresource.is_empty();
        let is = |group: &str, plural: &str| {
            request.resource.group == group && request.resource.resource == plural
        };
        match guard {
            "deletion" => {
                let has_override = !old["annotations"].is_null();
                let is_kind = is("", "namespaces") || is("apiextensions.k8s.io", "customresourcedefinitions");
                is_delete && is_kind && !is_deleting && !has_override
            }
            "etcd" if is("", "pods") => {
                let is_eviction = request.operation == Operation::Create && self.is_eviction;
                let is_update = request.operation == Operation::Update && request.subresource.is_empty();
                let is_selected = old["namespace"] == "db" && old["labels"]["app"] == "etcd" && !is_deleting;
                request.namespace != guards::NAMESPACE
                    && (is_eviction || (is_delete || is_update) && is_selected)
            }
            _ => false,
        }
    }
}
