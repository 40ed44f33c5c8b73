//! The whole guard on a fake fleet: which requests it sends, and how it handles failures and odd answers.

use std::collections::BTreeMap;
use std::future::{pending, ready};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use admission::{BoxFuture, Cause, Denial, Ruling, Verdict, decode};
use serde_json::json;
use serde_json::value::to_raw_value;
use tokio::time::timeout_at;

use super::case::Case;
use super::facts::FactsReader;
use super::fixture::{config, member, now, review};
use super::*;
use cluster::fleet::{
    Cluster, Fleet, FleetMember, GetQuery, LOCAL, ListQuery, MembersResult, Object, ObjectResult, Page,
    PageResult, Part,
};
use cluster::{self, Address, Clients, Context, Metadata, Reader, cause};

mod crds;
mod fleet;
mod pages;

const KARMADA: &str = "fleet: karmada\ncrds: {apiGroups: [example.org]}\n";
const WIDGETS: &str = "widgets.example.org";

/// Answers the Lists of one cluster.
type Lists = Box<dyn Fn(&ListQuery<'_>) -> PageResult + Send + Sync>;

/// One cluster: its objects by name, and its Lists. One that hangs answers nothing before the deadline.
#[derive(Default)]
struct FakeCluster {
    objects: BTreeMap<String, Object>,
    lists: Option<Lists>,
    hangs: bool,
    refuses: Option<Cause>,
}

/// A fleet that records its requests. It keeps deadlines as every reader does.
#[derive(Default)]
struct FakeFleet {
    members: Option<MembersResult>,
    /// Whether the local cluster is not the one that sent the review.
    is_other: bool,
    clusters: BTreeMap<String, FakeCluster>,
    requests: Mutex<Vec<String>>,
    /// The time that the list of the fleet takes.
    list_takes: Duration,
    concurrent: AtomicUsize,
    max_concurrent: AtomicUsize,
}

async fn before<T>(deadline: Instant, answer: impl Future<Output = Result<T, Cause>>) -> Result<T, Cause> {
    let deadline = tokio::time::Instant::from_std(deadline);
    let given = deadline.saturating_duration_since(tokio::time::Instant::now());
    let late = || Cause::new(cause::TIMEOUT, format!("no answer in {:.1} s", given.as_secs_f64()));
    timeout_at(deadline, answer).await.unwrap_or_else(|_| Err(late()))
}

impl FakeFleet {
    fn with(mut self, name: &str, cluster: FakeCluster) -> Self {
        self.clusters.insert(name.to_owned(), cluster);
        self
    }

    fn record(&self, of: &Cluster, what: &str) {
        self.requests.lock().unwrap().push(format!("{}: {what}", of.name()));
    }

    fn all_members(&self) -> Arc<[FleetMember]> {
        self.clusters.keys().filter(|name| *name != LOCAL).map(|name| member(name, &[])).collect()
    }

    fn answer<'a, T: Send + 'a>(
        &'a self,
        of: &Cluster,
        deadline: Instant,
        answer: impl FnOnce(&'a FakeCluster) -> Result<T, Cause> + Send + 'a,
    ) -> BoxFuture<'a, Result<T, Cause>> {
        static EMPTY: FakeCluster =
            FakeCluster { objects: BTreeMap::new(), lists: None, hangs: false, refuses: None };
        let cluster = self.clusters.get(of.name()).unwrap_or(&EMPTY);
        Box::pin(before(deadline, async move {
            if cluster.hangs {
                return pending().await;
            }
            let now = self.concurrent.fetch_add(1, Ordering::Relaxed) + 1;
            self.max_concurrent.fetch_max(now, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(20)).await;
            self.concurrent.fetch_sub(1, Ordering::Relaxed);
            cluster.refuses.clone().map_or_else(|| answer(cluster), Err)
        }))
    }
}

impl Reader for FakeFleet {
    fn get<'a>(
        &'a self,
        _address: Address<'a>,
        _deadline: Instant,
    ) -> BoxFuture<'a, cluster::MetadataResult> {
        Box::pin(ready(Err(Cause::new(cause::REFUSED, "cached data must not decide"))))
    }

    fn members<'a>(&'a self, _fleet: &'a Fleet, deadline: Instant) -> BoxFuture<'a, MembersResult> {
        Box::pin(before(deadline, async move {
            if !self.list_takes.is_zero() {
                tokio::time::sleep(self.list_takes).await;
            }
            self.members.clone().unwrap_or_else(|| Ok(self.all_members()))
        }))
    }

    fn get_object<'a>(
        &'a self,
        of: &'a Cluster,
        query: GetQuery<'a>,
        deadline: Instant,
    ) -> BoxFuture<'a, ObjectResult> {
        self.record(of, &format!("{} {}", query.address.resource, query.address.name));
        let name = query.address.name.to_owned();
        // The cluster that sent the review has its object.
        let reviewed = (*of == Cluster::Local && !self.is_other).then(|| match name.as_str() {
            WIDGETS => crd_object(&[("v1", true, true)]),
            name => Object { uid: "7".to_owned(), ..object(name) },
        });
        self.answer(of, deadline, move |cluster| {
            let known = cluster.objects.get(&name).cloned().map(|object| match &reviewed {
                Some(reviewed) if object.uid.is_empty() => Object { uid: reviewed.uid.clone(), ..object },
                _ => object,
            });
            Ok(known.or(reviewed))
        })
    }

    fn list<'a>(
        &'a self,
        of: &'a Cluster,
        query: ListQuery<'a>,
        deadline: Instant,
    ) -> BoxFuture<'a, PageResult> {
        let from = query.continue_token.map_or_else(String::new, |from| format!(" from {from}"));
        let ListQuery { resource, namespace, .. } = query;
        self.record(of, &format!("{resource}/{} in {namespace:?}{from}", resource.version));
        self.answer(of, deadline, move |cluster| {
            cluster.lists.as_ref().map_or_else(|| Ok(Page::default()), |lists| lists(&query))
        })
    }
}

/// Returns the clients of a fake fleet at the time of the fixtures.
fn clients(reader: Arc<dyn Reader>) -> Clients {
    let context = Context { fixed_time: Some(now()), is_snapshot: false };
    Clients { context, ..Clients::reader_only(reader) }
}

fn object(name: &str) -> Object {
    Object { name: name.to_owned(), ..Object::default() }
}

/// Returns the local cluster with the object that was reviewed, changed by `change`.
fn local_with(mut object: Object, change: impl FnOnce(&mut Object)) -> FakeCluster {
    change(&mut object);
    FakeCluster { objects: BTreeMap::from([(object.name.clone(), object)]), ..FakeCluster::default() }
}

/// Returns a cluster with the namespace and these Lists.
fn cluster_with(lists: impl Fn(&ListQuery<'_>) -> PageResult + Send + Sync + 'static) -> FakeCluster {
    FakeCluster {
        objects: BTreeMap::from([("shop".to_owned(), object("shop"))]),
        lists: Some(Box::new(lists)),
        ..FakeCluster::default()
    }
}

/// Returns a page of pods, and empty pages of other resources.
fn pods(query: &ListQuery<'_>, objects: Vec<Object>, next: Option<&str>) -> Page {
    let is_pods = query.resource.plural == "pods";
    if is_pods { Page { objects, next: next.map(str::to_owned) } } else { Page::default() }
}

/// Returns the CRD with these versions: name, served, storage.
fn crd_object(versions: &[(&str, bool, bool)]) -> Object {
    let version = |(name, served, storage): &(&str, bool, bool)| json!({"name": name, "served": served, "storage": storage});
    let versions: Vec<_> = versions.iter().map(version).collect();
    let whole =
        json!({"spec": {"group": "example.org", "names": {"plural": "widgets"}, "versions": versions}});
    Object { raw: Some(to_raw_value(&whole).unwrap()), uid: "7".to_owned(), ..object(WIDGETS) }
}

/// Returns a cluster with the CRD.
fn crd_cluster(
    versions: &[(&str, bool, bool)],
    lists: impl Fn(&ListQuery<'_>) -> PageResult + Send + Sync + 'static,
) -> FakeCluster {
    FakeCluster {
        objects: BTreeMap::from([(WIDGETS.to_owned(), crd_object(versions))]),
        lists: Some(Box::new(lists)),
        ..FakeCluster::default()
    }
}

async fn ruling(yaml: &str, fleet: &Arc<FakeFleet>, resource: &str, name: &str) -> Ruling {
    answered(yaml, fleet, review(resource, name, |_| {})).await
}

/// Rules on the deletion of the namespace `shop`, with a changed review.
async fn reviewed(yaml: &str, fleet: &Arc<FakeFleet>, change: impl FnOnce(&mut serde_json::Value)) -> Ruling {
    answered(yaml, fleet, review("namespaces", "shop", change)).await
}

async fn answered(yaml: &str, fleet: &Arc<FakeFleet>, body: Vec<u8>) -> Ruling {
    let guard = config(yaml).build(&clients(Arc::<FakeFleet>::clone(fleet))).remove(0);
    let review = decode(&body, guard.fields()).unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_millis(8500);
    guard.review(&review.request, deadline.into_std()).await
}

async fn delete_shop(fleet: &Arc<FakeFleet>) -> Ruling {
    ruling(KARMADA, fleet, "namespaces", "shop").await
}

async fn delete_widgets(fleet: &Arc<FakeFleet>) -> Ruling {
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

/// Returns a fleet with one member, which is acknowledged.
fn acknowledged_fleet(m1: FakeCluster) -> Arc<FakeFleet> {
    let members = Some(Ok([member("m1", &ACKNOWLEDGED)].into()));
    Arc::new(FakeFleet { members, ..FakeFleet::default().with("m1", m1) })
}
