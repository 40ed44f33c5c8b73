//! A run leaves the host as it was, however it ends.
//!
//! Each case starts this test binary once more, as a *victim*: a run with namespaces and a cache of its own. The victim starts
//! processes that are hard to end, and then passes, panics or waits to be killed. The victims of `sandbox.rs` have the sandbox
//! of a node as well.

mod sandbox;

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;

use e2e::prelude::*;
use e2e::supervisor::identity::Identity;
use e2e::supervisor::{Process, Supervisor, Tool, host_state, journal};
use rustix::process::{Pid, Signal, kill_process_group};

/// The environment variable that makes this binary a victim.
const VICTIM: &str = "DURWARD_E2E_VICTIM";

/// The time to kill all processes and to return all leases, on a loaded machine.
const CLEAN_WITHIN: Duration = Duration::from_secs(90);

#[e2e::case]
fn leaves_nothing_behind_after_a_successful_run(context: &TestContext) -> Result<()> {
    let victim = Victim::start(context, "pass")?;
    ensure!(victim.end()? == Exit::Code(0), "the victim failed: {}", victim.process.log_tail(20));
    victim.left_nothing()?;
    ensure!(!victim.logs().exists(), "the logs of a run that passed are kept");
    Ok(())
}

#[e2e::case]
fn leaves_nothing_behind_after_a_panic(context: &TestContext) -> Result<()> {
    let victim = Victim::start(context, "panic")?;
    ensure!(victim.end()? == Exit::Code(101), "the victim did not panic: {}", victim.process.log_tail(20));
    victim.left_nothing()?;
    victim.kept_its_logs()
}

#[e2e::case]
fn leaves_nothing_behind_after_sigkill(context: &TestContext) -> Result<()> {
    ends_by(context, |victim| victim.process.signal(Signal::KILL), Signal::KILL)
}

#[e2e::case]
fn leaves_nothing_behind_after_sigterm(context: &TestContext) -> Result<()> {
    ends_by(context, |victim| victim.process.signal(Signal::TERM), Signal::TERM)
}

#[e2e::case]
fn leaves_nothing_behind_after_ctrl_c(context: &TestContext) -> Result<()> {
    // A terminal sends SIGINT to the whole foreground group.
    let interrupt = |victim: &Victim| {
        let group = Pid::from_raw(victim.process.pid()).context("no process group")?;
        Ok(kill_process_group(group, Signal::INT)?)
    };
    ends_by(context, interrupt, Signal::INT)
}

fn ends_by(context: &TestContext, kill: impl Fn(&Victim) -> Result<()>, signal: Signal) -> Result<()> {
    let victim = Victim::start(context, "wait")?;
    victim.has_processes_and_an_address()?;
    kill(&victim)?;
    ensure!(victim.end()? == Exit::Signal(signal.as_raw()), "the victim ended in another way");
    victim.left_nothing()?;
    victim.kept_its_logs()
}

#[e2e::case]
fn leaves_nothing_behind_after_the_supervisor_is_killed(context: &TestContext) -> Result<()> {
    let victim = Victim::start(context, "wait")?;
    victim.has_processes_and_an_address()?;
    victim.supervisor()?.signal(Signal::KILL);
    ensure!(victim.end()? == Exit::Code(137), "the victim ended in another way");
    victim.left_nothing()?;
    victim.kept_its_logs()
}

#[e2e::case]
fn the_next_run_cleans_up_after_a_killed_supervisor(context: &TestContext) -> Result<()> {
    let victim = Victim::start(context, "wait")?;
    victim.kill_all_at_once()?;
    victim.left_its_leases()?;

    let next = Victim::start_in(context, "pass", victim.cache.clone())?;
    ensure!(next.end()? == Exit::Code(0), "the next run failed: {}", next.process.log_tail(20));
    victim.left_nothing()?;
    victim.kept_its_logs()?;
    next.left_nothing()
}

/// The processes whose ids a dead run's journal contains can be those of others by now.
#[e2e::case]
fn the_next_run_ignores_a_process_with_a_reused_pid(context: &TestContext) -> Result<()> {
    let victim = Victim::start(context, "wait")?;
    victim.kill_all_at_once()?;
    let bystander = context.supervisor()?.start_process(Tool::new("bystander", "sleep").argument("600"))?;
    let identity = Identity::of(bystander.pid()).context("the bystander does not run")?;
    let text = std::fs::read_to_string(victim.journal())?;
    let (head, leases) = text.split_once('\n').context("the journal has one line")?;
    let mut head: Value = serde_json::from_str(head)?;
    head["owner"] = json!(identity);
    head["supervisor"] = json!(identity);
    std::fs::write(victim.journal(), format!("{head}\n{leases}"))?;

    let next = Victim::start_in(context, "pass", victim.cache.clone())?;
    ensure!(next.end()? == Exit::Code(0), "the next run failed: {}", next.process.log_tail(20));
    victim.left_nothing()?;
    ensure!(identity.is_alive(), "the next run ended a process of another run");
    bystander.end().map(drop)
}

#[e2e::case]
fn the_next_run_ignores_a_run_that_is_alive(context: &TestContext) -> Result<()> {
    let victim = Victim::start(context, "wait")?;
    let next = Victim::start_in(context, "pass", victim.cache.clone())?;
    ensure!(next.end()? == Exit::Code(0), "the next run failed: {}", next.process.log_tail(20));
    next.left_nothing()?;
    victim.has_processes_and_an_address()?;
    victim.process.signal(Signal::KILL)?;
    victim.left_nothing()
}

#[e2e::case]
fn reports_why_a_process_cannot_start(context: &TestContext) -> Result<()> {
    let tried = context.supervisor()?.start_process(Tool::new("nonsense", "/nowhere/at-all"));
    let error = format!("{:#}", tried.err().context("it was started")?);
    ensure!(
        error.contains("nonsense") && error.contains("/nowhere/at-all"),
        "the error does not name the process: {error}"
    );
    ensure!(error.contains("No such file"), "the error has no reason: {error}");
    Ok(())
}

#[e2e::case]
fn kills_a_process_that_ignores_sigterm(context: &TestContext) -> Result<()> {
    let deaf = Tool::new("deaf", "sh")
        .arguments(["-c", "trap '' TERM; echo ready; while :; do sleep 600; done"])
        .grace(Duration::from_millis(100));
    let deaf = context.supervisor()?.start_process(deaf)?;
    await_output(&deaf, "ready")?;
    deaf.signal(Signal::TERM)?;
    ensure!(deaf.wait(Duration::from_millis(200))?.is_none(), "it ends, so the case proves nothing");
    ensure!(deaf.end()? == Exit::Signal(Signal::KILL.as_raw()), "it ended in another way");
    let refused = deaf.signal(Signal::TERM).err().context("a process that has ended was signaled")?;
    ensure!(format!("{refused:#}").contains("ended already"), "the error has no reason: {refused:#}");
    Ok(())
}

/// Waits for a line with these words and returns it.
fn await_output(process: &Process, words: &str) -> Result<String> {
    eventually(format_args!("{words:?} from {}", process.name()), Duration::from_secs(60), || {
        let ended = process.exit()?;
        let log = std::fs::read_to_string(process.log())?;
        // The last line can be incomplete.
        let line = log.split_inclusive('\n').find(|line| line.contains(words) && line.ends_with('\n'));
        match (line, ended) {
            (Some(line), _) => Ok(Poll::Ready(line.to_owned())),
            (None, Some(exit)) => Err(process.failure(format_args!("ended with {exit}"))),
            (None, None) => Ok(Poll::Pending(log)),
        }
    })
}

struct Victim {
    process: Process,
    cache: PathBuf,
    /// Its output: its name, work directory, address, pid namespace and sandbox.
    printed: Value,
}

impl Victim {
    fn start(context: &TestContext, fate: &str) -> Result<Self> {
        let cache = context.directory("victim")?;
        Self::start_in(context, fate, cache)
    }

    fn start_in(context: &TestContext, fate: &str, cache: PathBuf) -> Result<Self> {
        Self::start_with(context, fate, cache, false)
    }

    fn start_with(context: &TestContext, fate: &str, cache: PathBuf, has_sandbox: bool) -> Result<Self> {
        // A shell starts its background jobs with SIGINT ignored, and children inherit that.
        let tool = Tool::new("victim", "env")
            .argument("--default-signal=INT")
            .argument(std::env::current_exe()?.display().to_string())
            .environment(VICTIM, fate)
            .environment(sandbox::WANTED, if has_sandbox { "yes" } else { "" })
            .environment("DURWARD_E2E_CACHE", cache.display().to_string());
        let process = context.supervisor()?.start_process(tool)?;
        let line = await_output(&process, "\"run\"")?;
        let printed = serde_json::from_str(&line).with_context(|| format!("the victim printed {line:?}"))?;
        Ok(Self { process, cache, printed })
    }

    fn end(&self) -> Result<Exit> {
        self.process.wait(CLEAN_WITHIN)?.context("the victim does not end")
    }

    /// Kills its supervisor and the process that would clean up after the supervisor. Returns when the kernel has released
    /// the lock of the journal: until then the run counts as alive.
    fn kill_all_at_once(&self) -> Result<()> {
        let supervisor = self.supervisor()?;
        self.process.signal(Signal::STOP)?;
        supervisor.signal(Signal::KILL);
        self.process.signal(Signal::KILL)?;
        self.end()?;
        eventually("the lock of the journal", CLEAN_WITHIN, || {
            let is_free = File::open(self.journal())?.try_lock().is_ok();
            Ok(if is_free { Poll::Ready(()) } else { Poll::Pending("it is locked".to_owned()) })
        })
    }

    fn supervisor(&self) -> Result<Identity> {
        let text = std::fs::read_to_string(self.journal())?;
        let head: Value = serde_json::from_str(text.lines().next().unwrap_or_default())?;
        Ok(serde_json::from_value(head["supervisor"].clone())?)
    }

    fn text(&self, field: &str) -> &str {
        self.printed[field].as_str().unwrap_or_default()
    }

    fn journal(&self) -> PathBuf {
        self.cache.join("runs").join(format!("{}.jsonl", self.text("run")))
    }

    fn logs(&self) -> PathBuf {
        self.cache.join("logs").join(self.text("run"))
    }

    /// Returns the command lines of all processes in its pid namespace.
    fn processes(&self) -> Vec<String> {
        let command = |process: PathBuf| std::fs::read_to_string(process.join("cmdline")).unwrap_or_default();
        host_state::processes_of(self.text("namespace")).into_iter().map(command).collect()
    }

    fn left(&self) -> Result<Vec<String>> {
        let mut left = self.processes();
        let paths = [PathBuf::from(self.text("work")), self.journal()];
        left.extend(paths.iter().filter(|path| path.exists()).map(|path| path.display().to_string()));
        let address: Ipv4Addr = self.text("address").parse()?;
        if TcpListener::bind((address, 0)).is_ok() {
            left.push(address.to_string());
        }
        Ok(left)
    }

    fn has_processes_and_an_address(&self) -> Result<()> {
        let processes = self.processes();
        // The first process, the victim, `sleeper`, `deaf` and its child, and the runaway.
        ensure!(processes.len() >= 6, "expected six processes or more: {processes:?}");
        self.left_its_leases()
    }

    fn left_its_leases(&self) -> Result<()> {
        let left = self.left()?;
        let has = |what: &str| left.iter().any(|left| left.contains(what));
        ensure!(has(self.text("address")) && has(self.text("work")) && has("runs/"), "there is {left:?}");
        Ok(())
    }

    fn left_nothing(&self) -> Result<()> {
        eventually(format_args!("run {} to leave nothing", self.text("run")), CLEAN_WITHIN, || {
            let left = self.left()?;
            Ok(if left.is_empty() { Poll::Ready(()) } else { Poll::Pending(format!("{left:?}")) })
        })
    }

    fn kept_its_logs(&self) -> Result<()> {
        let log = self.logs().join("sleeper.log");
        ensure!(log.exists(), "{} of a failed run does not exist", log.display());
        Ok(())
    }
}

impl Drop for Victim {
    /// Cleans up if the case failed before the next run did.
    fn drop(&mut self) {
        let _ = self.process.end();
        let _ = journal::sweep(&self.cache);
    }
}

/// Runs a victim and returns its exit code. Returns none if this process is not a victim.
pub(crate) fn victim() -> Option<ExitCode> {
    let fate = std::env::var(VICTIM).ok()?;
    match run_victim(&fate) {
        Ok(()) => Some(ExitCode::SUCCESS),
        Err(error) => {
            e2e::console::print(format_args!("{error:#}"));
            Some(ExitCode::FAILURE)
        }
    }
}

#[allow(clippy::print_stdout, reason = "the case reads it from the victim's log")]
#[allow(clippy::panic, reason = "the case is about a panic")]
fn run_victim(fate: &str) -> Result<()> {
    let supervisor = Supervisor::open()?;
    supervisor.start_process(Tool::new("sleeper", "sleep").argument("600"))?;
    // It ignores SIGTERM and has a child.
    let deaf = "trap '' TERM; while :; do sleep 600; done";
    supervisor.start_process(Tool::new("deaf", "sh").arguments(["-c", deaf]))?;
    // Its child has left the session and has an empty environment.
    let runaway = "env -i setsid sh -c 'echo gone; exec sleep 600' & wait";
    let runaway = supervisor.start_process(Tool::new("runaway", "sh").arguments(["-c", runaway]))?;
    await_output(&runaway, "gone")?;
    let printed = json!({
        "run": supervisor.head().run,
        "work": supervisor.work(),
        "address": supervisor.address()?,
        "namespace": host_state::pid_namespace()?,
        "sandbox": sandbox::take(&supervisor)?,
    });
    println!("{printed}");
    match fate {
        "pass" => supervisor.finish(true),
        "panic" => panic!("requested by the case"),
        _ => loop {
            std::thread::park();
        },
    }
}
