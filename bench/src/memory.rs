//! Resident memory: idle, and with 64 MiB of bodies in flight.

use std::time::{Duration, Instant};

use crate::peer::{Folder, Server};
use crate::{Result, load};

/// MiB at rest, after some reviews.
const IDLE: f64 = 20.0;
/// MiB while the budget of bytes is as good as used up.
const FULL: f64 = 100.0;
/// 31 bodies of 2 MiB and a part of one more: just under the 64 MiB at which reviews are shed.
const BODIES: usize = 31;
const BODY: usize = 2 << 20;

/// Measures and prints. Whether both figures are within their limits.
pub(crate) fn measure(folder: &Folder) -> Result<bool> {
    let server = Server::durward(folder)?;
    let config = load::trusting(&folder.certificate())?;
    let small = load::request(server.path, &crate::review::opted_in_pod());
    load::closed(server.address, &config, &small, 25, 1_000)?;
    let idle = server.resident()?;

    let body = vec![b' '; BODY - 1];
    let mut senders = Vec::new();
    for _ in 0..BODIES {
        let mut connection = load::Connection::open(server.address, &config)?;
        connection.send(load::head(server.path, BODY).as_bytes())?;
        connection.send(&body)?;
        senders.push(connection);
    }
    let full = settled(&server)?;
    drop(senders);
    println!("resident memory");
    println!("  idle, after 1,000 reviews over 25 connections   {idle:>6.1} MiB (limit {IDLE})");
    println!(
        "  {} MiB of bodies in flight                      {full:>6.1} MiB (limit {FULL})",
        (BODIES * BODY) >> 20
    );
    Ok(idle < IDLE && full < FULL)
}

/// The highest figure until it has not risen for a second.
fn settled(server: &Server) -> Result<f64> {
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
