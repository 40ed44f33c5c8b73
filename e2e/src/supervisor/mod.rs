//! Isolates a run of the tests and leaves the host as it was, however the run ends.
//!
//! The kernel ends the processes: a run has a pid namespace and a mount namespace of its own ([`isolate`]). If the first process
//! of the namespace ends, all others are killed, including containers and daemons that left their session. With them go all
//! mounts, network namespaces and links. The first process also watches a pipe to the program that the user started. If that
//! program ends or is killed, the first process kills the others, and removes the cgroups and the work directory. If both are
//! killed, the next run removes these ([`run`]).
//!
//! LXCFS needs the pids of the processes that read its files. It gets them because it runs in the same pid namespace as the
//! node's containers.

mod cgroup;
mod isolate;
mod network;
mod process;
pub mod run;
pub mod traces;

use std::fs::File;
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

pub(crate) use cgroup::lack as cgroup_lack;
pub use isolate::isolate;
pub(crate) use isolate::run_number;
pub use process::{Exit, Output, Process, Tool};

use crate::wait::{Poll, eventually};
use run::Run;

/// A process in namespaces of its own starts within this time on a loaded machine.
const AT_ONCE: Duration = Duration::from_secs(60);

/// Starts the processes of a run, and makes what they need on the host.
#[derive(Debug)]
pub struct Supervisor {
    run: Run,
    next: AtomicU64,
    /// The address of [`Self::address`], and the process that has the other end of its link.
    address: Mutex<Option<(Ipv4Addr, Process)>>,
}

impl Supervisor {
    /// Returns the supervisor of this run. Fails outside [`isolate`].
    pub fn open() -> Result<Arc<Self>> {
        Ok(Arc::new(Self { run: isolate::run()?, next: AtomicU64::new(1), address: Mutex::default() }))
    }

    /// Returns the run's name and its directories.
    pub fn details(&self) -> &Run {
        &self.run
    }

    /// Returns the directory that is removed at the end of the run.
    pub fn work(&self) -> &Path {
        &self.run.work
    }

    /// Returns the directory of logs, which is kept if the run does not pass.
    pub fn logs(&self) -> &Path {
        &self.run.logs
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

    /// Returns an address of the run's own, which the API server accepts in an `EndpointSlice`. It refuses 127.0.0.0/8, so the
    /// address is that of a link to an idle network namespace.
    pub fn address(&self) -> Result<Ipv4Addr> {
        let mut address = self.address.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((address, _)) = *address {
            return Ok(address);
        }
        let idle = self.idle(&["--net"])?;
        let (own, _) = addresses(self.link(idle.pid())?);
        *address = Some((own, idle));
        Ok(own)
    }

    /// Starts a process that has namespaces of its own and does nothing.
    pub(crate) fn idle(&self, namespaces: &[&str]) -> Result<Process> {
        let tool = Tool::new("idle", "unshare")
            .arguments(namespaces.iter().copied())
            .arguments(["sleep", "infinity"])
            .grace(Duration::ZERO);
        let process = self.start_process(tool)?;
        let name = format!("/proc/{}/comm", process.pid());
        eventually("namespaces of their own", AT_ONCE, || {
            if let Some(exit) = process.exit()? {
                bail!(process.failure(format_args!("ended with {exit}")));
            }
            // `unshare` becomes `sleep` when the namespaces exist.
            let name = std::fs::read_to_string(&name).unwrap_or_default();
            Ok(if name.trim() == "sleep" { Poll::Ready(()) } else { Poll::Pending(name) })
        })?;
        Ok(process)
    }

    /// Creates a cgroup of the run's own in every hierarchy and returns its name.
    pub fn cgroup(&self) -> Result<String> {
        let name = cgroup::name(&self.run.name, self.number());
        cgroup::create(&name)?;
        Ok(name)
    }

    /// Removes a cgroup that [`Self::cgroup`] created, with its processes and the groups below it.
    pub fn remove_cgroup(&self, name: &str) {
        cgroup::remove(name);
    }

    /// Connects the host to the network namespace of the process `into`. Returns the number of the link, for [`addresses`].
    ///
    /// The interface `eth0` of the namespace is still down and is meant for the second address.
    pub fn link(&self, into: i32) -> Result<u8> {
        network::link(into, &self.run.name)
    }

    /// Records whether the run passed. Its logs are kept if it did not.
    pub fn finish(&self, passed: bool) -> Result<()> {
        if passed { self.run.passed() } else { Ok(()) }
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
}

/// Returns the addresses of a link: that of the host, and that of the namespace.
pub fn addresses(link: u8) -> (Ipv4Addr, Ipv4Addr) {
    (Ipv4Addr::new(10, 98, link, 1), Ipv4Addr::new(10, 98, link, 2))
}

fn create(path: &Path) -> Result<File> {
    File::create(path).with_context(|| format!("cannot write {}", path.display()))
}
