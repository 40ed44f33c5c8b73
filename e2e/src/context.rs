//! What all tests of a run share: the supervisor, the parts, the clusters. Everything begins when the first test
//! asks for it.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::certificates;
use crate::console::print;
use crate::controlplane::{Cluster, Etcd, Location, Options};
use crate::fixture::{Exclusive, Lazy, Shared, SharedFixture};
use crate::fleet::Fleet;
use crate::node::{Node, Sandbox};
use crate::supervisor::{Supervisor, Tool};

/// A build of the product from nothing, on two cores that others use too.
const BUILD_WITHIN: Duration = Duration::from_secs(3_600);

/// The run. Tests get a reference to it.
#[derive(Debug)]
pub struct TestContext {
    program: PathBuf,
    runtime: Arc<Runtime>,
    supervisor: Lazy<Arc<Supervisor>>,
    etcd: Lazy<Arc<Etcd>>,
    durward: Lazy<PathBuf>,
    fleet: Lazy<SharedFixture<Fleet>>,
    node: Lazy<SharedFixture<Node>>,
    clusters: Mutex<HashMap<Options, Arc<Lazy<Arc<Cluster>>>>>,
    numbers: AtomicU32,
}

impl TestContext {
    /// Starts nothing yet. `supervisor` is the path of the `e2e-supervisor` binary, which only a test target knows
    /// (`env!("CARGO_BIN_EXE_e2e-supervisor")`).
    pub fn new(supervisor: &str) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        Ok(Self {
            program: supervisor.into(),
            runtime: Arc::new(runtime),
            supervisor: Lazy::default(),
            etcd: Lazy::default(),
            durward: Lazy::default(),
            fleet: Lazy::default(),
            node: Lazy::default(),
            clusters: Mutex::default(),
            numbers: AtomicU32::new(1),
        })
    }

    /// The supervisor of this run.
    pub fn supervisor(&self) -> Result<Arc<Supervisor>> {
        self.supervisor.get(|| Supervisor::start(&self.program)).cloned()
    }

    /// The cluster with these options: started now if no test has asked for it before, else the very same.
    pub fn cluster(&self, options: &Options) -> Result<Arc<Cluster>> {
        let once = {
            let mut clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(clusters.entry(options.clone()).or_default())
        };
        once.get(|| self.own_cluster(options).map(Arc::new)).cloned()
    }

    /// A cluster that nobody else gets. It ends when it is dropped.
    pub fn own_cluster(&self, options: &Options) -> Result<Cluster> {
        let supervisor = self.supervisor()?;
        let etcd = self.etcd()?;
        Cluster::start(&supervisor, &self.runtime, (Location::Host, &etcd), options, self.number())
            .with_context(|| format!("cluster {} does not start", options.name()))
    }

    /// The Karmada fleet of the run, beside other cases: for one that leaves it as it is, but for namespaces
    /// and the like that no other case has.
    pub fn fleet(&self) -> Result<Shared<'_, Fleet>> {
        self.shared_fleet()?.shared()
    }

    /// The same while no other case is in it: for one that does to the fleet what others could not bear.
    pub fn exclusive_fleet(&self) -> Result<Exclusive<'_, Fleet>> {
        self.shared_fleet()?.exclusive()
    }

    fn shared_fleet(&self) -> Result<&SharedFixture<Fleet>> {
        let start = || Ok(SharedFixture::new(Fleet::start(self)?));
        self.fleet.get(start).context("the fleet does not start")
    }

    /// The cluster of the run that has a real node, on which pods run, beside other cases.
    pub fn node(&self) -> Result<Shared<'_, Node>> {
        self.shared_node()?.shared()
    }

    /// The same while no other case is in it: for one that takes LXCFS away, or stops the kubelet.
    pub fn exclusive_node(&self) -> Result<Exclusive<'_, Node>> {
        self.shared_node()?.exclusive()
    }

    /// A node that nobody else gets, with a cluster of its own, for a room that does to it what no other could bear.
    /// It ends when it is dropped.
    pub fn own_node(&self) -> Result<Node> {
        Node::start(self).context("the node does not start")
    }

    fn shared_node(&self) -> Result<&SharedFixture<Node>> {
        let start = || Ok(SharedFixture::new(Node::start(self)?));
        self.node.get(start).context("the node does not start")
    }

    /// The control plane of a node, in the node's network, with an etcd of its own.
    pub(crate) fn cluster_in(&self, sandbox: &Arc<Sandbox>, options: &Options) -> Result<(Etcd, Cluster)> {
        let supervisor = self.supervisor()?;
        let place = Location::Node(Arc::clone(sandbox));
        let etcd = Etcd::start(&supervisor, &place)?;
        let cluster = Cluster::start(&supervisor, &self.runtime, (place, &etcd), options, self.number())?;
        Ok((etcd, cluster))
    }

    /// The etcd of the run.
    pub(crate) fn etcd(&self) -> Result<Arc<Etcd>> {
        let supervisor = self.supervisor()?;
        self.etcd.get(|| Etcd::start(&supervisor, &Location::Host).map(Arc::new)).cloned()
    }

    /// An address of this host that the API server accepts in an `EndpointSlice`. Given back by the supervisor.
    pub fn address(&self) -> Result<Ipv4Addr> {
        self.supervisor()?.address()
    }

    /// An empty folder of its own for a test, gone with the run.
    pub fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.supervisor()?.work().join(format!("{name}-{}", self.number()));
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(folder)
    }

    /// A client of any API server, in the name that the kubeconfig says.
    pub fn api(&self, kubeconfig: &Value) -> Result<crate::api::Api> {
        crate::api::Api::new(&self.runtime, kubeconfig)
    }

    /// The product's binary: `DURWARD_BIN` if that is set, else built once by cargo as this checkout has it.
    pub fn durward_program(&self) -> Result<PathBuf> {
        let program = self.durward.get(|| match std::env::var_os("DURWARD_BIN") {
            Some(program) => Ok(std::path::absolute(program)?),
            None => build_durward(&self.supervisor()?),
        })?;
        Ok(program.clone())
    }

    /// Where the logs are; none if no test has needed a part yet.
    pub fn logs(&self) -> Option<PathBuf> {
        Some(self.supervisor.created()?.logs().to_owned())
    }

    /// Ends the run, and everything that it started. Logs are kept if it did not pass.
    pub fn finish(&self, passed: bool) -> Result<()> {
        self.supervisor.created().map_or(Ok(()), |supervisor| supervisor.finish(passed))
    }

    fn number(&self) -> u32 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }
}

/// Builds the product in the workspace's own target folder and returns what cargo says it built.
fn build_durward(supervisor: &Arc<Supervisor>) -> Result<PathBuf> {
    print("building durward");
    let cargo = std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("e2e has no parent folder")?;
    let tool = Tool::new("cargo-build-durward", cargo).folder(workspace).arguments([
        "build",
        "-p",
        "durward",
        "--bin",
        "durward",
        "--message-format=json-render-diagnostics",
    ]);
    let output = supervisor.run(tool, BUILD_WITHIN)?;
    // Standard output is for us; what a person wants to know of a failure is all on standard error.
    ensure!(
        output.is_success(),
        "cannot build durward: cargo ended with {}:
{}",
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

/// Writes a file into a folder and returns its path: configuration files of a case, mostly.
pub fn write(folder: &Path, name: &str, content: &str) -> Result<PathBuf> {
    certificates::write(folder, name, content)
}
