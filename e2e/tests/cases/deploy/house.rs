//! A node of this room's own on which LXCFS is what `deploy/lxcfs` ships, and a case's stay there.
//!
//! The node begins as any other of the harness, and then its own LXCFS is taken away for good. What people apply is
//! applied: a kustomization that names the images on top of the folder as it is in this checkout, a `ConfigMap`
//! with the configuration that Durward serves by. Durward itself stands beside the node, by URL.
//!
//! One case is there at a time, since most take something away that the others need (`taken.rs`). What a case took away
//! comes back when the value that it got is dropped, and the next case begins when all is well again.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Error, Result, ensure};
use e2e::context::{self, TestContext};
use e2e::daemon::Stopped;
use e2e::durward::Durward;
use e2e::image::Image;
use e2e::installation::Installation;
use e2e::namespace::Namespace;
use e2e::node::Node;
use e2e::supervisor::Output;
use e2e::wait::{Poll, eventually};
use serde_json::{Value, json};

use super::in_cluster::STRICT;
use crate::cases::files::{Looks as _, SIX};
use crate::cases::house::{await_files, reviews, wanting};

/// Where what is shipped lives.
const HOME: &str = "durward-system";

/// The room's `guards` section: everything that nodes can do is asked of them.
pub(super) const GUARDS: &str = "  lxcfs: {backend: auto, nodeReadiness: require}";

/// The `DaemonSet`s of the folder.
pub(super) const LXCFS: &str = "durward-lxcfs";
pub(super) const KEEPER: &str = "durward-lxcfs-node";
pub(super) const DEVICE: &str = "durward-lxcfs-device";
pub(super) const LIBRARY: &str = "durward-lxcfs-library";

/// What is kept on the Node.
pub(super) const READY: &str = "durward.dev/lxcfs-ready";
pub(super) const REPORT: &str = "durward.dev/lxcfs-node";
pub(super) const RESOURCE: &str = "durward.dev/lxcfs";

/// What is shipped looks every two seconds; a machine that does much else is slower.
pub(super) const SEEN_WITHIN: Duration = Duration::from_secs(60);

/// The image of LXCFS that is shipped first.
pub(super) const FIRST: &str = "durward.test/lxcfs:1";

pub(super) struct House {
    pub(super) context: &'static TestContext,
    pub(super) node: &'static Node,
    pub(super) home: Namespace<'static>,
    /// The node's own LXCFS, which does not run.
    own: Option<Stopped<'static>>,
    pub(super) installation: Installation<'static>,
    pub(super) durward: Durward,
    /// What the doctor said before anything was shipped.
    pub(super) bare: Output,
    /// Where another Durward is installed that is asked instead, in pods of its own.
    door: Option<&'static Namespace<'static>>,
}

/// A case's stay, alone.
pub(super) struct Stay(MutexGuard<'static, House>);

impl Deref for Stay {
    type Target = House;

    fn deref(&self) -> &House {
        &self.0
    }
}

/// Comes in when the case before has left and all that is shipped is well.
pub(super) fn enter(context: &'static TestContext) -> Result<Stay> {
    let mut stay = Stay::begin(context)?;
    stay.0.is_asked_by_url()?;
    stay.await_restored()?;
    Ok(stay)
}

/// The same where Durward is installed in the cluster, in the namespace that is returned.
pub(super) fn enter_installed(context: &'static TestContext) -> Result<(Stay, &'static Namespace<'static>)> {
    let mut stay = Stay::begin(context)?;
    let door = stay.0.is_asked_in_the_cluster()?;
    stay.await_restored()?;
    Ok((stay, door))
}

impl Stay {
    fn begin(context: &'static TestContext) -> Result<Self> {
        static HOUSE: OnceLock<Result<Mutex<House>, String>> = OnceLock::new();
        let built =
            HOUSE.get_or_init(|| House::build(context).map(Mutex::new).map_err(|error| format!("{error:#}")));
        let house = built.as_ref().map_err(|why| Error::msg(format!("LXCFS is not shipped: {why}")))?;
        Ok(Self(house.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// For what is not put back by a value.
    pub(super) fn house(&mut self) -> &mut House {
        &mut self.0
    }
}

impl House {
    fn build(context: &'static TestContext) -> Result<Self> {
        // For as long as the process, like the run: the supervisor ends what stands behind it.
        let node: &'static Node = Box::leak(Box::new(context.own_node()?));
        let own = Some(node.lxcfs().stop()?);
        node.image(context, Image::Durward)?;
        node.image(context, Image::Lxcfs)?;
        let home = node.cluster().exact_namespace(HOME, &[])?;
        let mut installation = Installation::by_url(context, node.cluster(), GUARDS)?;
        let durward = installation.serve().named("durward-shipped").start_ready(context)?;
        installation.register()?;
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "durward"}});
        node.cluster().api().create(&home.path("configmaps"), &map)?.succeeded()?;
        let bare = doctor(context, node, &installation)?;
        let house = Self { context, node, home, own, installation, durward, bare, door: None };
        house.tell_nodes(GUARDS)?;
        house.ship(FIRST)?;
        await_files(&*node.namespace("probe")?)?;
        Ok(house)
    }

    /// Whoever was installed in the cluster is asked no more.
    fn is_asked_by_url(&mut self) -> Result<()> {
        let Some(door) = self.door else { return Ok(()) };
        self.installation.grant()?;
        self.installation.register()?;
        self.await_way(true)?;
        self.node.cluster().api().delete(&format!("/api/v1/namespaces/{}", door.name()))?.succeeded()?;
        self.door = None;
        Ok(())
    }

    /// Installs another Durward, in a namespace of its own, if none is.
    fn is_asked_in_the_cluster(&mut self) -> Result<&'static Namespace<'static>> {
        if let Some(door) = self.door {
            return Ok(door);
        }
        let door = Box::leak(Box::new(self.node.cluster().labelled_namespace("door", &STRICT)?));
        // Half installed it is to be taken back too.
        self.door = Some(door);
        self.install(door)?;
        self.await_way(false)?;
        Ok(door)
    }

    /// Waits until the API server asks the Durward beside the node, or another.
    fn await_way(&self, by_url: bool) -> Result<()> {
        let probe = self.node.namespace("probe")?;
        eventually("the API server to follow the registration", SEEN_WITHIN, || {
            let before = reviews(&self.durward)?;
            wanting(&probe, "probe").as_dry_run().is_admitted()?.with_files(&SIX)?;
            let was_asked = reviews(&self.durward)? > before + 0.5;
            Ok(if was_asked == by_url {
                Poll::Ready(())
            } else {
                Poll::Pending("it asks the other one".to_owned())
            })
        })
    }

    /// Applies the folder with this image of LXCFS, as an administrator does.
    pub(super) fn ship(&self, lxcfs: &str) -> Result<()> {
        let folder = self.overlay(lxcfs)?;
        let kubectl = self.node.cluster().kubectl();
        kubectl.run(&["apply", "-k", &folder.display().to_string()])?.succeeded()?;
        Ok(())
    }

    /// A kustomization that names the images.
    pub(super) fn overlay(&self, lxcfs: &str) -> Result<PathBuf> {
        let folder = self.context.folder("kustomization")?;
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/lxcfs");
        let images = [("lxcfs", lxcfs), ("durward", Image::Durward.name())].map(|(name, image)| {
            let (new_name, tag) = image.rsplit_once(':').unwrap_or((image, "latest"));
            json!({"name": name, "newName": new_name, "newTag": tag})
        });
        let text = json!({
            "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
            "resources": [relative(&folder, &shipped)?], "images": images,
        });
        context::write(&folder, "kustomization.yaml", &text.to_string())?;
        Ok(folder)
    }

    /// The node's own LXCFS, as an administrator installs it, until what is returned is dropped.
    pub(super) fn installed(&mut self) -> Result<()> {
        self.own.take().context("the node's own LXCFS runs already")?.start()
    }

    /// Takes it away again.
    pub(super) fn uninstalled(&mut self) -> Result<()> {
        self.own = Some(self.node.lxcfs().stop()?);
        Ok(())
    }

    /// The pods of a `DaemonSet` of the folder.
    pub(super) fn pods(&self, name: &str) -> Result<Vec<Value>> {
        let component = name.trim_start_matches("durward-");
        let path =
            format!("{}?labelSelector=app.kubernetes.io/component%3D{component}", self.home.path("pods"));
        let list = self.node.cluster().api().get(&path)?.succeeded()?.body;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// The one pod of a `DaemonSet` of the folder.
    pub(super) fn pod(&self, name: &str) -> Result<Value> {
        let pods = self.pods(name)?;
        ensure!(pods.len() == 1, "{name} has {} pods: {}", pods.len(), json!(pods));
        pods.into_iter().next().context("no pod")
    }

    /// All that the one pod of a `DaemonSet` has written.
    pub(super) fn log(&self, name: &str) -> Result<String> {
        let pod = self.pod(name)?;
        let pod = pod["metadata"]["name"].as_str().context("a pod without a name")?;
        let arguments = ["logs", "-n", HOME, pod, "--all-containers"];
        Ok(self.node.cluster().kubectl().run(&arguments)?.succeeded()?.stdout)
    }

    /// Waits until the one pod of a `DaemonSet` has written this.
    pub(super) fn await_word(&self, name: &str, word: &str) -> Result<()> {
        self.await_log(name, &format!("{word:?}"), |log| log.contains(word))
    }

    /// Waits until what it has written is what `is` recognises.
    pub(super) fn await_log(&self, name: &str, what: &str, is: impl Fn(&str) -> bool) -> Result<()> {
        eventually(format_args!("{name} to say {what}"), SEEN_WITHIN, || {
            // While a pod is replaced there are two, or none.
            Ok(match self.log(name) {
                Ok(said) if is(&said) => Poll::Ready(()),
                Ok(said) => Poll::Pending(said),
                Err(error) => Poll::Pending(format!("{error:#}")),
            })
        })
    }

    /// What `lxcfs-node` has written on the Node; null where it has written nothing.
    pub(super) fn report(&self) -> Result<Value> {
        Ok(report(&self.node.object()?))
    }

    /// Waits until the report is what `is` recognises.
    pub(super) fn reports(&self, what: &str, is: impl Fn(&Value) -> bool) -> Result<()> {
        eventually(format_args!("the Node to report {what}"), SEEN_WITHIN, || {
            let report = self.report()?;
            Ok(if is(&report) { Poll::Ready(()) } else { Poll::Pending(report.to_string()) })
        })
    }

    /// Waits until the Node has the label, or has it no more.
    pub(super) fn is_labelled(&self, wanted: bool) -> Result<()> {
        let what = if wanted { "labelled ready" } else { "without the label" };
        self.node.becomes(what, |node| has_label(node) == wanted)
    }

    /// Waits until the node offers so much of the resource.
    pub(super) fn offers(&self, devices: &str) -> Result<()> {
        self.node.becomes(&format!("offering {devices} of {RESOURCE}"), |node| offered(node) == devices)
    }

    /// `durward doctor lxcfs` by an administrator of the cluster.
    pub(super) fn doctor(&self) -> Result<Output> {
        doctor(self.context, self.node, &self.installation)
    }

    /// The same on the node itself.
    pub(super) fn doctor_here(&self) -> Result<Output> {
        let program = self.context.durward_program()?.display().to_string();
        let config = self.installation.config().display().to_string();
        self.node.run(&[&program, "doctor", "lxcfs", "--here", "--config", &config])
    }

    /// The process that serves what is mounted on the node: other nodes of this host have theirs.
    pub(super) fn process(&self) -> Result<i32> {
        let device = self.mount()?;
        let mounted = format!(" {device} / /var/lib/lxcfs ");
        let read =
            |pid: i32, file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let is_lxcfs = |pid: i32| read(pid, "comm").trim() == "lxcfs";
        let serves = |&pid: &i32| {
            // It has children for a moment, to look into the containers of those who read.
            let is_child = || parent(pid).is_ok_and(is_lxcfs);
            is_lxcfs(pid) && read(pid, "mountinfo").contains(&mounted) && !is_child()
        };
        let mut pids = std::fs::read_dir("/proc")?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(serves);
        pids.next().with_context(|| format!("no LXCFS has {device} mounted"))
    }

    /// The device number of what is mounted where LXCFS mounts: what lies on top.
    pub(super) fn mount(&self) -> Result<String> {
        let said = self.node.run(&["findmnt", "-no", "MAJ:MIN", "/var/lib/lxcfs"])?.succeeded()?.stdout;
        said.split_ascii_whitespace().last().map(ToOwned::to_owned).context("nothing is mounted")
    }

    /// Sends a signal to a process of the node.
    pub(super) fn signal(&self, signal: &str, pid: i32) -> Result<()> {
        self.node.run(&["kill", &format!("-{signal}"), &pid.to_string()])?.succeeded().map(drop)
    }

    fn await_restored(&self) -> Result<()> {
        for name in [LXCFS, LIBRARY, KEEPER, DEVICE] {
            self.node.stands(&self.home, "daemonsets", name)?;
        }
        self.is_labelled(true)?;
        self.offers("1k")?;
        self.reports("that the library is loaded", |report| report["library"] == "loaded")
    }
}

fn doctor(context: &TestContext, node: &Node, installation: &Installation<'_>) -> Result<Output> {
    let config = installation.config().display().to_string();
    let admin = node.cluster().kubectl().kubeconfig().display().to_string();
    Durward::command(context, &["doctor", "lxcfs", "--config", &config, "--kubeconfig", &admin])
}

/// The process that started another.
pub(super) fn parent(pid: i32) -> Result<i32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    line.and_then(|line| line.trim().parse().ok()).context("a process without a parent")
}

/// Whether a Node has the label that pods look for.
pub(super) fn has_label(node: &Value) -> bool {
    node["metadata"]["labels"][READY] == "true"
}

/// How many devices a Node offers.
fn offered(node: &Value) -> &str {
    node["status"]["allocatable"][RESOURCE].as_str().unwrap_or("none")
}

fn report(node: &Value) -> Value {
    let text = node["metadata"]["annotations"][REPORT].as_str().unwrap_or_default();
    serde_json::from_str(text).unwrap_or_default()
}

/// The way from one folder to another, as kustomize wants it.
fn relative(from: &Path, to: &Path) -> Result<String> {
    let (from, to) = (from.canonicalize()?, to.canonicalize()?);
    // The root is a component too.
    let up = "../".repeat(from.components().count().saturating_sub(1));
    let down = to.strip_prefix("/")?;
    Ok(format!("{up}{}", down.display()))
}
