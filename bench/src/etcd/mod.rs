//! Measures a verdict on the pod of an etcd member in simulated etcd clusters: its time and its requests.
//!
//! As in `fleet`, API server and members are in this process, each answer is delayed by a round trip, and the guard is in a
//! process of its own on the other core ([`client`]). One read takes two round trips: all requests to Kubernetes at once, then all
//! requests to members. A dry run reads once. A deletion reads twice, with the reservation in the Lease between. A leader is
//! read once more, after the leadership was transferred.

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
const CROWD: usize = 200;
/// Limit for that many dry runs of one pod.
const CROWD_LIMIT: Duration = Duration::from_secs(1);
/// Limit of shared requests, in percent of unshared ones.
const SHARED: usize = 10;
/// Members of an etcd cluster.
const MEMBERS: usize = 3;
/// Requests to Kubernetes of one read: namespace, `StatefulSet`, node, pods, Lease, and each member's node.
const KUBERNETES_REQUESTS: usize = 5 + MEMBERS;
/// Requests to each member of one read: status, a linearizable read, both lists with the version, alarms.
const MEMBER_REQUESTS: usize = 6;

/// A figure.
struct Figure {
    /// The order for the measured process, and its rounds.
    how: &'static str,
    rounds: usize,
    output: &'static str,
    /// Number of reads.
    looks: u32,
    /// Round trips in addition to reads: reservation, leadership transfer, its confirmation.
    deeds: u32,
}

const FIGURES: [Figure; 3] = [
    Figure { how: "dry", rounds: ROUNDS, output: "a follower, as a dry run", looks: 1, deeds: 0 },
    Figure { how: "follower", rounds: ROUNDS, output: "a follower", looks: 2, deeds: 1 },
    Figure { how: "leader", rounds: ROUNDS, output: "a leader, which hands over", looks: 3, deeds: 3 },
];

/// The result.
struct ClientResult {
    took: Vec<Duration>,
    /// Requests to Kubernetes, and to members.
    asked: (usize, usize),
    peak: f64,
    /// Pods whose deletion was allowed.
    gone: Vec<String>,
}

/// Measures and prints. Returns whether all figures are within their limits.
pub(crate) fn measure(folder: &Snapshot) -> Result<bool> {
    println!(
        "verdict on the pod of an etcd member, {MEMBERS} members, each answer {} ms late; the median of {} verdicts after the first",
        DELAY.as_millis(),
        ROUNDS - 1
    );
    let mut good = true;
    for figure in &FIGURES {
        good &= one(folder, figure)?;
    }
    good &= hanging(folder)?;
    good &= crowd(folder)?;
    good &= race(folder)?;
    Ok(good)
}

fn one(folder: &Snapshot, figure: &Figure) -> Result<bool> {
    let Figure { how, rounds, output, looks, deeds } = *figure;
    let run_client = run_client(folder, how, rounds, None)?;
    let within = DELAY * (2 * looks + deeds) + OVERHEAD * looks;
    let (Some(&first), took) =
        (run_client.took.first(), median(run_client.took.get(1..).unwrap_or_default()))
    else {
        return Err(format!("{how} told of no verdict").into());
    };
    if how == "dry" && run_client.asked != (rounds * KUBERNETES_REQUESTS, rounds * MEMBERS * MEMBER_REQUESTS)
    {
        return Err(format!(
            "{rounds} looks asked {:?}, not {KUBERNETES_REQUESTS} and {} each",
            run_client.asked,
            MEMBERS * MEMBER_REQUESTS
        )
        .into());
    }
    println!(
        "  {output:<28}  first {first:>8.1?}   then {took:>8.1?} (limit {within:.1?}: {looks} x (2 round trips and {OVERHEAD:.0?}), and {deeds} more)   {:>5.1} MiB",
        run_client.peak
    );
    Ok(took <= within)
}

/// Measures with a member that hangs. The other members are read meanwhile, and the verdict follows at the deadline.
fn hanging(folder: &Snapshot) -> Result<bool> {
    let run_client = run_client(folder, "hangs", 3, Some(2))?;
    let took = median(&run_client.took);
    let within = DELAY + MEMBER_DEADLINE + OVERHEAD;
    println!(
        "  {:<28}  {:>14}   then {took:>8.3?} (limit {within:.2?}: a round trip, its deadline of {MEMBER_DEADLINE:.0?}, and {OVERHEAD:.0?})",
        "one member hangs", ""
    );
    Ok(took <= within)
}

/// Measures dry runs of one pod at once.
fn crowd(folder: &Snapshot) -> Result<bool> {
    let run_client = run_client(folder, "crowd", 1, None)?;
    let (took, asked) = (median(&run_client.took), run_client.asked.1);
    let alone = CROWD * MEMBERS * MEMBER_REQUESTS;
    let most = alone * SHARED / 100;
    println!(
        "  {CROWD} dry runs at once            all after {took:>8.1?} (limit {CROWD_LIMIT:.1?})   {asked} questions to members (limit {most}: {SHARED} % of {alone})"
    );
    Ok(took <= CROWD_LIMIT && asked <= most)
}

/// Measures deletions of all members of one etcd cluster at once. Exactly one is allowed.
fn race(folder: &Snapshot) -> Result<bool> {
    let run_client = run_client(folder, "race", 1, None)?;
    let mut gone = run_client.gone.clone();
    gone.sort_unstable();
    gone.dedup();
    println!(
        "  {CROWD} deletions of {MEMBERS} pods at once  all after {:>8.1?}   {} let through, all of {} (limit: one pod)   {} questions to members",
        median(&run_client.took),
        run_client.gone.len(),
        gone.join(", "),
        run_client.asked.1
    );
    Ok(gone.len() == 1)
}

/// Starts etcd clusters and the measured process.
fn run_client(folder: &Snapshot, how: &str, rounds: usize, hangs: Option<usize>) -> Result<ClientResult> {
    // Each round has an etcd cluster of its own, because a reservation lasts.
    let clusters = Simulator::start(rounds, hangs, folder)?;
    let order =
        json!({"kubeconfig": clusters.kubeconfig, "port": clusters.port, "how": how, "rounds": rounds});
    let looked = Command::new("taskset")
        .args(["-c", SERVER_CORE])
        .arg(std::env::current_exe()?)
        .args(["look-etcd", &order.to_string()])
        .output()?;
    if !looked.status.success() {
        return Err(format!("{how}: {}", String::from_utf8_lossy(&looked.stderr)).into());
    }
    let output: Value = serde_json::from_slice(&looked.stdout)?;
    let list = |key: &str| output[key].as_array().into_iter().flatten().cloned().collect::<Vec<_>>();
    Ok(ClientResult {
        took: list("took").iter().filter_map(Value::as_u64).map(Duration::from_micros).collect(),
        asked: clusters.asked(),
        peak: output["peak"].as_f64().ok_or("no memory was told")?,
        gone: list("gone").iter().filter_map(Value::as_str).map(str::to_owned).collect(),
    })
}
