//! A part that a case may freeze, stop and start again, always with the same command line.
//!
//! What a case does to it is undone when the case lets go, whatever way the case ends: [`Frozen`] thaws and
//! [`Stopped`] starts again when dropped. So a case that fails leaves a whole fleet to the next one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use rustix::process::Signal;

use crate::console::print;
use crate::supervisor::{Exit, Process, Supervisor, Tool};
use crate::wait::{Poll, eventually};

/// An API server is ready in three to six seconds on an idle machine; this is for one that builds something
/// beside it.
const READY_WITHIN: Duration = Duration::from_secs(120);

/// A signal is delivered at once; its threads stop when each is next scheduled.
const FROZEN_WITHIN: Duration = Duration::from_secs(30);

/// One look whether it is ready.
type Probe = dyn Fn() -> Result<Poll<()>> + Send + Sync;

/// A running part, and how it is started.
pub struct Daemon {
    supervisor: Arc<Supervisor>,
    tool: Tool,
    probe: Box<Probe>,
    part: Mutex<Arc<Process>>,
}

impl std::fmt::Debug for Daemon {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Daemon").field("part", &self.part()).finish_non_exhaustive()
    }
}

impl Daemon {
    /// Starts it and waits for nothing. `probe` is what [`Daemon::await_ready`] asks.
    pub(crate) fn start(
        supervisor: &Arc<Supervisor>,
        tool: Tool,
        probe: impl Fn() -> Result<Poll<()>> + Send + Sync + 'static,
    ) -> Result<Self> {
        let part = supervisor.start_process(tool.clone())?;
        Ok(Self {
            supervisor: Arc::clone(supervisor),
            tool,
            probe: Box::new(probe),
            part: Mutex::new(Arc::new(part)),
        })
    }

    /// Waits until it does what it is for. If it ends instead, the error says what it said.
    pub fn await_ready(&self) -> Result<()> {
        let part = self.part();
        eventually(format_args!("{} to be ready", part.name()), READY_WITHIN, || {
            if let Some(exit) = part.exit()? {
                bail!("ended while it was starting, with {exit}");
            }
            (self.probe)()
        })
        .map_err(|error| part.failure(format_args!("{error:#}")))
    }

    /// Its process id, which changes when it is started again.
    pub fn pid(&self) -> i32 {
        self.part().pid()
    }

    /// SIGSTOP: connections stay, new ones are taken by the kernel, and nobody answers.
    pub fn freeze(&self) -> Result<Frozen<'_>> {
        let part = self.part();
        part.signal(Signal::STOP)?;
        let frozen = Frozen { daemon: self, held: true };
        await_frozen(part.pid())?;
        Ok(frozen)
    }

    /// Sends it a signal. An error if it has ended already.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        self.part().signal(signal)
    }

    /// Whether it ends within this time, which somebody must have asked it to.
    pub(crate) fn has_ended(&self, within: Duration) -> Result<bool> {
        Ok(self.part().wait(within)?.is_some())
    }

    /// Ends it: from now on connections are refused.
    pub fn stop(&self) -> Result<Stopped<'_>> {
        self.end()?;
        Ok(Stopped { daemon: self, held: true })
    }

    /// Ends it for good.
    pub(crate) fn end(&self) -> Result<Exit> {
        self.part().end()
    }

    /// What failed, with the end of its log.
    pub fn failure(&self, what: impl std::fmt::Display) -> anyhow::Error {
        self.part().failure(what)
    }

    fn start_again(&self) -> Result<()> {
        let part = self.supervisor.start_process(self.tool.clone())?;
        *self.part.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(part);
        self.await_ready()
    }

    fn part(&self) -> Arc<Process> {
        Arc::clone(&self.part.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A part that does not run until this is dropped, or [`Frozen::thaw`] says so.
#[derive(Debug)]
#[must_use = "it thaws at once when this is dropped"]
pub struct Frozen<'a> {
    daemon: &'a Daemon,
    held: bool,
}

impl Frozen<'_> {
    /// SIGCONT. It goes on where it was; what was sent to it meanwhile is answered now.
    pub fn thaw(mut self) -> Result<()> {
        self.held = false;
        self.daemon.part().signal(Signal::CONT)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        if self.held
            && let Err(error) = self.daemon.part().signal(Signal::CONT)
        {
            print(format_args!("a frozen part could not be thawed: {error:#}"));
        }
    }
}

/// A part that is not there until this is dropped, or [`Stopped::start`] says so.
#[derive(Debug)]
#[must_use = "it is started again at once when this is dropped"]
pub struct Stopped<'a> {
    daemon: &'a Daemon,
    held: bool,
}

impl Stopped<'_> {
    /// Starts it again and returns when it is ready.
    pub fn start(mut self) -> Result<()> {
        self.held = false;
        self.daemon.start_again()
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        if self.held
            && let Err(error) = self.daemon.start_again()
        {
            print(format_args!("a stopped part could not be started again: {error:#}"));
        }
    }
}

/// Waits until a process that was sent SIGSTOP stands still, each of its threads: one that has not been scheduled yet still takes
/// what comes. From an LXCFS that did so whoever asks can't even be killed, until it goes on.
pub fn await_frozen(pid: i32) -> Result<()> {
    eventually(format_args!("process {pid} to be frozen"), FROZEN_WITHIN, || {
        for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            // It may have ended meanwhile.
            let Ok(stat) = std::fs::read_to_string(thread?.path().join("stat")) else { continue };
            let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
            if state != Some('T') {
                return Ok(Poll::Pending(format!("a thread in state {state:?}")));
            }
        }
        Ok(Poll::Ready(()))
    })
}
