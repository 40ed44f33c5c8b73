//! A member of the fleet: a cluster, and how Karmada has it.

use std::ops::Deref;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::PROPAGATED_WITHIN;
use super::control::{Control, listening, listens, make_namespace};
use crate::binaries::Binary;
use crate::certificates;
use crate::context::TestContext;
use crate::controlplane::{Cluster, Options};
use crate::daemon::Daemon;
use crate::namespace::Namespace;
use crate::supervisor::Tool;
use crate::wait::{Poll, eventually};

/// Enough for workloads to become pods, for claims and Jobs to lose the finalizers that only these take away,
/// and for a namespace to have in it what an empty one has.
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

/// karmadactl waits for a token that the member's controllers issue, and for Karmada to let go of a member.
const JOINED_WITHIN: Duration = Duration::from_secs(120);

/// How Karmada and a member come together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Karmada writes into the member.
    Push,
    /// An agent in the member fetches from Karmada.
    Pull,
}

/// A member that is to be.
#[derive(Debug, Clone)]
#[must_use = "nobody joins before `join_more`"]
pub struct NewMember {
    name: String,
    mode: Mode,
    published: Option<String>,
}

impl NewMember {
    /// One that Karmada writes to.
    pub fn push(name: &str) -> Self {
        Self { name: name.to_owned(), mode: Mode::Push, published: None }
    }

    /// One that fetches.
    pub fn pull(name: &str) -> Self {
        Self { mode: Mode::Pull, ..Self::push(name) }
    }

    /// Reached by Karmada at another URL than its own, from the beginning: see [`super::Fleet::publish`].
    pub fn behind(mut self, url: &str) -> Self {
        self.published = Some(url.to_owned());
        self
    }
}

/// A member. It is a [`Cluster`], with all that can be done to one.
#[derive(Debug)]
pub struct Member {
    name: String,
    mode: Mode,
    published: Option<String>,
    cluster: Cluster,
    /// Of a pull member that has joined.
    agent: Mutex<Option<Daemon>>,
}

impl Deref for Member {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl Member {
    /// Starts its cluster. It has not joined yet.
    pub(super) fn start(context: &TestContext, recruit: NewMember) -> Result<Self> {
        let NewMember { name, mode, published } = recruit;
        // Without the plugin a pod can be made in a namespace the moment that the namespace is there.
        let options =
            Options::named(&name).with_these_controllers(CONTROLLERS).without_plugin("ServiceAccount");
        Ok(Self { cluster: context.own_cluster(&options)?, name, mode, published, agent: Mutex::default() })
    }

    /// Its name in the fleet.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it joined.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// A namespace of it that it has from Karmada, or had already.
    pub fn known_namespace(&self, name: &str) -> Namespace<'_> {
        Namespace::of(&self.cluster, name)
    }

    /// Makes a pod without Karmada's knowledge that looks like one that runs. It belongs to no node, so it is
    /// gone at once when it is deleted.
    pub fn runs_pod(&self, namespace: &Namespace<'_>, name: &str) -> Result<()> {
        self.has_pod(namespace, name, "Running")
    }

    /// The same with any phase: `Pending`, `Running`, `Succeeded`, `Failed`.
    pub fn has_pod(&self, namespace: &Namespace<'_>, name: &str, phase: &str) -> Result<()> {
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

    /// Waits until Karmada has brought what stands at this path; returns the path of the Work that it came by.
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

    /// Has it join the fleet, for the first time or again. It is Ready some seconds later.
    pub(super) fn join(&self, control: &Control) -> Result<()> {
        let joined = match self.mode {
            Mode::Push => self.join_by_push(control),
            Mode::Pull => self.join_by_pull(control),
        };
        joined.with_context(|| format!("{} does not join", self.name))
    }

    fn join_by_push(&self, control: &Control) -> Result<()> {
        let config = format!("--cluster-kubeconfig={}", self.kubectl().kubeconfig().display());
        control.karmadactl(&["join", &self.name, &config], JOINED_WITHIN)?;
        match &self.published {
            // karmadactl publishes the very URL that it joins by, with an administrator's certificate: whoever
            // stands at the other URL could not pass that on.
            Some(url) => control.publish(&self.name, url),
            None => Ok(()),
        }
    }

    fn join_by_pull(&self, control: &Control) -> Result<()> {
        make_namespace(&self.cluster, "karmada-system")?;
        let karmada = control
            .cluster
            .certified(&format!("system:karmada:agent:{}", self.name), Some("system:masters"))?;
        let name = format!("karmada-agent-{}", self.name);
        let (tool, port) = listening(Tool::new(name, Binary::KarmadaAgent.path(&control.supervisor)?))?;
        let tool = tool
            .flag("karmada-kubeconfig", karmada.kubectl.kubeconfig().display())
            .flag("kubeconfig", self.kubectl().kubeconfig().display())
            .flag("cluster-name", &self.name)
            .flag("cluster-api-endpoint", self.published.as_deref().unwrap_or(self.url()))
            .flag("leader-elect", false)
            .flag("cluster-status-update-frequency", "2s")
            .flag("cluster-success-threshold", "1s");
        let agent = Daemon::start(&control.supervisor, tool, listens(port))?;
        agent.await_ready()?;
        *self.agent.lock().unwrap_or_else(PoisonError::into_inner) = Some(agent);
        Ok(())
    }

    /// Has it leave. A pull member's agent stays until Karmada has let go, for it must take back what it
    /// brought.
    pub(super) fn unjoin(&self, control: &Control) -> Result<()> {
        match self.mode {
            Mode::Push => {
                let config = format!("--cluster-kubeconfig={}", self.kubectl().kubeconfig().display());
                // Other than join, unjoin looks for a context of the member's name if it is told none.
                let context = format!("--cluster-context={}", certificates::CONTEXT);
                // Of its own accord it waits a minute, and all that Karmada has brought has to go first.
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

    /// karmadactl does not wait for the end of the namespace that it deletes in the member, in which the next
    /// join would want to make something.
    fn await_left(&self) -> Result<()> {
        eventually(format_args!("Karmada's namespace to be gone from {}", self.name), JOINED_WITHIN, || {
            let answer = self.api().get("/api/v1/namespaces/karmada-cluster")?;
            Ok(if answer.status == 404 { Poll::Ready(()) } else { Poll::Pending(answer.body.to_string()) })
        })
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let agent = self.agent.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = agent.as_ref().map(Daemon::end);
    }
}
