//! A run: its name, its directories, and what is removed at its end.
//!
//! The processes of a living run hold a shared lock of the file `lock` in its work directory, which the kernel releases with them.
//! So a work directory without a locked file is that of a run that was killed, and the next run cleans up after it.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};

use super::cgroup;
use crate::binaries::cache;
use crate::console::print;

/// The start of the name of a work directory.
const PREFIX: &str = "durward-e2e-";

/// Logs are kept of this many runs that did not pass.
const LOGS_KEPT: usize = 8;

/// Processes that were just killed can still write into the work directory.
const REMOVED_WITHIN: Duration = Duration::from_secs(20);

/// A run that has not ended.
#[derive(Debug, Clone)]
pub struct Run {
    /// The name, unique on this host.
    pub name: String,
    /// The directory that is removed at the end of the run.
    pub work: PathBuf,
    /// The directory that is kept if the run does not pass.
    pub logs: PathBuf,
}

impl Run {
    /// Returns the run of this name.
    pub(super) fn named(name: &str) -> Result<Self> {
        let work = std::env::temp_dir().join(format!("{PREFIX}{name}"));
        Ok(Self { name: name.to_owned(), work, logs: cache()?.join("logs").join(name) })
    }

    /// Cleans up after dead runs, and makes the directories of a new one. The run lives as long as the file is open.
    pub(super) fn start() -> Result<(Self, File)> {
        // Another run would take a work directory without a lock for that of a dead run.
        let _lock = lock()?;
        clean_dead();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let random = std::fs::read_to_string("/proc/sys/kernel/random/uuid").context("no random id")?;
        let run = Self::named(&format!("{since}-{}", random.get(..8).unwrap_or_default()))?;
        for directory in [&run.work, &run.logs] {
            std::fs::create_dir_all(directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
        }
        File::create(run.work.join("lock")).context("cannot make a lock")?;
        let file = run.hold()?;
        prune_logs(run.logs.parent().unwrap_or(&run.logs));
        Ok((run, file))
    }

    /// Holds the lock of a living run.
    pub(super) fn hold(&self) -> Result<File> {
        let file = File::open(self.work.join("lock")).context("the run has ended")?;
        file.lock_shared().context("cannot lock the run")?;
        Ok(file)
    }

    /// Records that the run passed. Its logs are not kept.
    pub(super) fn passed(&self) -> Result<()> {
        File::create(self.work.join("passed")).map(drop).context("cannot record that the run passed")
    }

    /// Removes what the run has left on the host. Its processes must have ended.
    pub(super) fn clean(&self) {
        cgroup::remove_all(&self.name);
        let passed = self.work.join("passed").exists();
        let began = Instant::now();
        while let Err(error) = std::fs::remove_dir_all(&self.work)
            && error.kind() != ErrorKind::NotFound
        {
            if began.elapsed() >= REMOVED_WITHIN {
                print(format_args!("cannot remove {}: {error}", self.work.display()));
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let is_empty = std::fs::read_dir(&self.logs).is_ok_and(|mut entries| entries.next().is_none());
        if passed || is_empty {
            let _ = std::fs::remove_dir_all(&self.logs);
        } else if self.logs.exists() {
            print(format_args!("the logs of all processes are in {}", self.logs.display()));
        }
    }
}

/// Cleans up after runs that were killed.
pub fn sweep() -> Result<()> {
    let _lock = lock()?;
    clean_dead();
    Ok(())
}

/// Takes the lock that a run holds while it starts.
fn lock() -> Result<File> {
    let path = std::env::temp_dir().join("durward-e2e.lock");
    let file = File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
    file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    Ok(file)
}

fn clean_dead() {
    for entry in std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().filter_map(Result::ok) {
        let name = entry.file_name();
        let Some(name) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        let is_dead = File::open(entry.path().join("lock")).is_ok_and(|file| file.try_lock().is_ok());
        if is_dead && let Ok(run) = Run::named(name) {
            print(format_args!("run {name} was killed: cleaning up after it"));
            run.clean();
        }
    }
}

/// Removes the oldest logs. Names begin with the time, so they sort by age.
fn prune_logs(logs: &Path) {
    let entries = std::fs::read_dir(logs).into_iter().flatten().filter_map(Result::ok);
    let mut runs: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    runs.retain(|run| Run::named(run).is_ok_and(|run| !run.work.exists()));
    runs.sort_unstable();
    for run in runs.iter().take(runs.len().saturating_sub(LOGS_KEPT)) {
        let _ = std::fs::remove_dir_all(logs.join(run));
    }
}
