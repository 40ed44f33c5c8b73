//! An API server with a few objects, a fleet of two clusters, and an etcd cluster of three members. It records which objects it
//! returned and which effects a review had, in their order.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::{LazyLock, Mutex, MutexGuard};
use std::time::Instant;

use admission::{BoxFuture, Cause};
use cluster::etcd::{Endpoint, EtcdRequest, EtcdResponse, EtcdResult, Id, Member, MemberList, Read, Status};
use cluster::fleet::{
    Cluster, Fleet, FleetMember, GetQuery, ListQuery, MembersResult, Object, ObjectResult, Page, PageResult,
    Part,
};
use cluster::writer::{Lease, StoredLease, TransferResult, WriteResult, Writer};
use cluster::{Address, EtcdClient, Metadata, MetadataResult, Reader, cause};
use k8s_openapi::api::events;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

/// An effect of a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Effect {
    /// A Lease was written, or leadership was moved.
    Write,
    /// An etcd member was called.
    MemberCall,
    /// A member cluster was called.
    ClusterCall,
}

/// An event, in the order of the review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// The local API server returned one object by its name.
    Returned { plural: String, namespace: String, name: String, uid: String },
    /// The review had an effect.
    Effect(Effect),
}

/// The clusters, and the events of the current review.
#[derive(Default)]
pub(crate) struct World(Mutex<State>);

#[derive(Default)]
struct State {
    events: Vec<Event>,
    lease: Option<(u64, Value)>,
    leader: Id,
    /// A resource that the local API server does not let Durward read.
    unreadable: Option<&'static str>,
}

/// The leader, and the member with ordinal 0.
const FIRST_MEMBER: Id = 20;

/// The id of the etcd cluster.
const ETCD_CLUSTER: Id = 7;

/// The names that a stranger must not learn, with their namespaces. They occur in no configuration, except those of the contexts.
pub(crate) static SECRETS: LazyLock<BTreeMap<String, Vec<String>>> = LazyLock::new(|| {
    let public = ["db", "shop", "spare", guards::NAMESPACE, "karmada-system", CRD];
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (_, object) in LOCAL.iter().chain(REMOTE.iter()) {
        let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
        if !public.contains(&text("name").as_str()) {
            all.entry(text("name")).or_default().push(text("namespace"));
        }
    }
    let others = CONTEXTS.map(str::to_owned).into_iter().chain((0..3).map(|at| format!("10.77.0.{at}")));
    all.extend(others.map(|name| (name, vec![String::new()])));
    all
});

/// The member clusters.
pub(crate) const CONTEXTS: [&str; 2] = ["plum-east", "plum-west"];

/// The name of the CRD.
pub(crate) const CRD: &str = "widgets.example.org";

/// The objects of the local cluster, with their plurals.
pub(crate) static LOCAL: LazyLock<Vec<(&str, Value)>> = LazyLock::new(|| {
    let namespace = |name: &str| {
        let labels =
            json!({"kubernetes.io/metadata.name": name, "guarded": "yes", "durward.dev/guard": "deletion"});
        json!({"metadata": {"name": name, "uid": format!("uid-{name}"), "labels": labels}})
    };
    let of = |namespace: &str, name: &str| json!({"namespace": namespace, "name": name, "uid": format!("uid-{name}")});
    let mut objects = vec![
        ("namespaces", namespace("db")),
        ("namespaces", namespace("shop")),
        ("namespaces", namespace("spare")),
        ("namespaces", namespace(guards::NAMESPACE)),
        ("namespaces", namespace("karmada-system")),
        (
            "statefulsets",
            json!({"metadata": of("db", "kiwi"), "spec": {"replicas": 3, "template": {"metadata": {"labels": {"app": "etcd"}}}}, "status": {"updateRevision": "r2"}}),
        ),
        (
            "poddisruptionbudgets",
            json!({"metadata": of("db", "quince"), "spec": {"selector": {"matchLabels": {"app": "etcd"}}}}),
        ),
        (
            "customresourcedefinitions",
            json!({"metadata": {"name": CRD, "uid": "uid-crd", "labels": {"guarded": "yes", "durward.dev/guard": "deletion"}}, "spec": {"group": "example.org", "names": {"plural": "widgets", "kind": "Widget"}, "scope": "Namespaced", "versions": [{"name": "v1", "served": true, "storage": true}]}}),
        ),
        ("widgets", json!({"metadata": of("shop", "date-1")})),
        (
            "pods",
            json!({"metadata": of("shop", "melon-0"), "spec": {"containers": [{"name": "web"}]}, "status": {"phase": "Running"}}),
        ),
    ];
    for at in 0..3 {
        objects.push(("pods", pod(at)));
        objects.push((
            "nodes",
            json!({"metadata": {"name": format!("fig-{at}"), "uid": format!("uid-fig-{at}")}, "spec": {}}),
        ));
        objects.push(("persistentvolumeclaims", json!({"metadata": of("db", &format!("mango-{at}"))})));
    }
    // Objects with the names of the etcd cluster in another namespace.
    let is_in_db = |(_, object): &&(&'static str, Value)| object["metadata"]["namespace"] == "db";
    let mut others: Vec<_> = objects.iter().filter(is_in_db).cloned().collect();
    for (_, object) in &mut others {
        let metadata = &mut object["metadata"];
        metadata["uid"] = format!("other-{}", metadata["uid"].as_str().unwrap_or_default()).into();
        metadata["namespace"] = "shop".into();
    }
    objects.extend(others);
    objects
});

/// The objects of each member cluster, with their plurals.
static REMOTE: LazyLock<Vec<(&str, Value)>> = LazyLock::new(|| {
    let namespace =
        |name: &str| ("namespaces", json!({"metadata": {"name": name, "uid": format!("remote-{name}")}}));
    let crd = LOCAL.iter().find(|(plural, _)| *plural == "customresourcedefinitions").cloned();
    let mut objects = vec![
        namespace("shop"),
        (
            "pods",
            json!({"metadata": {"namespace": "shop", "name": "lychee-0", "uid": "remote-lychee"}, "status": {"phase": "Running"}}),
        ),
        ("widgets", json!({"metadata": {"namespace": "shop", "name": "olive-0", "uid": "remote-olive"}})),
    ];
    objects.extend(crd);
    objects
});

/// Returns the pod of an etcd member.
fn pod(at: u64) -> Value {
    let name = format!("kiwi-{at}");
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": "db", "name": name, "uid": format!("uid-{name}"), "labels": {"app": "etcd"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "kiwi", "uid": "uid-kiwi", "controller": true}]
        },
        "spec": {
            "nodeName": format!("fig-{at}"),
            "containers": [{"name": "etcd", "image": "etcd:3.5.16", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": format!("mango-{at}")}}]
        },
        "status": {
            "phase": "Running", "podIP": format!("10.77.0.{at}"),
            "containerStatuses": [{"name": "etcd", "state": {"running": {}}}]
        }
    })
}

impl World {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Forgets the previous review.
    pub(crate) fn reset(&self, unreadable: Option<&'static str>) {
        *self.state() = State { leader: FIRST_MEMBER, unreadable, ..State::default() };
    }

    /// Returns the events of the current review.
    pub(crate) fn events(&self) -> Vec<Event> {
        self.state().events.clone()
    }

    fn record(&self, effect: Effect) {
        self.state().events.push(Event::Effect(effect));
    }

    /// Returns the objects of a resource.
    fn objects(&self, of: &Cluster, plural: &str) -> Result<Vec<Value>, Cause> {
        let stored = match of {
            Cluster::Local if self.state().unreadable == Some(plural) => {
                return Err(Cause::new(cause::FORBIDDEN, format!("{plural} cannot be read")));
            }
            Cluster::Local => &LOCAL,
            Cluster::Member(_) | Cluster::Context(_) | Cluster::Secret(..) => {
                self.record(Effect::ClusterCall);
                &REMOTE
            }
        };
        let mut objects: Vec<Value> =
            stored.iter().filter(|(kind, _)| *kind == plural).map(|(_, object)| object.clone()).collect();
        if plural == "leases"
            && let Some((version, mut lease)) = self.state().lease.clone()
        {
            lease["metadata"]["resourceVersion"] = version.to_string().into();
            objects.push(lease);
        }
        Ok(objects)
    }

    fn find(&self, of: &Cluster, query: GetQuery<'_>) -> ObjectResult {
        let Address { resource, namespace, name } = query.address;
        let is_it = |object: &Object| object.name == name && object.namespace == namespace;
        let objects = self.objects(of, &resource.plural)?;
        let found = objects.iter().map(|json| object(json, query.part)).find(is_it);
        if let (Cluster::Local, Some(Object { uid, .. })) = (of, &found) {
            let (plural, namespace) = (resource.plural.to_string(), namespace.to_owned());
            let returned = Event::Returned { plural, namespace, name: name.to_owned(), uid: uid.clone() };
            self.state().events.push(returned);
        }
        Ok(found)
    }

    fn answer(&self, peer: &Endpoint, request: EtcdRequest) -> EtcdResult {
        self.record(Effect::MemberCall);
        let ordinal = peer.address.strip_prefix("10.77.0.").and_then(|ordinal| ordinal.parse().ok());
        let Some(ordinal) = ordinal.filter(|ordinal: &u64| *ordinal < 3) else {
            return Err(Cause::new(cause::UNREACHABLE, "no route"));
        };
        let (member, leader) = (FIRST_MEMBER + ordinal, self.state().leader);
        let listed = |at: u64| Member {
            id: FIRST_MEMBER + at,
            name: format!("kiwi-{at}"),
            client_urls: vec!["http://x:2379".into()],
            ..Member::default()
        };
        Ok(match request {
            EtcdRequest::Status => EtcdResponse::Status(Box::new(Status {
                cluster: ETCD_CLUSTER,
                member,
                leader: Some(leader),
                term: 4,
                index: 9,
                applied: Some(9),
                version: "3.5.16".to_owned(),
                ..Status::default()
            })),
            EtcdRequest::Members | EtcdRequest::MembersByQuorum => EtcdResponse::Members(MemberList {
                cluster: ETCD_CLUSTER,
                members: (0..3).map(listed).collect(),
            }),
            EtcdRequest::Alarms => EtcdResponse::Alarms(Vec::new()),
            EtcdRequest::Read => EtcdResponse::Read(Read::Served),
        })
    }
}

/// Returns an object as a reader returns it.
fn object(json: &Value, part: Part) -> Object {
    let metadata = &json["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let map = |key: &str| -> BTreeMap<String, String> {
        serde_json::from_value(metadata[key].clone()).unwrap_or_default()
    };
    Object {
        namespace: text(&metadata["namespace"]),
        name: text(&metadata["name"]),
        uid: text(&metadata["uid"]),
        metadata: Metadata {
            labels: map("labels"),
            annotations: map("annotations"),
            deleting: metadata["deletionTimestamp"].is_string(),
        },
        raw: (part == Part::Whole).then(|| to_raw_value(json).unwrap()),
    }
}

impl Reader for World {
    fn get<'a>(&'a self, address: Address<'a>, _: Instant) -> BoxFuture<'a, MetadataResult> {
        let found = self.find(&Cluster::Local, GetQuery { address, part: Part::Metadata });
        Box::pin(ready(found.map(|found| found.map(|object| object.metadata.into()))))
    }

    fn get_object<'a>(
        &'a self,
        of: &'a Cluster,
        query: GetQuery<'a>,
        _: Instant,
    ) -> BoxFuture<'a, ObjectResult> {
        // The call happens when the future is polled.
        Box::pin(async move { self.find(of, query) })
    }

    fn list<'a>(&'a self, of: &'a Cluster, query: ListQuery<'a>, _: Instant) -> BoxFuture<'a, PageResult> {
        Box::pin(async move {
            let is_there =
                |object: &Object| query.namespace.is_empty() || object.namespace == query.namespace;
            let objects = self.objects(of, &query.resource.plural)?;
            let objects = objects.iter().map(|json| object(json, query.part)).filter(is_there);
            Ok(Page { objects: objects.collect(), next: None })
        })
    }

    fn members<'a>(&'a self, fleet: &'a Fleet, _: Instant) -> BoxFuture<'a, MembersResult> {
        let cluster = |name: &str| match fleet {
            Fleet::Contexts(_) => Cluster::Context(name.into()),
            _ => Cluster::Member(name.into()),
        };
        let member = |name| FleetMember { cluster: cluster(name), metadata: Metadata::default() };
        Box::pin(ready(Ok(CONTEXTS.map(member).into())))
    }
}

impl EtcdClient for World {
    fn call<'a>(&'a self, peer: &'a Endpoint, request: EtcdRequest, _: Instant) -> BoxFuture<'a, EtcdResult> {
        Box::pin(async move { self.answer(peer, request) })
    }
}

impl Writer for World {
    fn write<'a>(
        &'a self,
        lease: &'a Lease,
        stored: &'a StoredLease,
        _: Instant,
    ) -> BoxFuture<'a, WriteResult> {
        Box::pin(async move {
            self.record(Effect::Write);
            let mut state = self.state();
            let next = state.lease.as_ref().map_or(1, |(version, _)| version + 1);
            state.lease = Some((next, stored.body(lease)));
            WriteResult::Written
        })
    }

    fn transfer_leadership<'a>(
        &'a self,
        _: &'a Endpoint,
        to: Id,
        _: Instant,
    ) -> BoxFuture<'a, TransferResult> {
        Box::pin(async move {
            self.record(Effect::Write);
            self.state().leader = to;
            TransferResult::Transferred
        })
    }

    fn create_event<'a>(&'a self, _: &'a events::v1::Event, _: Instant) -> BoxFuture<'a, WriteResult> {
        self.record(Effect::Write);
        Box::pin(ready(WriteResult::Written))
    }
}
