//! Reads the owners of an etcd cluster's pods and the sizes that they declare.
//!
//! With `groupBy: selector` several owners can make the pods of one etcd cluster. Deleting one of them removes only a part of the
//! cluster. It is a teardown only if all of them are deleted.

use admission::Cause;
use futures_util::future::join_all;
use serde_json::Value;

use super::config::{EtcdClusterConfig, OwnerKind};
use super::group::Group;
use super::kube_reader::{KubeReader, STATEFUL_SETS, json};
use super::pod::{Controller, Pod};
use super::size::DeclaredSizes;
use super::wire;
use cluster::fleet::Part;

/// The state of a pod's owner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum OwnerState {
    /// The pod has no owner that the guard reads.
    #[default]
    None,
    /// A `StatefulSet`.
    StatefulSet(OwnerSet),
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
    pub(super) fn stateful_set(&self) -> Option<&OwnerSet> {
        match self {
            Self::StatefulSet(set) => Some(set),
            _ => None,
        }
    }

    /// Returns the number of members that the owner declares.
    fn declared_size(&self) -> Option<u64> {
        match self {
            Self::StatefulSet(set) => Some(set.replicas),
            Self::Custom(size) => *size,
            _ => None,
        }
    }
}

/// The parts of a `StatefulSet` that the guard uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct OwnerSet {
    pub(super) replicas: u64,
    /// `status.updateRevision`.
    pub(super) revision: String,
    /// The ordinal of its first pod.
    start: u64,
    /// Whether scaling down deletes PVCs.
    scaling_deletes_pvcs: bool,
}

impl OwnerSet {
    fn of(set: &wire::StatefulSet) -> Self {
        Self {
            replicas: set.spec.replicas.unwrap_or(1),
            revision: set.status.update_revision.clone(),
            start: set.spec.ordinals.as_ref().map_or(0, |ordinals| ordinals.start),
            scaling_deletes_pvcs: set.scaling_deletes_pvcs(),
        }
    }

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

/// The owners of an etcd cluster's pods.
#[derive(Debug, Clone)]
pub(super) struct Owners {
    /// The kind that can be an owner besides `StatefulSet`.
    kind: Option<OwnerKind>,
    /// The owner of the pod under review, in the light of the others.
    pub(super) own: Result<OwnerState, Cause>,
    others: Vec<OtherOwner>,
    pub(super) sizes: DeclaredSizes,
}

impl Default for Owners {
    fn default() -> Self {
        Self { kind: None, own: Ok(OwnerState::None), others: Vec::new(), sizes: DeclaredSizes::default() }
    }
}

/// Another owner. All pods without an owner count as one.
#[derive(Debug, Clone)]
struct OtherOwner {
    owner: Option<Controller>,
    state: Result<OwnerState, Cause>,
}

impl Owners {
    /// Reads the owner of one pod.
    pub(super) async fn read_one(
        reader: KubeReader<'_>,
        entry: &EtcdClusterConfig,
        pod: &Pod,
    ) -> Result<OwnerState, Cause> {
        let (resource, owner) = match (pod.stateful_set(), &entry.owner) {
            (Some(set), _) => (&STATEFUL_SETS, set),
            (None, Some(kind)) => match pod.owner(Some(kind)) {
                Some(owner) => (&kind.resource, owner),
                None => return Ok(OwnerState::None),
            },
            (None, None) => return Ok(OwnerState::None),
        };
        let found = reader.find(resource, &pod.namespace, &owner.name, Part::Whole).await?;
        let Some(object) = found.filter(|found| found.uid == owner.uid) else {
            return Ok(OwnerState::Deleted);
        };
        let json = json(&object)?;
        let (metadata, state) = if pod.stateful_set().is_some() {
            let set: wire::StatefulSet = wire::read(json, "the StatefulSet")?;
            let state = OwnerState::StatefulSet(OwnerSet::of(&set));
            (set.metadata, state)
        } else {
            let custom: wire::WireObject<Value> = wire::read(json, &format!("{resource} {:?}", owner.name))?;
            (custom.metadata, OwnerState::Custom(size(&custom.spec)))
        };
        let is_deleted = object.metadata.deleting && !metadata.orphans();
        Ok(if is_deleted { OwnerState::Deleted } else { state })
    }

    /// Reads the other owners. `own` is the state of the pod's own owner.
    pub(super) async fn read(
        reader: KubeReader<'_>,
        entry: &EtcdClusterConfig,
        group: &Group,
        (pod, own): (&Pod, Result<OwnerState, Cause>),
        pods: Option<&[Pod]>,
    ) -> Self {
        let kind = entry.owner.as_ref();
        let mut one_of_each = vec![pod];
        for pod in pods.unwrap_or_default() {
            if !one_of_each.iter().any(|first| first.owner(kind) == pod.owner(kind)) {
                one_of_each.push(pod);
            }
        }
        let others = one_of_each.into_iter().skip(1).map(async |pod| OtherOwner {
            owner: pod.owner(kind).cloned(),
            state: Self::read_one(reader, entry, pod).await,
        });
        let others = join_all(others).await;
        // Without the list of pods there may be other owners.
        let is_complete = pods.is_some() || group.has_one_owner();
        let sizes = sizes(entry, group, &own, &others);
        let own = own.map(|state| with_others(state, is_complete, &others));
        Self { kind: kind.cloned(), own, others, sizes }
    }

    /// Returns the state of a pod's owner.
    pub(super) fn of(&self, pod: &Pod) -> &Result<OwnerState, Cause> {
        let owner = pod.owner(self.kind.as_ref());
        let other = self.others.iter().find(|other| other.owner.as_ref() == owner);
        other.map_or(&self.own, |other| &other.state)
    }
}

/// Returns `spec.size` or `spec.replicas`, as operators name it. Other types and 0 are not sizes.
fn size(spec: &Value) -> Option<u64> {
    let sizes = ["size", "replicas"].iter().filter_map(|key| spec.get(key)?.as_u64());
    sizes.max().filter(|size| *size > 0)
}

/// Returns the state of an owner together with the others: only all of them together end the etcd cluster.
fn with_others(state: OwnerState, is_complete: bool, others: &[OtherOwner]) -> OwnerState {
    let ends = |other: &OtherOwner| other.state.as_ref().is_ok_and(OwnerState::has_no_pods_left);
    let all_end = is_complete && others.iter().all(ends);
    match state {
        OwnerState::Deleted if !all_end => OwnerState::DeletedWithOthersLeft,
        OwnerState::StatefulSet(set) if all_end && set.replicas == 0 => OwnerState::ScaledToZero,
        state => state,
    }
}

fn sizes(
    entry: &EtcdClusterConfig,
    group: &Group,
    own: &Result<OwnerState, Cause>,
    others: &[OtherOwner],
) -> DeclaredSizes {
    let all = || std::iter::once(own).chain(others.iter().map(|other| &other.state));
    let is_one = group.has_one_owner();
    let unread = all().find_map(|state| state.as_ref().err());
    let own = own.as_ref().ok().filter(|_| is_one);
    DeclaredSizes {
        configured: entry.expected_members,
        replicas: own.and_then(OwnerState::stateful_set).map(|set| set.replicas),
        owner: own.and_then(OwnerState::declared_size),
        at_least: all().flatten().filter_map(OwnerState::declared_size).fold(0, u64::saturating_add),
        unread: unread.filter(|_| is_one || entry.expected_members.is_some()).cloned(),
    }
}
