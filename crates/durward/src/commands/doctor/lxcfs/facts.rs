//! Reads nodes and the pods of LXCFS and its agents from the API server.

use admission::Cause;
use cluster::fleet::{Cluster, ListQuery, Object, Part};
use cluster::{Reader, Resource, cause, list_pages};
use k8s_openapi::api::core::v1 as k8s;
use lxcfs::{DEVICE, NODE_ANNOTATION, READY_LABEL};
use node::NodeAnnotation;
use serde::de::DeserializeOwned;

use crate::clients::fleet::ANSWER_WITHIN;

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

/// Lists all nodes.
pub(super) async fn nodes(reader: &dyn Reader) -> Result<Vec<Node>, Cause> {
    let nodes = Resource { group: "".into(), version: "v1".into(), plural: "nodes".into() };
    let mut all = Vec::new();
    for object in list(reader, &nodes, "").await? {
        let status = whole::<k8s::Node>(&object)?.status.unwrap_or_default();
        let Object { name, metadata, .. } = object;
        let info = status.node_info.unwrap_or_default();
        let ready =
            status.conditions.into_iter().flatten().find(|one| one.type_ == "Ready" && one.status != "True");
        let devices = status.allocatable.as_ref().and_then(|amounts| amounts.get(DEVICE));
        let report = metadata
            .annotations
            .get(NODE_ANNOTATION)
            .map(|text| serde_json::from_str(text).map_err(|error| error.to_string()));
        all.push(Node {
            name,
            is_windows: info.operating_system == "windows",
            label: metadata.labels.get(READY_LABEL).cloned(),
            report,
            runtime: info.container_runtime_version,
            not_ready: ready.map(|one| format!("{}: {}", one.status, one.message.unwrap_or_default())),
            devices: devices.and_then(|amount| whole_number(&amount.0)),
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
        let pod: k8s::Pod = whole(&object)?;
        all.push(Pod {
            not_ready: not_ready_reason(&pod.status.unwrap_or_default(), object.metadata.deleting),
            name: object.name,
            node: pod.spec.and_then(|spec| spec.node_name).unwrap_or_default(),
            component: *component,
        });
    }
    Ok(all)
}

/// Returns why a pod is not ready: the most specific container state, or the pod's condition.
fn not_ready_reason(status: &k8s::PodStatus, is_deleting: bool) -> Option<String> {
    if is_deleting {
        return Some("it is being deleted".to_owned());
    }
    let mut conditions = status.conditions.iter().flatten();
    if conditions.clone().any(|one| one.type_ == "Ready" && one.status == "True") {
        return None;
    }
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let waits = containers
        .filter_map(|one| Some((one, one.state.as_ref()?.waiting.as_ref()?)))
        .map(|(one, waits)| (one, waits.reason.as_deref().unwrap_or_default(), waits))
        .find(|(_, reason, _)| !matches!(*reason, "" | "PodInitializing" | "ContainerCreating"));
    if let Some((one, reason, waits)) = waits {
        let message = last_message(one).or(waits.message.as_deref()).unwrap_or_default();
        return Some(format!("container {}: {reason}: {message}", one.name));
    }
    let unmet = |message: &String| !message.is_empty();
    let condition =
        conditions.find_map(|one| one.message.clone().filter(unmet).filter(|_| one.status == "False"));
    Some(condition.or_else(|| status.phase.clone()).unwrap_or_default())
}

/// Returns the last message of a terminated container, which is more specific than its back-off.
fn last_message(container: &k8s::ContainerStatus) -> Option<&str> {
    let message = container.last_state.as_ref()?.terminated.as_ref()?.message.as_deref()?;
    message.lines().rev().map(str::trim).find(|line| !line.is_empty())
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

fn whole<T: Default + DeserializeOwned>(object: &Object) -> Result<T, Cause> {
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
        assert!(not_ready_reason(&k8s::PodStatus::default(), true).unwrap().contains("being deleted"));
    }
}
