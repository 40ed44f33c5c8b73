//! Reads from the API server what decides about a pod: its namespace, owner and node, the other pods of its etcd cluster, and the
//! Lease.
//!
//! Teardown and repair are recognized by this state, before any member is asked. The user of the request does not decide, because
//! some clusters run all controllers under one name.

use std::time::SystemTime;

use admission::Cause;
use futures_util::future::join;

use super::config::EtcdClusterConfig;
use super::group::Group;
use super::kube_reader::{KubeReader, Namespace};
use super::owners::Owners;
use super::pod::Pod;
use cluster::writer::{Lease, StoredLease};

/// The state of Kubernetes around one pod.
#[derive(Debug, Clone)]
pub(super) struct KubeState {
    /// The start of the review.
    pub(super) began: SystemTime,
    pub(super) now: SystemTime,
    pub(super) namespace: Result<Namespace, Cause>,
    pub(super) owners: Owners,
    pub(super) has_node: Result<bool, Cause>,
    /// The pods of its etcd cluster, including itself.
    pub(super) pods: Result<Vec<Pod>, Cause>,
    pub(super) lease: Result<StoredLease, Cause>,
}

impl KubeState {
    /// Returns a state of pods without owners and without a reservation.
    pub(super) fn of_pods(now: SystemTime, namespace: Namespace, pods: Vec<Pod>) -> Self {
        Self {
            began: now,
            now,
            namespace: Ok(namespace),
            owners: Owners::default(),
            has_node: Ok(true),
            pods: Ok(pods),
            lease: Ok(StoredLease::default()),
        }
    }

    /// Reads everything about a pod. Pods that have ended are left out, except this one.
    pub(super) async fn read(
        reader: KubeReader<'_>,
        entry: &EtcdClusterConfig,
        group: &Group,
        pod: &Pod,
        (began, lease): (SystemTime, &Lease),
    ) -> Self {
        let pods = reader.pods(&pod.namespace, entry.port);
        let ((namespace, owner), (has_node, (pods, lease))) = join(
            join(reader.namespace(&pod.namespace), Owners::read_one(reader, entry, pod)),
            join(reader.has_node(&pod.node), join(pods, reader.lease(lease))),
        )
        .await;
        let pods = pods.map(|pods| group.select(entry, pods, &pod.uid));
        let owners = Owners::read(reader, entry, group, (pod, owner), pods.as_deref().ok()).await;
        Self { began, now: reader.clients.context.now(), namespace, owners, has_node, pods, lease }
    }

    /// Returns the uid of the namespace, if it is known.
    pub(super) fn namespace_uid(&self) -> Option<&str> {
        self.namespace.as_ref().ok().map(|namespace| namespace.uid.as_str()).filter(|uid| !uid.is_empty())
    }
}
