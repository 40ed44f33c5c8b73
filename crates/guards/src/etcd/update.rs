//! Finds the changes of a pod that count as its removal: it leaves the guard, or its etcd process ends.
//!
//! The owner, the labels, the images and `activeDeadlineSeconds` of a pod belong to its editor. A pod whose owner reference names a
//! missing object is deleted by the garbage collector. A pod without the selected labels is deleted without a review. Such a change
//! is therefore reviewed like the deletion of the pod.
//!
//! Only the owner that the guard reads matters: its deletion is a teardown, and it can identify the etcd cluster. The garbage
//! collector's deletions for other owner references are reviewed like all deletions. Two changes of this owner are not removals:
//!
//! - The owner is deleted or being deleted, and the reference is removed (`kubectl delete --cascade=orphan`).
//! - A living owner adopts a pod with one of its names. A `StatefulSet` adopts only pods within its replicas.

use admission::Cause;
use futures_util::future::join;

use super::config::{Config, EtcdClusterConfig};
use super::group;
use super::kube_reader::{KubeReader, STATEFUL_SETS};
use super::owners::{OwnerState, Owners};
use super::pod::{Controller, Pod};
use cluster::fleet::Part;

/// A change that counts as the removal of the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// The owner that the guard reads.
    Owner,
    /// A label that the selector names.
    Label(String),
    /// The image of a container.
    Image,
    /// `activeDeadlineSeconds`, after which the kubelet ends the pod.
    Deadline,
}

impl Change {
    /// Returns the change and its effect on a pod: `changing label app of pod db/etcd-0 takes it out of the guard`.
    pub(super) fn of(&self, pod: &str) -> String {
        match self {
            Self::Owner => format!("changing the owner of {pod} takes it out of the guard"),
            Self::Label(key) => format!("changing label {key} of {pod} takes it out of the guard"),
            Self::Image => format!("changing an image of {pod} restarts it"),
            Self::Deadline => format!("changing activeDeadlineSeconds of {pod} ends it"),
        }
    }
}

/// Returns the changes that count as a removal. `entry` is the entry of the old pod.
pub(super) async fn changes(
    config: &Config,
    kube: KubeReader<'_>,
    entry: &EtcdClusterConfig,
    old: &Pod,
    new: &Pod,
) -> Result<Vec<Change>, Cause> {
    let mut changes = Vec::new();
    if changes_owner(kube, entry, old, new).await? {
        changes.push(Change::Owner);
    }
    if let Some(key) = changed_label(config, entry, old, new) {
        changes.push(Change::Label(key));
    }
    if old.images != new.images {
        changes.push(Change::Image);
    }
    if old.active_deadline != new.active_deadline {
        changes.push(Change::Deadline);
    }
    Ok(changes)
}

/// Returns the label by which the entry of the old pod is no longer the first one that selects it.
fn changed_label(config: &Config, entry: &EtcdClusterConfig, old: &Pod, new: &Pod) -> Option<String> {
    // Entries before this one select the old pod, but not its namespace.
    let others: Vec<&EtcdClusterConfig> = group::entries(config, old).collect();
    let first = group::entries(config, new).find(|other| *other == entry || !others.contains(other));
    if first == Some(entry) {
        return None;
    }
    let selectors = config.clusters.iter().map(|entry| &entry.selector);
    selectors.flat_map(crate::common::label_keys).find(|key| old.labels.get(key) != new.labels.get(key))
}

/// Whether the pod leaves an owner that stays, or enters one that does not create it.
async fn changes_owner(
    kube: KubeReader<'_>,
    entry: &EtcdClusterConfig,
    old: &Pod,
    new: &Pod,
) -> Result<bool, Cause> {
    let kind = entry.owner.as_ref();
    let (before, after) = (old.owner(kind), new.owner(kind));
    if before == after {
        return Ok(false);
    }
    let leaves = async {
        match before {
            Some(owner) => Ok(!is_deleted(kube, entry, old, owner).await?),
            None => Ok(false),
        }
    };
    let enters = async {
        match after {
            Some(owner) => Ok(!adopts(kube, entry, new, owner).await?),
            None => Ok::<bool, Cause>(false),
        }
    };
    let (leaves, enters) = join(leaves, enters).await;
    Ok(leaves? || enters?)
}

/// Whether an owner is deleted or being deleted.
async fn is_deleted(
    kube: KubeReader<'_>,
    entry: &EtcdClusterConfig,
    pod: &Pod,
    owner: &Controller,
) -> Result<bool, Cause> {
    let resource = match &entry.owner {
        Some(kind) if pod.stateful_set().is_none() => &kind.resource,
        _ => &STATEFUL_SETS,
    };
    let found = kube.find(resource, &pod.namespace, &owner.name, Part::Metadata).await?;
    Ok(found.is_none_or(|found| found.uid != owner.uid || found.metadata.deleting))
}

/// Whether a living owner would create a pod with this name.
async fn adopts(
    kube: KubeReader<'_>,
    entry: &EtcdClusterConfig,
    pod: &Pod,
    owner: &Controller,
) -> Result<bool, Cause> {
    let Some(suffix) = pod.name.strip_prefix(&owner.name).and_then(|rest| rest.strip_prefix('-')) else {
        return Ok(false);
    };
    Ok(match Owners::read_one(kube, entry, pod).await? {
        OwnerState::StatefulSet(set) => suffix.parse::<u32>().is_ok() && !set.is_surplus(&pod.name),
        OwnerState::Custom(_) => true,
        OwnerState::None
        | OwnerState::Deleted
        | OwnerState::DeletedWithOthersLeft
        | OwnerState::ScaledToZero => false,
    })
}
