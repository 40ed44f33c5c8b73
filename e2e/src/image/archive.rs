//! Writes an image as a docker-archive, which `ctr images import` and `docker load` read.
//!
//! The archive is a tar of three files: `manifest.json`, the config, named by its digest, and one layer, which is a tar
//! of the root directory. containerd compares the layer with the digest in the config. Every file belongs to root and is
//! dated 1970.

use std::fs::File;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::EntryType;

use super::rootfs::{Content, Entry, RootFs};

/// The time in the config, as in every header.
const CREATED: &str = "1970-01-01T00:00:00Z";

/// Writes the archive of an image. `read` returns the bytes of a file.
pub(super) fn write(
    path: &Path,
    name: &str,
    root: &RootFs,
    config: &Value,
    read: impl FnMut(&Content) -> Result<Vec<u8>>,
) -> Result<()> {
    let layer = layer(root, read)?;
    let config = serde_json::to_vec(&json!({
        "architecture": architecture(),
        "os": "linux",
        "created": CREATED,
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", digest(&layer))]},
        "history": [{"created": CREATED, "created_by": "durward-e2e"}],
    }))?;
    let config_name = format!("{}.json", digest(&config));
    let manifest = serde_json::to_vec(&json!([
        {"Config": &config_name, "RepoTags": [name], "Layers": ["layer.tar"]}
    ]))?;
    let unfinished = path.with_extension("unfinished");
    let write = || {
        std::fs::create_dir_all(path.parent().unwrap_or(path))?;
        let mut archive = tar::Builder::new(File::create(&unfinished)?);
        for (name, bytes) in [("manifest.json", &manifest), (&config_name, &config), ("layer.tar", &layer)] {
            archive.append_data(&mut header(EntryType::Regular, 0o644, bytes), name, bytes.as_slice())?;
        }
        archive.finish()?;
        std::fs::rename(&unfinished, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Returns the root directory as a tar in memory. The largest has 40 MB.
fn layer(root: &RootFs, mut read: impl FnMut(&Content) -> Result<Vec<u8>>) -> Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, entry) in root.entries() {
        let name = path.trim_start_matches('/');
        let added = match entry {
            Entry::Directory { mode } => tar.append_data(
                &mut header(EntryType::Directory, *mode, &[]),
                format!("{name}/"),
                std::io::empty(),
            ),
            Entry::Link { target } => {
                tar.append_link(&mut header(EntryType::Symlink, 0o777, &[]), name, target)
            }
            Entry::File { mode, content } => {
                let bytes = read(content)?;
                tar.append_data(&mut header(EntryType::Regular, *mode, &bytes), name, bytes.as_slice())
            }
        };
        added.with_context(|| format!("cannot put {path} into an image"))?;
    }
    tar.into_inner().context("cannot write a layer")
}

fn header(kind: EntryType, mode: u32, bytes: &[u8]) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(bytes.len() as u64);
    header
}

fn digest(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

/// Returns this host's architecture in the terms of images.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
