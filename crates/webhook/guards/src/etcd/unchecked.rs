//! Reserves deletions that are allowed without a quorum check, so that other members are reviewed without the pod.

use std::time::{Duration, SystemTime};

use admission::Cause;
use futures_util::future::join;
use tokio::time::Instant;

use super::effects::{Effects, Unreserved};
use super::kube_reader::{KubeReader, Namespace};
use super::member::Member;
use super::owners::Owners;
use super::reservations;
use cluster::cause;

/// Time to reserve a deletion that is allowed in any case. Teardown and repair wait no longer.
pub(super) const RESERVE_TIMEOUT: Duration = Duration::from_secs(1);

/// Reserves the deletion, also if another pod holds the reservation. A teardown and a pod that never had a node need none. The review
/// began at `began`.
pub(super) async fn reserve(
    effects: &Effects<'_>,
    kube: KubeReader<'_>,
    began: SystemTime,
) -> Result<(), Cause> {
    let Member { pod, lease, .. } = effects.member;
    let (namespace, mut read) = join(kube.namespace(&pod.namespace), kube.lease(lease)).await;
    if pod.node.is_empty() || is_torn_down(effects.member, kube, namespace.as_ref().ok()).await {
        return Ok(());
    }
    let uid = namespace.as_ref().ok().map(|namespace| namespace.uid.as_str());
    loop {
        let stored = read?;
        let own = stored.reservation.as_ref().filter(|held| held.uid == pod.uid);
        if own.is_some_and(|own| reservations::is_fresh(own, began)) {
            return Ok(());
        }
        match effects.reserve(&stored, uid).await {
            Ok(_) => return Ok(()),
            Err(Unreserved::Failed(why)) => return Err(why),
            Err(Unreserved::Conflict) if Instant::now() < effects.end => read = kube.lease(lease).await,
            Err(Unreserved::Conflict) => return Err(Cause::new(cause::TIMEOUT, "no time was left")),
        }
    }
}

/// Whether the whole etcd cluster or the pod's node is removed. Unreadable objects are not.
async fn is_torn_down(member: &Member<'_>, kube: KubeReader<'_>, namespace: Option<&Namespace>) -> bool {
    let Member { pod, entry, group, .. } = member;
    let (owner, has_node) = join(Owners::read_one(kube, entry, pod), kube.has_node(&pod.node)).await;
    // With several owners, this one removes only a part of the etcd cluster.
    let is_removed = group.has_one_owner() && owner.is_ok_and(|owner| owner.has_no_pods_left());
    is_removed || namespace.is_some_and(|namespace| namespace.is_deleting) || matches!(has_node, Ok(false))
}
