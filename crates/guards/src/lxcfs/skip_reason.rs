//! Why a pod as a whole is left without the files: where LXCFS would show something false, or the pod could not start or not
//! even be admitted with them.

use std::collections::BTreeMap;
use std::fmt;

use admission::Shape;

use super::config::{Config, NodeReadiness, PodSecurity};
use super::containers::Container;
use super::opt_in::{PodOptIn, shortened};
use super::pod::{
    HOST_PID, HOST_USERS, List, NODE_OS, OLD_NODE_OS, OS, Pod, RUNTIME_CLASS, SHARED_PROCESSES, Unreadable,
    WINDOWS_OPTIONS,
};
use super::readiness::{self, READY};
use super::volumes::Volumes;

/// The namespace's label that Pod Security admission goes by.
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

/// One reason, to be read after "this pod gets no files: ".
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SkipReason {
    /// A switch says neither yes nor no.
    InvalidSetting(String),
    /// The kubelet runs a static pod from its own file and takes nothing from the image in the API server.
    Mirror,
    /// There is no `/proc`.
    Windows,
    /// LXCFS finds a container by the first process of its process namespace (lxcfs `lookup_initpid_in_store`); here that is
    /// the node's.
    HostPid,
    /// The same, and here it is the pause container's (lxc/lxcfs#543).
    SharedProcesses,
    /// The runtime mounts every volume of such a pod id-mapped; a FUSE file system refuses that unless its daemon asks for it
    /// (Linux 6.12, `FUSE_ALLOW_IDMAP`), which LXCFS does not, and the container would not start (as awslabs/mountpoint-s3#1835).
    UserNamespace,
    /// The runtime is not known to take the mounts: Kata and Sysbox bring their own `/proc`.
    Runtime {
        /// The pod's runtime class, as much of it as is shown.
        class: String,
        /// Those that are allowed.
        allowed: String,
    },
    /// The pod mounts the folder of LXCFS itself, or hands to the node what it mounts in one above, as LXCFS's own pods do: it
    /// would wait for files that it has to serve.
    ServesLxcfs {
        /// The folder of LXCFS.
        root: String,
        /// The folder that is mounted.
        folder: String,
    },
    /// The pod's own selector keeps it from the nodes on which LXCFS is ready.
    OtherNodes {
        /// What it asks of their label.
        value: String,
    },
    /// Pod Security admission, which comes after us, would refuse the pod for its hostPath volumes.
    PodSecurity {
        /// The namespace.
        namespace: String,
        /// Its level.
        level: PodSecurity,
        /// Whether the namespace says so itself.
        is_labelled: bool,
    },
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidSetting(what) => f.write_str(what),
            Self::Mirror => f.write_str("it is the mirror of a static pod, which the kubelet runs from its own file"),
            Self::Windows => f.write_str("it runs on Windows, where there is no /proc"),
            Self::HostPid => {
                f.write_str("it has hostPID, so LXCFS would take its processes for the node's")
            }
            Self::SharedProcesses => f.write_str(
                "it has shareProcessNamespace, so LXCFS would show the limits of the pause container",
            ),
            Self::UserNamespace => f.write_str(
                "it has hostUsers: false, and its containers would not start, because LXCFS cannot be mounted id-mapped",
            ),
            Self::Runtime { class, allowed } => {
                write!(f, "its runtimeClassName {class:?} is not among those that take the mounts ({allowed})")
            }
            Self::ServesLxcfs { root, folder } if root == folder => {
                write!(f, "it mounts {root} itself, as the pods that run LXCFS do")
            }
            Self::ServesLxcfs { root, folder } => write!(
                f,
                "it mounts {folder}, above {root}, with mountPropagation Bidirectional, as the pods that run LXCFS do"
            ),
            Self::OtherNodes { value } => write!(
                f,
                "its nodeSelector wants {READY} to be {:?}, so it would wait for files on a node where LXCFS is not ready",
                shortened(value)
            ),
            Self::PodSecurity { namespace, level, is_labelled } => {
                let level = level.as_str();
                if *is_labelled {
                    write!(f, "namespace {namespace:?} enforces Pod Security {level}, which refuses hostPath volumes")
                } else {
                    write!(
                        f,
                        "namespace {namespace:?} has no label {ENFORCE}, and podSecurityDefault {level} refuses hostPath volumes"
                    )
                }
            }
        }
    }
}

/// The reasons that the pod itself gives, without a look at its volumes.
pub(super) fn of_pod(config: &Config, pod: Pod<'_>, opt_in: &PodOptIn<'_>) -> Vec<SkipReason> {
    let mut skips = Vec::new();
    skips.extend(opt_in.invalid().map(SkipReason::InvalidSetting));
    if opt_in.is_mirror {
        skips.push(SkipReason::Mirror);
    }
    let is_windows = |field| pod.text(field).is_some_and(|os| os.eq_ignore_ascii_case("windows"));
    let has_options = pod.field(WINDOWS_OPTIONS).is_some_and(|options| options.shape() != Shape::Null);
    if [OS, NODE_OS, OLD_NODE_OS].into_iter().any(is_windows) || has_options {
        skips.push(SkipReason::Windows);
    }
    if pod.is_true(HOST_PID) {
        skips.push(SkipReason::HostPid);
    }
    if pod.is_true(SHARED_PROCESSES) {
        skips.push(SkipReason::SharedProcesses);
    }
    if pod.field(HOST_USERS).is_some_and(|value| value.get() == "false") {
        skips.push(SkipReason::UserNamespace);
    }
    if let Some(class) = pod.text(RUNTIME_CLASS)
        && !class.is_empty()
        && !config.runtimes.iter().any(|allowed| *allowed == class)
    {
        let allowed = config.runtimes.join(", ");
        skips.push(SkipReason::Runtime {
            class: shortened(&class).into_owned(),
            allowed: if allowed.is_empty() { "none".to_owned() } else { allowed },
        });
    }
    skips
}

/// The reason that the volumes give, and how they are mounted.
pub(super) fn of_volumes<'a>(
    config: &Config,
    pod: Pod<'a>,
    volumes: &mut Volumes<'a>,
) -> Result<Option<SkipReason>, Unreadable> {
    if volumes.depends_on_mounts() {
        // Read once more where something is to be added; few pods have such volumes.
        for list in [List::Containers, List::Init] {
            Container::read(pod, list, volumes, &mut Vec::new())?;
        }
    }
    let root = config.root.path().to_owned();
    Ok(volumes.serves.clone().map(|folder| SkipReason::ServesLxcfs { root, folder }))
}

/// The reason that the pod's node selector gives, where nodes are chosen by LXCFS.
pub(super) fn of_selector(config: &Config, pod: Pod<'_>) -> Result<Option<SkipReason>, Unreadable> {
    if config.node_readiness == NodeReadiness::Ignore {
        return Ok(None);
    }
    Ok(readiness::other_selector(pod)?.map(|value| SkipReason::OtherNodes { value }))
}

/// The reason that the namespace gives against hostPath volumes.
pub(super) fn of_namespace(
    config: &Config,
    namespace: &str,
    labels: &BTreeMap<String, String>,
) -> Option<SkipReason> {
    let label = labels.get(ENFORCE);
    let level = label.map_or(config.pod_security_default, |value| PodSecurity::from_label(value));
    (level != PodSecurity::Privileged).then(|| SkipReason::PodSecurity {
        namespace: namespace.to_owned(),
        level,
        is_labelled: label.is_some(),
    })
}
