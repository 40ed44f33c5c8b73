//! What an image holds: a root folder, described before anything of it is read.
//!
//! A description is cheap: host files are named and looked at, not opened, and what has to be made (stripped,
//! compiled) is made only when an archive of it is not in the cache. Its [`Root::key`] changes with every
//! name, mode and text, and with the size, the times and the inode of every host file, so an upgraded package
//! or a new build is another image. By which path a host file was found says nothing.
//!
//! Everything in an image belongs to root, is dated 1970 and is either readable or also executable by all:
//! nothing of the host's owners, dates and odd modes goes along.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use sha2::{Digest as _, Sha256};

use super::{libraries, package};

/// A root folder.
#[derive(Debug, Clone, Default)]
pub struct RootFs {
    /// By full path, so that parents come before what is in them and every order of describing gives one order.
    entries: BTreeMap<String, Entry>,
}

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entry {
    Folder { mode: u32 },
    File { mode: u32, content: Content },
    Link { target: String },
}

/// Where a file's bytes come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    /// Written here.
    Text(String),
    /// A file of this host, as it is.
    Host(PathBuf),
    /// A program of this host without its symbols: a debug build is two thirds symbols.
    Stripped(PathBuf),
    /// A C program, compiled static.
    Compiled(String),
}

/// Of a file that anyone may read, and of one that anyone may run.
const READABLE: u32 = 0o644;
const RUNNABLE: u32 = 0o755;

impl RootFs {
    /// What any root folder has: where the runtime mounts, a place for temporary files, and the users root and
    /// nonroot (65532).
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

    /// A folder. Those that files need are there by themselves.
    #[must_use]
    pub fn folder(self, path: &str, mode: u32) -> Self {
        self.put(path, Entry::Folder { mode })
    }

    /// A file with this text.
    #[must_use]
    pub fn text(self, path: &str, text: &str) -> Self {
        self.put(path, Entry::File { mode: READABLE, content: Content::Text(text.to_owned()) })
    }

    /// A symbolic link. Where it leads to is nobody's concern until somebody follows it.
    #[must_use]
    pub fn link(self, path: &str, target: &str) -> Self {
        self.put(path, Entry::Link { target: target.to_owned() })
    }

    /// A C program, compiled static.
    #[must_use]
    pub fn compiled(self, path: &str, source: &str) -> Self {
        self.put(path, Entry::File { mode: RUNNABLE, content: Content::Compiled(source.to_owned()) })
    }

    /// A file of this host at the same path; links are followed. Nothing else comes with it.
    pub fn file(self, path: &str) -> Result<Self> {
        self.file_as(path, Path::new(path))
    }

    /// A file of this host under another name. Nothing else comes with it.
    pub fn file_as(self, path: &str, host: &Path) -> Result<Self> {
        let mode = if look(host)?.mode() & 0o111 == 0 { READABLE } else { RUNNABLE };
        Ok(self.put(path, Entry::File { mode, content: Content::Host(host.to_owned()) }))
    }

    /// A program or a shared library of this host at the same path, with all the libraries that it needs and
    /// the loader.
    pub fn program(self, path: &str) -> Result<Self> {
        self.program_as(path, Path::new(path))
    }

    /// The same under another name.
    pub fn program_as(self, path: &str, host: &Path) -> Result<Self> {
        self.file_as(path, host)?.libraries_of(host)
    }

    /// The same, and without the symbols.
    pub fn stripped_as(self, path: &str, host: &Path) -> Result<Self> {
        look(host)?;
        self.put(path, Entry::File { mode: RUNNABLE, content: Content::Stripped(host.to_owned()) })
            .libraries_of(host)
    }

    /// Everything below a folder of this host, as if that were the root. Links stay links.
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

    /// The last description of a path holds, but a folder that somebody needs does not change one that is there.
    fn put(mut self, path: &str, entry: Entry) -> Self {
        for (at, _) in path.match_indices('/').filter(|(at, _)| *at > 0) {
            self.entries.entry(path[..at].to_owned()).or_insert(Entry::Folder { mode: RUNNABLE });
        }
        self.entries.insert(path.to_owned(), entry);
        self
    }

    /// All that stands in it, parents first. An error if a path is none, or lies below what is no folder.
    pub(super) fn entries(&self) -> Result<impl Iterator<Item = (&str, &Entry)>> {
        for path in self.entries.keys() {
            let is_plain = path.starts_with('/') && !path.ends_with('/');
            let is_straight = !path.split('/').skip(1).any(|part| matches!(part, "" | "." | ".."));
            ensure!(is_plain && is_straight, "{path:?} is no full path for an image");
            let parent = path.rsplit_once('/').map(|(parent, _)| parent).filter(|parent| !parent.is_empty());
            if let Some(parent) = parent {
                let is_folder = matches!(self.entries.get(parent), Some(Entry::Folder { .. }));
                ensure!(is_folder, "{path} lies below {parent}, which is no folder in this image");
            }
        }
        Ok(self.entries.iter().map(|(path, entry)| (path.as_str(), entry)))
    }

    /// A digest of the description: equal ones are the same image.
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
            let seen = look(host)?;
            for number in [seen.mtime(), seen.mtime_nsec(), seen.ctime(), seen.ctime_nsec()] {
                add(&number.to_le_bytes());
            }
            for number in [seen.len(), seen.ino(), seen.dev()] {
                add(&number.to_le_bytes());
            }
        }
        Ok(())
    }
}

/// What is known of a host file without reading it. An error says how to get it.
fn look(host: &Path) -> Result<Metadata> {
    let seen = std::fs::metadata(host).map_err(|error| package::missing(host, &error))?;
    ensure!(seen.is_file(), "{} goes into an image and is no file", host.display());
    Ok(seen)
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
    fn the_folders_of_a_file_come_with_it_and_before_it() {
        let root = RootFs::default().text("/a/b/c", "").text("/a-b", "");
        assert_eq!(paths(&root), ["/a", "/a-b", "/a/b", "/a/b/c"]);
        let root = RootFs::default().folder("/tmp", 0o1777).text("/tmp/x", "");
        assert_eq!(root.entries["/tmp"], Entry::Folder { mode: 0o1777 }, "a folder keeps its mode");
    }

    #[test]
    fn what_lies_below_no_folder_is_told() {
        let root = RootFs::default().text("/bin/sh", "").link("/bin", "usr/bin");
        let said = root.entries().err().unwrap().to_string();
        assert_eq!(said, "/bin/sh lies below /bin, which is no folder in this image");
        for path in ["bin/sh", "/bin/", "/bin//sh", "/bin/../sh"] {
            assert!(RootFs::default().text(path, "").entries().is_err(), "{path}");
        }
    }

    #[test]
    fn a_program_brings_its_libraries_and_its_loader() {
        let own = std::env::current_exe().unwrap();
        let root = RootFs::default().program_as("/usr/bin/own", &own).unwrap();
        let paths = paths(&root);
        assert!(paths.iter().any(|path| path.ends_with("/libc.so.6")), "{paths:?}");
        assert!(paths.iter().any(|path| path.contains("/ld-linux-")), "{paths:?}");
    }

    #[test]
    fn a_tree_is_taken_as_it_stands_and_its_links_stay_links() {
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
    fn the_key_follows_names_modes_texts_and_the_host_s_files() {
        let folder = scratch("key");
        let file = folder.join("file");
        std::fs::write(&file, "one").unwrap();
        let root = || RootFs::default().text("/etc/x", "x").file_as("/file", &file).unwrap();
        let first = key(&root());
        assert_eq!(first, key(&root()));
        assert_ne!(first, key(&root().text("/etc/x", "y")));
        assert_ne!(first, key(&root().link("/etc/x", "x")));
        assert_ne!(first, key(&root().folder("/etc", 0o700)));
        // The same length, and the same second: what tells them apart is that it is another file.
        std::fs::write(folder.join("next"), "two").unwrap();
        std::fs::rename(folder.join("next"), &file).unwrap();
        assert_ne!(first, key(&root()));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_key_is_the_same_by_whatever_path_a_file_is_found() {
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
    fn a_host_file_that_is_missing_is_told_with_its_package() {
        let said = RootFs::new().program("/nowhere/bin/lxcfs").unwrap_err().to_string();
        assert!(said.contains("/nowhere/bin/lxcfs") && said.contains("package lxcfs"), "{said}");
        let said = RootFs::new().file("/etc").unwrap_err().to_string();
        assert_eq!(said, "/etc goes into an image and is no file");
    }
}
