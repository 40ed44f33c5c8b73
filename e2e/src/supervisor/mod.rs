//! Isolates a run of the tests and leaves the host as it was, however the run ends.
//!
//! The kernel ends the processes: a run has a pid namespace and a mount namespace of its own ([`isolate`]). If the
//! first process of the namespace ends, all others are killed, including containers and daemons that left their
//! session. The first process also watches a pipe to the program that the user started. If that program ends or is
//! killed, the first process kills the others, returns the leases and removes the work directory.
//!
//! Leases are what namespaces do not contain: an address of the loopback device, a network link to a node, and
//! cgroups. Each is in the [`journal`] before it is taken. If the first process itself is killed, the next run reads
//! the journal and returns the leases.
//!
//! LXCFS needs the pids of the processes that read its files. It gets them because it runs in the same pid
//! namespace as the node's containers.
//!
//! - [`Supervisor`], [`Process`]: start processes and lease things of the host, for the tests
//! - `cgroup`, `network`: take leases and return them
//! - [`host_state`]: compares the host before and after a run

mod cgroup;
pub mod host_state;
pub mod identity;
mod isolate;
pub mod journal;
mod network;
mod process;

use std::fs::File;
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

pub(crate) use cgroup::lack as cgroup_lack;
pub use isolate::isolate;
pub(crate) use isolate::run_number;
pub use process::{Exit, Output, Process, Tool, cpu_time, cpu_time_by_program};

use journal::{Entry, Head, Journal, Lease};

/// Starts the processes of a run and leases things of the host for it.
#[derive(Debug)]
pub struct Supervisor {
    head: Head,
    journal: Mutex<Journal>,
    next: AtomicU64,
}

impl Supervisor {
    /// Returns the supervisor of this run. Fails outside [`isolate`].
    pub fn open() -> Result<Arc<Self>> {
        let journal = Journal::open(&isolate::journal()?)?;
        Ok(Arc::new(Self {
            head: journal.head.clone(),
            journal: Mutex::new(journal),
            next: AtomicU64::new(1),
        }))
    }

    /// Returns the directory that is removed at the end of the run.
    pub fn work(&self) -> &Path {
        &self.head.work
    }

    /// Returns the directory of logs, which is kept if the run does not pass.
    pub fn logs(&self) -> &Path {
        &self.head.logs
    }

    /// Returns the first lines of the journal: the run's name and its processes as the user's program sees them.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Starts a process that runs until it is ended. Its output is written to a log of its name, with a number if the name is
    /// taken.
    pub fn start_process(&self, tool: Tool) -> Result<Process> {
        let log = self.log(&tool.name)?;
        let stdout = create(&log)?;
        let stderr = stdout.try_clone()?;
        Process::start(tool, Stdio::null(), stdout, stderr, log)
    }

    /// Runs a tool to its end and returns its output, whatever its exit code.
    pub fn run(&self, tool: Tool, within: Duration) -> Result<Output> {
        let stdout = self.work().join(format!("{}-{}.out", tool.name, self.number()));
        let stderr = stdout.with_extension("err");
        let input = stdout.with_extension("in");
        let stdin = match &tool.input {
            Some(text) => {
                std::fs::write(&input, text).with_context(|| format!("cannot write {}", input.display()))?;
                Stdio::from(File::open(&input)?)
            }
            None => Stdio::null(),
        };
        let process = Process::start(tool, stdin, create(&stdout)?, create(&stderr)?, stderr.clone())?;
        let Some(exit) = process.wait(within)? else {
            process.end()?;
            bail!(process.failure(format_args!("did not end within {within:?}")));
        };
        let output = Output { exit, stdout: process::read(&stdout), stderr: process::read(&stderr) };
        for path in [&stdout, &stderr, &input] {
            let _ = std::fs::remove_file(path);
        }
        Ok(output)
    }

    /// Adds an address of the run's own to the loopback device. The API server refuses 127.0.0.0/8 in an
    /// `EndpointSlice`, so a webhook behind a Service needs it.
    pub fn address(&self) -> Result<Ipv4Addr> {
        let lease =
            self.first_free(|number| Lease::Address(network::address(number)), network::add_address)?;
        let Lease::Address(address) = lease else { bail!("the lease of an address is {lease:?}") };
        Ok(address)
    }

    /// Creates a cgroup of the run's own in every hierarchy and returns its name.
    pub fn cgroup(&self) -> Result<String> {
        let name = cgroup::name(&self.head.run, self.number());
        self.lease(Lease::Cgroup(name.clone()), |_| cgroup::create(&name))?;
        Ok(name)
    }

    /// Kills all processes of a cgroup that [`Self::cgroup`] created, and of the groups below it.
    pub fn kill_all_in(&self, cgroup: &str) {
        cgroup::kill(cgroup);
    }

    /// Connects the host to the network namespace of the process `into`.
    ///
    /// Returns the x of the network 10.98.x.0/30 between them. The host has its first address. The interface `eth0` of
    /// the namespace is still down and is meant for the second.
    pub fn link(&self, into: i32) -> Result<u8> {
        let take = |lease: &Lease| network::add_link(lease, into, &self.head.run);
        let lease = self.first_free(Lease::Link, take)?;
        let Lease::Link(subnet) = lease else { bail!("the lease of a link is {lease:?}") };
        Ok(subnet)
    }

    /// Records whether the run passed. Its logs are kept if it did not.
    pub fn finish(&self, passed: bool) -> Result<()> {
        if passed { self.journal().write(&Entry::Passed) } else { Ok(()) }
    }

    /// Leases the first of 254 candidates that no run has. Runs with the same cache exclude each other by a lock; of two
    /// runs with different caches, the kernel refuses one.
    fn first_free(
        &self,
        candidate: impl Fn(u8) -> Lease,
        take: impl Fn(&Lease) -> Result<()>,
    ) -> Result<Lease> {
        // The guard must end before the wait for the lock: the thread that has the lock writes to the journal.
        let directory = self.journal().directory().to_owned();
        let _lock = journal::lock(&directory)?;
        let [spread, ..] = run_number().to_le_bytes();
        for attempt in 0..254_u8 {
            let lease = candidate(1 + spread.wrapping_add(attempt) % 254);
            if network::is_present(&lease) {
                continue;
            }
            match self.lease(lease.clone(), &take) {
                Err(_) if network::is_present(&lease) => {}
                result => return result.map(|()| lease),
            }
        }
        bail!("all of 10.98.1.0 to 10.98.254.0, or 10.99.1.1 to 10.99.254.1, are in use on this host")
    }

    /// Records the lease before it is taken, and again if it could not be taken.
    fn lease(&self, lease: Lease, take: impl Fn(&Lease) -> Result<()>) -> Result<()> {
        self.journal().write(&Entry::Leased(lease.clone()))?;
        let taken = take(&lease);
        if taken.is_err() {
            self.journal().write(&Entry::Returned(lease))?;
        }
        taken
    }

    fn log(&self, name: &str) -> Result<PathBuf> {
        let plain = self.logs().join(format!("{name}.log"));
        match File::create_new(&plain) {
            Ok(_) => Ok(plain),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Ok(self.logs().join(format!("{name}-{}.log", self.number())))
            }
            Err(error) => Err(error).with_context(|| format!("cannot write {}", plain.display())),
        }
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn create(path: &Path) -> Result<File> {
    File::create(path).with_context(|| format!("cannot write {}", path.display()))
}
