//! Measures the verdict on a namespace in a simulated fleet: its time, CPU time and memory.
//!
//! The fleet is in this process. The guard is in a process of its own on the other core ([`mod@client`]), so that time and memory are
//! counted separately. Every figure also checks the verdict and the number of requests.

mod answers;
mod baseline;
mod client;
mod simulator;
mod times;

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::peer::Snapshot;
use crate::{Result, SERVER_CORE};
use simulator::Simulator;

pub(crate) use client::{client, verdict};
pub(crate) use simulator::{acceptor, kubeconfig};

/// Delay of every answer: a round trip.
pub(crate) const DELAY: Duration = Duration::from_millis(20);
/// Limit of the time in addition to round trips, and after a deadline.
const OVERHEAD: Duration = Duration::from_millis(100);
/// Limit for 5,000 members.
const LARGE_LIMIT: Duration = Duration::from_secs(3);
/// Limit of connections to the API server.
const CONNECTIONS: usize = 64;
/// Limit of peak resident memory in MiB with 5,000 members.
const MEMORY: f64 = 64.0;
/// Deadline for a member that does not answer.
const MEMBER_DEADLINE: Duration = Duration::from_secs(1);
/// Number of verdicts. The first one opens the connections.
const ROUNDS: usize = 7;

/// A fleet.
#[derive(Debug, Clone, Copy, Default)]
struct Shape {
    members: usize,
    /// Number of members that have the namespace, spread evenly.
    have: usize,
    /// Number of pods in each of those.
    pods: usize,
    /// A member that never answers.
    hangs: Option<usize>,
}

impl Shape {
    fn has(&self, index: usize) -> bool {
        let step = self.members.checked_div(self.have).unwrap_or(usize::MAX);
        index.is_multiple_of(step) && index / step < self.have
    }

    /// Returns the number of requests of one verdict: the pages of Clusters, the namespace in each member and the control plane, and
    /// each List in those that have it.
    fn requests(&self) -> usize {
        self.members.div_ceil(answers::PAGE) + self.members + 1 + (self.have + 1) * baseline::LISTS.len()
    }
}

/// The result of several verdicts, one after another.
struct Figures {
    first: Duration,
    median: Duration,
    /// CPU time of one verdict, except for the first one.
    cpu: Duration,
    /// Requests of one verdict.
    requests: usize,
    connections: usize,
    peak: f64,
}

/// Measures and prints. Returns whether all figures are within their limits.
pub(crate) fn measure(folder: &Snapshot) -> Result<bool> {
    println!(
        "verdict on a namespace over a simulated fleet, each answer {} ms late; the first of {ROUNDS} verdicts (it connects), the median of the others",
        DELAY.as_millis()
    );
    let mut good = true;
    for (members, have) in [(1, 1), (50, 5), (500, 50), (5_000, 500)] {
        good &= sized(folder, Shape { members, have, ..Shape::default() })?;
    }
    good &= during_a_probe(folder)?;
    good &= hanging(folder)?;
    everywhere(folder)?;
    Ok(good)
}

fn sized(folder: &Snapshot, shape: Shape) -> Result<bool> {
    let figures = figures(folder, shape, "verdict")?;
    let large = shape.members > 500;
    let within = if large { LARGE_LIMIT } else { 2 * DELAY + OVERHEAD };
    let memory = if large { format!(" (limit {MEMORY})") } else { String::new() };
    println!(
        "  {:>5} members, {:>3} have it   first {:>8.1?}   then {:>8.1?} (limit {within:.1?})   {:>5} requests   {:>2} connections (limit {CONNECTIONS})   {:>5.1} MiB{memory}",
        shape.members,
        shape.have,
        figures.first,
        figures.median,
        figures.requests,
        figures.connections,
        figures.peak
    );
    Ok(figures.median <= within && figures.connections <= CONNECTIONS && (!large || figures.peak < MEMORY))
}

/// Measures during a probe, which reads every member once a minute. It must not delay a verdict.
fn during_a_probe(folder: &Snapshot) -> Result<bool> {
    let shape = Shape { members: 5_000, have: 500, ..Shape::default() };
    let figures = figures(folder, shape, "probe")?;
    println!(
        "   5000 members, during a health probe      then {:>8.1?} (limit {LARGE_LIMIT:.1?})   {:>2} connections (limit {CONNECTIONS})   {:>5.1} MiB (limit {MEMORY})",
        figures.median, figures.connections, figures.peak
    );
    Ok(figures.median <= LARGE_LIMIT && figures.connections <= CONNECTIONS && figures.peak < MEMORY)
}

/// Measures with a member that hangs. The other members are read meanwhile, and the verdict follows at the deadline.
fn hanging(folder: &Snapshot) -> Result<bool> {
    let shape = Shape { members: 500, have: 50, hangs: Some(7), ..Shape::default() };
    let figures = figures(folder, shape, "verdict")?;
    let within = DELAY + MEMBER_DEADLINE + OVERHEAD;
    println!(
        "    500 members, one hangs      then {:>8.3?} (its deadline is {MEMBER_DEADLINE:.1?}, limit {within:.1?})",
        figures.median
    );
    Ok(figures.median <= within)
}

/// Measures the case with the most requests, relative to the peer.
fn everywhere(folder: &Snapshot) -> Result<()> {
    let shape = Shape { members: 500, have: 500, pods: 3, ..Shape::default() };
    let durward = figures(folder, shape, "verdict")?;
    let baseline = figures(folder, shape, "bare")?;
    let each = |figures: &Figures| figures.cpu / u32::try_from(figures.requests).unwrap_or(u32::MAX).max(1);
    let (own, least) = (each(&durward), each(&baseline));
    println!(
        "    500 members, all have it    then {:>8.1?}   {} requests   CPU per request: bare HTTP/2 client {least:.1?}, durward {own:.1?}, ratio {:.2}",
        durward.median,
        durward.requests,
        own.as_secs_f64() / least.as_secs_f64()
    );
    Ok(())
}

/// Starts a fleet and the measured process.
fn figures(folder: &Snapshot, shape: Shape, how: &str) -> Result<Figures> {
    let fleet = Simulator::start(shape, folder)?;
    let order = json!({"kubeconfig": fleet.kubeconfig, "how": how, "rounds": ROUNDS,
        "members": shape.members, "have": shape.have, "pods": shape.pods, "hangs": shape.hangs});
    let output = Command::new("taskset")
        .args(["-c", SERVER_CORE])
        .arg(std::env::current_exe()?)
        .args(["fleet-client", &order.to_string()])
        .output()?;
    if !output.status.success() {
        return Err(format!("{how} over {shape:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let requests = fleet.requests();
    if how != "probe" && requests != ROUNDS * shape.requests() {
        return Err(format!(
            "{how} over {shape:?}: {requests} requests, not {ROUNDS} times {}",
            shape.requests()
        )
        .into());
    }
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let times = |key: &str| -> Vec<Duration> {
        let micros = report[key].as_array().into_iter().flatten().filter_map(Value::as_u64);
        micros.map(Duration::from_micros).collect()
    };
    let (took, cpu) = (times("took"), times("cpu"));
    let (Some((&first, warm)), Some((_, cpu))) = (took.split_first(), cpu.split_first()) else {
        return Err(format!("{how} over {shape:?} returned no verdict").into());
    };
    Ok(Figures {
        first,
        median: median(warm),
        cpu: median(cpu),
        requests: requests / ROUNDS,
        connections: fleet.connections(),
        peak: report["peak"].as_f64().ok_or("no memory was reported")?,
    })
}

/// Returns the median.
pub(crate) fn median(of: &[Duration]) -> Duration {
    let mut sorted = of.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}
