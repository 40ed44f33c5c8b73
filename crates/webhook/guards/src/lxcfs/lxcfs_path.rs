//! The directory on the nodes where LXCFS is mounted, and the volumes and mounts of its files.
//!
//! A volume has the hostPath type `File`: if LXCFS is not mounted, the kubelet delays the container and reports an event. Without a
//! type, the runtime would create an empty directory instead. Each file has its own volume without a subPath, because a subPath
//! into a crashed FUSE file system blocks the end of the pod (lxc/lxcfs#683). Mounts are read-only, because a writable LXCFS gives
//! access to the node.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use ::lxcfs::LxcfsFile;

/// The directory on the nodes where LXCFS is mounted. It is absolute and clean, so that it can be compared with paths of pods.
#[derive(Debug, Clone)]
pub(super) struct LxcfsPath {
    path: String,
    files: Vec<NodeFile>,
}

/// A file on the nodes, with its volume and mount under the default volume name. Nearly every patch contains these.
#[derive(Debug, Clone)]
struct NodeFile {
    source: String,
    volume: Box<RawValue>,
    mount: Box<RawValue>,
}

impl LxcfsPath {
    /// Returns the LXCFS directory at a clean path.
    pub(super) fn new(path: &str) -> Self {
        let node_file = |file: LxcfsFile| {
            let source = format!("{path}{}", file.path());
            NodeFile {
                volume: volume_json(file.volume(), &source),
                mount: mount_json(file.volume(), file),
                source,
            }
        };
        Self { path: path.to_owned(), files: LxcfsFile::ALL.into_iter().map(node_file).collect() }
    }

    /// Returns the path of the directory.
    pub(super) fn as_str(&self) -> &str {
        &self.path
    }

    /// Returns the path of a file on the nodes.
    pub(super) fn source(&self, file: LxcfsFile) -> &str {
        self.files.get(file as usize).map_or("", |node_file| node_file.source.as_str())
    }

    /// Returns the volume of a file as JSON.
    pub(super) fn volume(&self, file: LxcfsFile, name: &str) -> Cow<'_, RawValue> {
        match self.files.get(file as usize) {
            Some(node_file) if name == file.volume() => Cow::Borrowed(&node_file.volume),
            _ => Cow::Owned(volume_json(name, self.source(file))),
        }
    }

    /// Returns the mount of a file from the volume of this name as JSON.
    pub(super) fn mount(&self, file: LxcfsFile, volume: &str) -> Cow<'_, RawValue> {
        match self.files.get(file as usize) {
            Some(node_file) if volume == file.volume() => Cow::Borrowed(&node_file.mount),
            _ => Cow::Owned(mount_json(volume, file)),
        }
    }

    /// Returns the file with this path on the nodes.
    pub(super) fn file_at(&self, path: &str) -> Option<LxcfsFile> {
        let inner = path.strip_prefix(self.path.as_str())?;
        LxcfsFile::ALL.into_iter().find(|file| file.path() == inner)
    }
}

/// A hostPath volume. Keys are written in the order of this type, as in manifests.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NewVolume<'a> {
    name: &'a str,
    host_path: HostPath<'a>,
}

#[derive(Serialize)]
struct HostPath<'a> {
    path: &'a str,
    r#type: &'static str,
}

/// A mount of such a volume.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NewMount<'a> {
    name: &'a str,
    mount_path: &'static str,
    read_only: bool,
}

fn volume_json(name: &str, path: &str) -> Box<RawValue> {
    json(&NewVolume { name, host_path: HostPath { path, r#type: "File" } })
}

fn mount_json(name: &str, file: LxcfsFile) -> Box<RawValue> {
    json(&NewMount { name, mount_path: file.path(), read_only: true })
}

/// Serializes strings and booleans, which cannot fail.
fn json(value: &impl Serialize) -> Box<RawValue> {
    to_raw_value(value).unwrap_or_default()
}
