//! Reads nodes, the pods of LXCFS and its agents, and the pods with files from the API server.

use std::time::Instant;

use admission::Cause;
use cluster::fleet::{Cluster, ListQuery, Object, Part};
use cluster::{Address, Reader, Resource, cause, list_pages};
use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use lxcfs::{DEVICE, NODE_ANNOTATION, READY_LABEL};
use node::NodeAnnotation;
use serde::de::DeserializeOwned;

use crate::clients::fleet::ANSWER_WITHIN;

/// The label of all our pods, with the value `durward`.
const NAME: &str = "app.kubernetes.io/name";
/// The label with the component, and its values.
const COMPONENT: &str = "app.kubernetes.io/component";
const OURS: [(&str, Component); 3] =
    [("lxcfs", Component::Lxcfs), ("lxcfs-node", Component::Node), ("lxcfs-device", Component::Device)];

/// The `MutatingWebhookConfiguration` of crazytaxii's lxcfs-hostpath-injector. Its webhook reads the older annotation, as the guard does.
pub(super) const OTHER_INJECTOR: &str = "lxcfs-sidecar-injector-cfg";

/// A program that runs on nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Component {
    /// LXCFS itself.
    Lxcfs,
    /// `durward-node label`.
    Node,
    /// `durward-node device-plugin`.
    Device,
}

/// A node as far as it concerns LXCFS.
#[derive(Debug, Clone, Default)]
pub(super) struct LxcfsNode {
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
pub(super) struct AgentPod {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) node: String,
    pub(super) component: Component,
    /// The reason why the pod is not ready.
    pub(super) not_ready: Option<String>,
    /// The start of its container, while that runs.
    pub(super) started: Option<Time>,
}

impl AgentPod {
    /// Returns the arguments of kubectl that print its log.
    pub(super) fn logs(&self) -> String {
        format!("-n {} logs {}", self.namespace, self.name)
    }
}

/// A pod with running containers that have files of LXCFS.
#[derive(Debug, Clone)]
pub(super) struct InjectedPod {
    /// `NAMESPACE/NAME`
    pub(super) name: String,
    pub(super) node: String,
    /// The earliest start of these containers.
    pub(super) started: Time,
}

/// The pods that matter here.
#[derive(Debug, Default)]
pub(super) struct Pods {
    pub(super) agents: Vec<AgentPod>,
    pub(super) users: Vec<InjectedPod>,
}

/// Lists all nodes.
pub(super) async fn nodes(reader: &dyn Reader) -> Result<Vec<LxcfsNode>, Cause> {
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
        all.push(LxcfsNode {
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

/// Returns whether the other injector is registered. A snapshot without webhook configurations has no answer.
pub(super) async fn has_other_injector(reader: &dyn Reader) -> Result<bool, Cause> {
    let resource = Resource {
        group: "admissionregistration.k8s.io".into(),
        version: "v1".into(),
        plural: "mutatingwebhookconfigurations".into(),
    };
    let address = Address { resource: &resource, namespace: "", name: OTHER_INJECTOR };
    Ok(reader.get(address, Instant::now() + ANSWER_WITHIN).await?.is_some())
}

/// Lists the pods of LXCFS and its agents in all namespaces, and the pods with files below `root` or with the device.
pub(super) async fn pods(reader: &dyn Reader, root: &str) -> Result<Pods, Cause> {
    let pods = Resource { group: "".into(), version: "v1".into(), plural: "pods".into() };
    let mut all = Pods::default();
    for object in list(reader, &pods, "").await? {
        let pod: k8s::Pod = whole(&object)?;
        let Object { name, namespace, metadata, .. } = object;
        let (spec, status) = (pod.spec.unwrap_or_default(), pod.status.unwrap_or_default());
        let component = metadata
            .labels
            .get(COMPONENT)
            .filter(|_| metadata.labels.get(NAME).is_some_and(|name| name == "durward"));
        let ours = OURS.iter().find(|(word, _)| component.is_some_and(|component| component == word));
        if let Some((_, component)) = ours {
            all.agents.push(AgentPod {
                not_ready: not_ready_reason(&status, metadata.deleting),
                started: started(&status, |_| true),
                node: spec.node_name.unwrap_or_default(),
                component: *component,
                namespace,
                name,
            });
        } else if !metadata.deleting
            && let Some(started) = started(&status, |container| has_files(&spec, container, root))
        {
            let node = spec.node_name.unwrap_or_default();
            all.users.push(InjectedPod { name: format!("{namespace}/{name}"), node, started });
        }
    }
    Ok(all)
}

/// Returns the earliest start of the running containers whose names match.
fn started(status: &k8s::PodStatus, matches: impl Fn(&str) -> bool) -> Option<Time> {
    let statuses = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let running = statuses.filter(|one| matches(&one.name));
    running.filter_map(|one| one.state.as_ref()?.running.as_ref()?.started_at.clone()).min()
}

/// Returns whether a container mounts a file below the root, or has the device.
fn has_files(spec: &k8s::PodSpec, name: &str, root: &str) -> bool {
    let is_file = |path: &str| path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'));
    let volumes = spec.volumes.iter().flatten();
    let files: Vec<_> =
        volumes.filter(|one| one.host_path.as_ref().is_some_and(|host| is_file(&host.path))).collect();
    let mut containers =
        spec.init_containers.iter().flatten().chain(&spec.containers).filter(|one| one.name == name);
    containers.any(|container| {
        let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
        let mut mounts = container.volume_mounts.iter().flatten();
        limits.is_some_and(|limits| limits.contains_key(DEVICE))
            || mounts.any(|mount| files.iter().any(|file| file.name == mount.name))
    })
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
