//! Identifies processes.
//!
//! The kernel reuses process ids. Together with the start time, in clock ticks since boot, an id names one process of
//! this boot.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

/// A process of this boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The process id.
    pub pid: i32,
    /// Field 22 of `/proc/<pid>/stat`.
    pub started: u64,
}

impl Identity {
    /// Returns the process that has this id now, or none if there is none or only a zombie.
    pub fn of(pid: i32) -> Option<Self> {
        let (state, started) = state_and_start(&Path::new("/proc").join(pid.to_string()))?;
        (state != "Z" && state != "X").then_some(Self { pid, started })
    }

    /// Returns this process.
    pub fn own() -> Option<Self> {
        Self::of(i32::try_from(std::process::id()).ok()?)
    }

    /// Returns whether this process still runs.
    pub fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// Sends a signal if this process still runs, and returns whether it did.
    ///
    /// The id could be reused between the check and the signal only if the kernel gave out all ids within microseconds.
    pub fn signal(self, signal: Signal) -> bool {
        self.is_alive() && Pid::from_raw(self.pid).is_some_and(|pid| kill_process(pid, signal).is_ok())
    }
}

/// Returns the start time of the process with this directory in `/proc`, also of a zombie.
pub(super) fn started(process: &Path) -> Option<u64> {
    state_and_start(process).map(|(_, started)| started)
}

fn state_and_start(process: &Path) -> Option<(String, u64)> {
    let stat = std::fs::read_to_string(process.join("stat")).ok()?;
    // The second field is the program's name in parentheses, which can contain spaces and parentheses.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    Some((fields.next()?.to_owned(), fields.nth(18)?.parse().ok()?))
}

/// Waits for the end of these processes, and returns those that still run after this time.
pub fn await_end(processes: &[Identity], within: Duration) -> Vec<Identity> {
    let began = Instant::now();
    loop {
        let left: Vec<_> = processes.iter().copied().filter(|process| process.is_alive()).collect();
        if left.is_empty() || began.elapsed() >= within {
            return left;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignores_a_process_with_the_same_pid_and_another_start_time() {
        let own = Identity::own().unwrap();
        assert!(own.is_alive());
        let other = Identity { started: own.started + 1, ..own };
        assert!(!other.is_alive());
        assert!(!other.signal(Signal::KILL), "the test process would have been killed");
    }

    #[test]
    fn counts_a_zombie_as_ended() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let process = Identity::of(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(process.signal(Signal::KILL));
        assert_eq!(await_end(&[process], Duration::from_secs(20)), []);
        child.wait().unwrap();
    }
}
