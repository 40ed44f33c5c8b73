//! A run leaves nothing on the host, however it ends.
//!
//! Each case starts this test binary once more, as a *victim*: a run with namespaces and a cache of its own. The victim starts
//! processes that are hard to end, and does to the sandbox of a node what kubelet, containerd, the bridge plugin and LXCFS do.
//! Then it passes, panics or waits to be killed.

mod sandbox;

use std::path::PathBuf;
use std::process::ExitCode;

use e2e::prelude::*;
use e2e::supervisor::run::Run;
use e2e::supervisor::{Process, Supervisor, Tool, traces};
use rustix::process::{Pid, Signal, kill_process_group};

/// The environment variable that makes this binary a victim.
const VICTIM: &str = "DURWARD_E2E_VICTIM";

/// The time to kill all processes and to remove cgroups and directories, on a loaded machine.
const CLEAN_WITHIN: Duration = Duration::from_secs(90);

#[e2e::case]
fn leaves_nothing_behind_after_a_successful_run(context: &TestContext) -> Result<()> {
    let victim = Victim::start(context, "pass")?;
    ensure!(victim.end()? == Exit::Code(0), "the victim failed: {}", victim.process.log_tail(20));
    // No waiting for the work directory and the cgroups here: when the run has ended, they are gone.
    let left = victim.traces();
    ensure!(left.iter().all(|trace| trace.starts_with("link")), "left behind: {left:#?}");
    victim.left_nothing()?;
    ensure!(!victim.run.logs.exists(), "the logs of a run that passed are kept");
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
    let victim = Victim::start(context, "wait")?;
    victim.shows_all_but_mounts()?;
    victim.process.signal(Signal::KILL)?;
    ensure!(victim.end()? == Exit::Signal(Signal::KILL.as_raw()), "the victim ended in another way");
    victim.left_nothing()?;
    victim.kept_its_logs()
}

#[e2e::case]
fn leaves_nothing_behind_after_ctrl_c(context: &TestContext) -> Result<()> {
    let victim = Victim::start(context, "wait")?;
    // A terminal sends SIGINT to the whole foreground group.
    kill_process_group(Pid::from_raw(victim.process.pid()).context("no process group")?, Signal::INT)?;
    ensure!(victim.end()? == Exit::Signal(Signal::INT.as_raw()), "the victim ended in another way");
    victim.left_nothing()
}

#[e2e::case]
fn leaves_nothing_behind_after_the_first_process_is_killed(context: &TestContext) -> Result<()> {
    let victim = Victim::start(context, "wait")?;
    traces::kill_first(&victim.namespace)?;
    ensure!(victim.end()? != Exit::Code(0), "the victim passed");
    victim.left_nothing()?;
    victim.kept_its_logs()
}

/// Nobody is left who could clean up, so the next run does. It leaves a run alone that is alive.
#[e2e::case]
fn the_next_run_cleans_up_after_a_run_of_which_all_was_killed(context: &TestContext) -> Result<()> {
    let victim = Victim::start(context, "wait")?;
    let alive = Victim::start(context, "wait")?;
    victim.process.signal(Signal::STOP)?;
    traces::kill_first(&victim.namespace)?;
    victim.process.signal(Signal::KILL)?;
    victim.end()?;
    eventually("the end of the processes", CLEAN_WITHIN, || {
        let left = victim.traces();
        let is_left = |kind: &str| left.iter().any(|trace| trace.starts_with(kind));
        let are_gone = !["process", "link", "mount"].into_iter().any(is_left);
        Ok(if are_gone { Poll::Ready(()) } else { Poll::Pending(format!("{left:#?}")) })
    })?;

    let next = Victim::start(context, "pass")?;
    ensure!(next.end()? == Exit::Code(0), "the next run failed: {}", next.process.log_tail(20));
    victim.left_nothing()?;
    alive.shows_all_but_mounts()
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
    run: Run,
    namespace: String,
}

impl Victim {
    fn start(context: &TestContext, fate: &str) -> Result<Self> {
        // A shell starts its background jobs with SIGINT ignored, and children inherit that.
        let tool = Tool::new("victim", "env")
            .argument("--default-signal=INT")
            .argument(std::env::current_exe()?.display().to_string())
            .environment(VICTIM, fate)
            .environment("DURWARD_E2E_CACHE", context.directory("victim")?.display().to_string());
        let process = context.supervisor()?.start_process(tool)?;
        let line = await_output(&process, "\"namespace\"")?;
        let printed: Value =
            serde_json::from_str(&line).with_context(|| format!("the victim printed {line:?}"))?;
        let text = |field: &str| printed[field].as_str().unwrap_or_default();
        let [work, logs] = ["work", "logs"].map(|field| PathBuf::from(text(field)));
        let run = Run { name: text("run").to_owned(), work, logs };
        Ok(Self { process, run, namespace: text("namespace").to_owned() })
    }

    fn end(&self) -> Result<Exit> {
        self.process.wait(CLEAN_WITHIN)?.context("the victim does not end")
    }

    fn traces(&self) -> Vec<String> {
        traces::of(&self.run, &self.namespace)
    }

    /// Fails unless the host shows the run, and shows none of its mounts.
    fn shows_all_but_mounts(&self) -> Result<()> {
        let traces = self.traces();
        for kind in ["process", "link", "cgroup", "directory"] {
            ensure!(traces.iter().any(|trace| trace.starts_with(kind)), "no {kind}: {traces:#?}");
        }
        ensure!(!traces.iter().any(|trace| trace.starts_with("mount")), "a mount is visible: {traces:#?}");
        Ok(())
    }

    fn left_nothing(&self) -> Result<()> {
        eventually(format_args!("run {} to leave nothing", self.run.name), CLEAN_WITHIN, || {
            let left = self.traces();
            Ok(if left.is_empty() { Poll::Ready(()) } else { Poll::Pending(format!("{left:#?}")) })
        })
    }

    fn kept_its_logs(&self) -> Result<()> {
        let log = self.run.logs.join("sleeper.log");
        ensure!(log.exists(), "{} of a failed run does not exist", log.display());
        Ok(())
    }
}

impl Drop for Victim {
    /// Cleans up if the case failed before the next run did.
    fn drop(&mut self) {
        let _ = self.process.end();
        let _ = e2e::supervisor::run::sweep();
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
    let _sandbox = sandbox::live(&supervisor)?;
    let Run { name, work, logs } = supervisor.details();
    println!("{}", json!({"run": name, "work": work, "logs": logs, "namespace": traces::pid_namespace()?}));
    match fate {
        "pass" => supervisor.finish(true),
        "panic" => panic!("requested by the case"),
        _ => loop {
            std::thread::park();
        },
    }
}
