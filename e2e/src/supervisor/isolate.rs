//! Runs a program in a pid namespace and a mount namespace of its own, and cleans up after it.
//!
//! Three processes execute the same program, one after another:
//! - the *owner*, which the user started: it cleans up after dead runs, starts the second and returns its exit code;
//! - the *first process* of the namespace: it starts the third, reaps orphans, and cleans up when the third has ended
//!   or the owner's end of a pipe is closed;
//! - the *tests*, for which [`isolate`] returns none.

use std::io::{BufRead as _, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process_group, wait};

use super::Exit;
use super::identity::Identity;
use super::journal::{self, Journal};
use crate::binaries::cache;
use crate::console::print;

/// The environment variable that names the process's role.
pub(super) const ROLE: &str = "DURWARD_E2E_ROLE";

/// The environment variable with the path of the journal.
const JOURNAL: &str = "DURWARD_E2E_JOURNAL";

const FIRST: &str = "first";
const TESTS: &str = "tests";

/// A killed process ends when the kernel has released what it holds.
const ENDED_WITHIN: Duration = Duration::from_secs(60);

/// Runs this program again in namespaces of its own and returns its exit code. Returns none in the process that is to do
/// the work.
pub fn isolate() -> Option<ExitCode> {
    let code = match std::env::var(ROLE).as_deref() {
        Ok(TESTS) => return None,
        Ok(FIRST) => first(),
        _ => owner(),
    };
    Some(code.map_or_else(
        |error| {
            print(format_args!("{error:#}"));
            ExitCode::FAILURE
        },
        ExitCode::from,
    ))
}

/// Returns the path of this run's journal.
pub(super) fn journal() -> Result<PathBuf> {
    std::env::var_os(JOURNAL).map(PathBuf::from).context("this process is not in a run's namespaces")
}

/// Returns a number that differs between concurrent runs. Process ids do not: each run counts from 1.
pub(crate) fn run_number() -> u32 {
    let journal = std::env::var(JOURNAL).unwrap_or_else(|_| std::process::id().to_string());
    journal.bytes().fold(0, |number: u32, byte| number.wrapping_mul(31).wrapping_add(byte.into()))
}

fn owner() -> Result<u8> {
    let is_root = rustix::process::geteuid().is_root();
    ensure!(is_root, "the end-to-end tests need root, for namespaces of their own");
    let cache = cache()?;
    let mut supervisor = None;
    let journal = Journal::create(&cache, || {
        // The mounts of the host appear in the namespace, and none of the namespace on the host.
        let mut command = Command::new("unshare");
        command
            .args(["--pid", "--mount-proc", "--propagation=slave", "--fork", "--kill-child=KILL", "--"])
            .arg(std::env::current_exe()?)
            .args(std::env::args_os().skip(1))
            .env(ROLE, FIRST)
            .stdin(Stdio::piped())
            // Ctrl-C in the terminal reaches the owner only.
            .process_group(0);
        let child = supervisor.insert(command.spawn().context("cannot run `unshare` (Debian: util-linux)")?);
        Identity::of(i32::try_from(child.id())?).context("cannot make a pid and a mount namespace")
    })?;
    let mut supervisor = supervisor.context("nothing was started")?;
    let mut pipe = supervisor.stdin.take().context("the pipe is missing")?;
    let _ = writeln!(pipe, "{}", journal.path().display());
    let status = supervisor.wait().context("cannot wait for the tests")?;
    drop::<ChildStdin>(pipe);
    if journal.path().exists() {
        let path = journal.path().to_owned();
        drop(journal);
        print("the supervisor of this run was killed: cleaning up after it");
        journal::clean(&path);
    }
    Ok(code(status.into()))
}

/// The first process of the namespace. If it ends, the kernel kills all others.
fn first() -> Result<u8> {
    // Outside a namespace, `kill_all` would kill all processes of the host.
    ensure!(std::process::id() == 1, "{ROLE}={FIRST} is only for the first process of a pid namespace");
    let mut stdin = std::io::stdin().lock();
    let mut path = String::new();
    stdin.read_line(&mut path)?;
    let path = PathBuf::from(path.trim_end());
    let journal = Journal::open(&path)?;
    // The end of the terminal's session does not reach it. This fails if it has a session already.
    let _ = rustix::process::setsid();
    let tests = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(ROLE, TESTS)
        .env(JOURNAL, &path)
        .stdin(Stdio::null())
        .spawn()
        .context("cannot start the tests")?;
    let tests = Pid::from_child(&tests);
    drop(stdin);
    std::thread::spawn(|| {
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        kill_all();
    });
    let exit = loop {
        if let Some((pid, status)) = wait(WaitOptions::empty())?
            && pid == tests
        {
            break exit(status);
        }
    };
    kill_all();
    reap_all(&path);
    // The lock is held until the end, so that no other run cleans up at the same time.
    journal::clean(&path);
    drop(journal);
    Ok(code(exit))
}

/// Kills every process of the namespace but this one: that is what a signal to the group -1 does.
fn kill_all() {
    let _ = kill_process_group(Pid::INIT, Signal::KILL);
}

/// Reaps all processes of the namespace; orphans are children of this process.
fn reap_all(journal: &Path) {
    let began = Instant::now();
    while let Ok(reaped) = wait(WaitOptions::NOHANG) {
        if reaped.is_none() {
            if began.elapsed() >= ENDED_WITHIN {
                return print(format_args!("processes of the run {} do not end", journal.display()));
            }
            // A process that was cloned while the others were killed, and those that a version 1 freezer holds.
            kill_all();
            journal::thaw(journal);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn exit(status: WaitStatus) -> Exit {
    status.terminating_signal().map_or_else(|| Exit::Code(status.exit_status().unwrap_or(-1)), Exit::Signal)
}

fn code(exit: Exit) -> u8 {
    let code = match exit {
        Exit::Code(code) => code,
        Exit::Signal(signal) => 128 + signal,
    };
    u8::try_from(code).unwrap_or(u8::MAX)
}
