//! Derives findings from the state of nodes and pods. Pure.
//!
//! A node counts as serving only if a recent report covers every promised file. A report from a node that is not Ready is
//! outdated.

use std::time::{Duration, SystemTime};

use guards::lxcfs::{DEVICE, LxcfsFile, NODE_ANNOTATION, NodeSettings, READY_LABEL};
use serde::Serialize;

use super::facts::{Component, Node, Pod};
use super::visible_values;
use crate::doctor::finding::{Finding, Subject};
use crate::output::{self, Style};
use node::{FileState, NodeAnnotation};

/// Age of an outdated annotation. The label agent writes it every five minutes, so it has missed two writes.
const OLD: Duration = Duration::from_secs(15 * 60);

/// Sections of `deploy/lxcfs/README.md`.
const UPGRADE: &str = "Upgrade of the library: no pod notices";
const INSTALLED: &str = "LXCFS that is installed on the node";

fn see(section: &str) -> String {
    format!("see {section:?} in deploy/lxcfs/README.md")
}

/// The number of names that a message lists.
const SHOWN: usize = 10;

/// The state that pods rely on, and the context of the check.
#[derive(Debug)]
pub(super) struct Expectation {
    /// Whether the settings come from a configuration file. Otherwise they are defaults.
    pub(super) is_configured: bool,
    pub(super) on_node: NodeSettings,
    /// The namespace of Durward and its node agents.
    pub(super) home: String,
    /// kubectl with the kubeconfig of the cluster.
    pub(super) kubectl: String,
    /// The present time, or the time of the snapshot.
    pub(super) now: SystemTime,
}

/// Whether a node serves all promised files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Serves {
    Yes,
    No,
    Unknown,
    /// A Windows node has no `/proc`, so no file is promised.
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
            Serves::Windows => style.dim("Windows: there is no /proc, and its pods are left alone"),
        };
        let mut parts = Vec::new();
        if let Some(report) = &self.report {
            parts.push(format!("LXCFS {}", report.version.as_deref().unwrap_or("of unknown version")));
        }
        match self.report.as_ref().and_then(|report| report.runtime.as_ref()) {
            Some(runtime) => parts.push(format!("{}, runc {}", self.runtime, runtime.version)),
            None => parts.push(self.runtime.clone()),
        }
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
    nodes: Vec<Node>,
    pods: Option<&[Pod]>,
) -> (Vec<NodeReport>, Vec<Finding>) {
    let mut judged = Vec::with_capacity(nodes.len());
    let mut findings = Vec::new();
    let mut unseen = Vec::new();
    for node in nodes {
        let local: Vec<&Pod> = pods.unwrap_or_default().iter().filter(|pod| pod.node == node.name).collect();
        let one = NodeCheck { expected, node: &node, local: &local, pods };
        let said = one.serves();
        let serves = said.clone().unwrap_or(Serves::Unknown);
        if serves != Serves::Windows {
            if one.is_bare() && node.not_ready.is_none() && node.devices.is_none() {
                unseen.push(node.name.clone());
            } else {
                findings.extend(one.findings(serves));
            }
        }
        let report = node.report.and_then(Result::ok);
        judged.push(NodeReport {
            serves,
            label: node.label.is_some(),
            visible_values: if serves == Serves::Yes {
                visible_values(report.as_ref(), &expected.on_node)
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
    findings.extend(pods.unwrap_or_default().iter().filter_map(|pod| expected.pod(pod, serves(&pod.node))));
    findings.extend(expected.unseen(&unseen, pods));
    (judged, findings)
}

impl Expectation {
    /// Reports a list that could not be read.
    pub(super) fn unlisted(&self, what: &'static str, why: &str) -> Finding {
        let (matters, namespace) = match what {
            "nodes" => ("nothing can be said of any node", String::new()),
            _ => ("which of LXCFS's own pods run, and where, is not known", format!(" -n {}", self.home)),
        };
        let fix = format!("{} get {what}{namespace} (whoever asks needs list on {what})", self.kubectl);
        Finding::new(None, what, format!("{what} cannot be listed: {why}"), matters, fix)
    }

    /// Reports a pod of LXCFS or its agents that is not ready.
    fn pod(&self, pod: &Pod, is_served: bool) -> Option<Finding> {
        let why = pod.not_ready.as_deref()?;
        let matters = match pod.component {
            Component::Lxcfs if is_served => {
                "the files are served there all the same, so by another LXCFS: then this pod is not for that node"
            }
            Component::Lxcfs => "LXCFS itself: containers there have no files, or dead ones",
            Component::Node => "nobody keeps the node's label and annotation true, and no library is loaded",
            Component::Device => "the resource is not offered there, so pods that ask for it do not come",
            Component::Library => "the node keeps the library that it has",
        };
        let node = Some(pod.node.clone()).filter(|node| !node.is_empty()).map(Subject::Node);
        let mut fix = format!("{} -n {} describe pod {}", self.kubectl, self.home, pod.name);
        if is_served && pod.component == Component::Lxcfs {
            fix = format!("{}; or look at it: {fix}", see(INSTALLED));
        }
        Some(Finding::new(node, "pod", format!("pod {} is not ready: {why}", pod.name), matters, fix))
    }

    /// Reports nodes without any information about LXCFS.
    fn unseen(&self, nodes: &[String], pods: Option<&[Pod]>) -> Option<Finding> {
        if nodes.is_empty() {
            return None;
        }
        let shown = &nodes[..nodes.len().min(SHOWN)];
        let more = nodes.len() - shown.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let runs = pods.is_some_and(|pods| pods.iter().any(|pod| pod.component == Component::Lxcfs));
        let fix = if runs {
            format!(
                "{} -n {} get daemonsets -l app.kubernetes.io/name=durward (their nodeSelector and tolerations must fit these nodes)",
                self.kubectl, self.home
            )
        } else {
            format!(
                "{} apply -k deploy/lxcfs; or, where LXCFS is installed on the nodes themselves, look there: durward doctor lxcfs --here",
                self.kubectl
            )
        };
        let what = format!("nothing tells of LXCFS on {}{more}", shown.join(", "));
        let why = "pods with the files may come to them, and wait there for files that nobody serves";
        Some(Finding::new(None, "unseen", what, why, fix))
    }
}

/// The checks of one node.
struct NodeCheck<'a> {
    expected: &'a Expectation,
    node: &'a Node,
    local: &'a [&'a Pod],
    pods: Option<&'a [Pod]>,
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
            return Err(format!("the node is not Ready ({why}), so what it said last is old"));
        }
        if let Some(report) = self.report().filter(|_| self.old().is_none()) {
            return of(self.unserved(report).is_empty() && report.root == self.expected.on_node.root);
        }
        if let Some(devices) = self.node.devices {
            return of(devices > 0);
        }
        let examine = "to know it, durward doctor lxcfs --here on the node, or nodeReadiness: prefer";
        match self.pod(Component::Lxcfs) {
            Some(pod) if pod.not_ready.is_some() => Ok(Serves::No),
            Some(_) if self.expected.on_node.files == [LxcfsFile::Meminfo] => Ok(Serves::Yes),
            Some(_) => Err(format!(
                "meminfo is served, since LXCFS's pod is Ready; of the other files nothing is told ({examine})"
            )),
            None => Err(match self.old() {
                Some(old) => old,
                None => format!("nothing is told ({examine})"),
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
            None => Some(format!("the annotation {NODE_ANNOTATION} does not say how old it is")),
        }
    }

    /// Returns whether the node has no label, annotation or pod of ours.
    fn is_bare(&self) -> bool {
        self.node.label.is_none() && self.node.report.is_none() && self.local.is_empty()
    }

    fn pod(&self, component: Component) -> Option<&Pod> {
        self.local.iter().find(|pod| pod.component == component).copied()
    }

    /// Returns the promised files that are not served, with their states.
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
                "what label, annotation and resource say of it is from before, and no new pod starts there",
                format!("{} describe node {}", self.expected.kubectl, self.node.name),
            ));
            return found;
        }
        match &self.node.report {
            // An outdated annotation is not evaluated.
            Some(Ok(_)) if self.old().is_some() => {}
            Some(Ok(report)) => found.extend(self.of_report(report)),
            Some(Err(error)) => found.push(self.found(
                "untold",
                format!("the annotation {NODE_ANNOTATION} cannot be understood: {error}"),
                "it is not known what LXCFS serves there",
                format!(
                    "{} annotate node {} {NODE_ANNOTATION}- (it is written again within five minutes)",
                    self.expected.kubectl, self.node.name
                ),
            )),
            None => found.extend(self.untold()),
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
                "restart lxcfs-node with this configuration, or put guards.lxcfs.root right".to_owned()
            } else {
                "give --config FILE, with which Durward serves".to_owned()
            };
            found.push(self.found(
                "root",
                format!("LXCFS is looked for at {}, and pods are promised {}", report.root, on_node.root),
                "pods would get other files than those that were looked at",
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
                format!("LXCFS does not serve what pods are promised: {}", list.join(", ")),
                why(word),
                fix(word, &on_node.root),
            ));
        }
        if let Some(runtime) = &report.runtime {
            let refused = report.refused(&on_node.files);
            if !refused.is_empty() {
                found.push(self.found(
                    "runtime",
                    format!("runc {} lets nobody mount {}", runtime.version, refused.join(", ")),
                    "containers with these files do not start there (\"inside /proc\")",
                    "take them out of guards.lxcfs.files, or bring a newer runc to the node".to_owned(),
                ));
            }
        }
        if let Some(library) =
            report.library.as_deref().filter(|library| !matches!(*library, "loaded" | "loading"))
        {
            found.push(self.found(
                "library",
                format!("LXCFS has not loaded the library that lies on the node: {library}"),
                "the node goes on with the library that it has, which is safe, and is not what was rolled out",
                // Without a Ready LXCFS pod, the LXCFS of the node itself serves.
                see(if self.pod(Component::Lxcfs).is_some_and(|pod| pod.not_ready.is_none()) { UPGRADE } else { INSTALLED }),
            ));
        }
        found
    }

    /// Reports a missing annotation if pods select nodes by the readiness label.
    fn untold(&self) -> Option<Finding> {
        if !self.expected.on_node.is_label_wanted {
            return None;
        }
        let kubectl = &self.expected.kubectl;
        let home = &self.expected.home;
        let fix = match self.pod(Component::Node) {
            Some(pod) => format!("{kubectl} -n {home} logs {} (is it permitted to patch nodes?)", pod.name),
            None => format!("{kubectl} apply -k deploy/lxcfs"),
        };
        Some(self.found(
            "untold",
            "nobody tells how LXCFS does there".to_owned(),
            "with guards.lxcfs.nodeReadiness pods do not come to a node without the label",
            fix,
        ))
    }

    fn label(&self, serves: Serves) -> Option<Finding> {
        let name = &self.node.name;
        let kubectl = &self.expected.kubectl;
        match (&self.node.label, serves) {
            _ if let Some(what) = self.stale() => {
                let why = match &self.node.label {
                    Some(_) => "pods go on coming when LXCFS serves no more",
                    None => "whoever reads it takes for true what nobody has looked at since",
                };
                let take_off = format!(
                    "{kubectl} label node {name} {READY_LABEL}-; {kubectl} annotate node {name} {NODE_ANNOTATION}-"
                );
                let fix = match self.pod(Component::Node) {
                    Some(pod) => format!(
                        "{kubectl} -n {} logs {} (it says what keeps it from writing); if nobody is to keep them: {take_off}",
                        self.expected.home, pod.name
                    ),
                    None => take_off,
                };
                Some(self.found("stale", what, why, fix))
            }
            (Some(value), _) if value != "true" => Some(self.found(
                "label",
                format!("the label {READY_LABEL} is {value:?}"),
                "pods look for \"true\", so they do not come",
                format!("{kubectl} label node {name} {READY_LABEL}-"),
            )),
            (Some(_), Serves::No) => Some(self.found(
                "label",
                format!("the label {READY_LABEL} is there, though not every file is served"),
                "pods come, and wait for files that are not there",
                "does lxcfs-node run there? It takes the label off within seconds".to_owned(),
            )),
            (None, Serves::Yes) if self.expected.on_node.is_label_wanted && self.report().is_some() => Some(
                self.found(
                    "label",
                    format!("every file is served, and the label {READY_LABEL} is missing"),
                    "pods do not come",
                    "somebody took it off: lxcfs-node puts it back within five minutes, if it runs there"
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
            return Some(format!("{old}, and lxcfs-node renews it every five"));
        }
        self.node.label.as_ref()?;
        let some_run = self.pods.is_some_and(|pods| pods.iter().any(|pod| pod.component == Component::Node));
        let is_kept = self.pod(Component::Node).is_some();
        let what = if some_run && !is_kept {
            "no pod of lxcfs-node that would keep it"
        } else if self.node.report.is_none() && !is_kept {
            "no annotation that would say who keeps it"
        } else {
            return None;
        };
        Some(format!("the label {READY_LABEL} is there, and {what}"))
    }

    fn device(&self) -> Option<Finding> {
        if !self.expected.on_node.is_device_wanted {
            return None;
        }
        let kubectl = &self.expected.kubectl;
        let home = &self.expected.home;
        let matters = "with guards.lxcfs.backend pods ask for it, and do not come to a node without it";
        match (self.node.devices, self.pod(Component::Device)) {
            (Some(0), Some(pod)) => Some(self.found(
                "device",
                format!("the resource {DEVICE} has no healthy device"),
                matters,
                format!("{kubectl} -n {home} logs {} (it says which file LXCFS does not serve)", pod.name),
            )),
            (Some(0) | None, None) => Some(self.found(
                "device",
                format!("nobody offers the resource {DEVICE}"),
                matters,
                format!("{kubectl} apply -k deploy/lxcfs"),
            )),
            (None, Some(pod)) => Some(self.found(
                "device",
                format!("the kubelet does not know the resource {DEVICE}, though {} runs", pod.name),
                matters,
                format!("{kubectl} -n {home} logs {} (is --kubelet-dir the kubelet's own folder?)", pod.name),
            )),
            (Some(_), _) => None,
        }
    }
}

/// Returns the consequence of a file in this state.
pub(super) fn why(word: &str) -> &'static str {
    match word {
        "dead" => {
            "containers that run read \"Transport endpoint is not connected\", and none with the files starts"
        }
        "silent" => "whatever reads such a file in a container hangs, and none with the files starts",
        "garbage" => "programs in containers size themselves by nonsense",
        "not-lxcfs" => "pods get the node's figures, or old ones, and nothing tells them so",
        _ => "containers with the files do not start there: the pod waits (\"hostPath type check failed\")",
    }
}

/// Returns the fix for a file in this state.
pub(super) fn fix(word: &str, root: &str) -> String {
    match word {
        "dead" => format!(
            "on the node: umount -l {root}, then start LXCFS again; then restart the containers that have the files, since their mounts stay dead"
        ),
        "silent" => {
            "on the node: is LXCFS stopped, or out of memory? ps -C lxcfs -o pid,stat,wchan,etime; end it and start it again".to_owned()
        }
        "not-a-file" => format!(
            "on the node: stop LXCFS, remove what stands in the way under {root} (an injector without a hostPath type had it made), start LXCFS again"
        ),
        "garbage" => {
            "on the node: does LXCFS run in the process namespace of the node (in a pod: hostPID: true)? Is it the version that the guard's page names?".to_owned()
        }
        "not-lxcfs" => format!(
            "on the node: findmnt -R -o TARGET,FSTYPE {root} must say fuse.lxcfs and have nothing below it; take away what stands there otherwise, and start LXCFS again"
        ),
        "missing" => format!(
            "on the node: does LXCFS run, and is {root} mounted (findmnt {root})? Of a file that this version does not have: take it out of guards.lxcfs.files"
        ),
        _ => format!("on the node: cat {root}/proc/meminfo, and LXCFS's own log"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_referenced_sections_exist() {
        let page = include_str!("../../../../../deploy/lxcfs/README.md");
        for section in [UPGRADE, INSTALLED] {
            assert!(page.lines().any(|line| line == format!("## {section}")), "{section}");
        }
    }
}
