//! What is read of a pod: whose it is, whether its etcd runs, and what becomes of member and data when it goes.
//!
//! The same for the pod that a review brings and for those that the API server lists. Only what has a bearing on a decision is
//! read; a pod that cannot be read is never taken for one that has nothing to lose.

use std::collections::BTreeMap;

use admission::Cause;
use serde::Deserialize;
use serde_json::Value;

use crate::world::cause;

/// A pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    /// Whether it is being deleted.
    pub(super) is_going: bool,
    /// The `StatefulSet` that controls it.
    pub(super) owner: Option<Owner>,
    /// Its node; empty before it has one.
    pub(super) node: String,
    /// `status.podIP`, as it stands there.
    pub(super) address: String,
    /// Whether etcd runs in it, as its node last said.
    pub(super) etcd: Etcd,
    /// Whether its preStop hook removes the member from the ensemble.
    pub(super) leaves: bool,
    /// Whether what etcd writes outlives the pod, as far as its volumes tell.
    pub(super) keeps_data: bool,
    /// The claims among its volumes.
    pub(super) claims: Vec<String>,
    /// How long it is given to end.
    pub(super) grace: i64,
}

/// A controlling `StatefulSet`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) name: String,
    pub(super) uid: String,
}

/// Whether etcd runs in a pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Etcd {
    /// It does.
    Runs,
    /// It has ended, or not begun.
    Down,
    /// The pod does not tell which of its containers it is, or its node has not said.
    #[default]
    Unsure,
}

/// Kubernetes gives this much where a pod says nothing.
const USUAL_GRACE: i64 = 30;

/// On a mirror pod: what a node runs of a file of its own.
const MIRROR: &str = "kubernetes.io/config.mirror";

#[derive(Deserialize)]
struct Wire {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    namespace: String,
    name: String,
    uid: String,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    deletion_timestamp: Option<String>,
    owner_references: Option<Vec<Reference>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Reference {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    controller: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: String,
    termination_grace_period_seconds: Option<i64>,
    containers: Option<Vec<Container>>,
    volumes: Option<Vec<BTreeMap<String, Value>>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    name: String,
    image: String,
    command: Option<Vec<String>>,
    args: Option<Vec<String>>,
    ports: Option<Vec<Port>>,
    volume_mounts: Option<Vec<Mount>>,
    lifecycle: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Port {
    container_port: i64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Mount {
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: String,
    #[serde(rename = "podIP")]
    pod_ip: String,
    container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ContainerStatus {
    name: String,
    state: BTreeMap<String, Value>,
}

impl Pod {
    /// Reads a pod in JSON. `port` is where its etcd serves clients.
    pub(super) fn read(json: &str, port: u16) -> Result<Self, Cause> {
        let wire: Wire = serde_json::from_str(json)
            .map_err(|error| Cause::new(cause::GARBAGE, format!("the pod cannot be read: {error}")))?;
        let Wire { metadata, spec, status } = wire;
        let containers = spec.containers.unwrap_or_default();
        let etcd = the_etcd(&containers, port);
        let volumes = spec.volumes.unwrap_or_default();
        let owner = metadata.owner_references.unwrap_or_default().into_iter().find(|owner| {
            owner.controller == Some(true)
                && owner.kind == "StatefulSet"
                && owner.api_version.split_once('/').is_some_and(|(group, _)| group == "apps")
        });
        Ok(Self {
            namespace: metadata.namespace,
            name: metadata.name,
            uid: metadata.uid,
            labels: metadata.labels.unwrap_or_default(),
            annotations: metadata.annotations.unwrap_or_default(),
            is_going: metadata.deletion_timestamp.is_some_and(|time| !time.is_empty()),
            owner: owner.map(|Reference { name, uid, .. }| Owner { name, uid }),
            etcd: runs(&status, etcd),
            leaves: etcd.is_some_and(Container::leaves),
            keeps_data: etcd.is_none_or(|etcd| etcd.keeps_data(&volumes)),
            claims: volumes
                .iter()
                .filter_map(|volume| volume.get("persistentVolumeClaim")?.get("claimName")?.as_str())
                .map(str::to_owned)
                .collect(),
            node: spec.node_name,
            address: status.pod_ip,
            grace: spec.termination_grace_period_seconds.unwrap_or(USUAL_GRACE),
        })
    }

    /// Whether it is the shadow of what its node runs of a file of its own.
    pub(super) fn is_mirror(&self) -> bool {
        self.annotations.contains_key(MIRROR)
    }

    /// `db/etcd-0`.
    pub(super) fn told(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// Whether a pod in JSON has a container that runs etcd; false for what cannot be read, which is then no member by recognition.
pub(super) fn is_recognised(json: &str) -> bool {
    let Ok(Wire { spec, .. }) = serde_json::from_str(json) else { return false };
    spec.containers.unwrap_or_default().iter().any(Container::is_etcd)
}

/// Which container etcd is: the only one; or the only one that looks like it; or the only one with that port.
fn the_etcd(containers: &[Container], port: u16) -> Option<&Container> {
    fn only<'c>(mut some: impl Iterator<Item = &'c Container>) -> Option<&'c Container> {
        some.next().filter(|_| some.next().is_none())
    }
    let serves = |container: &&Container| {
        container.ports.iter().flatten().any(|held| held.container_port == i64::from(port))
    };
    only(containers.iter())
        .or_else(|| only(containers.iter().filter(|container| container.is_etcd())))
        .or_else(|| only(containers.iter().filter(serves)))
}

fn runs(status: &Status, etcd: Option<&Container>) -> Etcd {
    if matches!(status.phase.as_str(), "Succeeded" | "Failed") {
        return Etcd::Down;
    }
    let Some(etcd) = etcd else { return Etcd::Unsure };
    let told = status.container_statuses.iter().flatten().find(|told| told.name == etcd.name);
    match told {
        Some(told) if told.state.contains_key("running") => Etcd::Runs,
        Some(told) if told.state.contains_key("waiting") || told.state.contains_key("terminated") => {
            Etcd::Down
        }
        // No node has begun with it.
        None if status.phase == "Pending" && status.container_statuses.is_none() => Etcd::Down,
        Some(_) | None => Etcd::Unsure,
    }
}

impl Container {
    /// Whether it runs etcd: by what it calls, or else by its image.
    fn is_etcd(&self) -> bool {
        let last = |text: &str| text.rsplit('/').next().unwrap_or_default().to_owned();
        let calls = self.command.iter().flatten().next().is_some_and(|program| last(program) == "etcd");
        let image = last(&self.image);
        let image = image.split(['@', ':']).next().unwrap_or_default();
        calls || matches!(image, "etcd" | "etcd-amd64" | "etcd-arm64") || self.name == "etcd"
    }

    /// Whether its preStop hook removes the member.
    fn leaves(&self) -> bool {
        let hook = self.lifecycle.as_ref().and_then(|lifecycle| lifecycle.get("preStop"));
        let command = hook.and_then(|hook| hook.pointer("/exec/command")).and_then(Value::as_array);
        let words: Vec<&str> =
            command.into_iter().flatten().filter_map(Value::as_str).flat_map(str::split_whitespace).collect();
        words.windows(2).any(|pair| pair == ["member", "remove"])
    }

    /// Whether something that is mounted outlives the pod. Its own file system does not, nor do the kinds of volumes named here;
    /// of those that are not, nobody says that they do not.
    fn keeps_data(&self, volumes: &[BTreeMap<String, Value>]) -> bool {
        const GOES: [&str; 7] =
            ["emptyDir", "configMap", "secret", "downwardAPI", "projected", "ephemeral", "image"];
        self.volume_mounts.iter().flatten().any(|mount| {
            let volume = volumes
                .iter()
                .find(|volume| volume.get("name").and_then(Value::as_str) == Some(mount.name.as_str()));
            volume.is_some_and(|volume| !volume.keys().any(|key| GOES.contains(&key.as_str())))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(spec: &Value, status: &Value) -> Pod {
        let pod = json!({"metadata": {"name": "etcd-0", "namespace": "db", "uid": "u"}, "spec": spec, "status": status});
        Pod::read(&pod.to_string(), 2379).unwrap()
    }

    #[test]
    fn its_owner_is_the_statefulset_that_controls_it() {
        let owner = |reference: Value| {
            let pod = json!({"metadata": {"name": "a", "ownerReferences": [reference]}});
            Pod::read(&pod.to_string(), 2379).unwrap().owner.map(|owner| owner.name)
        };
        let of = |version: &str, kind: &str, controller: Value| {
            owner(
                json!({"apiVersion": version, "kind": kind, "name": "etcd", "uid": "7", "controller": controller}),
            )
        };
        assert_eq!(of("apps/v1", "StatefulSet", true.into()), Some("etcd".into()));
        assert_eq!(of("apps/v1", "StatefulSet", Value::Null), None);
        assert_eq!(of("apps/v1", "ReplicaSet", true.into()), None);
        assert_eq!(of("apps.kruise.io/v1", "StatefulSet", true.into()), None);
    }

    #[test]
    fn etcd_is_down_only_where_its_own_container_is() {
        let spec = json!({"containers": [{"name": "etcd", "image": "quay.io/coreos/etcd:v3.5.16"}, {"name": "backup", "image": "x"}]});
        let with = |phase: &str, statuses: Value| {
            pod(&spec, &json!({"phase": phase, "containerStatuses": statuses})).etcd
        };
        let state = |name: &str, state: &str| json!({"name": name, "state": {state: {}}});
        assert_eq!(
            with("Running", json!([state("etcd", "running"), state("backup", "waiting")])),
            Etcd::Runs
        );
        assert_eq!(
            with("Running", json!([state("etcd", "waiting"), state("backup", "running")])),
            Etcd::Down
        );
        assert_eq!(
            with("Pending", json!([state("etcd", "running"), state("backup", "waiting")])),
            Etcd::Runs
        );
        assert_eq!(with("Pending", Value::Null), Etcd::Down);
        assert_eq!(with("Failed", Value::Null), Etcd::Down);
        assert_eq!(with("Running", Value::Null), Etcd::Unsure);
        assert_eq!(with("Running", json!([{"name": "etcd", "state": {}}])), Etcd::Unsure);
        let unknown = json!({"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]});
        let statuses = json!([state("a", "waiting"), state("b", "waiting")]);
        assert_eq!(
            pod(&unknown, &json!({"phase": "Running", "containerStatuses": statuses})).etcd,
            Etcd::Unsure
        );
    }

    #[test]
    fn a_hook_that_removes_the_member_is_found_in_its_script() {
        let with = |command: Value| {
            let container = json!({"name": "etcd", "image": "etcd", "lifecycle": {"preStop": {"exec": {"command": command}}}});
            pod(&json!({"containers": [container]}), &json!({})).leaves
        };
        assert!(with(json!([
            "/bin/sh",
            "-ec",
            "EPS=x\netcdctl --endpoints ${EPS} member remove $(id)\nrm -rf /d"
        ])));
        assert!(with(json!(["etcdctl", "member", "remove", "1"])));
        assert!(!with(json!(["/bin/sh", "-c", "etcdctl member list; sleep 5"])));
        assert!(!with(json!("etcdctl member remove")));
    }

    #[test]
    fn data_is_kept_only_by_a_volume_that_outlives_the_pod() {
        let with = |volume: Value| {
            let containers = json!([{"name": "etcd", "image": "etcd", "volumeMounts": [{"name": "data", "mountPath": "/d"}]}]);
            pod(&json!({"containers": containers, "volumes": [volume]}), &json!({})).keeps_data
        };
        assert!(with(json!({"name": "data", "persistentVolumeClaim": {"claimName": "data-etcd-0"}})));
        assert!(with(json!({"name": "data", "hostPath": {"path": "/var/lib/etcd"}})));
        assert!(!with(json!({"name": "data", "emptyDir": {}})));
        assert!(!with(json!({"name": "data", "ephemeral": {}})));
        assert!(!with(json!({"name": "other", "persistentVolumeClaim": {}})));
    }

    #[test]
    fn containers_are_recognised_by_what_they_call_or_are_made_of() {
        for (container, expected) in [
            (json!({"image": "registry.k8s.io/etcd:3.5.16-0"}), true),
            (json!({"image": "etcd@sha256:00"}), true),
            (json!({"image": "x", "command": ["/usr/local/bin/etcd", "--name=a"]}), true),
            (json!({"name": "etcd", "image": "x"}), true),
            (json!({"image": "registry.example.org/etcd/backup:1"}), false),
            (json!({"image": "x", "command": ["etcdctl"]}), false),
        ] {
            let pod = json!({"metadata": {}, "spec": {"containers": [container]}});
            assert_eq!(is_recognised(&pod.to_string()), expected, "{container}");
        }
        assert!(!is_recognised("7"));
    }

    #[test]
    fn what_is_no_pod_is_said_to_be_none() {
        for broken in [
            "7",
            "{}",
            r#"{"metadata":{"labels":[]}}"#,
            r#"{"metadata":{},"metadata":{}}"#,
            r#"{"metadata":{"name":7}}"#,
        ] {
            assert!(Pod::read(broken, 2379).unwrap_err().text.contains("cannot be read"), "{broken}");
        }
    }
}
