//! Measures a verdict on the pod of an etcd member in simulated etcd clusters: its time and its requests.
//!
//! As in `fleet`, API server and members are in this process, and each answer is delayed by a round trip. The guard is in a
//! process of its own on the other core ([`mod@client`]). A review first reads the stored pod. One read takes two round trips: all
//! requests to Kubernetes at once, then all requests to members. A dry run reads once. A deletion reads twice, with the reservation in the Lease between. A
//! leader is read once more, after the leadership was transferred.

mod client;
mod simulator;

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::figures::{Limit, Row, Samples, Unit};
use crate::fleet::DELAY;
use crate::report::Report;
use crate::servers::Folder;
use crate::{Result, SERVER_CORE, is_short};
use simulator::Simulator;

pub(crate) use client::client;

/// Limit of the time in addition to the two round trips of a read.
const OVERHEAD: Duration = Duration::from_millis(50);
/// Deadline for a member that does not answer.
const MEMBER_DEADLINE: Duration = Duration::from_secs(1);
/// Number of verdicts. The first one opens the connections, and the other five count.
const ROUNDS: usize = 6;
/// Number of concurrent reviews.
const CONCURRENT_REVIEWS: usize = 200;
/// Limit for that many dry runs of one pod.
const CONCURRENT_LIMIT: Duration = Duration::from_secs(1);
/// Limit of shared requests, in percent of unshared ones.
const MAX_SHARED_PERCENT: usize = 10;
/// Members of an etcd cluster.
const MEMBERS: usize = 3;
/// Requests to Kubernetes of a review with one read: the stored pod; then namespace, `StatefulSet`, node, pods, Lease, and each
/// member's node.
const KUBERNETES_REQUESTS: usize = 1 + 5 + MEMBERS;
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

/// Measures verdicts of all kinds.
pub(crate) fn measure(folder: &Folder, report: &mut Report) -> Result<()> {
    report.section(
        "The verdict on the pod of an etcd member",
        "Three simulated members behind a simulated API server, each answer 20 ms late. A review first reads the stored pod. A read of Kubernetes and of \
         all members takes two round trips. The first verdict opens the connections; the five after it count.",
    );
    for scenario in &SCENARIOS {
        sequential(folder, report, scenario)?;
    }
    hanging(folder, report)?;
    concurrent(folder, report)?;
    race(folder, report)
}

fn sequential(folder: &Folder, report: &mut Report, scenario: &Scenario) -> Result<()> {
    let Scenario { mode, rounds, label, reads, writes } = *scenario;
    let rounds = if is_short() { 2 } else { rounds };
    let result = run_client(folder, mode, rounds, None)?;
    let round_trips = 1 + 2 * reads + writes;
    let within = DELAY * round_trips + OVERHEAD * reads;
    let Some((&first, took)) = result.took.split_first() else {
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
    let name = format!("{label}: {round_trips} round trips");
    report.row(Row::seconds(&name, Samples::times(took)).limit(Limit::AtMost(within.as_secs_f64())));
    report.row(Row::seconds(format!("{label}: the first verdict"), Samples::times(&[first])));
    report.row(Row::bytes(format!("{label}: peak memory"), Samples::one(result.peak)));
    Ok(())
}

/// Measures with a member that hangs. The other members are read meanwhile, and the verdict follows at the deadline.
fn hanging(folder: &Folder, report: &mut Report) -> Result<()> {
    let result = run_client(folder, "hangs", if is_short() { 1 } else { 5 }, Some(2))?;
    let within = 2 * DELAY + MEMBER_DEADLINE + OVERHEAD;
    let row = Row::seconds(
        "one member hangs: two round trips, and its deadline of 1 s",
        Samples::times(&result.took),
    );
    report.row(row.limit(Limit::AtMost(within.as_secs_f64())));
    Ok(())
}

/// Measures dry runs of one pod at once.
fn concurrent(folder: &Folder, report: &mut Report) -> Result<()> {
    let [mut took, mut requests] = [const { Samples::NONE }; 2];
    for _ in 0..crate::rounds() {
        let result = run_client(folder, "crowd", 1, None)?;
        took.push_time(result.took.first().copied().ok_or("no verdict")?);
        requests.push(result.requests.1 as f64);
    }
    let name = format!("{CONCURRENT_REVIEWS} dry runs of one pod at once, until all are answered");
    report.row(Row::seconds(&name, took).limit(Limit::AtMost(CONCURRENT_LIMIT.as_secs_f64())));
    let alone = CONCURRENT_REVIEWS * MEMBERS * MEMBER_REQUESTS;
    let row = Row::new("these dry runs: requests to members", Unit::Count, requests);
    let most = (alone * MAX_SHARED_PERCENT / 100) as f64;
    report.row(row.against("without sharing", Samples::one(alone as f64)).limit(Limit::AtMost(most)));
    Ok(())
}

/// Measures deletions of all members of one etcd cluster at once. Only one pod can be deleted.
fn race(folder: &Folder, report: &mut Report) -> Result<()> {
    let [mut took, mut pods] = [const { Samples::NONE }; 2];
    for _ in 0..crate::rounds() {
        let result = run_client(folder, "race", 1, None)?;
        let mut allowed = result.allowed.clone();
        allowed.sort_unstable();
        allowed.dedup();
        if allowed.is_empty() {
            return Err("no deletion was allowed".into());
        }
        took.push_time(result.took.first().copied().ok_or("no verdict")?);
        pods.push(allowed.len() as f64);
    }
    let name = format!("{CONCURRENT_REVIEWS} deletions of {MEMBERS} pods at once");
    report.row(Row::seconds(format!("{name}, until all are answered"), took));
    let row = Row::new(format!("{name}: pods whose deletion is allowed"), Unit::Count, pods);
    report.row(row.limit(Limit::AtMost(1.0)));
    Ok(())
}

/// Starts etcd clusters and the measured process.
fn run_client(folder: &Folder, mode: &str, rounds: usize, hangs: Option<usize>) -> Result<ClientResult> {
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
