//! `make cluster` and `make cluster-down`: the one-node cluster for a person instead of for cases.
//!
//! It is a run like any other, but the process in place of the tests only waits. The owner of that run, here the
//! *holder*, has a session of its own and outlives the shell. `down` ends the holder, and the run's first process then
//! cleans up.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::binaries::{Binary, cache};
use crate::console::print;
use crate::context::TestContext;
use crate::image::Image;
use crate::node::Sandbox;
use crate::supervisor::identity::{Identity, await_end};
use crate::supervisor::{isolate, journal};

/// The time to kill all processes and to remove cgroups and directories.
const ENDED_WITHIN: Duration = Duration::from_secs(120);

/// The environment variable that starts the node without its LXCFS if it is `no`.
const LXCFS: &str = "LXCFS";

/// The file of [`LocalCluster`].
const FILE: &str = "cluster.json";

/// A cluster that is up.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct LocalCluster {
    holder: Identity,
    supervisor: Identity,
    kubeconfig: PathBuf,
    /// The names of what it has on this host.
    names: Vec<String>,
    message: String,
}

/// The main function of `e2e-cluster`: `up`, `down`, and `hold`, which `up` starts. The second argument is the directory
/// of the cluster, by default `cluster` in the cache.
pub fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let verb = arguments.next().unwrap_or_default();
    if verb == "hold" {
        // It fails only for the leader of a group, which a child is not.
        let _ = rustix::process::setsid();
        if let Some(code) = isolate() {
            return code;
        }
    }
    let directory = match arguments.next() {
        Some(directory) => Ok(PathBuf::from(directory)),
        None => cache().map(|cache| cache.join("cluster")),
    };
    let done = directory.and_then(|directory| match verb.as_str() {
        "up" => up(&directory),
        "down" => down(&directory),
        "hold" => hold(&directory),
        _ => bail!("run `make cluster` or `make cluster-down`"),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print(format_args!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Starts a holder and returns when the cluster is up. If it is up already, prints the same message again.
fn up(directory: &Path) -> Result<()> {
    // Two at once get the same cluster.
    let _lock = lock(directory, "lock", std::process::id())?;
    if let Some(cluster) = LocalCluster::read(directory)
        && cluster.holder.is_alive()
    {
        return write_stdout(&cluster.message);
    }
    let mut holder = Command::new(std::env::current_exe()?)
        .arg("hold")
        .arg(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start the holder of the cluster")?;
    // The holder must not inherit our output: a caller that reads it to its end would wait for the holder.
    let stderr = holder.stderr.take().context("the holder has no standard error")?;
    let copy = std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    });
    let stdout = holder.stdout.take().context("the holder has no standard output")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).context("cannot read from the holder")?;
    if line.is_empty() {
        let _ = holder.wait();
        let _ = copy.join();
        bail!("the cluster is not up");
    }
    let cluster = LocalCluster::read(directory).context("the holder has not written what it started")?;
    write_stdout(&cluster.message)
}

/// Ends the cluster and returns when nothing of it is left.
fn down(directory: &Path) -> Result<()> {
    let _lock = lock(directory, "lock", std::process::id())?;
    let cluster = LocalCluster::read(directory);
    if let Some(cluster) = &cluster {
        end(cluster.holder, cluster.supervisor, ENDED_WITHIN)?;
    }
    // If the supervisor was killed.
    journal::sweep(&cache()?)?;
    LocalCluster::remove(directory);
    write_stdout(if cluster.is_some() { "The cluster is gone.\n" } else { "No cluster is up.\n" })
}

/// Ends the holder; its run's first process then cleans up. Kills what has not ended in time, the holder first.
fn end(holder: Identity, supervisor: Identity, within: Duration) -> Result<()> {
    let both = [holder, supervisor];
    holder.signal(Signal::TERM);
    // A stopped process gets its signals when it continues.
    for process in both {
        process.signal(Signal::CONT);
    }
    let mut left = await_end(&both, within);
    for (name, process) in [("holder", holder), ("supervisor", supervisor)] {
        if process.is_alive() {
            print(format_args!(
                "the {name} of the cluster, process {}, has not ended within {within:?}: it is killed",
                process.pid
            ));
            process.signal(Signal::KILL);
            left = await_end(&both, within);
        }
    }
    let left: Vec<_> = left.iter().map(|process| process.pid).collect();
    ensure!(left.is_empty(), "SIGKILL does not end the processes {left:?}: see `cat /proc/PID/stack`");
    Ok(())
}

/// Starts the cluster, reports it by a line on standard output, and waits to be killed.
fn hold(directory: &Path) -> Result<()> {
    let context = TestContext::new()?;
    let owner = context.supervisor()?.head().owner.pid;
    // An earlier one, whose `up` was interrupted, can still be about to end.
    let _lock = lock(directory, "holder", owner)?;
    start(&context, directory)?;
    context.finish(true)?;
    // If `up` was interrupted, this fails, and the cluster ends.
    write_stdout("up\n")?;
    loop {
        std::thread::park();
    }
}

/// Starts the cluster and writes its file.
fn start(context: &TestContext, directory: &Path) -> Result<()> {
    let supervisor = context.supervisor()?;
    // Before anything is built, so that an unfit host fails at once.
    Sandbox::check(&supervisor)?;
    for image in Image::ALL {
        image.build(context)?;
    }
    let node = context.node()?;
    for image in Image::ALL {
        node.image(context, image)?;
    }
    let kubeconfig = directory.join("kubeconfig");
    let admin = node.cluster().kubectl().kubeconfig();
    std::fs::copy(admin, &kubeconfig).with_context(|| format!("cannot write {}", kubeconfig.display()))?;
    let info = &node.object()?["status"]["nodeInfo"];
    let version = |field: &str| info[field].as_str().unwrap_or_default().to_owned();
    let images: Vec<_> = Image::ALL.iter().map(|image| image.name()).collect();
    let lxcfs = if std::env::var(LXCFS).is_ok_and(|value| value == "no") {
        node.lxcfs().end()?;
        "LXCFS does not run on the node: deploy/lxcfs installs it, see its README."
    } else {
        "LXCFS runs on the node, as a program that is installed there. deploy/lxcfs does not start another one:\n\
         to try that, run `make cluster-down`, then `make cluster LXCFS=no`."
    };
    let sizes = node.memory().into_iter().filter(|(_, mib)| *mib > 0);
    let sizes: Vec<_> = sizes.map(|(process, mib)| format!("{process} {mib}")).collect();
    let message = format!(
        "A cluster of one node is up: Kubernetes {}, {}, at {}.\n\n  export KUBECONFIG={}\n\n\
         kubectl of the same version: {}\n\
         images for pods: {}\n\n\
         {lxcfs}\n\n\
         memory in MiB: {}\n\
         logs: {}\n\n\
         `make cluster-down` ends it and leaves nothing behind.\n",
        version("kubeletVersion"),
        version("containerRuntimeVersion"),
        node.cluster().url(),
        kubeconfig.display(),
        Binary::Kubectl.path(&supervisor)?.display(),
        images.join(", "),
        sizes.join(", "),
        supervisor.logs().display(),
    );
    let head = supervisor.head();
    let names = node.names_on_this_host()?;
    let cluster =
        LocalCluster { holder: head.owner, supervisor: head.supervisor, kubeconfig, names, message };
    crate::certificates::write(directory, FILE, &serde_json::to_string_pretty(&cluster)?).map(drop)
}

impl LocalCluster {
    /// Returns none if the file is missing or incomplete.
    fn read(directory: &Path) -> Option<Self> {
        serde_json::from_str(&std::fs::read_to_string(directory.join(FILE)).ok()?).ok()
    }

    fn remove(directory: &Path) {
        for name in [FILE, "kubeconfig"] {
            let _ = std::fs::remove_file(directory.join(name));
        }
    }
}

/// Takes a lock that the kernel releases with the process. If another process has it, prints that process's `pid`.
fn lock(directory: &Path, name: &str, pid: impl std::fmt::Display) -> Result<File> {
    std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let path = directory.join(name);
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
    let mut file = file.with_context(|| format!("cannot make {}", path.display()))?;
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        let other = std::fs::read_to_string(&path).unwrap_or_default();
        print(format_args!("waiting for process {}, which has {} locked", other.trim(), path.display()));
    }
    file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{pid}"));
    Ok(file)
}

fn write_stdout(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("cannot write to standard output")
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Child;

    use super::*;

    /// Starts a shell and waits until it has run `script`.
    fn child(script: &str) -> (Child, Identity) {
        let mut child = Command::new("sh")
            .args(["-c", &format!("{script} echo there; exec sleep 600")])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let process = Identity::of(i32::try_from(child.id()).unwrap()).unwrap();
        (child, process)
    }

    #[test]
    fn continues_a_stopped_holder_and_kills_a_supervisor_that_ignores_sigterm() {
        let (mut holder, stopped) = child("");
        let (mut supervisor, deaf) = child("trap '' TERM;");
        stopped.signal(Signal::STOP);
        end(stopped, deaf, Duration::from_secs(1)).unwrap();
        assert_eq!(holder.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
        assert_eq!(supervisor.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
    }
}
