//! A node for this area, with the release in a namespace that enforces Pod Security `restricted`.
//!
//! One case at a time uses it. A case that removes the release leaves it removed, and the next case installs it again. Cases of other
//! areas that need a node without a release use the same node ([`node_without_release`]).

use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};

use e2e::audit::AuditLog;
use e2e::node::TemporaryNamespace;
use e2e::prelude::*;

use super::configurations::HOME;
use crate::cases::environment::{eventually_ok, opted_in};
use crate::cases::files::{DEFAULT_FILES, LxcfsChecks as _};
use crate::cases::load::{Load, under_load_of};
use crate::cases::objects::{list, name_of, ready_status};
use crate::cases::outage::denied_unreviewed;

/// The namespace denies pods that violate the level, and warns of workloads that do.
const RESTRICTED: [(&str, &str); 2] =
    [("pod-security.kubernetes.io/enforce", "restricted"), ("pod-security.kubernetes.io/warn", "restricted")];

/// The label of namespaces with etcd.
pub(super) const WITH_ETCD: (&str, &str) = ("example.org/etcd", "yes");

/// The label of protected namespaces.
pub(super) const PROTECTED: (&str, &str) = ("durward.dev/guard", "deletion");

/// The time until a namespace without pods can be deleted.
const UNUSED_WITHIN: Duration = Duration::from_secs(30);

pub(super) struct Environment {
    pub(super) node: &'static Node,
    pub(super) helm: Helm,
    pub(super) audit: AuditLog,
}

/// Waits until no other case uses the environment, and installs the release if it is not there.
pub(super) fn installed(context: &'static TestContext) -> Result<MutexGuard<'static, Environment>> {
    let environment = exclusive(context)?;
    environment.install(&values())?;
    Ok(environment)
}

/// Waits until no other case uses the environment.
pub(super) fn exclusive(context: &'static TestContext) -> Result<MutexGuard<'static, Environment>> {
    static ENVIRONMENT: Lazy<Mutex<Environment>> = Lazy::new();
    let environment = ENVIRONMENT.get(|| Environment::start(context).map(Mutex::new));
    let environment = environment.context("the node of the chart does not start")?;
    Ok(environment.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Removes the release with its namespace, and returns the node.
pub(in crate::cases) fn node_without_release(context: &'static TestContext) -> Result<&'static Node> {
    let environment = exclusive(context)?;
    if environment.api().get(&format!("/api/v1/namespaces/{HOME}"))?.is_success() {
        environment.helm.uninstall(HOME, &["--ignore-not-found"])?.succeeded()?;
        environment.delete_home()?;
    }
    Ok(environment.node)
}

/// Returns the values of the release: all guards, and each of them fails closed.
pub(super) fn values() -> Value {
    let (label, value) = WITH_ETCD;
    json!({
        "image": {"repository": "durward.test/durward", "tag": "1", "pullPolicy": "Never"},
        "config": {"guards": {
            "deletion": {"fleet": "none", "scope": "labeled"},
            "etcd": {"clusters": [{"namespaceSelector": {"matchLabels": {label: value}}, "selector": "app=etcd"}]},
            "lxcfs": {"webhook": {"failurePolicy": "Fail"}},
        }},
    })
}

impl Environment {
    fn start(context: &'static TestContext) -> Result<Self> {
        let (node, audit) = context.own_audited_node()?;
        let node = context.keep(node);
        node.image(context, Image::Durward)?;
        Ok(Self { node, helm: Helm::of(context, node.cluster())?, audit })
    }

    /// Returns the API of an administrator.
    pub(super) fn api(&self) -> &'static Api {
        self.node.cluster().api()
    }

    /// Installs or upgrades the release with these values, and waits until the guards are called. Returns the output.
    pub(super) fn install(&self, values: &Value) -> Result<Output> {
        let output = self.release(values)?;
        self.await_guards()?;
        Ok(output)
    }

    /// Installs or upgrades the release with these values, and waits until its pods are ready.
    pub(super) fn release(&self, values: &Value) -> Result<Output> {
        self.make_home()?;
        self.helm.install(HOME, values)?.succeeded()
    }

    /// Creates the namespace of the release, if it does not exist.
    pub(super) fn make_home(&self) -> Result<()> {
        if !self.api().get(&format!("/api/v1/namespaces/{HOME}"))?.is_success() {
            self.node.cluster().exact_namespace(HOME, &RESTRICTED)?;
        }
        Ok(())
    }

    /// Expects that applying the manifest of the release again would change nothing. Fields that Durward writes are not in it.
    pub(super) fn differs_in_nothing(&self) -> Result<()> {
        let manifest =
            self.helm.run(&["get", "manifest", Helm::RELEASE, "--namespace", HOME])?.succeeded()?.stdout;
        for more in [&[][..], &["--server-side", "--force-conflicts"][..]] {
            let kubectl = self.node.cluster().kubectl();
            let output = kubectl.run_with(&[&["diff", "-f", "-"], more].concat(), &manifest)?;
            output.exited_with(0).with_context(|| format!("{more:?}"))?;
            ensure!(output.stdout.is_empty(), "{more:?}: {}", output.stdout);
        }
        Ok(())
    }

    /// Changes an annotation of the pods, so that the kubelet updates their files at once instead of within a minute.
    pub(super) fn mount_again(&self) -> Result<()> {
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        let annotation = format!("example.org/mounted-at={}", time.as_millis());
        let pods = ["annotate", "pods", "--all", "-n", HOME, "--overwrite", &annotation];
        self.node.cluster().kubectl().run(&pods)?.succeeded().map(drop)
    }

    /// Removes the release, if there is one, and waits until its pods have ended.
    pub(super) fn remove(&self) -> Result<()> {
        self.helm.uninstall(HOME, &["--ignore-not-found"])?.succeeded()?;
        eventually("the pods of the removed release to end", Duration::from_secs(120), || {
            let left = self.home("pods")?.len();
            Ok(if left == 0 { Poll::Ready(()) } else { Poll::Pending(left.to_string()) })
        })
    }

    /// Waits until all guards are called.
    pub(super) fn await_guards(&self) -> Result<()> {
        let probe = self.node.namespace("probe")?;
        eventually_ok("pods that opt in to get files", || pod_gets_files(&probe))?;
        let used = self.used_namespace()?;
        eventually_ok("a namespace in use to be protected", || self.namespace_is_kept(&used)).map(drop)
    }

    /// Returns a protected namespace without objects.
    pub(super) fn empty_namespace(&self) -> Result<TemporaryNamespace<'static>> {
        self.node.labelled_namespace("empty", &[PROTECTED])
    }

    /// Returns a protected namespace with a pod that is never scheduled.
    pub(super) fn used_namespace(&self) -> Result<Used> {
        let namespace = self.node.labelled_namespace("used", &[PROTECTED])?;
        namespace.pod("web").with(without_node).is_admitted()?;
        Ok(Used { namespace })
    }

    /// Returns a namespace in which pods with the label `app=etcd` are guarded.
    pub(super) fn etcd_namespace(&self) -> Result<TemporaryNamespace<'static>> {
        self.node.labelled_namespace("db", &[WITH_ETCD])
    }

    /// Expects that the deletion guard denies the deletion.
    pub(super) fn namespace_is_kept(&self, namespace: &Namespace<'_>) -> Result<()> {
        let answer = self.delete_as_dry_run(namespace)?;
        let message = answer.message();
        ensure!(answer.status == 403 && message.contains("1 pod"), "{}: {message}", answer.status);
        Ok(())
    }

    pub(super) fn delete_as_dry_run(&self, namespace: &Namespace<'_>) -> Result<e2e::api::Answer> {
        self.api().delete(&format!("/api/v1/namespaces/{}?dryRun=All", namespace.name()))
    }

    /// Returns the objects of the release and of Durward in its namespace.
    pub(super) fn home(&self, resource: &str) -> Result<Vec<Value>> {
        list(self.api(), &home_path(resource))
    }

    /// Returns the names of Durward's pods that are Ready and not terminating.
    pub(super) fn replicas(&self) -> Result<Vec<String>> {
        let pods = self.home("pods")?;
        let is_server = |pod: &Value| pod["metadata"]["labels"]["app.kubernetes.io/component"] == "server";
        let serves = |pod: &&Value| {
            is_server(pod) && pod["metadata"]["deletionTimestamp"].is_null() && ready_status(pod) == "True"
        };
        Ok(pods.iter().filter(serves).map(|pod| name_of(pod).to_owned()).collect())
    }

    /// Waits until two pods are ready and none of these is among them.
    pub(super) fn await_replaced(&self, names: &[String]) -> Result<()> {
        until(format_args!("{names:?} to be replaced"), || {
            let now = self.replicas()?;
            let is_so = now.len() == 2 && !now.iter().any(|name| names.contains(name));
            Ok((is_so, format!("{now:?}")))
        })
    }

    /// Creates pods and deletes an empty namespace, both as dry runs, while `action` runs. Each must be allowed, and each pod must have
    /// its files. Returns the number of pairs.
    pub(super) fn under_load(&self, action: impl FnOnce(&Load<'_>) -> Result<()>) -> Result<usize> {
        let shop = self.node.namespace("shop")?;
        let empty = self.empty_namespace()?;
        let check = |_: usize, pod: Admitted| {
            pod.with_files(&DEFAULT_FILES)?.without_warnings()?;
            self.delete_as_dry_run(&empty)?.succeeded().map(drop)
        };
        let cluster = self.node.cluster();
        let failed = denied_unreviewed(cluster)?;
        let (calls, ()) =
            under_load_of(&shop, |shop, name| opted_in(shop, name).as_dry_run(), check, action)?;
        let failed = denied_unreviewed(cluster)? - failed;
        ensure!(failed < calls.starved as f64 + 0.5, "{failed} calls of the webhook failed: {calls:?}");
        Ok(calls.as_expected)
    }
}

/// Expects that a pod that opts in gets the default files.
pub(super) fn pod_gets_files(namespace: &Namespace<'_>) -> Result<()> {
    let pod = opted_in(namespace, "probe").as_dry_run();
    pod.is_admitted()?.with_files(&DEFAULT_FILES).map(drop)
}

/// Makes a pod that no node fits.
pub(super) fn without_node(pod: &mut Value) {
    pod["spec"]["nodeSelector"] = json!({"example.org/none": "yes"});
}

/// Returns the path of a collection in the release's namespace: `pods`, `apps/v1/deployments`.
pub(super) fn home_path(resource: &str) -> String {
    match resource.rsplit_once('/') {
        Some((group, resource)) => format!("/apis/{group}/namespaces/{HOME}/{resource}"),
        None => format!("/api/v1/namespaces/{HOME}/{resource}"),
    }
}

/// A protected namespace with a pod. It loses its pod on drop, so that its deletion is allowed.
pub(super) struct Used {
    namespace: TemporaryNamespace<'static>,
}

impl Deref for Used {
    type Target = Namespace<'static>;

    fn deref(&self) -> &Namespace<'static> {
        &self.namespace
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        let path = format!("/api/v1/namespaces/{}", self.namespace.name());
        let api = self.namespace.cluster().api();
        // The guard denies the removal of the label as well while the namespace is in use.
        let emptied = api.delete(&format!("{path}/pods?gracePeriodSeconds=0")).and_then(|answer| {
            answer.succeeded()?;
            eventually("the namespace to be unused", UNUSED_WITHIN, || {
                Ok(Poll::from(api.delete(&format!("{path}?dryRun=All"))?.succeeded().map(drop)))
            })
        });
        if let Err(error) = emptied {
            print(format_args!("the namespace {} is not emptied: {error:#}", self.namespace.name()));
        }
    }
}
