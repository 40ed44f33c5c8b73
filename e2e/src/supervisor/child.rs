//! One process under the supervisor's care.

use std::fs::File;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};

use super::journal::{Entry, Journal, MARK};
use super::process::Identity;
use super::protocol::{Exit, Start};

/// A started process, running or ended.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: i32,
    group: Pid,
    grace: Duration,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug)]
enum State {
    Running(Child),
    Ended(Exit),
}

impl Process {
    /// Starts a process in a group of its own, writes it down, and watches over its end.
    pub(super) fn start(start: &Start, journal: &Arc<Mutex<Journal>>) -> Result<Arc<Self>> {
        let mut book = journal.lock().unwrap_or_else(PoisonError::into_inner);
        book.write(&Entry::Starting(start.name.clone()))?;
        let child = command(start, &book.head.run)?
            .spawn()
            .with_context(|| format!("cannot start {} ({})", start.name, start.program.display()))?;
        let pid = i32::try_from(child.id()).context("a process id that is no Linux process id")?;
        let group = Pid::from_raw(pid).context("a process id of zero")?;
        // A child that has ended by now is a zombie until we reap it: there is nobody to write down then.
        let process = Identity::of(pid);
        if let Some(process) = process {
            book.write(&Entry::Started { name: start.name.clone(), process })?;
        }
        drop(book);
        let part = Arc::new(Self {
            pid,
            group,
            grace: Duration::from_millis(start.grace_millis),
            state: Mutex::new(State::Running(child)),
            ended: Condvar::new(),
        });
        let watched = Arc::clone(&part);
        let journal = Arc::clone(journal);
        std::thread::spawn(move || {
            watched.watch();
            if let Some(process) = process {
                let _ = journal.lock().unwrap_or_else(PoisonError::into_inner).write(&Entry::Ended(process));
            }
        });
        Ok(part)
    }

    /// Waits for the end without reaping, so that the process id, and the group's, stay ours until the lock
    /// is held: no signal of ours can then reach a stranger.
    fn watch(&self) {
        while let Err(rustix::io::Errno::INTR) =
            waitid(WaitId::Pid(self.group), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
        {}
        let mut state = self.state();
        // What the process started and did not take along, for instance compilers of an interrupted build.
        let _ = kill_process_group(self.group, Signal::KILL);
        if let State::Running(child) = &mut *state {
            let exit = child.wait().map_or(Exit::Code(-1), exit);
            *state = State::Ended(exit);
        }
        drop(state);
        self.ended.notify_all();
    }

    /// Sends a signal to the process itself, not to what it started.
    pub(super) fn signal(&self, signal: i32) -> Result<()> {
        let Some(signal) = Signal::from_named_raw(signal) else {
            bail!("{signal} is the number of no signal")
        };
        match &*self.state() {
            State::Running(_) => Ok(kill_process(self.group, signal)?),
            State::Ended(exit) => bail!("it has ended already, with {exit}"),
        }
    }

    /// How it ended, if it has.
    pub(super) fn exit(&self) -> Option<Exit> {
        match &*self.state() {
            State::Running(_) => None,
            State::Ended(exit) => Some(*exit),
        }
    }

    /// Blocks until the process has ended.
    pub(super) fn wait(&self) -> Exit {
        let mut state = self.state();
        loop {
            if let State::Ended(exit) = &*state {
                return *exit;
            }
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// SIGTERM, grace, SIGKILL; blocks until the process has ended.
    pub(super) fn end(&self) -> Exit {
        if !self.grace.is_zero() {
            let _ = self.signal(Signal::TERM.as_raw());
        }
        if self.ended_within(self.grace).is_none() {
            let _ = self.signal(Signal::KILL.as_raw());
        }
        self.wait()
    }

    fn ended_within(&self, time: Duration) -> Option<Exit> {
        let (state, _) = self
            .ended
            .wait_timeout_while(self.state(), time, |state| matches!(state, State::Running(_)))
            .unwrap_or_else(PoisonError::into_inner);
        drop(state);
        self.exit()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn command(start: &Start, run: &str) -> Result<Command> {
    let stdout =
        File::create(&start.stdout).with_context(|| format!("cannot write {}", start.stdout.display()))?;
    let stderr = match &start.stderr {
        Some(path) => File::create(path).with_context(|| format!("cannot write {}", path.display()))?,
        None => stdout.try_clone()?,
    };
    let stdin = match &start.stdin {
        Some(path) => {
            Stdio::from(File::open(path).with_context(|| format!("cannot read {}", path.display()))?)
        }
        None => Stdio::null(),
    };
    let mut command = Command::new(&start.program);
    command
        .args(&start.arguments)
        .envs(start.environment.iter().map(|(name, value)| (name, value)))
        .env(MARK, run)
        .stdin(stdin)
        .stdout(stdout)
        .stderr(stderr)
        .process_group(0);
    if let Some(folder) = &start.folder {
        command.current_dir(folder);
    }
    Ok(command)
}

fn exit(status: ExitStatus) -> Exit {
    status.signal().map_or_else(|| Exit::Code(status.code().unwrap_or(-1)), Exit::Signal)
}
