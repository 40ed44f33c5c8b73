//! The root directory of an image, described before its files are read.
//!
//! Host files are named but not opened. Stripped and compiled files are made only if the archive is not in the cache.
//! [`RootFs::key`] depends on every name, mode and text, and on size, times and inode of every host file, so an
//! upgraded package or a new build gives another image. The paths of host files do not matter.
//!
//! Every file belongs to root, is dated 1970, and has mode 0644 or 0755.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use sha2::{Digest as _, Sha256};

use super::libraries;

/// A root directory.
#[derive(Debug, Clone, Default)]
pub struct RootFs {
    /// By full path, so that parents come first and the order of calls does not matter.
    entries: BTreeMap<String, Entry>,
}

/// An entry of the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entry {
    Folder { mode: u32 },
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
            .folder("/proc", RUNNABLE)
            .folder("/sys", RUNNABLE)
            .folder("/dev", RUNNABLE)
            .folder("/root", 0o700)
            .folder("/tmp", 0o1777)
            .text("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnonroot:x:65532:65532:nonroot:/:/bin/sh\n")
            .text("/etc/group", "root:x:0:\nnonroot:x:65532:\n")
    }

    /// Adds a directory. Parents of files are added automatically.
    #[must_use]
    pub fn folder(self, path: &str, mode: u32) -> Self {
        self.put(path, Entry::Folder { mode })
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

    /// Adds a file of this host at the same path. Links are followed.
    pub fn file(self, path: &str) -> Result<Self> {
        self.file_as(path, Path::new(path))
    }

    /// Adds a file of this host at another path.
    pub fn file_as(self, path: &str, host: &Path) -> Result<Self> {
        let mode = if metadata(host)?.mode() & 0o111 == 0 { READABLE } else { RUNNABLE };
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
        metadata(host)?;
        self.put(path, Entry::File { mode: RUNNABLE, content: Content::Stripped(host.to_owned()) })
            .libraries_of(host)
    }

    /// Adds everything below a directory of this host. Links stay links.
    pub fn tree(self, folder: &Path) -> Result<Self> {
        self.branch(folder, "")
    }

    fn branch(mut self, folder: &Path, below: &str) -> Result<Self> {
        let cannot = || format!("cannot list {}", folder.display());
        for entry in std::fs::read_dir(folder).with_context(cannot)? {
            let host = entry.with_context(cannot)?.path();
            let name = host.file_name().and_then(|name| name.to_str());
            let name = name.with_context(|| format!("{} is no UTF-8", host.display()))?;
            let path = format!("{below}/{name}");
            let kind = std::fs::symlink_metadata(&host).with_context(cannot)?.file_type();
            self = if kind.is_dir() {
                self.folder(&path, RUNNABLE).branch(&host, &path)?
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
            let path = library.to_str().with_context(|| format!("{} is no UTF-8", library.display()))?;
            self = self.file_as(path, &library)?;
        }
        Ok(self)
    }

    /// Replaces an entry of the same path. Parents that exist keep their mode.
    fn put(mut self, path: &str, entry: Entry) -> Self {
        for (at, _) in path.match_indices('/').filter(|(at, _)| *at > 0) {
            self.entries.entry(path[..at].to_owned()).or_insert(Entry::Folder { mode: RUNNABLE });
        }
        self.entries.insert(path.to_owned(), entry);
        self
    }

    /// Returns all entries, parents first. Fails if a path is not absolute or its parent is not a directory.
    pub(super) fn entries(&self) -> Result<impl Iterator<Item = (&str, &Entry)>> {
        for path in self.entries.keys() {
            let is_plain = path.starts_with('/') && !path.ends_with('/');
            let is_straight = !path.split('/').skip(1).any(|part| matches!(part, "" | "." | ".."));
            ensure!(is_plain && is_straight, "{path:?} is not an absolute path");
            let parent = path.rsplit_once('/').map(|(parent, _)| parent).filter(|parent| !parent.is_empty());
            if let Some(parent) = parent {
                let is_folder = matches!(self.entries.get(parent), Some(Entry::Folder { .. }));
                ensure!(is_folder, "{path} is below {parent}, which is not a directory in this image");
            }
        }
        Ok(self.entries.iter().map(|(path, entry)| (path.as_str(), entry)))
    }

    /// Adds the description to a digest.
    pub(super) fn key(&self, hash: &mut Sha256) -> Result<()> {
        let mut add = |bytes: &[u8]| {
            hash.update(bytes.len().to_le_bytes());
            hash.update(bytes);
        };
        for (path, entry) in &self.entries {
            add(path.as_bytes());
            let (kind, mode, host) = match entry {
                Entry::File { mode, content: Content::Host(host) } => ("host", mode, host),
                Entry::File { mode, content: Content::Stripped(host) } => ("stripped", mode, host),
                other => {
                    add(format!("{other:?}").as_bytes());
                    continue;
                }
            };
            add(format!("{kind} {mode:o}").as_bytes());
            let metadata = metadata(host)?;
            for number in [metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()] {
                add(&number.to_le_bytes());
            }
            for number in [metadata.len(), metadata.ino(), metadata.dev()] {
                add(&number.to_le_bytes());
            }
        }
        Ok(())
    }
}

/// Returns the metadata of a host file. The error says how to get the file.
fn metadata(host: &Path) -> Result<Metadata> {
    let metadata = std::fs::metadata(host).with_context(|| {
        format!("{}, which goes into an image, cannot be read: `make prepare` installs it", host.display())
    })?;
    ensure!(metadata.is_file(), "{}, which goes into an image, is not a file", host.display());
    Ok(metadata)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(root: &RootFs) -> String {
        let mut hash = Sha256::new();
        root.key(&mut hash).unwrap();
        format!("{:x}", hash.finalize())
    }

    fn paths(root: &RootFs) -> Vec<String> {
        root.entries().unwrap().map(|(path, _)| path.to_owned()).collect()
    }

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("e2e-root-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn adds_parent_directories_before_a_file() {
        let root = RootFs::default().text("/a/b/c", "").text("/a-b", "");
        assert_eq!(paths(&root), ["/a", "/a-b", "/a/b", "/a/b/c"]);
        let root = RootFs::default().folder("/tmp", 0o1777).text("/tmp/x", "");
        assert_eq!(root.entries["/tmp"], Entry::Folder { mode: 0o1777 }, "a folder keeps its mode");
    }

    #[test]
    fn rejects_paths_below_what_is_not_a_directory() {
        let root = RootFs::default().text("/bin/sh", "").link("/bin", "usr/bin");
        let said = root.entries().err().unwrap().to_string();
        assert_eq!(said, "/bin/sh is below /bin, which is not a directory in this image");
        for path in ["bin/sh", "/bin/", "/bin//sh", "/bin/../sh"] {
            assert!(RootFs::default().text(path, "").entries().is_err(), "{path}");
        }
    }

    #[test]
    fn adds_the_libraries_and_the_loader_of_a_program() {
        let own = std::env::current_exe().unwrap();
        let root = RootFs::default().program_as("/usr/bin/own", &own).unwrap();
        let paths = paths(&root);
        assert!(paths.iter().any(|path| path.ends_with("/libc.so.6")), "{paths:?}");
        assert!(paths.iter().any(|path| path.contains("/ld-linux-")), "{paths:?}");
    }

    #[test]
    fn copies_a_tree_with_its_links() {
        let folder = scratch("tree");
        std::fs::create_dir_all(folder.join("usr/bin")).unwrap();
        std::fs::write(folder.join("usr/bin/start"), "#!/bin/sh\n").unwrap();
        let _ = std::fs::remove_file(folder.join("bin"));
        std::os::unix::fs::symlink("usr/bin", folder.join("bin")).unwrap();
        let root = RootFs::default().tree(&folder).unwrap();
        assert_eq!(paths(&root), ["/bin", "/usr", "/usr/bin", "/usr/bin/start"]);
        assert_eq!(root.entries["/bin"], Entry::Link { target: "usr/bin".to_owned() });
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_key_depends_on_names_modes_texts_and_host_files() {
        let folder = scratch("key");
        let file = folder.join("file");
        std::fs::write(&file, "one").unwrap();
        let root = || RootFs::default().text("/etc/x", "x").file_as("/file", &file).unwrap();
        let first = key(&root());
        assert_eq!(first, key(&root()));
        assert_ne!(first, key(&root().text("/etc/x", "y")));
        assert_ne!(first, key(&root().link("/etc/x", "x")));
        assert_ne!(first, key(&root().folder("/etc", 0o700)));
        // Length and second are the same; the inode differs.
        std::fs::write(folder.join("next"), "two").unwrap();
        std::fs::rename(folder.join("next"), &file).unwrap();
        assert_ne!(first, key(&root()));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_key_does_not_depend_on_the_path_of_a_host_file() {
        let folder = scratch("paths");
        std::fs::write(folder.join("file"), "one").unwrap();
        let _ = std::fs::remove_file(folder.join("again"));
        std::os::unix::fs::symlink(&folder, folder.join("again")).unwrap();
        let root = |host: &str| RootFs::default().file_as("/file", &folder.join(host)).unwrap();
        assert_eq!(key(&root("file")), key(&root("again/file")));
        assert_ne!(key(&root("file")), key(&RootFs::default().text("/file", "one")));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn reports_a_missing_host_file_and_one_that_is_a_directory() {
        let error = RootFs::new().program("/nowhere/bin/lxcfs").unwrap_err().to_string();
        assert!(error.contains("/nowhere/bin/lxcfs") && error.contains("make prepare"), "{error}");
        let error = RootFs::new().file("/etc").unwrap_err().to_string();
        assert_eq!(error, "/etc, which goes into an image, is not a file");
    }
}
