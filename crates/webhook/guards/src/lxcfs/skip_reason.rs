//! Reasons why a pod gets no files: LXCFS would show wrong values, or the pod could not start or would be rejected.

use std::collections::BTreeMap;

use admission::Shape;

use super::config::{Config, PodSecurity};
use super::containers::PodContainer;
use super::opt_in::PodOptIn;
use super::pod::{ContainerList, Pod, PodField, Unreadable, shortened};
use super::readiness::{self, READY};
use super::volumes::Volumes;
use ::lxcfs::NodeAffinity;

/// The label of a namespace with its Pod Security level.
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

/// A reason why a pod gets no files, as the end of "this pod gets no files: ".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum SkipReason {
    /// An opt-in setting is invalid.
    #[error("{0}")]
    InvalidSetting(String),
    /// The kubelet runs a static pod from its own file and ignores changes of the mirror pod.
    #[error("it mirrors a static pod, which the kubelet runs from its own file")]
    Mirror,
    /// Windows has no `/proc`.
    #[error("it runs on Windows, which has no /proc")]
    Windows,
    /// LXCFS finds a container by the first process of its pid namespace (lxcfs `lookup_initpid_in_store`), here that of the node.
    #[error("hostPID is true, so LXCFS would show values of the node")]
    HostPid,
    /// As above, but the first process is that of the pause container (lxc/lxcfs#543).
    #[error("shareProcessNamespace is true, so LXCFS would show limits of the pause container")]
    SharedProcesses,
    /// The runtime mounts every volume of such a pod id-mapped. A FUSE file system rejects that unless its daemon allows it (Linux
    /// 6.12, `FUSE_ALLOW_IDMAP`). LXCFS does not, so the container would not start (as awslabs/mountpoint-s3#1835).
    #[error("hostUsers is false, and LXCFS does not support the id-mapped mounts of such pods")]
    UserNamespace,
    /// The runtime is not known to support the mounts. Kata and Sysbox have their own `/proc`.
    #[error("runtimeClassName {class:?} is not one of the runtimeClasses of the guard ({allowed})")]
    RuntimeClass {
        /// The runtime class of the pod, shortened.
        class: String,
        /// The allowed classes.
        allowed: String,
    },
    /// The pod mounts the LXCFS directory, as the pods of LXCFS do. It would wait for files that it must serve.
    #[error("it mounts {0} itself, as pods that run LXCFS do")]
    MountsLxcfs(String),
    /// The pod has a Bidirectional mount above the LXCFS directory, as the pods of LXCFS do.
    #[error(
        "it mounts {parent}, above {path}, with mountPropagation Bidirectional, as pods that run LXCFS do"
    )]
    MountsParent {
        /// The LXCFS directory.
        path: String,
        /// The directory that the pod mounts.
        parent: String,
    },
    /// The pod's node selector excludes the nodes on which LXCFS is ready.
    #[error("its nodeSelector {READY}={value:?} excludes nodes on which LXCFS is ready")]
    OtherNodes {
        /// The value of the label in the selector, shortened.
        value: String,
    },
    /// Pod Security admission, which runs later, would reject the pod because of its hostPath volumes.
    #[error(
        "namespace {namespace:?} enforces Pod Security {level:?}, which forbids hostPath volumes (Durward admin: use mountMethod: auto)"
    )]
    PodSecurityLabel {
        /// The namespace.
        namespace: String,
        /// Its level.
        level: &'static str,
    },
    /// As above, and the level is the configured default.
    #[error(
        "namespace {namespace:?} has no Pod Security label, and podSecurityDefault {level:?} forbids hostPath volumes (Durward admin: use mountMethod: auto)"
    )]
    PodSecurityDefault {
        /// The namespace.
        namespace: String,
        /// The level.
        level: &'static str,
    },
}

/// Returns the reasons in the pod, without its volumes.
pub(super) fn of_pod(config: &Config, pod: Pod<'_>, opt_in: &PodOptIn<'_>) -> Vec<SkipReason> {
    let is_windows = |field| pod.text(field).is_some_and(|os| os.eq_ignore_ascii_case("windows"));
    let has_options =
        pod.field(PodField::WindowsOptions).is_some_and(|options| options.shape() != Shape::Null);
    let is_on_windows =
        [PodField::Os, PodField::NodeOs, PodField::OldNodeOs].into_iter().any(is_windows) || has_options;
    let has_user_namespace = pod.field(PodField::HostUsers).is_some_and(|value| value.get() == "false");
    let mut skips: Vec<SkipReason> = opt_in.invalid().map(SkipReason::InvalidSetting).into_iter().collect();
    let conditions = [
        (opt_in.is_mirror, SkipReason::Mirror),
        (is_on_windows, SkipReason::Windows),
        (pod.is_true(PodField::HostPid), SkipReason::HostPid),
        (pod.is_true(PodField::ShareProcessNamespace), SkipReason::SharedProcesses),
        (has_user_namespace, SkipReason::UserNamespace),
    ];
    skips.extend(conditions.into_iter().filter_map(|(applies, reason)| applies.then_some(reason)));
    if let Some(class) = pod.text(PodField::RuntimeClass)
        && !class.is_empty()
        && !config.runtime_classes.iter().any(|allowed| *allowed == class)
    {
        let allowed = match config.runtime_classes.join(", ") {
            classes if classes.is_empty() => "none".to_owned(),
            classes => classes,
        };
        skips.push(SkipReason::RuntimeClass { class: shortened(&class).into_owned(), allowed });
    }
    skips
}

/// Returns the reason in the volumes and their mounts.
pub(super) fn of_volumes<'a>(
    config: &Config,
    pod: Pod<'a>,
    volumes: &mut Volumes<'a>,
) -> Result<Option<SkipReason>, Unreadable> {
    if volumes.depends_on_mounts() {
        // The containers are read again for the patch. Few pods have such volumes.
        for list in [ContainerList::Containers, ContainerList::Init] {
            PodContainer::read_list(pod, list, volumes, &mut Vec::new())?;
        }
    }
    let path = config.lxcfs_path.as_str();
    Ok(volumes.served_path.clone().map(|served| {
        if served == path {
            SkipReason::MountsLxcfs(served)
        } else {
            SkipReason::MountsParent { path: path.to_owned(), parent: served }
        }
    }))
}

/// Returns the reason in the pod's node selector.
pub(super) fn of_selector(config: &Config, pod: Pod<'_>) -> Result<Option<SkipReason>, Unreadable> {
    if config.node_affinity == NodeAffinity::None {
        return Ok(None);
    }
    let other = readiness::other_selector(pod)?;
    Ok(other.map(|value| SkipReason::OtherNodes { value: shortened(&value).into_owned() }))
}

/// Returns the reason in the namespace against hostPath volumes.
pub(super) fn of_namespace(
    config: &Config,
    namespace: &str,
    labels: &BTreeMap<String, String>,
) -> Option<SkipReason> {
    let label = labels.get(ENFORCE).map(|value| PodSecurity::from_label(value));
    let level = label.unwrap_or(config.pod_security_default);
    if level == PodSecurity::Privileged {
        return None;
    }
    let (namespace, level) = (namespace.to_owned(), level.as_str());
    Some(match label {
        Some(_) => SkipReason::PodSecurityLabel { namespace, level },
        None => SkipReason::PodSecurityDefault { namespace, level },
    })
}
