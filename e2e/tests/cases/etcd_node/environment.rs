//! A node for this area, with Durward in pods. One case at a time uses it, because the cases measure times.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use e2e::node::{self, TemporaryNamespace};
use e2e::prelude::*;

use crate::cases::etcd::environment::{LABEL, Profile, guards};
use crate::cases::in_pods;

pub(super) struct Environment {
    pub(super) node: &'static Node,
    pub(super) namespace: Namespace<'static>,
    /// The directory with `durward.yaml` and `tls`.
    pub(super) directory: PathBuf,
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

/// Waits until no other case uses the environment.
pub(super) fn exclusive(context: &'static TestContext) -> Result<MutexGuard<'static, Environment>> {
    static ENVIRONMENT: Lazy<Mutex<Environment>> = Lazy::new();
    let environment = ENVIRONMENT.get(|| start(context).map(Mutex::new));
    let environment = environment.context("the node of the etcd cases does not start")?;
    Ok(environment.lock().unwrap_or_else(PoisonError::into_inner))
}

fn start(context: &'static TestContext) -> Result<Environment> {
    // The node lives as long as the process; the supervisor stops it.
    let node: &'static Node = Box::leak(Box::new(context.own_node()?));
    node.image(context, Image::Etcd)?;
    let restricted = [("pod-security.kubernetes.io/enforce", "restricted")];
    let namespace = node.cluster().exact_namespace("durward-system", &restricted)?;
    // The other guards are for the runbooks. Without a fleet, deletion guards only objects with its label.
    let others = "  deletion: {fleet: none}\n  lxcfs: {webhook: {failurePolicy: Fail}}";
    let guards = format!("{}\n{others}", guards(&[]));
    let directory = in_pods::install(context, node, &namespace, &guards)?;
    let environment = Environment { node, namespace, directory };
    environment.await_guard()?;
    Ok(environment)
}
