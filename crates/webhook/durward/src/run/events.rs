//! Events about denied requests: a queue that all guards share, and the task that creates the Events.
//!
//! A review is data from a stranger, so the task first reads the object from the API server that called the guard, and compares the
//! uid. Each Event is tried once. The name of an Event is the same on all replicas, so that the second one gets 409 (`AlreadyExists`).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use admission::text::truncate;
use admission::{Answer, Cause, Operation, Request, SettlePolicy, Settled};
use cluster::fleet::{Cluster, GetQuery, Part};
use cluster::writer::{WriteResult, Writer};
use cluster::{Address, Clients, Resource};
use guards::{Configured, GuardedNamespaces};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use server::Metrics;
use tokio::sync::{Mutex, mpsc};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::file::NAME;
use crate::registration::permissions;

/// Denials that wait for the task. More are dropped.
const CAPACITY: usize = 256;

/// Ten objects are read and ten Events are created in a second at most.
const PACE: Duration = Duration::from_millis(100);

/// An object has one Event of each reason in this time.
const WINDOW: Duration = Duration::from_secs(300);

/// Longest time for both requests of an Event.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The limit of the API server is 1,024 bytes. A character has four bytes at most, and the caller is 40 bytes.
const MAX_NOTE_CHARS: usize = 240;

/// The longest names of kinds and of this process in an Event.
const MAX_KIND_CHARS: usize = 63;
const MAX_INSTANCE_CHARS: usize = 128;

const CONTROLLER: &str = "durward.dev/durward";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

type Results = Family<ResultLabel, Counter>;

fn count(results: &Results, result: &'static str) {
    results.get_or_create(&ResultLabel { result }).inc();
}

/// Creates the queue and its task, and registers their metric.
pub(crate) fn queue(metrics: &Metrics) -> (EventQueue, Arc<EventTask>) {
    let results = Results::default();
    let labels = &[("result", "created, failed, dropped because too many waited")];
    metrics.register("events", labels, "Events about denied requests", results.clone());
    let (sender, receiver) = mpsc::channel(CAPACITY);
    // In a pod this is the name of the pod.
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { NAME } else { host.trim() };
    let instance = truncate(host, MAX_INSTANCE_CHARS).into_owned();
    let task = EventTask { denials: Mutex::new(receiver), results: results.clone(), instance };
    (EventQueue { denials: sender, results }, Arc::new(task))
}

/// The end of the queue to which guards add their denials.
#[derive(Clone)]
pub(crate) struct EventQueue {
    denials: mpsc::Sender<DeniedRequest>,
    results: Results,
}

/// Adds the denials of one guard to the queue.
pub(crate) struct GuardEvents {
    queue: EventQueue,
    clients: Clients,
    /// The resources of the guard, and whether their objects are in namespaces.
    resources: Vec<(Resource, bool)>,
}

/// A denied request.
struct DeniedRequest {
    clients: Clients,
    resource: Resource,
    kind: String,
    /// Empty for a cluster-wide object.
    namespace: String,
    name: String,
    /// The uid in the review. An eviction has none.
    uid: Option<String>,
    reason: EventReason,
    note: String,
}

/// The reason of an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum EventReason {
    DeletionDenied,
    EvictionDenied,
}

impl EventReason {
    fn as_str(self) -> &'static str {
        match self {
            Self::DeletionDenied => "DeletionDenied",
            Self::EvictionDenied => "EvictionDenied",
        }
    }

    fn action(self) -> &'static str {
        match self {
            Self::DeletionDenied => "Delete",
            Self::EvictionDenied => "Evict",
        }
    }
}

impl GuardEvents {
    /// Returns `None` for a guard that protects no objects of its own, and without an API server.
    pub(crate) fn new(queue: &EventQueue, guard: &dyn Configured, clients: &Clients) -> Option<Self> {
        clients.writer.as_ref()?;
        let mut resources: Vec<(Resource, bool)> = Vec::new();
        for objects in guard.requirements().guarded {
            if !resources.iter().any(|(known, _)| *known == objects.resource) {
                resources.push((objects.resource, objects.namespaces != GuardedNamespaces::None));
            }
        }
        (!resources.is_empty()).then(|| Self { queue: queue.clone(), clients: clients.clone(), resources })
    }

    /// Adds the request to the queue if it was denied. Drops it if the queue is full.
    pub(crate) fn answered(&self, request: &Request<'_>, settled: &Settled, settle_policy: &SettlePolicy) {
        if let Some(denied) = self.denied(request, settled, settle_policy)
            && self.queue.denials.try_send(denied).is_err()
        {
            count(&self.queue.results, "dropped");
        }
    }

    fn denied(
        &self,
        request: &Request<'_>,
        settled: &Settled,
        settle_policy: &SettlePolicy,
    ) -> Option<DeniedRequest> {
        let Answer::Deny(denial) = &settled.answer else { return None };
        if request.dry_run {
            return None;
        }
        let (reason, kind, uid) = match (request.operation, &*request.subresource) {
            (Operation::Delete, "") => {
                let uid = request.old_object.as_ref()?.uid()?;
                (EventReason::DeletionDenied, &*request.kind.kind, Some(uid.into_owned()))
            }
            (Operation::Create, "eviction") => (EventReason::EvictionDenied, "Pod", None),
            _ => return None,
        };
        let (resource, is_namespaced) = self.resources.iter().find(|(resource, _)| {
            resource.group == request.resource.group && resource.plural == request.resource.resource
        })?;
        let caller = if settle_policy.is_controller(&request.user) {
            "controller"
        } else if request.user.name.starts_with("system:serviceaccount:") {
            "service account"
        } else {
            "user"
        };
        let line = truncate(denial.message.lines().next().unwrap_or_default(), MAX_NOTE_CHARS);
        Some(DeniedRequest {
            clients: self.clients.clone(),
            resource: resource.clone(),
            kind: truncate(kind, MAX_KIND_CHARS).into_owned(),
            namespace: if *is_namespaced { request.namespace.to_string() } else { String::new() },
            name: request.name.to_string(),
            uid,
            reason,
            note: format!("{line} (requested by a {caller})"),
        })
    }
}

/// The task that creates the Events.
pub(crate) struct EventTask {
    denials: Mutex<mpsc::Receiver<DeniedRequest>>,
    results: Results,
    instance: String,
}

/// The objects that have an Event, by uid and reason. The pace keeps this map below 3,000 entries.
type RecentEvents = HashMap<(String, EventReason), Instant>;

impl EventTask {
    /// Creates Events until the queue is closed.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut denials = self.denials.lock().await;
        let mut pace = interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut recent = RecentEvents::new();
        while let Some(denied) = denials.recv().await {
            recent.retain(|_, created| created.elapsed() < WINDOW);
            let has_event = |uid: &String| recent.contains_key(&(uid.clone(), denied.reason));
            if denied.uid.as_ref().is_some_and(has_event) {
                continue;
            }
            pace.tick().await;
            let Some(writer) = denied.clients.writer.clone() else { continue };
            if let Err(cause) = self.create(&denied, &*writer, &mut recent).await {
                count(&self.results, "failed");
                tracing::debug!(name = denied.name, reason = cause.text, "an Event was not created");
            }
        }
    }

    /// Creates the Event if the object exists and has none.
    async fn create(
        &self,
        denied: &DeniedRequest,
        writer: &dyn Writer,
        recent: &mut RecentEvents,
    ) -> Result<(), Cause> {
        let DeniedRequest { resource, namespace, name, reason, .. } = denied;
        let deadline = (Instant::now() + TIMEOUT).into_std();
        let query = GetQuery { address: Address { resource, namespace, name }, part: Part::Metadata };
        let found = denied.clients.reader.get_object(&Cluster::Local, query, deadline).await?;
        let Some(object) = found.filter(|object| denied.uid.as_ref().is_none_or(|uid| *uid == object.uid))
        else {
            return Ok(());
        };
        let key = (object.uid, *reason);
        if recent.contains_key(&key) {
            return Ok(());
        }
        let event = event(denied, &key.0, &self.instance, SystemTime::now());
        // Also if it fails: the next denial of the object must not try again at once.
        recent.insert(key, Instant::now());
        match writer.create_event(&event, deadline).await {
            WriteResult::Written => count(&self.results, "created"),
            // Another replica was first.
            WriteResult::Conflict => {}
            WriteResult::Failed(cause) => return Err(cause),
        }
        Ok(())
    }
}

/// Returns the Event. Kubernetes has those of cluster-wide objects in the namespace `default`.
fn event(denied: &DeniedRequest, uid: &str, instance: &str, now: SystemTime) -> Event {
    let DeniedRequest { resource, kind, namespace, name, reason, note, .. } = denied;
    let owned = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let window = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / WINDOW.as_secs();
    let home = if namespace.is_empty() { permissions::EVENTS_OF_CLUSTER } else { namespace };
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{NAME}.{uid}.{}.{window}", reason.as_str().to_lowercase())),
            namespace: owned(home),
            ..ObjectMeta::default()
        },
        event_time: Timestamp::try_from(now).ok().map(MicroTime),
        type_: owned("Warning"),
        reason: owned(reason.as_str()),
        action: owned(reason.action()),
        note: owned(note),
        regarding: Some(ObjectReference {
            api_version: owned(&resource.api_version()),
            kind: owned(kind),
            namespace: owned(namespace),
            name: owned(name),
            uid: owned(uid),
            ..ObjectReference::default()
        }),
        reporting_controller: owned(CONTROLLER),
        reporting_instance: owned(instance),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests;
