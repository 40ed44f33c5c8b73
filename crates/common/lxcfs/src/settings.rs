//! The keys of the guard's section that hold on nodes.

use std::str::FromStr;

use config::Section;

use crate::file::{LxcfsFile, rejection};

/// The default directory.
const DEFAULT_PATH: &str = "/var/lib/lxcfs";

/// The keys of the section that only the guard reads. An agent that meets another key reports it as unknown.
pub const GUARD_KEYS: [&str; 9] = [
    "includeInitContainers",
    "onlyLimitedContainers",
    "runtimeClasses",
    "podSecurityDefault",
    "mode",
    "onUnknown",
    "controllerUsers",
    "webhook",
    "exempt",
];

/// How files get into a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountMethod {
    /// By hostPath volumes.
    HostPath,
    /// By the extended resource of the device plugin.
    DevicePlugin,
    /// By hostPath volumes if Pod Security allows them, otherwise by the device plugin.
    Auto,
}

/// Whether pods with volumes select nodes with the label of a ready LXCFS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeAffinity {
    /// They do not.
    None,
    /// They prefer such nodes.
    Preferred,
    /// They run on such nodes only.
    Required,
}

/// The settings of the guard that hold on every node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSettings {
    /// The directory where LXCFS is mounted.
    pub root: String,
    /// The files that pods get unless they select fewer.
    pub files: Vec<LxcfsFile>,
    /// Whether pods select [`READY_LABEL`](crate::READY_LABEL).
    pub is_label_wanted: bool,
    /// Whether containers can request [`DEVICE`](crate::DEVICE).
    pub is_device_wanted: bool,
}

impl Default for NodeSettings {
    /// Returns the settings without a configuration.
    fn default() -> Self {
        Self {
            root: DEFAULT_PATH.to_owned(),
            files: LxcfsFile::DEFAULT.to_vec(),
            is_label_wanted: false,
            is_device_wanted: false,
        }
    }
}

impl NodeSettings {
    /// Reads the keys of the guard's section that hold on nodes.
    pub fn read(section: &mut Section<'_>) -> Self {
        refuse_removed(section);
        let (files, root) = (read_files(section), read_path(section));
        let (mount_method, node_affinity) = read_mount_method(section);
        Self {
            root,
            files,
            is_label_wanted: node_affinity != NodeAffinity::None,
            is_device_wanted: mount_method != MountMethod::HostPath,
        }
    }
}

/// Refuses keys of earlier releases.
pub fn refuse_removed(section: &mut Section<'_>) {
    let next =
        "all opt-ins count; to leave pods or namespaces out, set durward.dev/lxcfs=disabled, or exempt them";
    section.removed("optIn", next);
}

/// Reads `files`.
pub fn read_files(section: &mut Section<'_>) -> Vec<LxcfsFile> {
    let names = LxcfsFile::ALL.map(|file| (file.name(), file));
    let files = section.choices_except(
        "files",
        "LXCFS files that a pod gets. A pod can select fewer by the annotation durward.dev/lxcfs-files.",
        &names,
        &LxcfsFile::DEFAULT,
        |name| rejection(name).map(str::to_owned),
    );
    if section.is_empty_list("files") {
        let next = "name at least one file, or remove the lxcfs section".to_owned();
        section.problem("files", "is empty, so no pod would get files", Some(next));
    }
    files
}

/// Reads `lxcfsPath`.
pub fn read_path(section: &mut Section<'_>) -> String {
    let default = CleanPath(DEFAULT_PATH.to_owned());
    let path = section.parsed(
        "lxcfsPath",
        "path",
        "Directory on the nodes where LXCFS is mounted.",
        Some((DEFAULT_PATH, default)),
    );
    path.map_or_else(|| DEFAULT_PATH.to_owned(), |CleanPath(path)| path)
}

/// An absolute path that can be compared with paths of pods.
struct CleanPath(String);

impl FromStr for CleanPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let segments = text.strip_prefix('/').ok_or("is not absolute: it must begin with /")?;
        if segments.is_empty() {
            return Err("is the root directory of the node".to_owned());
        }
        if segments.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
            return Err("is not clean: remove //, /./, /../ and a final /".to_owned());
        }
        if text.contains(|c: char| c == ':' || c.is_control()) {
            return Err("contains a character that is not allowed in a hostPath".to_owned());
        }
        Ok(Self(text.to_owned()))
    }
}

/// Reads `mountMethod` and `nodeAffinity`.
pub fn read_mount_method(section: &mut Section<'_>) -> (MountMethod, NodeAffinity) {
    let method = section.choice(
        "mountMethod",
        "How files get into a pod: hostPath volumes, the devicePlugin, or auto: hostPath volumes if Pod Security allows them, otherwise the device plugin.",
        &[
            ("hostPath", MountMethod::HostPath),
            ("devicePlugin", MountMethod::DevicePlugin),
            ("auto", MountMethod::Auto),
        ],
        MountMethod::HostPath,
    );
    let affinity = section.choice(
        "nodeAffinity",
        "Whether pods with hostPath volumes prefer or require nodes with the label durward.dev/lxcfs-ready.",
        &[
            ("none", NodeAffinity::None),
            ("preferred", NodeAffinity::Preferred),
            ("required", NodeAffinity::Required),
        ],
        NodeAffinity::None,
    );
    if method == MountMethod::DevicePlugin && affinity != NodeAffinity::None {
        section.problem(
            "nodeAffinity",
            "has no effect with mountMethod: devicePlugin, because the scheduler selects nodes that offer the resource",
            Some("remove nodeAffinity, or use mountMethod: auto".to_owned()),
        );
    }
    (method, affinity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_follow_the_configuration() {
        for (written, label, device) in [
            ("{}", false, false),
            ("nodeAffinity: required", true, false),
            ("nodeAffinity: preferred", true, false),
            ("mountMethod: devicePlugin", false, true),
            ("{mountMethod: auto, nodeAffinity: preferred}", true, true),
        ] {
            let root = config::parse("d.yaml", written).unwrap();
            let (settings, _, problems) = config::read("d.yaml", root.as_ref(), NodeSettings::read);
            assert!(problems.is_empty(), "{problems:?}");
            assert_eq!((settings.is_label_wanted, settings.is_device_wanted), (label, device), "{written}");
        }
        let (settings, ..) = config::read("d.yaml", None, NodeSettings::read);
        assert_eq!(settings, NodeSettings::default());
    }
}
