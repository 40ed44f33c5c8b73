//! The settings that hold on nodes, and the names by which a node reports the state of LXCFS.
//!
//! The guard relies on nodes by `nodeAffinity` and `mountMethod`. The agents of `durward-node` provide what it relies on.

use super::DEFAULTS;
use super::config::{self, Config, MountMethod, NodeAffinity};
use super::files::LxcfsFile;
use super::lxcfs_path::DEFAULT_PATH;
use ::config::Section;

/// The label of a node on which LXCFS serves every configured file; its value is `true`.
pub const READY_LABEL: &str = super::readiness::READY;

/// The annotation of a node with the state of LXCFS in JSON.
pub const NODE_ANNOTATION: &str = "durward.dev/lxcfs-node";

/// The extended resource by which a container gets the files without a volume.
pub const DEVICE: &str = super::device::RESOURCE;

/// The settings of the guard that hold on every node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSettings {
    /// The directory where LXCFS is mounted.
    pub root: String,
    /// The files that pods get unless they select fewer.
    pub files: Vec<LxcfsFile>,
    /// Whether pods select [`READY_LABEL`].
    pub is_label_wanted: bool,
    /// Whether containers can request [`DEVICE`].
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
    /// Reads the guard's section.
    pub fn read(section: &mut Section<'_>) -> Self {
        Self::of(&config::read(section, DEFAULTS, crate::NAMESPACE))
    }

    fn of(config: &Config) -> Self {
        Self {
            root: config.lxcfs_path.as_str().to_owned(),
            files: config.files.iter().collect(),
            is_label_wanted: config.node_affinity != NodeAffinity::None,
            is_device_wanted: config.mount_method != MountMethod::HostPath,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::config;
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
            let settings = NodeSettings::of(&config(written));
            assert_eq!((settings.is_label_wanted, settings.is_device_wanted), (label, device), "{written}");
        }
        assert_eq!(NodeSettings::of(&config("{}")), NodeSettings::default());
    }
}
