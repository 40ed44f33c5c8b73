//! `make cluster` and `make cluster-down`: the one-node cluster for a person instead of for cases.
//!
//! It is a run like any other, but the process in place of the tests only waits. The program that starts this run, the *holder*,
//! has a session of its own and outlives the shell. `down` makes a file in the run's work directory. Then the process that waits
//! ends, and the run cleans up. Killing the holder has the same effect.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use crate::binaries::{Binary, cache};
use crate::console::print;
use crate::context::TestContext;
use crate::image::Image;
use crate::node::Sandbox;
use crate::supervisor::{isolate, run, traces};
use crate::wait::{Poll, eventually};

/// The time to kill all processes and to remove cgroups and directories.
const ENDED_WITHIN: Duration = Duration::from_secs(120);

/// The file in the work directory that ends the cluster.
const STOP: &str = "stop";

/// The environment variable that starts the node without its LXCFS if it is `no`.
const LXCFS: &str = "LXCFS";

/// The file of [`LocalCluster`].
const FILE: &str = "cluster.json";

/// A cluster that is up. The holder and the work directory end with it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct LocalCluster {
    holder: u32,
    run: String,
    work: PathBuf,
    pid_namespace: String,
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
    let _lock = lock(directory)?;
    // If the cluster was killed, nothing of it is left then.
    run::sweep()?;
    if let Some(cluster) = LocalCluster::read(directory)
        && cluster.work.exists()
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
    let mut cluster: LocalCluster = serde_json::from_str(&line).context("the holder printed no cluster")?;
    cluster.holder = holder.id();
    crate::certificates::write(directory, FILE, &serde_json::to_string_pretty(&cluster)?)?;
    write_stdout(&cluster.message)
}

/// Ends the cluster and returns when nothing of it is left.
fn down(directory: &Path) -> Result<()> {
    let _lock = lock(directory)?;
    run::sweep()?;
    let cluster = LocalCluster::read(directory).filter(|cluster| cluster.work.exists());
    if let Some(cluster) = &cluster {
        File::create(cluster.work.join(STOP)).context("cannot stop the cluster")?;
        let what = format!("the end of the cluster; to kill it: kill -9 {}", cluster.holder);
        eventually(what, ENDED_WITHIN, || {
            let is_left = cluster.work.exists();
            Ok(if is_left { Poll::Pending("its processes end".to_owned()) } else { Poll::Ready(()) })
        })?;
    }
    for name in [FILE, "kubeconfig"] {
        let _ = std::fs::remove_file(directory.join(name));
    }
    write_stdout(if cluster.is_some() { "The cluster is gone.\n" } else { "No cluster is up.\n" })
}

/// Starts the cluster, reports it by a line on standard output, and waits for the end.
fn hold(directory: &Path) -> Result<()> {
    let context = TestContext::new()?;
    let cluster = start(&context, directory)?;
    context.finish(true)?;
    // If `up` was interrupted, this fails, and the cluster ends.
    write_stdout(&format!("{}\n", serde_json::to_string(&cluster)?))?;
    while !cluster.work.join(STOP).exists() {
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// Starts the cluster and writes its kubeconfig.
fn start(context: &TestContext, directory: &Path) -> Result<LocalCluster> {
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
    let run = supervisor.details();
    Ok(LocalCluster {
        holder: 0,
        run: run.name.clone(),
        work: run.work.clone(),
        pid_namespace: traces::pid_namespace()?,
        message,
    })
}

impl LocalCluster {
    /// Returns none if the file is missing or incomplete.
    fn read(directory: &Path) -> Option<Self> {
        serde_json::from_str(&std::fs::read_to_string(directory.join(FILE)).ok()?).ok()
    }
}

/// Takes a lock that the kernel releases with the process.
fn lock(directory: &Path) -> Result<File> {
    std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let path = directory.join("lock");
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
    let file = file.with_context(|| format!("cannot make {}", path.display()))?;
    file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    Ok(file)
}

fn write_stdout(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("cannot write to standard output")
}
