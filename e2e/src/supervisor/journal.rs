//! What the supervisor writes down, and what the next one makes of it.
//!
//! `<cache>/journals/<run>.jsonl` exists as long as the run does. Every line is written before the deed it
//! tells of, or, where only the deed gives the fact (a process id), both before and after: whatever moment a
//! supervisor is killed at, its journal names everything that it may have left. Appending to a file survives the
//! writer's SIGKILL; surviving a power cut is not needed, because nothing that the journal names does.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::process::{Identity, boot, end_all, marked};
use super::protocol::Lease;
use super::{cgroup, link, loopback, process};
use crate::console::print;

/// The environment variable that every process of a run carries, with the run's name as its value.
pub const MARK: &str = "DURWARD_E2E_RUN";

/// Logs of runs that did not pass are kept for the last so many runs.
const LOGS_KEPT: usize = 8;

/// How long processes of a dead supervisor may take to end by themselves.
const GRACE: Duration = Duration::from_secs(3);

/// The folder that ends with the run of this name.
pub fn work_of(run: &str) -> PathBuf {
    std::env::temp_dir().join(format!("durward-e2e-{run}"))
}

/// One line of the journal.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Entry {
    /// The first line.
    Supervisor(Head),
    /// A process is about to be started: until [`Entry::Started`] only its mark is known.
    Starting(String),
    /// It runs.
    Started {
        /// The part's name.
        name: String,
        /// Who it is.
        process: Identity,
    },
    /// It has ended and been reaped.
    Ended(Identity),
    /// An address is about to be added to the loopback device.
    Address(Ipv4Addr),
    /// The address was given back, or was not ours after all.
    AddressReturned(Ipv4Addr),
    /// Something is about to be taken from the host.
    Leased(Lease),
    /// It could not be taken.
    Returned(Lease),
    /// The tests said that they passed.
    Passed,
}

/// Whose journal it is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Head {
    /// The run's name, unique on this host.
    pub run: String,
    /// The supervisor.
    pub supervisor: Identity,
    /// The boot that the process ids belong to.
    pub boot: String,
    /// The folder that ends with the run.
    pub work: PathBuf,
    /// The folder that is kept if the run does not pass.
    pub logs: PathBuf,
}

/// The open journal of a living supervisor.
#[derive(Debug)]
pub struct Journal {
    /// Its first line.
    pub head: Head,
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Cleans up behind dead supervisors, then opens a journal and makes the run's folders.
    ///
    /// Both under one lock, so that two runs that begin together neither sweep the same leavings nor take
    /// each other's empty journal for a dead one.
    pub fn open(cache: &Path) -> Result<Self> {
        let journals = folder(cache)?;
        let _lock = lock(&journals)?;
        sweep_locked(&journals);
        let supervisor =
            process::Identity::own().context("/proc does not know this process: is it mounted?")?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let run = format!("{since}-{}", supervisor.pid);
        let logs = cache.join("logs").join(&run);
        let work = work_of(&run);
        let path = journals.join(format!("{run}.jsonl"));
        let file = OpenOptions::new()
            .create_new(true)
            .append(true)
            .open(&path)
            .with_context(|| format!("cannot write the journal {}", path.display()))?;
        let mut journal = Self { head: Head { run, supervisor, boot: boot(), work, logs }, path, file };
        journal.write(&Entry::Supervisor(journal.head.clone()))?;
        for folder in [&journal.head.work, &journal.head.logs] {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        prune_logs(&cache.join("logs"), &journals);
        Ok(journal)
    }

    /// Writes one line.
    pub fn write(&mut self, entry: &Entry) -> Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        self.file
            .write_all(&line)
            .with_context(|| format!("cannot write the journal {}", self.path.display()))
    }
}

/// The orderly end of a run whose parts have ended: what still carries its mark is ended, what the host lent
/// is given back, its folders and, last, its journal are removed.
pub fn close(cache: &Path, head: &Head, leases: &[Lease], passed: bool) {
    end_processes(&[], head);
    return_loans(leases, head);
    remove_folders(head, passed);
    let _ = std::fs::remove_file(cache.join("journals").join(format!("{}.jsonl", head.run)));
}

/// Ends these processes, and those that carry the run's mark.
fn end_processes(known: &[Identity], head: &Head) {
    let mut processes = known.to_vec();
    processes.extend(marked(MARK, &head.run).into_iter().filter(|stray| !known.contains(stray)));
    for stray in end_all(&processes, GRACE) {
        print(format_args!("process {} of run {} does not end", stray.pid, head.run));
    }
}

/// Gives back what the host lent, the last first. All parts have ended: nobody of the run makes new members
/// of a cgroup.
fn return_loans(leases: &[Lease], head: &Head) {
    for lease in leases.iter().rev() {
        match lease {
            Lease::Cgroup(name) => cgroup::remove(name),
            Lease::Link(subnet) => link::remove(*subnet, &head.run),
        }
    }
}

/// The folder of journals.
fn folder(cache: &Path) -> Result<PathBuf> {
    let journals = cache.join("journals");
    std::fs::create_dir_all(&journals).with_context(|| format!("cannot make {}", journals.display()))?;
    Ok(journals)
}

/// The lock that every run takes while it begins, or takes something from the host. The kernel frees it with
/// the process.
fn lock(journals: &Path) -> Result<File> {
    let path = journals.join("lock");
    let file = File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
    file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    Ok(file)
}

/// Takes the lock of [`Journal::open`] for something else that only one run may do at a time.
pub fn lock_in(cache: &Path) -> Result<File> {
    lock(&folder(cache)?)
}

/// Cleans up behind every supervisor that is dead and has left a journal.
pub fn sweep(cache: &Path) -> Result<()> {
    let journals = folder(cache)?;
    let _lock = lock(&journals)?;
    sweep_locked(&journals);
    Ok(())
}

fn sweep_locked(journals: &Path) {
    for path in journal_paths(journals) {
        let Some(left) = Leavings::read(&path) else {
            // Killed between making the file and its first line: nothing had been started yet.
            let _ = std::fs::remove_file(&path);
            continue;
        };
        if left.is_of_a_living_keeper() {
            continue;
        }
        left.clean();
        let _ = std::fs::remove_file(&path);
    }
}

fn journal_paths(journals: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(journals) else { return Vec::new() };
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .collect()
}

/// What a journal says may still be there.
struct Leavings {
    head: Head,
    processes: Vec<Identity>,
    addresses: BTreeSet<Ipv4Addr>,
    leases: Vec<Lease>,
    passed: bool,
}

impl Leavings {
    /// None if the journal has no first line. A torn last line says nothing and is passed over: the line
    /// before it told of the intent, and the mark finds the rest.
    fn read(path: &Path) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(path).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
        let Some(Entry::Supervisor(head)) = lines.next() else { return None };
        let mut left = Self {
            head,
            processes: Vec::new(),
            addresses: BTreeSet::new(),
            leases: Vec::new(),
            passed: false,
        };
        for entry in lines {
            match entry {
                Entry::Started { process, .. } => left.processes.push(process),
                Entry::Ended(process) => left.processes.retain(|other| *other != process),
                Entry::Address(address) => drop(left.addresses.insert(address)),
                Entry::AddressReturned(address) => drop(left.addresses.remove(&address)),
                Entry::Leased(lease) => left.leases.push(lease),
                Entry::Returned(lease) => left.leases.retain(|other| *other != lease),
                Entry::Passed => left.passed = true,
                Entry::Supervisor(_) | Entry::Starting(_) => {}
            }
        }
        Some(left)
    }

    fn is_of_a_living_keeper(&self) -> bool {
        self.head.boot == boot() && self.head.supervisor.is_alive()
    }

    fn clean(self) {
        print(format_args!("the supervisor of run {} was killed: cleaning up behind it", self.head.run));
        if self.head.boot == boot() {
            end_processes(&self.processes, &self.head);
            return_loans(&self.leases, &self.head);
            for address in &self.addresses {
                loopback::remove(*address);
            }
        }
        remove_folders(&self.head, self.passed);
    }
}

fn remove_folders(head: &Head, passed: bool) {
    if let Err(error) = std::fs::remove_dir_all(&head.work)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        print(format_args!("cannot remove {}: {error}", head.work.display()));
    }
    let is_empty = std::fs::read_dir(&head.logs).is_ok_and(|mut entries| entries.next().is_none());
    if passed || is_empty {
        let _ = std::fs::remove_dir_all(&head.logs);
    } else if head.logs.exists() {
        print(format_args!("the logs of every part are kept in {}", head.logs.display()));
    }
}

/// Removes the oldest kept logs. Names begin with the time, so they sort by age; those of living runs have a
/// journal.
fn prune_logs(logs: &Path, journals: &Path) {
    let Ok(entries) = std::fs::read_dir(logs) else { return };
    let mut runs: Vec<_> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    runs.retain(|run| !journals.join(format!("{run}.jsonl")).exists());
    runs.sort_unstable();
    let surplus = runs.len().saturating_sub(LOGS_KEPT);
    for run in runs.iter().take(surplus) {
        let _ = std::fs::remove_dir_all(logs.join(run));
    }
}

#[cfg(test)]
mod tests;
