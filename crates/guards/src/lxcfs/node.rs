//! What the parts that run on nodes must know of the guard, and the names by which a node tells how LXCFS does there.
//!
//! They are the other half of `nodeReadiness` and `backend`: what is promised to pods here is kept there (`durward lxcfs-node`,
//! `durward lxcfs-device`).

use super::config::{Backend, Config, DEFAULT_ROOT, NodeReadiness};
use super::files::File;

/// The label of a node on which LXCFS serves every file that pods get; its value is `true`.
pub const READY_LABEL: &str = super::readiness::READY;

/// The annotation of a node that tells how LXCFS does there: JSON.
pub const NODE_ANNOTATION: &str = "durward.dev/lxcfs-node";

/// The extended resource by which a container gets the files without a volume.
pub const DEVICE: &str = super::device::RESOURCE;

/// What holds on every node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnNode {
    /// Where LXCFS is mounted.
    pub root: String,
    /// The files that pods get unless they ask for fewer.
    pub files: Vec<File>,
    /// Whether pods look for [`READY_LABEL`], so that somebody must keep it.
    pub is_label_wanted: bool,
    /// Whether containers may ask for [`DEVICE`], so that somebody must offer it.
    pub is_device_wanted: bool,
}

impl Default for OnNode {
    /// What holds where nobody has configured anything.
    fn default() -> Self {
        Self {
            root: DEFAULT_ROOT.to_owned(),
            files: File::DEFAULT.to_vec(),
            is_label_wanted: false,
            is_device_wanted: false,
        }
    }
}

impl OnNode {
    pub(super) fn of(config: &Config) -> Self {
        Self {
            root: config.root.path().to_owned(),
            files: config.files.iter().collect(),
            is_label_wanted: config.node_readiness != NodeReadiness::Ignore,
            is_device_wanted: config.backend != Backend::Volumes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::config;
    use super::*;

    #[test]
    fn what_is_kept_on_nodes_is_what_pods_look_for() {
        for (written, label, device) in [
            ("{}", false, false),
            ("nodeReadiness: require", true, false),
            ("nodeReadiness: prefer", true, false),
            ("backend: device", false, true),
            ("{backend: auto, nodeReadiness: prefer}", true, true),
        ] {
            let on_node = OnNode::of(&config(written));
            assert_eq!((on_node.is_label_wanted, on_node.is_device_wanted), (label, device), "{written}");
        }
        assert_eq!(OnNode::of(&config("{}")), OnNode::default());
    }
}
