//! Processes of a run: how they are started, awaited, signaled and ended.

use std::fs::File;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};

use super::isolate::ROLE;

/// The variable of Go programs that trades memory for processor time. With 300 instead of 100, an API server starts with a third less
/// processor time and 50 MB more.
const GOGC: (&str, &str) = ("GOGC", "300");

/// How often a wait looks.
const INTERVAL: Duration = Duration::from_millis(10);

/// A process in the kernel, for example in a file system that hangs, ends late or never after SIGKILL.
const KILLED_WITHIN: Duration = Duration::from_secs(180);

/// A program with its arguments.
#[derive(Debug, Clone)]
pub struct Tool {
    pub(super) name: String,
    pub(super) input: Option<String>,
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    directory: Option<PathBuf>,
    grace: Duration,
}

impl Tool {
    /// Makes a tool. `name` is for messages and logs; `program` is a path, or a name to look up in PATH.
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            input: None,
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: None,
            grace: Duration::from_secs(2),
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn arguments<A: Into<String>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Adds `--name=value`.
    #[must_use]
    pub fn flag(self, name: &str, value: impl std::fmt::Display) -> Self {
        self.argument(format!("--{name}={value}"))
    }

    /// Adds an environment variable to those of the test process.
    #[must_use]
    pub fn environment(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Sets the working directory.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Sets the text on standard input, for [`super::Supervisor::run`].
    #[must_use]
    pub fn input(mut self, input: impl Into<String>) -> Self {
        self.input = Some(input.into());
        self
    }

    /// Starts the tool by another program that becomes it, such as `nsenter`. `launcher` gets the working directory and
    /// returns the arguments, because the directory can have another path there.
    #[must_use]
    pub(crate) fn started_by(
        mut self,
        program: impl Into<PathBuf>,
        launcher: impl FnOnce(Option<&Path>) -> Vec<String>,
    ) -> Self {
        let mut arguments = launcher(self.directory.take().as_deref());
        arguments.push(self.program.display().to_string());
        arguments.append(&mut self.arguments);
        Self { arguments, program: program.into(), ..self }
    }

    /// Sets the time between SIGTERM and SIGKILL, two seconds by default. Zero means SIGKILL at once.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }
}

/// The output of a tool that has ended.
#[derive(Debug, Clone)]
pub struct Output {
    /// How it ended.
    pub exit: Exit,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Output {
    /// Returns whether the exit code is 0.
    pub fn is_success(&self) -> bool {
        self.exit == Exit::Code(0)
    }

    /// Returns the exit code, or none after a signal.
    pub fn code(&self) -> Option<i32> {
        match self.exit {
            Exit::Code(code) => Some(code),
            Exit::Signal(_) => None,
        }
    }

    /// Expects this exit code. The error contains all output.
    pub fn exited_with(&self, code: i32) -> Result<()> {
        if self.code() == Some(code) {
            return Ok(());
        }
        bail!("ended with {} instead of {code}:\n{}{}", self.exit, self.stderr, self.stdout)
    }

    /// Returns itself if the exit code is 0, else an error with the output.
    pub fn succeeded(self) -> Result<Self> {
        if self.is_success() {
            return Ok(self);
        }
        bail!("ended with {}:\n{}{}", self.exit, self.stderr, self.stdout)
    }
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        status.signal().map_or_else(|| Self::Code(status.code().unwrap_or(-1)), Self::Signal)
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(formatter, "exit code {code}"),
            Self::Signal(signal) => write!(formatter, "signal {signal}"),
        }
    }
}

/// A process in a process group of its own, running or ended.
#[derive(Debug)]
pub struct Process {
    name: String,
    log: PathBuf,
    pid: Pid,
    grace: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    child: Child,
    exit: Option<Exit>,
}

impl Process {
    pub(super) fn start(tool: Tool, stdin: Stdio, stdout: File, stderr: File, log: PathBuf) -> Result<Self> {
        let Tool { name, program, arguments, environment, directory, grace, .. } = tool;
        let mut command = Command::new(&program);
        command.args(arguments).env_remove(ROLE).env(GOGC.0, GOGC.1).envs(environment).process_group(0);
        command.stdin(stdin).stdout(stdout).stderr(stderr);
        if let Some(directory) = directory {
            command.current_dir(directory);
        }
        let child =
            command.spawn().with_context(|| format!("cannot start {name} ({})", program.display()))?;
        let pid = Pid::from_child(&child);
        Ok(Self { name, log, pid, grace, state: Mutex::new(State { child, exit: None }) })
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its process id.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Returns the file with its output.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Sends a signal to the process, not to its children. Fails if it has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let mut state = self.state();
        // The lock prevents that the process is reaped and its id is given to another one meanwhile.
        match state.poll(self.pid)? {
            None => kill_process(self.pid, signal).with_context(|| format!("cannot signal {}", self.name)),
            Some(exit) => bail!("cannot signal {}: it has ended already, with {exit}", self.name),
        }
    }

    /// Returns how it ended, or none while it runs.
    pub fn exit(&self) -> Result<Option<Exit>> {
        self.state().poll(self.pid)
    }

    /// Waits for its end. Returns none if it still runs after this time.
    pub fn wait(&self, within: Duration) -> Result<Option<Exit>> {
        let began = Instant::now();
        loop {
            let exit = self.exit()?;
            if exit.is_some() || began.elapsed() >= within {
                return Ok(exit);
            }
            std::thread::sleep(INTERVAL);
        }
    }

    /// Ends it by SIGTERM, its grace and SIGKILL. It is not an error if it has ended already.
    pub fn end(&self) -> Result<Exit> {
        if !self.grace.is_zero() {
            let _ = self.signal(Signal::TERM);
        }
        if self.wait(self.grace)?.is_none() {
            let _ = self.signal(Signal::KILL);
        }
        self.wait(KILLED_WITHIN)?.with_context(|| format!("SIGKILL does not end {}", self.name))
    }

    /// Returns the last lines of its log.
    pub fn log_tail(&self, lines: usize) -> String {
        let text = read(&self.log);
        let all: Vec<_> = text.lines().collect();
        all.get(all.len().saturating_sub(lines)..).unwrap_or_default().join("\n")
    }

    /// Returns an error about this process, with the end of its log and the log's path.
    pub fn failure(&self, what: impl std::fmt::Display) -> anyhow::Error {
        let log = self.log.display();
        anyhow::anyhow!("{}: {what}\nthe end of {log}:\n{}", self.name, self.log_tail(20))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn poll(&mut self, pid: Pid) -> Result<Option<Exit>> {
        let ended = || {
            waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG)
        };
        if self.exit.is_none() && ended()?.is_some() {
            // Children that it left, for example compilers of an interrupted build. Until it is reaped, the group is its.
            let _ = kill_process_group(pid, Signal::KILL);
            self.exit = Some(self.child.wait()?.into());
        }
        Ok(self.exit)
    }
}

pub(super) fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}
