//! CPU time and memory of a process, as the kernel counts them.

use std::fs;
use std::time::Duration;

use crate::Result;

/// Returns the CPU time of a process's threads, from the scheduler's count in nanoseconds. `process` is an id, or `self`.
pub(crate) fn cpu(process: &str) -> Result<Duration> {
    let mut total = 0;
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        total += text.split_whitespace().next().ok_or("an empty schedstat")?.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(total))
}

/// Returns the resident memory in bytes.
pub(crate) fn resident(process: &str) -> Result<f64> {
    status(process, "VmRSS:")
}

/// Returns the peak resident memory in bytes.
pub(crate) fn peak(process: &str) -> Result<f64> {
    status(process, "VmHWM:")
}

fn status(process: &str, key: &str) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(key)).ok_or_else(|| format!("no {key}"))?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024.0)
}
