use admission::{Denial, Fields, Mode, Ruling, SettlePolicy, decode, settle};
use cluster::testing::{FakeWorld, RequestFault};
use cluster::{Offline, cause};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::advance;

use super::*;
use crate::clients::control_planes::ControlPlanes;
use crate::file::{File, Purpose};
use crate::run::plan::guards;

const CONFIGURATION: &str =
    "deletion: {fleet: none}, etcd: {clusters: [{namespace: db, selector: app=etcd}]}";

const EVENTS: &str = "events.v1.events.k8s.io";

/// Returns an API server with the namespace `shop` and the pod `db/etcd-0`.
fn server() -> FakeWorld {
    FakeWorld::default().with(|content| {
        content.insert("namespaces.v1", json!({"metadata": {"name": "shop", "uid": "a"}}));
        content.insert("pods.v1", json!({"metadata": {"namespace": "db", "name": "etcd-0", "uid": "a"}}));
    })
}

/// Returns the number of objects that were read, and not from a cache.
fn reads(server: &FakeWorld) -> usize {
    let is_read =
        |text: &&String| text.starts_with("(local): namespaces ") || text.starts_with("(local): pods ");
    server.requests().iter().filter(is_read).count()
}

/// One replica of Durward.
struct Replica {
    server: FakeWorld,
    guards: Vec<(&'static str, GuardEvents)>,
    metrics: Metrics,
    task: JoinHandle<()>,
}

fn file(head: &str) -> File {
    let text =
        format!("apiVersion: durward.dev/v1alpha1\nkind: Configuration\n{head}guards: {{{CONFIGURATION}}}\n");
    File::from_text("d.yaml".as_ref(), text, Purpose::Guards).ok().unwrap()
}

impl Replica {
    fn of(server: &FakeWorld) -> Self {
        let (metrics, file) = (Metrics::new("t"), file(""));
        let (queue, task) = queue(&metrics);
        let task = tokio::spawn(task.run());
        let guards = file.guards.iter().map(|guard| {
            let events = GuardEvents::new(&queue, guard.configured.as_ref(), &server.clients());
            (guard.kind.name(), events.unwrap())
        });
        Self { server: server.clone(), guards: guards.collect(), metrics, task }
    }

    fn new() -> Self {
        Self::of(&server())
    }

    /// Denies a request.
    fn deny(&self, guard: &str, request: &Value) {
        self.settle(
            guard,
            request,
            Ruling::deny(Denial::forbidden("in use: 3 pods\nNext: empty it")),
            Mode::Enforce,
        );
    }

    fn settle(&self, guard: &str, request: &Value, ruling: Ruling, mode: Mode) {
        let review =
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
        let body = review.to_string();
        let review = decode(body.as_bytes(), &Fields::none()).unwrap();
        let settle_policy = SettlePolicy { mode, ..SettlePolicy::deny_unknown() };
        let settled = settle(&review.request, ruling, &settle_policy);
        let (_, events) = self.guards.iter().find(|(name, _)| *name == guard).unwrap();
        events.answered(&review.request, &settled, &settle_policy);
    }

    /// Waits until the queue is empty, and returns the Events.
    async fn events(&self) -> Vec<Event> {
        advance(Duration::from_millis(1)).await;
        while self.guards.iter().any(|(_, events)| events.queue.denials.capacity() < CAPACITY) {
            tokio::time::sleep(PACE).await;
        }
        tokio::time::sleep(PACE * 2).await;
        let stored = self.server.content().objects(EVENTS);
        stored.into_iter().map(|event| serde_json::from_value(event).unwrap()).collect()
    }

    fn counts(&self, result: &str) -> bool {
        self.metrics.encode().contains(&format!("durward_events_total{{result=\"{result}\"}} 1"))
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn deletion() -> Value {
    json!({
        "uid": "u", "operation": "DELETE", "name": "shop", "namespace": "shop",
        "kind": {"group": "", "version": "v1", "kind": "Namespace"},
        "resource": {"group": "", "version": "v1", "resource": "namespaces"},
        "userInfo": {"username": "system:serviceaccount:argocd:argocd"},
        "oldObject": {"metadata": {"name": "shop", "uid": "a"}},
    })
}

fn eviction() -> Value {
    json!({
        "uid": "u", "operation": "CREATE", "name": "etcd-0", "namespace": "db",
        "kind": {"group": "policy", "version": "v1", "kind": "Eviction"},
        "resource": {"group": "", "version": "v1", "resource": "pods"}, "subResource": "eviction",
        "userInfo": {"username": "ann"},
        "object": {"metadata": {"name": "etcd-0", "namespace": "db"}},
    })
}

#[tokio::test(start_paused = true)]
async fn a_denied_deletion_has_one_event_in_five_minutes() {
    let replica = Replica::new();
    replica.deny("deletion", &deletion());
    replica.deny("deletion", &deletion());
    let events = replica.events().await;
    assert_eq!(events.len(), 1);
    let mut event = serde_json::to_value(&events[0]).unwrap();
    assert!(event["eventTime"].take().is_string() && event["reportingInstance"].take().is_string());
    let name = event["metadata"]["name"].take();
    assert!(name.as_str().unwrap().starts_with("durward.a.deletiondenied."), "{name}");
    assert_eq!(
        event,
        json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "eventTime": null, "reportingInstance": null,
            "metadata": {"name": null, "namespace": "default"},
            "type": "Warning", "reason": "DeletionDenied", "action": "Delete",
            "note": "in use: 3 pods (requested by a service account)",
            "regarding": {"apiVersion": "v1", "kind": "Namespace", "name": "shop", "uid": "a"},
            "reportingController": "durward.dev/durward",
        })
    );
    advance(WINDOW.saturating_sub(Duration::from_secs(2))).await;
    replica.deny("deletion", &deletion());
    replica.events().await;
    assert_eq!(reads(&replica.server), 1, "the object is not read again");
    advance(Duration::from_secs(3)).await;
    replica.server.content().retain(EVENTS, |_| false);
    replica.deny("deletion", &deletion());
    assert_eq!(replica.events().await.len(), 1, "after five minutes");
}

#[tokio::test(start_paused = true)]
async fn a_denied_eviction_has_an_event_of_the_pod_in_its_namespace() {
    let replica = Replica::new();
    replica.deny("etcd", &eviction());
    replica.deny("etcd", &eviction());
    let events = replica.events().await;
    let [event] = &events[..] else { panic!("{events:?}") };
    assert_eq!(event.metadata.namespace.as_deref(), Some("db"));
    assert_eq!((event.reason.as_deref(), event.action.as_deref()), (Some("EvictionDenied"), Some("Evict")));
    assert_eq!(event.note.as_deref(), Some("in use: 3 pods (requested by a user)"));
    let regarding = event.regarding.clone().unwrap();
    assert_eq!((regarding.kind.as_deref(), regarding.uid.as_deref()), (Some("Pod"), Some("a")));
    replica.server.content().edit("pods.v1", "etcd-0", |pod| pod["metadata"]["uid"] = "b".into());
    replica.deny("etcd", &eviction());
    assert_eq!(replica.events().await.len(), 2, "a new pod with the same name");
}

#[tokio::test(start_paused = true)]
async fn the_second_replica_creates_none() {
    let first = Replica::new();
    let second = Replica::of(&first.server);
    first.deny("deletion", &deletion());
    second.deny("deletion", &deletion());
    assert_eq!((first.events().await.len(), second.events().await.len()), (1, 1));
    assert!(first.counts("created") != second.counts("created"));
    assert!(!first.counts("failed") && !second.counts("failed"));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_allowed_or_a_dry_run_has_none() {
    let replica = Replica::new();
    let deny = || Ruling::deny(Denial::forbidden("in use"));
    let mut dry_run = deletion();
    dry_run["dryRun"] = true.into();
    replica.deny("deletion", &dry_run);
    let mut dry_eviction = eviction();
    dry_eviction["object"]["deleteOptions"] = json!({"dryRun": ["All"]});
    replica.deny("etcd", &dry_eviction);
    replica.settle("deletion", &deletion(), deny(), Mode::Audit);
    replica.settle("deletion", &deletion(), Ruling::allow().warn("override"), Mode::Enforce);
    assert!(replica.events().await.is_empty());
    assert_eq!(reads(&replica.server), 0);
    let unknown = Ruling::unknown(Cause::new(cause::TIMEOUT, "m5 did not answer"));
    replica.settle("deletion", &deletion(), unknown, Mode::Enforce);
    assert_eq!(replica.events().await.len(), 1, "a denial because the check failed");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_the_api_server_does_not_have_has_none() {
    let replica = Replica::new();
    let mut other = deletion();
    other["oldObject"]["metadata"]["uid"] = "b".into();
    replica.deny("deletion", &other);
    let mut absent = eviction();
    absent["name"] = "etcd-9".into();
    absent["object"]["metadata"]["name"] = "etcd-9".into();
    replica.deny("etcd", &absent);
    assert!(replica.events().await.is_empty());
    assert_eq!(reads(&replica.server), 2);
    let mut without_uid = deletion();
    without_uid["oldObject"]["metadata"]["uid"] = Value::Null;
    let mut other_kind = deletion();
    other_kind["resource"]["resource"] = "secrets".into();
    let mut creation = deletion();
    creation["operation"] = "CREATE".into();
    for request in [without_uid, other_kind, creation] {
        replica.deny("deletion", &request);
    }
    assert!(replica.events().await.is_empty());
    assert_eq!(reads(&replica.server), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failed_event_is_not_tried_again() {
    let replica = Replica::new();
    let down = RequestFault::Fails(Cause::new(cause::UNREACHABLE, "down"));
    replica.server.content().fault("write: event", down);
    replica.deny("deletion", &deletion());
    replica.events().await;
    assert!(replica.counts("failed"));
    replica.server.content().rules.clear();
    replica.deny("deletion", &deletion());
    assert!(replica.events().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_drops_denials_and_the_pace_is_ten_in_a_second() {
    let replica = Replica::new();
    // The task has not run yet.
    for _ in 0..=CAPACITY {
        replica.deny("etcd", &eviction());
    }
    assert!(replica.counts("dropped"));
    tokio::time::sleep(Duration::from_millis(1_050)).await;
    assert_eq!(reads(&replica.server), 11);
    assert_eq!(replica.events().await.len(), 1);
}

#[test]
fn a_long_message_is_cut() {
    let metrics = Metrics::new("t");
    let (queue, _task) = queue(&metrics);
    let file = file("");
    let guard = file.guard("etcd").unwrap();
    let events = GuardEvents::new(&queue, guard.configured.as_ref(), &server().clients()).unwrap();
    let review =
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": eviction()});
    let body = review.to_string();
    let review = decode(body.as_bytes(), &Fields::none()).unwrap();
    let settle_policy = SettlePolicy::deny_unknown();
    let ruling = Ruling::deny(Denial::forbidden("🦀".repeat(2_000)));
    let settled = settle(&review.request, ruling, &settle_policy);
    let denied = events.denied(&review.request, &settled, &settle_policy).unwrap();
    assert!((900..=1_024).contains(&denied.note.len()), "{}", denied.note.len());
}

#[test]
fn events_are_on_by_default_and_need_permissions() {
    let namespaces = |head: &str| {
        let file = file(head);
        let all = file.guards.iter().flat_map(|guard| permissions::of_guard(&file, guard).namespaced);
        let events = all.filter(|(_, one)| one.resources == ["events"]);
        events.map(|(namespace, one)| (namespace, one.verbs.join(","))).collect::<Vec<_>>()
    };
    let create = |namespace: &str| (namespace.to_owned(), "create".to_owned());
    assert_eq!(namespaces(""), [create("default"), create("db")]);
    assert_eq!(namespaces("events: true\n"), namespaces(""));
    assert_eq!(namespaces("events: false\n"), []);
}

#[tokio::test(start_paused = true)]
async fn without_events_and_in_a_snapshot_no_denial_is_queued() {
    let server = server();
    let snapshot = Clients::reader_only(Arc::new(Offline));
    for (head, clients, expected) in
        [("", server.clients(), 1), ("events: false\n", server.clients(), 0), ("", snapshot, 0)]
    {
        let (queue, _task) = queue(&Metrics::new("t"));
        let guards = guards(&file(head), &ControlPlanes::snapshot(clients), Some(&queue)).unwrap();
        let guard = guards.iter().find(|guard| guard.name() == "deletion").unwrap();
        let review =
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": deletion()});
        let body = review.to_string();
        let review = decode(body.as_bytes(), guard.fields()).unwrap();
        let ruling = Ruling::deny(Denial::forbidden("in use"));
        guard.answered(&review.request, &settle(&review.request, ruling, guard.settle_policy()));
        assert_eq!(CAPACITY - queue.denials.capacity(), expected, "{head}");
    }
}
