//! Measures whether processes waited for a processor. If they did, a call can time out although the server works.

use std::time::{Duration, Instant};

/// The machine counts as starved if processes waited for a processor for at least this share of the time. An idle machine that runs
/// one case is below 0.5; two busy loops next to the tests are above 0.9.
const STARVED: f64 = 0.8;

/// A measurement that has begun.
#[derive(Debug, Clone, Copy)]
pub struct Pressure {
    began: Instant,
    waited: Option<Duration>,
}

impl Pressure {
    /// Begins a measurement.
    pub fn begin() -> Self {
        Self { began: Instant::now(), waited: waited() }
    }

    /// Returns whether the machine was starved since then. A kernel that does not measure it is never starved.
    pub fn is_starved(&self) -> bool {
        let waited = waited().zip(self.waited).map(|(now, before)| now.saturating_sub(before));
        waited.is_some_and(|waited| waited.as_secs_f64() >= STARVED * self.began.elapsed().as_secs_f64())
    }
}

/// Returns the time since the start of the machine in which a process waited for a processor.
fn waited() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/pressure/cpu").ok()?;
    total(&text)
}

fn total(text: &str) -> Option<Duration> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = some.split(' ').find_map(|field| field.strip_prefix("total="))?;
    Some(Duration::from_micros(total.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_time_that_some_process_waited() {
        let text = "some avg10=1.00 avg60=0.50 avg300=0.10 total=1500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(total(text), Some(Duration::from_millis(1_500)));
        assert_eq!(total(""), None);
    }
}
