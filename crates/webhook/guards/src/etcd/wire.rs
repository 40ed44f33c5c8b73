//! The parts of Kubernetes objects that the guard reads, as JSON.
//!
//! These types replace those of `k8s-openapi`, which accept duplicate keys and read all of an object.

use std::collections::BTreeMap;

use admission::Cause;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use cluster::cause;

/// Reads an object. `what` names it in the error.
pub(super) fn read<'j, T: Deserialize<'j>>(json: &'j str, what: &str) -> Result<T, Cause> {
    serde_json::from_str(json)
        .map_err(|error| Cause::new(cause::GARBAGE, format!("{what} cannot be read: {error}")))
}

/// An object with the parts that are needed.
#[derive(Deserialize)]
#[serde(rename = "Object")]
pub(super) struct WireObject<Spec: Default, Status: Default = IgnoredAny> {
    pub(super) metadata: Metadata,
    #[serde(default)]
    pub(super) spec: Spec,
    #[serde(default)]
    pub(super) status: Status,
}

pub(super) type Pod = WireObject<PodSpec, PodStatus>;
pub(super) type StatefulSet = WireObject<StatefulSetSpec, StatefulSetStatus>;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) labels: Option<BTreeMap<String, String>>,
    pub(super) annotations: Option<BTreeMap<String, String>>,
    pub(super) deletion_timestamp: Option<String>,
    pub(super) owner_references: Option<Vec<OwnerReference>>,
    finalizers: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct OwnerReference {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) controller: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodSpec {
    pub(super) node_name: String,
    pub(super) termination_grace_period_seconds: Option<i64>,
    pub(super) active_deadline_seconds: Option<i64>,
    pub(super) containers: Option<Vec<Container>>,
    pub(super) init_containers: Option<Vec<Container>>,
    pub(super) volumes: Option<Vec<BTreeMap<String, Value>>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Container {
    pub(super) name: String,
    pub(super) image: String,
    pub(super) restart_policy: String,
    pub(super) command: Option<Vec<String>>,
    pub(super) args: Option<Vec<String>>,
    pub(super) ports: Option<Vec<Port>>,
    pub(super) volume_mounts: Option<Vec<Mount>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Port {
    pub(super) container_port: i64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Mount {
    pub(super) name: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodStatus {
    pub(super) phase: String,
    #[serde(rename = "podIP")]
    pub(super) pod_ip: String,
    pub(super) container_statuses: Option<Vec<ContainerStatus>>,
    pub(super) init_container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ContainerStatus {
    pub(super) name: String,
    pub(super) state: BTreeMap<String, Value>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct StatefulSetSpec {
    pub(super) replicas: Option<u64>,
    pub(super) template: Option<Pod>,
    pub(super) ordinals: Option<Ordinals>,
    #[serde(rename = "persistentVolumeClaimRetentionPolicy")]
    pub(super) retention: Option<Retention>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Ordinals {
    pub(super) start: u64,
}

/// The policy for the PVCs of a `StatefulSet`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Retention {
    when_scaled: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct StatefulSetStatus {
    pub(super) update_revision: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeSpec {
    pub(super) unschedulable: bool,
}

impl Metadata {
    /// Whether deleting the object keeps its pods.
    pub(super) fn orphans(&self) -> bool {
        self.finalizers.iter().flatten().any(|finalizer| finalizer == "orphan")
    }
}

impl StatefulSet {
    pub(super) fn scaling_deletes_pvcs(&self) -> bool {
        self.spec.retention.as_ref().is_some_and(|policy| policy.when_scaled == "Delete")
    }
}
