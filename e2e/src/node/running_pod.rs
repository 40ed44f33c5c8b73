//! A pod on the node, seen from outside and inside. Errors of waits contain its state, events and logs.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::controlplane::Cluster;
use crate::namespace::Namespace;
use crate::supervisor::Output;
use crate::wait::{Poll, eventually};

/// A container runs a second after its pod was made. A kubelet that tries a mount again waits for up to two minutes.
const RUNS_WITHIN: Duration = Duration::from_secs(180);

/// The grace period of thirty seconds, and the same again.
const GONE_WITHIN: Duration = Duration::from_secs(60);

/// A pod of this name.
#[derive(Debug, Clone)]
pub struct RunningPod<'a> {
    cluster: &'a Cluster,
    namespace: String,
    name: String,
}

impl<'a> RunningPod<'a> {
    pub(super) fn new(namespace: &Namespace<'a>, name: &str) -> Self {
        let cluster = namespace.cluster();
        Self { cluster, namespace: namespace.name().to_owned(), name: name.to_owned() }
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits until it is Ready.
    pub fn is_ready(self) -> Result<Self> {
        self.await_state("Ready", |pod| condition(pod, "Ready"))
    }

    /// Waits until all its containers have ended with success.
    pub fn is_done(self) -> Result<Self> {
        self.await_state("Succeeded", |pod| pod["status"]["phase"] == "Succeeded")
    }

    /// Waits until `is` accepts the pod. `what` is for the error. Fails early if the pod has ended.
    pub fn await_state(self, what: &str, is: impl Fn(&Value) -> bool) -> Result<Self> {
        let waited = eventually(format_args!("pod {} to be {what}", self.name), RUNS_WITHIN, || {
            let pod = self.object()?;
            if is(&pod) {
                return Ok(Poll::Ready(()));
            }
            let phase = pod["status"]["phase"].as_str().unwrap_or_default();
            if matches!(phase, "Failed" | "Succeeded") {
                bail!("the pod was to be {what}, and it is {phase}");
            }
            Ok(Poll::Pending(phase.to_owned()))
        });
        match waited {
            Ok(()) => Ok(self),
            Err(error) => Err(self.failure(error)),
        }
    }

    /// Waits for an event with this text and returns its reason and message.
    pub fn await_event(&self, text: &str) -> Result<String> {
        let waited = eventually(format_args!("an event with {text:?}"), RUNS_WITHIN, || {
            let events = self.events()?;
            Ok(match events.iter().find(|event| event.contains(text)) {
                Some(event) => Poll::Ready(event.clone()),
                None => Poll::Pending(format!("{events:?}")),
            })
        });
        waited.map_err(|error| self.failure(error))
    }

    /// Returns all its events, as `Reason: message`.
    pub fn events(&self) -> Result<Vec<String>> {
        let query = format!("fieldSelector=involvedObject.name%3D{}", self.name);
        let path = format!("/api/v1/namespaces/{}/events?{query}", self.namespace);
        let events = self.cluster.api().get(&path)?.succeeded()?.body;
        let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
        let items = events["items"].as_array().into_iter().flatten();
        Ok(items.map(|event| format!("{}: {}", text(event, "reason"), text(event, "message"))).collect())
    }

    /// Runs a command in a container (`kubectl exec`), expects success and returns standard output.
    pub fn exec(&self, container: &str, command: &[&str]) -> Result<String> {
        let output = self.attempt(container, command)?.succeeded();
        let output = output.with_context(|| format!("{command:?} in {container} of pod {}", self.name))?;
        Ok(output.stdout)
    }

    /// Runs a command in a container and returns its output, whatever its exit code.
    pub fn attempt(&self, container: &str, command: &[&str]) -> Result<Output> {
        let mut arguments = vec!["exec", "-n", &self.namespace, &self.name, "-c", container, "--"];
        arguments.extend(command);
        self.cluster.kubectl().run(&arguments)
    }

    /// Returns the log of a container (`kubectl logs`).
    pub fn logs(&self, container: &str) -> Result<String> {
        let arguments = ["logs", "-n", &self.namespace, &self.name, "-c", container];
        Ok(self.cluster.kubectl().run(&arguments)?.succeeded()?.stdout)
    }

    /// Returns the pod object.
    pub fn object(&self) -> Result<Value> {
        Ok(self.cluster.api().get(&self.path())?.succeeded()?.body)
    }

    /// Deletes it and waits until it is gone.
    pub fn is_deleted(self) -> Result<()> {
        self.cluster.api().delete(&self.path())?.succeeded()?;
        eventually(format_args!("pod {} to be gone", self.name), GONE_WITHIN, || {
            let answer = self.cluster.api().get(&self.path())?;
            Ok(if answer.status == 404 {
                Poll::Ready(())
            } else {
                Poll::Pending(format!("{}", answer.status))
            })
        })
    }

    fn path(&self) -> String {
        format!("/api/v1/namespaces/{}/pods/{}", self.namespace, self.name)
    }

    /// Returns an error with everything that is known of the pod.
    pub fn failure(&self, what: impl std::fmt::Display) -> anyhow::Error {
        let pod = self.object().unwrap_or_default();
        let events = self.events().unwrap_or_default().join("\n  ");
        let said: Vec<_> = ["initContainers", "containers"]
            .iter()
            .filter_map(|list| pod["spec"][list].as_array())
            .flatten()
            .filter_map(|container| container["name"].as_str())
            .filter_map(|name| Some(format!("{name}: {}", self.logs(name).ok()?.trim_end())))
            .collect();
        let said = said.join("\n  ");
        let state = state(&pod);
        anyhow::anyhow!("{what}\nstate:\n  {state}\nevents:\n  {events}\nlogs:\n  {said}")
    }
}

/// Returns the conditions and container states of a pod that are not as wanted, one per line.
fn state(pod: &Value) -> String {
    let status = &pod["status"];
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let unmet = conditions
        .filter(|condition| condition["status"] != "True")
        .map(|condition| format!("not {}: {}", condition["type"], condition["message"]));
    let containers = ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"];
    let containers =
        containers.iter().filter_map(|list| status[list].as_array()).flatten().map(|container| {
            let (name, now, last) = (&container["name"], &container["state"], &container["lastState"]);
            format!("container {name}: {now}, before that {last}")
        });
    let lines = std::iter::once(format!("phase {}", status["phase"])).chain(unmet).chain(containers);
    lines.collect::<Vec<_>>().join("\n  ")
}

/// Returns whether this condition of a pod or a node is `True`.
pub(super) fn condition(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.filter(|condition| condition["type"] == kind).any(|condition| condition["status"] == "True")
}
