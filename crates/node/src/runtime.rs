//! The tokio runtime of a command, and the signals that stop it.

use std::process::ExitCode;

use config::Problem;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Runs a command to its end. Threads that hang in a FUSE mount are left behind, so that the process can exit.
pub(crate) fn block_on(command: impl Future<Output = ExitCode>) -> Result<ExitCode, Vec<Problem>> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| vec![Problem::new("could not start the runtime").why(error.to_string())])?;
    let code = runtime.block_on(command);
    runtime.shutdown_background();
    Ok(code)
}

/// SIGTERM and SIGINT.
#[derive(Debug)]
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Replaces the default actions of both signals. Must be called in a runtime.
    pub(crate) fn register() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Returns when the process received one of the signals.
    pub(crate) async fn received(&mut self) {
        let name = tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        };
        tracing::info!(signal = name, "stopping");
    }
}
