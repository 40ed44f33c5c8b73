//! Processes of a run: how they are started, awaited, signaled and ended.

use std::cell::Cell;
use std::collections::BTreeMap;
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

/// The processor time of processes that have ended by program, and their number.
static ENDED: Mutex<BTreeMap<String, (Duration, usize)>> = Mutex::new(BTreeMap::new());

thread_local! {
    /// The processor time of the processes that this thread has waited for.
    static CPU_TIME: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Returns the processor time of the processes that this thread has waited for, and of their children.
pub fn cpu_time() -> Duration {
    CPU_TIME.get()
}

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
            if let Some(CpuTime { program, own, children }) = cpu_time_of(pid.as_raw_nonzero().get()) {
                CPU_TIME.set(CPU_TIME.get() + own + children);
                add(&mut ENDED.lock().unwrap_or_else(PoisonError::into_inner), &program, own + children);
            }
            self.exit = Some(self.child.wait()?.into());
        }
        Ok(self.exit)
    }
}

/// Returns the processor time of all programs of the run so far, with the number of their processes.
///
/// The run has its own pid namespace, so `/proc` shows no other processes. Children of a program that has ended count for it.
pub fn cpu_time_by_program() -> BTreeMap<String, (Duration, usize)> {
    let mut times = ENDED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let own_pid = i32::try_from(std::process::id()).unwrap_or_default();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
        let Some(CpuTime { program, own, children }) = cpu_time_of(pid) else { continue };
        // The children of the tests are in the list already. Those of the first process are containers that have ended.
        match pid {
            1 => {
                add(&mut times, &program, own);
                add(&mut times, "ended containers", children);
            }
            _ if pid == own_pid => add(&mut times, &program, own),
            _ => add(&mut times, &program, own + children),
        }
    }
    times
}

fn add(times: &mut BTreeMap<String, (Duration, usize)>, program: &str, time: Duration) {
    let (sum, count) = times.entry(program.to_owned()).or_default();
    *sum += time;
    *count += 1;
}

/// The processor time of a process and of its children that have ended.
struct CpuTime {
    program: String,
    own: Duration,
    children: Duration,
}

/// Returns the processor time of a process. One that has ended and is not reaped yet has it too.
fn cpu_time_of(pid: i32) -> Option<CpuTime> {
    let line = read(Path::new(&format!("/proc/{pid}/stat")));
    let (head, fields) = line.rsplit_once(')')?;
    let (_, program) = head.split_once('(')?;
    // After the name in parentheses: state is the first field, and utime, stime, cutime and cstime are fields 12 to 15. Linux shows
    // them in hundredths of a second on every architecture.
    let mut ticks = fields.split_ascii_whitespace().skip(11).filter_map(|field| field.parse::<u64>().ok());
    let mut next_two = || Some(Duration::from_millis(10 * (ticks.next()? + ticks.next()?)));
    Some(CpuTime { program: program.to_owned(), own: next_two()?, children: next_two()? })
}

pub(super) fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}
