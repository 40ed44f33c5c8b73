//! Writes an image as a docker-archive, which `ctr images import` and `docker load` read.
//!
//! The archive is a tar of three files: `manifest.json`, the config, named by its digest, and one layer, which is a tar
//! of the root directory. It has no times, no owners and no order of the host: the same root directory gives the same
//! bytes. containerd compares the layer with the digest in the config.

use std::io::Write;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::rootfs::{Content, Entry, RootFs};

/// The time in the config and in every header.
const CREATED: &str = "1970-01-01T00:00:00Z";

/// The `config` of an image config: `Entrypoint`, `Cmd`, `User`, …
pub(super) type Start = Value;

/// Writes the archive of an image. `read` returns the bytes of a file.
pub(super) fn write(
    to: &mut impl Write,
    name: &str,
    root: &RootFs,
    start: &Start,
    read: impl FnMut(&Content) -> Result<Vec<u8>>,
) -> Result<()> {
    let layer = layer(root, read)?;
    let config = serde_json::to_vec(&json!({
        "architecture": architecture(),
        "os": "linux",
        "created": CREATED,
        "config": start,
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", digest(&layer))] },
        "history": [{ "created": CREATED, "created_by": "durward-e2e" }],
    }))?;
    let config_name = format!("{}.json", digest(&config));
    let manifest = serde_json::to_vec(&json!([
        { "Config": &config_name, "RepoTags": [name], "Layers": ["layer.tar"] }
    ]))?;
    let mut archive = tar::Builder::new(to);
    for (name, bytes) in [("manifest.json", &manifest), (&config_name, &config), ("layer.tar", &layer)] {
        let mut header = header(tar::EntryType::Regular, 0o644);
        header.set_size(bytes.len() as u64);
        archive.append_data(&mut header, name, bytes.as_slice()).context("cannot write an image")?;
    }
    archive.into_inner().and_then(Write::flush).context("cannot write an image")
}

/// Returns the root directory as a tar in memory. The largest has 40 MB.
fn layer(root: &RootFs, mut read: impl FnMut(&Content) -> Result<Vec<u8>>) -> Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, entry) in root.entries()? {
        let name = path.trim_start_matches('/');
        let added = match entry {
            Entry::Folder { mode } => {
                let mut header = header(tar::EntryType::Directory, *mode);
                header.set_size(0);
                tar.append_data(&mut header, format!("{name}/"), std::io::empty())
            }
            Entry::Link { target } => {
                let mut header = header(tar::EntryType::Symlink, 0o777);
                header.set_size(0);
                tar.append_link(&mut header, name, target)
            }
            Entry::File { mode, content } => {
                let bytes = read(content)?;
                let mut header = header(tar::EntryType::Regular, *mode);
                header.set_size(bytes.len() as u64);
                tar.append_data(&mut header, name, bytes.as_slice())
            }
        };
        added.with_context(|| format!("cannot put {path} into an image"))?;
    }
    tar.into_inner().context("cannot write a layer")
}

fn header(kind: tar::EntryType, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;

    use super::*;

    fn archive(root: &RootFs) -> Vec<u8> {
        let mut bytes = Vec::new();
        let start = json!({ "Cmd": ["sh"] });
        write(&mut bytes, "durward.test/x:1", root, &start, |content| match content {
            Content::Text(text) => Ok(text.as_bytes().to_vec()),
            other => anyhow::bail!("{other:?} is not asked for here"),
        })
        .unwrap();
        bytes
    }

    fn files(tar: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(tar);
        let entries = archive.entries().unwrap().map(Result::unwrap);
        entries
            .map(|mut entry| {
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes).unwrap();
                (entry.path().unwrap().display().to_string(), bytes)
            })
            .collect()
    }

    #[test]
    fn the_archive_does_not_depend_on_the_order_of_entries() {
        let one = RootFs::new().text("/a/b", "b").link("/l", "a/b").text("/c", "c");
        let two = RootFs::new().text("/c", "c").text("/a/b", "other").link("/l", "a/b").text("/a/b", "b");
        assert_eq!(archive(&one), archive(&two));
        assert_ne!(archive(&one), archive(&one.clone().text("/c", "d")));
    }

    #[test]
    fn the_manifest_names_the_config_and_the_config_the_layer() {
        let files = files(&archive(&RootFs::new().text("/etc/motd", "hello\n")));
        let manifest: Value = serde_json::from_slice(&files["manifest.json"]).unwrap();
        assert_eq!(manifest[0]["RepoTags"], json!(["durward.test/x:1"]));
        let name = manifest[0]["Config"].as_str().unwrap();
        let config = &files[name];
        assert_eq!(name, format!("{}.json", digest(config)));
        let config: Value = serde_json::from_slice(config).unwrap();
        assert_eq!(config["config"]["Cmd"], json!(["sh"]));
        let layer = &files[manifest[0]["Layers"][0].as_str().unwrap()];
        assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", digest(layer)));
        assert_eq!(super::tests::files(layer)["etc/motd"], b"hello\n");
    }

    #[test]
    fn keeps_links_and_modes_and_sets_the_owner_root() {
        let root = RootFs::new()
            .link("/bin/ls", "busybox")
            .link("/dangling", "/nowhere")
            .text(&"/n".repeat(120), "n");
        let files = files(&archive(&root));
        let mut layer = tar::Archive::new(files["layer.tar"].as_slice());
        let mut links = BTreeMap::new();
        for entry in layer.entries().unwrap().map(Result::unwrap) {
            let header = entry.header();
            let owner = (header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap());
            assert_eq!(owner, (0, 0, 0));
            let path = entry.path().unwrap().display().to_string();
            if path == "tmp/" {
                assert_eq!(header.mode().unwrap(), 0o1777);
            }
            if let Some(target) = entry.link_name().unwrap() {
                links.insert(path, target.display().to_string());
            }
        }
        let expected = [("bin/ls", "busybox"), ("dangling", "/nowhere")];
        assert_eq!(links, expected.map(|(path, target)| (path.to_owned(), target.to_owned())).into());
    }

    #[test]
    fn fails_if_a_file_cannot_be_read() {
        let said = write(&mut Vec::new(), "x:1", &RootFs::new(), &json!({}), |_| anyhow::bail!("gone"));
        assert_eq!(said.unwrap_err().to_string(), "gone");
    }
}
