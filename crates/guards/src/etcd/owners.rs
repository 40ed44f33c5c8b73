//! Reads the owners of an etcd cluster's pods and the sizes that they declare.
//!
//! With `groupBy: selector` several owners can make the pods of one etcd cluster. Deleting one of them removes only a part of the
//! cluster. It is a teardown only if all of them are deleted.

use admission::Cause;
use futures_util::future::join_all;

use super::config::{EtcdClusterConfig, OwnerKind};
use super::group::Group;
use super::kube_state::{KubeReader, OwnerState};
use super::pod::{Controller, Pod};
use super::size::DeclaredSizes;

/// The owners of an etcd cluster's pods, except the owner of the pod under review.
#[derive(Debug, Clone, Default)]
pub(super) struct Owners {
    /// The kind that can be an owner besides `StatefulSet`.
    kind: Option<OwnerKind>,
    others: Vec<OtherOwner>,
    pub(super) sizes: DeclaredSizes,
}

/// Another owner. All pods without an owner count as one.
#[derive(Debug, Clone)]
struct OtherOwner {
    owner: Option<Controller>,
    state: Result<OwnerState, Cause>,
}

impl Owners {
    /// Reads the other owners, and returns the state of the pod's own owner in their light.
    pub(super) async fn read(
        reader: KubeReader<'_>,
        entry: &EtcdClusterConfig,
        group: &Group,
        (pod, own): (&Pod, Result<OwnerState, Cause>),
        pods: Option<&[Pod]>,
    ) -> (Result<OwnerState, Cause>, Self) {
        let kind = entry.owner.as_ref();
        let mut one_of_each = vec![pod];
        for pod in pods.unwrap_or_default() {
            if !one_of_each.iter().any(|first| first.owner(kind) == pod.owner(kind)) {
                one_of_each.push(pod);
            }
        }
        let others = one_of_each.into_iter().skip(1).map(async |pod| OtherOwner {
            owner: pod.owner(kind).cloned(),
            state: reader.owner(entry, pod).await,
        });
        let others = join_all(others).await;
        // Without the list of pods there may be other owners.
        let is_complete = pods.is_some() || group.has_one_owner();
        let sizes = sizes(entry, group, &own, &others);
        let own = own.map(|state| with_others(state, is_complete, &others));
        (own, Self { kind: kind.cloned(), others, sizes })
    }

    /// Returns the state of a pod's owner. `own` is the state for the pod under review.
    pub(super) fn state<'s>(
        &'s self,
        own: &'s Result<OwnerState, Cause>,
        pod: &Pod,
    ) -> &'s Result<OwnerState, Cause> {
        let owner = pod.owner(self.kind.as_ref());
        let other = self.others.iter().find(|other| other.owner.as_ref() == owner);
        other.map_or(own, |other| &other.state)
    }
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
        configured: entry.members,
        replicas: own.and_then(OwnerState::stateful_set).map(|set| set.replicas),
        owner: own.and_then(OwnerState::declared_size),
        at_least: all().flatten().filter_map(OwnerState::declared_size).fold(0, u64::saturating_add),
        unread: unread.filter(|_| is_one || entry.members.is_some()).cloned(),
    }
}
