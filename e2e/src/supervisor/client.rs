//! The tests' side of the supervisor.
//!
//! Everything here may be called from any thread: questions go out one line at a time, answers are handed to
//! whoever asked.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::Signal;

use super::protocol::{Answer, Exit, GREETING, Lease, Order, Question, Reply, Resource, Start};
use crate::console::print;

/// The supervisor greets after it has cleaned up behind dead ones, which may take a grace and ten seconds for
/// each.
const GREETING_WITHIN: Duration = Duration::from_secs(120);

/// The longest that an answer takes: a part's grace, and a machine that does much else. A process that not even
/// SIGKILL ends, as it waits for a file system that hangs, must not hold up the run.
const ANSWERED_WITHIN: Duration = Duration::from_secs(180);

/// The same for the end of the whole run.
const ENDED_WITHIN: Duration = Duration::from_secs(300);

type Waiting = Arc<Mutex<HashMap<u64, mpsc::Sender<Result<Reply, String>>>>>;

/// The one supervisor of this test process.
#[derive(Debug)]
pub struct Supervisor {
    /// None after [`Supervisor::finish`].
    pipe: Mutex<Option<ChildStdin>>,
    child: Mutex<Child>,
    waiting: Waiting,
    next: AtomicU64,
    work: PathBuf,
    logs: PathBuf,
}

impl Supervisor {
    /// Starts the supervisor's program and waits until it has cleaned up behind dead ones.
    pub fn start(program: &Path) -> Result<Arc<Self>> {
        let mut child = Command::new(program)
            // A run within a run (the supervisor's own tests): the outer supervisor must not take the inner one for a
            // stray and end it while it cleans up.
            .env_remove(super::journal::MARK)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start the supervisor {}", program.display()))?;
        let pipe = child.stdin.take().context("the supervisor has no standard input")?;
        let answers = child.stdout.take().context("the supervisor has no standard output")?;
        let (greeter, greeting) = mpsc::channel();
        let waiting: Waiting = Arc::new(Mutex::new(HashMap::from([(GREETING, greeter)])));
        let heard = Arc::clone(&waiting);
        std::thread::spawn(move || listen(answers, &heard));
        let ready = greeting.recv_timeout(GREETING_WITHIN).context("the supervisor said nothing")?;
        let Reply::Ready { work, logs } = ready.map_err(anyhow::Error::msg)? else {
            bail!("the supervisor's first words were not that it is ready")
        };
        Ok(Arc::new(Self {
            pipe: Mutex::new(Some(pipe)),
            child: Mutex::new(child),
            waiting,
            next: AtomicU64::new(GREETING + 1),
            work,
            logs,
        }))
    }

    /// The folder for everything that ends with the run.
    pub fn work(&self) -> &Path {
        &self.work
    }

    /// The folder of logs, kept if the run does not pass.
    pub fn logs(&self) -> &Path {
        &self.logs
    }

    /// The supervisor's process id.
    pub fn pid(&self) -> u32 {
        self.lock_child().id()
    }

    /// Starts a part that runs until it is ended. Its output goes to a log of its name, which is numbered if
    /// the name was had before.
    pub fn start_process(self: &Arc<Self>, tool: Tool) -> Result<Process> {
        let log = self.log(&tool.start.name)?;
        let name = tool.start.name.clone();
        let start = Start { stdout: log.clone(), ..tool.start };
        let reply = self.ask(Order::Start(start))?;
        let Reply::Started { part, pid } = reply else {
            bail!("the supervisor answered {reply:?} to a start")
        };
        Ok(Process { supervisor: Arc::clone(self), number: part, pid, name, log })
    }

    /// Runs a tool to its end and returns what it said, whatever its exit code.
    pub fn run(self: &Arc<Self>, tool: Tool, within: Duration) -> Result<Output> {
        let stdout = self.work.join(format!("{}-{}.out", tool.start.name, self.number()));
        let stderr = stdout.with_extension("err");
        let name = tool.start.name.clone();
        let stdin = match &tool.input {
            Some(input) => {
                let path = stdout.with_extension("in");
                std::fs::write(&path, input).with_context(|| format!("cannot write {}", path.display()))?;
                Some(path)
            }
            None => tool.start.stdin,
        };
        let start = Start { stdin, stdout: stdout.clone(), stderr: Some(stderr.clone()), ..tool.start };
        let reply = self.ask(Order::Start(start))?;
        let Reply::Started { part, pid } = reply else {
            bail!("the supervisor answered {reply:?} to a start")
        };
        let part = Process { supervisor: Arc::clone(self), number: part, pid, name, log: stderr.clone() };
        let Some(exit) = part.wait(within)? else {
            let said = read(&stderr);
            part.end()?;
            bail!("{} did not end within {within:?}; it said: {}", part.name, said.trim());
        };
        let output = Output { exit, stdout: read(&stdout), stderr: read(&stderr) };
        for path in [&stdout, &stderr, &stdout.with_extension("in")] {
            let _ = std::fs::remove_file(path);
        }
        Ok(output)
    }

    /// Adds an address of the run's own to the loopback device, of which the API server thinks no less than
    /// of any other.
    pub fn address(&self) -> Result<Ipv4Addr> {
        match self.ask(Order::Address)? {
            Reply::Address(address) => Ok(address),
            other => bail!("the supervisor answered {other:?} when asked for an address"),
        }
    }

    /// A cgroup of the run's own in every hierarchy of this host; its name. The supervisor ends whoever is in it
    /// when the run ends, and removes it.
    pub fn cgroup(&self) -> Result<String> {
        match self.ask(Order::Borrow(Resource::Cgroup))? {
            Reply::Leased(Lease::Cgroup(name)) => Ok(name),
            other => bail!("the supervisor answered {other:?} when asked for a cgroup"),
        }
    }

    /// Joins this host to the network namespace of the process `into`.
    ///
    /// Returns the number x of the network 10.98.x.0/30 between them: the host has its first address, and the
    /// interface `eth0` in the namespace, which is down as yet, is meant to get its second.
    pub fn link(&self, into: i32) -> Result<u8> {
        match self.ask(Order::Borrow(Resource::Link { into }))? {
            Reply::Leased(Lease::Link(subnet)) => Ok(subnet),
            other => bail!("the supervisor answered {other:?} when asked for a link"),
        }
    }

    /// Ends the run: everything is ended and removed; the logs too if it passed. Returns when that is done.
    ///
    /// If the supervisor was killed meanwhile, this process does its work from the journal.
    pub fn finish(&self, passed: bool) -> Result<()> {
        if passed && let Err(error) = self.ask(Order::Passed) {
            print(format_args!("the supervisor could not be told that the run passed: {error:#}"));
        }
        drop(self.lock_pipe().take());
        let mut child = self.lock_child();
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().context("cannot wait for the supervisor")? {
                break status;
            }
            if begun.elapsed() >= ENDED_WITHIN {
                bail!("the supervisor, process {}, has not ended all within {ENDED_WITHIN:?}", child.id());
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        if !status.success() {
            print(format_args!("the supervisor ended with {status}"));
            super::journal::sweep(&crate::binaries::cache()?)?;
        }
        Ok(())
    }

    fn ask(&self, order: Order) -> Result<Reply> {
        let told = format!("{order:?}");
        match self.ask_later(order)?.recv_timeout(ANSWERED_WITHIN) {
            Ok(reply) => reply.map_err(anyhow::Error::msg),
            Err(mpsc::RecvTimeoutError::Disconnected) => bail!("the supervisor is gone"),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                bail!("the supervisor has not answered within {ANSWERED_WITHIN:?}: {told}")
            }
        }
    }

    fn ask_later(&self, order: Order) -> Result<mpsc::Receiver<Result<Reply, String>>> {
        let id = self.number();
        let (sender, receiver) = mpsc::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sender);
        let mut line = serde_json::to_vec(&Question { id, order })?;
        line.push(b'\n');
        let mut pipe = self.lock_pipe();
        let pipe = pipe.as_mut().context("the run is over")?;
        pipe.write_all(&line).context("the supervisor is gone")?;
        Ok(receiver)
    }

    /// A log of this name, numbered if the name was had before. Making the file is what decides between two
    /// who ask at once.
    fn log(&self, name: &str) -> Result<PathBuf> {
        let plain = self.logs.join(format!("{name}.log"));
        match File::create_new(&plain) {
            Ok(_) => Ok(plain),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Ok(self.logs.join(format!("{name}-{}.log", self.number())))
            }
            Err(error) => Err(error).with_context(|| format!("cannot write {}", plain.display())),
        }
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn lock_pipe(&self) -> MutexGuard<'_, Option<ChildStdin>> {
        self.pipe.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hands every answer to whoever asked. When the supervisor is gone, all who still wait are told so by the end of
/// their channels.
fn listen(answers: ChildStdout, waiting: &Waiting) {
    for line in BufReader::new(answers).lines() {
        let Ok(line) = line else { break };
        let Ok(Answer { id, result }) = serde_json::from_str(&line) else {
            print(format_args!("the supervisor said what nobody understands: {line:?}"));
            continue;
        };
        if let Some(asker) = waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&id) {
            let _ = asker.send(result);
        }
    }
    waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

// === impl Tool ===

/// A program with its arguments, to be started by the supervisor.
#[derive(Debug, Clone)]
pub struct Tool {
    start: Start,
    input: Option<String>,
}

impl Tool {
    /// `name` is for words, logs and the journal; `program` a path, or a name to look up in PATH.
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>) -> Self {
        let start = Start {
            name: name.into(),
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            folder: None,
            stdin: None,
            stdout: PathBuf::new(),
            stderr: None,
            grace_millis: 2_000,
        };
        Self { start, input: None }
    }

    /// One more argument.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<String>) -> Self {
        self.start.arguments.push(argument.into());
        self
    }

    /// More arguments.
    #[must_use]
    pub fn arguments<A: Into<String>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.start.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// `--name=value`, as most parts want it.
    #[must_use]
    pub fn flag(self, name: &str, value: impl std::fmt::Display) -> Self {
        self.argument(format!("--{name}={value}"))
    }

    /// One more environment variable, on top of the test process's own.
    #[must_use]
    pub fn environment(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.start.environment.push((name.into(), value.into()));
        self
    }

    /// Its working folder.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.start.folder = Some(folder.into());
        self
    }

    /// What it reads on standard input.
    #[must_use]
    pub fn input(mut self, input: impl Into<String>) -> Self {
        self.input = Some(input.into());
        self
    }

    /// The same started by another program, which is told to become it: `nsenter`, `env`. The working folder
    /// is handed to `launcher` as the launcher wants it, for it may not be the same folder there.
    #[must_use]
    pub(crate) fn started_by(
        mut self,
        program: impl Into<PathBuf>,
        launcher: impl FnOnce(Option<&Path>) -> Vec<String>,
    ) -> Self {
        let folder = self.start.folder.take();
        let mut arguments = launcher(folder.as_deref());
        arguments.push(self.start.program.display().to_string());
        arguments.append(&mut self.start.arguments);
        self.start.arguments = arguments;
        self.start.program = program.into();
        self
    }

    /// How long it may take to end after SIGTERM (two seconds if not said). Zero: SIGKILL at once.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.start.grace_millis = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self
    }
}

// === impl Output ===

/// What a tool said, and how it ended.
#[derive(Debug, Clone)]
pub struct Output {
    /// How it ended.
    pub exit: Exit,
    /// All of standard output.
    pub stdout: String,
    /// All of standard error.
    pub stderr: String,
}

impl Output {
    /// Whether it ended by itself with exit code 0.
    pub fn is_success(&self) -> bool {
        self.exit == Exit::Code(0)
    }

    /// The exit code; none if a signal ended it.
    pub fn code(&self) -> Option<i32> {
        match self.exit {
            Exit::Code(code) => Some(code),
            Exit::Signal(_) => None,
        }
    }

    /// Itself if it ended well; else an error with all that it said.
    pub fn succeeded(self) -> Result<Self> {
        if self.is_success() {
            return Ok(self);
        }
        bail!("ended with {}:\n{}{}", self.exit, self.stderr, self.stdout)
    }
}

// === impl Part ===

/// A process that the supervisor started for us.
#[derive(Debug)]
pub struct Process {
    supervisor: Arc<Supervisor>,
    number: u64,
    pid: i32,
    name: String,
    log: PathBuf,
}

impl Process {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The file that holds all it has said.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Sends it a signal. An error if it has ended already.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let order = Order::Signal { part: self.number, signal: signal.as_raw() };
        self.supervisor.ask(order).with_context(|| format!("cannot signal {}", self.name)).map(drop)
    }

    /// How it ended; none if it still runs.
    pub fn exit(&self) -> Result<Option<Exit>> {
        match self.supervisor.ask(Order::Look(self.number))? {
            Reply::Running => Ok(None),
            reply => ended(&reply).map(Some),
        }
    }

    /// Waits for its end, so long and no longer. None if it still runs then.
    pub fn wait(&self, within: Duration) -> Result<Option<Exit>> {
        let answer = self.supervisor.ask_later(Order::Wait(self.number))?;
        match answer.recv_timeout(within) {
            Ok(reply) => ended(&reply.map_err(anyhow::Error::msg)?).map(Some),
            Err(mpsc::RecvTimeoutError::Timeout) => Ok(None),
            Err(mpsc::RecvTimeoutError::Disconnected) => bail!("the supervisor is gone"),
        }
    }

    /// SIGTERM, its grace, SIGKILL; returns when it has ended. It is no error if it has ended already.
    pub fn end(&self) -> Result<Exit> {
        ended(&self.supervisor.ask(Order::End(self.number))?)
    }

    /// The last lines of its log, for an error.
    pub fn log_tail(&self, lines: usize) -> String {
        let text = read(&self.log);
        let all: Vec<_> = text.lines().collect();
        let skipped = all.len().saturating_sub(lines);
        all.get(skipped..).unwrap_or_default().join("\n")
    }

    /// An error about this part, with the end of its log and where the rest is.
    pub fn failure(&self, what: impl std::fmt::Display) -> anyhow::Error {
        let log = self.log.display();
        anyhow::anyhow!("{}: {what}\nthe end of {log}:\n{}", self.name, self.log_tail(20))
    }
}

fn ended(reply: &Reply) -> Result<Exit> {
    match reply {
        Reply::Ended(exit) => Ok(*exit),
        other => bail!("the supervisor answered {other:?} when asked for an end"),
    }
}
