//! Processes as `/proc` tells of them.
//!
//! A process id alone names nobody: the kernel gives it to somebody else once it is free. Together with the
//! start time, in clock ticks since boot, and the boot's own id it names one process for good.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

/// One process of this boot, for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The process id.
    pub pid: i32,
    /// Field 22 of `/proc/<pid>/stat`.
    pub started: u64,
}

impl Identity {
    /// The process that has this id now; none if there is none, or only a zombie that nobody has reaped yet.
    pub fn of(pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is the program's name in parentheses and may itself hold both spaces and
        // parentheses.
        let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
        let state = fields.next()?;
        let started = fields.nth(18)?.parse().ok()?;
        (state != "Z" && state != "X").then_some(Self { pid, started })
    }

    /// This process.
    pub fn own() -> Option<Self> {
        Self::of(i32::try_from(std::process::id()).ok()?)
    }

    /// Whether the very process still runs.
    pub fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// Sends a signal if the process still is who it was. False if it was not there any more.
    ///
    /// Between the look and the signal the process may end and its id may be given away; for that the kernel
    /// would have to go once round its ids within microseconds.
    pub fn signal(self, signal: Signal) -> bool {
        self.is_alive() && Pid::from_raw(self.pid).is_some_and(|pid| kill_process(pid, signal).is_ok())
    }
}

/// Ends processes that are not our children: SIGTERM to all, up to `grace`, SIGKILL, until they are gone.
///
/// Returns those that it could not end within ten seconds more, which only a process stuck in the kernel
/// withstands.
pub fn end_all(processes: &[Identity], grace: Duration) -> Vec<Identity> {
    for process in processes {
        process.signal(Signal::TERM);
    }
    let left = await_end(processes, grace);
    for process in &left {
        process.signal(Signal::KILL);
    }
    await_end(&left, Duration::from_secs(10))
}

/// Waits for their end, and returns those that still run when the time is up.
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

/// Every process whose environment holds `variable=value`, the caller excepted.
///
/// A process keeps what it was started with, and hands it to what it starts: this finds children of children
/// that left their group.
pub fn marked(variable: &str, value: &str) -> Vec<Identity> {
    let wanted = format!("{variable}={value}");
    let own = Identity::own();
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid: &i32| {
            std::fs::read(Path::new("/proc").join(pid.to_string()).join("environ"))
                .is_ok_and(|environ| environ.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes()))
        })
        .filter_map(Identity::of)
        .filter(|process| Some(*process) != own)
        .collect()
}

/// The id of this boot: start times of another boot say nothing.
pub fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_itself_again() {
        assert!(Identity::own().unwrap().is_alive());
    }

    #[test]
    fn takes_nobody_for_a_process_that_started_at_another_time() {
        let own = Identity::own().unwrap();
        let other = Identity { started: own.started + 1, ..own };
        assert!(!other.is_alive());
        assert!(!other.signal(Signal::KILL), "this test would not have lived to see it");
    }

    #[test]
    fn finds_a_process_by_what_its_environment_holds_and_ends_it() {
        let value = format!("{}-{:?}", std::process::id(), std::thread::current().id());
        let mut child =
            std::process::Command::new("sleep").arg("600").env("E2E_MARK", &value).spawn().unwrap();
        let found = crate::wait::eventually("the mark", Duration::from_secs(5), || {
            Ok(match marked("E2E_MARK", &value).first() {
                Some(found) => crate::wait::Poll::Ready(*found),
                None => crate::wait::Poll::Pending("nobody".to_owned()),
            })
        })
        .unwrap();
        assert_eq!(u32::try_from(found.pid).unwrap(), child.id());
        assert_eq!(end_all(&[found], Duration::from_secs(5)), []);
        assert!(!found.is_alive(), "a zombie counts as dead");
        child.wait().unwrap();
    }
}
