//! `durward-node label`: keeps label and annotation of the Node. One process on each node.
//!
//! Pods with `nodeAffinity` select the label, so it follows the health of LXCFS within seconds. When the agent stops, the label
//! stays: LXCFS keeps running, and a kubelet that restarts while the label is missing fails running pods that select it. The time
//! in the annotation shows whether the agent still runs. Without `nodeAffinity` the agent sends no request to the API server.

mod node_client;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use config::Problem;
use config::names;
use tokio::sync::watch;
use tokio::time::timeout;

use super::annotation::NodeAnnotation;
use super::health::{Health, HealthMonitor, ProbeFlags};
use super::log::LogFlags;
use super::runtime::{StopSignals, block_on};
use super::settings::NodeConfig;
use node_client::{AccessArgs, DesiredNode, NodeClient, run_writer};

/// Time for the last write to the Node: less than half of the 30 s that a pod has to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Flags of `label`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Configuration file
    #[arg(long, short, value_name = "FILE")]
    config: PathBuf,
    /// Name of this node (in a pod: spec.nodeName)
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    node: String,
    /// Removed
    #[arg(long = "library", value_name = "FILE", value_parser = removed_library, hide = true)]
    _library: Option<String>,
    /// Removed
    #[arg(long = "pid-file", value_name = "FILE", value_parser = removed_pid_file, hide = true)]
    _pid_file: Option<String>,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    probe: ProbeFlags,
    #[command(flatten)]
    log: LogFlags,
}

fn removed_library(_: &str) -> Result<String, &'static str> {
    Err("this flag was removed: to upgrade LXCFS, drain the node, then replace LXCFS")
}

fn removed_pid_file(_: &str) -> Result<String, &'static str> {
    Err("this flag was removed: the agent reads only the files of LXCFS")
}

/// Runs `label` until SIGTERM or SIGINT.
pub fn run(args: &Args) -> Result<ExitCode, Vec<Problem>> {
    let config = NodeConfig::load(&args.config)?;
    if names::node(&args.node).is_err() {
        let problem = Problem::new(format!("--node {:?} is not a node name", args.node));
        return Err(vec![problem.next("in a pod, set the variable NODE_NAME to spec.nodeName by fieldRef")]);
    }
    args.log.start()?;
    block_on(serve(args, config))
}

async fn serve(args: &Args, config: NodeConfig) -> ExitCode {
    let mut signals = match StopSignals::register() {
        Ok(signals) => signals,
        Err(error) => {
            tracing::error!(%error, "could not register signal handlers");
            return ExitCode::FAILURE;
        }
    };
    let (sender, receiver) = watch::channel(None);
    let client = NodeClient::new(args.access.clone(), &args.node);
    let writer = tokio::spawn(run_writer(client, receiver, SystemTime::now));
    let mut agent = Agent::new(HealthMonitor::new(&args.probe.proc, config));
    let mut ticks = args.probe.ticks();
    tracing::info!(node = args.node, root = agent.monitor.settings().root, "started");
    loop {
        let state = tokio::select! {
            biased;
            () = signals.received() => break,
            state = async {
                ticks.tick().await;
                agent.update().await
            } => state,
        };
        sender.send_if_modified(|sent| {
            let is_new = *sent != state;
            *sent = state;
            is_new
        });
    }
    drop(sender);
    match timeout(STOP_TIMEOUT, writer).await {
        Ok(Ok(true)) => {
            tracing::info!("stopped");
            ExitCode::SUCCESS
        }
        Ok(_) => ExitCode::FAILURE,
        Err(_) => {
            let why = "the API server did not answer in time, so the label can be outdated";
            tracing::error!(node = args.node, why, "stopped");
            ExitCode::FAILURE
        }
    }
}

/// The agent between two probes.
struct Agent {
    monitor: HealthMonitor,
    /// The health at the last probe, to log changes only.
    was_healthy: Option<bool>,
    /// The result of the last update.
    state: Option<DesiredNode>,
}

impl Agent {
    fn new(monitor: HealthMonitor) -> Self {
        Self { monitor, was_healthy: None, state: None }
    }

    /// Probes everything once. Returns the desired state of the Node; none if the configuration does not use the label.
    async fn update(&mut self) -> Option<DesiredNode> {
        if self.monitor.refresh() {
            self.was_healthy = None;
        }
        let (result, health) = self.monitor.probe().await;
        // Pods fail for a label that is missing for a moment.
        if matches!(health, Health::FirstTimeout(_)) {
            return self.state.clone();
        }
        self.log_change(&health);
        let is_ready = health.problem().is_none();
        let is_wanted = self.monitor.settings().is_label_wanted;
        self.state = is_wanted
            .then(|| DesiredNode { is_ready, report: NodeAnnotation::new(&result, self.monitor.settings()) });
        self.state.clone()
    }

    fn log_change(&mut self, health: &Health) {
        let problem = health.problem();
        if self.was_healthy.replace(problem.is_none()) == Some(problem.is_none()) {
            return;
        }
        match problem {
            None => tracing::info!("LXCFS serves all files"),
            Some(why) => tracing::warn!(why, "LXCFS does not serve all files"),
        }
    }
}

#[cfg(test)]
mod tests {
    use lxcfs::LxcfsFile;

    use super::super::health::tests::{after_timeouts, hold_clock, monitor};
    use super::super::probe::tests::{answer, root, silence};
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn keeps_the_label_on_one_timeout_and_removes_it_on_the_second() {
        let root = root();
        let _clock = hold_clock();
        let mut agent = Agent::new(monitor(&root));
        let healthy = agent.update().await;
        assert!(healthy.as_ref().unwrap().is_ready);
        silence(&root, LxcfsFile::Stat);
        assert_eq!(after_timeouts(1, agent.update()).await, healthy);
        assert!(!after_timeouts(1, agent.update()).await.unwrap().is_ready);
        answer(&root, LxcfsFile::Stat);
        assert_eq!(agent.update().await, healthy);
    }
}
