//! The cluster of `make cluster`: it works, and nothing of a node is left on the host, however it ends.
//!
//! The node of the run exists at the same time. They are isolated from each other.

use std::path::PathBuf;

use e2e::binaries::{Binary, cache};
use e2e::node;
use e2e::prelude::*;
use e2e::supervisor::Tool;
use e2e::supervisor::host_state::HostState;
use e2e::supervisor::identity::Identity;
use rustix::process::Signal;

/// A new cluster takes six seconds on an idle machine.
const UP_WITHIN: Duration = Duration::from_secs(300);

/// The grace period of the processes, plus time for a loaded machine.
const CLEAN_WITHIN: Duration = Duration::from_secs(60);

#[e2e::case]
fn a_local_cluster_runs_until_it_is_stopped(context: &TestContext) -> Result<()> {
    let before = HostState::now()?;
    let node = context.node()?;
    let shop = node.namespace("shop")?;
    shop.pod("web").container_like("app", node::idle(json!({}))).is_admitted()?;

    let cluster = LocalCluster::up(context)?;
    let message = cluster.message.clone();
    ensure!(message.contains(&format!("export KUBECONFIG={}", cluster.kubeconfig().display())), "{message}");
    cluster.runs_a_pod()?;
    ensure!(cluster.lxcfs_state()? == "serves\n" && message.contains("make cluster LXCFS=no"), "{message}");
    let again = cluster.run("up")?.succeeded()?.stdout;
    ensure!(again == message, "it is another cluster: {again}");
    cluster.shows_nothing_but_its_names(&before)?;

    // Each pod has the first address of the same network, and neither sees the other.
    let web = node.pod(&shop, "web").is_ready()?;
    ensure!(web.exec("app", &["cat", "/etc/hostname"])? == "web\n", "it is another pod");
    let nodes = cluster.kubectl(&["get", "pods", "-A", "-o", "name"])?;
    ensure!(!nodes.contains("web"), "the local cluster has a pod of the run's node: {nodes}");

    let gone = cluster.run("down")?.succeeded()?.stdout;
    ensure!(gone.contains("is gone"), "it prints {gone:?}");
    // No waiting: `down` returns when everything is restored.
    let left = cluster.left(&before)?;
    ensure!(left.is_empty(), "left behind: {left:#?}");
    let again = cluster.run("down")?.succeeded()?.stdout;
    ensure!(again.contains("No cluster is up"), "it prints {again:?}");
    web.exec("app", &["true"]).map(drop)
}

#[e2e::case(Soak)]
fn a_node_leaves_nothing_behind_when_its_holder_is_killed(context: &TestContext) -> Result<()> {
    let before = HostState::now()?;
    let cluster = LocalCluster::up_with(context, "no")?;
    cluster.runs_a_pod()?;
    ensure!(cluster.lxcfs_state()? == "nothing\n", "LXCFS runs: {}", cluster.message);
    cluster.has(&before, &["+ link", "+ addr", "+ cgroup", "+ process"])?;
    cluster.process("holder")?.signal(Signal::KILL);
    cluster.leaves_nothing(&before)
}

#[e2e::case(Soak)]
fn the_next_run_cleans_up_the_node_of_a_killed_supervisor(context: &TestContext) -> Result<()> {
    let before = HostState::now()?;
    let cluster = LocalCluster::up(context)?;
    cluster.runs_a_pod()?;
    // The holder is stopped first, because it would do the supervisor's work.
    let (holder, supervisor) = (cluster.process("holder")?, cluster.process("supervisor")?);
    holder.signal(Signal::STOP);
    supervisor.signal(Signal::KILL);
    holder.signal(Signal::KILL);
    eventually("the end of both", CLEAN_WITHIN, || {
        let alive = holder.is_alive() || supervisor.is_alive();
        Ok(if alive { Poll::Pending("alive".to_owned()) } else { Poll::Ready(()) })
    })?;
    // The kernel ends the processes and the links of the namespace. A run with live processes is not cleaned up.
    eventually("the end of the node's processes", CLEAN_WITHIN, || {
        let left = cluster.left(&before)?;
        let alive: Vec<_> = left.into_iter().filter(|line| line.starts_with("+ process")).collect();
        Ok(if alive.is_empty() { Poll::Ready(()) } else { Poll::Pending(format!("{alive:#?}")) })
    })?;
    cluster.has(&before, &["+ cgroup"])?;
    cluster.run("down")?.succeeded()?;
    let left = cluster.left(&before)?;
    ensure!(left.is_empty(), "left behind: {left:#?}");
    Ok(())
}

/// A cluster of `e2e-cluster`, in its own cache with the run's binaries.
struct LocalCluster<'a> {
    context: &'a TestContext,
    cache: PathBuf,
    message: String,
    state: Value,
    /// Whether the node gets its own LXCFS: `no`, or any other value.
    lxcfs: &'static str,
}

impl<'a> LocalCluster<'a> {
    fn up(context: &'a TestContext) -> Result<Self> {
        Self::up_with(context, "")
    }

    fn up_with(context: &'a TestContext, lxcfs: &'static str) -> Result<Self> {
        node::build(context)?;
        let own = context.directory("local-cluster")?;
        std::os::unix::fs::symlink(cache()?.join("parts"), own.join("parts"))?;
        let mut cluster = Self { context, cache: own, message: String::new(), state: Value::Null, lxcfs };
        cluster.message = cluster.run("up")?.succeeded().context("the cluster does not start")?.stdout;
        let state = std::fs::read_to_string(cluster.cache.join("cluster/cluster.json"))?;
        cluster.state = serde_json::from_str(&state)?;
        Ok(cluster)
    }

    fn run(&self, verb: &str) -> Result<Output> {
        let tool = Tool::new(format!("cluster-{verb}"), env!("CARGO_BIN_EXE_e2e-cluster"))
            .argument(verb)
            .environment("LXCFS", self.lxcfs)
            .environment("DURWARD_E2E_CACHE", self.cache.display().to_string())
            .environment("DURWARD_BIN", self.context.durward_program()?.display().to_string());
        self.context.supervisor()?.run(tool, UP_WITHIN)
    }

    fn kubeconfig(&self) -> PathBuf {
        self.cache.join("cluster/kubeconfig")
    }

    fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let supervisor = self.context.supervisor()?;
        let tool = Tool::new("kubectl", Binary::Kubectl.path(&supervisor)?)
            .environment("KUBECACHEDIR", self.cache.join("kubectl").display().to_string())
            .environment("KUBECONFIG", self.kubeconfig().display().to_string())
            .arguments(arguments.iter().copied());
        Ok(supervisor.run(tool, UP_WITHIN)?.succeeded()?.stdout)
    }

    /// Uses the cluster by hand, with the printed values.
    fn runs_a_pod(&self) -> Result<()> {
        let image = "--image=durward.test/busybox:1";
        self.kubectl(&["run", "tried", image, "--restart=Never", "--", "sleep", "600"])?;
        self.kubectl(&["wait", "pod/tried", "--for=condition=Ready", "--timeout=120s"])?;
        let output = self.kubectl(&["exec", "tried", "--", "echo", "tried"])?;
        ensure!(output == "tried\n", "the pod prints {output:?}");
        Ok(())
    }

    /// Returns the output of a pod that reads the node's directory.
    fn lxcfs_state(&self) -> Result<String> {
        let pod = json!({"apiVersion": "v1", "spec": {
            "volumes": [{"name": "node", "hostPath": {"path": "/var/lib"}}],
            "containers": [{
                "name": "looks",
                "image": "durward.test/busybox:1",
                "command": ["sh", "-c", "if [ -e /node/lxcfs/proc/meminfo ]; then echo serves; else echo nothing; fi; sleep 600"],
                "volumeMounts": [{"name": "node", "mountPath": "/node", "mountPropagation": "HostToContainer"}],
            }],
        }});
        let overrides = format!("--overrides={pod}");
        self.kubectl(&["run", "looks", "--image=durward.test/busybox:1", "--restart=Never", &overrides])?;
        self.kubectl(&["wait", "pod/looks", "--for=condition=Ready", "--timeout=120s"])?;
        self.kubectl(&["logs", "looks"])
    }

    fn process(&self, name: &str) -> Result<Identity> {
        Ok(serde_json::from_value(self.state[name].clone())?)
    }

    fn names(&self) -> Result<Vec<String>> {
        Ok(serde_json::from_value(self.state["names"].clone())?)
    }

    /// Returns the differences of the host to its earlier state.
    fn left(&self, before: &HostState) -> Result<Vec<String>> {
        Ok(before.difference(&HostState::now()?, &self.names()?))
    }

    fn shows_nothing_but_its_names(&self, before: &HostState) -> Result<()> {
        let names = self.names()?;
        let seen = self.left(before)?;
        // A mount would contain a name of the run too, and none can be visible.
        let is_its_own =
            |line: &str| !line.contains(" mount ") && names.iter().any(|name| line.contains(name.as_str()));
        let more: Vec<_> = seen.iter().filter(|line| !is_its_own(line)).collect();
        ensure!(more.is_empty(), "the host shows what only the node should: {more:#?}");
        Ok(())
    }

    /// Fails unless the host shows these kinds of things, without which a case proves nothing.
    fn has(&self, before: &HostState, kinds: &[&str]) -> Result<()> {
        let left = self.left(before)?;
        for kind in kinds {
            ensure!(left.iter().any(|line| line.starts_with(kind)), "expected {kind} in {left:#?}");
        }
        Ok(())
    }

    fn leaves_nothing(&self, before: &HostState) -> Result<()> {
        eventually("the host to be as before", CLEAN_WITHIN, || {
            let left = self.left(before)?;
            Ok(if left.is_empty() { Poll::Ready(()) } else { Poll::Pending(format!("{left:#?}")) })
        })
    }
}
