//! The environment that all tests of a run share: supervisor, binaries, clusters. Each part starts when the first test
//! needs it.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::audit::AuditLog;
use crate::certificates;
use crate::console::print;
use crate::controlplane::{Cluster, Etcd, Location, Options};
use crate::fixture::{Exclusive, Lazy, Shared, SharedFixture};
use crate::fleet::Fleet;
use crate::lanes::{self, StageId};
use crate::node::{self, Node, Sandbox};
use crate::supervisor::{Supervisor, Tool};

/// A build of the product without a build cache, on two busy cores.
const BUILD_WITHIN: Duration = Duration::from_secs(3_600);

/// Ends an environment.
struct End(Box<dyn FnOnce(&TestContext) + Send>);

impl std::fmt::Debug for End {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("End")
    }
}

/// The context of a run.
#[derive(Debug)]
pub struct TestContext {
    runtime: Arc<Runtime>,
    supervisor: Lazy<Arc<Supervisor>>,
    etcd: Lazy<Arc<Etcd>>,
    durward: Lazy<PathBuf>,
    fleet: Lazy<SharedFixture<Fleet>>,
    node: Lazy<SharedFixture<Node>>,
    clusters: Mutex<HashMap<Options, Arc<Lazy<Arc<Cluster>>>>>,
    stages: Mutex<HashMap<String, Option<StageId>>>,
    ends: Mutex<Vec<(StageId, End)>>,
    numbers: AtomicU32,
}

impl TestContext {
    /// Makes the context and starts nothing.
    pub fn new() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        Ok(Self {
            runtime: Arc::new(runtime),
            supervisor: Lazy::default(),
            etcd: Lazy::default(),
            durward: Lazy::default(),
            fleet: Lazy::default(),
            node: Lazy::default(),
            clusters: Mutex::default(),
            stages: Mutex::default(),
            ends: Mutex::default(),
            numbers: AtomicU32::new(1),
        })
    }

    /// Returns the supervisor of this run.
    pub fn supervisor(&self) -> Result<Arc<Supervisor>> {
        self.supervisor.get(Supervisor::open).cloned()
    }

    /// Returns the cluster with these options. Starts it if no case has asked for it before. It ends with the stage.
    pub fn cluster(&self, options: &Options) -> Result<Arc<Cluster>> {
        self.check_stage(options.name())?;
        let once = {
            let mut clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(clusters.entry(options.clone()).or_default())
        };
        let start = || {
            let cluster = Arc::new(self.own_cluster(options)?);
            let ended = Arc::clone(&cluster);
            self.at_stage_end(move |_| ended.end());
            Ok(cluster)
        };
        once.get(start).cloned()
    }

    /// Fails if cases of another stage use this shared environment, because it ends with its stage.
    fn check_stage(&self, environment: &str) -> Result<()> {
        let mut stages = self.stages.lock().unwrap_or_else(PoisonError::into_inner);
        let stage = *stages.entry(environment.to_owned()).or_insert_with(lanes::current);
        ensure!(
            stage == lanes::current(),
            "cases of two stages use {environment}, which ends with the first: change e2e/src/lanes.rs, or give it another name"
        );
        Ok(())
    }

    /// Calls `end` after the last case of the stage of the calling case, and at the latest when the run ends. Environments that live
    /// as long as the process would use a processor while no case needs them.
    pub fn at_stage_end(&self, end: impl FnOnce(&Self) + Send + 'static) {
        if let Some(stage) = lanes::current() {
            self.ends().push((stage, End(Box::new(end))));
        }
    }

    /// Ends the environments of a stage, the last one first.
    pub fn end_stage(&self, stage: StageId) {
        let mut ends = self.ends();
        let (ended, kept) = std::mem::take(&mut *ends).into_iter().partition(|(of, _)| *of == stage);
        *ends = kept;
        drop(ends);
        let ended: Vec<(StageId, End)> = ended;
        for (_, End(end)) in ended.into_iter().rev() {
            end(self);
        }
    }

    fn ends(&self) -> MutexGuard<'_, Vec<(StageId, End)>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a cluster for one case. It ends when it is dropped.
    pub fn own_cluster(&self, options: &Options) -> Result<Cluster> {
        let supervisor = self.supervisor()?;
        let etcd = self.etcd()?;
        Cluster::start(&supervisor, &self.runtime, (Location::Host, &etcd), options, self.number())
            .with_context(|| format!("cluster {} does not start", options.name()))
    }

    /// Returns the Karmada fleet, shared with other cases. A case changes only namespaces and other objects of its own.
    pub fn fleet(&self) -> Result<Shared<'_, Fleet>> {
        self.shared_fleet()?.shared()
    }

    /// Returns the fleet without other cases, for a case that disturbs them.
    pub fn exclusive_fleet(&self) -> Result<Exclusive<'_, Fleet>> {
        self.shared_fleet()?.exclusive()
    }

    /// Starts a fleet for one case. Its API server listens on all addresses of this host, so pods of a node can reach it.
    pub fn own_fleet(&self) -> Result<Fleet> {
        Fleet::start(self, Ipv4Addr::UNSPECIFIED).context("the fleet does not start")
    }

    fn shared_fleet(&self) -> Result<&SharedFixture<Fleet>> {
        self.check_stage("the fleet")?;
        let start = || {
            let fleet = SharedFixture::new(Fleet::start(self, Ipv4Addr::LOCALHOST)?);
            self.at_stage_end(|context| {
                if let Some(fleet) = context.fleet.created() {
                    fleet.fixture().end();
                }
            });
            Ok(fleet)
        };
        self.fleet.get(start).context("the fleet does not start")
    }

    /// Returns the cluster with a real node, shared with other cases.
    pub fn node(&self) -> Result<Shared<'_, Node>> {
        self.shared_node()?.shared()
    }

    /// Returns the node without other cases, for a case that stops LXCFS or the kubelet.
    pub fn exclusive_node(&self) -> Result<Exclusive<'_, Node>> {
        self.shared_node()?.exclusive()
    }

    /// Starts a node with a cluster of its own. It ends when it is dropped.
    pub fn own_node(&self) -> Result<Node> {
        self.own_node_with(&node::options())
    }

    /// Makes a node live until the end of the stage.
    pub fn keep(&self, node: Node) -> &'static Node {
        let node: &'static Node = Box::leak(Box::new(node));
        self.at_stage_end(|_| node.end());
        node
    }

    /// Starts a node whose API server logs the requests of Durward's service account.
    pub fn own_audited_node(&self) -> Result<(Node, AuditLog)> {
        let audit = AuditLog::new(self)?;
        Ok((self.own_node_with(&audit.options(node::options()))?, audit))
    }

    fn own_node_with(&self, options: &Options) -> Result<Node> {
        Node::start(self, options).context("the node does not start")
    }

    fn shared_node(&self) -> Result<&SharedFixture<Node>> {
        self.check_stage("the node")?;
        let start = || {
            let node = SharedFixture::new(Node::start(self, &node::options())?);
            self.at_stage_end(|context| {
                if let Some(node) = context.node.created() {
                    node.fixture().end();
                }
            });
            Ok(node)
        };
        self.node.get(start).context("the node does not start")
    }

    /// Starts the control plane of a node in the node's network, with an etcd of its own.
    pub(crate) fn cluster_in(&self, sandbox: &Arc<Sandbox>, options: &Options) -> Result<(Etcd, Cluster)> {
        let supervisor = self.supervisor()?;
        let place = Location::Node(Arc::clone(sandbox));
        let etcd = Etcd::start(&supervisor, &place)?;
        let cluster = Cluster::start(&supervisor, &self.runtime, (place, &etcd), options, self.number())?;
        Ok((etcd, cluster))
    }

    /// Returns the etcd of the run.
    pub(crate) fn etcd(&self) -> Result<Arc<Etcd>> {
        let supervisor = self.supervisor()?;
        self.etcd.get(|| Etcd::start(&supervisor, &Location::Host).map(Arc::new)).cloned()
    }

    /// Returns an address of this host that the API server accepts in an `EndpointSlice`.
    pub fn address(&self) -> Result<Ipv4Addr> {
        self.supervisor()?.address()
    }

    /// Makes an empty directory for a test, which is removed with the run.
    pub fn directory(&self, name: &str) -> Result<PathBuf> {
        let directory = self.supervisor()?.work().join(format!("{name}-{}", self.number()));
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        Ok(directory)
    }

    /// Makes a client of any API server from a kubeconfig.
    pub fn api(&self, kubeconfig: &Value) -> Result<crate::api::Api> {
        crate::api::Api::new(&self.runtime, kubeconfig)
    }

    /// Returns the product's binary: `DURWARD_BIN` if it is set, else built once by cargo.
    pub fn durward_program(&self) -> Result<PathBuf> {
        let program = self.durward.get(|| match std::env::var_os("DURWARD_BIN") {
            Some(program) => Ok(std::path::absolute(program)?),
            None => build_durward(&self.supervisor()?),
        })?;
        Ok(program.clone())
    }

    /// Returns the path of `durward-node`: `DURWARD_NODE_BIN` if it is set, else the file next to `durward`.
    pub fn durward_node_program(&self) -> Result<PathBuf> {
        match std::env::var_os("DURWARD_NODE_BIN") {
            Some(program) => Ok(std::path::absolute(program)?),
            None => Ok(self.durward_program()?.with_file_name("durward-node")),
        }
    }

    /// Returns the directory of the logs, or none if no test has started a process yet.
    pub fn logs(&self) -> Option<PathBuf> {
        Some(self.supervisor.created()?.logs().to_owned())
    }

    /// Records whether the run passed. Its logs are kept if it did not.
    pub fn finish(&self, passed: bool) -> Result<()> {
        self.supervisor.created().map_or(Ok(()), |supervisor| supervisor.finish(passed))
    }

    fn number(&self) -> u32 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }
}

/// Builds the product in the workspace's target directory and returns the path that cargo prints.
fn build_durward(supervisor: &Arc<Supervisor>) -> Result<PathBuf> {
    print("building durward");
    let cargo = std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("e2e has no parent directory")?;
    let arguments = "build -p durward --bin durward --message-format=json-render-diagnostics";
    let tool = Tool::new("cargo-build-durward", cargo).directory(workspace).arguments(arguments.split(' '));
    let output = supervisor.run(tool, BUILD_WITHIN)?;
    // Standard output is JSON for us; messages for people are on standard error.
    ensure!(
        output.is_success(),
        "cannot build durward: cargo ended with {}:\n{}",
        output.exit,
        output.stderr
    );
    output
        .stdout
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == "durward")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .context("cargo built durward and names no executable")
}

/// Writes a file into a directory and returns its path.
pub fn write(directory: &Path, name: &str, content: &str) -> Result<PathBuf> {
    certificates::write(directory, name, content)
}
