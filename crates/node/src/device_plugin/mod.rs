//! `durward-node device-plugin`: offers the files of LXCFS as an extended resource, for namespaces that forbid hostPath volumes.
//!
//! This is a kubelet device plugin. The kubelet mounts the files that `Allocate` returns, and Pod Security admission, which judges
//! pods, never sees them. The configuration decides which files are mounted; a pod can only request the device.

// Code of prost and tonic.
#[allow(clippy::pedantic, missing_docs, unreachable_pub, dead_code)]
mod generated;
mod registrar;
mod service;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use config::Problem;
use tokio::sync::watch;
use tokio::time::Interval;

use super::health::{HealthMonitor, ProbeFlags};
use super::log::LogFlags;
use super::runtime::{StopSignals, block_on};
use super::settings::NodeConfig;
use registrar::Registrar;
use service::PluginService;

/// Flags of `device-plugin`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Configuration file
    #[arg(long, short, value_name = "FILE")]
    config: PathBuf,
    /// Directory of the kubelet's plugin sockets
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet/device-plugins")]
    kubelet_dir: PathBuf,
    /// Number of devices: containers of this node that can have the files
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    devices: u32,
    /// Milliseconds from registration to the stream of devices, for tests
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000, hide = true)]
    watch_timeout_ms: u64,
    #[command(flatten)]
    probe: ProbeFlags,
    #[command(flatten)]
    log: LogFlags,
}

/// Runs `device-plugin` until SIGTERM or SIGINT.
pub fn run(args: &Args) -> Result<ExitCode, Vec<Problem>> {
    let config = NodeConfig::load(&args.config)?;
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
    let (stop, receiver) = watch::channel(false);
    let monitor = HealthMonitor::new(&args.probe.proc, config);
    let service = Arc::new(PluginService::new(monitor, args.devices, receiver.clone()).await);
    let watch_timeout = Duration::from_millis(args.watch_timeout_ms);
    let mut registrar = Registrar::new(&args.kubelet_dir, Arc::clone(&service), receiver, watch_timeout);
    tokio::select! {
        biased;
        () = signals.received() => {}
        () = probe_forever(&service, args.probe.ticks()) => {}
        () = registrar.run() => {}
    }
    stop.send_replace(true);
    registrar.close().await;
    tracing::info!("stopped");
    ExitCode::SUCCESS
}

/// Probes LXCFS again and again. Open streams of devices get every change.
async fn probe_forever(service: &PluginService, mut ticks: Interval) {
    loop {
        ticks.tick().await;
        service.probe().await;
    }
}
