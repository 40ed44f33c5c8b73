//! Resident memory: idle, and with as many bodies in flight as fit into 64 MiB, from few large ones to many small ones. A small body
//! costs less than its connection.

use std::time::{Duration, Instant};

use super::GO;
use crate::figures::{Limit, MIB, Row, Samples, Unit};
use crate::load::{self, Connection};
use crate::report::Report;
use crate::servers::{Folder, Guards, Server};
use crate::{Result, is_short, resources, reviews, rounds};

/// Limit after some reviews, idle.
const IDLE: f64 = 20.0 * MIB;
/// Limit of what in-use rules add.
const RULES: f64 = 2.0 * MIB;
/// Limit while the memory budget is used up.
const FULL: f64 = 110.0 * MIB;
/// Defaults of `server.limits`: bytes of all bodies, cost of a body, connections.
const BUDGET: usize = 64 << 20;
const BODY_COST: usize = 32 << 10;
const CONNECTIONS: usize = 512;
/// Larger bodies can use three quarters of the budget.
const SMALL_BODY: usize = 256 << 10;
/// Sizes of bodies. With the last one, every connection has a body and the whole budget is used.
const BODIES: [usize; 4] = [2 << 20, 256 << 10, 128 << 10, 96 << 10];
/// Policies of the measurement of `resources`.
const POLICIES: usize = 200;

pub(super) fn measure(folder: &Folder, report: &mut Report) -> Result<()> {
    report.section(
        "Memory of the server",
        "Resident memory after 1,000 reviews over 25 connections. Then as many bodies as fit into 64 MiB, all of them complete except for the last byte; \
         the other connections of 512 are idle. controller-runtime limits each body to 7 MiB and not the sum of them.",
    );
    std::fs::write(folder.file("policies.yaml"), resources::policies(3, POLICIES - 3))?;
    let [mut three, mut rules, mut policies, mut go] = [const { Samples::NONE }; 4];
    for _ in 0..rounds() {
        let without_rules = idle(folder, &Server::durward(folder, Guards::Three)?)?;
        three.push(without_rules);
        rules.push((idle(folder, &Server::durward(folder, Guards::InUse)?)? - without_rules).max(0.0));
        policies.push(idle(folder, &Server::durward(folder, Guards::Policies)?)?);
        go.push(idle(folder, &Server::controller_runtime(folder)?)?);
    }
    report.row(
        Row::bytes("idle, guards lxcfs, deletion and etcd", three).against(GO, go).limit(Limit::AtMost(IDLE)),
    );
    report.row(Row::bytes("more with twelve in-use rules", rules).limit(Limit::AtMost(RULES)));
    report.row(Row::bytes(format!("idle, guard resources with {POLICIES} policies"), policies));
    for size in BODIES {
        let budget = if size > SMALL_BODY { BUDGET - BUDGET / 4 } else { BUDGET };
        let bodies = (budget / (size + BODY_COST)).min(CONNECTIONS);
        let [mut durward, mut go] = [const { Samples::NONE }; 2];
        for _ in 0..rounds() {
            durward.push(with_bodies(folder, &Server::durward(folder, Guards::Lxcfs)?, bodies, size)?);
            go.push(with_bodies(folder, &Server::controller_runtime(folder)?, bodies, size)?);
        }
        let name = format!("{bodies} bodies of {} in flight", Unit::Bytes.show(size as f64));
        report.row(Row::bytes(name, durward).against(GO, go).limit(Limit::AtMost(FULL)));
    }
    Ok(())
}

/// Returns the resident memory after some reviews.
fn idle(folder: &Folder, server: &Server) -> Result<f64> {
    let request = server.request(&reviews::opted_in_pod());
    server.load(folder, &request, 25)?.closed(1_000)?;
    server.resident()
}

/// Sends bodies that are complete except for their last byte. All other connections are open and idle. Returns the resident memory.
fn with_bodies(folder: &Folder, server: &Server, bodies: usize, size: usize) -> Result<f64> {
    let config = folder.client()?;
    let open = |_| Connection::open(server.address, &config);
    let mut connections = (0..CONNECTIONS).map(open).collect::<Result<Vec<_>>>()?;
    let mut request = load::head(server.path, size).into_bytes();
    request.resize(request.len() + size - 1, b' ');
    for connection in connections.iter_mut().take(bodies) {
        connection.send(&request)?;
        connection.flush()?;
    }
    settled(server)
}

/// Returns the highest resident memory once it has not risen for a while.
pub(crate) fn settled(server: &Server) -> Result<f64> {
    let calm = Duration::from_millis(if is_short() { 200 } else { 700 });
    let (mut most, mut since) = (0.0, Instant::now());
    while since.elapsed() < calm {
        let now = server.resident()?;
        if now > most {
            (most, since) = (now, Instant::now());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(most)
}
