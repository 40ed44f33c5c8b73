//! The journal of a run: its directories, and what it has leased of the host.
//!
//! `<cache>/runs/<run>.jsonl` exists as long as the run. A lease is written before it is taken, so the journal of a
//! killed run names everything that it left. The processes of a living run hold a shared lock of the file, which the
//! kernel releases with them.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::identity::Identity;
use super::{cgroup, network};
use crate::console::print;

/// Logs are kept of this many runs that did not pass.
const LOGS_KEPT: usize = 8;

/// Processes that were just killed can still write into the work directory.
const REMOVED_WITHIN: Duration = Duration::from_secs(20);

/// Something of the host that a run has until it ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Lease {
    /// An address of the loopback device.
    Address(Ipv4Addr),
    /// The cgroup of this name, in every hierarchy.
    Cgroup(String),
    /// The link `durward<subnet>` to the network 10.98.`subnet`.0/30.
    Link(u8),
}

impl Lease {
    fn give_back(&self, run: &str) {
        match self {
            Self::Address(address) => network::remove_address(*address),
            Self::Cgroup(name) => cgroup::remove(name),
            Self::Link(subnet) => network::remove_link(*subnet, run),
        }
    }
}

/// The first line of a journal.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Head {
    /// The run's name, unique on this host.
    pub run: String,
    /// The program that the user started.
    pub owner: Identity,
    /// The parent of the namespace's first process. The namespace ends with it.
    pub supervisor: Identity,
    /// The boot in which the leases were taken.
    pub boot: String,
    /// The directory that is removed at the end of the run.
    pub work: PathBuf,
    /// The directory that is kept if the run does not pass.
    pub logs: PathBuf,
}

/// A further line of a journal.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Entry {
    /// The lease is about to be taken.
    Leased(Lease),
    /// The lease could not be taken.
    Returned(Lease),
    /// The tests passed.
    Passed,
}

/// The journal of a living run, which stays locked until this is dropped.
#[derive(Debug)]
pub struct Journal {
    /// Its first line.
    pub head: Head,
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Cleans up after dead runs, starts the supervisor with `start`, and makes the journal and the directories of a run.
    ///
    /// A lock excludes other runs meanwhile: one that sees the new journal without its lock would clean it up.
    pub(super) fn create(cache: &Path, start: impl FnOnce() -> Result<Identity>) -> Result<Self> {
        let directory = cache.join("runs");
        let _lock = lock(&directory)?;
        sweep_locked(&directory);
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let run = format!("{since}-{}", random("uuid").get(..8).unwrap_or_default());
        let head = Head {
            owner: Identity::own().context("/proc does not know this process: is it mounted?")?,
            supervisor: start()?,
            boot: random("boot_id"),
            work: work_of(&run),
            logs: cache.join("logs").join(&run),
            run,
        };
        let path = directory.join(format!("{}.jsonl", head.run));
        let mut file = append(&path, true)?;
        file.lock_shared().context("cannot lock the journal")?;
        write_line(&mut file, &path, &head)?;
        for directory in [&head.work, &head.logs] {
            std::fs::create_dir_all(directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
        }
        prune_logs(&cache.join("logs"), &directory);
        Ok(Self { head, path, file })
    }

    /// Opens and locks a journal that exists.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = append(path, false)?;
        file.lock_shared().context("cannot lock the journal")?;
        let record = Record::read(path).with_context(|| format!("{} has no first line", path.display()))?;
        Ok(Self { head: record.head, path: path.to_owned(), file })
    }

    /// Writes a line.
    pub(super) fn write(&mut self, entry: &Entry) -> Result<()> {
        write_line(&mut self.file, &self.path, entry)
    }

    /// Returns its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the directory of journals.
    pub(super) fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }
}

/// Returns the work directory of the run of this name.
pub fn work_of(run: &str) -> PathBuf {
    std::env::temp_dir().join(format!("durward-e2e-{run}"))
}

/// Takes the lock that a run holds while it starts or takes a lease. The kernel releases it with the process.
pub(super) fn lock(directory: &Path) -> Result<File> {
    std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let path = directory.join("lock");
    let file = File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
    file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    Ok(file)
}

/// Returns the leases of dead runs and removes their directories.
pub fn sweep(cache: &Path) -> Result<()> {
    let directory = cache.join("runs");
    let _lock = lock(&directory)?;
    sweep_locked(&directory);
    Ok(())
}

fn sweep_locked(directory: &Path) {
    for path in
        std::fs::read_dir(directory).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()))
    {
        let is_journal = path.extension().is_some_and(|extension| extension == "jsonl");
        if is_journal && append(&path, false).is_ok_and(|file| file.try_lock().is_ok()) {
            if let Some(record) = Record::read(&path) {
                print(format_args!("run {} was killed: cleaning up after it", record.head.run));
            }
            clean(&path);
        }
    }
}

/// Returns the leases of a run whose processes have ended or were killed, removes its directories and its journal.
pub(super) fn clean(path: &Path) {
    // Without a first line, nothing was leased yet.
    if let Some(Record { head, leases, passed }) = Record::read(path) {
        // Another boot has none of the leases, and another run may have the same address by now.
        if head.boot == random("boot_id") {
            leases.iter().rev().for_each(|lease| lease.give_back(&head.run));
        }
        remove_directories(&head, passed);
    }
    let _ = std::fs::remove_file(path);
}

/// Lets the killed processes of the run end that a version 1 freezer holds.
pub(super) fn thaw(path: &Path) {
    for lease in Record::read(path).into_iter().flat_map(|record| record.leases) {
        if let Lease::Cgroup(name) = lease {
            cgroup::thaw(&name);
        }
    }
}

/// The contents of a journal.
#[derive(Debug)]
struct Record {
    head: Head,
    leases: Vec<Lease>,
    passed: bool,
}

impl Record {
    fn read(path: &Path) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(path).ok()?)
    }

    /// Skips a torn last line: what it announces was not taken yet.
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let head = serde_json::from_str(lines.next()?).ok()?;
        let mut record = Self { head, leases: Vec::new(), passed: false };
        for entry in lines.filter_map(|line| serde_json::from_str(line).ok()) {
            match entry {
                Entry::Leased(lease) => record.leases.push(lease),
                Entry::Returned(lease) => record.leases.retain(|other| *other != lease),
                Entry::Passed => record.passed = true,
            }
        }
        Some(record)
    }
}

fn append(path: &Path, create: bool) -> Result<File> {
    let file = OpenOptions::new().append(true).create_new(create).open(path);
    file.with_context(|| format!("cannot open the journal {}", path.display()))
}

fn write_line(file: &mut File, path: &Path, line: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(line)?;
    line.push(b'\n');
    file.write_all(&line).with_context(|| format!("cannot write the journal {}", path.display()))
}

/// Returns an id that the kernel made: `uuid` is new each time, `boot_id` is that of this boot.
fn random(name: &str) -> String {
    let path = Path::new("/proc/sys/kernel/random").join(name);
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn remove_directories(head: &Head, passed: bool) {
    let began = Instant::now();
    while let Err(error) = std::fs::remove_dir_all(&head.work)
        && error.kind() != ErrorKind::NotFound
    {
        if began.elapsed() >= REMOVED_WITHIN {
            print(format_args!("cannot remove {}: {error}", head.work.display()));
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let is_empty = std::fs::read_dir(&head.logs).is_ok_and(|mut entries| entries.next().is_none());
    if passed || is_empty {
        let _ = std::fs::remove_dir_all(&head.logs);
    } else if head.logs.exists() {
        print(format_args!("the logs of all processes are in {}", head.logs.display()));
    }
}

/// Removes the oldest logs. Names begin with the time, so they sort by age; runs with a journal keep theirs.
fn prune_logs(logs: &Path, journals: &Path) {
    let Ok(entries) = std::fs::read_dir(logs) else { return };
    let mut runs: Vec<_> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    runs.retain(|run| !journals.join(format!("{run}.jsonl")).exists());
    runs.sort_unstable();
    for run in runs.iter().take(runs.len().saturating_sub(LOGS_KEPT)) {
        let _ = std::fs::remove_dir_all(logs.join(run));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(entries: &[Entry]) -> String {
        let process = Identity { pid: 7, started: 8 };
        let head = Head {
            run: "1-7".into(),
            owner: process,
            supervisor: process,
            boot: random("boot_id"),
            work: "/nowhere/work".into(),
            logs: "/nowhere/logs".into(),
        };
        let lines = entries.iter().map(|entry| serde_json::to_string(entry).unwrap() + "\n");
        serde_json::to_string(&head).unwrap() + "\n" + &lines.collect::<String>()
    }

    #[test]
    fn returns_the_leases_that_were_taken_in_order() {
        let leases = [Lease::Cgroup("durward-1-7-0".to_owned()), Lease::Link(10)];
        let written = text(&[
            Entry::Leased(leases[0].clone()),
            Entry::Leased(Lease::Link(9)),
            Entry::Returned(Lease::Link(9)),
            Entry::Leased(leases[1].clone()),
        ]);
        assert_eq!(Record::parse(&written).unwrap().leases, leases);
    }

    #[test]
    fn skips_a_torn_last_line() {
        let written = text(&[Entry::Leased(Lease::Link(9)), Entry::Leased(Lease::Link(10))]);
        let torn = written.strip_suffix("}}\n").unwrap();
        assert_eq!(Record::parse(torn).unwrap().leases, [Lease::Link(9)]);
    }

    #[test]
    fn without_its_first_line_a_journal_has_no_leases() {
        let written = text(&[Entry::Leased(Lease::Link(9))]);
        assert!(Record::parse(written.split_once('\n').unwrap().1).is_none());
    }
}
