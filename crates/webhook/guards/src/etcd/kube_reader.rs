//! Reads objects from the API server in the time of one review.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use admission::Cause;
use futures_util::future::join_all;
use tokio::time::Instant;

use super::pod::Pod;
use super::wire::{self, NodeSpec};
use cluster::fleet::{Cluster, GetQuery, ListQuery, Object, Part};
use cluster::writer::{Lease, StoredLease};
use cluster::{Address, Clients, Pages, Resource, cause};

/// Objects of one list at most. A review cannot read more pods of a namespace in its time.
const MAX_OBJECTS: usize = 20_000;

/// How far in the future a reservation can be. Clocks of a cluster differ by less.
const MAX_AHEAD: Duration = Duration::from_secs(30);

const fn resource(group: &'static str, plural: &'static str) -> Resource {
    Resource {
        group: std::borrow::Cow::Borrowed(group),
        version: std::borrow::Cow::Borrowed("v1"),
        plural: std::borrow::Cow::Borrowed(plural),
    }
}

pub(super) const PODS: Resource = resource("", "pods");
const NODES: Resource = resource("", "nodes");
pub(super) const STATEFUL_SETS: Resource = resource("apps", "statefulsets");
pub(super) const PVCS: Resource = resource("", "persistentvolumeclaims");

/// The namespace of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Namespace {
    pub(super) uid: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    /// Whether it is deleted or has a deletion timestamp.
    pub(super) is_deleting: bool,
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
    /// Returns an object, or only its metadata.
    pub(super) async fn find(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        part: Part,
    ) -> Result<Option<Object>, Cause> {
        let query = GetQuery { address: Address { resource, namespace, name }, part };
        self.clients.reader.get_object(&Cluster::Local, query, self.end.into_std()).await
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

    /// Lists the pods of a namespace, whose etcd has this client port.
    pub(super) async fn pods(&self, namespace: &str, port: u16) -> Result<Vec<Pod>, Cause> {
        let pods = read_pods(&self.list(&PODS, namespace, Part::Whole).await?)?;
        Ok(pods.iter().map(|pod| Pod::of(pod, port)).collect())
    }

    pub(super) async fn namespace(&self, name: &str) -> Result<Namespace, Cause> {
        let found = self.find(&Resource::NAMESPACES, "", name, Part::Metadata).await?;
        Ok(match found {
            None => Namespace { is_deleting: true, ..Namespace::default() },
            Some(Object { uid, metadata, .. }) => Namespace {
                uid,
                labels: metadata.labels,
                annotations: metadata.annotations,
                is_deleting: metadata.deleting,
            },
        })
    }

    /// Whether a node exists. A pod without a node counts as if it did.
    pub(super) async fn has_node(&self, name: &str) -> Result<bool, Cause> {
        Ok(name.is_empty() || self.find(&NODES, "", name, Part::Metadata).await?.is_some())
    }

    /// Returns the nodes that are cordoned or deleted. Unreadable nodes are left out: without reading its node, no review allows a
    /// pod for a deleted node either.
    pub(super) async fn node_states(&self, nodes: Vec<String>) -> BTreeMap<String, NodeState> {
        let states = nodes.into_iter().map(async |name| {
            let node = match self.find(&NODES, "", &name, Part::Whole).await {
                Ok(None) => return Some((name, NodeState::Deleted)),
                Ok(Some(node)) => node,
                Err(_) => return None,
            };
            let node: wire::WireObject<NodeSpec> = wire::read(json(&node).ok()?, "the node").ok()?;
            node.spec.unschedulable.then_some((name, NodeState::Cordoned))
        });
        join_all(states).await.into_iter().flatten().collect()
    }

    /// Reads a Lease. One that does not exist is free.
    pub(super) async fn lease(&self, lease: &Lease) -> Result<StoredLease, Cause> {
        let Lease { namespace, name } = lease;
        let stored = match self.find(&Lease::RESOURCE, namespace, name, Part::Whole).await? {
            None => StoredLease::default(),
            Some(Object { raw: Some(raw), .. }) => StoredLease::read(lease, &raw)?,
            Some(object) => json(&object).map(|_| StoredLease::default())?,
        };
        let renewed = stored.reservation.as_ref().map(|held| held.renewed);
        let ahead =
            renewed.and_then(|time| SystemTime::from(time).duration_since(self.clients.context.now()).ok());
        match ahead.filter(|ahead| *ahead > MAX_AHEAD) {
            Some(ahead) => {
                let ahead = ahead.as_secs();
                let text = format!("clocks of Durward's replicas differ: Lease {name} is {ahead} s ahead");
                Err(Cause::new(cause::UNCLEAR, text))
            }
            None => Ok(stored),
        }
    }
}

/// Returns the JSON of an object that was requested as a whole.
pub(super) fn json(object: &Object) -> Result<&str, Cause> {
    object.raw.as_ref().map(|raw| raw.get()).ok_or_else(|| {
        let text = format!(
            "only the metadata of {:?} in namespace {:?} was returned",
            object.name, object.namespace
        );
        Cause::new(cause::GARBAGE, text)
    })
}

/// Reads listed pods. A single pod that cannot be read is an error.
pub(super) fn read_pods(objects: &[Object]) -> Result<Vec<wire::Pod>, Cause> {
    objects.iter().map(|object| wire::read(json(object)?, "the pod")).collect()
}
