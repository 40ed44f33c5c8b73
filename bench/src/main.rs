//! Measures speed and memory, each figure relative to a peer or a limit of the same run.
//!
//! | part | figures |
//! |---|---|
//! | `server` | CPU of a review, latencies, memory and start, beside an echo and a server on controller-runtime |
//! | `steps` | the steps of a review without a server (`benches/steps.rs`) |
//! | `fleet` | the verdict over a simulated fleet of up to 5,000 member clusters, beside two plain clients |
//! | `resources` | the guard of policies under load, beside the echo |
//! | `check` | `durward check` beside Kyverno's CLI |
//! | `in-use` | an in-use rule beside Kyverno's admission controller, on a real API server |
//!
//! The measured process runs on one core; load and simulated servers run on the other. A figure over its limit makes the run exit
//! with 1.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark's output is its product")]

mod answers;
mod check;
mod echo;
mod figures;
mod fleet;
mod in_use;
mod kernel;
mod load;
mod peers;
mod report;
mod resources;
mod reviews;
mod server;
mod servers;

use std::error::Error;
use std::path::Path;
use std::process::{Command, ExitCode};

use report::Report;
use servers::Folder;

/// An error ends the run.
type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// The core of the measured process, and the one of the load.
const SERVER_CORE: &str = "0";
const LOAD_CORE: &str = "1";

/// All parts, in the order of the page of results.
const PARTS: &[&str] = &["server", "steps", "fleet", "resources", "check", "in-use"];
/// Rounds of each figure.
const ROUNDS: usize = 5;
/// Variable that makes runs short, to test the benchmark itself. Their figures mean nothing.
const SHORT: &str = "BENCH_SHORT";

const USAGE: &str = "arguments: names of parts (without any: all, and then the page of results), or one of
  deps  build the peers and the API server
  page  write bench/RESULTS.md from the stored figures";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    // The harness of the API server runs only in namespaces of its own, which need root.
    if let ["deps"] | ["measure", "in-use"] = words.as_slice()
        && let Some(code) = e2e::supervisor::isolate()
    {
        return code;
    }
    let done = match words.as_slice() {
        [] => run(PARTS).and_then(|good| {
            report::write()?;
            Ok(good)
        }),
        ["deps"] => peers::Peer::build_all().and_then(|()| in_use::build()).map(|()| true),
        ["page"] => report::write().map(|()| true),
        ["measure", part] => measure(part),
        ["echo", ..] => echo::serve(),
        ["fleet-client", order] => fleet::client(order),
        parts if parts.iter().all(|part| PARTS.contains(part)) => run(parts),
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
fn run(parts: &[&str]) -> Result<bool> {
    let mut failed = Vec::new();
    for part in parts {
        let program = std::env::current_exe()?;
        let mut command = pinned(LOAD_CORE, &program);
        // The harness of the API server starts Durward by this variable.
        command.args(["measure", part]).env("DURWARD_BIN", program.with_file_name("durward"));
        let status = command
            .status()
            .map_err(|error| format!("taskset (package util-linux) did not start: {error}"))?;
        if !status.success() {
            failed.push(*part);
        }
    }
    if !failed.is_empty() {
        eprintln!("bench: over a limit, or not measured: {}", failed.join(", "));
    }
    Ok(failed.is_empty())
}

/// Returns a command on a core.
fn pinned(core: &str, program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", core]).arg(program);
    command
}

fn measure(part: &str) -> Result<bool> {
    let folder = Folder::new()?;
    let mut report = Report::new(part);
    match part {
        "server" => server::measure(&folder, &mut report)?,
        "steps" => steps(&mut report)?,
        "fleet" => fleet::measure(&folder, &mut report)?,
        "resources" => resources::measure(&folder, &mut report)?,
        "check" => check::measure(&folder, &mut report)?,
        "in-use" => in_use::measure(&mut report)?,
        other => return Err(format!("{other} is not a part").into()),
    }
    report.store()?;
    Ok(report.is_good())
}

/// Runs the benchmark of the steps, which counts allocations. A counting allocator would slow down the programs that the others
/// measure.
fn steps(report: &mut Report) -> Result<()> {
    report.section(
        "Steps of a review",
        "In one process, without a server: `benches/steps.rs`. Reading a review of a pod and an update of 5.5 MB beside `serde_json`, \
         where `Value` builds a tree and `RawValue` only finds the end; and the reviews of the examples, from bytes to bytes. Below each \
         time are its throughput and the allocations.",
    );
    let mut command = pinned(SERVER_CORE, Path::new("cargo"));
    command.args(["bench", "--quiet", "--profile", "dist", "-p", "durward-bench", "--bench", "steps", "--"]);
    let output = command.args(if is_short() { &["--sample-count", "5"][..] } else { &[] }).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    report.output(String::from_utf8(output.stdout)?);
    Ok(())
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
