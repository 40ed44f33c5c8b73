//! The container images of the real node, made from files of this host.
//!
//! There is no registry to pull from and no engine to build with. An image here is a root folder ([`Root`]):
//! programs of this host with the shared libraries that they need, links, and texts. It is written as one
//! docker-archive, which the node imports; pods name it with `imagePullPolicy: Never`.
//!
//! An archive lies in the cache under the hash of everything that it is made of, so a run that changes nothing
//! finds it within milliseconds. When a new one is made, those of the same name go but for the last used three.
//!
//! What it leaves to others: importing (the node), and what a pod does with an image (the cases). What stands in
//! the LXCFS image is decided where it is shipped: `deploy/lxcfs/image`.

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
mod package;
mod rootfs;

pub use rootfs::RootFs;

/// `cc` and `strip` on a machine that does much else.
const TOOL_WITHIN: Duration = Duration::from_secs(300);

/// How many archives of one name are kept: each build of the product makes one of 40 MB.
const KEPT: usize = 3;

/// How long any archive outlives its last use: another run may be about to import it.
const KEPT_FOR: Duration = Duration::from_secs(1_800);

const BUSYBOX: &str = "/bin/busybox";
const PAUSE: &str = include_str!("../../images/pause.c");

/// An image that the tests' node has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Image {
    /// What holds a pod's namespaces.
    Pause,
    /// A shell with all of busybox in `/bin`, and by full path what reads `/proc` as programs in the field do:
    /// procps' `/usr/bin/free` and `/usr/bin/uptime`, coreutils' `/usr/bin/nproc` and others, `/usr/bin/getconf`,
    /// `/usr/bin/lscpu`. (Busybox's own `free` and `uptime` ask the kernel, which LXCFS cannot change.)
    Busybox,
    /// The product as this checkout has it, without its symbols: entry point `/usr/bin/durward`, user 65532.
    Durward,
    /// LXCFS as `deploy/lxcfs` ships it.
    Lxcfs,
    /// etcd and etcdctl in `/usr/local/bin`, with busybox.
    Etcd,
}

impl Image {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Pause, Self::Busybox, Self::Durward, Self::Lxcfs, Self::Etcd];

    /// What pods call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pause => "durward.test/pause:1",
            Self::Busybox => "durward.test/busybox:1",
            Self::Durward => "durward.test/durward:1",
            Self::Lxcfs => "durward.test/lxcfs:1",
            Self::Etcd => "durward.test/etcd:1",
        }
    }

    /// Its docker-archive: from the cache, or made now. Made from nothing it takes a second or two, and what it
    /// is made of (the product, etcd) may have to be built first.
    pub fn build(self, context: &TestContext) -> Result<PathBuf> {
        self.recipe(context)?.build(&context.supervisor()?)
    }

    /// What it is made of, for a case that needs it slightly otherwise.
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
    for name in package::COREUTILS.iter().chain(&["free", "uptime", "vmstat", "getconf", "lscpu"]) {
        root = root.program(&format!("/usr/bin/{name}"))?;
    }
    Ok(root)
}

/// Durward talks to servers whose authority it was given, and to no others: the folder of public authorities is
/// there, as in any image, and empty.
fn durward(program: &Path) -> Result<RootFs> {
    RootFs::new().folder("/etc/ssl/certs", 0o755).stripped_as("/usr/bin/durward", program)
}

fn etcd(supervisor: &Arc<Supervisor>) -> Result<RootFs> {
    busybox()?
        .program_as("/usr/local/bin/etcd", &Binary::Etcd.path(supervisor)?)?
        .program_as("/usr/local/bin/etcdctl", &Binary::Etcdctl.path(supervisor)?)
}

/// The files that `deploy/lxcfs/image/files` lists, and what stands in the folder `root` beside it,
/// if there is one.
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

/// An image before it is made.
#[derive(Debug, Clone)]
pub struct Recipe {
    name: String,
    root: RootFs,
    start: Value,
}

impl Recipe {
    /// An image of this name with this root folder. Its containers say themselves what they start, and look for
    /// it in the usual places.
    pub fn new(name: &str, root: RootFs) -> Self {
        let start = json!({
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "WorkingDir": "/",
        });
        Self { name: name.to_owned(), root, start }
    }

    /// What its containers start with, as an image's config says it: `Entrypoint`, `Cmd`, `User`, …
    #[must_use]
    pub fn starting(mut self, with: Value) -> Self {
        if let (Value::Object(start), Value::Object(with)) = (&mut self.start, with) {
            start.extend(with);
        }
        self
    }

    /// The same image under another name and with another root folder.
    pub fn changed(self, name: &str, root: impl FnOnce(RootFs) -> Result<RootFs>) -> Result<Self> {
        Ok(Self { name: name.to_owned(), root: root(self.root)?, start: self.start })
    }

    /// The docker-archive: from the cache, or made now.
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
        // Another run may be making the very same: then wait, and find it made. The kernel frees the lock with the
        // process.
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
        // A build in this work tree may be replacing the product at this moment.
        ensure!(self.key()? == key, "a file of this host changed while it was copied: run again");
        std::fs::rename(&unfinished, &path)
            .with_context(|| format!("cannot move {} into place", path.display()))?;
        remove_old(folder, &format!("{short}-"), &path);
        print(format_args!("made image {} in {} ms", self.name, began.elapsed().as_millis()));
        Ok(path)
    }

    /// The name as a file's: `durward.test/lxcfs:1` is `lxcfs_1`, which no other image's begins with and goes on
    /// by a dash.
    fn short(&self) -> String {
        let name = self.name.rsplit_once('/').map_or(self.name.as_str(), |(_, name)| name);
        name.replace([':', '-'], "_")
    }

    /// Sixteen hexadecimal digits of everything that the image is made of.
    fn key(&self) -> Result<String> {
        let mut hash = Sha256::new();
        // The way of making, raised by hand when it changes.
        hash.update(format!("making 1\n{}\n{}\n", self.name, self.start));
        self.root.key(&mut hash)?;
        Ok(hash.finalize().iter().take(8).fold(String::new(), |key, byte| key + &format!("{byte:02x}")))
    }
}

/// Whether an archive is there; it then counts as used now.
fn is_there(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    // Only the date of the last use: without it the archive is made again a day earlier.
    let _ = file.set_modified(SystemTime::now());
    true
}

/// Removes archives that begin so, but the new one, as many of the last used ones as make it [`KEPT`], and what
/// somebody has used lately. What cannot be removed stays.
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

/// The bytes of a file, made if they have to be.
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

/// What a tool writes into the file that it is given.
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
    fn an_image_is_made_once_and_found_afterwards() {
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
    fn one_that_could_not_be_made_is_not_found_afterwards() {
        let folder = scratch("failed");
        let recipe = Recipe::new("durward.test/x:1", RootFs::new());
        assert!(recipe.build_in(&folder, |_| anyhow::bail!("gone")).is_err());
        assert!(recipe.build_in(&folder, |_| anyhow::bail!("gone")).is_err());
        recipe.build_in(&folder, text_only).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_file_that_changes_while_it_is_copied_is_told_and_no_archive_is_kept() {
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
    fn busybox_has_its_applets_and_what_reads_proc() {
        let root = busybox().unwrap();
        let paths: Vec<String> = root.entries().unwrap().map(|(path, _)| path.to_owned()).collect();
        for path in ["/bin/sh", "/bin/grep", "/usr/bin/free", "/usr/bin/uptime", "/usr/bin/nproc", "/tmp"] {
            assert!(paths.iter().any(|has| has == path), "{path}");
        }
    }

    #[test]
    fn lxcfs_has_what_its_list_says_and_the_libraries_of_it() {
        let root = lxcfs().unwrap();
        let paths: Vec<String> = root.entries().unwrap().map(|(path, _)| path.to_owned()).collect();
        for end in ["/usr/bin/lxcfs", "/lxcfs/liblxcfs.so", "/libfuse3.so.3", "/libc.so.6"] {
            assert!(paths.iter().any(|path| path.ends_with(end)), "{end}: {paths:?}");
        }
    }
}
