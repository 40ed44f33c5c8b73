//! Definitions that the lxcfs guard and the agents on nodes share: the files of LXCFS, the settings that hold on nodes, and the label,
//! annotation and resource of a node.
//!
//! The guard relies on nodes by `nodeAffinity` and `mountMethod`. The agents of `durward-node` provide what it relies on.

mod file;
mod settings;

pub use file::{FileScope, LxcfsFile, VOLUME_PREFIX, rejection};
pub use settings::{
    GUARD_KEYS, MountMethod, NodeAffinity, NodeSettings, read_files, read_mount_method, read_path,
    refuse_removed,
};

/// The label of a node on which LXCFS serves every configured file; its value is `true`.
pub const READY_LABEL: &str = "durward.dev/lxcfs-ready";

/// The annotation of a node with the state of LXCFS in JSON.
pub const NODE_ANNOTATION: &str = "durward.dev/lxcfs-node";

/// The extended resource by which a container gets the files without a volume.
pub const DEVICE: &str = "durward.dev/lxcfs";
