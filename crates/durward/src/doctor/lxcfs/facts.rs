//! Reads nodes and the pods of LXCFS and its agents from the API server.

use std::collections::BTreeMap;

use admission::Cause;
use cluster::fleet::{Cluster, ListQuery, Object, Part};
use cluster::{Reader, Resource, cause, list_pages};
use guards::lxcfs::{DEVICE, NODE_ANNOTATION, READY_LABEL};
use serde::Deserialize;

use crate::fleet::ANSWER_WITHIN;
use node::NodeAnnotation;

/// Values of the component label.
const COMPONENT: &str = "app.kubernetes.io/component";
const OURS: [(&str, Component); 4] = [
    ("lxcfs", Component::Lxcfs),
    ("lxcfs-node", Component::Node),
    ("lxcfs-device", Component::Device),
    ("lxcfs-library", Component::Library),
];

/// A program that runs on nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Component {
    /// LXCFS itself.
    Lxcfs,
    /// `durward-node label`.
    Node,
    /// `durward-node device-plugin`.
    Device,
    /// The pod that copies the library to the node.
    Library,
}

/// A node as far as it concerns LXCFS.
#[derive(Debug, Clone, Default)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) is_windows: bool,
    /// The value of the readiness label.
    pub(super) label: Option<String>,
    /// The parsed annotation.
    pub(super) report: Option<Result<NodeAnnotation, String>>,
    /// The container runtime, as `containerd://1.6.20`.
    pub(super) runtime: String,
    /// Allocatable devices, if the node has the resource.
    pub(super) devices: Option<u64>,
    /// The reason why the node is not Ready.
    pub(super) not_ready: Option<String>,
}

/// A pod of LXCFS or its agents.
#[derive(Debug, Clone)]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) node: String,
    pub(super) component: Component,
    /// The reason why the pod is not ready.
    pub(super) not_ready: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WholeNode {
    status: NodeStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NodeStatus {
    allocatable: BTreeMap<String, String>,
    conditions: Vec<Condition>,
    node_info: NodeInfo,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NodeInfo {
    container_runtime_version: String,
    operating_system: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WholePod {
    spec: PodSpec,
    status: PodStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    node_name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodStatus {
    phase: String,
    conditions: Vec<Condition>,
    init_container_statuses: Vec<Container>,
    container_statuses: Vec<Container>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    r#type: String,
    status: String,
    message: String,
}

impl Condition {
    /// Returns the reason why a node is not Ready.
    fn not_ready_reason(&self) -> Option<String> {
        (self.r#type == "Ready" && self.status != "True")
            .then(|| format!("{}: {}", self.status, self.message))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Container {
    name: String,
    state: BTreeMap<String, State>,
    last_state: BTreeMap<String, State>,
}

impl Container {
    /// Returns the last message of a terminated container, which says more than its back-off.
    fn last_words(&self) -> Option<&str> {
        let message = &self.last_state.get("terminated")?.message;
        message.lines().rev().map(str::trim).find(|line| !line.is_empty())
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct State {
    reason: String,
    message: String,
}

/// Lists all nodes.
pub(super) async fn nodes(reader: &dyn Reader) -> Result<Vec<Node>, Cause> {
    let nodes = Resource { group: "".into(), version: "v1".into(), plural: "nodes".into() };
    let mut all = Vec::new();
    for object in list(reader, &nodes, "").await? {
        let WholeNode { status } = whole(&object)?;
        let Object { name, metadata, .. } = object;
        let report = metadata
            .annotations
            .get(NODE_ANNOTATION)
            .map(|text| serde_json::from_str(text).map_err(|error| error.to_string()));
        all.push(Node {
            name,
            is_windows: status.node_info.operating_system == "windows",
            label: metadata.labels.get(READY_LABEL).cloned(),
            report,
            runtime: status.node_info.container_runtime_version,
            not_ready: status.conditions.iter().find_map(Condition::not_ready_reason),
            devices: status.allocatable.get(DEVICE).and_then(|amount| whole_number(amount)),
        });
    }
    Ok(all)
}

/// Lists the pods of LXCFS and its agents in Durward's namespace.
pub(super) async fn pods(reader: &dyn Reader, home: &str) -> Result<Vec<Pod>, Cause> {
    let pods = Resource { group: "".into(), version: "v1".into(), plural: "pods".into() };
    let mut all = Vec::new();
    for object in list(reader, &pods, home).await? {
        let report = object.metadata.labels.get(COMPONENT);
        let Some((_, component)) = OURS.iter().find(|(name, _)| report.is_some_and(|report| report == name))
        else {
            continue;
        };
        let pod: WholePod = whole(&object)?;
        all.push(Pod {
            not_ready: not_ready_reason(&pod.status, object.metadata.deleting),
            name: object.name,
            node: pod.spec.node_name,
            component: *component,
        });
    }
    Ok(all)
}

/// Returns why a pod is not ready: the most specific container state, or the pod's condition.
fn not_ready_reason(status: &PodStatus, is_deleting: bool) -> Option<String> {
    let is_ready = status.conditions.iter().any(|one| one.r#type == "Ready" && one.status == "True");
    if is_ready && !is_deleting {
        return None;
    }
    if is_deleting {
        return Some("it is being deleted".to_owned());
    }
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses);
    let waits = containers
        .filter_map(|one| Some((one, one.state.get("waiting")?)))
        .find(|(_, state)| !matches!(state.reason.as_str(), "" | "PodInitializing" | "ContainerCreating"));
    if let Some((one, state)) = waits {
        let message = one.last_words().unwrap_or(&state.message);
        return Some(format!("container {}: {}: {message}", one.name, state.reason));
    }
    let condition = status.conditions.iter().find(|one| one.status == "False" && !one.message.is_empty());
    Some(condition.map_or_else(|| status.phase.clone(), |one| one.message.clone()))
}

/// Parses a count. The API server writes 1000 as `1k`.
fn whole_number(text: &str) -> Option<u64> {
    let (digits, factor) = match text.strip_suffix(['k', 'M']) {
        Some(digits) if text.ends_with('k') => (digits, 1_000),
        Some(digits) => (digits, 1_000_000),
        None => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

fn whole<T: Default + for<'d> Deserialize<'d>>(object: &Object) -> Result<T, Cause> {
    let Some(raw) = &object.raw else { return Ok(T::default()) };
    serde_json::from_str(raw.get()).map_err(|error| {
        Cause::new(cause::GARBAGE, format!("{} is not what it should be: {error}", object.name))
    })
}

async fn list(reader: &dyn Reader, resource: &Resource, namespace: &str) -> Result<Vec<Object>, Cause> {
    let query = ListQuery { namespace, part: Part::Whole, ..ListQuery::new(resource) };
    list_pages(reader, &Cluster::Local, query, ANSWER_WITHIN).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parses_counts_in_each_format_of_the_api_server() {
        for (text, number) in [
            ("0", Some(0)),
            ("999", Some(999)),
            ("1k", Some(1000)),
            ("3M", Some(3_000_000)),
            ("1.5k", None),
            ("", None),
        ] {
            assert_eq!(whole_number(text), number, "{text}");
        }
    }

    #[test]
    fn returns_why_a_pod_is_not_ready() {
        let not_ready = |status| not_ready_reason(&serde_json::from_value(status).unwrap(), false);
        let ready = json!([{"type": "Ready", "status": "True"}]);
        assert_eq!(not_ready(json!({"phase": "Running", "conditions": ready})), None);
        let unready = json!([{"type": "Ready", "status": "False", "message": "containers with unready status: [lxcfs]"}]);
        let waiting = json!([{"name": "lxcfs", "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}}]);
        assert_eq!(
            not_ready(json!({"conditions": unready, "containerStatuses": waiting})).unwrap(),
            "container lxcfs: CrashLoopBackOff: back-off"
        );
        let said = json!([{
            "name": "lxcfs", "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
            "lastState": {"terminated": {"exitCode": 1, "message": "starting\nanother LXCFS serves /var/lib/lxcfs\n\n"}},
        }]);
        assert_eq!(
            not_ready(json!({"conditions": unready, "containerStatuses": said})).unwrap(),
            "container lxcfs: CrashLoopBackOff: another LXCFS serves /var/lib/lxcfs"
        );
        assert_eq!(
            not_ready(json!({"conditions": unready})).unwrap(),
            "containers with unready status: [lxcfs]"
        );
        assert_eq!(not_ready(json!({"phase": "Pending"})).unwrap(), "Pending");
        assert!(not_ready_reason(&PodStatus::default(), true).unwrap().contains("being deleted"));
    }
}
