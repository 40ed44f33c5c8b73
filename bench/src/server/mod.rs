//! The server under load, beside the echo and the server on controller-runtime.
//!
//! Each round starts new processes, one after another on the same core. The echo is the limit: hyper and rustls as Durward uses them.

mod latency;
mod memory;
mod reviews;
mod sizes;
mod start;

use std::time::Duration;

use crate::load::request;
use crate::report::Report;
use crate::servers::{Folder, Guards, Server};
use crate::{Result, answers, reviews as bodies, scaled};

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

/// Returns the CPU time of a request in a closed loop.
pub(crate) fn cpu(
    server: &Server,
    folder: &Folder,
    request: &[u8],
    connections: usize,
    count: usize,
) -> Result<Duration> {
    let count = scaled(count);
    let mut load = server.load(folder, request, connections)?;
    load.closed(count.div_ceil(WARM_UP))?;
    let before = server.cpu()?;
    load.closed(count)?;
    Ok(server.cpu()?.saturating_sub(before) / u32::try_from(count)?)
}
