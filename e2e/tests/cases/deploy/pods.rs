//! The pods of this room, and what is seen in them.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::namespace::Namespace;
use e2e::node::{self, RunningPod};
use e2e::pods::Pod;
use e2e::wait::{Poll, eventually};
use serde_json::{Value, json};

use crate::cases::house::SWITCH;

/// The labels of a namespace that lets no hostPath in.
pub(super) const RESTRICTED: [(&str, &str); 1] = [("pod-security.kubernetes.io/enforce", "restricted")];

/// It writes many times a second.
const COUNTED_WITHIN: Duration = Duration::from_secs(30);

/// Reads as fast as it can, counts, and writes down whatever was not 256 MiB.
const READER: &str = "trap 'exit 0' TERM; n=0; \
    while :; do n=$((n+1)); seen=$(head -n 1 /proc/meminfo 2>&1); echo $n >/tmp/count; \
    case $seen in 'MemTotal:'*' 262144 kB') ;; *) echo \"$n: $seen\" ;; esac; done";

/// A pod of one container, `app`, that may have 256 MiB and wants the files.
pub(super) fn wanting<'a>(namespace: &'a Namespace<'_>, name: &str) -> Pod<'a> {
    wanting_with(namespace, name, json!({}))
}

/// The same with more in its container.
pub(super) fn wanting_with<'a>(namespace: &'a Namespace<'_>, name: &str, more: Value) -> Pod<'a> {
    opted_in(namespace, name, node::idle(limited(more)))
}

/// The same, that reads all the time.
pub(super) fn reading<'a>(namespace: &'a Namespace<'_>, name: &str) -> Pod<'a> {
    opted_in(namespace, name, node::shell(READER, limited(json!({}))))
}

/// The same, as a namespace that is restricted lets it in.
pub(super) fn careful<'a>(namespace: &'a Namespace<'_>, name: &str) -> Pod<'a> {
    let context = json!({"securityContext": {
        "allowPrivilegeEscalation": false, "runAsNonRoot": true, "runAsUser": 65532,
        "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
    }});
    wanting_with(namespace, name, context)
}

fn opted_in<'a>(namespace: &'a Namespace<'_>, name: &str, container: Value) -> Pod<'a> {
    namespace
        .pod(name)
        .annotated(SWITCH, "enabled")
        .container_like("app", container)
        .with(|pod| pod["spec"]["terminationGracePeriodSeconds"] = 1.into())
}

fn limited(more: Value) -> Value {
    let mut container = json!({"resources": {
        "limits": {"memory": "256Mi", "cpu": "200m"}, "requests": {"memory": "4Mi", "cpu": "1m"},
    }});
    if let (Value::Object(container), Value::Object(more)) = (&mut container, more) {
        container.extend(more);
    }
    container
}

/// The container counts 256 MiB of memory.
pub(super) fn shows_256(pod: &RunningPod<'_>) -> Result<()> {
    let free = pod.exec("app", &["/usr/bin/free", "-m"])?;
    let total = free.lines().nth(1).and_then(|line| line.split_ascii_whitespace().nth(1));
    ensure!(total == Some("256"), "in pod {} free says {free}", pod.name());
    Ok(())
}

/// How often a reading pod has read so far, all of which must have been 256 MiB.
pub(super) fn read_256(pod: &RunningPod<'_>) -> Result<u64> {
    let said = pod.logs("app")?;
    ensure!(said.is_empty(), "pod {} did not read 256 MiB all the time: {said}", pod.name());
    // For a moment of each round the file is empty.
    eventually("the pod to say how often it has read", COUNTED_WITHIN, || {
        let count = pod.exec("app", &["cat", "/tmp/count"])?;
        Ok(count.trim().parse().map_or_else(|_| Poll::Pending(format!("it counts {count:?}")), Poll::Ready))
    })
}

/// Ends the first process of its container, and returns when the kubelet has started it anew.
pub(super) fn started_anew(pod: RunningPod<'_>) -> Result<RunningPod<'_>> {
    let restarts = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"].as_u64();
    let before = restarts(&pod.object()?);
    // The command may end with the container, and then nobody hears how.
    pod.attempt("app", &["kill", "1"])?;
    pod.becomes("started anew", |pod| restarts(pod) > before)?.is_ready()
}

/// The pod as the API server has it has no volume of the node's.
pub(super) fn without_host_paths(pod: &Value) -> Result<()> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let of_host: Vec<_> = volumes.filter(|volume| !volume["hostPath"].is_null()).collect();
    ensure!(of_host.is_empty(), "the pod has {}", json!(of_host));
    Ok(())
}
