//! The root directory of an image, described before its files are read.
//!
//! Stripped and compiled files are made when the archive is written. Modes are 0644 or 0755, whatever the host has.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::libraries;

/// A root directory.
#[derive(Debug, Clone, Default)]
pub struct RootFs {
    /// By full path, so that parents come first.
    entries: BTreeMap<String, Entry>,
}

/// An entry of the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entry {
    Directory { mode: u32 },
    File { mode: u32, content: Content },
    Link { target: String },
}

/// The source of a file's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    /// This text.
    Text(String),
    /// A file of this host.
    Host(PathBuf),
    /// A program of this host without symbols, which are two thirds of a debug build.
    Stripped(PathBuf),
    /// A C program, linked statically.
    Compiled(String),
}

/// The modes of files and of programs.
const READABLE: u32 = 0o644;
const RUNNABLE: u32 = 0o755;

impl RootFs {
    /// Makes a root directory with mount points, `/tmp`, and the users root and nonroot (65532).
    pub fn new() -> Self {
        Self::default()
            .directory("/proc", RUNNABLE)
            .directory("/sys", RUNNABLE)
            .directory("/dev", RUNNABLE)
            .directory("/root", 0o700)
            .directory("/tmp", 0o1777)
            .text("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnonroot:x:65532:65532:nonroot:/:/bin/sh\n")
            .text("/etc/group", "root:x:0:\nnonroot:x:65532:\n")
    }

    /// Adds a directory. Parents of files are added automatically.
    #[must_use]
    pub fn directory(self, path: &str, mode: u32) -> Self {
        self.put(path, Entry::Directory { mode })
    }

    /// Adds a file with this text.
    #[must_use]
    pub fn text(self, path: &str, text: &str) -> Self {
        self.put(path, Entry::File { mode: READABLE, content: Content::Text(text.to_owned()) })
    }

    /// Adds a symbolic link. Its target need not exist.
    #[must_use]
    pub fn link(self, path: &str, target: &str) -> Self {
        self.put(path, Entry::Link { target: target.to_owned() })
    }

    /// Adds a C program, linked statically.
    #[must_use]
    pub fn compiled(self, path: &str, source: &str) -> Self {
        self.put(path, Entry::File { mode: RUNNABLE, content: Content::Compiled(source.to_owned()) })
    }

    /// Adds a file of this host at another path. Links are followed.
    pub fn file_as(self, path: &str, host: &Path) -> Result<Self> {
        let mode = if mode_of(host)? & 0o111 == 0 { READABLE } else { RUNNABLE };
        Ok(self.put(path, Entry::File { mode, content: Content::Host(host.to_owned()) }))
    }

    /// Adds a program or a shared library of this host at the same path, with its libraries and the loader.
    pub fn program(self, path: &str) -> Result<Self> {
        self.program_as(path, Path::new(path))
    }

    /// Adds a program at another path, with its libraries.
    pub fn program_as(self, path: &str, host: &Path) -> Result<Self> {
        self.file_as(path, host)?.libraries_of(host)
    }

    /// Adds a program at another path without its symbols, with its libraries.
    pub fn stripped_as(self, path: &str, host: &Path) -> Result<Self> {
        mode_of(host)?;
        self.put(path, Entry::File { mode: RUNNABLE, content: Content::Stripped(host.to_owned()) })
            .libraries_of(host)
    }

    /// Adds everything below a directory of this host. Links stay links.
    pub fn tree(self, directory: &Path) -> Result<Self> {
        self.branch(directory, "")
    }

    fn branch(mut self, directory: &Path, below: &str) -> Result<Self> {
        let cannot = || format!("cannot list {}", directory.display());
        for entry in std::fs::read_dir(directory).with_context(cannot)? {
            let entry = entry.with_context(cannot)?;
            let (host, kind) = (entry.path(), entry.file_type().with_context(cannot)?);
            let path = format!("{below}/{}", entry.file_name().display());
            self = if kind.is_dir() {
                self.directory(&path, RUNNABLE).branch(&host, &path)?
            } else if kind.is_symlink() {
                let target = std::fs::read_link(&host).with_context(cannot)?;
                self.link(&path, &target.display().to_string())
            } else {
                self.file_as(&path, &host)?
            };
        }
        Ok(self)
    }

    fn libraries_of(mut self, program: &Path) -> Result<Self> {
        for library in libraries::of(program)? {
            self = self.file_as(&library.display().to_string(), &library)?;
        }
        Ok(self)
    }

    /// Replaces an entry of the same path. Parents that exist keep their mode.
    fn put(mut self, path: &str, entry: Entry) -> Self {
        for (at, _) in path.match_indices('/').filter(|(at, _)| *at > 0) {
            self.entries.entry(path[..at].to_owned()).or_insert(Entry::Directory { mode: RUNNABLE });
        }
        self.entries.insert(path.to_owned(), entry);
        self
    }

    /// Returns all entries, parents first.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(path, entry)| (path.as_str(), entry))
    }
}

/// Returns the mode of a host file. The error says how to get the file.
fn mode_of(host: &Path) -> Result<u32> {
    let metadata = std::fs::metadata(host).with_context(|| {
        format!("{}, a part of an image, cannot be read: `make prepare` installs it", host.display())
    })?;
    ensure!(metadata.is_file(), "{}, a part of an image, is not a file", host.display());
    Ok(metadata.permissions().mode())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(root: &RootFs) -> Vec<&str> {
        root.entries().map(|(path, _)| path).collect()
    }

    #[test]
    fn adds_parent_directories_before_a_file() {
        let root = RootFs::default().text("/a/b/c", "").text("/a-b", "");
        assert_eq!(paths(&root), ["/a", "/a-b", "/a/b", "/a/b/c"]);
        let root = RootFs::default().directory("/tmp", 0o1777).text("/tmp/x", "");
        assert_eq!(root.entries["/tmp"], Entry::Directory { mode: 0o1777 }, "a directory keeps its mode");
    }

    #[test]
    fn copies_a_tree_with_its_links() {
        let directory = std::env::temp_dir().join(format!("e2e-root-{}", std::process::id()));
        std::fs::create_dir_all(directory.join("usr/bin")).unwrap();
        std::fs::write(directory.join("usr/bin/start"), "#!/bin/sh\n").unwrap();
        std::os::unix::fs::symlink("usr/bin", directory.join("bin")).unwrap();
        let root = RootFs::default().tree(&directory).unwrap();
        std::fs::remove_dir_all(directory).unwrap();
        assert_eq!(paths(&root), ["/bin", "/usr", "/usr/bin", "/usr/bin/start"]);
        assert_eq!(root.entries["/bin"], Entry::Link { target: "usr/bin".to_owned() });
    }

    #[test]
    fn reports_a_missing_host_file_and_one_that_is_a_directory() {
        let error = RootFs::new().program("/nowhere/bin/lxcfs").unwrap_err().to_string();
        assert!(error.contains("/nowhere/bin/lxcfs") && error.contains("make prepare"), "{error}");
        let error = RootFs::new().program("/etc").unwrap_err().to_string();
        assert_eq!(error, "/etc, a part of an image, is not a file");
    }
}
