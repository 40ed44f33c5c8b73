//! The cost against the size of a review, and against concurrent reviews.

use std::fs;

use super::{CONNECTIONS, ECHO, GO, Start, cost};
use crate::figures::{Curve, Row, Samples, Unit};
use crate::report::Report;
use crate::servers::{Folder, Guards, Server};
use crate::{Result, resources, reviews, rounds};

const DURWARD: &str = "Durward";
/// Sizes of pods in bytes. Zero is the pod of the other measurements.
const SIZES: [usize; 5] = [0, 10_000, 100_000, 1_000_000, 3_000_000];
/// Size of an update with both objects.
const UPDATE: usize = 200_000;
/// Bytes that are sent for each size, and the requests that this makes at least and at most.
const BYTES: usize = 60_000_000;
const REQUESTS: (usize, usize) = (40, 20_000);
const CONCURRENT: [usize; 7] = [1, 2, 5, 10, 25, 50, 100];
/// Requests for each number of connections.
const CONCURRENT_REQUESTS: usize = 10_000;

pub(super) fn measure(folder: &Folder, report: &mut Report) -> Result<()> {
    by_size(folder, report)?;
    by_connections(folder, report)
}

/// The servers, with the share of the requests that each gets.
fn servers() -> [(&'static str, Start, usize); 3] {
    [
        (ECHO, Server::echo, 1),
        (DURWARD, |folder| Server::durward(folder, Guards::Lxcfs), 1),
        (GO, Server::controller_runtime, 4),
    ]
}

fn requests(bytes: usize, share: usize) -> usize {
    (BYTES / bytes.max(1) / share).clamp(REQUESTS.0, REQUESTS.1 / share)
}

fn by_size(folder: &Folder, report: &mut Report) -> Result<()> {
    let pods: Vec<_> = SIZES.iter().map(|&size| reviews::large_pod(size)).collect();
    let names = [ECHO, DURWARD, GO];
    let mut curve = Curve::new(
        "size",
        "CPU of a review by its size",
        "bytes of the review",
        ("CPU of a review", Unit::Seconds),
        &names,
    );
    let mut samples = [const { [Samples::NONE; 3] }; SIZES.len()];
    let update = reviews::update(UPDATE);
    let [mut echo, mut durward] = [const { Samples::NONE }; 2];
    fs::write(folder.file("policies.yaml"), resources::policies(0, 20))?;
    for _ in 0..rounds() {
        for (index, (name, start, share)) in servers().into_iter().enumerate() {
            let server = start(folder)?;
            for (pod, samples) in pods.iter().zip(&mut samples) {
                let cpu =
                    cost(&server, folder, &server.request(pod), CONNECTIONS, requests(pod.len(), share))?.cpu;
                curve.add(name, pod.len() as f64, cpu.as_secs_f64());
                if let Some(samples) = samples.get_mut(index) {
                    samples.push_time(cpu);
                }
            }
            if name == ECHO {
                echo.push_time(
                    cost(&server, folder, &server.request(&update), CONNECTIONS, requests(update.len(), 1))?
                        .cpu,
                );
            }
        }
        let server = Server::durward(folder, Guards::Policies)?;
        durward.push_time(
            cost(&server, folder, &server.request(&update), CONNECTIONS, requests(update.len(), 1))?.cpu,
        );
    }
    report.section(
        "Size of a review",
        "Pods with three containers and many environment variables; all get LXCFS files. The echo returns at most 4 KiB of a body, as \
         no answer to a review is larger. The update has the old object and the new one, and no policy can match it.",
    );
    for (pod, [echo, durward, go]) in pods.iter().zip(samples).skip(1) {
        let name = format!("pod of {}", Unit::Bytes.show(pod.len() as f64));
        report.row(Row::seconds(&name, durward.clone()).limited_by(ECHO, echo));
        report.row(Row::seconds(&name, durward).against(GO, go));
    }
    let name = format!("update of {}", Unit::Bytes.show(update.len() as f64));
    report.row(Row::seconds(name, durward).limited_by(ECHO, echo));
    report.curve(curve);
    Ok(())
}

fn by_connections(folder: &Folder, report: &mut Report) -> Result<()> {
    let pod = reviews::opted_in_pod();
    let names = [ECHO, DURWARD, GO];
    let new = |id, title, y| Curve::new(id, title, "concurrent reviews", (y, Unit::Seconds), &names);
    let mut cpu = new("concurrency-cpu", "CPU of a review by concurrent reviews", "CPU of a review");
    let mut p99 = new("concurrency-p99", "p99 of a closed loop by concurrent reviews", "p99");
    for _ in 0..rounds() {
        for (name, start, share) in servers() {
            let server = start(folder)?;
            for connections in CONCURRENT {
                let count = CONCURRENT_REQUESTS / share;
                let cost = cost(&server, folder, &server.request(&pod), connections, count)?;
                cpu.add(name, connections as f64, cost.cpu.as_secs_f64());
                p99.add(name, connections as f64, cost.p99.as_secs_f64());
            }
        }
    }
    report.section(
        "Concurrent reviews",
        "A closed loop on one core: each connection sends its next request as soon as the answer is there, so the latency grows with \
         the connections.",
    );
    let busiest = cpu.last(DURWARD);
    report.curve(cpu);
    report.curve(p99);
    if let Some((connections, cpu)) = busiest {
        report.note(capacity(connections, cpu));
    }
    Ok(())
}

/// Returns the resources that 2,000 reviews a second need, as the figures say.
fn capacity(connections: f64, cpu: f64) -> String {
    const RATE: f64 = 2_000.0;
    let share = RATE * cpu * 100.0;
    format!(
        "2,000 reviews a second of such pods need {share:.1} % of a core, by the CPU of a review at {connections} connections. Each of two \
         replicas gets half of them. This is calculated, not measured."
    )
}
