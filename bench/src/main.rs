//! Measures speed and memory, each figure relative to a peer or a limit of the same run.
//!
//! | part | figures |
//! |---|---|
//! | `server` | CPU of a review, latencies, memory and start, beside an echo and a server on controller-runtime |
//! | `steps` | the steps of a review without a server: time and allocations |
//! | `fleet` | the verdict over a simulated fleet of up to 5,000 member clusters |
//! | `etcd` | the verdict on a member's pod in simulated etcd clusters |
//! | `watch` | memory while namespaces are watched |
//! | `resources` | the guard of policies under load |
//! | `policies` | admission policies and CRDs beside the API server's code |
//! | `check` | `durward check` beside Kyverno's CLI and kubectl-validate |
//! | `build` | the times of builds; only if it is named, because it takes long |
//!
//! The measured process runs on one core; load and simulated servers run on the other. A figure over its limit makes the run exit
//! with 1.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark's output is its product")]

mod answers;
mod build;
mod check;
mod echo;
mod etcd;
mod figures;
mod fleet;
mod instructions;
mod kernel;
mod load;
mod peers;
mod policies;
mod report;
mod resources;
mod reviews;
mod schemas;
mod server;
mod servers;
mod steps;
mod watch;

use std::error::Error;
use std::process::{Command, ExitCode};

use report::Report;
use servers::Folder;

/// An error ends the run.
type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// The core of the measured process, and the one of the load.
const SERVER_CORE: &str = "0";
const LOAD_CORE: &str = "1";

/// All parts, in the order of the page of results.
const PARTS: &[&str] =
    &["server", "steps", "fleet", "etcd", "watch", "resources", "policies", "check", "build"];
/// The part that runs only if it is named.
const BUILD: &str = "build";
/// Rounds of each figure.
const ROUNDS: usize = 5;
/// Variable that makes runs short, to test the benchmark itself. Their figures mean nothing.
const SHORT: &str = "BENCH_SHORT";

const USAGE: &str =
    "arguments: names of parts (without any: all but build, and then the page of results), or one of
  deps                  build the peers
  page                  write bench/RESULTS.md from the stored figures
  instructions [update] count instructions and compare them with bench/baseline.json, or write that file";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        [] => run(PARTS.iter().copied().filter(|part| *part != BUILD)).and_then(|good| {
            report::write()?;
            Ok(good)
        }),
        ["deps"] => peers::Peer::ALL.iter().try_for_each(|peer| peer.build()).map(|()| true),
        ["page"] => report::write().map(|()| true),
        ["instructions"] => instructions::compare(),
        ["instructions", "update"] => instructions::update(),
        ["measure", part] => measure(part),
        ["echo", ..] => echo::serve(),
        ["fleet-client", order] => fleet::client(order),
        ["etcd-client", order] => etcd::client(order),
        ["step", name, rounds] => steps::repeat(name, rounds),
        parts if parts.iter().all(|part| PARTS.contains(part)) => run(parts.iter().copied()),
        _ => Err(format!("unknown {}\n{USAGE}\nparts: {}", words.join(" "), PARTS.join(", ")).into()),
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

/// Runs each part in a process on the core of the load. A part that fails does not keep the others from running.
fn run<'p>(parts: impl Iterator<Item = &'p str>) -> Result<bool> {
    let mut failed = Vec::new();
    for part in parts {
        // Cargo uses all cores.
        let own = std::env::current_exe()?;
        let mut command = if part == BUILD { Command::new(own) } else { pinned(&own) };
        let status = command.args(["measure", part]).status();
        let status =
            status.map_err(|error| format!("taskset (package util-linux) did not start: {error}"))?;
        if !status.success() {
            failed.push(part);
        }
    }
    if !failed.is_empty() {
        eprintln!("bench: over a limit, or not measured: {}", failed.join(", "));
    }
    Ok(failed.is_empty())
}

fn pinned(program: &std::path::Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", LOAD_CORE]).arg(program);
    command
}

fn measure(part: &str) -> Result<bool> {
    let folder = Folder::new()?;
    let mut report = Report::new(part);
    match part {
        "server" => server::measure(&folder, &mut report)?,
        "steps" => steps::measure(&mut report)?,
        "fleet" => fleet::measure(&folder, &mut report)?,
        "etcd" => etcd::measure(&folder, &mut report)?,
        "watch" => watch::measure(&folder, &mut report)?,
        "resources" => resources::measure(&folder, &mut report)?,
        "policies" => {
            policies::measure(&mut report)?;
            schemas::measure(&mut report)?;
        }
        "check" => check::measure(&folder, &mut report)?,
        BUILD => build::measure(&folder, &mut report)?,
        other => return Err(format!("{other} is not a part").into()),
    }
    report.store()?;
    Ok(report.is_good())
}

/// Returns whether the run is short.
fn is_short() -> bool {
    std::env::var_os(SHORT).is_some_and(|value| !value.is_empty())
}

/// Returns the rounds of each figure.
fn rounds() -> usize {
    if is_short() { 1 } else { ROUNDS }
}

/// Returns a number of requests, or a part of it in a short run.
fn scaled(count: usize) -> usize {
    if is_short() { count.div_ceil(50) } else { count }
}
