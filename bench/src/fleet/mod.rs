//! Measures the verdict on a namespace, and on a `ConfigMap` with an in-use rule, in a simulated fleet: its time, CPU time and memory.
//!
//! The fleet is in this process. The guard is in a process of its own on the other core ([`mod@client`]), so that time and memory are
//! counted separately. Every figure also checks the verdict and the number of requests. To add a figure, add a [`Shape`].

mod answers;
mod baseline;
mod client;
mod simulator;

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::figures::{Limit, MIB, Row, Samples, Unit};
use crate::report::Report;
use crate::servers::Folder;
use crate::{Result, SERVER_CORE, is_short, pinned};
use simulator::Simulator;

pub(crate) use client::client;

/// Delay of every answer: a round trip.
const DELAY: Duration = Duration::from_millis(20);
/// Limit of connections to the API server.
const CONNECTIONS: f64 = 64.0;
/// Limit of peak resident memory with 5,000 member clusters.
const MEMORY: f64 = 64.0 * MIB;
/// Number of verdicts. The first one opens the connections, and the other five count.
const ROUNDS: usize = 6;
const SEQUENTIAL: &str = "one request after another";

/// Pods of 8 kB in one member cluster that a verdict can't read in its time.
const TOO_MANY_PODS: usize = 50_000;

/// The measured fleets with the limit of a verdict. A hanging member cluster gets a third of the review's time, and one with too many
/// objects too.
const FLEETS: [(&str, Shape, Duration); 8] = [
    ("50 member clusters, 5 have it", Shape::of(50, 5), Duration::from_millis(400)),
    ("500 member clusters, 50 have it", Shape::of(500, 50), Duration::from_millis(400)),
    ("5000 member clusters, 500 have it", Shape::of(5_000, 500), Duration::from_secs(3)),
    (
        "500 member clusters, all have it with 3 pods",
        Shape { pods: 3, ..Shape::of(500, 500) },
        Duration::from_secs(1),
    ),
    (
        "500 member clusters, one hangs: it gets a third of the time",
        Shape { hangs: Some(7), ..Shape::of(500, 50) },
        Duration::from_millis(3_500),
    ),
    (
        "a ConfigMap, 500 member clusters, 3 pods in each",
        Shape { pods: 3, by_rule: true, ..Shape::of(500, 500) },
        Duration::from_millis(500),
    ),
    (
        "a ConfigMap, 10000 pods of 8 kB in its namespace",
        Shape { pods: 10_000, by_rule: true, ..Shape::of(1, 1) },
        Duration::from_secs(2),
    ),
    (
        "a ConfigMap, 100000 pods of 8 kB in its namespace: could not be checked in time",
        Shape { pods: 100_000, by_rule: true, ..Shape::of(1, 1) },
        Duration::from_millis(3_500),
    ),
];

/// A fleet.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Shape {
    members: usize,
    /// Number of member clusters that have the namespace, spread evenly.
    have: usize,
    /// Number of pods in each of those.
    pods: usize,
    /// A member cluster that never answers.
    hangs: Option<usize>,
    /// Whether a `ConfigMap` is deleted, which an in-use rule protects. No pod uses it.
    by_rule: bool,
}

/// The order to a measured process. `kubeconfig` leads to the fleet.
#[derive(Serialize, Deserialize)]
struct Order {
    kubeconfig: PathBuf,
    /// Sends the requests of the verdict one after another, instead of Durward.
    is_sequential: bool,
    shape: Shape,
    rounds: usize,
}

/// The report of a measured process: times of each round, and its peak memory in bytes.
#[derive(Default, Serialize, Deserialize)]
struct Answer {
    took: Vec<Duration>,
    cpu: Vec<Duration>,
    peak: f64,
}

impl Shape {
    const fn of(members: usize, have: usize) -> Self {
        Self { members, have, pods: 0, hangs: None, by_rule: false }
    }

    fn has(&self, index: usize) -> bool {
        let step = self.members.checked_div(self.have).unwrap_or(usize::MAX);
        index.is_multiple_of(step) && index / step < self.have
    }

    /// Whether the verdict is that a member cluster could not be checked.
    fn is_unknown(&self) -> bool {
        self.hangs.is_some() || self.pods > TOO_MANY_PODS
    }

    /// Returns the number of requests of one verdict: the pages of Clusters, the namespace in each member and the control plane, and
    /// each List in those that have it. How many pages are read in time is not known.
    fn requests(&self) -> Option<usize> {
        (self.pods <= TOO_MANY_PODS).then(|| self.all_requests())
    }

    fn all_requests(&self) -> usize {
        let clusters = self.members.div_ceil(answers::PAGE);
        if self.by_rule {
            // The object, and the pages of pods of each cluster.
            let pages = self.pods.div_ceil(answers::PAGE).max(1);
            return clusters + 1 + self.have * pages + (self.members - self.have) + 1;
        }
        clusters + self.members + 1 + (self.have + 1) * baseline::LISTS.len()
    }
}

/// The result of several verdicts, one after another.
struct Figures {
    first: Duration,
    /// Time of each verdict after the first one.
    times: Samples,
    /// CPU time of each request.
    cpu: Samples,
    connections: usize,
    peak: f64,
}

/// Measures verdicts over all fleets.
pub(crate) fn measure(folder: &Folder, report: &mut Report) -> Result<()> {
    report.section(
        "The verdict on a namespace over a fleet",
        "A simulated Karmada control plane with member clusters behind it, each answer 20 ms late. The first verdict opens the \
         connections; the five after it count. The verdict and the number of requests are checked. The peer *one request after another* \
         is a webhook that reads its member clusters in a loop.",
    );
    for (name, shape, limit) in FLEETS {
        let figures = figures(folder, shape, false, ROUNDS)?;
        let requests = shape.requests().map(|requests| format!(", {requests} requests")).unwrap_or_default();
        let name = |figure: &str| format!("{name}{requests}{figure}");
        let mut row = Row::seconds(name(""), figures.times).limit(Limit::AtMost(limit.as_secs_f64()));
        // The peer takes long for a large fleet, and forever if a member cluster hangs.
        if shape.members <= 500 && shape.hangs.is_none() && shape.have < shape.members {
            row = row.against(SEQUENTIAL, self::figures(folder, shape, true, 2)?.times);
        }
        report.row(row);
        report.row(Row::seconds(name(": the first verdict"), Samples::times(&[figures.first])));
        report.row(Row::seconds(name(": CPU of a request"), figures.cpu));
        let row = Row::new(name(": connections"), Unit::Count, Samples::one(figures.connections as f64));
        report.row(row.limit(Limit::AtMost(CONNECTIONS)));
        let row = Row::bytes(name(": peak memory"), Samples::one(figures.peak));
        report.row(row.limit(Limit::AtMost(MEMORY)));
    }
    Ok(())
}

/// Starts a fleet and the measured process.
fn figures(folder: &Folder, shape: Shape, is_sequential: bool, rounds: usize) -> Result<Figures> {
    let rounds = if is_short() { 2 } else { rounds };
    let fleet = Simulator::start(shape, folder)?;
    let order = Order { kubeconfig: fleet.kubeconfig.clone(), is_sequential, shape, rounds };
    let output = pinned(SERVER_CORE, &std::env::current_exe()?)
        .args(["fleet-client", &serde_json::to_string(&order)?])
        .output()?;
    if !output.status.success() {
        return Err(format!("{shape:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let sent = fleet.requests();
    let expected = shape.requests().map_or(sent, |each| rounds * each);
    if sent != expected {
        return Err(format!("{shape:?}: {sent} requests, not {expected}").into());
    }
    let answer: Answer = serde_json::from_slice(&output.stdout)?;
    let (Some((&first, times)), Some((_, cpu))) = (answer.took.split_first(), answer.cpu.split_first())
    else {
        return Err(format!("{shape:?} returned no verdict").into());
    };
    Ok(Figures {
        first,
        times: Samples::times(times),
        cpu: Samples::times(cpu).per(sent / rounds),
        connections: fleet.connections(),
        peak: answer.peak,
    })
}
