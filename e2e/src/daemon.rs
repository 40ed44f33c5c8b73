//! A process that a case can freeze, stop and start again with the same command line.
//!
//! These changes are undone when their result is dropped, so a case that fails leaves the fleet intact.

use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::Signal;

use crate::fixture::Undo;
use crate::supervisor::{Exit, Process, Supervisor, Tool};
use crate::wait::{Poll, eventually};

/// An API server is ready in three to six seconds on an idle machine. During a build it takes longer.
const READY_WITHIN: Duration = Duration::from_secs(120);

/// A signal is delivered at once, and each thread stops when it is next scheduled.
const FROZEN_WITHIN: Duration = Duration::from_secs(30);

/// A listener on this host or a node answers at once.
const CONNECTED_WITHIN: Duration = Duration::from_secs(1);

/// A check whether the process is ready; the error says what is missing.
type Probe = dyn Fn() -> Result<()> + Send + Sync;

/// A running process and its command line.
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
    /// Starts a process and waits for nothing. [`Daemon::await_ready`] calls `probe`.
    pub(crate) fn start(
        supervisor: &Arc<Supervisor>,
        tool: Tool,
        probe: impl Fn() -> Result<()> + Send + Sync + 'static,
    ) -> Result<Self> {
        let part = supervisor.start_process(tool.clone())?;
        Ok(Self {
            supervisor: Arc::clone(supervisor),
            tool,
            probe: Box::new(probe),
            part: Mutex::new(Arc::new(part)),
        })
    }

    /// Waits until it is ready. If it ends instead, the error has its log.
    pub fn await_ready(&self) -> Result<()> {
        let part = self.part();
        eventually(format_args!("{} to be ready", part.name()), READY_WITHIN, || {
            if let Some(exit) = part.exit()? {
                bail!("ended while it was starting, with {exit}");
            }
            Ok((self.probe)().into())
        })
        .map_err(|error| part.failure(format_args!("{error:#}")))
    }

    /// Returns its process id, which changes with each start.
    pub fn pid(&self) -> i32 {
        self.part().pid()
    }

    /// Freezes it (SIGSTOP) until the result is dropped. The kernel still accepts connections, but nothing answers them;
    /// afterwards the process answers what it received.
    pub fn freeze(&self) -> Result<Undo<'_>> {
        let part = self.part();
        part.signal(Signal::STOP)?;
        let frozen = Undo::new("a frozen process does not continue", || self.part().signal(Signal::CONT));
        await_frozen(part.pid())?;
        Ok(frozen)
    }

    /// Sends a signal. Fails if it has ended.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        self.part().signal(signal)
    }

    /// Returns whether it ends within this time.
    pub(crate) fn has_ended(&self, within: Duration) -> Result<bool> {
        Ok(self.part().wait(within)?.is_some())
    }

    /// Ends it until the result is dropped. Connections are refused.
    pub fn stop(&self) -> Result<Undo<'_>> {
        self.end()?;
        Ok(Undo::new("a stopped process does not start", || self.start_again()))
    }

    /// Ends it and starts it again.
    pub fn restart(&self) -> Result<()> {
        self.stop()?.undo()
    }

    /// Kills it (SIGKILL) until the result is dropped.
    pub fn kill(&self) -> Result<Undo<'_>> {
        self.signal(Signal::KILL)?;
        self.stop()
    }

    /// Ends it and does not start it again.
    pub(crate) fn end(&self) -> Result<Exit> {
        self.part().end()
    }

    /// Returns an error with the end of its log.
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

/// Returns a probe that succeeds if a listener accepts connections.
pub(crate) fn accepts(address: impl Into<SocketAddr>) -> impl Fn() -> Result<()> + Send + Sync + 'static {
    let address = address.into();
    move || {
        TcpStream::connect_timeout(&address, CONNECTED_WITHIN).map(drop).with_context(|| address.to_string())
    }
}

/// Waits until each thread of a process that got SIGSTOP has stopped; a thread that was not scheduled yet still
/// answers. A process that reads from an LXCFS that stopped meanwhile cannot even be killed.
pub fn await_frozen(pid: i32) -> Result<()> {
    eventually(format_args!("process {pid} to be frozen"), FROZEN_WITHIN, || {
        for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            // The thread can have ended.
            let Ok(stat) = std::fs::read_to_string(thread?.path().join("stat")) else { continue };
            let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
            if state != Some('T') {
                return Ok(Poll::Pending(format!("a thread in state {state:?}")));
            }
        }
        Ok(Poll::Ready(()))
    })
}
