//! CPU per review, and p99 at a fixed rate, relative to the echo.

use std::path::Path;
use std::time::Duration;

use crate::peer::{Server, Snapshot};
use crate::{Result, load, review};

/// Limit of both ratios.
const LIMIT: f64 = 2.0;
const ROUNDS: usize = 3;
const REQUESTS: usize = 40_000;
const RATE: u32 = 5_000;

struct Figures {
    cpu: Duration,
    p99: Duration,
}

/// Measures and prints. Returns whether both ratios are within the limit.
pub(crate) fn measure(folder: &Snapshot) -> Result<bool> {
    let body = review::opted_in_pod();
    println!(
        "review of {} bytes, keep-alive TLS 1.3, server on one core; best of {ROUNDS} rounds",
        body.len()
    );
    let mut best: [Option<Figures>; 2] = [None, None];
    for _ in 0..ROUNDS {
        for (slot, start) in best.iter_mut().zip([Server::echo, Server::durward]) {
            let server = start(folder)?;
            let now = round(&server, &folder.certificate(), &body)?;
            let kept = slot.take();
            *slot = Some(match kept {
                Some(kept) => Figures { cpu: kept.cpu.min(now.cpu), p99: kept.p99.min(now.p99) },
                None => now,
            });
        }
    }
    let [Some(echo), Some(durward)] = best else { return Err("no round was run".into()) };
    let cpu = durward.cpu.as_secs_f64() / echo.cpu.as_secs_f64();
    let p99 = durward.p99.as_secs_f64() / echo.p99.as_secs_f64();
    println!(
        "  CPU per review           echo {:>9.1?}   durward {:>9.1?}   ratio {cpu:.2} (limit {LIMIT})",
        echo.cpu, durward.cpu
    );
    println!(
        "  p99 at {RATE} reviews/s   echo {:>9.1?}   durward {:>9.1?}   ratio {p99:.2} (limit {LIMIT})",
        echo.p99, durward.p99
    );
    Ok(cpu <= LIMIT && p99 <= LIMIT)
}

fn round(server: &Server, certificate: &Path, body: &[u8]) -> Result<Figures> {
    let config = load::trusting(certificate)?;
    let request = load::request(server.path, body);
    load::closed(server.address, &config, &request, 8, REQUESTS / 8)?;
    let before = server.cpu()?;
    load::closed(server.address, &config, &request, 8, REQUESTS)?;
    let cpu = server.cpu()?.saturating_sub(before) / u32::try_from(REQUESTS)?;
    let latencies = load::open(server.address, &config, &request, 25, RATE, Duration::from_secs(4))?;
    let p99 = latencies.get(latencies.len() * 99 / 100).copied().ok_or("no latencies")?;
    Ok(Figures { cpu, p99 })
}
