//! The server under load, beside the echo and the server on controller-runtime.
//!
//! Each round starts new processes, one after another on the same core. The echo is the limit: hyper and rustls as Durward uses them.

mod latency;
mod memory;
mod new_connections;
mod reviews;
mod sizes;
mod start;

use std::time::Duration;

use crate::load::request;
use crate::report::Report;
use crate::servers::{Folder, Guards, Server};
use crate::{Result, answers, reviews as bodies, scaled};

pub(crate) use memory::settled;

/// Names of the peers.
pub(crate) const ECHO: &str = "echo";
pub(crate) const GO: &str = "controller-runtime";
/// Connections of a closed loop.
const CONNECTIONS: usize = 8;
/// Requests before the measurement, relative to those that count.
const WARM_UP: usize = 8;

/// Starts a server.
type Start = fn(&Folder) -> Result<Server>;

/// Measures everything about the server.
pub(crate) fn measure(folder: &Folder, report: &mut Report) -> Result<()> {
    compare(folder)?;
    reviews::measure(folder, report)?;
    latency::measure(folder, report)?;
    sizes::measure(folder, report)?;
    new_connections::measure(folder, report)?;
    memory::measure(folder, report)?;
    start::measure(folder, report)
}

/// Compares the answers of Durward and controller-runtime: both must make the same pods.
fn compare(folder: &Folder) -> Result<()> {
    let durward = Server::durward(folder, Guards::Lxcfs)?;
    let other = Server::controller_runtime(folder)?;
    let pods = [bodies::opted_in_pod(), bodies::plain_pod(), bodies::large_pod(100_000)];
    for pod in &pods {
        let ours = answer(&durward, folder, durward.path, pod)?;
        let theirs = answer(&other, folder, other.path, pod)?;
        answers::expect_equal(pod, &ours, &theirs)?;
    }
    println!("Durward and {GO} make the same pods of {} reviews", pods.len());
    Ok(())
}

/// Returns the answer to a review.
pub(crate) fn answer(server: &Server, folder: &Folder, path: &str, body: &[u8]) -> Result<Vec<u8>> {
    let mut connection = crate::load::Connection::open(server.address, &folder.client()?)?;
    connection.ask(&request(path, body))
}

/// The cost of a request in a closed loop.
pub(crate) struct Cost {
    pub(crate) cpu: Duration,
    /// How often a thread of the server went to sleep.
    pub(crate) sleeps: f64,
    /// The latency below which 99 % are.
    pub(crate) p99: Duration,
}

/// Measures requests in a closed loop.
pub(crate) fn cost(
    server: &Server,
    folder: &Folder,
    request: &[u8],
    connections: usize,
    count: usize,
) -> Result<Cost> {
    let count = scaled(count);
    let mut load = server.load(folder, request, connections)?;
    load.closed(count.div_ceil(WARM_UP))?;
    let (cpu, sleeps) = (server.cpu()?, server.sleeps()?);
    let latencies = load.closed(count)?;
    let (cpu, sleeps) = (server.cpu()?.saturating_sub(cpu), server.sleeps()?.saturating_sub(sleeps));
    Ok(Cost {
        cpu: cpu / u32::try_from(count)?,
        sleeps: sleeps as f64 / count as f64,
        p99: crate::load::quantile(&latencies, 990)?,
    })
}
