//! The sandbox of a node: a mount namespace and a network namespace, a link to this host, and a cgroup.
//!
//! Everything that a node changes is inside. Bridge, addresses, routes and network settings end with the network namespace, and
//! mounts end with the mount namespace. All paths are the defaults, because the node has its own files there ([`mounts`]):
//! directories of the run's work directory, a tmpfs for `/run`, and files in place of kernel settings.
//!
//! Process ids are those of the run ([`crate::supervisor`]), because LXCFS identifies a reader by its pid. Cgroups are
//! the host's, because LXCFS looks up a limit by the host's name of the cgroup.

mod mounts;
mod needs;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};

pub(crate) use mounts::disk;

use crate::supervisor::{Process, Supervisor, Tool, addresses};

/// The time of a short command on a loaded machine.
const AT_ONCE: Duration = Duration::from_secs(60);

/// Numbers the sandboxes of this process.
static NUMBERS: AtomicU32 = AtomicU32::new(1);

/// The namespaces, the link and the cgroup of one node. They last as long as the run.
#[derive(Debug)]
pub struct Sandbox {
    holder: Process,
    directory: PathBuf,
    cgroup: String,
    subnet: u8,
}

impl Sandbox {
    /// The addresses of the `kubernetes` Service and of DNS, on the node's loopback device.
    pub const SERVICES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 10)];

    /// The other Service addresses, which are unreachable in the node's network.
    pub const SERVICE_RANGE: &str = "10.0.0.0/24";

    /// Checks that this host can have a node. The error lists everything that is missing, with the remedy.
    pub fn check(supervisor: &Supervisor) -> Result<()> {
        needs::check(supervisor.work())
    }

    /// Makes a sandbox.
    pub fn start(supervisor: &Arc<Supervisor>) -> Result<Self> {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let directory = supervisor.work().join(format!("node-{number}"));
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        Self::check(supervisor)?;
        let cgroup = format!("/{}", supervisor.cgroup()?);
        // Later mounts of the host appear in its namespace, and its mounts do not appear on the host.
        let holder = supervisor.idle(&["--mount", "--net", "--propagation=slave"])?;
        let subnet = supervisor.link(holder.pid())?;
        let sandbox = Self { holder, directory, cgroup, subnet };
        sandbox.lay_network(supervisor).context("cannot create the node's network")?;
        sandbox.lay_mounts(supervisor).context("cannot create the node's mounts")?;
        Ok(sandbox)
    }

    /// Returns the node's address for this host and for pods.
    pub fn address(&self) -> Ipv4Addr {
        addresses(self.subnet).1
    }

    /// Returns this host's address for the node.
    pub fn host_address(&self) -> Ipv4Addr {
        addresses(self.subnet).0
    }

    /// Returns the interface of this host that leads to the node.
    pub fn link(&self) -> String {
        format!("durward{}", self.subnet)
    }

    /// Returns the tool in the node's network with this host's files. The process id is the tool's own.
    #[must_use]
    pub fn in_network(&self, tool: Tool) -> Tool {
        self.enter(tool, &["--net"])
    }

    /// Returns the tool in the node's network with the node's files. The process id is the tool's own.
    #[must_use]
    pub fn inside(&self, tool: Tool) -> Tool {
        self.enter(tool, &["--net", "--mount"])
    }

    /// Returns the node's cgroup for the kubelet's `--cgroup-root`: a name after a slash, the same in every hierarchy.
    pub fn cgroup(&self) -> &str {
        &self.cgroup
    }

    /// Returns a directory with the same path on the node and on this host, for sockets, state and configuration.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the path by which this process accesses a file of the node.
    pub fn path(&self, on_the_node: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{on_the_node}", self.holder.pid()))
    }

    /// Returns the node's network namespace, which a thread can join.
    pub fn network(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/net", self.holder.pid()))
    }

    /// Without `--pid`, `nsenter` does not fork, so the tool gets its process id and signals.
    fn enter(&self, tool: Tool, namespaces: &[&str]) -> Tool {
        tool.started_by("nsenter", |directory| {
            let mut arguments = vec![format!("--target={}", self.holder.pid())];
            arguments.extend(namespaces.iter().map(|&namespace| namespace.to_owned()));
            arguments.push("--".to_owned());
            // `nsenter` enters a mount namespace at its root.
            arguments.extend(
                directory
                    .into_iter()
                    .flat_map(|directory| ["env".to_owned(), format!("--chdir={}", directory.display())]),
            );
            arguments
        })
    }

    fn lay_network(&self, supervisor: &Arc<Supervisor>) -> Result<()> {
        let services = Self::SERVICES.map(|address| format!("addr add {address}/32 dev lo"));
        let lines = [
            "link set lo up".to_owned(),
            services.join("\n"),
            format!("route add unreachable {}", Self::SERVICE_RANGE),
            format!("addr add {}/30 dev eth0", self.address()),
            "link set eth0 up".to_owned(),
        ];
        let ip = Tool::new("node-network", "ip").arguments(["-batch", "-"]).input(lines.join("\n") + "\n");
        supervisor.run(self.in_network(ip), AT_ONCE)?.succeeded().map(drop)
    }

    fn lay_mounts(&self, supervisor: &Arc<Supervisor>) -> Result<()> {
        let script = mounts::script(&self.directory)?;
        let shell = Tool::new("node-mounts", "sh").arguments(["-eu"]).input(script);
        supervisor.run(self.inside(shell), AT_ONCE)?.succeeded().map(drop)
    }
}
