//! A cluster of one node on which pods run: kubelet, containerd, runc, a bridge, DNS, a scheduler and LXCFS, and a
//! control plane with all controllers.
//!
//! - [`sandbox`]: the namespaces of the node, so that it changes nothing of this host
//! - `runtime.rs`, `kubelet.rs`, `scheduler.rs`, `dns.rs`, `lxcfs.rs`: its processes
//! - [`containers`], [`running_pod`], `workload.rs`: containers, pods and workloads for cases
//!
//! There is no kube-proxy. The `kubernetes` Service and DNS are addresses of the node, and the API server calls
//! webhooks at the addresses of pods. Any other `ClusterIP` is unreachable at once. There is no registry: images are
//! made from files of this host ([`crate::image`]), and pods name them with `imagePullPolicy: Never`.

pub mod containers;
mod dns;
mod kubelet;
mod lxcfs;
pub mod running_pod;
mod runtime;
pub mod sandbox;
mod scheduler;
mod temporary_namespace;
mod workload;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use serde_json::Value;

pub use containers::{idle, shell};
pub use running_pod::RunningPod;
pub use sandbox::Sandbox;
pub use temporary_namespace::TemporaryNamespace;

use crate::binaries::Binary;
use crate::console::print;
use crate::context::TestContext;
use crate::controlplane::{Cluster, Etcd, Options};
use crate::daemon::Daemon;
use crate::fixture::Fixture;
use crate::image::Image;
use crate::namespace::Namespace;
use crate::supervisor::{Output, Process, Supervisor, Tool};
use crate::wait::{Poll, eventually};
use running_pod::condition;
use runtime::Runtime;

/// The node's name.
pub const NAME: &str = "node-1";

/// The time after which a silent kubelet makes the node not Ready. The default of fifty seconds is for unreliable
/// networks.
pub const GRACE: Duration = Duration::from_secs(20);

/// The address of DNS.
const DNS: Ipv4Addr = Sandbox::SERVICES[1];

/// Debian's directory of CNI plugins.
const PLUGINS: &str = "/usr/lib/cni";

/// The node is Ready a second after its kubelet has started, on an idle machine.
const READY_WITHIN: Duration = Duration::from_secs(120);

/// The time of a command on the node.
const RUN_WITHIN: Duration = Duration::from_secs(120);

/// The binaries of the node.
const BINARIES: [Binary; 7] = [
    Binary::Etcd,
    Binary::ApiServer,
    Binary::ControllerManager,
    Binary::Scheduler,
    Binary::Kubelet,
    Binary::CoreDns,
    Binary::Kubectl,
];

/// The images that every pod needs. Others are imported when a case needs them.
const IMAGES: [Image; 2] = [Image::Pause, Image::Busybox];

/// The running cluster. Tests call [`TestContext::node`] and [`TestContext::exclusive_node`].
#[derive(Debug)]
pub struct Node {
    supervisor: Arc<Supervisor>,
    sandbox: Arc<Sandbox>,
    etcd: Etcd,
    cluster: Cluster,
    runtime: Runtime,
    lxcfs: Daemon,
    kubelet: Daemon,
    names: Daemon,
    scheduler: Process,
    images: Mutex<BTreeSet<&'static str>>,
}

/// Builds the node's binaries and images, and returns the images.
pub fn build(context: &TestContext) -> Result<Vec<PathBuf>> {
    let supervisor = context.supervisor()?;
    for binary in BINARIES {
        binary.path(&supervisor)?;
    }
    IMAGES.iter().map(|image| image.build(context)).collect()
}

impl Node {
    /// Starts it and returns when the node is Ready.
    pub(crate) fn start(context: &TestContext, options: &Options) -> Result<Self> {
        let supervisor = context.supervisor()?;
        // An unfit host fails before builds that take minutes.
        Sandbox::check(&supervisor)?;
        let archives = build(context)?;
        let began = Instant::now();
        let sandbox = Arc::new(Sandbox::start(&supervisor)?);
        // The container runtime needs no API server, which takes longest.
        let (etcd, cluster, runtime, lxcfs) = std::thread::scope(|scope| {
            let runtime = scope.spawn(|| {
                let runtime = Runtime::start(&supervisor, &sandbox)?;
                runtime.import_all(&archives)?;
                anyhow::Ok(runtime)
            });
            let lxcfs = scope.spawn(|| {
                let lxcfs = lxcfs::start(&supervisor, &sandbox)?;
                lxcfs.await_ready()?;
                anyhow::Ok(lxcfs)
            });
            let (etcd, cluster) = context.cluster_in(&sandbox, options)?;
            anyhow::Ok((etcd, cluster, outcome(runtime)?, outcome(lxcfs)?))
        })?;
        let kubelet = kubelet::start(&supervisor, &sandbox, &cluster)?;
        let scheduler = scheduler::start(&supervisor, &sandbox, &cluster)?;
        let names = dns::start(&supervisor, &sandbox, &cluster)?;
        let images = Mutex::new(IMAGES.map(Image::name).into());
        let node =
            Self { supervisor, sandbox, etcd, cluster, runtime, lxcfs, kubelet, names, scheduler, images };
        node.await_restored()?;
        node.names.await_ready()?;
        Namespace::of(&node.cluster, "default").await_account()?;
        print(format_args!("the node is Ready after {:.1} s", began.elapsed().as_secs_f32()));
        Ok(node)
    }

    /// Ends its processes and containers, after the last case that uses it.
    pub fn end(&self) {
        // Without the kubelet and containerd, no container starts again.
        let _ = self.kubelet.end();
        self.runtime.end();
        self.supervisor.remove_cgroup(self.sandbox.cgroup().trim_start_matches('/'));
        let _ = self.lxcfs.end();
        let _ = self.names.end();
        let _ = self.scheduler.end();
        self.cluster.end();
        self.etcd.end();
    }

    /// Returns its control plane.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Makes a namespace that ends with the case.
    pub fn namespace(&self, name: &str) -> Result<TemporaryNamespace<'_>> {
        self.cluster.namespace(name).map(TemporaryNamespace)
    }

    /// Does the same with labels.
    pub fn labelled_namespace(&self, name: &str, labels: &[(&str, &str)]) -> Result<TemporaryNamespace<'_>> {
        self.cluster.labelled_namespace(name, labels).map(TemporaryNamespace)
    }

    /// Returns the pod of this name, which need not exist.
    pub fn pod<'a>(&self, namespace: &Namespace<'a>, name: &str) -> RunningPod<'a> {
        RunningPod::new(namespace, name)
    }

    /// Imports this image unless the node has it, and returns its name.
    pub fn image(&self, context: &TestContext, image: Image) -> Result<&'static str> {
        // The lock makes others wait for the import.
        let mut images = self.images.lock().unwrap_or_else(PoisonError::into_inner);
        if !images.contains(image.name()) {
            self.runtime.import(&image.build(context)?)?;
            images.insert(image.name());
        }
        Ok(image.name())
    }

    /// Imports the images of a docker-archive.
    pub fn import(&self, archive: &Path) -> Result<()> {
        self.runtime.import(archive)
    }

    /// Runs a command on the node, with its network and files and this run's processes, and returns the output.
    pub fn run(&self, command: &[&str]) -> Result<Output> {
        let (program, arguments) = command.split_first().context("a command without a program")?;
        let tool = Tool::new("on-the-node", *program).arguments(arguments.iter().copied());
        self.supervisor.run(self.sandbox.inside(tool), RUN_WITHIN)
    }

    /// Returns the path by which this process accesses a file of the node.
    pub fn path(&self, on_the_node: &str) -> PathBuf {
        self.sandbox.path(on_the_node)
    }

    /// Returns its network namespace, which a thread can join to reach pods.
    pub fn network(&self) -> PathBuf {
        self.sandbox.network()
    }

    /// Returns its address for this host and for pods.
    pub fn address(&self) -> Ipv4Addr {
        self.sandbox.address()
    }

    /// Returns its LXCFS. If it is stopped, it unmounts; if it is killed, the mount remains without a server.
    pub fn lxcfs(&self) -> &Daemon {
        &self.lxcfs
    }

    /// Returns its kubelet. Without it, pods continue, and after [`GRACE`] the node is not Ready.
    pub fn kubelet(&self) -> &Daemon {
        &self.kubelet
    }

    /// Returns the Node object.
    pub fn object(&self) -> Result<Value> {
        Ok(self.cluster.api().get(&path())?.succeeded()?.body)
    }

    /// Waits until `is` accepts the Node. `what` is for the error.
    pub fn await_state(&self, what: &str, is: impl Fn(&Value) -> bool) -> Result<()> {
        let waited = eventually(format_args!("the node to be {what}"), READY_WITHIN, || {
            let answer = self.cluster.api().get(&path())?;
            Ok(if answer.is_success() && is(&answer.body) {
                Poll::Ready(())
            } else {
                Poll::Pending(answer.body["status"]["conditions"].to_string())
            })
        });
        waited.map_err(|error| self.kubelet.failure(format_args!("{error:#}")))
    }

    /// Returns its processes with their resident memory in MiB, the largest first.
    pub fn memory(&self) -> Vec<(&'static str, u64)> {
        let mut parts = vec![
            ("etcd", self.etcd.pid()),
            ("kube-apiserver", self.cluster.pid()),
            ("containerd", self.runtime.pid()),
            ("kubelet", self.kubelet.pid()),
            ("kube-scheduler", self.scheduler.pid()),
            ("CoreDNS", self.names.pid()),
            ("LXCFS", self.lxcfs.pid()),
        ];
        parts.extend(self.cluster.controllers_pid().map(|pid| ("kube-controller-manager", pid)));
        let mut sizes: Vec<_> = parts.into_iter().map(|(name, pid)| (name, resident_mib(pid))).collect();
        sizes.sort_by_key(|&(_, size)| std::cmp::Reverse(size));
        sizes
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.end();
    }
}

impl Fixture for Node {
    /// Waits until kubelet and LXCFS are ready, and the node is Ready without taints.
    fn await_restored(&self) -> Result<()> {
        self.kubelet.await_ready()?;
        self.lxcfs.await_ready()?;
        self.await_state("Ready and without taints", |node| {
            condition(node, "Ready") && node["spec"]["taints"].is_null()
        })
    }
}

/// A default control plane that notices a dead kubelet early and calls webhooks at pods.
pub(crate) fn options() -> Options {
    Options::named("node")
        .with_every_controller()
        .with_aggregator_routing()
        .bind(Ipv4Addr::UNSPECIFIED)
        .controller_flag(format!("--node-monitor-grace-period={}s", GRACE.as_secs()))
        .controller_flag("--node-monitor-period=1s")
}

fn path() -> String {
    format!("/api/v1/nodes/{NAME}")
}

/// Returns the resident memory of a process, or zero if it has ended.
fn resident_mib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or_default() / 1024
}

/// Returns the result of a thread.
fn outcome<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().map_err(|_| anyhow!("a thread that starts a part of the node panicked"))?
}
