//! A member of the fleet: a cluster and its registration with Karmada.

use std::ops::Deref;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::PROPAGATED_WITHIN;
use super::control::{Control, listening, prompt};
use crate::binaries::Binary;
use crate::certificates;
use crate::context::TestContext;
use crate::controlplane::{Cluster, Options};
use crate::daemon::{Daemon, accepts};
use crate::namespace::Namespace;
use crate::supervisor::Tool;
use crate::wait::{Poll, eventually};

/// The controllers that make pods, remove the finalizers of PVCs and Jobs, and fill a new namespace.
const CONTROLLERS: &[&str] = &[
    "namespace",
    "garbagecollector",
    "serviceaccount",
    "serviceaccount-token",
    "root-ca-cert-publisher",
    "clusterrole-aggregation",
    "deployment",
    "replicaset",
    "statefulset",
    "daemonset",
    "job",
    "cronjob",
    "pvc-protection",
];

/// karmadactl waits for a token from the member's controllers, and for Karmada to release a member.
const JOINED_WITHIN: Duration = Duration::from_secs(120);

/// How Karmada and a member synchronize.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Karmada writes to the member.
    Push,
    /// An agent in the member reads from Karmada.
    Pull,
}

/// A member. It dereferences to its [`Cluster`].
#[derive(Debug)]
pub struct Member {
    name: String,
    mode: Mode,
    cluster: Cluster,
    /// The agent of a pull member that has joined.
    agent: Mutex<Option<Daemon>>,
}

impl Deref for Member {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl Member {
    /// Starts its cluster, which has not joined yet.
    pub(super) fn start(context: &TestContext, name: &str, mode: Mode) -> Result<Self> {
        // Without the plugin, pods can be made as soon as their namespace exists.
        let options =
            Options::named(name).with_these_controllers(CONTROLLERS).without_plugin("ServiceAccount");
        let cluster = context.own_cluster(&options)?;
        Ok(Self { cluster, name: name.to_owned(), mode, agent: Mutex::default() })
    }

    /// Returns its name in the fleet.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns how it synchronizes.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns a namespace that exists in the member.
    pub fn existing_namespace(&self, name: &str) -> Namespace<'_> {
        Namespace::of(&self.cluster, name)
    }

    /// Makes a running pod without Karmada. It has no node, so a deletion removes it at once.
    pub fn make_running_pod(&self, namespace: &Namespace<'_>, name: &str) -> Result<()> {
        self.make_pod(namespace, name, "Running")
    }

    /// Does the same with a phase: `Pending`, `Running`, `Succeeded`, `Failed`.
    pub fn make_pod(&self, namespace: &Namespace<'_>, name: &str, phase: &str) -> Result<()> {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [{"name": "app", "image": "images.example/app:1"}]},
        });
        let pods = namespace.path("pods");
        self.api().create(&pods, &pod)?.succeeded()?;
        let status = json!({"status": {"phase": phase}});
        self.api().merge(&format!("{pods}/{name}/status"), &status)?.succeeded()?;
        Ok(())
    }

    /// Waits until Karmada has propagated the object at this path, and returns the path of its Work.
    pub(super) fn await_brought(&self, path: &str) -> Result<String> {
        eventually(format_args!("{path} to reach {}", self.name), PROPAGATED_WITHIN, || {
            let answer = self.api().get(path)?;
            let Value::Object(marks) = &answer.body["metadata"]["annotations"] else {
                return Ok(Poll::Pending(format!("{} without annotations", answer.status)));
            };
            let mark = |key: &str| marks.get(&format!("work.karmada.io/{key}")).and_then(Value::as_str);
            Ok(match (mark("namespace"), mark("name")) {
                (Some(namespace), Some(name)) => {
                    Poll::Ready(format!("/apis/work.karmada.io/v1alpha1/namespaces/{namespace}/works/{name}"))
                }
                _ => Poll::Pending(format!("{} without the name of a Work", answer.status)),
            })
        })
    }

    /// Joins the fleet. It is Ready some seconds later.
    pub(super) fn join(&self, control: &Control) -> Result<()> {
        let joined = match self.mode {
            Mode::Push => self.join_by_push(control),
            Mode::Pull => self.join_by_pull(control),
        };
        joined.with_context(|| format!("{} does not join", self.name))
    }

    fn join_by_push(&self, control: &Control) -> Result<()> {
        let config = format!("--cluster-kubeconfig={}", self.kubectl().kubeconfig().display());
        control.karmadactl(&["join", &self.name, &config], JOINED_WITHIN).map(drop)
    }

    fn join_by_pull(&self, control: &Control) -> Result<()> {
        self.cluster.ensure_namespace("karmada-system")?;
        let karmada = control
            .cluster
            .certified(&format!("system:karmada:agent:{}", self.name), Some("system:masters"))?;
        let name = format!("karmada-agent-{}", self.name);
        let (tool, port) = listening(Tool::new(name, Binary::KarmadaAgent.path(&control.supervisor)?))?;
        let tool = prompt(tool)
            .flag("karmada-kubeconfig", karmada.kubectl.kubeconfig().display())
            .flag("kubeconfig", self.kubectl().kubeconfig().display())
            .flag("cluster-name", &self.name)
            .flag("cluster-api-endpoint", self.url());
        let agent = Daemon::start(&control.supervisor, tool, accepts(([127, 0, 0, 1], port)))?;
        agent.await_ready()?;
        *self.agent.lock().unwrap_or_else(PoisonError::into_inner) = Some(agent);
        Ok(())
    }

    /// Leaves the fleet. A pull member's agent runs until Karmada has released the member, because it deletes what was
    /// propagated.
    pub(super) fn unjoin(&self, control: &Control) -> Result<()> {
        match self.mode {
            Mode::Push => {
                let config = format!("--cluster-kubeconfig={}", self.kubectl().kubeconfig().display());
                // Unlike join, unjoin looks for a context of the member's name by default.
                let context = format!("--cluster-context={}", certificates::CONTEXT);
                // The default is a minute, and everything that was propagated is deleted first.
                let patience = "--wait=110s";
                control.karmadactl(&["unjoin", &self.name, &config, &context, patience], JOINED_WITHIN)?;
                self.await_left()?;
            }
            Mode::Pull => {
                control.delete_cluster(&self.name)?;
                let agent = self.agent.lock().unwrap_or_else(PoisonError::into_inner).take();
                let Some(agent) = agent else { bail!("{} has no agent", self.name) };
                agent.end()?;
            }
        }
        control.forget_credentials(&self.name)
    }

    /// Ends its processes. It stays in the fleet.
    pub(super) fn end(&self) {
        let agent = self.agent.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = agent.as_ref().map(Daemon::end);
        self.cluster.end();
    }

    /// karmadactl does not wait for the end of the namespace that it deletes in the member, which the next join would
    /// use.
    fn await_left(&self) -> Result<()> {
        eventually(format_args!("Karmada's namespace to be gone from {}", self.name), JOINED_WITHIN, || {
            let answer = self.api().get("/api/v1/namespaces/karmada-cluster")?;
            Ok(if answer.status == 404 { Poll::Ready(()) } else { Poll::Pending(answer.body.to_string()) })
        })
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.end();
    }
}
