//! The pods of this area, and checks in them.

use e2e::node;
use e2e::prelude::*;

use crate::cases::environment::{opted_in, restricted_container, with_short_grace};

/// The labels of a namespace that denies hostPath volumes.
pub(super) const RESTRICTED: [(&str, &str); 1] = [("pod-security.kubernetes.io/enforce", "restricted")];

/// Reads as fast as possible, counts, and prints every value that is not 256 MiB.
const READER: &str = "trap 'exit 0' TERM; n=0; \
    while :; do n=$((n+1)); seen=$(head -n 1 /proc/meminfo 2>&1); echo $n >/tmp/count; \
    case $seen in 'MemTotal:'*' 262144 kB') ;; *) echo \"$n: $seen\" ;; esac; done";

/// Returns a pod with one container `app` and a limit of 256 MiB that opts in.
pub(super) fn limited_pod<'a>(namespace: &'a Namespace<'_>, name: &str) -> Pod<'a> {
    pod_like(namespace, name, node::idle(limits()))
}

/// Returns the same pod, which reads all the time.
pub(super) fn reading_pod<'a>(namespace: &'a Namespace<'_>, name: &str) -> Pod<'a> {
    pod_like(namespace, name, node::shell(READER, limits()))
}

/// Returns the same pod, which the level `restricted` allows.
pub(super) fn restricted_pod<'a>(namespace: &'a Namespace<'_>, name: &str) -> Pod<'a> {
    pod_like(namespace, name, node::idle(restricted_container(limits())))
}

fn pod_like<'a>(namespace: &'a Namespace<'_>, name: &str, container: Value) -> Pod<'a> {
    opted_in(namespace, name).container_like("app", container).with(with_short_grace)
}

fn limits() -> Value {
    json!({"resources": {
        "limits": {"memory": "256Mi", "cpu": "200m"}, "requests": {"memory": "4Mi", "cpu": "1m"},
    }})
}

/// Expects 256 MiB of memory in the container.
pub(super) fn has_256_mib(pod: &RunningPod<'_>) -> Result<()> {
    let free = pod.exec("app", &["/usr/bin/free", "-m"])?;
    let total = free.lines().nth(1).and_then(|line| line.split_ascii_whitespace().nth(1));
    ensure!(total == Some("256"), "in pod {} free prints {free}", pod.name());
    Ok(())
}

/// Returns how often a reading pod has read. All reads must be 256 MiB.
pub(super) fn count_reads(pod: &RunningPod<'_>) -> Result<u64> {
    let output = pod.logs("app")?;
    ensure!(output.is_empty(), "pod {} read other values than 256 MiB: {output}", pod.name());
    // The file is empty for a moment in each iteration.
    eventually("the count of the pod's reads", WAIT_LIMIT, || {
        let count = pod.exec("app", &["cat", "/tmp/count"])?;
        Ok(count
            .trim()
            .parse()
            .map_or_else(|_| Poll::Pending(format!("the count is {count:?}")), Poll::Ready))
    })
}

/// Ends the first process of the container, and waits until the kubelet has restarted it.
pub(super) fn restarted(pod: RunningPod<'_>) -> Result<RunningPod<'_>> {
    let restarts = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"].as_u64();
    let before = restarts(&pod.object()?);
    // The command can end with the container.
    pod.attempt("app", &["kill", "1"])?;
    pod.await_state("started anew", |pod| restarts(pod) > before)?.is_ready()
}

pub(super) fn without_host_paths(pod: &Value) -> Result<()> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let of_host: Vec<_> = volumes.filter(|volume| !volume["hostPath"].is_null()).collect();
    ensure!(of_host.is_empty(), "the pod has {}", json!(of_host));
    Ok(())
}
