//! The cluster of `make cluster`: it works, and nothing of a node is left on the host, however it ends.
//!
//! The node of the run exists at the same time. They are isolated from each other.

use std::path::PathBuf;

use e2e::binaries::{Binary, cache};
use e2e::node;
use e2e::prelude::*;
use e2e::supervisor::run::Run;
use e2e::supervisor::{Tool, traces};
use rustix::process::{Pid, Signal, kill_process};

/// A new cluster takes six seconds on an idle machine.
const UP_WITHIN: Duration = Duration::from_secs(300);

/// The grace period of the processes, plus time for a loaded machine.
const CLEAN_WITHIN: Duration = Duration::from_secs(60);

#[e2e::case]
fn a_local_cluster_runs_until_it_is_stopped(context: &TestContext) -> Result<()> {
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
    cluster.shows_all_but_mounts()?;

    // Each pod has the first address of the same network, and neither sees the other.
    let web = node.pod(&shop, "web").is_ready()?;
    ensure!(web.exec("app", &["cat", "/etc/hostname"])? == "web\n", "it is another pod");
    let nodes = cluster.kubectl(&["get", "pods", "-A", "-o", "name"])?;
    ensure!(!nodes.contains("web"), "the local cluster has a pod of the run's node: {nodes}");

    let gone = cluster.run("down")?.succeeded()?.stdout;
    ensure!(gone.contains("is gone"), "it prints {gone:?}");
    cluster.left_nothing()?;
    let again = cluster.run("down")?.succeeded()?.stdout;
    ensure!(again.contains("No cluster is up"), "it prints {again:?}");
    web.exec("app", &["true"]).map(drop)
}

#[e2e::case]
fn a_node_leaves_nothing_behind_when_its_holder_is_killed(context: &TestContext) -> Result<()> {
    let cluster = LocalCluster::up_with(context, "no")?;
    cluster.runs_a_pod()?;
    ensure!(cluster.lxcfs_state()? == "nothing\n", "LXCFS runs: {}", cluster.message);
    cluster.shows_all_but_mounts()?;
    let holder = cluster.state["holder"].as_i64().context("no holder")?;
    kill_process(Pid::from_raw(i32::try_from(holder)?).context("no holder")?, Signal::KILL)?;
    cluster.left_nothing()
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

    fn traces(&self) -> Vec<String> {
        let text = |field: &str| self.state[field].as_str().unwrap_or_default();
        let (name, work) = (text("run").to_owned(), PathBuf::from(text("work")));
        traces::of(&Run { name, work, logs: PathBuf::new() }, text("pid_namespace"))
    }

    /// Fails unless the host shows the node, and shows none of its mounts.
    fn shows_all_but_mounts(&self) -> Result<()> {
        let traces = self.traces();
        for kind in ["process", "link", "cgroup", "directory"] {
            ensure!(traces.iter().any(|trace| trace.starts_with(kind)), "no {kind}: {traces:#?}");
        }
        ensure!(!traces.iter().any(|trace| trace.starts_with("mount")), "a mount is visible: {traces:#?}");
        Ok(())
    }

    fn left_nothing(&self) -> Result<()> {
        eventually("the node to leave nothing", CLEAN_WITHIN, || {
            let left = self.traces();
            Ok(if left.is_empty() { Poll::Ready(()) } else { Poll::Pending(format!("{left:#?}")) })
        })
    }
}
