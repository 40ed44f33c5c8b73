//! LXCFS goes, ends or dies while pods run, and comes back: what containers see, what new pods wait for, and the
//! words by which an operator finds the cure. The guard's page has them under "When it does not work".

use anyhow::{Result, ensure};
use e2e::context::TestContext;
use e2e::namespace::Namespace;
use e2e::node::{self, NAME, RunningPod};
use serde_json::{Value, json};

use super::house::{Alone, alone, beside_by};
use super::view::{Sight, idler, ready};
use crate::cases::files::{Looks as _, SIX};
use crate::cases::house::{SWITCH, wanting};

/// What a container reads in a file of an LXCFS that is no more (ENOTCONN).
const DEAD: &str = "Transport endpoint is not connected";

/// One of the files, on the node.
const MEMINFO: &str = "/var/lib/lxcfs/proc/meminfo";

#[e2e::case(Exclusive)]
fn a_stopped_lxcfs_breaks_containers_until_they_restart(context: &'static TestContext) -> Result<()> {
    let node = alone(context)?;
    let shop = node.namespace("shop")?;
    let running = serve(&node, &shop, "running")?;

    let stopped = node.lxcfs().stop()?;
    is_blind(&running)?;
    idler(&shop, "late").annotated(SWITCH, "enabled").is_admitted()?.with_files(&SIX)?.without_warnings()?;
    let late = node.pod(&shop, "late");
    waits_for_files(&late)?;
    let told = node.cluster().kubectl().run(&["describe", "pod", "-n", shop.name(), "late"])?.succeeded()?;
    let line = format!("hostPath type check failed: {MEMINFO} is not a file");
    ensure!(told.stdout.contains(&line), "kubectl describe says {}", told.stdout);

    stopped.start()?;
    // By itself, with the kubelet's next attempt.
    Sight::from(&late.is_ready()?, "app")?.with_memory(256)?;
    // What it had mounted belongs to the LXCFS that is no more.
    is_blind(&running)?;
    end_container(&running)?;
    Sight::from(&restarted(running)?, "app")?.with_memory(256)?;
    Ok(())
}

#[e2e::case(Exclusive)]
fn a_container_that_restarts_without_lxcfs_starts_when_it_returns(
    context: &'static TestContext,
) -> Result<()> {
    let node = alone(context)?;
    let shop = node.namespace("shop")?;
    let running = serve(&node, &shop, "running")?;

    let stopped = node.lxcfs().stop()?;
    end_container(&running)?;
    // The kubelet looks at types of volumes when a pod starts, not when a container does; the runtime makes a
    // directory of a source that is missing.
    let told = running.meets("not a directory")?;
    ensure!(
        told.contains("error mounting \"/var/lib/lxcfs/proc/"),
        "the event does not name the file: {told}"
    );
    ensure!(node.path(MEMINFO).is_dir(), "there is no directory at {MEMINFO}");
    // A pod that is made now is told the same as if nothing were there.
    wanting(&shop, "late").container_like("app", node::idle(json!({}))).is_admitted()?;
    waits_for_files(&node.pod(&shop, "late"))?;

    // It mounts over what lies there.
    stopped.start()?;
    Sight::from(&restarted(running)?, "app")?.with_memory(256)?;
    node.pod(&shop, "late").is_ready().map(drop)
}

#[e2e::case(Exclusive)]
fn a_dead_mount_of_a_killed_lxcfs_prevents_container_starts(context: &'static TestContext) -> Result<()> {
    let node = alone(context)?;
    let shop = node.namespace("shop")?;
    let running = serve(&node, &shop, "running")?;
    let unlucky = serve(&node, &shop, "unlucky")?;
    let leaving = serve(&node, &shop, "leaving")?;

    let killed = node.lxcfs().kill()?;
    is_blind(&running)?;
    end_container(&unlucky)?;
    let told = unlucky.meets("transport endpoint is not connected")?;
    ensure!(
        told.contains("failed to stat \"/var/lib/lxcfs/proc/"),
        "the event does not name the file: {told}"
    );
    idler(&shop, "late").annotated(SWITCH, "enabled").is_admitted()?;
    let late = node.pod(&shop, "late");
    waits_for_files(&late)?;
    // A dead mount keeps nothing from being deleted.
    leaving.is_deleted()?;

    killed.start()?;
    Sight::from(&late.is_ready()?, "app")?.with_memory(256)?;
    Sight::from(&restarted(unlucky)?, "app")?.with_memory(256)?;
    is_blind(&running)
}

#[e2e::case(Reconfigures)]
fn a_pod_waits_for_the_label_of_a_ready_node(context: &'static TestContext) -> Result<()> {
    let node = beside_by(context, "  lxcfs: {nodeReadiness: require}")?;
    let shop = node.namespace("shop")?;
    let label = |value: Value| {
        let labels = json!({"metadata": {"labels": {"durward.dev/lxcfs-ready": value}}});
        node.cluster().api().merge(&format!("/api/v1/nodes/{NAME}"), &labels)?.succeeded().map(drop)
    };
    idler(&shop, "web").annotated(SWITCH, "enabled").is_admitted()?.without_warnings()?;
    let web = node.pod(&shop, "web");
    let told = web.meets("didn't match Pod's node affinity/selector")?;
    ensure!(told.starts_with("FailedScheduling: 0/1 nodes are available: 1 node(s)"), "the event is {told}");
    label("true".into())?;
    let seen = web.is_ready().and_then(|web| Sight::from(&web, "app")?.with_memory(256));
    label(Value::Null)?;
    seen.map(drop)
}

/// A pod that has its files and sees them.
fn serve<'a>(node: &Alone, shop: &Namespace<'a>, name: &str) -> Result<RunningPod<'a>> {
    let admitted = idler(shop, name).annotated(SWITCH, "enabled").is_admitted()?;
    let pod = ready(node, shop, &admitted)?;
    Sight::from(&pod, "app")?.with_memory(256)?;
    Ok(pod)
}

/// It runs, and what it reads in the files is an error; programs that ask the kernel go on.
fn is_blind(pod: &RunningPod<'_>) -> Result<()> {
    let read = SIX.map(|file| format!("/bin/cat /proc/{file}")).join("; ");
    let read = pod.attempt("app", &["sh", "-c", &format!("{read}; /usr/bin/nproc; /usr/bin/free -m")])?;
    for file in SIX {
        let told = format!("can't open '/proc/{file}': {DEAD}");
        ensure!(read.stderr.contains(&told), "of {file} the pod reads {read:?}");
    }
    ensure!(read.stderr.contains("Unable to create meminfo"), "free says {read:?}");
    ensure!(!read.is_success() && read.stdout.trim().parse::<u32>().is_ok(), "nproc says {read:?}");
    Ok(())
}

/// A pod that is not there yet is told by the kubelet what it waits for.
fn waits_for_files(pod: &RunningPod<'_>) -> Result<()> {
    for file in SIX {
        let path = format!("/var/lib/lxcfs/proc/{file}");
        let told = pod.meets(&format!("hostPath type check failed: {path} is not a file"))?;
        let began = format!("FailedMount: MountVolume.SetUp failed for volume \"lxcfs-{file}\"");
        ensure!(told.starts_with(&began), "the event is {told}");
    }
    Ok(())
}

/// Ends the container from within, as a crash would.
fn end_container(pod: &RunningPod<'_>) -> Result<()> {
    // Whether the answer still comes is chance.
    pod.attempt("app", &["kill", "1"]).map(drop)
}

/// Waits until its container runs again.
fn restarted(pod: RunningPod<'_>) -> Result<RunningPod<'_>> {
    pod.becomes("running again", |pod| {
        let status = &pod["status"]["containerStatuses"][0];
        status["restartCount"].as_u64() > Some(0) && status["state"]["running"].is_object()
    })
}
