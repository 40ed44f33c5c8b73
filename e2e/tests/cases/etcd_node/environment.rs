//! The node of the chart, with Durward in pods. One case at a time uses it, because the cases measure times.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use e2e::node::{self, TemporaryNamespace};
use e2e::prelude::*;

use crate::cases::chart::environment::node_without_release;
use crate::cases::etcd::environment::{LABEL, Profile, guards};
use crate::cases::in_pods;
use crate::cases::pages::Shell;

/// A member in a container that shares two processors with everything else needs more than a second for a read from disk. It has a
/// tenth of this time.
const PATIENT: &str = "webhook: {timeoutSeconds: 30}";

pub(super) struct Environment {
    pub(super) node: &'static Node,
    pub(super) namespace: Namespace<'static>,
    /// The directory with `durward.yaml` and `tls`.
    pub(super) directory: PathBuf,
    /// Whether a case has changed the node or Durward, and failed before it undid the change.
    is_changed: AtomicBool,
}

impl Environment {
    /// Creates a namespace for one case, with this profile or without a guard.
    pub(super) fn namespace(
        &self,
        name: &str,
        profile: Option<Profile>,
    ) -> Result<TemporaryNamespace<'static>> {
        match profile {
            Some(profile) => self.node.labelled_namespace(name, &[(LABEL, &profile.name())]),
            None => self.node.namespace(name),
        }
    }

    /// Runs steps that cordon the node, scale Durward or remove its webhook configurations, and that undo the change. If the steps
    /// fail, the next case undoes the change.
    pub(super) fn changing<T>(&self, steps: impl FnOnce() -> Result<T>) -> Result<T> {
        self.is_changed.store(true, Ordering::SeqCst);
        let result = steps()?;
        self.is_changed.store(false, Ordering::SeqCst);
        Ok(result)
    }

    /// Undoes the changes of a failed case.
    fn restore(&self, context: &TestContext) -> Result<()> {
        if !self.is_changed.load(Ordering::SeqCst) {
            return Ok(());
        }
        print("a failed case has changed the node of the etcd cases: restoring it");
        let shell = Shell::new(context, self.node.cluster(), &self.directory)?;
        shell.run(&format!("kubectl uncordon {}", node::NAME))?.succeeded()?;
        let overrides =
            ["anyway", "reason", "until"].map(|key| format!("durward.dev/delete-{key}-")).join(" ");
        for objects in ["pods --all --all-namespaces", "namespaces --all"] {
            shell.run(&format!("kubectl annotate {objects} {overrides}"))?.succeeded()?;
        }
        shell.run("kubectl -n durward-system scale deployment durward --replicas=2")?.succeeded()?;
        self.node.await_workload(&self.namespace, "deployments", "durward")?;
        shell.restore_webhooks()?;
        self.await_guard()?;
        self.is_changed.store(false, Ordering::SeqCst);
        Ok(())
    }

    /// Waits until pods of etcd are reviewed. The probe does not listen, so the verdict says that it was not reachable.
    pub(super) fn await_guard(&self) -> Result<()> {
        let probe = self.namespace("probe", Some(Profile::Transfer))?;
        let container = node::idle(json!({}));
        probe.pod("etcd").labelled("app", "etcd").container_like("etcd", container).is_admitted()?;
        self.node.pod(&probe, "etcd").is_ready()?;
        let path = format!("{}/etcd?dryRun=All", probe.path("pods"));
        until("pods of etcd to be guarded", || {
            let answer = self.node.cluster().api().delete(&path)?;
            let (status, message) = (answer.status, answer.message());
            let is_guarded = message.contains("cannot check etcd quorum");
            let seen = || format!("{status}: {message:?}, {:?}", answer.warnings);
            Ok((is_guarded, seen()))
        })
        .context("Durward in pods")
    }
}

/// Waits until no other case uses the environment, and restores it after a failed case.
pub(super) fn exclusive(context: &'static TestContext) -> Result<MutexGuard<'static, Environment>> {
    static ENVIRONMENT: Lazy<Mutex<Environment>> = Lazy::new();
    let environment = ENVIRONMENT.get(|| start(context).map(Mutex::new));
    let environment = environment.context("the node of the etcd cases does not start")?;
    let environment = environment.lock().unwrap_or_else(PoisonError::into_inner);
    environment
        .restore(context)
        .context("an earlier case has left this node changed, and it can't be restored")?;
    Ok(environment)
}

fn start(context: &'static TestContext) -> Result<Environment> {
    let node = node_without_release(context)?;
    node.image(context, Image::Etcd)?;
    let restricted = [("pod-security.kubernetes.io/enforce", "restricted")];
    let namespace = node.cluster().exact_namespace("durward-system", &restricted)?;
    // The other guards are for the runbooks. Without a fleet, deletion guards only objects with its label.
    let others = "  deletion: {fleet: none, scope: labeled}\n  lxcfs: {webhook: {failurePolicy: Fail}}";
    let guards = format!("{}\n{others}", guards(&[PATIENT]));
    let directory = in_pods::install(context, node, &namespace, &guards)?;
    let environment = Environment { node, namespace, directory, is_changed: AtomicBool::new(false) };
    environment.await_guard()?;
    Ok(environment)
}
