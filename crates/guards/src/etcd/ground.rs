//! What Kubernetes says, all of it asked at once: is there still a namespace, an owner, a node; who else is in the ensemble; who is
//! on the way out.
//!
//! Much of what must never be held up is seen here, before any member is asked: teardown and repair are recognised by the state of
//! things, not by who asks, as some clusters run all their controllers under one name.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use admission::{BoxFuture, Cause};
use futures_util::future::{join, join_all};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::config::Ensemble;
use super::group::{self, Group};
use super::makers::Makers;
use super::pod::{Owner, Pod};
use cluster::fleet::{self, Cluster, ListQuery, Object, Part};
use cluster::writer::{Lease, Reservations};
use cluster::{Address, Clients, Resource, cause};

/// One page; as many as kubectl asks for.
const PAGE: u32 = 500;

/// More pods than this in one namespace are not gone through for one review.
const MOST_PAGES: usize = 40;

/// How much later than the world should have answered it is given up.
pub(super) const GRACE: Duration = Duration::from_millis(30);

pub(super) const fn resource(group: &'static str, plural: &'static str) -> Resource {
    Resource {
        group: std::borrow::Cow::Borrowed(group),
        version: std::borrow::Cow::Borrowed("v1"),
        plural: std::borrow::Cow::Borrowed(plural),
    }
}

pub(super) const PODS: Resource = resource("", "pods");
pub(super) const NODES: Resource = resource("", "nodes");
pub(super) const SETS: Resource = resource("apps", "statefulsets");

/// What Kubernetes says about one pod that is to go.
#[derive(Debug, Clone)]
pub(super) struct Ground {
    /// What time it is.
    pub(super) now: SystemTime,
    pub(super) namespace: Result<Namespace, Cause>,
    pub(super) owner: Result<Standing, Cause>,
    /// What makes the other pods of its ensemble.
    pub(super) makers: Makers,
    /// Whether its node is there.
    pub(super) has_node: Result<bool, Cause>,
    /// The pods of its ensemble, itself among them.
    pub(super) pods: Result<Vec<Pod>, Cause>,
    /// Who is on the way out.
    pub(super) book: Result<Reservations, Cause>,
}

/// A namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Namespace {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    /// Whether it is being deleted, or gone.
    pub(super) is_going: bool,
}

/// How it stands with the `StatefulSet` of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Standing {
    /// The pod has none.
    #[default]
    None,
    /// It stands.
    Stands(Set),
    /// An object of another kind stands; how many members that says it is to have.
    Owned(Option<u64>),
    /// It is gone or being deleted, and others make pods of the ensemble that stay.
    Leaving,
    /// It is to have no pods, and neither is any other that a pod of the ensemble has.
    Ends,
    /// It is gone, or being deleted with its pods.
    Going,
}

impl Standing {
    /// Whether what makes the pod leaves it none, whatever becomes of the others.
    pub(super) fn has_no_pods_left(&self) -> bool {
        match self {
            Self::Stands(set) => set.replicas == 0,
            Self::Leaving | Self::Ends | Self::Going => true,
            Self::None | Self::Owned(_) => false,
        }
    }

    /// The set, while it stands.
    pub(super) fn set(&self) -> Option<&Set> {
        match self {
            Self::Stands(set) => Some(set),
            _ => None,
        }
    }
}

/// A `StatefulSet`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Set {
    /// How many pods it is to have.
    pub(super) replicas: u64,
    /// What its pods are being updated to.
    pub(super) revision: String,
    /// The ordinal of its first pod.
    pub(super) start: u64,
    /// Whether the claims of pods that it is not to have any more go with them.
    pub(super) drops_claims: bool,
}

impl Set {
    /// Whether a pod of it goes for good: that is what scaling down does, and an update does not.
    pub(super) fn is_surplus(&self, pod: &str) -> bool {
        let ordinal = pod.rsplit_once('-').and_then(|(_, ordinal)| ordinal.parse::<u64>().ok());
        let is_to_be =
            |ordinal: u64| ordinal.checked_sub(self.start).is_some_and(|place| place < self.replicas);
        ordinal.is_some_and(|ordinal| !is_to_be(ordinal))
    }

    /// The same, and its claim with it.
    pub(super) fn drops_claim_of(&self, pod: &str) -> bool {
        self.drops_claims && self.is_surplus(pod)
    }
}

#[derive(Deserialize)]
struct WireSet {
    metadata: Finalizers,
    #[serde(default)]
    spec: WireSetSpec,
    #[serde(default)]
    status: WireSetStatus,
}

/// An object of an operator's own kind, of which only that is read.
#[derive(Deserialize)]
struct WireOwner {
    metadata: Finalizers,
    #[serde(default)]
    spec: Value,
}

impl WireOwner {
    /// How many members it says that there are to be: `spec.size` or `spec.replicas`, as operators have it. What is no such number is
    /// something else, and 0 is said by no ensemble.
    fn size(&self) -> Option<u64> {
        let said = ["size", "replicas"].iter().filter_map(|key| self.spec.get(key)?.as_u64());
        said.max().filter(|said| *said > 0)
    }
}

#[derive(Deserialize)]
struct Finalizers {
    finalizers: Option<Vec<String>>,
}

impl Finalizers {
    /// Whether what is deleted leaves its pods behind, and takes none with it.
    fn orphans(&self) -> bool {
        self.finalizers.iter().flatten().any(|finalizer| finalizer == ORPHAN)
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSetSpec {
    replicas: Option<u64>,
    ordinals: Option<WireOrdinals>,
    persistent_volume_claim_retention_policy: Option<WireRetention>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireOrdinals {
    start: u64,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireRetention {
    when_scaled: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSetStatus {
    update_revision: String,
}

/// Claims go with what they are of.
pub(super) const DELETE: &str = "Delete";

/// On an owner that leaves its dependents behind.
const ORPHAN: &str = "orphan";

/// What becomes of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaving {
    /// It takes no new pods.
    Cordoned,
    /// It is gone, and its pods go without a question whenever somebody deletes them.
    Gone,
}

/// Asks Kubernetes.
#[derive(Clone, Copy)]
pub(super) struct Look<'l> {
    pub(super) clients: &'l Clients,
    pub(super) end: Instant,
}

impl Look<'_> {
    /// The answer, or that there was none. The world keeps to its deadline; this holds where it does not.
    async fn limit<T>(&self, question: BoxFuture<'_, Result<T, Cause>>) -> Result<T, Cause> {
        let given = self.end.saturating_duration_since(Instant::now());
        timeout_at(self.end + GRACE, question).await.unwrap_or_else(|_| {
            let text = format!("the API server did not answer in {:.1} s", given.as_secs_f64());
            Err(Cause::new(cause::TIMEOUT, text))
        })
    }

    /// One object.
    pub(super) async fn find(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        part: Part,
    ) -> Result<Option<Object>, Cause> {
        let look = fleet::GetQuery { address: Address { resource, namespace, name }, part };
        self.limit(self.clients.reader.get_object(&Cluster::Local, look, self.end.into_std())).await
    }

    /// A pod in JSON, if there is one.
    pub(super) async fn pod(&self, namespace: &str, name: &str) -> Result<Option<String>, Cause> {
        let found = self.find(&PODS, namespace, name, Part::Whole).await?;
        found.map(|object| whole(&object).map(str::to_owned)).transpose()
    }

    /// All objects of a namespace, each with its JSON.
    pub(super) async fn all(&self, resource: &Resource, namespace: &str) -> Result<Vec<Object>, Cause> {
        self.listed(resource, namespace, Part::Whole).await
    }

    /// All objects of a namespace, or of the cluster where it is empty.
    pub(super) async fn listed(
        &self,
        resource: &Resource,
        namespace: &str,
        part: Part,
    ) -> Result<Vec<Object>, Cause> {
        let (mut all, mut from) = (Vec::new(), None::<String>);
        for _ in 0..MOST_PAGES {
            let query = ListQuery {
                resource,
                namespace,
                field_selector: "",
                part,
                limit: PAGE,
                continue_token: from.as_deref(),
            };
            let page =
                self.limit(self.clients.reader.list(&Cluster::Local, query, self.end.into_std())).await?;
            all.extend(page.objects);
            match page.next {
                None => return Ok(all),
                next => from = next,
            }
        }
        let most = MOST_PAGES * usize::try_from(PAGE).unwrap_or(usize::MAX);
        let place =
            if namespace.is_empty() { "the cluster".to_owned() } else { format!("namespace {namespace:?}") };
        Err(Cause::new(cause::REFUSED, format!("{place} has more than {most} {resource}")))
    }

    /// Everything about a pod.
    pub(super) async fn about(
        &self,
        ensemble: &Ensemble,
        group: &Group,
        pod: &Pod,
        lease: Option<&Lease>,
    ) -> Ground {
        let namespace = self.namespace(&pod.namespace);
        let owner = self.stands(ensemble, pod);
        let node = self.has_node(&pod.node);
        let pods = self.pods(ensemble, group, pod);
        let book = async {
            match lease {
                Some(lease) => self.book(lease).await,
                None => Ok(Reservations::default()),
            }
        };
        let ((namespace, owner), (has_node, (pods, book))) =
            join(join(namespace, owner), join(node, join(pods, book))).await;
        let listed = pods.as_deref().ok();
        let (owner, makers) = Makers::of(*self, ensemble, group, (pod, owner), listed).await;
        Ground { now: self.clients.context.now(), namespace, owner, makers, has_node, pods, book }
    }

    pub(super) async fn namespace(&self, name: &str) -> Result<Namespace, Cause> {
        let found = self.find(&Resource::NAMESPACES, "", name, Part::Metadata).await?;
        Ok(match found {
            None => Namespace { is_going: true, ..Namespace::default() },
            Some(Object { metadata, .. }) => Namespace {
                labels: metadata.labels,
                annotations: metadata.annotations,
                is_going: metadata.deleting,
            },
        })
    }

    /// How it stands with what makes a pod.
    pub(super) async fn stands(&self, ensemble: &Ensemble, pod: &Pod) -> Result<Standing, Cause> {
        let kind = ensemble.owner.as_ref().filter(|_| pod.owner.is_none());
        match kind.zip(pod.made_by(kind)) {
            Some((kind, owner)) => self.custom(&kind.resource, &pod.namespace, owner).await,
            None => self.standing(&pod.namespace, pod.owner.as_ref()).await,
        }
    }

    /// The same for an object of another kind than `StatefulSet`.
    async fn custom(&self, resource: &Resource, namespace: &str, owner: &Owner) -> Result<Standing, Cause> {
        let found = self.find(resource, namespace, &owner.name, Part::Whole).await?;
        let Some(object) = found.filter(|found| found.uid == owner.uid) else { return Ok(Standing::Going) };
        let wire: WireOwner = serde_json::from_str(whole(&object)?).map_err(|error| {
            Cause::new(cause::GARBAGE, format!("{resource} {:?} cannot be read: {error}", owner.name))
        })?;
        let goes = object.metadata.deleting && !wire.metadata.orphans();
        Ok(if goes { Standing::Going } else { Standing::Owned(wire.size()) })
    }

    async fn standing(&self, namespace: &str, owner: Option<&Owner>) -> Result<Standing, Cause> {
        let Some(owner) = owner else { return Ok(Standing::None) };
        let found = self.find(&SETS, namespace, &owner.name, Part::Whole).await?;
        let Some(object) = found.filter(|set| set.uid == owner.uid) else { return Ok(Standing::Going) };
        let (wire, set) = set(whole(&object)?)?;
        Ok(if object.metadata.deleting && !wire.metadata.orphans() {
            Standing::Going
        } else {
            Standing::Stands(set)
        })
    }

    pub(super) async fn has_node(&self, name: &str) -> Result<bool, Cause> {
        if name.is_empty() {
            return Ok(true);
        }
        Ok(self.find(&NODES, "", name, Part::Metadata).await?.is_some())
    }

    /// The pods of an ensemble. Those that have ended are no members, and count for nothing; but the one that this is about is
    /// told in any case.
    async fn pods(&self, ensemble: &Ensemble, group: &Group, about: &Pod) -> Result<Vec<Pod>, Cause> {
        let mut pods = Vec::new();
        for object in self.all(&PODS, &about.namespace).await? {
            let json = whole(&object)?;
            let pod = Pod::read(json, ensemble.port)?;
            let is_there = !pod.has_ended() || pod.uid == about.uid;
            if is_there && group::chooses(ensemble, &pod, json) && group.holds(&pod) {
                pods.push(pod);
            }
        }
        Ok(pods)
    }

    /// Who is on the way out. A Lease that is not there is an empty one.
    pub(super) async fn book(&self, lease: &Lease) -> Result<Reservations, Cause> {
        let Lease { namespace, name } = lease;
        match self.find(&Lease::RESOURCE, namespace, name, Part::Whole).await? {
            None => Ok(Reservations::default()),
            Some(Object { raw: Some(raw), .. }) => Reservations::read(lease, &raw),
            Some(object) => whole(&object).map(|_| Reservations::default()),
        }
    }

    /// Which of these nodes are cordoned, or gone. What cannot be read is neither: whoever cannot read it now lets no pod go for its
    /// node's sake either.
    pub(super) async fn leaving_nodes(&self, nodes: Vec<String>) -> BTreeMap<String, Leaving> {
        #[derive(Deserialize)]
        struct Node {
            #[serde(default)]
            spec: Spec,
        }
        #[derive(Default, Deserialize)]
        struct Spec {
            #[serde(default)]
            unschedulable: bool,
        }
        let looks = nodes.into_iter().map(async |name| {
            let node = match self.find(&NODES, "", &name, Part::Whole).await {
                Ok(None) => return Some((name, Leaving::Gone)),
                Ok(Some(node)) => node,
                Err(_) => return None,
            };
            let read = whole(&node).ok().and_then(|json| serde_json::from_str::<Node>(json).ok());
            read.is_some_and(|Node { spec }| spec.unschedulable).then_some((name, Leaving::Cordoned))
        });
        join_all(looks).await.into_iter().flatten().collect()
    }
}

fn set(json: &str) -> Result<(WireSet, Set), Cause> {
    let wire: WireSet = serde_json::from_str(json)
        .map_err(|error| Cause::new(cause::GARBAGE, format!("the StatefulSet cannot be read: {error}")))?;
    let retention = wire.spec.persistent_volume_claim_retention_policy.as_ref();
    let set = Set {
        replicas: wire.spec.replicas.unwrap_or(1),
        revision: wire.status.update_revision.clone(),
        start: wire.spec.ordinals.as_ref().map_or(0, |ordinals| ordinals.start),
        drops_claims: retention.is_some_and(|retention| retention.when_scaled == DELETE),
    };
    Ok((wire, set))
}

/// The JSON of an object that was asked for whole.
pub(super) fn whole(object: &Object) -> Result<&str, Cause> {
    object.raw.as_ref().map(|raw| raw.get()).ok_or_else(|| {
        let text =
            format!("of {:?} in namespace {:?} only the metadata was given", object.name, object.namespace);
        Cause::new(cause::GARBAGE, text)
    })
}
