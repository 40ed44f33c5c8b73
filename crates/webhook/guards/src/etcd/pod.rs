//! Reads the parts of a pod that decide about its deletion: its owner, whether its etcd runs, and whether its data outlives it.
//!
//! A pod that cannot be read is an error, never a pod that can be deleted.

use std::collections::BTreeMap;

use serde_json::Value;

use super::config::OwnerKind;
use super::wire::{self, Container, OwnerReference, PodSpec, PodStatus};

/// A pod that may run an etcd member.
// Each flag is independent.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    /// Whether it has a deletion timestamp.
    pub(super) is_deleting: bool,
    /// The owner reference with `controller: true`.
    pub(super) controller: Option<Controller>,
    /// The name of its node; empty before it is scheduled.
    pub(super) node: String,
    /// `status.podIP`.
    pub(super) address: String,
    /// Whether one of its containers looks like etcd.
    pub(super) runs_etcd: bool,
    /// The state of its etcd process, as the kubelet last reported it.
    pub(super) process: Process,
    /// Whether a volume of the etcd container outlives the pod.
    pub(super) keeps_data: bool,
    /// The names of the PVCs among its volumes.
    pub(super) pvcs: Vec<String>,
    /// Its termination grace period in seconds.
    pub(super) grace: i64,
    /// The images of its containers and sidecars.
    pub(super) images: Vec<String>,
    /// `spec.activeDeadlineSeconds`.
    pub(super) active_deadline: Option<i64>,
}

/// The object that controls a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Controller {
    pub(super) group: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) uid: String,
}

/// The state of the etcd process of a pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Process {
    /// Its container runs.
    Running,
    /// Its container waits, or the kubelet restarts it. No other container runs, except tools.
    Down,
    /// The pod has ended (`Succeeded`, `Failed`) and is no longer a member.
    Ended,
    /// The pod does not show which container runs etcd, or the kubelet has not reported its state.
    #[default]
    Unknown,
}

/// The default of `terminationGracePeriodSeconds` in Kubernetes.
const DEFAULT_GRACE: i64 = 30;

/// The annotation of a mirror pod. The kubelet creates one for each static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

impl Pod {
    /// Returns a pod, or the pod of a template. `port` is the client port of its etcd.
    pub(super) fn of(wire::Pod { metadata, spec, status }: &wire::Pod, port: u16) -> Self {
        let containers = long_running(spec);
        let etcd = etcd_container(&containers, port);
        let volumes = spec.volumes.as_deref().unwrap_or_default();
        let mut references = metadata.owner_references.iter().flatten();
        Self {
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            uid: metadata.uid.clone(),
            labels: metadata.labels.clone().unwrap_or_default(),
            annotations: metadata.annotations.clone().unwrap_or_default(),
            is_deleting: metadata.deletion_timestamp.as_ref().is_some_and(|time| !time.is_empty()),
            controller: references.find(|owner| owner.controller == Some(true)).map(Controller::of),
            runs_etcd: containers.iter().any(|container| container.is_etcd()),
            process: process(status, &containers, port),
            keeps_data: etcd.is_none_or(|etcd| etcd.keeps_data(volumes)),
            pvcs: volumes
                .iter()
                .filter_map(|volume| volume.get("persistentVolumeClaim")?.get("claimName")?.as_str())
                .map(str::to_owned)
                .collect(),
            node: spec.node_name.clone(),
            address: status.pod_ip.clone(),
            grace: spec.termination_grace_period_seconds.unwrap_or(DEFAULT_GRACE),
            images: containers.iter().map(|container| container.image.clone()).collect(),
            active_deadline: spec.active_deadline_seconds,
        }
    }

    /// Returns the `StatefulSet` that controls the pod.
    pub(super) fn stateful_set(&self) -> Option<&Controller> {
        self.controller.as_ref().filter(|controller| controller.is("apps", "StatefulSet"))
    }

    /// Returns the owner that the guard reads: the `StatefulSet`, or an object of the configured kind.
    pub(super) fn owner(&self, kind: Option<&OwnerKind>) -> Option<&Controller> {
        let is_of = |controller: &&Controller| {
            kind.is_some_and(|kind| controller.is(&kind.resource.group, &kind.kind))
        };
        self.stateful_set().or_else(|| self.controller.as_ref().filter(is_of))
    }

    /// Whether it is certain that the pod runs no etcd.
    pub(super) fn is_stopped(&self) -> bool {
        matches!(self.process, Process::Down | Process::Ended)
    }

    /// Whether the pod has succeeded or failed for good.
    pub(super) fn has_ended(&self) -> bool {
        self.process == Process::Ended
    }

    /// Whether it is the mirror of a static pod.
    pub(super) fn is_mirror(&self) -> bool {
        self.annotations.contains_key(MIRROR)
    }
}

impl Controller {
    fn of(OwnerReference { api_version, kind, name, uid, .. }: &OwnerReference) -> Self {
        // The core group has no name.
        let group = api_version.split_once('/').map_or("", |(group, _)| group).to_owned();
        Self { group, kind: kind.clone(), name: name.clone(), uid: uid.clone() }
    }

    fn is(&self, group: &str, kind: &str) -> bool {
        self.group == group && self.kind == kind
    }
}

/// Returns the containers that run as long as the pod: its containers and its sidecars.
fn long_running(spec: &PodSpec) -> Vec<&Container> {
    let sidecars = spec.init_containers.iter().flatten().filter(|first| first.restart_policy == "Always");
    spec.containers.iter().flatten().chain(sidecars).collect()
}

/// Returns the container of etcd: the only container, or else the only one that looks like etcd, or else the only one with the port.
fn etcd_container<'c>(containers: &[&'c Container], port: u16) -> Option<&'c Container> {
    fn only<'c>(mut some: impl Iterator<Item = &'c Container>) -> Option<&'c Container> {
        some.next().filter(|_| some.next().is_none())
    }
    only(containers.iter().copied())
        .or_else(|| only(containers.iter().copied().filter(|container| container.is_etcd())))
        .or_else(|| only(containers.iter().copied().filter(|container| container.serves(port))))
}

/// Returns the state of etcd. `Down` allows a deletion without a request to the member. Names and images prove nothing, so every
/// container must be down, except tools.
fn process(status: &PodStatus, containers: &[&Container], port: u16) -> Process {
    let reported = || status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    if matches!(status.phase.as_str(), "Succeeded" | "Failed") {
        return Process::Ended;
    }
    // No kubelet has started it yet.
    if status.phase == "Pending" && reported().next().is_none() {
        return Process::Down;
    }
    let state = |container: &Container| {
        let reported = reported().find(|reported| reported.name == container.name);
        match reported.map(|reported| &reported.state) {
            Some(state) if state.contains_key("running") => Process::Running,
            Some(state) if state.contains_key("waiting") || state.contains_key("terminated") => Process::Down,
            Some(_) | None => Process::Unknown,
        }
    };
    let may_be =
        |container: &&&Container| containers.len() == 1 || container.is_etcd() || container.serves(port);
    if containers.iter().filter(may_be).any(|container| state(container) == Process::Running) {
        return Process::Running;
    }
    let is_needed =
        |container: &&&Container| containers.len() == 1 || !container.is_tool() || container.serves(port);
    let mut needed = containers.iter().filter(is_needed).peekable();
    if needed.peek().is_some() && needed.all(|container| state(container) == Process::Down) {
        Process::Down
    } else {
        Process::Unknown
    }
}

/// Returns the last part of a path.
fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

impl Container {
    /// Returns the program of `command`, without its directory.
    fn program(&self) -> Option<&str> {
        self.command.iter().flatten().next().map(|program| base_name(program))
    }

    /// Whether it runs a tool of the etcd image.
    fn is_tool(&self) -> bool {
        matches!(self.program(), Some("etcdctl" | "etcdutl"))
    }

    /// Whether its program, image or name is etcd.
    fn is_etcd(&self) -> bool {
        !self.is_tool() && (self.program() == Some("etcd") || self.has_etcd_image() || self.name == "etcd")
    }

    fn has_etcd_image(&self) -> bool {
        let image = base_name(&self.image).split(['@', ':']).next().unwrap_or_default();
        matches!(image, "etcd" | "etcd-amd64" | "etcd-arm64")
    }

    /// Whether it declares this port.
    fn serves(&self, port: u16) -> bool {
        self.ports.iter().flatten().any(|declared| declared.container_port == i64::from(port))
    }

    /// Whether one of its mounted volumes outlives the pod. Volumes of types that are not listed here do.
    fn keeps_data(&self, volumes: &[BTreeMap<String, Value>]) -> bool {
        // A volume of a CSI driver in the pod itself is ephemeral.
        const EPHEMERAL: [&str; 9] = [
            "emptyDir",
            "configMap",
            "secret",
            "downwardAPI",
            "projected",
            "ephemeral",
            "image",
            "csi",
            "gitRepo",
        ];
        self.volume_mounts.iter().flatten().any(|mount| {
            let volume = volumes
                .iter()
                .find(|volume| volume.get("name").and_then(Value::as_str) == Some(mount.name.as_str()));
            volume.is_some_and(|volume| !volume.keys().any(|key| EPHEMERAL.contains(&key.as_str())))
        })
    }
}

#[cfg(test)]
mod tests;
