//! A cluster of one node on which pods run: kubelet, containerd and runc, a bridge, DNS, a scheduler and LXCFS
//! beside a control plane with all of its controllers.
//!
//! - [`sandbox`]: the namespaces in which all of it stands, so that nothing of it reaches this host
//! - `runtime.rs`, `kubelet.rs`, `scheduler.rs`, `names.rs`: the parts, and what had to be found out about each
//! - [`Lxcfs`]: as it is when an administrator installs it; a case that ships it as a `DaemonSet` stops it first
//! - [`containers`], [`resident`], `workload.rs`: containers that can run here, and what is seen of a pod that does,
//!   or of what makes pods
//!
//! There is no kube-proxy. The `kubernetes` Service and DNS are addresses of the node itself, the API server calls
//! webhooks at the addresses of pods, and any other `ClusterIP` is unreachable at once: pods meet each other by
//! their own addresses or by a headless Service. There is no registry either: images are made from files of this
//! host ([`crate::image`]) and pods name them with `imagePullPolicy: Never`.
//!
//! It knows nothing of Durward.

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

pub use containers::{idle, of_image, shell};
pub use kubelet::Kubelet;
pub use lxcfs::Lxcfs;
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
use crate::supervisor::{Output, Process, Supervisor, Tool, host_state};
use crate::wait::{Poll, eventually};
use running_pod::condition;
use runtime::Runtime;

/// The node's name.
pub const NAME: &str = "node-1";

/// How long the kubelet may say nothing before the node counts as not Ready. Upstream's fifty seconds are for
/// networks that fail; the kubelet here speaks up every two and a half.
pub const GRACE: Duration = Duration::from_secs(20);

/// Where pods ask for names.
const DNS: Ipv4Addr = Sandbox::SERVICES[1];

/// Where Debian has the programs that join pods to a network.
const PLUGINS: &str = "/usr/lib/cni";

/// The node is Ready a second after its kubelet has started, on an idle machine.
const READY_WITHIN: Duration = Duration::from_secs(120);

/// What a case does on the node takes no longer.
const RUN_WITHIN: Duration = Duration::from_secs(120);

/// What every part of it is built from.
const BINARIES: [Binary; 7] = [
    Binary::Etcd,
    Binary::ApiServer,
    Binary::ControllerManager,
    Binary::Scheduler,
    Binary::Kubelet,
    Binary::CoreDns,
    Binary::Kubectl,
];

/// Without these no pod of a case runs; all others are imported for whoever asks first.
const IMAGES: [Image; 2] = [Image::Pause, Image::Busybox];

/// The running cluster. Tests get theirs from [`TestContext::node`] and [`TestContext::exclusive_node`].
#[derive(Debug)]
pub struct Node {
    supervisor: Arc<Supervisor>,
    sandbox: Arc<Sandbox>,
    etcd: Etcd,
    cluster: Cluster,
    runtime: Runtime,
    lxcfs: Lxcfs,
    kubelet: Kubelet,
    names: Daemon,
    scheduler: Process,
    images: Mutex<BTreeSet<&'static str>>,
}

/// Builds what a node is made of, unless it is there, and returns its images.
pub fn build(context: &TestContext) -> Result<Vec<PathBuf>> {
    let supervisor = context.supervisor()?;
    for binary in BINARIES {
        binary.path(&supervisor)?;
    }
    IMAGES.iter().map(|image| image.build(context)).collect()
}

impl Node {
    /// Starts it and returns when the node is Ready.
    pub(crate) fn start(context: &TestContext) -> Result<Self> {
        let supervisor = context.supervisor()?;
        // Before minutes are spent on building.
        Sandbox::check(&supervisor)?;
        let archives = build(context)?;
        let mut clock = Clock::start();
        let sandbox = Arc::new(Sandbox::start(&supervisor)?);
        clock.tick("ground");
        // What runs containers needs no API server, which takes longer than all of this.
        let (etcd, cluster, runtime, lxcfs) = std::thread::scope(|scope| {
            let runtime = scope.spawn(|| {
                let runtime = Runtime::start(&supervisor, &sandbox)?;
                runtime.import_all(&archives)?;
                anyhow::Ok(runtime)
            });
            let lxcfs = scope.spawn(|| {
                let lxcfs = Lxcfs::start(&supervisor, &sandbox)?;
                lxcfs.await_ready()?;
                anyhow::Ok(lxcfs)
            });
            let (etcd, cluster) = context.cluster_in(&sandbox, &options())?;
            anyhow::Ok((etcd, cluster, outcome(runtime)?, outcome(lxcfs)?))
        })?;
        clock.tick("API server, containerd, images, LXCFS");
        let kubelet = Kubelet::start(&supervisor, &sandbox, &cluster)?;
        let scheduler = scheduler::start(&supervisor, &sandbox, &cluster)?;
        let names = dns::start(&supervisor, &sandbox, &cluster)?;
        let images = Mutex::new(IMAGES.map(Image::name).into());
        let node =
            Self { supervisor, sandbox, etcd, cluster, runtime, lxcfs, kubelet, names, scheduler, images };
        node.await_restored()?;
        node.names.await_ready()?;
        Namespace::of(&node.cluster, "default").await_account()?;
        clock.tick("kubelet, scheduler, controllers, DNS");
        clock.tell();
        Ok(node)
    }

    /// Its control plane, for all that any cluster is good for.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// A namespace that no other test has, and that ends with the case.
    pub fn namespace(&self, name: &str) -> Result<TemporaryNamespace<'_>> {
        self.cluster.namespace(name).map(TemporaryNamespace)
    }

    /// The same, created with labels.
    pub fn labelled_namespace(&self, name: &str, labels: &[(&str, &str)]) -> Result<TemporaryNamespace<'_>> {
        self.cluster.labelled_namespace(name, labels).map(TemporaryNamespace)
    }

    /// The pod of this name, whoever made it or will.
    pub fn pod<'a>(&self, namespace: &Namespace<'a>, name: &str) -> RunningPod<'a> {
        RunningPod::new(namespace, name)
    }

    /// Makes sure that the node has this image, and returns the name by which pods ask for it.
    pub fn image(&self, context: &TestContext, image: Image) -> Result<&'static str> {
        // Whoever comes second waits until the first has imported it.
        let mut images = self.images.lock().unwrap_or_else(PoisonError::into_inner);
        if !images.contains(image.name()) {
            self.runtime.import(&image.build(context)?)?;
            images.insert(image.name());
        }
        Ok(image.name())
    }

    /// Gives the node the images of a docker-archive, under the names that they have there.
    pub fn import(&self, archive: &Path) -> Result<()> {
        self.runtime.import(archive)
    }

    /// What a command says that is run on the node: in its network, with its files, with this host's processes.
    pub fn run(&self, command: &[&str]) -> Result<Output> {
        let (program, arguments) = command.split_first().context("a command without a program")?;
        let tool = Tool::new("on-the-node", *program).arguments(arguments.iter().copied());
        self.supervisor.run(self.sandbox.inside(tool), RUN_WITHIN)
    }

    /// What lies at this absolute path on the node, for this process to read and write.
    pub fn path(&self, on_the_node: &str) -> PathBuf {
        self.sandbox.path(on_the_node)
    }

    /// Its network namespace, from which pods can be reached, for a thread of this process to join.
    pub fn network(&self) -> PathBuf {
        self.sandbox.network()
    }

    /// Its address, for this host and for pods.
    pub fn address(&self) -> Ipv4Addr {
        self.sandbox.address()
    }

    /// The names of what this host shows of it: an interface, a cgroup and a folder, which is also told of each of
    /// its processes, and would be of a mount that came through to this host.
    pub fn names_on_this_host(&self) -> Vec<String> {
        let cgroup = self.sandbox.cgroup().trim_start_matches('/').to_owned();
        vec![self.sandbox.link(), cgroup, host_state::work_folder(self.supervisor.work())]
    }

    /// Its LXCFS.
    pub fn lxcfs(&self) -> &Lxcfs {
        &self.lxcfs
    }

    /// Its kubelet.
    pub fn kubelet(&self) -> &Kubelet {
        &self.kubelet
    }

    /// The Node as the API server has it now.
    pub fn object(&self) -> Result<Value> {
        Ok(self.cluster.api().get(&path())?.succeeded()?.body)
    }

    /// Waits until the Node is what `is` recognises, which `what` names for the error.
    pub fn becomes(&self, what: &str, is: impl Fn(&Value) -> bool) -> Result<()> {
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

    /// What takes memory: every part with its resident set in MiB, the largest first.
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

impl Fixture for Node {
    /// Waits until kubelet and LXCFS are well, and the node is Ready and takes pods.
    fn await_restored(&self) -> Result<()> {
        self.kubelet.await_ready()?;
        self.lxcfs.await_ready()?;
        self.becomes("Ready and without taints", |node| {
            condition(node, "Ready") && node["spec"]["taints"].is_null()
        })
    }
}

/// A stock control plane, but that a dead kubelet is found early and webhooks are called at the pods themselves.
fn options() -> Options {
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

/// The resident set of a process; zero if there is none.
fn resident_mib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or_default() / 1024
}

/// What came of a thread.
fn outcome<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().map_err(|_| anyhow!("a thread that starts a part of the node panicked"))?
}

/// How long each step took.
struct Clock {
    began: Instant,
    last: Instant,
    steps: Vec<String>,
}

impl Clock {
    fn start() -> Self {
        let now = Instant::now();
        Self { began: now, last: now, steps: Vec::new() }
    }

    fn tick(&mut self, step: &str) {
        self.steps.push(format!("{step} {:.1} s", self.last.elapsed().as_secs_f32()));
        self.last = Instant::now();
    }

    fn tell(self) {
        let all = self.began.elapsed().as_secs_f32();
        print(format_args!("the node is Ready after {all:.1} s ({})", self.steps.join("; ")));
    }
}
