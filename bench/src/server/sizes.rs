//! The cost against the size of a review: the plot of the page.

use super::{CONNECTIONS, ECHO, GO, Start, cpu};
use crate::figures::{Curve, Row, Samples, Unit};
use crate::report::Report;
use crate::servers::{Folder, Guards, Server};
use crate::{Result, reviews, rounds};

/// Sizes of pods in bytes. Zero is the pod of the other measurements.
const SIZES: [usize; 5] = [0, 10_000, 100_000, 1_000_000, 3_000_000];
/// Connections for a pod of three megabytes: the plan of two at once needs more than the memory for large reviews.
const ONE: usize = 1;
/// Bytes that are sent for each size, and the requests that this makes at least and at most.
const BYTES: usize = 60_000_000;
const REQUESTS: (usize, usize) = (40, 20_000);
/// The servers, with the share of the requests that each gets.
const SERVERS: [(&str, Start, usize); 3] = [
    (ECHO, Server::echo, 1),
    ("Durward", |folder| Server::durward(folder, Guards::Lxcfs), 1),
    (GO, Server::controller_runtime, 4),
];

pub(super) fn measure(folder: &Folder, report: &mut Report) -> Result<()> {
    let pods: Vec<_> = SIZES.iter().map(|&size| reviews::large_pod(size)).collect();
    let mut samples = [const { [Samples::NONE; SIZES.len()] }; SERVERS.len()];
    for _ in 0..rounds() {
        for ((_, start, share), samples) in SERVERS.iter().zip(&mut samples) {
            let server = start(folder)?;
            for (pod, samples) in pods.iter().zip(samples) {
                let count = (BYTES / pod.len() / share).clamp(REQUESTS.0, REQUESTS.1 / share);
                let connections = if pod.len() > 2_000_000 { ONE } else { CONNECTIONS };
                samples.push_time(cpu(&server, folder, &server.request(pod), connections, count)?);
            }
        }
    }
    report.section(
        "Size of a review",
        "Pods with three containers and many environment variables; all get LXCFS files. The echo returns at most 4 KiB of a body, as \
         no answer to a review is larger.",
    );
    let [echo, durward, go] = &samples;
    for (((pod, echo), durward), go) in pods.iter().zip(echo).zip(durward).zip(go).skip(1) {
        let row = Row::seconds(format!("pod of {}", Unit::Bytes.show(pod.len() as f64)), durward.clone());
        report.row(row.clone().against(ECHO, echo.clone()));
        report.row(row.against(GO, go.clone()));
    }
    let line = |((name, ..), samples): (&(&str, Start, usize), [Samples; SIZES.len()])| {
        let points = pods.iter().zip(samples).map(|(pod, samples)| (pod.len() as f64, samples));
        ((*name).to_owned(), points.collect())
    };
    report.curve(Curve {
        title: "CPU of a review by its size".to_owned(),
        x: "bytes of the review".to_owned(),
        y: "CPU of a review".to_owned(),
        lines: SERVERS.iter().zip(samples).map(line).collect(),
    });
    Ok(())
}
