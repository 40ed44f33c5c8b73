//! Workloads on the node.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use serde_json::Value;

use super::Node;
use super::running_pod::condition;
use crate::namespace::Namespace;
use crate::wait::{Poll, eventually};

/// The time of one pod and of another one that it replaces.
const READY_WITHIN: Duration = Duration::from_secs(240);

impl Node {
    /// Waits until the Deployment, `StatefulSet` or `DaemonSet` (`deployments`, …) of this name has all pods Ready and
    /// up to date. With the update strategy `OnDelete`, a `DaemonSet` can have old ones. The error has the state of
    /// each pod.
    pub fn await_workload(&self, namespace: &Namespace<'_>, resource: &str, name: &str) -> Result<()> {
        let api = self.cluster().api();
        let path = format!("{}/{name}", namespace.path(&format!("apps/v1/{resource}")));
        let waited = eventually(format_args!("{resource}/{name} to be ready"), READY_WITHIN, || {
            let answer = api.get(&path)?;
            Ok(if answer.is_success() && is_ready(&answer.body) {
                Poll::Ready(())
            } else {
                Poll::Pending(format!("{} {}", answer.status, answer.body["status"]))
            })
        });
        waited.map_err(|error| match self.unready_pods(namespace) {
            Ok(pods) => anyhow!("{error:#}\n{pods}"),
            Err(_) => error,
        })
    }

    /// Returns the pods of a namespace that are not Ready, with everything that is known of each.
    fn unready_pods(&self, namespace: &Namespace<'_>) -> Result<String> {
        let pods = self.cluster().api().get(&namespace.path("pods"))?.succeeded()?.body;
        let pods = pods["items"].as_array().context("a list without items")?;
        let unready = pods.iter().filter(|pod| !condition(pod, "Ready"));
        let names = unready.filter_map(|pod| pod["metadata"]["name"].as_str());
        let failures = names.map(|name| format!("{:#}", self.pod(namespace, name).failure(name)));
        Ok(failures.collect::<Vec<_>>().join("\n"))
    }
}

fn is_ready(object: &Value) -> bool {
    let (spec, status) = (&object["spec"], &object["status"]);
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    if status["observedGeneration"] != object["metadata"]["generation"] {
        return false;
    }
    if object["kind"] == "DaemonSet" {
        let wanted = number(&status["desiredNumberScheduled"]);
        let is_new = spec["updateStrategy"]["type"] == "OnDelete"
            || number(&status["updatedNumberScheduled"]) == wanted;
        return wanted > 0 && is_new && number(&status["numberReady"]) == wanted;
    }
    let wanted = number(&spec["replicas"]);
    number(&status["readyReplicas"]) == wanted
        && number(&status["updatedReplicas"]) == wanted
        && number(&status["replicas"]) == wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn deployment(status: &Value) -> Value {
        let mut object = json!({
            "kind": "Deployment", "metadata": {"generation": 2}, "spec": {"replicas": 2},
            "status": {"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2},
        });
        for (key, value) in status.as_object().unwrap() {
            object["status"][key] = value.clone();
        }
        object
    }

    #[test]
    fn a_deployment_is_ready_when_all_its_pods_are_ready_and_new() {
        assert!(is_ready(&deployment(&json!({}))));
        assert!(!is_ready(&deployment(&json!({"readyReplicas": 1}))));
        assert!(!is_ready(&deployment(&json!({"updatedReplicas": 1}))));
        assert!(!is_ready(&deployment(&json!({"replicas": 3}))), "an old pod is still there");
        assert!(
            !is_ready(&deployment(&json!({"observedGeneration": 1}))),
            "its controller has not seen the change"
        );
    }

    #[test]
    fn a_daemon_set_needs_at_least_one_node() {
        let set = |strategy: &str, wanted: u64, updated: u64| {
            json!({
                "kind": "DaemonSet", "metadata": {"generation": 1},
                "spec": {"updateStrategy": {"type": strategy}},
                "status": {
                    "observedGeneration": 1, "desiredNumberScheduled": wanted,
                    "updatedNumberScheduled": updated, "numberReady": wanted,
                },
            })
        };
        assert!(is_ready(&set("RollingUpdate", 1, 1)));
        assert!(!is_ready(&set("RollingUpdate", 1, 0)));
        assert!(is_ready(&set("OnDelete", 1, 0)));
        assert!(!is_ready(&set("OnDelete", 0, 0)));
    }
}
