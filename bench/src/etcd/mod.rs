//! A verdict on the pod of an etcd member, over simulated ensembles: how long it takes, and what is asked for it.
//!
//! As with the fleet, API server and members are in this process, each answer a round trip late, and who looks at them is a
//! process of its own on the other core ([`look`]). One *look* is two round trips: all that Kubernetes says, asked at once, and
//! then all that the members say. A dry run looks once. What really goes looks twice, with the note in the Lease between them, and a
//! leader once more, after it has handed over and a majority has been seen to know.

mod look;
mod simulator;

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::fleet::{DELAY, median};
use crate::peer::Snapshot;
use crate::{Result, SERVER_CORE};
use simulator::Simulator;

pub(crate) use look::look;

/// What one look may take beside its two round trips.
const BESIDE: Duration = Duration::from_millis(50);
/// How long a member is waited for that does not answer.
const MEMBER_DEADLINE: Duration = Duration::from_secs(1);
/// Verdicts, one after another; the first one makes the connections.
const ROUNDS: usize = 7;
/// Reviews at once.
const CROWD: usize = 200;
/// For that many dry runs of one pod.
const CROWD_WITHIN: Duration = Duration::from_secs(1);
/// Of what they would ask the members one by one, in hundredths.
const SHARED: usize = 10;
/// Members of an ensemble.
const MEMBERS: usize = 3;
/// What one look asks Kubernetes: namespace, `StatefulSet`, node, pods, Lease, and each member's node.
const OF_KUBERNETES: usize = 5 + MEMBERS;
/// What one look asks each member: status, a linearizable read, both lists with the version beside one, alarms.
const OF_A_MEMBER: usize = 6;

/// What is measured.
struct Figure {
    /// What the looker is told to do, and how often.
    how: &'static str,
    rounds: usize,
    told: &'static str,
    /// How often it looks.
    looks: u32,
    /// Round trips beside looks: the note in the Lease, the handing over, whether it is known.
    deeds: u32,
}

const FIGURES: [Figure; 3] = [
    Figure { how: "dry", rounds: ROUNDS, told: "a follower, as a dry run", looks: 1, deeds: 0 },
    Figure { how: "follower", rounds: ROUNDS, told: "a follower", looks: 2, deeds: 1 },
    Figure { how: "leader", rounds: ROUNDS, told: "a leader, which hands over", looks: 3, deeds: 3 },
];

/// What came of it.
struct Seen {
    took: Vec<Duration>,
    /// Questions to Kubernetes, and to members.
    asked: (usize, usize),
    peak: f64,
    /// The pods that were let go, of a crowd.
    gone: Vec<String>,
}

/// Measures and prints. Whether all figures are within their limits.
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
    let Figure { how, rounds, told, looks, deeds } = *figure;
    let seen = seen(folder, how, rounds, None)?;
    let within = DELAY * (2 * looks + deeds) + BESIDE * looks;
    let (Some(&first), took) = (seen.took.first(), median(seen.took.get(1..).unwrap_or_default())) else {
        return Err(format!("{how} told of no verdict").into());
    };
    if how == "dry" && seen.asked != (rounds * OF_KUBERNETES, rounds * MEMBERS * OF_A_MEMBER) {
        return Err(format!(
            "{rounds} looks asked {:?}, not {OF_KUBERNETES} and {} each",
            seen.asked,
            MEMBERS * OF_A_MEMBER
        )
        .into());
    }
    println!(
        "  {told:<28}  first {first:>8.1?}   then {took:>8.1?} (limit {within:.1?}: {looks} x (2 round trips and {BESIDE:.0?}), and {deeds} more)   {:>5.1} MiB",
        seen.peak
    );
    Ok(took <= within)
}

/// The others are asked meanwhile; the verdict comes when the deadline of the one has passed.
fn hanging(folder: &Snapshot) -> Result<bool> {
    let seen = seen(folder, "hangs", 3, Some(2))?;
    let took = median(&seen.took);
    let within = DELAY + MEMBER_DEADLINE + BESIDE;
    println!(
        "  {:<28}  {:>14}   then {took:>8.3?} (limit {within:.2?}: a round trip, its deadline of {MEMBER_DEADLINE:.0?}, and {BESIDE:.0?})",
        "one member hangs", ""
    );
    Ok(took <= within)
}

/// Dry runs of one pod, all at once.
fn crowd(folder: &Snapshot) -> Result<bool> {
    let seen = seen(folder, "crowd", 1, None)?;
    let (took, asked) = (median(&seen.took), seen.asked.1);
    let alone = CROWD * MEMBERS * OF_A_MEMBER;
    let most = alone * SHARED / 100;
    println!(
        "  {CROWD} dry runs at once            all after {took:>8.1?} (limit {CROWD_WITHIN:.1?})   {asked} questions to members (limit {most}: {SHARED} % of {alone})"
    );
    Ok(took <= CROWD_WITHIN && asked <= most)
}

/// Deletions of all members of one ensemble, all at once: whoever goes, it is one of them.
fn race(folder: &Snapshot) -> Result<bool> {
    let seen = seen(folder, "race", 1, None)?;
    let mut gone = seen.gone.clone();
    gone.sort_unstable();
    gone.dedup();
    println!(
        "  {CROWD} deletions of {MEMBERS} pods at once  all after {:>8.1?}   {} let through, all of {} (limit: one pod)   {} questions to members",
        median(&seen.took),
        seen.gone.len(),
        gone.join(", "),
        seen.asked.1
    );
    Ok(gone.len() == 1)
}

/// Starts ensembles, and somebody who looks at them.
fn seen(folder: &Snapshot, how: &str, rounds: usize, hangs: Option<usize>) -> Result<Seen> {
    // Each round has an ensemble of its own, as what was noted of one holds for a while.
    let ensembles = Simulator::start(rounds, hangs, folder)?;
    let order =
        json!({"kubeconfig": ensembles.kubeconfig, "port": ensembles.port, "how": how, "rounds": rounds});
    let looked = Command::new("taskset")
        .args(["-c", SERVER_CORE])
        .arg(std::env::current_exe()?)
        .args(["look-etcd", &order.to_string()])
        .output()?;
    if !looked.status.success() {
        return Err(format!("{how}: {}", String::from_utf8_lossy(&looked.stderr)).into());
    }
    let told: Value = serde_json::from_slice(&looked.stdout)?;
    let list = |key: &str| told[key].as_array().into_iter().flatten().cloned().collect::<Vec<_>>();
    Ok(Seen {
        took: list("took").iter().filter_map(Value::as_u64).map(Duration::from_micros).collect(),
        asked: ensembles.asked(),
        peak: told["peak"].as_f64().ok_or("no memory was told")?,
        gone: list("gone").iter().filter_map(Value::as_str).map(str::to_owned).collect(),
    })
}
