//! Reads from the API server what decides about a pod: its namespace, owner and node, the other pods of its etcd cluster, and the
//! reservations.
//!
//! Teardown and repair are recognized by this state, before any member is asked. The user of the request does not decide, because
//! some clusters run all controllers under one name.

use std::collections::BTreeMap;
use std::time::SystemTime;

use admission::Cause;
use futures_util::future::{join, join_all};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::config::EtcdClusterConfig;
use super::group::{self, Group};
use super::owners::Owners;
use super::pod::{Controller, Pod};
use cluster::fleet::{Cluster, GetQuery, ListQuery, Object, Part};
use cluster::writer::{Lease, Reservations};
use cluster::{Address, Clients, Pages, Resource, cause};

/// Objects of one list at most. A review cannot read more pods of a namespace in its time.
const MAX_OBJECTS: usize = 20_000;

const fn resource(group: &'static str, plural: &'static str) -> Resource {
    Resource {
        group: std::borrow::Cow::Borrowed(group),
        version: std::borrow::Cow::Borrowed("v1"),
        plural: std::borrow::Cow::Borrowed(plural),
    }
}

pub(super) const PODS: Resource = resource("", "pods");
const NODES: Resource = resource("", "nodes");
const STATEFUL_SETS: Resource = resource("apps", "statefulsets");

/// The state of Kubernetes around one pod.
#[derive(Debug, Clone)]
pub(super) struct KubeState {
    pub(super) now: SystemTime,
    pub(super) namespace: Result<Namespace, Cause>,
    pub(super) owner: Result<OwnerState, Cause>,
    /// The owners of the other pods.
    pub(super) owners: Owners,
    pub(super) has_node: Result<bool, Cause>,
    /// The pods of its etcd cluster, including itself.
    pub(super) pods: Result<Vec<Pod>, Cause>,
    pub(super) reservations: Result<Reservations, Cause>,
}

/// The namespace of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Namespace {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    /// Whether it is deleted or has a deletion timestamp.
    pub(super) is_deleting: bool,
}

/// The state of a pod's owner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum OwnerState {
    /// The pod has no owner that the guard reads.
    #[default]
    None,
    /// A `StatefulSet`.
    StatefulSet(StatefulSet),
    /// An object of the configured kind, and the size that it declares.
    Custom(Option<u64>),
    /// Deleted, or being deleted, while others still make pods of the etcd cluster.
    DeletedWithOthersLeft,
    /// Scaled to zero, as are all other owners of the etcd cluster.
    ScaledToZero,
    /// Deleted, or being deleted with its pods.
    Deleted,
}

impl OwnerState {
    /// Whether the owner leaves the pod no successor.
    pub(super) fn has_no_pods_left(&self) -> bool {
        match self {
            Self::StatefulSet(set) => set.replicas == 0,
            Self::DeletedWithOthersLeft | Self::ScaledToZero | Self::Deleted => true,
            Self::None | Self::Custom(_) => false,
        }
    }

    /// Returns the `StatefulSet` if it exists.
    pub(super) fn stateful_set(&self) -> Option<&StatefulSet> {
        match self {
            Self::StatefulSet(set) => Some(set),
            _ => None,
        }
    }

    /// Returns the number of members that the owner declares.
    pub(super) fn declared_size(&self) -> Option<u64> {
        match self {
            Self::StatefulSet(set) => Some(set.replicas),
            Self::Custom(size) => *size,
            _ => None,
        }
    }
}

/// The parts of a `StatefulSet` that the guard uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct StatefulSet {
    pub(super) replicas: u64,
    /// `status.updateRevision`.
    pub(super) revision: String,
    /// The ordinal of its first pod.
    pub(super) start: u64,
    /// Whether scaling down deletes PVCs.
    pub(super) scaling_deletes_pvcs: bool,
}

impl StatefulSet {
    /// Whether a pod is beyond its replicas and does not come back.
    pub(super) fn is_surplus(&self, pod: &str) -> bool {
        let ordinal = pod.rsplit_once('-').and_then(|(_, ordinal)| ordinal.parse::<u64>().ok());
        let is_wanted = |ordinal: u64| ordinal.checked_sub(self.start).is_some_and(|at| at < self.replicas);
        ordinal.is_some_and(|ordinal| !is_wanted(ordinal))
    }

    /// Whether a pod is surplus and its PVC is deleted with it.
    pub(super) fn deletes_pvc_of(&self, pod: &str) -> bool {
        self.scaling_deletes_pvcs && self.is_surplus(pod)
    }
}

/// A `StatefulSet` as JSON.
#[derive(Deserialize)]
pub(super) struct WireStatefulSet<'s> {
    pub(super) metadata: WireMetadata,
    #[serde(borrow, default)]
    pub(super) spec: WireSpec<'s>,
    #[serde(default)]
    status: WireStatus,
}

#[derive(Deserialize)]
pub(super) struct WireMetadata {
    #[serde(default)]
    pub(super) uid: String,
    finalizers: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WireSpec<'s> {
    pub(super) replicas: Option<u64>,
    #[serde(borrow)]
    pub(super) template: Option<&'s RawValue>,
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
    when_deleted: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireStatus {
    update_revision: String,
}

/// The retention policy that deletes PVCs.
const DELETE: &str = "Delete";

/// The finalizer of an owner that is deleted without its dependents.
const ORPHAN: &str = "orphan";

impl WireMetadata {
    /// Whether deleting the object keeps its pods.
    fn orphans(&self) -> bool {
        self.finalizers.iter().flatten().any(|finalizer| finalizer == ORPHAN)
    }
}

impl<'s> WireStatefulSet<'s> {
    pub(super) fn read(json: &'s str) -> Result<Self, Cause> {
        serde_json::from_str(json)
            .map_err(|error| Cause::new(cause::GARBAGE, format!("the StatefulSet cannot be read: {error}")))
    }

    pub(super) fn scaling_deletes_pvcs(&self) -> bool {
        let policy = self.spec.persistent_volume_claim_retention_policy.as_ref();
        policy.is_some_and(|policy| policy.when_scaled == DELETE)
    }

    pub(super) fn deletion_deletes_pvcs(&self) -> bool {
        let policy = self.spec.persistent_volume_claim_retention_policy.as_ref();
        policy.is_some_and(|policy| policy.when_deleted == DELETE)
    }

    fn state(&self) -> StatefulSet {
        StatefulSet {
            replicas: self.spec.replicas.unwrap_or(1),
            revision: self.status.update_revision.clone(),
            start: self.spec.ordinals.as_ref().map_or(0, |ordinals| ordinals.start),
            scaling_deletes_pvcs: self.scaling_deletes_pvcs(),
        }
    }
}

/// An object of the configured owner kind as JSON.
#[derive(Deserialize)]
struct WireOwner {
    metadata: WireMetadata,
    #[serde(default)]
    spec: Value,
}

impl WireOwner {
    /// Returns `spec.size` or `spec.replicas`, as operators name it. Other types and 0 are not sizes.
    fn size(&self) -> Option<u64> {
        let sizes = ["size", "replicas"].iter().filter_map(|key| self.spec.get(key)?.as_u64());
        sizes.max().filter(|size| *size > 0)
    }
}

/// The state of a node whose pods may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeState {
    /// It takes no new pods.
    Cordoned,
    /// It is deleted, and its pods can be deleted at any time without a reservation.
    Deleted,
}

/// Reads from the API server until `end`.
#[derive(Clone, Copy)]
pub(super) struct KubeReader<'r> {
    pub(super) clients: &'r Clients,
    pub(super) end: Instant,
}

impl KubeReader<'_> {
    async fn find(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        part: Part,
    ) -> Result<Option<Object>, Cause> {
        let query = GetQuery { address: Address { resource, namespace, name }, part };
        self.clients.reader.get_object(&Cluster::Local, query, self.end.into_std()).await
    }

    /// Returns a pod in JSON.
    pub(super) async fn pod(&self, namespace: &str, name: &str) -> Result<Option<String>, Cause> {
        let found = self.find(&PODS, namespace, name, Part::Whole).await?;
        found.map(|object| json(&object).map(str::to_owned)).transpose()
    }

    /// Returns a `StatefulSet`.
    pub(super) async fn stateful_set(&self, namespace: &str, name: &str) -> Result<Option<Object>, Cause> {
        self.find(&STATEFUL_SETS, namespace, name, Part::Whole).await
    }

    /// Lists all objects of a namespace, or of the API server if it is empty.
    pub(super) async fn list(
        &self,
        resource: &Resource,
        namespace: &str,
        part: Part,
    ) -> Result<Vec<Object>, Cause> {
        let query = ListQuery { namespace, part, ..ListQuery::new(resource) };
        let reader = &*self.clients.reader;
        let mut pages = Pages::new(reader, &Cluster::Local, query, self.end.into_std());
        let mut all = Vec::new();
        while let Some(page) = pages.next().await? {
            all.extend(page.objects);
            if all.len() >= MAX_OBJECTS && page.next.is_some() {
                let place = match namespace {
                    "" => "the cluster".to_owned(),
                    name => format!("namespace {name:?}"),
                };
                let text = format!("{place} has more than {MAX_OBJECTS} {resource}");
                return Err(Cause::new(cause::REFUSED, text));
            }
        }
        Ok(all)
    }

    /// Reads everything about a pod.
    pub(super) async fn read(
        &self,
        entry: &EtcdClusterConfig,
        group: &Group,
        pod: &Pod,
        lease: Option<&Lease>,
    ) -> KubeState {
        let reservations = async {
            match lease {
                Some(lease) => self.reservations(lease).await,
                None => Ok(Reservations::default()),
            }
        };
        let ((namespace, owner), (has_node, (pods, reservations))) = join(
            join(self.namespace(&pod.namespace), self.owner(entry, pod)),
            join(self.has_node(&pod.node), join(self.pods(entry, group, pod), reservations)),
        )
        .await;
        let (owner, owners) = Owners::read(*self, entry, group, (pod, owner), pods.as_deref().ok()).await;
        KubeState { now: self.clients.context.now(), namespace, owner, owners, has_node, pods, reservations }
    }

    pub(super) async fn namespace(&self, name: &str) -> Result<Namespace, Cause> {
        let found = self.find(&Resource::NAMESPACES, "", name, Part::Metadata).await?;
        Ok(match found {
            None => Namespace { is_deleting: true, ..Namespace::default() },
            Some(Object { metadata, .. }) => Namespace {
                labels: metadata.labels,
                annotations: metadata.annotations,
                is_deleting: metadata.deleting,
            },
        })
    }

    /// Returns the state of a pod's owner.
    pub(super) async fn owner(&self, entry: &EtcdClusterConfig, pod: &Pod) -> Result<OwnerState, Cause> {
        if let Some(set) = pod.stateful_set() {
            return self.stateful_set_state(&pod.namespace, set).await;
        }
        match entry.owner.as_ref().zip(pod.owner(entry.owner.as_ref())) {
            Some((kind, owner)) => self.custom_owner(&kind.resource, &pod.namespace, owner).await,
            None => Ok(OwnerState::None),
        }
    }

    async fn custom_owner(
        &self,
        resource: &Resource,
        namespace: &str,
        owner: &Controller,
    ) -> Result<OwnerState, Cause> {
        let found = self.find(resource, namespace, &owner.name, Part::Whole).await?;
        let Some(object) = found.filter(|found| found.uid == owner.uid) else {
            return Ok(OwnerState::Deleted);
        };
        let wire: WireOwner = serde_json::from_str(json(&object)?).map_err(|error| {
            Cause::new(cause::GARBAGE, format!("{resource} {:?} cannot be read: {error}", owner.name))
        })?;
        let is_deleted = object.metadata.deleting && !wire.metadata.orphans();
        Ok(if is_deleted { OwnerState::Deleted } else { OwnerState::Custom(wire.size()) })
    }

    async fn stateful_set_state(&self, namespace: &str, owner: &Controller) -> Result<OwnerState, Cause> {
        let found = self.stateful_set(namespace, &owner.name).await?;
        let Some(object) = found.filter(|set| set.uid == owner.uid) else { return Ok(OwnerState::Deleted) };
        let wire = WireStatefulSet::read(json(&object)?)?;
        let is_deleted = object.metadata.deleting && !wire.metadata.orphans();
        Ok(if is_deleted { OwnerState::Deleted } else { OwnerState::StatefulSet(wire.state()) })
    }

    /// Whether a node exists. A pod without a node counts as if it did.
    pub(super) async fn has_node(&self, name: &str) -> Result<bool, Cause> {
        Ok(name.is_empty() || self.find(&NODES, "", name, Part::Metadata).await?.is_some())
    }

    /// Lists the pods of an etcd cluster. Pods that have ended are left out, except `about`.
    async fn pods(&self, entry: &EtcdClusterConfig, group: &Group, about: &Pod) -> Result<Vec<Pod>, Cause> {
        let mut pods = Vec::new();
        for object in self.list(&PODS, &about.namespace, Part::Whole).await? {
            let json = json(&object)?;
            let pod = Pod::read(json, entry.port)?;
            let is_member = !pod.has_ended() || pod.uid == about.uid;
            if is_member && group::selects(entry, &pod, json) && group.contains(&pod) {
                pods.push(pod);
            }
        }
        Ok(pods)
    }

    /// Reads the reservations. A Lease that does not exist has none.
    pub(super) async fn reservations(&self, lease: &Lease) -> Result<Reservations, Cause> {
        let Lease { namespace, name } = lease;
        match self.find(&Lease::RESOURCE, namespace, name, Part::Whole).await? {
            None => Ok(Reservations::default()),
            Some(Object { raw: Some(raw), .. }) => Reservations::read(lease, &raw),
            Some(object) => json(&object).map(|_| Reservations::default()),
        }
    }

    /// Returns the nodes that are cordoned or deleted. Unreadable nodes are left out: without reading its node, no review allows a
    /// pod for a deleted node either.
    pub(super) async fn node_states(&self, nodes: Vec<String>) -> BTreeMap<String, NodeState> {
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
        let states = nodes.into_iter().map(async |name| {
            let node = match self.find(&NODES, "", &name, Part::Whole).await {
                Ok(None) => return Some((name, NodeState::Deleted)),
                Ok(Some(node)) => node,
                Err(_) => return None,
            };
            let read = json(&node).ok().and_then(|json| serde_json::from_str::<Node>(json).ok());
            read.is_some_and(|Node { spec }| spec.unschedulable).then_some((name, NodeState::Cordoned))
        });
        join_all(states).await.into_iter().flatten().collect()
    }
}

/// Returns the JSON of an object that was requested as a whole.
pub(super) fn json(object: &Object) -> Result<&str, Cause> {
    object.raw.as_ref().map(|raw| raw.get()).ok_or_else(|| {
        let text =
            format!("of {:?} in namespace {:?} only the metadata was given", object.name, object.namespace);
        Cause::new(cause::GARBAGE, text)
    })
}
