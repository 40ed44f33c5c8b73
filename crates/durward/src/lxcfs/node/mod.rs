//! `lxcfs-node`: one on each node, beside LXCFS. Tells on the Node whether LXCFS serves there what pods are promised, and has
//! LXCFS load its library anew when another one lies on the disk.
//!
//! The label is what pods with `nodeReadiness` look for, so it follows what is seen within seconds. At the end it stays as it is:
//! LXCFS goes on without us, and a kubelet that restarts while the label is away fails running pods whose selector does not match
//! any more, which an upgrade of ours must not risk. That nobody looks any more is told by the annotation's time. Without `nodeReadiness` nobody looks for it: the API server is asked nothing, and no permission is needed.

mod label;

use crate::args::LogArgs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use cluster::live::Access;
use config::Problem;
use server::Shutdown;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::library::{Library, State};
use super::mount::Mount;
use super::probe::Sight;
use super::process::{self, Process};
use super::report::{Report, Runtime};
use super::settings::Settings;
use super::tools::{lxcfs_version, runc};
use super::watcher::{Finding, Watcher};
use crate::exit::{Exit, Outcome, Stop};
use crate::log;
use crate::review::runtime;
use label::Wanted;

/// `lxcfs-node`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The configuration file
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// The name of this node: in a pod, its spec.nodeName
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    pub(crate) node: String,
    /// A library that LXCFS is to load anew whenever another one lies there
    #[arg(long, value_name = "FILE")]
    pub(crate) library: Option<PathBuf>,
    /// Where LXCFS has written its process number; where it is not, the process is found by its name and by root
    #[arg(long, value_name = "FILE", default_value = crate::lxcfs::PID_FILE)]
    pub(crate) pid_file: PathBuf,
    /// The runc that starts containers on this node, to ask it for its version
    #[arg(long, value_name = "PROGRAM", default_value = "runc")]
    pub(crate) runc: PathBuf,
    /// The cluster that the node belongs to; within a pod its own cluster needs no flag
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Another context of that kubeconfig than its current one
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Where mounts and processes are told of; another folder than the kernel's is for tests
    #[arg(long, value_name = "DIR", default_value = "/proc", hide = true)]
    pub(crate) proc: PathBuf,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// How often LXCFS is looked at. A pod that was promised files waits as long as this at worst for a node that is ready.
const LOOKS: Duration = Duration::from_secs(2);

/// How often it is looked for versions where nothing else says that it may have changed.
const VERSIONS: Duration = Duration::from_secs(300);

/// For what is still to be written at the end: less than half of the 30 s that a pod has.
const LEAVE_WITHIN: Duration = Duration::from_secs(10);

/// `lxcfs-node`
pub(crate) fn run(args: &Args) -> Outcome {
    let settings = Settings::load(&args.config)?;
    if !label::is_name(&args.node) {
        let problem = Problem::new(format!("--node {:?} is no name of a node", args.node));
        return Err(problem.next("in a pod, give it spec.nodeName: env NODE_NAME by fieldRef").into());
    }
    let _: Arc<_> = log::start(&args.log.level, args.log.format)?;
    let runtime = runtime()?;
    let outcome = runtime.block_on(start(args, settings));
    // A file that hangs must not keep the process from ending.
    runtime.shutdown_background();
    outcome
}

async fn start(args: &Args, settings: Settings) -> Outcome {
    let mut shutdown = Shutdown::on_signals()
        .map_err(|error| Stop::fault(Problem::new("signals cannot be caught").why(error.to_string())))?;
    let access = Access { kubeconfig: args.kubeconfig.clone(), context: args.context.clone() };
    let (tell, wanted) = watch::channel(None);
    let keeper = tokio::spawn(label::keep(label::Nodes::of(access, &args.node), wanted, SystemTime::now));
    let mut rounds = ProbeTargets::new(args, settings);
    let mut ticks = interval(LOOKS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tracing::info!(node = args.node, root = rounds.watcher.on_node().root, "keeping the node");
    loop {
        tokio::select! {
            biased;
            () = shutdown.requested() => break,
            _ = ticks.tick() => {}
        }
        let wanted = tokio::select! {
            biased;
            () = shutdown.requested() => break,
            wanted = rounds.round() => wanted,
        };
        tell.send_if_modified(|told| {
            let is_new = *told != wanted;
            *told = wanted;
            is_new
        });
    }
    drop(tell);
    match timeout(LEAVE_WITHIN, keeper).await {
        Ok(Ok(true)) => {}
        Ok(_) => return Ok(Exit::No),
        Err(_) => {
            let why = "the API server did not answer in time, so the label may be another than it should be";
            tracing::error!(node = args.node, why, "stopped");
            return Ok(Exit::No);
        }
    }
    tracing::info!("stopped");
    Ok(Exit::Done)
}

/// What is known from one round to the next.
struct ProbeTargets {
    proc: PathBuf,
    watcher: Watcher,
    pid_file: PathBuf,
    process: Option<Process>,
    version: Option<String>,
    library: Option<Library>,
    runc: PathBuf,
    runtime: Option<Runtime>,
    versions_at: Option<Instant>,
    was_well: Option<bool>,
    wanted: Option<Wanted>,
}

impl ProbeTargets {
    fn new(args: &Args, settings: Settings) -> Self {
        Self {
            proc: args.proc.clone(),
            watcher: Watcher::new(&args.proc, settings),
            pid_file: args.pid_file.clone(),
            process: None,
            version: None,
            library: args.library.as_deref().map(Library::new),
            runc: args.runc.clone(),
            runtime: None,
            versions_at: None,
            was_well: None,
            wanted: None,
        }
    }

    /// Looks at everything once. What the Node should say; nothing where nobody wants to know.
    async fn round(&mut self) -> Option<Wanted> {
        if self.watcher.refresh() {
            self.was_well = None;
        }
        self.follow_process().await;
        let library = match &mut self.library {
            None => State::Absent,
            Some(library) => library.round(self.process.as_ref()).await,
        };
        let (sight, finding) = self.watcher.look().await;
        // Pods fail for a label that was away for a moment.
        if matches!(finding, Finding::FirstSilence(_)) {
            return self.wanted.clone();
        }
        let is_well = self.tell(&finding);
        self.wanted = self.watcher.on_node().is_label_wanted.then(|| self.wanted(&sight, library, is_well));
        self.wanted.clone()
    }

    /// What is to be told of what was seen.
    fn wanted(&self, sight: &Sight, library: State, is_well: bool) -> Wanted {
        let mut report = Report::of(sight, self.watcher.on_node());
        report.version.clone_from(&self.version);
        report.runtime.clone_from(&self.runtime);
        report.options = self
            .process
            .as_ref()
            .map(|process| process.options.iter().map(|&option| option.to_owned()).collect());
        report.library = match library {
            State::Absent => None,
            State::Loaded => Some("loaded".to_owned()),
            State::Loading => Some("loading".to_owned()),
            State::Waits(why) => Some(why),
        };
        Wanted { is_ready: is_well, report }
    }

    /// Finds the process again where it has gone, and asks for versions when they may have changed.
    async fn follow_process(&mut self) {
        let root = &self.watcher.on_node().root;
        let mount = Mount::at(&self.proc, root);
        let serves = |one: &Process| mount.as_ref().is_some_and(|mount| one.serves(root, mount));
        let is_there = self.process.as_ref().is_some_and(|one| one.is_there() && serves(one));
        let process =
            if is_there { self.process.take() } else { process::find(&self.proc, &self.pid_file, root) };
        let is_due = self.versions_at.is_none_or(|at| at.elapsed() >= VERSIONS);
        if is_due || !is_there {
            self.version = process.as_ref().and_then(lxcfs_version);
        }
        if is_due {
            self.runtime = runc(&self.runc).await;
            self.versions_at = Some(Instant::now());
        }
        if !is_there && let Some(process) = &process {
            let version = self.version.as_deref().unwrap_or("unknown");
            tracing::info!(pid = process.pid(), version, options = process.options.join(","), "LXCFS runs");
        }
        self.process = process;
    }

    /// Says so where it has changed.
    fn tell(&mut self, finding: &Finding) -> bool {
        let ill = finding.fault();
        let is_well = ill.is_none();
        if self.was_well != Some(is_well) {
            match ill {
                None => tracing::info!("LXCFS serves every file that pods are promised"),
                Some(why) => tracing::warn!(why, "LXCFS does not serve what pods are promised"),
            }
        }
        self.was_well = Some(is_well);
        is_well
    }
}

#[cfg(test)]
mod tests {
    use guards::lxcfs::File;

    use super::super::probe::tests::{answer, root, silence};
    use super::super::watcher::tests::{hold_the_clock, late, watcher};
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_for_once_leaves_the_label_and_twice_in_a_row_takes_it_off() {
        let root = root();
        let _clock = hold_the_clock();
        let mut rounds = ProbeTargets {
            proc: root.path().to_owned(),
            watcher: watcher(&root),
            pid_file: PathBuf::from("/nowhere"),
            process: None,
            version: None,
            library: None,
            runc: PathBuf::from("/nowhere"),
            runtime: None,
            versions_at: None,
            was_well: None,
            wanted: None,
        };
        let well = rounds.round().await;
        assert!(well.as_ref().unwrap().is_ready);
        silence(&root, File::Stat);
        assert_eq!(late(1, rounds.round()).await, well);
        assert!(!late(1, rounds.round()).await.unwrap().is_ready);
        answer(&root, File::Stat);
        assert_eq!(rounds.round().await, well);
    }
}
