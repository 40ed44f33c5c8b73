//! LXCFS stops or crashes under running pods and returns. The texts of the events are in the guard's page
//! under "When it does not work".

use e2e::node::{self, NAME};
use e2e::prelude::*;

use super::environment::{ExclusiveNode, exclusive, shared_with};
use super::view::{ContainerView, idle_pod, ready};
use crate::cases::environment::{OPT_IN, opted_in};
use crate::cases::files::{DEFAULT_FILES, LxcfsChecks as _};
use crate::cases::objects::contains_all;

/// The error of a read from an LXCFS that is gone (ENOTCONN).
const DEAD: &str = "Transport endpoint is not connected";

/// One of the files, on the node.
const MEMINFO: &str = "/var/lib/lxcfs/proc/meminfo";

#[e2e::case(Exclusive)]
fn a_stopped_lxcfs_breaks_containers_until_they_restart(context: &'static TestContext) -> Result<()> {
    let node = exclusive(context)?;
    let shop = node.namespace("shop")?;
    let running = running_pod_with_files(&node, &shop, "running")?;

    let stopped = node.lxcfs().stop()?;
    cannot_read_files(&running)?;
    idle_pod(&shop, "late")
        .annotated(OPT_IN, "enabled")
        .is_admitted()?
        .with_files(&DEFAULT_FILES)?
        .without_warnings()?;
    let late = node.pod(&shop, "late");
    waits_for_files(&late)?;
    let event = node.cluster().kubectl().run(&["describe", "pod", "-n", shop.name(), "late"])?.succeeded()?;
    let line = format!("hostPath type check failed: {MEMINFO} is not a file");
    ensure!(event.stdout.contains(&line), "kubectl describe prints {}", event.stdout);

    stopped.undo()?;
    // With the kubelet's next retry.
    ContainerView::read(&late.is_ready()?, "app")?.with_memory(256)?;
    // Its mounts belong to the LXCFS that is gone.
    cannot_read_files(&running)?;
    end_container(&running)?;
    ContainerView::read(&restarted(running)?, "app")?.with_memory(256).map(drop)
}

#[e2e::case(Exclusive)]
fn a_container_that_restarts_without_lxcfs_starts_when_it_returns(
    context: &'static TestContext,
) -> Result<()> {
    let node = exclusive(context)?;
    let shop = node.namespace("shop")?;
    let running = running_pod_with_files(&node, &shop, "running")?;

    let stopped = node.lxcfs().stop()?;
    end_container(&running)?;
    // The kubelet checks volume types when a pod starts, not when a container does. The runtime creates a
    // directory for a missing source.
    let event = running.await_event("not a directory")?;
    contains_all(&event, &["error mounting \"/var/lib/lxcfs/proc/"])?;
    ensure!(node.path(MEMINFO).is_dir(), "there is no directory at {MEMINFO}");
    // A new pod gets the same event as without a directory.
    opted_in(&shop, "late").container_like("app", node::idle(json!({}))).is_admitted()?;
    waits_for_files(&node.pod(&shop, "late"))?;

    // LXCFS mounts over the directories.
    stopped.undo()?;
    ContainerView::read(&restarted(running)?, "app")?.with_memory(256)?;
    node.pod(&shop, "late").is_ready().map(drop)
}

#[e2e::case(Exclusive)]
fn a_dead_mount_of_a_killed_lxcfs_prevents_container_starts(context: &'static TestContext) -> Result<()> {
    let node = exclusive(context)?;
    let shop = node.namespace("shop")?;
    let running = running_pod_with_files(&node, &shop, "running")?;
    let unlucky = running_pod_with_files(&node, &shop, "unlucky")?;
    let leaving = running_pod_with_files(&node, &shop, "leaving")?;

    let killed = node.lxcfs().kill()?;
    cannot_read_files(&running)?;
    end_container(&unlucky)?;
    let event = unlucky.await_event("transport endpoint is not connected")?;
    contains_all(&event, &["failed to stat \"/var/lib/lxcfs/proc/"])?;
    idle_pod(&shop, "late").annotated(OPT_IN, "enabled").is_admitted()?;
    let late = node.pod(&shop, "late");
    waits_for_files(&late)?;
    // A dead mount does not prevent a deletion.
    leaving.is_deleted()?;

    killed.undo()?;
    ContainerView::read(&late.is_ready()?, "app")?.with_memory(256)?;
    ContainerView::read(&restarted(unlucky)?, "app")?.with_memory(256)?;
    cannot_read_files(&running)
}

#[e2e::case(Reconfigures)]
fn a_pod_waits_for_the_label_of_a_ready_node(context: &'static TestContext) -> Result<()> {
    let node = shared_with(context, "  lxcfs: {nodeAffinity: required}")?;
    let shop = node.namespace("shop")?;
    let label = |value: Value| {
        let labels = json!({"metadata": {"labels": {"durward.dev/lxcfs-ready": value}}});
        node.cluster().api().merge(&format!("/api/v1/nodes/{NAME}"), &labels)?.succeeded().map(drop)
    };
    idle_pod(&shop, "web").annotated(OPT_IN, "enabled").is_admitted()?.without_warnings()?;
    let web = node.pod(&shop, "web");
    let event = web.await_event("didn't match Pod's node affinity/selector")?;
    contains_all(&event, &["FailedScheduling: 0/1 nodes are available: 1 node(s)"])?;
    label("true".into())?;
    let seen = web.is_ready().and_then(|web| ContainerView::read(&web, "app")?.with_memory(256));
    label(Value::Null)?;
    seen.map(drop)
}

/// Returns a running pod that sees its files.
fn running_pod_with_files<'a>(
    node: &ExclusiveNode,
    shop: &Namespace<'a>,
    name: &str,
) -> Result<RunningPod<'a>> {
    let admitted = idle_pod(shop, name).annotated(OPT_IN, "enabled").is_admitted()?;
    let pod = ready(node, shop, &admitted)?;
    ContainerView::read(&pod, "app")?.with_memory(256)?;
    Ok(pod)
}

/// Expects reads of the files to fail, while programs that ask the kernel work.
fn cannot_read_files(pod: &RunningPod<'_>) -> Result<()> {
    let read = DEFAULT_FILES.map(|file| format!("/bin/cat /proc/{file}")).join("; ");
    let read = pod.attempt("app", &["sh", "-c", &format!("{read}; /usr/bin/nproc; /usr/bin/free -m")])?;
    for file in DEFAULT_FILES {
        let event = format!("can't open '/proc/{file}': {DEAD}");
        ensure!(read.stderr.contains(&event), "the pod reads {read:?} from {file}");
    }
    ensure!(read.stderr.contains("Unable to create meminfo"), "free prints {read:?}");
    ensure!(!read.is_success() && read.stdout.trim().parse::<u32>().is_ok(), "nproc prints {read:?}");
    Ok(())
}

/// Expects the events of the kubelet for a pod whose files are missing.
fn waits_for_files(pod: &RunningPod<'_>) -> Result<()> {
    for file in DEFAULT_FILES {
        let path = format!("/var/lib/lxcfs/proc/{file}");
        let event = pod.await_event(&format!("hostPath type check failed: {path} is not a file"))?;
        let began = format!("FailedMount: MountVolume.SetUp failed for volume \"lxcfs-{file}\"");
        ensure!(event.starts_with(&began), "the event is {event}");
    }
    Ok(())
}

/// Ends the container from within, as a crash does.
fn end_container(pod: &RunningPod<'_>) -> Result<()> {
    // The answer can get lost with the container.
    pod.attempt("app", &["kill", "1"]).map(drop)
}

/// Waits until its container runs again.
fn restarted(pod: RunningPod<'_>) -> Result<RunningPod<'_>> {
    pod.await_state("running again", |pod| {
        let status = &pod["status"]["containerStatuses"][0];
        status["restartCount"].as_u64() > Some(0) && status["state"]["running"].is_object()
    })
}
