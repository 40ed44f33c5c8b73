//! An API server with a few objects, a fleet of two clusters, and an etcd cluster of three members. It records which objects it
//! returned and which effects a review had, in their order.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use admission::Cause;
use cluster::cause;
use cluster::etcd::Id;
use cluster::testing::{FakeEtcdMember, FakeWorld, RequestFault, WorldEvent, etcd_pod};
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

/// 2026-11-21T10:00:00Z.
const NOW: Duration = Duration::from_secs(1_795_255_200);

/// The leader, and the member with ordinal 0.
const FIRST_MEMBER: Id = 20;

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
    let mut pod = etcd_pod(&format!("kiwi-{at}"));
    pod["spec"]["nodeName"] = format!("fig-{at}").into();
    pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = format!("mango-{at}").into();
    pod["status"]["podIP"] = format!("10.77.0.{at}").into();
    pod
}

/// Returns the clusters and the etcd members.
pub(crate) fn world() -> FakeWorld {
    FakeWorld::default().with(|content| {
        content.world.time = Some(SystemTime::UNIX_EPOCH + NOW);
        content.page_size = usize::MAX;
        for (plural, object) in LOCAL.iter() {
            content.insert(resource(plural), object.clone());
        }
        for name in CONTEXTS {
            content.add_member_cluster(name, &[]);
            for (plural, object) in REMOTE.iter() {
                content.insert_in(name, resource(plural), object.clone());
            }
        }
        for at in 0..3 {
            content.etcd.members.insert(format!("kiwi-{at}"), FakeEtcdMember::new(FIRST_MEMBER + at));
        }
    })
}

fn resource(plural: &str) -> &'static str {
    match plural {
        "namespaces" => "namespaces.v1",
        "nodes" => "nodes.v1",
        "pods" => "pods.v1",
        "persistentvolumeclaims" => "persistentvolumeclaims.v1",
        "statefulsets" => "statefulsets.v1.apps",
        "poddisruptionbudgets" => "poddisruptionbudgets.v1.policy",
        "customresourcedefinitions" => "customresourcedefinitions.v1.apiextensions.k8s.io",
        _ => "widgets.v1.example.org",
    }
}

/// Forgets the previous review. `unreadable` is a resource that the local API server does not let Durward read.
pub(crate) fn reset(world: &FakeWorld, unreadable: Option<&'static str>) {
    let mut content = world.content();
    content.retain("leases.v1.coordination.k8s.io", |_| false);
    content.etcd.leader = Some(FIRST_MEMBER);
    content.events.clear();
    content.rules.clear();
    if let Some(plural) = unreadable {
        let why = RequestFault::Fails(Cause::new(cause::FORBIDDEN, format!("{plural} cannot be read")));
        content.fault(&format!("(local): {plural}"), why.clone());
        content.fault(&format!("(local): cached {plural}"), why);
    }
}

/// Returns the events of the current review.
pub(crate) fn events(world: &FakeWorld) -> Vec<Event> {
    world.content().events.iter().filter_map(event).collect()
}

fn event(event: &WorldEvent) -> Option<Event> {
    match event {
        WorldEvent::Sent(text) => match text.split(": ").next()? {
            "(local)" | "fleet" => None,
            "write" => Some(Event::Effect(Effect::Write)),
            "etcd" => Some(Event::Effect(Effect::MemberCall)),
            _ => Some(Event::Effect(Effect::ClusterCall)),
        },
        WorldEvent::Returned(text, uid) => {
            let (resource, path) = text.strip_prefix("(local): ")?.split_once(' ')?;
            let (namespace, name) = path.split_once('/').unwrap_or(("", path));
            Some(Event::Returned {
                plural: resource.split('.').next()?.to_owned(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                uid: uid.clone(),
            })
        }
    }
}
