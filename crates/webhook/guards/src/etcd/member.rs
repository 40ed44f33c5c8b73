//! Finds the pod that a review is about, and its etcd cluster.
//!
//! A review can come from a stranger. The API server must return the pod with the uid of the review, and its stored state decides, so
//! addresses and owners are never those of the review.

use admission::Cause;

use super::config::{Config, EtcdClusterConfig, NamespaceMatch};
use super::group::{self, Group};
use super::kube_reader::{KubeReader, PODS, json};
use super::pod::Pod;
use super::removal::Removal;
use super::wire;
use crate::identity;
use ::config::SelectorExt as _;
use cluster::fleet::Part;
use cluster::writer::Lease;

/// A pod and its etcd cluster.
pub(super) struct Member<'m> {
    pub(super) pod: Pod,
    pub(super) entry: &'m EtcdClusterConfig,
    pub(super) group: Group,
    pub(super) lease: Lease,
}

/// Returns the stored pod, unless it is another pod than that of the review. The review of an eviction contains no pod, but its
/// preconditions can contain a uid.
pub(super) async fn stored_pod(kube: KubeReader<'_>, removal: &Removal) -> Result<Option<wire::Pod>, Cause> {
    let Removal { namespace, name, pod, only_uid, .. } = removal;
    let found = kube.find(&PODS, namespace, name, Part::Whole).await?;
    let uid = pod.as_ref().map(|pod| &pod.uid).or(only_uid.as_ref());
    let found = identity::reviewed(found, uid.map(String::as_str));
    found.map(|object| wire::read(json(&object)?, "the pod")).transpose()
}

impl<'m> Member<'m> {
    /// Finds the etcd cluster of a stored pod: that of the first entry that selects it and its namespace.
    pub(super) async fn find(
        kube: KubeReader<'_>,
        config: &'m Config,
        stored: &wire::Pod,
    ) -> Result<Option<Self>, Cause> {
        let wire::Metadata { namespace, labels, .. } = &stored.metadata;
        let mut read = None;
        for entry in group::entries(config, namespace, labels.as_ref().unwrap_or(&group::NO_LABELS)) {
            if let NamespaceMatch::Labeled(selector) = &entry.namespaces {
                let read = match &mut read {
                    Some(read) => read,
                    none => none.insert(kube.namespace(namespace).await?),
                };
                if !selector.matches(&read.labels) {
                    continue;
                }
            }
            let pod = Pod::of(stored, entry.port);
            let group = Group::of(entry, &pod);
            let lease = group.lease(&config.common_config.namespace);
            return Ok(Some(Self { pod, entry, group, lease }));
        }
        Ok(None)
    }
}
