//! A namespace's verdict over a fleet that is simulated: how long it takes, what it costs, how much memory it needs.
//!
//! The fleet is in this process; who looks at it is a process of its own on the other core ([`look`]), so that neither's time
//! nor memory counts as the other's. Before each figure is believed, the verdict and the number of requests are.

mod answers;
mod bare;
mod look;
mod simulator;

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::peer::Snapshot;
use crate::{Result, SERVER_CORE};
use simulator::Simulator;

pub(crate) use look::{look, verdict};
pub(crate) use simulator::{acceptor, kubeconfig};

/// A round trip: every answer is so late.
pub(crate) const DELAY: Duration = Duration::from_millis(20);
/// What a verdict may take beside its round trips; and how much later than its deadline one may come.
const BESIDE: Duration = Duration::from_millis(100);
/// For 5,000 members.
const LARGE_WITHIN: Duration = Duration::from_secs(3);
/// To the one API server, at any time.
const CONNECTIONS: usize = 64;
/// MiB that were ever resident, at 5,000 members.
const MEMORY: f64 = 64.0;
/// How long a member is waited for that does not answer.
const MEMBER_DEADLINE: Duration = Duration::from_secs(1);
/// Verdicts, one after another; the first one makes the connections.
const ROUNDS: usize = 7;

/// A fleet.
#[derive(Debug, Clone, Copy, Default)]
struct Shape {
    members: usize,
    /// How many of them have the namespace, spread evenly.
    have: usize,
    /// How many pods each of those runs.
    pods: usize,
    /// One that never answers.
    hangs: Option<usize>,
}

impl Shape {
    fn has(&self, index: usize) -> bool {
        let step = self.members.checked_div(self.have).unwrap_or(usize::MAX);
        index.is_multiple_of(step) && index / step < self.have
    }

    /// What one verdict has to ask, and no more: the pages of the list of Clusters, each member for the namespace, and who has it
    /// for each List; the control plane has it, and is asked for it and for each List too.
    fn questions(&self) -> usize {
        self.members.div_ceil(answers::PAGE) + self.members + 1 + (self.have + 1) * bare::LISTS.len()
    }
}

/// What came of several verdicts, one after another.
struct Figures {
    first: Duration,
    median: Duration,
    /// CPU of one verdict, the first one left out.
    cpu: Duration,
    /// Requests of one verdict.
    requests: usize,
    connections: usize,
    peak: f64,
}

/// Measures and prints. Whether all figures are within their limits.
pub(crate) fn measure(folder: &Snapshot) -> Result<bool> {
    println!(
        "verdict on a namespace over a simulated fleet, each answer {} ms late; the first of {ROUNDS} verdicts (it connects), the median of the others",
        DELAY.as_millis()
    );
    let mut good = true;
    for (members, have) in [(1, 1), (50, 5), (500, 50), (5_000, 500)] {
        good &= sized(folder, Shape { members, have, ..Shape::default() })?;
    }
    good &= beside_a_round(folder)?;
    good &= hanging(folder)?;
    everywhere(folder)?;
    Ok(good)
}

fn sized(folder: &Snapshot, shape: Shape) -> Result<bool> {
    let figures = figures(folder, shape, "verdict")?;
    let large = shape.members > 500;
    let within = if large { LARGE_WITHIN } else { 2 * DELAY + BESIDE };
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

/// Every minute each member is asked for all that guards read; who waits at kubectl does not wait for that.
fn beside_a_round(folder: &Snapshot) -> Result<bool> {
    let shape = Shape { members: 5_000, have: 500, ..Shape::default() };
    let figures = figures(folder, shape, "rounds")?;
    println!(
        "   5000 members, while a round is made      then {:>8.1?} (limit {LARGE_WITHIN:.1?})   {:>2} connections (limit {CONNECTIONS})   {:>5.1} MiB (limit {MEMORY})",
        figures.median, figures.connections, figures.peak
    );
    Ok(figures.median <= LARGE_WITHIN && figures.connections <= CONNECTIONS && figures.peak < MEMORY)
}

/// The others are read meanwhile; the verdict comes when the deadline of the one has passed.
fn hanging(folder: &Snapshot) -> Result<bool> {
    let shape = Shape { members: 500, have: 50, hangs: Some(7), ..Shape::default() };
    let figures = figures(folder, shape, "verdict")?;
    let within = DELAY + MEMBER_DEADLINE + BESIDE;
    println!(
        "    500 members, one hangs      then {:>8.3?} (its deadline is {MEMBER_DEADLINE:.1?}, limit {within:.1?})",
        figures.median
    );
    Ok(figures.median <= within)
}

/// The case in which most is asked, beside the least that a client can do.
fn everywhere(folder: &Snapshot) -> Result<()> {
    let shape = Shape { members: 500, have: 500, pods: 3, ..Shape::default() };
    let durward = figures(folder, shape, "verdict")?;
    let bare = figures(folder, shape, "bare")?;
    let each = |figures: &Figures| figures.cpu / u32::try_from(figures.requests).unwrap_or(u32::MAX).max(1);
    let (own, least) = (each(&durward), each(&bare));
    println!(
        "    500 members, all have it    then {:>8.1?}   {} requests   CPU per request: bare HTTP/2 client {least:.1?}, durward {own:.1?}, ratio {:.2}",
        durward.median,
        durward.requests,
        own.as_secs_f64() / least.as_secs_f64()
    );
    Ok(())
}

/// Starts a fleet, and somebody who looks at it.
fn figures(folder: &Snapshot, shape: Shape, how: &str) -> Result<Figures> {
    let fleet = Simulator::start(shape, folder)?;
    let order = json!({"kubeconfig": fleet.kubeconfig, "how": how, "rounds": ROUNDS,
        "members": shape.members, "have": shape.have, "pods": shape.pods, "hangs": shape.hangs});
    let looked = Command::new("taskset")
        .args(["-c", SERVER_CORE])
        .arg(std::env::current_exe()?)
        .args(["look", &order.to_string()])
        .output()?;
    if !looked.status.success() {
        return Err(format!("{how} over {shape:?}: {}", String::from_utf8_lossy(&looked.stderr)).into());
    }
    let asked = fleet.requests();
    if how != "rounds" && asked != ROUNDS * shape.questions() {
        return Err(format!(
            "{how} over {shape:?}: {asked} requests, not {ROUNDS} times {}",
            shape.questions()
        )
        .into());
    }
    let told: Value = serde_json::from_slice(&looked.stdout)?;
    let times = |key: &str| -> Vec<Duration> {
        let micros = told[key].as_array().into_iter().flatten().filter_map(Value::as_u64);
        micros.map(Duration::from_micros).collect()
    };
    let (took, cpu) = (times("took"), times("cpu"));
    let (Some((&first, warm)), Some((_, cpu))) = (took.split_first(), cpu.split_first()) else {
        return Err(format!("{how} over {shape:?} told of no verdict").into());
    };
    Ok(Figures {
        first,
        median: median(warm),
        cpu: median(cpu),
        requests: asked / ROUNDS,
        connections: fleet.connections(),
        peak: told["peak"].as_f64().ok_or("no memory was told")?,
    })
}

/// The one in the middle.
pub(crate) fn median(of: &[Duration]) -> Duration {
    let mut sorted = of.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}
