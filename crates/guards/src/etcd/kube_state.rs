//! Reads from the API server what decides about a pod: its namespace, owner and node, the other pods of its etcd cluster, and the
//! reservations.
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
use cluster::writer::Reservations;

/// The state of Kubernetes around one pod.
#[derive(Debug, Clone)]
pub(super) struct KubeState {
    pub(super) now: SystemTime,
    pub(super) namespace: Result<Namespace, Cause>,
    pub(super) owners: Owners,
    pub(super) has_node: Result<bool, Cause>,
    /// The pods of its etcd cluster, including itself.
    pub(super) pods: Result<Vec<Pod>, Cause>,
    pub(super) reservations: Result<Reservations, Cause>,
}

impl KubeState {
    /// Returns a state of pods without owners and reservations.
    pub(super) fn of_pods(now: SystemTime, namespace: Namespace, pods: Vec<Pod>) -> Self {
        Self {
            now,
            namespace: Ok(namespace),
            owners: Owners::default(),
            has_node: Ok(true),
            pods: Ok(pods),
            reservations: Ok(Reservations::default()),
        }
    }

    /// Reads everything about a pod. Pods that have ended are left out, except this one.
    pub(super) async fn read(
        reader: KubeReader<'_>,
        entry: &EtcdClusterConfig,
        group: &Group,
        pod: &Pod,
        reservations: impl Future<Output = Result<Reservations, Cause>>,
    ) -> Self {
        let pods = reader.pods(&pod.namespace, entry.port);
        let ((namespace, owner), (has_node, (pods, reservations))) = join(
            join(reader.namespace(&pod.namespace), Owners::read_one(reader, entry, pod)),
            join(reader.has_node(&pod.node), join(pods, reservations)),
        )
        .await;
        let pods = pods.map(|pods| group.select(entry, pods, &pod.uid));
        let owners = Owners::read(reader, entry, group, (pod, owner), pods.as_deref().ok()).await;
        Self { now: reader.clients.context.now(), namespace, owners, has_node, pods, reservations }
    }
}
