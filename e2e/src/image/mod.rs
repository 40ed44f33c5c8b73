//! Makes the node's container images from files of this host.
//!
//! The tests need neither a registry nor an image builder. An image has a root directory ([`RootFs`]) of programs of this host with their
//! shared libraries, links and texts. It is written as one docker-archive, which the node imports. Pods name it with
//! `imagePullPolicy: Never`. A run makes each image once. `deploy/lxcfs/image` lists the files of the LXCFS image.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use self::rootfs::Content;
use crate::binaries::Binary;
use crate::console::print;
use crate::context::TestContext;
use crate::supervisor::{Output, Supervisor, Tool};

mod archive;
mod libraries;
mod rootfs;

pub use rootfs::RootFs;

/// The time of `cc` and `strip` on a loaded machine.
const TOOL_WITHIN: Duration = Duration::from_secs(300);

const BUSYBOX: &str = "/bin/busybox";
const PAUSE: &str = include_str!("../../images/pause.c");

/// Debian's coreutils that images have in `/usr/bin`, because busybox's commands of the same names ask the kernel for
/// what these read from a file.
const COREUTILS: [&str; 24] = [
    "cat", "chmod", "cp", "date", "dd", "df", "echo", "env", "head", "id", "ln", "ls", "mkdir", "mv",
    "nproc", "readlink", "rm", "sleep", "stat", "sync", "tail", "timeout", "touch", "wc",
];

/// An image of the tests' node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Image {
    /// The container of a pod's namespaces.
    Pause,
    /// Busybox in `/bin`, and in `/usr/bin` the programs that read `/proc`: procps' `free` and `uptime`, coreutils'
    /// `nproc` and others, `getconf`, `lscpu`. Busybox's own `free` and `uptime` ask the kernel, which LXCFS cannot
    /// change.
    Busybox,
    /// `durward` of this checkout, without symbols: entry point `/usr/bin/durward`, user 65532.
    Durward,
    /// `durward-node`, and `durward` for its doctor: entry point `/usr/bin/durward-node`.
    DurwardNode,
    /// LXCFS as `deploy/lxcfs` ships it.
    Lxcfs,
    /// etcd and etcdctl in `/usr/local/bin`, with busybox.
    Etcd,
}

impl Image {
    /// All images.
    pub const ALL: [Self; 6] =
        [Self::Pause, Self::Busybox, Self::Durward, Self::DurwardNode, Self::Lxcfs, Self::Etcd];

    /// Returns the name that pods use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pause => "durward.test/pause:1",
            Self::Busybox => "durward.test/busybox:1",
            Self::Durward => "durward.test/durward:1",
            Self::DurwardNode => "durward.test/durward-node:1",
            Self::Lxcfs => "durward.test/lxcfs:1",
            Self::Etcd => "durward.test/etcd:1",
        }
    }

    /// Returns its docker-archive. The first call of a run makes it in about a second, and builds the product or etcd
    /// first if necessary.
    pub fn build(self, context: &TestContext) -> Result<PathBuf> {
        static MAKING: Mutex<()> = Mutex::new(());
        let supervisor = context.supervisor()?;
        let _lock = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        let path = archive_of(self.name(), &supervisor);
        if path.is_file() { Ok(path) } else { self.recipe(context)?.build(&supervisor) }
    }

    /// Returns its recipe, for a case that changes it.
    pub fn recipe(self, context: &TestContext) -> Result<Recipe> {
        let recipe = |root: RootFs, config| Recipe::new(self.name(), root).starting(config);
        let recipe = match self {
            Self::Pause => {
                Ok(recipe(RootFs::default().compiled("/pause", PAUSE), json!({"Entrypoint": ["/pause"]})))
            }
            Self::Busybox => busybox().map(|root| recipe(root, json!({"Cmd": ["sh"]}))),
            Self::Durward => durward(context)
                .map(|root| recipe(root, json!({"Entrypoint": ["/usr/bin/durward"], "User": "65532:65532"}))),
            Self::DurwardNode => durward_node(context).map(|root| {
                recipe(root, json!({"Entrypoint": ["/usr/bin/durward-node"], "User": "65532:65532"}))
            }),
            Self::Lxcfs => lxcfs().map(|root| recipe(root, json!({"Cmd": ["/usr/bin/lxcfs", "-v"]}))),
            Self::Etcd => etcd(&context.supervisor()?).map(|root| recipe(root, json!({"Cmd": ["etcd"]}))),
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
fn durward(context: &TestContext) -> Result<RootFs> {
    RootFs::new()
        .directory("/etc/ssl/certs", 0o755)
        .stripped_as("/usr/bin/durward", &context.durward_program()?)
}

fn durward_node(context: &TestContext) -> Result<RootFs> {
    durward(context)?.stripped_as("/usr/bin/durward-node", &context.durward_node_program()?)
}

fn etcd(supervisor: &Arc<Supervisor>) -> Result<RootFs> {
    busybox()?
        .program_as("/usr/local/bin/etcd", &Binary::Etcd.path(supervisor)?)?
        .program_as("/usr/local/bin/etcdctl", &Binary::Etcdctl.path(supervisor)?)
}

/// Returns the files that `deploy/lxcfs/image/files` lists, and those of the directory `root` next to it.
fn lxcfs() -> Result<RootFs> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/lxcfs/image");
    let list = directory.join("files");
    let text = std::fs::read_to_string(&list).with_context(|| format!("cannot read {}", list.display()))?;
    let mut root = RootFs::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (path, package) =
            line.split_once(' ').with_context(|| format!("{}: {line} names no package", list.display()))?;
        let path = path.replace("TRIPLET", &format!("{}-linux-gnu", std::env::consts::ARCH));
        root = root.program(&path).with_context(|| {
            format!("deploy/lxcfs/image/files lists {path}, of Debian's package {}", package.trim())
        })?;
    }
    let own = directory.join("root");
    if own.is_dir() { root.tree(&own) } else { Ok(root) }
}

/// The name, root directory and config of an image.
#[derive(Debug, Clone)]
pub struct Recipe {
    name: String,
    root: RootFs,
    config: Value,
}

impl Recipe {
    /// Makes a recipe with a PATH and without a command.
    pub fn new(name: &str, root: RootFs) -> Self {
        let config = json!({
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "WorkingDir": "/",
        });
        Self { name: name.to_owned(), root, config }
    }

    /// Adds fields to the image's config: `Entrypoint`, `Cmd`, `User`, …
    #[must_use]
    pub fn starting(mut self, with: Value) -> Self {
        if let (Value::Object(config), Value::Object(with)) = (&mut self.config, with) {
            config.extend(with);
        }
        self
    }

    /// Returns the same image with another name and a changed root directory.
    pub fn changed(self, name: &str, root: impl FnOnce(RootFs) -> Result<RootFs>) -> Result<Self> {
        Ok(Self { name: name.to_owned(), root: root(self.root)?, config: self.config })
    }

    /// Makes the docker-archive in the run's work directory.
    pub fn build(&self, supervisor: &Arc<Supervisor>) -> Result<PathBuf> {
        let began = Instant::now();
        let path = archive_of(&self.name, supervisor);
        archive::write(&path, &self.name, &self.root, &self.config, |content| bytes(content, supervisor))
            .with_context(|| format!("image {}", self.name))?;
        print(format_args!("made image {} in {} ms", self.name, began.elapsed().as_millis()));
        Ok(path)
    }
}

/// Returns the path of an image's archive: `lxcfs:1.tar` for `durward.test/lxcfs:1`.
fn archive_of(name: &str, supervisor: &Supervisor) -> PathBuf {
    let name = name.rsplit_once('/').map_or(name, |(_, name)| name);
    supervisor.work().join("images").join(format!("{name}.tar"))
}

/// Returns the bytes of a file, which is made first if necessary.
fn bytes(content: &Content, supervisor: &Arc<Supervisor>) -> Result<Vec<u8>> {
    match content {
        Content::Text(text) => Ok(text.as_bytes().to_vec()),
        Content::Host(host) => std::fs::read(host).with_context(|| format!("cannot read {}", host.display())),
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
    let to = supervisor.work().join(format!("image-file-{number}"));
    supervisor.run(tool(&to.display().to_string()), TOOL_WITHIN).and_then(Output::succeeded)?;
    let bytes = std::fs::read(&to).with_context(|| format!("cannot read {}", to.display()))?;
    let _ = std::fs::remove_file(&to);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busybox_has_its_applets_and_the_programs_that_read_proc() {
        let root = busybox().unwrap();
        for path in ["/bin/sh", "/bin/grep", "/usr/bin/free", "/usr/bin/uptime", "/usr/bin/nproc", "/tmp"] {
            assert!(root.entries().any(|(has, _)| has == path), "{path}");
        }
    }

    #[test]
    fn lxcfs_has_the_listed_files_and_their_libraries() {
        let root = lxcfs().unwrap();
        for end in ["/usr/bin/lxcfs", "/lxcfs/liblxcfs.so", "/libfuse3.so.3", "/libc.so.6"] {
            assert!(root.entries().any(|(path, _)| path.ends_with(end)), "{end}: {root:?}");
        }
    }
}
