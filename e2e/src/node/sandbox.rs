//! Where a node stands: a mount namespace and a network namespace of its own, joined to this host by one link, and
//! a cgroup.
//!
//! Whatever a node does to its host it does here: bridge, addresses, routes and the settings of the network end
//! with the network namespace, mounts with the mount namespace, and both with the last process in them, also
//! after a kill -9. All paths are the node's default ones, for what lies there is private: a folder of the
//! run for what must be kept on a disk, a tmpfs for `/run`, and files that stand in for the few settings of the
//! whole kernel that a kubelet writes at its start ([`mounts`]). What remains for the supervisor to give back is the
//! link and the cgroup.
//!
//! Not separated are process ids, for FUSE tells LXCFS who reads by the process id that it sees itself, and
//! cgroups, for a limit is looked up by the name that the host knows.
//!
//! What it leaves to others: no part of a node is started here.

mod mounts;
mod needs;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

pub(crate) use mounts::disk;

use crate::supervisor::{Process, Supervisor, Tool};
use crate::wait::{Poll, eventually};

/// Commands that take a hundredth of a second, on a machine that does much else.
const AT_ONCE: Duration = Duration::from_secs(60);

/// Numbers the sandboxes of this process.
static NUMBERS: AtomicU32 = AtomicU32::new(1);

/// The namespaces, the link and the cgroup of one node. They last as long as the run.
#[derive(Debug)]
pub struct Sandbox {
    holder: Process,
    folder: PathBuf,
    cgroup: String,
    subnet: u8,
}

impl Sandbox {
    /// The addresses that the node's network has on its loopback device: the service `kubernetes`, which needs no
    /// kube-proxy so, and the cluster's DNS.
    pub const SERVICES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 10)];

    /// Every other address of services is unreachable: it must not leave by another way.
    pub const SERVICE_RANGE: &str = "10.0.0.0/24";

    /// Whether this host has what a node takes. If not, the error names all that it lacks and says how to get it.
    pub fn check(supervisor: &Supervisor) -> Result<()> {
        needs::check(supervisor.work())
    }

    /// Makes it, on a host that has what it takes.
    pub fn start(supervisor: &Arc<Supervisor>) -> Result<Self> {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let folder = supervisor.work().join(format!("node-{number}"));
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Self::check(supervisor)?;
        let cgroup = format!("/{}", supervisor.cgroup()?);
        let holder = hold(supervisor)?;
        let subnet = supervisor.link(holder.pid())?;
        let sandbox = Self { holder, folder, cgroup, subnet };
        sandbox.lay_network(supervisor).context("cannot lay the node's network")?;
        sandbox.lay_mounts(supervisor).context("cannot lay the node's mounts")?;
        Ok(sandbox)
    }

    /// The node's address, for this host and for pods.
    pub fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 98, self.subnet, 2)
    }

    /// This host's address, as the node sees it.
    pub fn host_address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 98, self.subnet, 1)
    }

    /// The interface of this host that leads to the node.
    pub fn link(&self) -> String {
        format!("durward{}", self.subnet)
    }

    /// The tool in the node's network, with this host's files. Its process id is the tool's own.
    #[must_use]
    pub fn in_network(&self, tool: Tool) -> Tool {
        self.enter(tool, &["--net"])
    }

    /// The tool on the node: its network and its files. Its process id is the tool's own.
    #[must_use]
    pub fn inside(&self, tool: Tool) -> Tool {
        self.enter(tool, &["--net", "--mount"])
    }

    /// The node's cgroup as the kubelet's `--cgroup-root` wants it: a name with a slash before it, the same in every
    /// hierarchy.
    pub fn cgroup(&self) -> &str {
        &self.cgroup
    }

    /// A folder for sockets, state and configuration, of the same path for the node and for this host.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What lies at this absolute path on the node, for this host to read, write or connect to.
    pub fn path(&self, on_the_node: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{on_the_node}", self.holder.pid()))
    }

    /// The node's network namespace, for a thread of this process to join.
    pub fn network(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/net", self.holder.pid()))
    }

    /// `nsenter` without `--pid` forks nobody: it becomes what it starts, and signals reach that.
    fn enter(&self, tool: Tool, namespaces: &[&str]) -> Tool {
        tool.started_by("nsenter", |folder| {
            let mut arguments = vec![format!("--target={}", self.holder.pid())];
            arguments.extend(namespaces.iter().map(|&namespace| namespace.to_owned()));
            arguments.push("--".to_owned());
            // A mount namespace is entered at its root.
            arguments.extend(
                folder
                    .into_iter()
                    .flat_map(|folder| ["env".to_owned(), format!("--chdir={}", folder.display())]),
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
        let script = mounts::script(&self.folder)?;
        let shell = Tool::new("node-mounts", "sh").arguments(["-eu"]).input(script);
        supervisor.run(self.inside(shell), AT_ONCE)?.succeeded().map(drop)
    }
}

/// Starts the process that keeps the namespaces while nobody else is in them. What this host mounts and
/// unmounts later is seen there, and nothing that is mounted there is seen here.
fn hold(supervisor: &Arc<Supervisor>) -> Result<Process> {
    let tool = Tool::new("node-ground", "unshare")
        .arguments(["--mount", "--net", "--propagation=slave", "sleep", "infinity"])
        .grace(Duration::ZERO);
    let holder = supervisor.start_process(tool)?;
    let name = format!("/proc/{}/comm", holder.pid());
    eventually("namespaces of their own", AT_ONCE, || {
        if let Some(exit) = holder.exit()? {
            bail!(holder.failure(format_args!("ended with {exit}")));
        }
        // It becomes `sleep` when both are made.
        let name = std::fs::read_to_string(&name).unwrap_or_default();
        Ok(if name.trim() == "sleep" { Poll::Ready(()) } else { Poll::Pending(name) })
    })?;
    Ok(holder)
}
