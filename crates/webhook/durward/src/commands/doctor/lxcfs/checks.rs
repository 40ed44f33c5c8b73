//! Derives findings from the state of nodes and pods. Pure.
//!
//! A node counts as serving only if a recent report covers every configured file. A report from a node that is not Ready is
//! outdated.

use std::time::{Duration, SystemTime};

use console::output::{self, Style};
use lxcfs::{DEVICE, LxcfsFile, NODE_ANNOTATION, NodeSettings, READY_LABEL};
use node::{FileState, NodeAnnotation};
use serde::Serialize;

use super::facts::{AgentPod, Component, InjectedPod, LxcfsNode, OTHER_INJECTOR, Pods};
use super::values::visible_values;
use crate::commands::doctor::finding::{Finding, Subject};

/// Age of an outdated annotation. The label agent writes it every five minutes, so it has missed two writes.
const OLD: Duration = Duration::from_secs(15 * 60);

/// The page about LXCFS on nodes.
const PAGE: &str = "https://github.com/durward/durward/blob/main/docs/src/lxcfs/nodes.md";

/// A section of that page.
const INSTALLED: &str = "LXCFS installed on the node";

fn see(section: &str) -> String {
    format!("see {PAGE}#{}", section.to_lowercase().replace(' ', "-"))
}

/// The number of names that a message lists.
const SHOWN: usize = 10;

/// The state that pods rely on, and the context of the check.
#[derive(Debug)]
pub(super) struct Expectation {
    /// Whether the settings come from a configuration file. Otherwise they are defaults.
    pub(super) is_configured: bool,
    pub(super) on_node: NodeSettings,
    /// kubectl with the kubeconfig of the cluster.
    pub(super) kubectl: String,
    /// The present time, or the time of the snapshot.
    pub(super) now: SystemTime,
}

/// Whether a node serves all configured files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Serves {
    Yes,
    No,
    Unknown,
    /// A Windows node has no `/proc`, so no file is expected.
    Windows,
}

/// A node in the report.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeReport {
    pub(super) node: String,
    pub(super) serves: Serves,
    /// Whether the node has the readiness label.
    label: bool,
    /// The annotation of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<NodeAnnotation>,
    /// The container runtime.
    runtime: String,
    /// Allocatable devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    devices: Option<u64>,
    /// Pods of LXCFS and its agents.
    pods: Vec<String>,
    /// Values that a pod with the files reads.
    #[serde(rename = "sees")]
    visible_values: Vec<String>,
    /// The reason if `serves` is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<String>,
}

impl NodeReport {
    /// Formats the node.
    pub(super) fn text(&self, style: Style) -> String {
        let word = match self.serves {
            Serves::Yes => style.green("serves"),
            Serves::No => style.red("does not serve"),
            Serves::Unknown => style.yellow("unknown"),
            Serves::Windows => style.dim("Windows has no /proc, so its pods get no files"),
        };
        let mut parts = vec![self.runtime.clone()];
        if self.label {
            parts.push("label".to_owned());
        }
        if let Some(devices) = &self.devices {
            parts.push(format!("{devices} devices"));
        }
        let head = format!("\n{}  {word}  {}", style.bold(&self.node), style.dim(&parts.join(", ")));
        let below = self.visible_values.iter().chain(&self.unknown).map(|line| format!("  {line}"));
        output::lines(std::iter::once(head).chain(below))
    }
}

/// Returns all nodes and findings.
pub(super) fn all(
    expected: &Expectation,
    nodes: Vec<LxcfsNode>,
    pods: Option<&Pods>,
) -> (Vec<NodeReport>, Vec<Finding>) {
    let agents = pods.map_or(&[][..], |pods| &pods.agents);
    let mut judged = Vec::with_capacity(nodes.len());
    let mut findings = Vec::new();
    let mut unseen = Vec::new();
    for node in nodes {
        let local: Vec<&AgentPod> = agents.iter().filter(|pod| pod.node == node.name).collect();
        let one = NodeCheck { expected, node: &node, local: &local, agents };
        let said = one.serves();
        let serves = said.clone().unwrap_or(Serves::Unknown);
        if serves != Serves::Windows {
            if one.is_bare() && node.not_ready.is_none() && node.devices.is_none() {
                unseen.push(node.name.clone());
            } else {
                findings.extend(one.findings(serves));
            }
            findings.extend(one.dead(pods.map_or(&[], |pods| &pods.users)));
        }
        let report = node.report.and_then(Result::ok);
        judged.push(NodeReport {
            serves,
            label: node.label.is_some(),
            visible_values: if serves == Serves::Yes {
                visible_values(&expected.on_node)
            } else {
                Vec::new()
            },
            report,
            runtime: node.runtime,
            devices: node.devices,
            pods: local.iter().map(|pod| pod.name.clone()).collect(),
            unknown: said.err(),
            node: node.name,
        });
    }
    let serves = |name: &str| judged.iter().any(|one| one.node == name && one.serves == Serves::Yes);
    findings.extend(agents.iter().filter_map(|pod| expected.pod(pod, serves(&pod.node))));
    findings.extend(expected.unseen(&unseen, agents));
    (judged, findings)
}

impl Expectation {
    /// Reports a list that could not be read.
    pub(super) fn unlisted(&self, what: &'static str, why: &str) -> Finding {
        let (matters, scope) = match what {
            "nodes" => ("no node could be checked", ""),
            _ => ("the pods of LXCFS, and pods with files, could not be checked", " -A"),
        };
        let fix = format!("{} get {what}{scope} (you need permission to list {what})", self.kubectl);
        Finding::new(None, what, format!("could not list {what}: {why}"), matters, fix)
    }

    /// Reports the other injector, or that it could not be checked.
    pub(super) fn other_injector(&self, answer: Result<bool, &str>) -> Option<Finding> {
        let (what, fix) = match answer {
            Ok(false) => return None,
            Ok(true) => {
                let fix = format!("{} delete mutatingwebhookconfiguration {OTHER_INJECTOR}", self.kubectl);
                (
                    format!("another injector is registered: MutatingWebhookConfiguration {OTHER_INJECTOR}"),
                    fix,
                )
            }
            Err(why) => {
                let command = format!("{} get mutatingwebhookconfiguration {OTHER_INJECTOR}", self.kubectl);
                let what = format!("could not check for the other injector {OTHER_INJECTOR}: {why}");
                (what, format!("{command} (you need permission to get it)"))
            }
        };
        let why = "if two injectors add a file, the API server rejects the pod, because a mount path is there twice";
        Some(Finding::new(None, "injector", what, why, fix))
    }

    /// Reports a pod of LXCFS or its agents that is not ready.
    fn pod(&self, pod: &AgentPod, is_served: bool) -> Option<Finding> {
        let why = pod.not_ready.as_deref()?;
        let matters = match pod.component {
            Component::Lxcfs if is_served => {
                "another LXCFS serves the files on that node, so the node does not need this pod"
            }
            Component::Lxcfs => "this is LXCFS itself: containers on that node have no files, or broken ones",
            Component::Node => "label and annotation of the node are not updated",
            Component::Device => {
                "the node does not offer the resource, so pods that request it are not scheduled there"
            }
        };
        let node = Some(pod.node.clone()).filter(|node| !node.is_empty()).map(Subject::Node);
        let mut fix = format!("{} -n {} describe pod {}", self.kubectl, pod.namespace, pod.name);
        if is_served && pod.component == Component::Lxcfs {
            fix = format!("{}; for details: {fix}", see(INSTALLED));
        }
        Some(Finding::new(node, "pod", format!("pod {} is not ready: {why}", pod.name), matters, fix))
    }

    /// Reports nodes without any information about LXCFS.
    fn unseen(&self, nodes: &[String], agents: &[AgentPod]) -> Option<Finding> {
        if nodes.is_empty() {
            return None;
        }
        let shown = &nodes[..nodes.len().min(SHOWN)];
        let more = nodes.len() - shown.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let runs = agents.iter().any(|pod| pod.component == Component::Lxcfs);
        let fix = if runs {
            format!(
                "{} get daemonsets -A -l app.kubernetes.io/name=durward (nodeSelector and tolerations must match these nodes)",
                self.kubectl
            )
        } else {
            format!(
                "{} apply -k deploy/lxcfs; if LXCFS is installed on the nodes, run there: durward doctor lxcfs --local",
                self.kubectl
            )
        };
        let what = format!("no information about LXCFS on {}{more}", shown.join(", "));
        let why = "pods with LXCFS files can be scheduled there, and wait for the files";
        Some(Finding::new(None, "no-data", what, why, fix))
    }
}

/// The checks of one node.
struct NodeCheck<'a> {
    expected: &'a Expectation,
    node: &'a LxcfsNode,
    local: &'a [&'a AgentPod],
    agents: &'a [AgentPod],
}

impl NodeCheck<'_> {
    fn report(&self) -> Option<&NodeAnnotation> {
        self.node.report.as_ref()?.as_ref().ok()
    }

    /// Returns whether the node serves all files, from the best source: a recent annotation, then the extended resource, then
    /// the LXCFS pod, whose readiness covers only meminfo. An error says why no source answers.
    fn serves(&self) -> Result<Serves, String> {
        let of = |is_well: bool| Ok(if is_well { Serves::Yes } else { Serves::No });
        if self.node.is_windows {
            return Ok(Serves::Windows);
        }
        if let Some(why) = &self.node.not_ready {
            return Err(format!("the node is not Ready ({why}), so its last report is outdated"));
        }
        if let Some(report) = self.report().filter(|_| self.old().is_none()) {
            return of(self.unserved(report).is_empty() && report.root == self.expected.on_node.root);
        }
        if let Some(devices) = self.node.devices {
            return of(devices > 0);
        }
        let examine = "run durward doctor lxcfs --local on the node, or set nodeAffinity: preferred";
        match self.pod(Component::Lxcfs) {
            Some(pod) if pod.not_ready.is_some() => Ok(Serves::No),
            Some(_) if self.expected.on_node.files == [LxcfsFile::Meminfo] => Ok(Serves::Yes),
            Some(_) => Err(format!(
                "LXCFS's pod is Ready, so meminfo is served; no information about the other files ({examine})"
            )),
            None => Err(match self.old() {
                Some(old) => old,
                None => format!("no information ({examine})"),
            }),
        }
    }

    /// Returns the problem with the annotation's time, if the annotation exists and is old.
    fn old(&self) -> Option<String> {
        match self.report()?.age(self.expected.now) {
            Some(age) if age <= OLD => None,
            Some(age) => {
                Some(format!("the annotation {NODE_ANNOTATION} is {} minutes old", age.as_secs() / 60))
            }
            None => Some(format!("the annotation {NODE_ANNOTATION} has no valid time")),
        }
    }

    /// Returns whether the node has no label, annotation or pod of ours.
    fn is_bare(&self) -> bool {
        self.node.label.is_none() && self.node.report.is_none() && self.local.is_empty()
    }

    fn pod(&self, component: Component) -> Option<&AgentPod> {
        self.local.iter().find(|pod| pod.component == component).copied()
    }

    /// Returns the configured files that are not served, with their states.
    fn unserved<'r>(&self, report: &'r NodeAnnotation) -> Vec<(LxcfsFile, &'r str)> {
        let files = self.expected.on_node.files.iter();
        let word = |file: LxcfsFile| report.files.get(file.name()).map_or("missing", String::as_str);
        files.map(|&file| (file, word(file))).filter(|(_, word)| *word != FileState::Served.word()).collect()
    }

    fn found(&self, code: &'static str, what: String, why: &str, fix: String) -> Finding {
        Finding::new(Some(Subject::Node(self.node.name.clone())), code, what, why, fix)
    }

    fn findings(&self, serves: Serves) -> Vec<Finding> {
        let mut found = Vec::new();
        if let Some(why) = &self.node.not_ready {
            found.push(self.found(
                "node",
                format!("the node is not Ready: {why}"),
                "label, annotation and resource are outdated, and no new pod starts there",
                format!("{} describe node {}", self.expected.kubectl, self.node.name),
            ));
            return found;
        }
        match &self.node.report {
            // An outdated annotation is not evaluated.
            Some(Ok(_)) if self.old().is_some() => {}
            Some(Ok(report)) => found.extend(self.of_report(report)),
            Some(Err(error)) => found.push(self.found(
                "annotation",
                format!("the annotation {NODE_ANNOTATION} is not valid: {error}"),
                "the state of LXCFS on the node is unknown",
                format!(
                    "{} annotate node {} {NODE_ANNOTATION}- (durward-node writes it again within five minutes)",
                    self.expected.kubectl, self.node.name
                ),
            )),
            None => found.extend(self.missing_annotation()),
        }
        found.extend(self.label(serves));
        found.extend(self.device());
        found
    }

    fn of_report(&self, report: &NodeAnnotation) -> Vec<Finding> {
        let mut found = Vec::new();
        let on_node = &self.expected.on_node;
        if report.root != on_node.root {
            let fix = if self.expected.is_configured {
                "restart durward-node with this configuration, or correct guards.lxcfs.lxcfsPath".to_owned()
            } else {
                "run this command with --config FILE, the configuration of the server".to_owned()
            };
            found.push(self.found(
                "path",
                format!("durward-node checks {}, and the guard mounts {}", report.root, on_node.root),
                "the state of the files that pods get is unknown",
                fix,
            ));
            return found;
        }
        let unserved = self.unserved(report);
        if let Some((_, word)) = unserved.first() {
            let list: Vec<_> =
                unserved.iter().map(|(file, word)| format!("{} {word}", file.name())).collect();
            found.push(self.found(
                "files",
                format!("LXCFS does not serve all files: {}", list.join(", ")),
                why(word),
                fix(word, &on_node.root),
            ));
        }
        found
    }

    /// Reports pods whose containers started before the LXCFS of this node. Only the start of an LXCFS in a pod is known.
    fn dead(&self, users: &[InjectedPod]) -> Option<Finding> {
        let started = self.pod(Component::Lxcfs)?.started.as_ref()?;
        let is_dead = |user: &&InjectedPod| user.node == self.node.name && user.started < *started;
        let dead: Vec<_> = users.iter().filter(is_dead).map(|user| user.name.as_str()).collect();
        if dead.is_empty() {
            return None;
        }
        let shown = dead.get(..SHOWN).unwrap_or(&dead);
        let more = dead.len() - shown.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        Some(self.found(
            "dead",
            format!("containers with files started before LXCFS: {}{more}", shown.join(", ")),
            "their files are dead: programs read \"Transport endpoint is not connected\"",
            "restart these pods".to_owned(),
        ))
    }

    /// Reports a missing annotation if pods select nodes by the readiness label.
    fn missing_annotation(&self) -> Option<Finding> {
        if !self.expected.on_node.is_label_wanted {
            return None;
        }
        let kubectl = &self.expected.kubectl;
        let fix = match self.pod(Component::Node) {
            Some(pod) => {
                format!("{kubectl} {} (it needs permission to patch nodes)", pod.logs())
            }
            None => format!("{kubectl} apply -k deploy/lxcfs"),
        };
        Some(self.found(
            "annotation",
            format!("the annotation {NODE_ANNOTATION} is missing"),
            "because of guards.lxcfs.nodeAffinity, pods avoid a node without the label",
            fix,
        ))
    }

    fn label(&self, serves: Serves) -> Option<Finding> {
        let name = &self.node.name;
        let kubectl = &self.expected.kubectl;
        match (&self.node.label, serves) {
            _ if let Some(what) = self.stale() => {
                let why = match &self.node.label {
                    Some(_) => "pods are scheduled there even if LXCFS stops serving",
                    None => "the annotation can be wrong",
                };
                let remove = format!(
                    "{kubectl} label node {name} {READY_LABEL}-; {kubectl} annotate node {name} {NODE_ANNOTATION}-"
                );
                let fix = match self.pod(Component::Node) {
                    Some(pod) => {
                        format!("{kubectl} {} (for the reason); to remove both: {remove}", pod.logs())
                    }
                    None => remove,
                };
                Some(self.found("stale", what, why, fix))
            }
            (Some(value), _) if value != "true" => Some(self.found(
                "label",
                format!("the label {READY_LABEL} is {value:?}"),
                "pods select the value \"true\", so they avoid the node",
                format!("{kubectl} label node {name} {READY_LABEL}-"),
            )),
            (Some(_), Serves::No) => Some(self.found(
                "label",
                format!("the node has the label {READY_LABEL}, but not every file is served"),
                "pods are scheduled there, and wait for the files",
                "check that durward-node label runs there: it removes the label within seconds".to_owned(),
            )),
            (None, Serves::Yes) if self.expected.on_node.is_label_wanted && self.report().is_some() => Some(
                self.found(
                    "label",
                    format!("every file is served, but the label {READY_LABEL} is missing"),
                    "pods avoid the node",
                    "check that durward-node label runs there: it sets the label within five minutes"
                        .to_owned(),
                ),
            ),
            _ => None,
        }
    }

    /// Returns why label and annotation are no longer updated: the annotation is old or missing, or the label agent runs on
    /// other nodes and not here. If no agent runs anywhere, it can be a process of the node, and only the time counts.
    fn stale(&self) -> Option<String> {
        if let Some(old) = self.old() {
            return Some(format!("{old}, but durward-node updates it every five"));
        }
        self.node.label.as_ref()?;
        let some_run = self.agents.iter().any(|pod| pod.component == Component::Node);
        let is_kept = self.pod(Component::Node).is_some();
        let what = if some_run && !is_kept {
            "no pod of durward-node label runs there"
        } else if self.node.report.is_none() && !is_kept {
            "the annotation is missing"
        } else {
            return None;
        };
        Some(format!("the node has the label {READY_LABEL}, but {what}"))
    }

    fn device(&self) -> Option<Finding> {
        if !self.expected.on_node.is_device_wanted {
            return None;
        }
        let kubectl = &self.expected.kubectl;
        let matters =
            "because of guards.lxcfs.mountMethod, pods request it and are not scheduled to a node without it";
        match (self.node.devices, self.pod(Component::Device)) {
            (Some(0), Some(pod)) => Some(self.found(
                "device",
                format!("the resource {DEVICE} has no healthy device"),
                matters,
                format!("{kubectl} {} (it names the file that LXCFS does not serve)", pod.logs()),
            )),
            (Some(0) | None, None) => Some(self.found(
                "device",
                format!("the node does not offer the resource {DEVICE}"),
                matters,
                format!("{kubectl} apply -k deploy/lxcfs"),
            )),
            (None, Some(pod)) => Some(self.found(
                "device",
                format!("the kubelet does not know the resource {DEVICE}, but {} runs", pod.name),
                matters,
                format!("{kubectl} {} (--kubelet-dir must be the kubelet's root directory)", pod.logs()),
            )),
            (Some(_), _) => None,
        }
    }
}

/// Returns the consequence of a file in this state.
pub(super) fn why(word: &str) -> &'static str {
    match word {
        "dead" => {
            "running containers read \"Transport endpoint is not connected\", and new ones with the files do not start"
        }
        "silent" => {
            "reads of such a file in a container hang, and new containers with the files do not start"
        }
        "garbage" => "programs in containers read wrong values",
        "not-lxcfs" => "programs in containers read values of the node, or old values",
        _ => "containers with the files do not start: the pod waits (\"hostPath type check failed\")",
    }
}

/// Returns the fix for a file in this state.
pub(super) fn fix(word: &str, root: &str) -> String {
    match word {
        "dead" => format!(
            "on the node: umount -l {root}, then start LXCFS; then restart the containers with the files, because their mounts stay broken"
        ),
        "silent" => {
            "on the node: check whether LXCFS hangs (ps -C lxcfs -o pid,stat,wchan,etime), and restart it".to_owned()
        }
        "not-a-file" => format!(
            "on the node: stop LXCFS, remove the directory in place of the file under {root} (hostPath volumes without a type create such directories), start LXCFS"
        ),
        "garbage" => {
            "on the node: check that LXCFS runs in the pid namespace of the node (in a pod: hostPID: true), and its version".to_owned()
        }
        "not-lxcfs" => format!(
            "on the node: findmnt -R -o TARGET,FSTYPE {root} must print fuse.lxcfs and nothing below it; remove other mounts and files, and start LXCFS"
        ),
        "missing" => format!(
            "on the node: check that LXCFS runs and is mounted (findmnt {root}); if this version does not have the file, remove it from guards.lxcfs.files"
        ),
        _ => format!("on the node: cat {root}/proc/meminfo, and read the log of LXCFS"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_referenced_section_exists() {
        let page = include_str!("../../../../../../../docs/src/lxcfs/nodes.md");
        assert!(page.lines().any(|line| line == format!("## {INSTALLED}")));
    }
}
