//! Resident memory: idle, and with 64 MiB of bodies in flight, from few large ones to many small ones. A small body costs less
//! than its connection.

use std::time::{Duration, Instant};

use crate::peer::{Server, Snapshot};
use crate::{Result, load};

/// Limit in MiB after some reviews, idle.
const IDLE: f64 = 20.0;
/// Limit in MiB while the budget of bytes is used up.
const FULL: f64 = 100.0;
/// Defaults of `server.limits`: bytes of all bodies, cost of a body, connections.
const BUDGET: usize = 64 << 20;
const BODY_COST: usize = 32 << 10;
const CONNECTIONS: usize = 512;
/// Sizes of bodies. With the last one, every connection has a body and the whole budget is used.
const BODIES: [usize; 4] = [2 << 20, 256 << 10, 128 << 10, 96 << 10];

/// Measures and prints. Returns whether all figures are within their limits.
pub(crate) fn measure(folder: &Snapshot) -> Result<bool> {
    println!("resident memory");
    let server = Server::durward(folder)?;
    let config = load::trusting(&folder.certificate())?;
    let small = load::request(server.path, &crate::review::opted_in_pod());
    load::closed(server.address, &config, &small, 25, 1_000)?;
    let idle = server.resident()?;
    println!("  idle, after 1,000 reviews over 25 connections   {idle:>6.1} MiB (limit {IDLE})");
    drop(server);
    let mut good = idle < IDLE;
    for size in BODIES {
        let bodies = (BUDGET / (size + BODY_COST)).min(CONNECTIONS);
        let full = with_bodies(folder, bodies, size)?;
        println!(
            "  {bodies:>3} bodies of {:>4} KiB, {:>3} connections idle      {full:>6.1} MiB (limit {FULL})",
            size >> 10,
            CONNECTIONS - bodies
        );
        good &= full < FULL;
    }
    Ok(good)
}

/// Starts a new server and sends bodies that are complete except for their last byte. All other connections are open and
/// idle. Returns the resident memory.
fn with_bodies(folder: &Snapshot, bodies: usize, size: usize) -> Result<f64> {
    let server = Server::durward(folder)?;
    let config = load::trusting(&folder.certificate())?;
    let open = |_| load::Connection::open(server.address, &config);
    let mut connections = (0..CONNECTIONS).map(open).collect::<Result<Vec<_>>>()?;
    let body = vec![b' '; size - 1];
    for connection in connections.iter_mut().take(bodies) {
        connection.send(load::head(server.path, size).as_bytes())?;
        connection.send(&body)?;
    }
    settled(&server)
}

/// Returns the highest figure once it has not risen for a second.
pub(crate) fn settled(server: &Server) -> Result<f64> {
    let (mut most, mut since) = (0.0, Instant::now());
    while since.elapsed() < Duration::from_secs(1) {
        let now = server.resident()?;
        if now > most {
            (most, since) = (now, Instant::now());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(most)
}
