//! Measures a verdict on the pod of an etcd member in simulated etcd clusters: its time and its requests.
//!
//! As in `fleet`, API server and members are in this process, and each answer is delayed by a round trip. The guard is in a
//! process of its own on the other core ([`mod@client`]). One read takes two round trips: all requests to Kubernetes at once,
//! then all requests to members. A dry run reads once. A deletion reads twice, with the reservation in the Lease between. A
//! leader is read once more, after the leadership was transferred.

mod client;
mod simulator;

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::fleet::{DELAY, median};
use crate::peer::Snapshot;
use crate::{Result, SERVER_CORE};
use simulator::Simulator;

pub(crate) use client::client;

/// Limit of the time in addition to the two round trips of a read.
const OVERHEAD: Duration = Duration::from_millis(50);
/// Deadline for a member that does not answer.
const MEMBER_DEADLINE: Duration = Duration::from_secs(1);
/// Number of verdicts. The first one opens the connections.
const ROUNDS: usize = 7;
/// Number of concurrent reviews.
const CONCURRENT_REVIEWS: usize = 200;
/// Limit for that many dry runs of one pod.
const CONCURRENT_LIMIT: Duration = Duration::from_secs(1);
/// Limit of shared requests, in percent of unshared ones.
const MAX_SHARED_PERCENT: usize = 10;
/// Members of an etcd cluster.
const MEMBERS: usize = 3;
/// Requests to Kubernetes of one read: namespace, `StatefulSet`, node, pods, Lease, and each member's node.
const KUBERNETES_REQUESTS: usize = 5 + MEMBERS;
/// Requests to each member of one read: status, a linearizable read, both lists with the version, alarms.
const MEMBER_REQUESTS: usize = 6;

/// A sequence of reviews to measure.
struct Scenario {
    /// The order for the measured process, and its rounds.
    mode: &'static str,
    rounds: usize,
    label: &'static str,
    /// Number of reads.
    reads: u32,
    /// Round trips in addition to reads: reservation, leadership transfer, its confirmation.
    writes: u32,
}

const SCENARIOS: [Scenario; 3] = [
    Scenario { mode: "dry", rounds: ROUNDS, label: "a follower, as a dry run", reads: 1, writes: 0 },
    Scenario { mode: "follower", rounds: ROUNDS, label: "a follower", reads: 2, writes: 1 },
    Scenario { mode: "leader", rounds: ROUNDS, label: "a leader, which transfers", reads: 3, writes: 3 },
];

/// The result of the measured process.
struct ClientResult {
    took: Vec<Duration>,
    /// Requests to Kubernetes, and to members.
    requests: (usize, usize),
    peak: f64,
    /// Pods whose deletion was allowed.
    allowed: Vec<String>,
}

/// Measures and prints. Returns whether all figures are within their limits.
pub(crate) fn measure(folder: &Snapshot) -> Result<bool> {
    println!(
        "verdict on the pod of an etcd member, {MEMBERS} members, each answer {} ms late; the median of {} verdicts after the first",
        DELAY.as_millis(),
        ROUNDS - 1
    );
    let mut good = true;
    for scenario in &SCENARIOS {
        good &= sequential(folder, scenario)?;
    }
    good &= hanging(folder)?;
    good &= concurrent(folder)?;
    good &= race(folder)?;
    Ok(good)
}

fn sequential(folder: &Snapshot, scenario: &Scenario) -> Result<bool> {
    let Scenario { mode, rounds, label, reads, writes } = *scenario;
    let result = run_client(folder, mode, rounds, None)?;
    let within = DELAY * (2 * reads + writes) + OVERHEAD * reads;
    let (Some(&first), took) = (result.took.first(), median(result.took.get(1..).unwrap_or_default())) else {
        return Err(format!("{mode} returned no verdict").into());
    };
    if mode == "dry" && result.requests != (rounds * KUBERNETES_REQUESTS, rounds * MEMBERS * MEMBER_REQUESTS)
    {
        return Err(format!(
            "{rounds} reads sent {:?} requests, not {KUBERNETES_REQUESTS} and {} each",
            result.requests,
            MEMBERS * MEMBER_REQUESTS
        )
        .into());
    }
    println!(
        "  {label:<28}  first {first:>8.1?}   then {took:>8.1?} (limit {within:.1?}: {reads} x (2 round trips and {OVERHEAD:.0?}), and {writes} more)   {:>5.1} MiB",
        result.peak
    );
    Ok(took <= within)
}

/// Measures with a member that hangs. The other members are read meanwhile, and the verdict follows at the deadline.
fn hanging(folder: &Snapshot) -> Result<bool> {
    let result = run_client(folder, "hangs", 3, Some(2))?;
    let took = median(&result.took);
    let within = DELAY + MEMBER_DEADLINE + OVERHEAD;
    println!(
        "  {:<28}  {:>14}   then {took:>8.3?} (limit {within:.2?}: a round trip, its deadline of {MEMBER_DEADLINE:.0?}, and {OVERHEAD:.0?})",
        "one member hangs", ""
    );
    Ok(took <= within)
}

/// Measures dry runs of one pod at once.
fn concurrent(folder: &Snapshot) -> Result<bool> {
    let result = run_client(folder, "crowd", 1, None)?;
    let (took, requests) = (median(&result.took), result.requests.1);
    let alone = CONCURRENT_REVIEWS * MEMBERS * MEMBER_REQUESTS;
    let most = alone * MAX_SHARED_PERCENT / 100;
    println!(
        "  {CONCURRENT_REVIEWS} dry runs at once            all after {took:>8.1?} (limit {CONCURRENT_LIMIT:.1?})   {requests} requests to members (limit {most}: {MAX_SHARED_PERCENT} % of {alone})"
    );
    Ok(took <= CONCURRENT_LIMIT && requests <= most)
}

/// Measures deletions of all members of one etcd cluster at once. Exactly one is allowed.
fn race(folder: &Snapshot) -> Result<bool> {
    let result = run_client(folder, "race", 1, None)?;
    let mut allowed = result.allowed.clone();
    allowed.sort_unstable();
    allowed.dedup();
    println!(
        "  {CONCURRENT_REVIEWS} deletions of {MEMBERS} pods at once  all after {:>8.1?}   {} allowed, all of {} (limit: one pod)   {} requests to members",
        median(&result.took),
        result.allowed.len(),
        allowed.join(", "),
        result.requests.1
    );
    Ok(allowed.len() == 1)
}

/// Starts etcd clusters and the measured process.
fn run_client(folder: &Snapshot, mode: &str, rounds: usize, hangs: Option<usize>) -> Result<ClientResult> {
    // Each round has an etcd cluster of its own, because a reservation lasts.
    let clusters = Simulator::start(rounds, hangs, folder)?;
    let order =
        json!({"kubeconfig": clusters.kubeconfig, "port": clusters.port, "how": mode, "rounds": rounds});
    let output = Command::new("taskset")
        .args(["-c", SERVER_CORE])
        .arg(std::env::current_exe()?)
        .args(["etcd-client", &order.to_string()])
        .output()?;
    if !output.status.success() {
        return Err(format!("{mode}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let list = |key: &str| report[key].as_array().into_iter().flatten().cloned().collect::<Vec<_>>();
    Ok(ClientResult {
        took: list("took").iter().filter_map(Value::as_u64).map(Duration::from_micros).collect(),
        requests: clusters.requests(),
        peak: report["peak"].as_f64().ok_or("no memory was reported")?,
        allowed: list("allowed").iter().filter_map(Value::as_str).map(str::to_owned).collect(),
    })
}
