//! Measures speed and memory, each figure relative to a peer or a limit of the same run.
//!
//! `server`: CPU per review and p99 relative to a hyper + rustls echo of the same bytes, and resident memory. `fleet`: the
//! verdict over a simulated fleet of up to 5,000 members. `etcd`: the verdict on a member's pod in simulated etcd clusters.
//! `watch`: resident memory while 10,000 namespaces are watched.
//! `resources`: CPU of a review by policies relative to their evaluation and the echo, and many policies relative to a few.
//! `policies`: evaluation and load of admission policies relative to the API server's code. `check`: time and memory of
//! `durward check` relative to Kyverno's CLI. The measured process runs on one core; load and simulated servers run on the
//! other. CPU time is the kernel's count. A figure over its limit makes the run exit with 1.
//!
//! `make bench`, or `cargo build --profile dist -p durward -p durward-bench && cargo run --profile dist -p durward-bench`

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark's output is its product")]

mod check;
mod echo;
mod etcd;
mod fleet;
mod kernel;
mod load;
mod memory;
mod peer;
mod policies;
mod resources;
mod review;
mod speed;
mod watch;

use std::error::Error;
use std::process::{Command, ExitCode};

/// An error ends the run.
type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// The core of the measured process, and the one of the load.
const SERVER_CORE: &str = "0";
const LOAD_CORE: &str = "1";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (what, more) = (arguments.next(), arguments.next());
    let done = match (what.as_deref(), more.as_deref()) {
        (None, _) => pinned("all"),
        (Some(part @ ("server" | "fleet" | "etcd" | "policies" | "check" | "watch" | "resources")), None) => pinned(part),
        (Some("measure"), Some(part)) => measure(part),
        (Some("echo"), _) => echo::serve(),
        (Some("fleet-client"), Some(order)) => fleet::client(order),
        (Some("etcd-client"), Some(order)) => etcd::client(order),
        (Some(other), _) => Err(format!(
            "{other:?} is not one of server, fleet, etcd, policies, check, watch, resources; no argument runs all"
        )
        .into()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs the measurement on its own core.
fn pinned(part: &str) -> Result<bool> {
    let own = std::env::current_exe()?;
    let status = Command::new("taskset").args(["-c", LOAD_CORE]).arg(own).args(["measure", part]).status();
    Ok(status.map_err(|error| format!("taskset (package util-linux) did not start: {error}"))?.success())
}

fn measure(part: &str) -> Result<bool> {
    let folder = peer::Snapshot::new()?;
    let mut good = true;
    let wants = |one: &str| part == "all" || part == one;
    if wants("server") {
        good &= speed::measure(&folder)?;
        good &= memory::measure(&folder)?;
    }
    if wants("fleet") {
        good &= fleet::measure(&folder)?;
    }
    if wants("etcd") {
        good &= etcd::measure(&folder)?;
    }
    if wants("watch") {
        good &= watch::measure(&folder)?;
    }
    if wants("resources") {
        good &= resources::measure(&folder)?;
    }
    if wants("policies") {
        good &= policies::measure()?;
    }
    if wants("check") {
        good &= check::measure(&folder)?;
    }
    Ok(good)
}
