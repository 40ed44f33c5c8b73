//! The whole guard on a fake fleet: which requests it sends, and how it handles failures and odd answers.

use std::sync::Mutex;
use std::time::Duration;

use admission::{Cause, Denial, Ruling, Verdict, decode};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::case::Case;
use super::facts::FactsReader;
use super::fixture::{config, now, review};
use super::*;
use cluster::fleet::{LOCAL, Object, Page, Part};
use cluster::testing::{FakeContent, FakeWorld, RequestFault};
use cluster::{Clients, Resource, cause};

mod crds;
mod fleet;
mod graphs;
mod in_use;
mod pages;

const KARMADA: &str = "fleet: karmada\ncrds: {apiGroups: [example.org]}\n";
const WIDGETS: &str = "widgets.example.org";
const NAMESPACES: &str = "namespaces.v1";
const CRDS: &str = "customresourcedefinitions.v1.apiextensions.k8s.io";

/// Returns a fleet at the time of the fixtures. Each request takes 20 ms, except the list of the fleet.
fn fleet(fill: impl FnOnce(&mut FakeContent)) -> FakeWorld {
    FakeWorld::default().with(|content| {
        content.world.time = Some(now());
        content.page_size = usize::MAX;
        let takes = RequestFault::Takes(Duration::from_millis(20));
        content.rules.push(Box::new(move |_, request| (request.text != "fleet").then(|| takes.clone())));
        let cached = Cause::new(cause::REFUSED, "cached data must not decide");
        content.fault("(local): cached", RequestFault::Fails(cached));
        fill(content);
    })
}

/// Returns a fleet with the member cluster `m1` that has the namespace `shop` and these pods.
fn used(pods: &[&str]) -> FakeWorld {
    fleet(|content| {
        content.add_member_cluster("m1", &[]);
        add_pods(content, "m1", pods);
    })
}

/// Adds the namespace `shop` and pods to a cluster.
fn add_pods(content: &mut FakeContent, cluster: &str, pods: &[&str]) {
    content.insert_in(cluster, NAMESPACES, json!({"metadata": {"name": "shop", "uid": "7"}}));
    for pod in pods {
        content.insert_in(cluster, "pods.v1", json!({"metadata": {"namespace": "shop", "name": pod}}));
    }
}

/// Adds the member cluster `m1` with a CRD that has these versions.
fn add_crd(content: &mut FakeContent, versions: &[(&str, bool, bool)]) {
    content.add_member_cluster("m1", &[]);
    content.insert_in("m1", CRDS, crd(versions));
}

/// Returns the CRD with these versions: name, served, storage.
fn crd(versions: &[(&str, bool, bool)]) -> Value {
    let version = |(name, served, storage): &(&str, bool, bool)| json!({"name": name, "served": served, "storage": storage});
    let versions: Vec<_> = versions.iter().map(version).collect();
    let spec = json!({"group": "example.org", "names": {"plural": "widgets"}, "versions": versions});
    json!({"metadata": {"name": WIDGETS, "uid": "7"}, "spec": spec})
}

/// Rules on a deletion in the cluster that has the object.
async fn ruling(yaml: &str, fleet: &FakeWorld, resource: &str, name: &str) -> Ruling {
    let (resource_here, object) = match resource {
        "namespaces" => (NAMESPACES, json!({"metadata": {"name": name, "uid": "7"}})),
        _ => (CRDS, crd(&[("v1", true, true)])),
    };
    let is_stored = fleet.content().object(resource_here, name).is_some();
    if !is_stored {
        fleet.content().insert(resource_here, object);
    }
    answered(yaml, fleet, &review(resource, name, |_| {})).await
}

/// Rules on the deletion of the namespace `shop`, with a changed review.
async fn reviewed(yaml: &str, fleet: &FakeWorld, change: impl FnOnce(&mut Value)) -> Ruling {
    add_pods(&mut fleet.content(), LOCAL, &[]);
    answered(yaml, fleet, &review("namespaces", "shop", change)).await
}

async fn answered(yaml: &str, fleet: &FakeWorld, body: &[u8]) -> Ruling {
    answered_within(yaml, fleet, body, Duration::from_millis(8500)).await
}

async fn answered_within(yaml: &str, fleet: &FakeWorld, body: &[u8], time: Duration) -> Ruling {
    let guard = config(yaml).build(&Clients { writer: None, ..fleet.clients() }).remove(0);
    let review = decode(body, guard.fields()).unwrap();
    let deadline = tokio::time::Instant::now() + time;
    guard.review(&review.request, deadline.into_std()).await
}

async fn delete_shop(fleet: &FakeWorld) -> Ruling {
    ruling(KARMADA, fleet, "namespaces", "shop").await
}

async fn delete_widgets(fleet: &FakeWorld) -> Ruling {
    ruling(KARMADA, fleet, "customresourcedefinitions", WIDGETS).await
}

fn denial(ruling: &Ruling) -> &Denial {
    match (&ruling.verdict, &ruling.refusal) {
        (Verdict::Deny(denial), _) | (Verdict::Unknown(_), Some(denial)) => denial,
        _ => panic!("{ruling:?}"),
    }
}

fn code(ruling: &Ruling) -> &'static str {
    match &ruling.verdict {
        Verdict::Unknown(causes) => causes[0].code,
        _ => panic!("{ruling:?}"),
    }
}

const ACKNOWLEDGED: [(&str, &str); 2] = [
    ("durward.dev/acknowledge-unreachable", "cut"),
    ("durward.dev/acknowledge-until", "2026-12-01T00:00:00Z"),
];

/// Returns a fleet with one member, which is acknowledged and has these pods.
fn acknowledged(pods: &[&str]) -> FakeWorld {
    fleet(|content| {
        content.add_member_cluster("m1", &ACKNOWLEDGED);
        add_pods(content, "m1", pods);
    })
}
