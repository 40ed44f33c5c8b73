//! The one-node cluster for a person instead of for cases: `make cluster` leaves it up, `make cluster-down` ends
//! it.
//!
//! What stands is a run like any other, with a supervisor, of which the test process is replaced by one that only
//! waits: the holder. It has a session of its own, so it outlives the shell. Whatever becomes of it, the supervisor
//! gives everything back, and whatever becomes of the supervisor, the holder or the next run does.
//!
//! What it leaves to others: what is in the cluster ([`crate::node`]), and Durward's installation in it, which
//! is what the person wants to try.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

use crate::binaries::{Binary, cache};
use crate::console::print;
use crate::context::TestContext;
use crate::image::Image;
use crate::node::Sandbox;
use crate::supervisor::journal;
use crate::supervisor::process::{Identity, await_end};

/// The supervisor ends all parts at once; a container may have its grace of some seconds.
const ENDED_WITHIN: Duration = Duration::from_secs(120);

/// `no` in this variable of the environment: without the node's own LXCFS.
const LXCFS: &str = "LXCFS";

/// How often the holder looks whether its supervisor lives.
const LOOK: Duration = Duration::from_secs(1);

/// What a standing cluster is known by, in the file `standing.json` of its folder.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Standing {
    holder: Identity,
    supervisor: Identity,
    kubeconfig: PathBuf,
    /// The names by which what it has of this host is told from that of others.
    names: Vec<String>,
    words: String,
}

/// The whole of the `e2e-cluster` binary: `up`, `down`, and `hold`, which `up` starts. A folder behind it is
/// where the cluster is known from, instead of `cluster` in the cache.
pub fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let verb = arguments.next().unwrap_or_default();
    let folder = match arguments.next() {
        Some(folder) => Ok(PathBuf::from(folder)),
        None => cache().map(|cache| cache.join("cluster")),
    };
    let done = folder.and_then(|folder| match verb.as_str() {
        "up" => up(&folder),
        "down" => down(&folder),
        "hold" => hold(&folder),
        _ => bail!("say `make cluster` or `make cluster-down`"),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print(format_args!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Starts a holder, and returns when the cluster is up. If it is up already, it says the same again.
fn up(folder: &Path) -> Result<()> {
    // Whoever says it twice at once gets one cluster.
    let _lock = lock(folder, "lock")?;
    if let Some(standing) = Standing::read(folder)
        && standing.holder.is_alive()
    {
        return write_stdout(&standing.words);
    }
    let mut holder = Command::new(std::env::current_exe()?)
        .arg("hold")
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start the holder of the cluster")?;
    // Not inherited: whoever waits for the end of our output must not wait for the holder's.
    let words = holder.stderr.take().context("the holder has no standard error")?;
    let teller = std::thread::spawn(move || {
        for line in BufReader::new(words).lines().map_while(Result::ok) {
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    });
    let stdout = holder.stdout.take().context("the holder has no standard output")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).context("cannot hear the holder")?;
    if line.is_empty() {
        let _ = holder.wait();
        // What went wrong it has told.
        let _ = teller.join();
        bail!("the cluster is not up");
    }
    let standing = Standing::read(folder).context("the holder says that it stands, and does not say what")?;
    write_stdout(&standing.words)
}

/// Ends it, and returns when nothing of it is left.
fn down(folder: &Path) -> Result<()> {
    let _lock = lock(folder, "lock")?;
    let standing = Standing::read(folder);
    if let Some(standing) = &standing {
        end(standing.holder, standing.supervisor, ENDED_WITHIN)?;
    }
    // Behind a supervisor that was killed.
    journal::sweep(&cache()?)?;
    Standing::remove(folder);
    write_stdout(if standing.is_some() { "The cluster is gone.\n" } else { "No cluster is up.\n" })
}

/// Asks the holder to end, whose supervisor then ends all else; kills in vain asked ones, the holder first. What a
/// killed supervisor leaves is the sweep's.
fn end(holder: Identity, supervisor: Identity, within: Duration) -> Result<()> {
    let both = [holder, supervisor];
    holder.signal(Signal::TERM);
    // Who is stopped hears of nothing until it goes on.
    for process in both {
        process.signal(Signal::CONT);
    }
    let mut left = await_end(&both, within);
    for (who, process) in [("holder", holder), ("supervisor", supervisor)] {
        if process.is_alive() {
            print(format_args!(
                "the {who} of the cluster, process {}, has not ended within {within:?}: it is killed",
                process.pid
            ));
            process.signal(Signal::KILL);
            left = await_end(&both, within);
        }
    }
    let left: Vec<_> = left.iter().map(|process| process.pid).collect();
    ensure!(left.is_empty(), "not even SIGKILL ends the processes {left:?}: see `cat /proc/PID/stack`");
    Ok(())
}

/// Starts the cluster, says so by a line on standard output, and waits for its end.
fn hold(folder: &Path) -> Result<()> {
    // It fails only for a group's leader, which a child never is.
    rustix::process::setsid().context("the holder cannot have a session of its own")?;
    // One whose `up` was interrupted may still be on its way to find that nobody wants it.
    let _lock = lock(folder, "holder")?;
    let supervisor = std::env::current_exe()?.with_file_name("e2e-supervisor");
    let context = TestContext::new(&supervisor.display().to_string())?;
    // Before the cluster is there, so that no signal is lost.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let asked = runtime.block_on(async {
        let end = signal(SignalKind::terminate())?;
        anyhow::Ok((end, signal(SignalKind::interrupt())?))
    });
    let (mut terminate, mut interrupt) = asked.context("cannot wait for signals")?;
    let raised = raise(&context, folder).and_then(|standing| {
        // Nobody hears it if `up` was interrupted: then nobody wants the cluster.
        write_stdout("up\n")?;
        let lives = async {
            while standing.supervisor.is_alive() {
                tokio::time::sleep(LOOK).await;
            }
        };
        runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                () = lives => {}
            }
        });
        Ok(())
    });
    Standing::remove(folder);
    context.finish(raised.is_ok())?;
    raised
}

/// Starts it and writes down what a person needs.
fn raise(context: &TestContext, folder: &Path) -> Result<Standing> {
    // What may fail for a reason of this host's fails before anything is built, or stands.
    Sandbox::check(&*context.supervisor()?)?;
    for image in Image::ALL {
        image.build(context)?;
    }
    let node = context.node()?;
    for image in Image::ALL {
        node.image(context, image)?;
    }
    let supervisor = i32::try_from(context.supervisor()?.pid()).ok().and_then(Identity::of);
    let kubeconfig = folder.join("kubeconfig");
    let admin = node.cluster().kubectl().kubeconfig();
    std::fs::copy(admin, &kubeconfig).with_context(|| format!("cannot write {}", kubeconfig.display()))?;
    let info = &node.object()?["status"]["nodeInfo"];
    let said = |field: &str| info[field].as_str().unwrap_or_default().to_owned();
    let images: Vec<_> = Image::ALL.iter().map(|image| image.name()).collect();
    let lxcfs = if std::env::var(LXCFS).is_ok_and(|wish| wish == "no") {
        node.lxcfs().end()?;
        "LXCFS does not run on the node: deploy/lxcfs brings it, as its README says."
    } else {
        "LXCFS serves on the node, as a program that is installed there. deploy/lxcfs's own does not start beside it:\n\
         to try that, `make cluster-down`, then `make cluster LXCFS=no`."
    };
    // What has ended takes none.
    let parts = node.memory().into_iter().filter(|(_, mib)| *mib > 0);
    let parts: Vec<_> = parts.map(|(part, mib)| format!("{part} {mib}")).collect();
    let words = format!(
        "A cluster of one node is up: Kubernetes {}, {}, at {}.\n\n  export KUBECONFIG={}\n\n\
         kubectl of the same version: {}\n\
         images for pods: {}\n\n\
         {lxcfs}\n\n\
         memory in MiB: {}\n\
         logs of its parts: {}\n\n\
         `make cluster-down` ends it and leaves nothing behind.\n",
        said("kubeletVersion"),
        said("containerRuntimeVersion"),
        node.cluster().url(),
        kubeconfig.display(),
        Binary::Kubectl.path(&context.supervisor()?)?.display(),
        images.join(", "),
        parts.join(", "),
        context.supervisor()?.logs().display(),
    );
    let standing = Standing {
        holder: Identity::own().context("/proc does not know this process: is it mounted?")?,
        supervisor: supervisor.context("the supervisor is gone")?,
        kubeconfig,
        names: node.names_on_this_host(),
        words,
    };
    let text = serde_json::to_string_pretty(&standing)?;
    crate::certificates::write(folder, STANDING, &text)?;
    Ok(standing)
}

/// The file of [`Standing`].
const STANDING: &str = "standing.json";

impl Standing {
    /// None if there is none, or what is there is not whole.
    fn read(folder: &Path) -> Option<Self> {
        serde_json::from_str(&std::fs::read_to_string(folder.join(STANDING)).ok()?).ok()
    }

    fn remove(folder: &Path) {
        for name in [STANDING, "kubeconfig"] {
            let _ = std::fs::remove_file(folder.join(name));
        }
    }
}

/// The kernel frees it with the process. Whoever has to wait is told for whom.
fn lock(folder: &Path, name: &str) -> Result<File> {
    lock_or(folder, name, |path, holder| {
        print(format_args!("waiting until process {holder} is done, which has {} locked", path.display()));
    })
}

fn lock_or(folder: &Path, name: &str, wait: impl FnOnce(&Path, &str)) -> Result<File> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let path = folder.join(name);
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .with_context(|| format!("cannot make {}", path.display()))?;
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        let holder = std::fs::read_to_string(&path).unwrap_or_default();
        wait(&path, holder.trim());
    }
    file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    // For whoever waits: without it, it is told less.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

fn write_stdout(words: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(words.as_bytes()).and_then(|()| stdout.flush()).context("nobody listens")
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Child;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// A process that has said that it is there.
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

    fn ended_by((mut child, _): (Child, Identity)) -> Option<i32> {
        child.wait().unwrap().signal()
    }

    #[test]
    fn one_that_is_stopped_is_asked_and_hears_it() {
        let (holder, supervisor) = (child(""), child(""));
        holder.1.signal(Signal::STOP);
        // A supervisor ends by itself when its holder does; this one knows of none.
        std::thread::scope(|scope| {
            let ending = scope.spawn(|| end(holder.1, supervisor.1, LONG));
            assert!(await_end(&[holder.1], LONG).is_empty());
            // Not INT: whoever starts the tests in the background has that ignored, which children inherit.
            supervisor.1.signal(Signal::USR1);
            ending.join().unwrap().unwrap();
        });
        assert_eq!(ended_by(holder), Some(Signal::TERM.as_raw()));
        assert_eq!(ended_by(supervisor), Some(Signal::USR1.as_raw()));
    }

    #[test]
    fn one_that_does_not_hear_is_killed() {
        let (holder, supervisor) = (child("trap '' TERM;"), child("trap '' TERM;"));
        end(holder.1, supervisor.1, Duration::from_millis(200)).unwrap();
        assert_eq!(ended_by(holder), Some(Signal::KILL.as_raw()));
        assert_eq!(ended_by(supervisor), Some(Signal::KILL.as_raw()));
    }

    #[test]
    fn whoever_waits_for_a_lock_is_told_for_whom() {
        let folder = std::env::temp_dir().join(format!("e2e-standing-lock-{}", std::process::id()));
        let nobody = |_: &Path, _: &str| unreachable!("the lock is free");
        let mut first = Some(lock_or(&folder, "lock", nobody).unwrap());
        let mut told = String::new();
        let second = lock_or(&folder, "lock", |_, holder| {
            told = holder.to_owned();
            drop(first.take());
        });
        assert_eq!(told, std::process::id().to_string());
        drop(second.unwrap());
        drop(lock_or(&folder, "lock", nobody).unwrap());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
