//! A run leaves nothing behind, however it ends.
//!
//! Each case starts this test binary again as a *victim*: a run with its own supervisor and cache that starts
//! processes which are hard to stop. The cases in [`sandbox`] also use the sandbox of a node.

mod sandbox;

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::prelude::*;
use e2e::supervisor::process::{Identity, marked};
use e2e::supervisor::{Process, Supervisor, Tool, journal};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};

/// The environment variable that makes this binary a victim.
const VICTIM: &str = "DURWARD_E2E_VICTIM";

/// Time for a supervisor to clean up: two seconds of grace, plus time for a loaded machine.
const CLEAN_WITHIN: Duration = Duration::from_secs(30);

#[e2e::case]
fn leaves_nothing_behind_after_a_successful_run(context: &TestContext) -> Result<()> {
    let victim = Victim::start(context, "pass")?;
    ensure!(victim.end()? == Exit::Code(0), "the victim failed: {}", victim.part.log_tail(20));
    victim.left_nothing()?;
    ensure!(!victim.logs().exists(), "the logs of a run that passed are kept");
    Ok(())
}

#[e2e::case]
fn leaves_nothing_behind_after_a_panic(context: &TestContext) -> Result<()> {
    let victim = Victim::start(context, "panic")?;
    ensure!(victim.end()? == Exit::Code(101), "the victim did not panic: {}", victim.part.log_tail(20));
    victim.left_nothing()?;
    victim.kept_its_logs()
}

#[e2e::case]
fn leaves_nothing_behind_after_sigkill(context: &TestContext) -> Result<()> {
    let victim = Victim::start(context, "wait")?;
    victim.left_something()?;
    victim.part.signal(Signal::KILL)?;
    ensure!(victim.end()? == Exit::Signal(Signal::KILL.as_raw()), "the victim ended otherwise");
    victim.left_nothing()?;
    victim.kept_its_logs()
}

#[e2e::case]
fn leaves_nothing_behind_after_sigterm(context: &TestContext) -> Result<()> {
    let victim = Victim::start(context, "wait")?;
    victim.left_something()?;
    victim.part.signal(Signal::TERM)?;
    ensure!(victim.end()? == Exit::Signal(Signal::TERM.as_raw()), "the victim ended otherwise");
    victim.left_nothing()?;
    victim.kept_its_logs()
}

#[e2e::case]
fn leaves_nothing_behind_after_ctrl_c(context: &TestContext) -> Result<()> {
    let victim = Victim::start(context, "wait")?;
    // A terminal sends SIGINT to the whole foreground process group.
    let group = Pid::from_raw(victim.part.pid()).context("no process group")?;
    kill_process_group(group, Signal::INT)?;
    ensure!(victim.end()? == Exit::Signal(Signal::INT.as_raw()), "the victim ended otherwise");
    victim.left_nothing()?;
    victim.kept_its_logs()
}

#[e2e::case]
fn the_next_run_cleans_up_after_a_killed_supervisor(context: &TestContext) -> Result<()> {
    let victim = Victim::start(context, "wait")?;
    victim.kill_keeper()?;
    victim.part.signal(Signal::KILL)?;
    victim.end()?;
    victim.left_something().context("after its supervisor was killed")?;
    ensure!(
        victim.folder("journals").join(victim.journal()).exists(),
        "the dead supervisor's journal is gone"
    );

    let next = Victim::start_in(context, "pass", victim.cache.clone())?;
    ensure!(next.end()? == Exit::Code(0), "the next run failed: {}", next.part.log_tail(20));
    victim.left_nothing()?;
    victim.kept_its_logs()?;
    next.left_nothing()
}

#[e2e::case]
fn the_next_run_ignores_a_process_with_a_reused_pid(context: &TestContext) -> Result<()> {
    let victim = Victim::start(context, "wait")?;
    victim.kill_keeper()?;
    victim.part.signal(Signal::KILL)?;
    victim.end()?;
    // A process of another run, under a pid that the journal names.
    let bystander = context.supervisor()?.start_process(Tool::new("bystander", "sleep").argument("600"))?;
    let identity = Identity::of(bystander.pid()).context("the bystander does not run")?;
    let journal = victim.folder("journals").join(victim.journal());
    let other = json!({"started": {"name": "other", "process": {"pid": identity.pid, "started": identity.started - 1}}});
    let text = std::fs::read_to_string(&journal)?;
    std::fs::write(&journal, format!("{text}{other}\n"))?;

    let next = Victim::start_in(context, "pass", victim.cache.clone())?;
    ensure!(next.end()? == Exit::Code(0), "the next run failed: {}", next.part.log_tail(20));
    victim.left_nothing()?;
    ensure!(identity.is_alive(), "the next run ended a process that was not the dead run's");
    bystander.end()?;
    Ok(())
}

#[e2e::case]
fn reports_why_a_process_cannot_start(context: &TestContext) -> Result<()> {
    let tried = context.supervisor()?.start_process(Tool::new("nonsense", "/nowhere/at-all"));
    let error = format!("{:#}", tried.err().context("it was started")?);
    ensure!(
        error.contains("nonsense") && error.contains("/nowhere/at-all"),
        "the error does not say what: {error}"
    );
    ensure!(error.contains("No such file"), "the error does not say why: {error}");
    Ok(())
}

#[e2e::case]
fn kills_a_process_that_ignores_sigterm(context: &TestContext) -> Result<()> {
    let deaf = Tool::new("deaf", "sh")
        .arguments(["-c", "trap '' TERM; echo ready; while :; do sleep 600; done"])
        .grace(Duration::from_millis(100));
    let deaf = context.supervisor()?.start_process(deaf)?;
    await_words(&deaf, "ready")?;
    deaf.signal(Signal::TERM)?;
    ensure!(deaf.wait(Duration::from_millis(200))?.is_none(), "it listens, so the case proves nothing");
    ensure!(deaf.end()? == Exit::Signal(Signal::KILL.as_raw()), "it ended otherwise");
    let refused = deaf.signal(Signal::TERM).err().context("a part that has ended was signalled")?;
    ensure!(format!("{refused:#}").contains("ended already"), "the error does not say why: {refused:#}");
    Ok(())
}

fn await_words(part: &Process, words: &str) -> Result<String> {
    eventually(format_args!("{words:?} from {}", part.name()), Duration::from_secs(60), || {
        if let Some(exit) = part.exit()?
            && !std::fs::read_to_string(part.log())?.contains(words)
        {
            return Err(part.failure(format_args!("ended with {exit}")));
        }
        let log = std::fs::read_to_string(part.log())?;
        // Only whole lines, because the last one can be incomplete.
        let line = log.split_inclusive('\n').find(|line| line.contains(words) && line.ends_with('\n'));
        Ok(line.map_or_else(|| Poll::Pending(log.clone()), |line| Poll::Ready(line.to_owned())))
    })
}

/// Another run of this binary.
struct Victim {
    part: Process,
    cache: PathBuf,
    /// Its description: run, supervisor, directory, address.
    told: Value,
}

impl Victim {
    fn start(context: &TestContext, fate: &str) -> Result<Self> {
        let cache = context.folder("victim")?;
        Self::start_in(context, fate, cache)
    }

    fn start_in(context: &TestContext, fate: &str, cache: PathBuf) -> Result<Self> {
        Self::start_on(context, fate, cache, false)
    }

    /// Starts it in the sandbox of a node, or on this host alone.
    fn start_on(context: &TestContext, fate: &str, cache: PathBuf, has_ground: bool) -> Result<Self> {
        // A background job of a shell inherits an ignored SIGINT, so Ctrl-C would have no effect.
        let tool = Tool::new("victim", "env")
            .argument("--default-signal=INT")
            .argument(std::env::current_exe()?.display().to_string())
            .environment(VICTIM, fate)
            .environment(sandbox::WANTED, if has_ground { "yes" } else { "" })
            .environment("DURWARD_E2E_CACHE", cache.display().to_string());
        let part = context.supervisor()?.start_process(tool)?;
        let line = await_words(&part, "\"run\"")?;
        let told = serde_json::from_str(&line).with_context(|| format!("the victim said {line:?}"))?;
        Ok(Self { part, cache, told })
    }

    /// Waits until it ends by itself.
    fn end(&self) -> Result<Exit> {
        self.part.wait(CLEAN_WITHIN)?.context("the victim does not end")
    }

    fn kill_keeper(&self) -> Result<()> {
        let pid = self.told["supervisor"]
            .as_i64()
            .and_then(|pid| i32::try_from(pid).ok())
            .context("no supervisor")?;
        let supervisor = Identity::of(pid).context("the victim's supervisor does not run")?;
        supervisor.signal(Signal::KILL);
        eventually("the supervisor's end", CLEAN_WITHIN, || {
            Ok(if supervisor.is_alive() { Poll::Pending("alive".to_owned()) } else { Poll::Ready(()) })
        })
    }

    fn run(&self) -> &str {
        self.told["run"].as_str().unwrap_or_default()
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.cache.join(name)
    }

    fn journal(&self) -> String {
        format!("{}.jsonl", self.run())
    }

    fn logs(&self) -> PathBuf {
        self.folder("logs").join(self.run())
    }

    /// Returns everything that is left of it.
    fn leavings(&self) -> Vec<String> {
        let mut left: Vec<_> = marked(journal::MARK, self.run())
            .iter()
            .map(|process| format!("process {}", process.pid))
            .collect();
        let work = Path::new(self.told["work"].as_str().unwrap_or_default());
        let journal = self.folder("journals").join(self.journal());
        left.extend(
            [work, &journal].iter().filter(|path| path.exists()).map(|path| path.display().to_string()),
        );
        let address: Option<Ipv4Addr> =
            self.told["address"].as_str().and_then(|address| address.parse().ok());
        left.extend(
            address
                .filter(|address| TcpListener::bind((*address, 0)).is_ok())
                .map(|address| address.to_string()),
        );
        left
    }

    /// Expects leftovers, so that finding none later means something.
    fn left_something(&self) -> Result<()> {
        let left = self.leavings();
        let processes = left.iter().filter(|what| what.starts_with("process")).count();
        ensure!(processes >= 3, "expected three processes or more, and there is {left:?}");
        ensure!(
            left.iter().any(|what| what.starts_with("10.99.")),
            "expected an address, and there is {left:?}"
        );
        Ok(())
    }

    fn left_nothing(&self) -> Result<()> {
        eventually(format_args!("run {} to leave nothing", self.run()), CLEAN_WITHIN, || {
            let left = self.leavings();
            Ok(if left.is_empty() { Poll::Ready(()) } else { Poll::Pending(format!("{left:?}")) })
        })
    }

    fn kept_its_logs(&self) -> Result<()> {
        let log = self.logs().join("sleeper.log");
        ensure!(log.exists(), "{} of a run that did not pass is gone", log.display());
        Ok(())
    }
}

impl Drop for Victim {
    /// A failed case must not leave processes that no later run knows of.
    fn drop(&mut self) {
        let _ = journal::sweep(&self.cache);
    }
}

/// Runs the victim. Returns `None` if this process is not one.
pub(crate) fn victim() -> Option<ExitCode> {
    let fate = std::env::var(VICTIM).ok()?;
    match suffer(&fate) {
        Ok(()) => Some(ExitCode::SUCCESS),
        Err(error) => {
            e2e::console::print(format_args!("{error:#}"));
            Some(ExitCode::FAILURE)
        }
    }
}

#[allow(clippy::print_stdout, reason = "what a victim prints is for the case that reads its log")]
#[allow(clippy::panic, reason = "it is a panic that the case is about")]
fn suffer(fate: &str) -> Result<()> {
    let supervisor = Supervisor::start(Path::new(env!("CARGO_BIN_EXE_e2e-supervisor")))?;
    supervisor.start_process(Tool::new("sleeper", "sleep").argument("600"))?;
    // One process ignores SIGTERM and has a child, and another has a child in a new session.
    let deaf = "trap '' TERM; while :; do sleep 600; done";
    supervisor
        .start_process(Tool::new("deaf", "sh").arguments(["-c", deaf]).grace(Duration::from_millis(200)))?;
    let leaving = "setsid sh -c 'echo gone; exec sleep 600' & wait";
    let runaway = supervisor.start_process(Tool::new("runaway", "sh").arguments(["-c", leaving]))?;
    await_words(&runaway, "gone")?;
    let address = supervisor.address()?;
    let run = supervisor.logs().file_name().and_then(|name| name.to_str()).context("the run has no name")?;
    let sandbox = sandbox::take(&supervisor)?;
    let told = json!({
        "run": run, "supervisor": supervisor.pid(), "work": supervisor.work(), "address": address, "ground": sandbox,
    });
    println!("{told}");
    match fate {
        "pass" => supervisor.finish(true),
        "panic" => panic!("as the case wants it"),
        _ => loop {
            std::thread::park();
        },
    }
}
