//! A volume and a mount, as they are written into a pod.
//!
//! A hostPath volume of type File lets the kubelet hold the container back with a clear event while LXCFS is not there;
//! without a type the runtime would make an empty folder in its place. One volume per file and no subPath, because a subPath
//! into a FUSE file system that went away blocks the pod's end (lxc/lxcfs#683). Read-only, because a writable LXCFS is a way
//! onto the node. No propagation: a file mount has nothing below it.

use serde::Serialize;
use serde_json::value::RawValue;

use super::config::Root;
use super::files::LxcfsFile;

/// A volume that shows one file of the node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NewVolume<'a> {
    name: &'a str,
    host_path: HostPath<'a>,
}

#[derive(Debug, Serialize)]
struct HostPath<'a> {
    path: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
}

impl<'a> NewVolume<'a> {
    /// The volume of this name that shows `source`.
    pub(super) fn of(name: &'a str, source: &'a str) -> Self {
        Self { name, host_path: HostPath { path: source, kind: "File" } }
    }
}

/// A mount of such a volume at the file's place.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NewMount<'a> {
    name: &'a str,
    mount_path: &'static str,
    read_only: bool,
}

impl<'a> NewMount<'a> {
    /// The mount of `file` out of the volume of this name.
    pub(super) fn of(name: &'a str, file: LxcfsFile) -> Self {
        Self { name, mount_path: file.path(), read_only: true }
    }
}

/// One of the two, written already where the volume has its usual name.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Addition<'a> {
    /// As it was written when the configuration was read.
    Usual(&'a RawValue),
    /// A volume of another name.
    Volume(NewVolume<'a>),
    /// A mount of such a volume.
    Mount(NewMount<'a>),
}

impl<'a> Addition<'a> {
    /// The volume of `file`.
    pub(super) fn volume(root: &'a Root, file: LxcfsFile, name: &'a str) -> Self {
        match root.usual_volume(file).filter(|_| name == file.volume()) {
            Some(written) => Self::Usual(written),
            None => Self::Volume(NewVolume::of(name, root.source(file))),
        }
    }

    /// The mount of `file`.
    pub(super) fn mount(root: &'a Root, file: LxcfsFile, name: &'a str) -> Self {
        match root.usual_mount(file).filter(|_| name == file.volume()) {
            Some(written) => Self::Usual(written),
            None => Self::Mount(NewMount::of(name, file)),
        }
    }
}
