//! Runs a program in a pid namespace and a mount namespace of its own, and cleans up after it.
//!
//! Three processes execute the same program:
//! - the *owner*, which the user started: it starts the second and returns its exit code;
//! - the *first process* of the namespace: it starts the third and reaps orphans. When the third has ended, or the owner's end
//!   of a pipe is closed, it kills all others and cleans up;
//! - the *tests*, for which [`isolate`] returns none.
//!
//! If the first process is killed, the kernel kills the others, and the owner cleans up.

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, wait};

use super::Exit;
use super::run::Run;
use crate::console::print;

/// The environment variable that names the process's role.
pub(super) const ROLE: &str = "DURWARD_E2E_ROLE";

/// The environment variable with the name of the run.
const RUN: &str = "DURWARD_E2E_RUN";

const FIRST: &str = "first";
const TESTS: &str = "tests";

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

/// Returns the run of this process.
pub(super) fn run() -> Result<Run> {
    Run::named(&std::env::var(RUN).context("this process is not in a run's namespaces")?)
}

/// Returns a number that differs between concurrent runs. Process ids do not: each run counts from 1.
pub(crate) fn run_number() -> u32 {
    let run = std::env::var(RUN).unwrap_or_else(|_| std::process::id().to_string());
    run.bytes().fold(0, |number: u32, byte| number.wrapping_mul(31).wrapping_add(byte.into()))
}

fn owner() -> Result<u8> {
    let is_root = rustix::process::geteuid().is_root();
    ensure!(is_root, "the end-to-end tests need root, for namespaces of their own");
    let (run, _lives) = Run::start()?;
    // The mounts of the host appear in the namespace, and none of the namespace on the host.
    let mut first = Command::new("unshare")
        .args(["--pid", "--mount-proc", "--propagation=slave", "--fork", "--kill-child=KILL", "--"])
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(ROLE, FIRST)
        .env(RUN, &run.name)
        .stdin(Stdio::piped())
        // Ctrl-C in the terminal reaches the owner only.
        .process_group(0)
        .spawn()
        .context("cannot run `unshare` (Debian: util-linux)")?;
    let pipe = first.stdin.take();
    let status = first.wait().context("cannot wait for the tests")?;
    drop(pipe);
    if run.work.exists() {
        run.clean();
    }
    Ok(code(status.into()))
}

/// The first process of the namespace. If it ends, the kernel kills all others.
fn first() -> Result<u8> {
    // Outside a namespace, `kill_all` would kill all processes of the host.
    ensure!(std::process::id() == 1, "{ROLE}={FIRST} is only for the first process of a pid namespace");
    let run = run()?;
    // The lock is held until the end, so that no other run cleans up at the same time.
    let _lives = run.hold()?;
    // The end of the terminal's session does not reach it. This fails if it has a session already.
    let _ = rustix::process::setsid();
    let tests = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(ROLE, TESTS)
        .stdin(Stdio::null())
        .spawn()
        .context("cannot start the tests")?;
    let tests = Pid::from_child(&tests);
    std::thread::spawn(|| {
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        kill_all();
    });
    let exit = loop {
        if let Some((pid, status)) = wait(WaitOptions::empty())?
            && pid == tests
        {
            let signal = status.terminating_signal().map(Exit::Signal);
            break signal.unwrap_or_else(|| Exit::Code(status.exit_status().unwrap_or(-1)));
        }
    };
    kill_all();
    run.clean();
    Ok(code(exit))
}

/// Kills every process of the namespace but this one: that is what a signal to the group -1 does.
fn kill_all() {
    let _ = kill_process_group(Pid::INIT, Signal::KILL);
}

fn code(exit: Exit) -> u8 {
    let code = match exit {
        Exit::Code(code) => code,
        Exit::Signal(signal) => 128 + signal,
    };
    u8::try_from(code).unwrap_or(u8::MAX)
}
