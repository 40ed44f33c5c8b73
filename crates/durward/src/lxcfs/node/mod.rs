//! `lxcfs-node`: one on each node, beside LXCFS. Tells on the Node whether LXCFS serves there what pods are promised, and has
//! LXCFS load its library anew when another one lies on the disk.
//!
//! The label is what pods with `nodeReadiness` look for, so it follows what is seen within seconds, and is taken off at the end.
//! Without `nodeReadiness` nobody looks for it: the API server is asked nothing, and no permission is needed.

mod label;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use guards::config::Problem;
use guards::lxcfs::OnNode;
use guards::world::live::Access;
use server::Shutdown;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::library::{Library, State};
use super::mount::Mount;
use super::probe::{Prober, Sight};
use super::process::{self, Process};
use super::report::{Report, Runtime};
use super::settings::Settings;
use super::tools::{lxcfs_version, runc};
use crate::cli::LxcfsNode;
use crate::exit::{Exit, Outcome, Stop};
use crate::log;
use crate::review::runtime;
use label::Wanted;

/// How often LXCFS is looked at. A pod that was promised files waits as long as this at worst for a node that is ready.
const LOOKS: Duration = Duration::from_secs(2);

/// How often programs are asked for their version where nothing else says that it may have changed.
const VERSIONS: Duration = Duration::from_secs(300);

/// For taking label and annotation off at the end: less than half of the 30 s that a pod has.
const LEAVE_WITHIN: Duration = Duration::from_secs(10);

/// `lxcfs-node`
pub(crate) fn run(args: &LxcfsNode) -> Outcome {
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

async fn start(args: &LxcfsNode, settings: Settings) -> Outcome {
    let mut shutdown = Shutdown::on_signals()
        .map_err(|error| Stop::fault(Problem::new("signals cannot be caught").why(error.to_string())))?;
    let access = Access { kubeconfig: args.kubeconfig.clone(), context: args.context.clone() };
    let (tell, wanted) = watch::channel(None);
    let keeper = tokio::spawn(label::keep(label::Nodes::of(access, &args.node), wanted));
    let mut rounds = Rounds::new(args, settings);
    let mut ticks = interval(LOOKS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tracing::info!(node = args.node, root = rounds.settings.on_node.root, "keeping the node");
    loop {
        tokio::select! {
            biased;
            () = shutdown.asked() => break,
            _ = ticks.tick() => {}
        }
        let wanted = tokio::select! {
            biased;
            () = shutdown.asked() => break,
            wanted = rounds.round() => wanted,
        };
        tell.send_if_modified(|told| {
            let is_new = *told != wanted;
            *told = wanted;
            is_new
        });
    }
    tell.send_replace(None);
    drop(tell);
    match timeout(LEAVE_WITHIN, keeper).await {
        Ok(Ok(true)) => {}
        Ok(_) => return Ok(Exit::No),
        Err(_) => {
            let why = "the API server did not answer in time, so the label may still be there";
            tracing::error!(node = args.node, why, "stopped");
            return Ok(Exit::No);
        }
    }
    tracing::info!("stopped");
    Ok(Exit::Done)
}

/// What is known from one round to the next.
struct Rounds {
    settings: Settings,
    on_node: OnNode,
    prober: Prober,
    pid_file: PathBuf,
    process: Option<Process>,
    version: Option<String>,
    library: Option<Library>,
    runc: PathBuf,
    runtime: Option<Runtime>,
    versions_at: Option<Instant>,
    was_well: Option<bool>,
}

impl Rounds {
    fn new(args: &LxcfsNode, settings: Settings) -> Self {
        let on_node = settings.on_node.clone();
        Self {
            prober: Prober::new(&on_node.root),
            on_node,
            settings,
            pid_file: args.pid_file.clone(),
            process: None,
            version: None,
            library: args.library.as_deref().map(Library::new),
            runc: args.runc.clone(),
            runtime: None,
            versions_at: None,
            was_well: None,
        }
    }

    /// Looks at everything once. What the Node should say; nothing where nobody wants to know.
    async fn round(&mut self) -> Option<Wanted> {
        self.settings.refresh();
        if self.on_node != self.settings.on_node {
            self.on_node = self.settings.on_node.clone();
            self.prober = Prober::new(&self.on_node.root);
        }
        self.follow_process().await;
        let library = match &mut self.library {
            None => State::Absent,
            Some(library) => library.round(self.process.as_ref()).await,
        };
        let sight = self.prober.look().await;
        let is_well = self.tell(&sight);
        if !self.on_node.is_label_wanted {
            return None;
        }
        let mut report = Report::of(&sight, &self.on_node);
        report.version.clone_from(&self.version);
        report.runtime.clone_from(&self.runtime);
        report.options = self
            .process
            .as_ref()
            .map(|process| process.options.iter().map(|&option| option.to_owned()).collect());
        report.library = match library {
            State::Absent => None,
            State::Loaded => Some("loaded".to_owned()),
            State::Waits(why) => Some(why),
        };
        Some(Wanted { is_ready: is_well, report: report.text() })
    }

    /// Finds the process again where it has gone, and asks for versions when they may have changed.
    async fn follow_process(&mut self) {
        let is_there = self.process.as_ref().is_some_and(Process::is_there);
        let process = if is_there {
            self.process.take()
        } else if Mount::at(&self.on_node.root).is_some_and(|mount| mount.is_lxcfs()) {
            process::find(&self.pid_file, &self.on_node.root)
        } else {
            // Whichever runs now is not known to be the one of this root, and may be signalled in its place.
            None
        };
        let is_due = self.versions_at.is_none_or(|at| at.elapsed() >= VERSIONS);
        if is_due || !is_there {
            self.version = match &process {
                Some(process) => lxcfs_version(process).await,
                None => None,
            };
        }
        if is_due {
            self.runtime = runc(&self.runc).await;
            self.versions_at = Some(Instant::now());
        }
        if !is_there && let Some(process) = &process {
            let version = self.version.as_deref().unwrap_or("unknown");
            tracing::info!(pid = process.pid(), version, options = ?process.options, "LXCFS runs");
        }
        self.process = process;
    }

    /// Says so where it has changed.
    fn tell(&mut self, sight: &Sight) -> bool {
        let ill = sight.why_ill(&self.on_node);
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
