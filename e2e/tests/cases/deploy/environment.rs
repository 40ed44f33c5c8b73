//! A node for this area, on which LXCFS comes only from `deploy/lxcfs`.
//!
//! The node's own LXCFS is stopped. The environment applies a kustomization on top of the directory in this checkout, which names
//! the images and has a `ConfigMap` with Durward's configuration. Durward itself runs next to the node and is called by URL.
//!
//! One case at a time uses it, because most cases remove something ([`super::removal`]). The removed part returns when the
//! result is dropped, and the next case waits until everything is healthy.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use e2e::context;
use e2e::prelude::*;

use crate::cases::environment::await_injection;
use crate::cases::objects::list;

/// The namespace of the applied directory.
const NAMESPACE: &str = "durward-lxcfs";

/// The `guards` section of this area: it uses everything that the agents on nodes offer.
pub(super) const GUARDS: &str = "  lxcfs: {mountMethod: auto, nodeAffinity: required}";

// The DaemonSets of the directory.
pub(super) const LXCFS: &str = "durward-lxcfs";
pub(super) const LABEL_AGENT: &str = "durward-lxcfs-node";
pub(super) const DEVICE_PLUGIN: &str = "durward-lxcfs-device";

// The label, annotation and resource of the Node.
pub(super) const READY: &str = "durward.dev/lxcfs-ready";
pub(super) const REPORT: &str = "durward.dev/lxcfs-node";
pub(super) const RESOURCE: &str = "durward.dev/lxcfs";

/// The image of LXCFS that is deployed first.
pub(super) const FIRST_IMAGE: &str = "durward.test/lxcfs:1";

/// The node and everything that is installed for it.
pub(super) struct Environment {
    pub(super) context: &'static TestContext,
    pub(super) node: &'static Node,
    pub(super) namespace: Namespace<'static>,
    /// The node's own LXCFS while it is stopped.
    own_lxcfs: Option<Undo<'static>>,
    pub(super) installation: Installation<'static>,
    pub(super) durward: Durward,
    /// The output of the doctor before the directory was applied.
    pub(super) doctor_before: Output,
}

pub(super) struct Exclusive(MutexGuard<'static, Environment>);

impl Deref for Exclusive {
    type Target = Environment;

    fn deref(&self) -> &Environment {
        &self.0
    }
}

/// Waits until no other case uses the environment and everything is healthy.
pub(super) fn exclusive(context: &'static TestContext) -> Result<Exclusive> {
    let access = lock(context)?;
    access.await_healthy()?;
    Ok(access)
}

fn lock(context: &'static TestContext) -> Result<Exclusive> {
    static ENVIRONMENT: Lazy<Mutex<Environment>> = Lazy::new();
    let environment = ENVIRONMENT.get(|| Environment::start(context).map(Mutex::new));
    let environment = environment.context("the node with deploy/lxcfs does not start")?;
    Ok(Exclusive(environment.lock().unwrap_or_else(PoisonError::into_inner)))
}

impl Exclusive {
    /// Starts the node's own LXCFS, as if it were installed there.
    pub(super) fn start_own_lxcfs(&mut self) -> Result<()> {
        self.0.own_lxcfs.take().context("the node's own LXCFS runs already")?.undo()
    }

    pub(super) fn stop_own_lxcfs(&mut self) -> Result<()> {
        self.0.own_lxcfs = Some(self.node.lxcfs().stop()?);
        Ok(())
    }
}

impl Environment {
    fn start(context: &'static TestContext) -> Result<Self> {
        let node = context.keep(context.own_node()?);
        let own_lxcfs = Some(node.lxcfs().stop()?);
        node.image(context, Image::DurwardNode)?;
        node.image(context, Image::Lxcfs)?;
        let namespace = node.cluster().exact_namespace(NAMESPACE, &[])?;
        let (installation, durward) = Installation::start(context, node.cluster(), GUARDS, "durward-deploy")?;
        let doctor_before = doctor(context, node, &installation)?;
        let environment = Self { context, node, namespace, own_lxcfs, installation, durward, doctor_before };
        environment.deploy(FIRST_IMAGE)?;
        await_injection(&*node.namespace("probe")?)?;
        Ok(environment)
    }

    /// Applies the directory with this image of LXCFS.
    pub(super) fn deploy(&self, lxcfs: &str) -> Result<()> {
        let directory = self.kustomization(lxcfs)?;
        let kubectl = self.node.cluster().kubectl();
        kubectl.run(&["apply", "-k", &directory.display().to_string()])?.succeeded()?;
        Ok(())
    }

    pub(super) fn kustomization(&self, lxcfs: &str) -> Result<PathBuf> {
        let directory = self.context.directory("kustomization")?;
        let resources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/lxcfs");
        let images = [("lxcfs", lxcfs), ("durward-node", Image::DurwardNode.name())].map(|(name, image)| {
            let (new_name, tag) = image.rsplit_once(':').unwrap_or((image, "latest"));
            json!({"name": name, "newName": new_name, "newTag": tag})
        });
        let text = json!({
            "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
            "resources": [relative(&directory, &resources)?], "images": images,
            "configMapGenerator": [{"name": "durward", "namespace": NAMESPACE, "files": ["durward.yaml"]}],
            "generatorOptions": {"disableNameSuffixHash": true},
        });
        context::write(&directory, "durward.yaml", &configuration(GUARDS))?;
        context::write(&directory, "kustomization.yaml", &text.to_string())?;
        Ok(directory)
    }

    /// Returns the pods of a `DaemonSet` of the directory.
    pub(super) fn pods(&self, name: &str) -> Result<Vec<Value>> {
        let component = name.trim_start_matches("durward-");
        let selector = format!("?labelSelector=app.kubernetes.io/component%3D{component}");
        let path = self.namespace.path("pods") + &selector;
        list(self.node.cluster().api(), &path)
    }

    /// Returns the only pod of a `DaemonSet` of the directory.
    pub(super) fn pod(&self, name: &str) -> Result<Value> {
        let pods = self.pods(name)?;
        ensure!(pods.len() == 1, "{name} has {} pods: {}", pods.len(), json!(pods));
        pods.into_iter().next().context("no pod")
    }

    pub(super) fn pod_name(&self, name: &str) -> Result<String> {
        let pod = self.pod(name)?;
        pod["metadata"]["name"].as_str().map(ToOwned::to_owned).context("a pod without a name")
    }

    pub(super) fn log(&self, name: &str) -> Result<String> {
        let pod = self.pod_name(name)?;
        let arguments = ["logs", "-n", NAMESPACE, &pod, "--all-containers"];
        Ok(self.node.cluster().kubectl().run(&arguments)?.succeeded()?.stdout)
    }

    /// Waits until the log of the only pod of a `DaemonSet` contains this text.
    pub(super) fn await_logged(&self, name: &str, text: &str) -> Result<()> {
        self.await_log(name, &format!("{text:?}"), |log| log.contains(text))
    }

    /// Waits until `is_expected` accepts the log of the only pod of a `DaemonSet`.
    pub(super) fn await_log(&self, name: &str, what: &str, is_expected: impl Fn(&str) -> bool) -> Result<()> {
        eventually(format_args!("{name} to log {what}"), WAIT_LIMIT, || {
            // While a pod is replaced there are two, or none.
            Ok(match self.log(name) {
                Ok(log) if is_expected(&log) => Poll::Ready(()),
                Ok(log) => Poll::Pending(log),
                Err(error) => Poll::Pending(format!("{error:#}")),
            })
        })
    }

    pub(super) fn report(&self) -> Result<Value> {
        let node = self.node.object()?;
        let text = node["metadata"]["annotations"][REPORT].as_str().unwrap_or_default();
        Ok(serde_json::from_str(text).unwrap_or_default())
    }

    /// Waits until `is_expected` accepts the report.
    pub(super) fn await_report(&self, what: &str, is_expected: impl Fn(&Value) -> bool) -> Result<()> {
        until(format_args!("the Node to report {what}"), || {
            let report = self.report()?;
            Ok((is_expected(&report), report.to_string()))
        })
    }

    /// Waits until the Node has the label, or does not have it.
    pub(super) fn await_label(&self, is_expected: bool) -> Result<()> {
        let what = if is_expected { "labeled ready" } else { "without the label" };
        self.node.await_state(what, |node| has_label(node) == is_expected)
    }

    /// Waits until the node offers this quantity of the resource.
    pub(super) fn await_devices(&self, quantity: &str) -> Result<()> {
        let offered = |node: &Value| node["status"]["allocatable"][RESOURCE].clone();
        self.node.await_state(&format!("offering {quantity} of {RESOURCE}"), |node| offered(node) == quantity)
    }

    /// Runs `durward doctor lxcfs` as an administrator of the cluster.
    pub(super) fn doctor(&self) -> Result<Output> {
        doctor(self.context, self.node, &self.installation)
    }

    pub(super) fn doctor_on_node(&self) -> Result<Output> {
        let program = self.context.durward_program()?.display().to_string();
        let config = self.installation.config().display().to_string();
        self.node.run(&[&program, "doctor", "lxcfs", "--local", "--config", &config])
    }

    /// Returns the pid of the LXCFS that serves the mount of this node. Other nodes of the host have their own.
    pub(super) fn process(&self) -> Result<i32> {
        let mount = self.node.run(&["findmnt", "-no", "MAJ:MIN", "/var/lib/lxcfs"])?.succeeded()?.stdout;
        let device = mount.split_ascii_whitespace().last().context("nothing is mounted")?;
        let mounted = format!(" {device} / /var/lib/lxcfs ");
        let read =
            |pid: i32, file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let is_lxcfs = |pid: i32| read(pid, "comm").trim() == "lxcfs";
        let serves = |&pid: &i32| {
            // LXCFS forks to enter the namespaces of readers.
            let is_fork = || parent(pid).is_ok_and(is_lxcfs);
            is_lxcfs(pid) && read(pid, "mountinfo").contains(&mounted) && !is_fork()
        };
        let mut pids = std::fs::read_dir("/proc")?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(serves);
        pids.next().with_context(|| format!("no LXCFS has {device} mounted"))
    }

    pub(super) fn signal(&self, signal: &str, pid: i32) -> Result<()> {
        self.node.run(&["kill", &format!("-{signal}"), &pid.to_string()])?.succeeded().map(drop)
    }

    fn await_healthy(&self) -> Result<()> {
        for name in [LXCFS, LABEL_AGENT, DEVICE_PLUGIN] {
            self.node.await_workload(&self.namespace, "daemonsets", name)?;
        }
        self.await_label(true)?;
        self.await_devices("1k")
    }
}

/// Returns the configuration of the agents.
pub(super) fn configuration(guards: &str) -> String {
    format!("apiVersion: durward.dev/v1alpha1\nkind: Configuration\nguards:\n{guards}\n")
}

fn doctor(context: &TestContext, node: &Node, installation: &Installation<'_>) -> Result<Output> {
    let config = installation.config().display().to_string();
    let admin = node.cluster().kubectl().kubeconfig().display().to_string();
    Durward::command(context, &["doctor", "lxcfs", "--config", &config, "--kubeconfig", &admin])
}

pub(super) fn parent(pid: i32) -> Result<i32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    line.and_then(|line| line.trim().parse().ok()).context("a process without a parent")
}

/// Returns whether a Node has the label that pods select.
pub(super) fn has_label(node: &Value) -> bool {
    node["metadata"]["labels"][READY] == "true"
}

/// Returns the relative path between two directories, which kustomize requires.
fn relative(from: &Path, to: &Path) -> Result<String> {
    let (from, to) = (from.canonicalize()?, to.canonicalize()?);
    // The root counts as a component.
    let up = "../".repeat(from.components().count().saturating_sub(1));
    Ok(format!("{up}{}", to.strip_prefix("/")?.display()))
}
