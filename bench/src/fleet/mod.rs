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

use crate::figures::{Curve, Limit, MIB, Row, Samples, Unit};
use crate::report::Report;
use crate::servers::Folder;
use crate::{Result, SERVER_CORE, is_short};
use simulator::Simulator;

pub(crate) use client::{client, configured, verdict};
pub(crate) use simulator::{acceptor, kubeconfig};

/// Delay of every answer: a round trip.
pub(crate) const DELAY: Duration = Duration::from_millis(20);
/// Limit of the time after a deadline.
const OVERHEAD: Duration = Duration::from_millis(100);
/// Limit for up to 500 members.
const SMALL_LIMIT: Duration = Duration::from_millis(400);
/// Limit for 5,000 members.
const LARGE_LIMIT: Duration = Duration::from_secs(3);
/// Limit of connections to the API server.
const CONNECTIONS: usize = 64;
/// Limit of peak resident memory with 5,000 members.
const MEMORY: f64 = 64.0 * MIB;
/// Limit of the CPU of a request, relative to the bare client.
const CPU_LIMIT: f64 = 1.6;
/// Number of verdicts. The first one opens the connections, and the other five count.
const ROUNDS: usize = 6;
/// Number of processes of Durward and of the bare client, for the rows that compare them.
const PROCESSES: usize = 5;
/// Numbers of member clusters on the curve. A tenth of them has the namespace.
const MEMBERS: [usize; 7] = [50, 100, 200, 500, 1_000, 2_000, 5_000];
const DURWARD: &str = "Durward";
const BARE: &str = "bare client";
const SEQUENTIAL: &str = "one request after another";

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
    /// Time of each verdict after the first one.
    times: Samples,
    /// CPU time of each request.
    cpu: Samples,
    /// Requests of one verdict.
    requests: usize,
    connections: usize,
    peak: f64,
}

/// Measures verdicts over fleets of all sizes.
pub(crate) fn measure(folder: &Folder, report: &mut Report) -> Result<()> {
    report.section(
        "The verdict on a namespace over a fleet",
        "A simulated Karmada control plane with member clusters behind it, each answer 20 ms late. A tenth of the member clusters has the \
         namespace, if the row does not say otherwise. The first verdict opens the connections; the five after it count. The verdict \
         and the number of requests are checked. For the rows with the bare client, Durward and \
         the bare client run in turn, in five processes each. The peer *one request after another* is a webhook that reads its member \
         clusters in a loop.",
    );
    let names = [DURWARD];
    let new = |id, title, y| Curve::new(id, title, "member clusters", y, &names);
    let mut time = new("members", "Verdict by member clusters", ("time of the verdict", Unit::Seconds));
    let mut cpu =
        new("members-cpu", "CPU of a verdict by member clusters", ("CPU of a verdict", Unit::Seconds));
    for members in MEMBERS {
        let shape = Shape { members, have: members / 10, ..Shape::default() };
        let figures = figures(folder, shape, "verdict", ROUNDS)?;
        time.add(DURWARD, members as f64, figures.times.median());
        cpu.add(DURWARD, members as f64, figures.cpu.median() * figures.requests as f64);
        if matches!(members, 50 | 500 | 5_000) {
            sized(folder, report, shape, figures)?;
        }
    }
    during_a_probe(folder, report)?;
    hanging(folder, report)?;
    everywhere(folder, report)?;
    let last = (time.last(DURWARD), cpu.last(DURWARD));
    report.curve(time);
    report.curve(cpu);
    if let (Some((_, time)), Some((_, cpu))) = last {
        report.note(format!(
            "5,000 member clusters were measured: a verdict takes {} and {} of CPU. So a replica with one core decides at most {:.1} such \
             deletions a second; concurrent reviews of one namespace share their requests. Larger fleets were not measured.",
            Unit::Seconds.show(time),
            Unit::Seconds.show(cpu),
            1.0 / cpu,
        ));
    }
    Ok(())
}

fn sized(folder: &Folder, report: &mut Report, shape: Shape, figures: Figures) -> Result<()> {
    let Shape { members, have, .. } = shape;
    let is_large = members > 500;
    let within = if is_large { LARGE_LIMIT } else { SMALL_LIMIT };
    let name = format!("{members} member clusters, {have} have it, {} requests", figures.requests);
    let row = Row::seconds(&name, figures.times).limit(Limit::AtMost(within.as_secs_f64()));
    report.row(if is_large { row } else { row.against(SEQUENTIAL, sequential(folder, shape)?) });
    report.row(Row::seconds(
        format!("{members} member clusters: the first verdict"),
        Samples::times(&[figures.first]),
    ));
    let row = Row::new(
        format!("{members} member clusters: connections"),
        Unit::Count,
        Samples::one(figures.connections as f64),
    );
    report.row(row.limit(Limit::AtMost(CONNECTIONS as f64)));
    let row = Row::bytes(format!("{members} member clusters: peak memory"), Samples::one(figures.peak));
    report.row(if is_large { row.limit(Limit::AtMost(MEMORY)) } else { row });
    Ok(())
}

/// Measures a client that sends one request after another. It takes long, so a large fleet is measured once.
fn sequential(folder: &Folder, shape: Shape) -> Result<Samples> {
    let rounds = if shape.members > 100 { 2 } else { ROUNDS };
    Ok(figures(folder, shape, "sequential", rounds)?.times)
}

/// Measures during a probe, which reads every member once a minute. It must not delay a verdict.
fn during_a_probe(folder: &Folder, report: &mut Report) -> Result<()> {
    let shape = Shape { members: if is_short() { 500 } else { 5_000 }, have: 500, ..Shape::default() };
    let figures = figures(folder, shape, "probe", ROUNDS)?;
    let name = format!("{} member clusters, during a health probe", shape.members);
    report.row(Row::seconds(&name, figures.times).limit(Limit::AtMost(LARGE_LIMIT.as_secs_f64())));
    let row = Row::new(format!("{name}: connections"), Unit::Count, Samples::one(figures.connections as f64));
    report.row(row.limit(Limit::AtMost(CONNECTIONS as f64)));
    let row = Row::bytes(format!("{name}: peak memory"), Samples::one(figures.peak));
    report.row(row.limit(Limit::AtMost(MEMORY)));
    Ok(())
}

/// Measures with a member that hangs. The other members are read meanwhile, and the verdict follows at the deadline.
fn hanging(folder: &Folder, report: &mut Report) -> Result<()> {
    let shape = Shape { members: 500, have: 50, hangs: Some(7), ..Shape::default() };
    let figures = figures(folder, shape, "verdict", ROUNDS)?;
    let within = DELAY + client::REVIEW_TIMEOUT / 3 + OVERHEAD;
    let row = Row::seconds("500 member clusters, one hangs: it gets a third of the time", figures.times);
    report.row(row.limit(Limit::AtMost(within.as_secs_f64())));
    Ok(())
}

/// Measures the case with the most requests, relative to the bare client. Each round has a process of both, so that the ratio
/// compares times of the same state of the machine.
fn everywhere(folder: &Folder, report: &mut Report) -> Result<()> {
    let shape = Shape { members: 500, have: 500, pods: 3, ..Shape::default() };
    let (mut durward, mut bare) = (Medians::default(), Medians::default());
    for _ in 0..if is_short() { 1 } else { PROCESSES } {
        durward.add(&figures(folder, shape, "verdict", ROUNDS)?);
        bare.add(&figures(folder, shape, "bare", ROUNDS)?);
    }
    let name = format!("500 member clusters, all have it, {} requests", shape.requests());
    report.row(Row::seconds(&name, durward.times).limited_by(BARE, bare.times));
    let row = Row::seconds(format!("{name}: CPU of a request"), durward.cpu).limited_by(BARE, bare.cpu);
    report.row(row.limit(Limit::RatioAtMost(CPU_LIMIT)));
    Ok(())
}

/// The median of each process.
#[derive(Default)]
struct Medians {
    times: Samples,
    cpu: Samples,
}

impl Medians {
    fn add(&mut self, figures: &Figures) {
        self.times.push(figures.times.median());
        self.cpu.push(figures.cpu.median());
    }
}

/// Starts a fleet and the measured process.
fn figures(folder: &Folder, shape: Shape, how: &str, rounds: usize) -> Result<Figures> {
    let rounds = if is_short() { 2 } else { rounds };
    let fleet = Simulator::start(shape, folder)?;
    let order = json!({"kubeconfig": fleet.kubeconfig, "how": how, "rounds": rounds,
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
    if how != "probe" && requests != rounds * shape.requests() {
        return Err(format!(
            "{how} over {shape:?}: {requests} requests, not {rounds} times {}",
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
    let requests = shape.requests();
    Ok(Figures {
        first,
        times: Samples::times(warm),
        cpu: Samples::times(cpu).per(requests),
        requests,
        connections: fleet.connections(),
        peak: report["peak"].as_f64().ok_or("no memory was reported")?,
    })
}
