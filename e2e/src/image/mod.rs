//! Makes the node's container images from files of this host.
//!
//! There is no registry and no image builder. An image has a root directory ([`RootFs`]) of programs of this host with
//! their shared libraries, links and texts. It is written as one docker-archive, which the node imports. Pods name it
//! with `imagePullPolicy: Never`.
//!
//! An archive is in the cache under the hash of everything that it is made of. A new one replaces all but the last used
//! three of its name. `deploy/lxcfs/image` says what is in the LXCFS image.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use self::rootfs::Content;
use crate::binaries::{Binary, cache};
use crate::console::print;
use crate::context::TestContext;
use crate::supervisor::{Output, Supervisor, Tool};

mod archive;
mod libraries;
mod rootfs;

pub use rootfs::RootFs;

/// The time of `cc` and `strip` on a loaded machine.
const TOOL_WITHIN: Duration = Duration::from_secs(300);

/// The number of archives of one name that are kept. Each build of the product makes one of 40 MB.
const KEPT: usize = 3;

/// How long an archive is kept after its last use, because another run can be about to import it.
const KEPT_FOR: Duration = Duration::from_secs(1_800);

const BUSYBOX: &str = "/bin/busybox";

/// Debian's coreutils that images have in `/usr/bin`, because busybox's commands of the same names ask the kernel for what
/// these read from a file.
const COREUTILS: [&str; 24] = [
    "cat", "chmod", "cp", "date", "dd", "df", "echo", "env", "head", "id", "ln", "ls", "mkdir", "mv",
    "nproc", "readlink", "rm", "sleep", "stat", "sync", "tail", "timeout", "touch", "wc",
];

const PAUSE: &str = include_str!("../../images/pause.c");

/// An image of the tests' node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Image {
    /// The container of a pod's namespaces.
    Pause,
    /// Busybox in `/bin`, and in `/usr/bin` the programs that read `/proc`: procps' `free` and `uptime`, coreutils'
    /// `nproc` and others, `getconf`, `lscpu`. Busybox's own `free` and `uptime` ask the kernel, which LXCFS cannot
    /// change.
    Busybox,
    /// The product without symbols: entry point `/usr/bin/durward`, user 65532.
    Durward,
    /// LXCFS as `deploy/lxcfs` ships it.
    Lxcfs,
    /// etcd and etcdctl in `/usr/local/bin`, with busybox.
    Etcd,
}

impl Image {
    /// All images.
    pub const ALL: [Self; 5] = [Self::Pause, Self::Busybox, Self::Durward, Self::Lxcfs, Self::Etcd];

    /// Returns the name that pods use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pause => "durward.test/pause:1",
            Self::Busybox => "durward.test/busybox:1",
            Self::Durward => "durward.test/durward:1",
            Self::Lxcfs => "durward.test/lxcfs:1",
            Self::Etcd => "durward.test/etcd:1",
        }
    }

    /// Returns its docker-archive, from the cache or made now, which takes a second or two. The product or etcd is
    /// built first if necessary.
    pub fn build(self, context: &TestContext) -> Result<PathBuf> {
        self.recipe(context)?.build(&context.supervisor()?)
    }

    /// Returns its recipe, for a case that changes it.
    pub fn recipe(self, context: &TestContext) -> Result<Recipe> {
        let recipe = match self {
            Self::Pause => Ok(Recipe::new(self.name(), RootFs::default().compiled("/pause", PAUSE))
                .starting(json!({ "Entrypoint": ["/pause"] }))),
            Self::Busybox => {
                busybox().map(|root| Recipe::new(self.name(), root).starting(json!({ "Cmd": ["sh"] })))
            }
            Self::Durward => durward(&context.durward_program()?).map(|root| {
                Recipe::new(self.name(), root)
                    .starting(json!({ "Entrypoint": ["/usr/bin/durward"], "User": "65532:65532" }))
            }),
            Self::Lxcfs => lxcfs().map(|root| {
                Recipe::new(self.name(), root).starting(json!({ "Cmd": ["/usr/bin/lxcfs", "-v"] }))
            }),
            Self::Etcd => etcd(&context.supervisor()?)
                .map(|root| Recipe::new(self.name(), root).starting(json!({ "Cmd": ["etcd"] }))),
        };
        recipe.with_context(|| format!("image {}", self.name()))
    }
}

fn busybox() -> Result<RootFs> {
    let mut root = RootFs::new().program(BUSYBOX)?;
    let applets = Command::new(BUSYBOX).arg("--list").output().context("cannot run busybox --list")?;
    ensure!(applets.status.success(), "busybox --list ends with {}", applets.status);
    for applet in String::from_utf8_lossy(&applets.stdout).lines().filter(|applet| *applet != "busybox") {
        root = root.link(&format!("/bin/{applet}"), "busybox");
    }
    for name in COREUTILS.iter().chain(&["free", "uptime", "vmstat", "getconf", "lscpu"]) {
        root = root.program(&format!("/usr/bin/{name}"))?;
    }
    Ok(root)
}

/// The directory of public CAs exists and is empty.
fn durward(program: &Path) -> Result<RootFs> {
    RootFs::new().folder("/etc/ssl/certs", 0o755).stripped_as("/usr/bin/durward", program)
}

fn etcd(supervisor: &Arc<Supervisor>) -> Result<RootFs> {
    busybox()?
        .program_as("/usr/local/bin/etcd", &Binary::Etcd.path(supervisor)?)?
        .program_as("/usr/local/bin/etcdctl", &Binary::Etcdctl.path(supervisor)?)
}

/// Returns the files that `deploy/lxcfs/image/files` lists, and those of the directory `root` next to it.
fn lxcfs() -> Result<RootFs> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/lxcfs/image");
    let list = folder.join("files");
    let text = std::fs::read_to_string(&list).with_context(|| format!("cannot read {}", list.display()))?;
    let mut root = RootFs::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (path, package) = line
            .split_once(' ')
            .with_context(|| format!("{}: no package stands behind {line}", list.display()))?;
        let path = path.replace("TRIPLET", &format!("{}-linux-gnu", std::env::consts::ARCH));
        root = root.program(&path).with_context(|| {
            format!("deploy/lxcfs/image/files lists {path}, of Debian's package {}", package.trim())
        })?;
    }
    let own = folder.join("root");
    if own.is_dir() { root.tree(&own) } else { Ok(root) }
}

/// The name, root directory and config of an image.
#[derive(Debug, Clone)]
pub struct Recipe {
    name: String,
    root: RootFs,
    start: Value,
}

impl Recipe {
    /// Makes a recipe with a PATH and without a command.
    pub fn new(name: &str, root: RootFs) -> Self {
        let start = json!({
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "WorkingDir": "/",
        });
        Self { name: name.to_owned(), root, start }
    }

    /// Adds fields to the image's config: `Entrypoint`, `Cmd`, `User`, …
    #[must_use]
    pub fn starting(mut self, with: Value) -> Self {
        if let (Value::Object(start), Value::Object(with)) = (&mut self.start, with) {
            start.extend(with);
        }
        self
    }

    /// Returns the same image with another name and a changed root directory.
    pub fn changed(self, name: &str, root: impl FnOnce(RootFs) -> Result<RootFs>) -> Result<Self> {
        Ok(Self { name: name.to_owned(), root: root(self.root)?, start: self.start })
    }

    /// Returns the docker-archive, from the cache or made now.
    pub fn build(&self, supervisor: &Arc<Supervisor>) -> Result<PathBuf> {
        self.build_in(&cache()?.join("images"), |content| bytes(content, supervisor))
            .with_context(|| format!("image {}", self.name))
    }

    fn build_in(&self, folder: &Path, read: impl FnMut(&Content) -> Result<Vec<u8>>) -> Result<PathBuf> {
        let (short, key) = (self.short(), self.key()?);
        let path = folder.join(format!("{short}-{key}.tar"));
        if is_there(&path) {
            return Ok(path);
        }
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        // If another run makes the same image, this waits for it. The kernel releases the lock with the process.
        let lock = File::create(folder.join(format!("{short}.lock")));
        let lock = lock.context("cannot make the lock of an image")?;
        lock.lock().context("cannot lock an image")?;
        if is_there(&path) {
            return Ok(path);
        }
        let began = Instant::now();
        let unfinished = folder.join(format!("{short}.unfinished"));
        let file =
            File::create(&unfinished).with_context(|| format!("cannot write {}", unfinished.display()))?;
        archive::write(&mut BufWriter::new(file), &self.name, &self.root, &self.start, read)?;
        // A build can replace the product meanwhile.
        ensure!(self.key()? == key, "a file of this host changed while it was copied: run again");
        std::fs::rename(&unfinished, &path)
            .with_context(|| format!("cannot move {} into place", path.display()))?;
        remove_old(folder, &format!("{short}-"), &path);
        print(format_args!("made image {} in {} ms", self.name, began.elapsed().as_millis()));
        Ok(path)
    }

    /// Returns the name for a file: `lxcfs_1` for `durward.test/lxcfs:1`. No other name starts with it and continues
    /// with a dash.
    fn short(&self) -> String {
        let name = self.name.rsplit_once('/').map_or(self.name.as_str(), |(_, name)| name);
        name.replace([':', '-'], "_")
    }

    /// Returns a digest of everything that the image is made of.
    fn key(&self) -> Result<String> {
        let mut hash = Sha256::new();
        // The number changes with the code that makes images.
        hash.update(format!("making 1\n{}\n{}\n", self.name, self.start));
        self.root.key(&mut hash)?;
        Ok(hash.finalize().iter().take(8).fold(String::new(), |key, byte| key + &format!("{byte:02x}")))
    }
}

/// Returns whether an archive exists, and marks it as used now.
fn is_there(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    // If this fails, the archive is only deleted earlier.
    let _ = file.set_modified(SystemTime::now());
    true
}

/// Deletes archives with this prefix, except the new one, the last used ones up to [`KEPT`], and those used lately.
fn remove_old(folder: &Path, beginning: &str, new: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut others: Vec<(SystemTime, PathBuf)> = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(beginning)))
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .filter(|(_, path)| path != new)
        .collect();
    others.sort_unstable();
    for (used, path) in others.iter().rev().skip(KEPT - 1) {
        if used.elapsed().is_ok_and(|age| age > KEPT_FOR) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Returns the bytes of a file, which is made first if necessary.
fn bytes(content: &Content, supervisor: &Arc<Supervisor>) -> Result<Vec<u8>> {
    let read = |path: &Path| std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    match content {
        Content::Text(text) => Ok(text.as_bytes().to_vec()),
        Content::Host(host) => read(host),
        Content::Stripped(host) => made(supervisor, |to| {
            Tool::new("strip", "strip").arguments(["-o", to]).argument(host.display().to_string())
        })
        .with_context(|| format!("cannot strip {} (Debian's package binutils, with gcc)", host.display())),
        Content::Compiled(source) => made(supervisor, |to| {
            Tool::new("cc", "cc").arguments(["-x", "c", "-Os", "-static", "-s", "-o", to, "-"]).input(source)
        })
        .context("cannot compile a static C program (Debian's packages gcc and libc6-dev: make prepare)"),
    }
}

/// Returns the bytes that a tool writes to a file.
fn made(supervisor: &Arc<Supervisor>, tool: impl FnOnce(&str) -> Tool) -> Result<Vec<u8>> {
    static NUMBERS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBERS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let to = supervisor.work().join(format!("made-for-an-image-{number}"));
    let told = to.to_str().with_context(|| format!("{} is no UTF-8", to.display()))?;
    supervisor.run(tool(told), TOOL_WITHIN).and_then(Output::succeeded)?;
    let bytes = std::fs::read(&to).with_context(|| format!("cannot read {}", to.display()))?;
    let _ = std::fs::remove_file(&to);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("e2e-image-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        folder
    }

    fn text_only(content: &Content) -> Result<Vec<u8>> {
        match content {
            Content::Text(text) => Ok(text.as_bytes().to_vec()),
            other => anyhow::bail!("{other:?} is not asked for here"),
        }
    }

    #[test]
    fn makes_an_image_once() {
        let folder = scratch("once");
        let recipe = Recipe::new("durward.test/x:1", RootFs::new());
        let path = recipe.build_in(&folder, text_only).unwrap();
        let again = recipe.build_in(&folder, |_| anyhow::bail!("it is in the cache")).unwrap();
        assert_eq!(path, again);
        let other = recipe.clone().starting(json!({ "User": "1" })).build_in(&folder, text_only).unwrap();
        assert_ne!(path, other);
        let named = recipe.changed("durward.test/x:2", Ok).unwrap().build_in(&folder, text_only).unwrap();
        assert!(named.display().to_string().contains("/x_2-"), "{}", named.display());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn keeps_no_archive_after_an_error() {
        let folder = scratch("failed");
        let recipe = Recipe::new("durward.test/x:1", RootFs::new());
        assert!(recipe.build_in(&folder, |_| anyhow::bail!("gone")).is_err());
        assert!(recipe.build_in(&folder, |_| anyhow::bail!("gone")).is_err());
        recipe.build_in(&folder, text_only).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn keeps_no_archive_if_a_file_changes_while_it_is_copied() {
        let folder = scratch("changing");
        std::fs::create_dir_all(&folder).unwrap();
        let host = folder.join("host");
        std::fs::write(&host, "one").unwrap();
        let recipe = Recipe::new("durward.test/x:1", RootFs::new().file_as("/x", &host).unwrap());
        let said = recipe.build_in(&folder, |_| {
            std::fs::write(&host, "more than one").unwrap();
            Ok(Vec::new())
        });
        assert!(said.unwrap_err().to_string().contains("changed while it was copied"));
        let mut paths = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let left = paths.find(|path| path.extension().is_some_and(|end| end == "tar"));
        assert_eq!(left, None);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn of_one_name_the_last_three_stay_and_what_was_used_lately() {
        let folder = scratch("old");
        std::fs::create_dir_all(&folder).unwrap();
        let used = |name: &str, before: Duration| {
            File::create(folder.join(name)).unwrap().set_modified(SystemTime::now() - before).unwrap();
        };
        for age in 2..6 {
            used(&format!("x_1-{age}.tar"), age * KEPT_FOR);
        }
        used("x_1_2-0.tar", 9 * KEPT_FOR);
        let made = Recipe::new("durward.test/x:1", RootFs::new()).build_in(&folder, text_only).unwrap();
        let stays = |name: &str| folder.join(name).exists();
        assert!(made.exists() && stays("x_1-2.tar") && stays("x_1-3.tar"), "the last three");
        assert!(!stays("x_1-4.tar") && !stays("x_1-5.tar"));
        assert!(stays("x_1_2-0.tar"), "another image's");

        for number in 0..4 {
            used(&format!("x_1-now-{number}.tar"), Duration::ZERO);
        }
        let other = Recipe::new("durward.test/x:1", RootFs::new()).starting(json!({ "User": "1" }));
        other.build_in(&folder, text_only).unwrap();
        assert!(
            (0..4).all(|number| stays(&format!("x_1-now-{number}.tar"))),
            "somebody may be about to import it"
        );
        assert!(!stays("x_1-2.tar"));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn busybox_has_its_applets_and_the_programs_that_read_proc() {
        let root = busybox().unwrap();
        let paths: Vec<String> = root.entries().unwrap().map(|(path, _)| path.to_owned()).collect();
        for path in ["/bin/sh", "/bin/grep", "/usr/bin/free", "/usr/bin/uptime", "/usr/bin/nproc", "/tmp"] {
            assert!(paths.iter().any(|has| has == path), "{path}");
        }
    }

    #[test]
    fn lxcfs_has_the_listed_files_and_their_libraries() {
        let root = lxcfs().unwrap();
        let paths: Vec<String> = root.entries().unwrap().map(|(path, _)| path.to_owned()).collect();
        for end in ["/usr/bin/lxcfs", "/lxcfs/liblxcfs.so", "/libfuse3.so.3", "/libc.so.6"] {
            assert!(paths.iter().any(|path| path.ends_with(end)), "{end}: {paths:?}");
        }
    }
}
