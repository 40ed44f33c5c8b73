//! Latencies at a fixed rate.

use std::time::Duration;

use super::{ECHO, GO, Start};
use crate::figures::{Limit, Row, Samples};
use crate::load::quantile;
use crate::report::Report;
use crate::servers::{Folder, Guards, Server};
use crate::{Result, is_short, reviews, rounds};

const RATE: u32 = 5_000;
const CONNECTIONS: usize = 25;
/// Time of a measurement: 20,000 reviews.
const LASTING: Duration = Duration::from_secs(4);
/// Limit of the p99, relative to the echo.
const LIMIT: f64 = 1.5;
/// Names of quantiles, and their thousandths.
const QUANTILES: [(&str, usize); 3] = [("p50", 500), ("p99", 990), ("p99.9", 999)];

pub(super) fn measure(folder: &Folder, report: &mut Report) -> Result<()> {
    let pod = reviews::opted_in_pod();
    let mut samples = [const { [Samples::NONE; 3] }; 3];
    let servers: [Start; 3] =
        [Server::echo, |folder| Server::durward(folder, Guards::Three), Server::controller_runtime];
    for _ in 0..rounds() {
        for (samples, start) in samples.iter_mut().zip(servers) {
            let server = start(folder)?;
            let request = server.request(&pod);
            let mut load = server.load(folder, &request, CONNECTIONS)?;
            let lasting = if is_short() { LASTING / 20 } else { LASTING };
            load.at_rate(RATE, lasting / 4)?;
            let latencies = load.at_rate(RATE, lasting)?;
            for (samples, (_, thousandths)) in samples.iter_mut().zip(QUANTILES) {
                samples.push_time(quantile(&latencies, thousandths)?);
            }
        }
    }
    report.section(
        "Latency at 5,000 reviews a second on one core",
        "25 connections and the pod that gets LXCFS files. A latency counts from when the request was due, so a server that stalls \
         can't hide it. A server that can't answer 5,000 a second on one core has latencies of seconds, because its requests queue.",
    );
    let [echo, durward, go] = samples;
    for (((name, _), durward), (echo, go)) in QUANTILES.iter().zip(durward).zip(echo.into_iter().zip(go)) {
        let row = Row::seconds(*name, durward.clone()).against(ECHO, echo);
        report.row(if *name == "p99" { row.limit(Limit::RatioAtMost(LIMIT)) } else { row });
        report.row(Row::seconds(*name, durward).against(GO, go));
    }
    Ok(())
}
