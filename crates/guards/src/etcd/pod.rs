//! What is read of a pod: whose it is, whether its etcd runs, and what becomes of member and data when it goes.
//!
//! The same for the pod that a review brings and for those that the API server lists. Only what has a bearing on a decision is
//! read; a pod that cannot be read is never taken for one that has nothing to lose.

use std::collections::BTreeMap;

use admission::Cause;
use serde::Deserialize;
use serde_json::Value;

use super::config::OwnerKind;
use cluster::cause;

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
    /// What else controls it.
    pub(super) maker: Option<Maker>,
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

/// A controlling object of another kind, as an operator's own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Maker {
    group: String,
    kind: String,
    owner: Owner,
}

/// Whether etcd runs in a pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Etcd {
    /// It does.
    Runs,
    /// Not now: it has not begun, or is started again.
    Down,
    /// All of the pod has ended for good (`Succeeded`, `Failed`): it is no member any more.
    Ended,
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
    init_containers: Option<Vec<Container>>,
    volumes: Option<Vec<BTreeMap<String, Value>>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    name: String,
    image: String,
    restart_policy: String,
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
    init_container_statuses: Option<Vec<ContainerStatus>>,
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
        let containers = lasting(spec.containers, spec.init_containers);
        let etcd = the_etcd(&containers, port);
        let volumes = spec.volumes.unwrap_or_default();
        let references = metadata.owner_references.unwrap_or_default();
        let maker = references.into_iter().find(|owner| owner.controller == Some(true)).map(Maker::of);
        let (owner, maker) = match maker {
            Some(maker) if maker.is("apps", "StatefulSet") => (Some(maker.owner), None),
            other => (None, other),
        };
        Ok(Self {
            namespace: metadata.namespace,
            name: metadata.name,
            uid: metadata.uid,
            labels: metadata.labels.unwrap_or_default(),
            annotations: metadata.annotations.unwrap_or_default(),
            is_going: metadata.deletion_timestamp.is_some_and(|time| !time.is_empty()),
            owner,
            maker,
            etcd: runs(&status, &containers, port),
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

    /// What makes it, as far as that is looked at: its `StatefulSet`, or an object of the kind that its entry names.
    pub(super) fn made_by(&self, named: Option<&OwnerKind>) -> Option<&Owner> {
        let of_kind =
            |maker: &&Maker| named.is_some_and(|named| maker.is(&named.resource.group, &named.kind));
        self.owner.as_ref().or_else(|| self.maker.as_ref().filter(of_kind).map(|maker| &maker.owner))
    }

    /// Whether it is certain that no etcd runs in it.
    pub(super) fn runs_no_etcd(&self) -> bool {
        matches!(self.etcd, Etcd::Down | Etcd::Ended)
    }

    /// Whether it has ended for good.
    pub(super) fn has_ended(&self) -> bool {
        self.etcd == Etcd::Ended
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

impl Maker {
    fn of(Reference { api_version, kind, name, uid, .. }: Reference) -> Self {
        // The core group has no name.
        let group = api_version.split_once('/').map_or("", |(group, _)| group).to_owned();
        Self { group, kind, owner: Owner { name, uid } }
    }

    fn is(&self, group: &str, kind: &str) -> bool {
        self.group == group && self.kind == kind
    }
}

/// Whether a pod in JSON has a container that runs etcd; false for what cannot be read, which is then no member by recognition.
pub(super) fn is_recognised(json: &str) -> bool {
    let Ok(Wire { spec, .. }) = serde_json::from_str(json) else { return false };
    lasting(spec.containers, spec.init_containers).iter().any(Container::is_etcd)
}

/// The containers that run as long as the pod does: those of its init containers too that are started first and stay.
fn lasting(containers: Option<Vec<Container>>, init: Option<Vec<Container>>) -> Vec<Container> {
    let staying = init.unwrap_or_default().into_iter().filter(|first| first.restart_policy == "Always");
    containers.unwrap_or_default().into_iter().chain(staying).collect()
}

/// Which container etcd is: the only one; or the only one that looks like it; or the only one with that port.
fn the_etcd(containers: &[Container], port: u16) -> Option<&Container> {
    fn only<'c>(mut some: impl Iterator<Item = &'c Container>) -> Option<&'c Container> {
        some.next().filter(|_| some.next().is_none())
    }
    only(containers.iter())
        .or_else(|| only(containers.iter().filter(|container| container.is_etcd())))
        .or_else(|| only(containers.iter().filter(|container| container.serves(port))))
}

/// Whether etcd runs. That it does not lets a pod go without a question, so it has to be so of every container that may be etcd:
/// all that look like it or serve its port, if one of them is etcd beyond doubt; else every one of which it is not known that it is
/// something else. So what merely comes out of the same image (a backup) tells nothing of a member that nobody recognises.
fn runs(status: &Status, containers: &[Container], port: u16) -> Etcd {
    let told = || status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    if matches!(status.phase.as_str(), "Succeeded" | "Failed") {
        return Etcd::Ended;
    }
    // No node has begun with it.
    if status.phase == "Pending" && told().next().is_none() {
        return Etcd::Down;
    }
    let state = |container: &Container| {
        let told = told().find(|told| told.name == container.name);
        match told {
            Some(told) if told.state.contains_key("running") => Etcd::Runs,
            Some(told) if told.state.contains_key("waiting") || told.state.contains_key("terminated") => {
                Etcd::Down
            }
            Some(_) | None => Etcd::Unsure,
        }
    };
    let may_be =
        |container: &&Container| containers.len() == 1 || container.is_etcd() || container.serves(port);
    let candidates: Vec<&Container> = containers.iter().filter(may_be).collect();
    if candidates.iter().any(|container| state(container) == Etcd::Runs) {
        return Etcd::Runs;
    }
    let is_found = containers.len() == 1 || candidates.iter().any(|container| container.is_surely_etcd(port));
    let might_be = |container: &&Container| if is_found { may_be(container) } else { !container.is_tool() };
    let mut might_be = containers.iter().filter(might_be).peekable();
    if might_be.peek().is_some() && might_be.all(|container| state(container) == Etcd::Down) {
        return Etcd::Down;
    }
    Etcd::Unsure
}

/// The last part of a path.
fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

impl Container {
    /// What it calls in place of what its image does.
    fn program(&self) -> Option<&str> {
        self.command.iter().flatten().next().map(|program| last(program))
    }

    /// Whether it runs a tool that comes in the same image.
    fn is_tool(&self) -> bool {
        matches!(self.program(), Some("etcdctl" | "etcdutl"))
    }

    /// Whether it runs etcd: by what it calls, or else by its image.
    fn is_etcd(&self) -> bool {
        !self.is_tool() && (self.program() == Some("etcd") || self.has_its_image() || self.name == "etcd")
    }

    fn has_its_image(&self) -> bool {
        let image = last(&self.image).split(['@', ':']).next().unwrap_or_default();
        matches!(image, "etcd" | "etcd-amd64" | "etcd-arm64")
    }

    /// Whether it is etcd, also where another container is anybody's guess: it calls it, or is named so; or it has its image, calls
    /// nothing else but perhaps a shell, and serves its port.
    fn is_surely_etcd(&self, port: u16) -> bool {
        // `etcd gateway` and `etcd grpc-proxy` are no members.
        let mut words = self.command.iter().chain(&self.args).flatten().skip(1);
        let calls_it =
            self.program() == Some("etcd") && words.next().is_none_or(|word| word.starts_with('-'));
        let is_proxy = || {
            let mut words = self.command.iter().chain(&self.args).flatten();
            words.any(|word| word.contains("grpc-proxy") || word.contains("gateway"))
        };
        let is_as_made = match self.program() {
            None => self.args.iter().flatten().next().is_none_or(|word| word.starts_with('-')),
            Some("sh" | "bash" | "ash" | "dash") => !is_proxy(),
            Some(_) => false,
        };
        let is_named = self.name == "etcd" && !self.is_tool();
        calls_it || is_named || (is_as_made && self.has_its_image() && self.serves(port))
    }

    /// Whether it says that it serves this port.
    fn serves(&self, port: u16) -> bool {
        self.ports.iter().flatten().any(|held| held.container_port == i64::from(port))
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
mod tests;
