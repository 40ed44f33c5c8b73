//! All kinds of containers in one pod, each with its own values.

use std::time::Instant;

use e2e::node;
use e2e::prelude::*;

use super::environment::{shared, shared_with};
use super::view::{ContainerView, VIEW_SCRIPT, common_limits, cpus, idle_pod, limits, one_cpu, ready};
use crate::cases::environment::{OPT_IN, with_short_grace};

#[e2e::case]
fn two_containers_each_see_their_own_limits(context: &'static TestContext) -> Result<()> {
    let node = shared(context)?;
    let shop = node.namespace("shop")?;
    let all = cpus(&node)?;
    let created_at = Instant::now();
    let admitted = idle_pod(&shop, "web")
        .annotated(OPT_IN, "enabled")
        // One and a half CPUs count as two, but never more than the node has.
        .container_like("side", node::idle(limits(&json!({"memory": "96Mi", "cpu": "1500m"}))))
        .container_like("unlimited", node::idle(json!({})))
        .is_admitted()?;
    let pod = ready(&node, &shop, &admitted)?;
    ContainerView::read(&pod, "app")?
        .with_memory(256)?
        .with_cpus(one_cpu(&node)?)?
        .with_uptime_since(created_at)?;
    ContainerView::read(&pod, "side")?
        .with_memory(96)?
        .with_cpus(all.min(2))?
        .with_uptime_since(created_at)?;
    // Without a limit it sees the node's memory, but its own uptime.
    ContainerView::read(&pod, "unlimited")?
        .with_memory_of(&node)?
        .with_cpus(all)?
        .with_uptime_since(created_at)
        .map(drop)
}

#[e2e::case]
fn named_init_containers_and_sidecars_see_their_own_limits(context: &'static TestContext) -> Result<()> {
    let node = shared(context)?;
    let shop = node.namespace("shop")?;
    let created_at = Instant::now();
    let named =
        pod_with_all_kinds(&shop, "named").annotated("durward.dev/lxcfs-containers", "app,once,sidecar");
    let (named, silent) = (named.is_admitted()?, pod_with_all_kinds(&shop, "silent").is_admitted()?);
    let named = ready(&node, &shop, &named)?;
    ContainerView::of_log(&named, "once")?.with_memory(48)?.with_uptime_since(created_at)?;
    ContainerView::read(&named, "sidecar")?.with_memory(96)?.with_uptime_since(created_at)?;
    ContainerView::read(&named, "app")?.with_memory(256)?.with_uptime_since(created_at)?;
    let silent = ready(&node, &shop, &silent)?;
    ContainerView::of_log(&silent, "once")?.with_memory_of(&node)?;
    ContainerView::read(&silent, "sidecar")?.of_node(&node)?;
    ContainerView::read(&silent, "app")?.with_memory(256).map(drop)
}

#[e2e::case(Reconfigures)]
fn configured_init_containers_and_sidecars_see_their_own_limits(context: &'static TestContext) -> Result<()> {
    let node = shared_with(context, "  lxcfs: {includeInitContainers: true}")?;
    let shop = node.namespace("shop")?;
    let pod = ready(&node, &shop, &pod_with_all_kinds(&shop, "kinds").is_admitted()?)?;
    ContainerView::of_log(&pod, "once")?.with_memory(48)?;
    ContainerView::read(&pod, "sidecar")?.with_memory(96)?;
    ContainerView::read(&pod, "app")?.with_memory(256).map(drop)
}

/// Returns a pod with an init container that prints its view, a native sidecar, and a container.
fn pod_with_all_kinds<'a>(shop: &'a Namespace<'_>, name: &str) -> Pod<'a> {
    let mut sidecar = limits(&json!({"memory": "96Mi"}));
    sidecar["restartPolicy"] = "Always".into();
    idle_pod(shop, name)
        .annotated(OPT_IN, "enabled")
        .init_container("once", node::shell(VIEW_SCRIPT, limits(&json!({"memory": "48Mi"}))))
        .init_container("sidecar", node::idle(sidecar))
}

#[e2e::case]
fn an_ephemeral_container_sees_its_target_or_the_whole_pod(context: &'static TestContext) -> Result<()> {
    let node = shared(context)?;
    let shop = node.namespace("shop")?;
    let admitted = idle_pod(&shop, "web")
        .annotated(OPT_IN, "enabled")
        .container_like("side", node::idle(limits(&json!({"memory": "128Mi"}))))
        .is_admitted()?;
    let created_at = Instant::now();
    let pod = ready(&node, &shop, &admitted)?;
    let debug = |name: &str, target: Option<&str>| {
        let container = format!("--container={name}");
        let target = target.map(|target| format!("--target={target}"));
        let mut words = vec!["debug", "-n", shop.name(), "web", &container, "--profile=general"];
        words.extend(target.as_deref());
        words.extend(["--image=durward.test/busybox:1", "--attach=false", "--", "sleep", "600"]);
        let output = node.cluster().kubectl().run(&words)?.succeeded()?;
        ensure!(!output.stderr.contains("Warning:"), "kubectl debug warns: {}", output.stderr);
        Ok(())
    };
    debug("into", Some("app"))?;
    debug("untargeted", None)?;
    until("both ephemeral containers to run", || {
        let states = pod.object()?["status"]["ephemeralContainerStatuses"].clone();
        let states = states.as_array().map(Vec::as_slice).unwrap_or_default();
        let running = states.iter().filter(|state| state["state"]["running"].is_object()).count();
        Ok((running == 2, json!(states).to_string()))
    })?;
    // In the process namespace of its target it counts as the target.
    let seen = ContainerView::read(&pod, "into")?.with_memory(256)?.with_cpus(one_cpu(&node)?)?;
    let own = ContainerView::read(&pod, "app")?;
    ensure!(own.uptime()? + 0.1 >= seen.uptime()?, "it is older than the container that it looks into");
    // It has no limits of its own. Those of all containers together are the pod's.
    ContainerView::read(&pod, "untargeted")?.with_memory(256 + 128)?.with_uptime_since(created_at).map(drop)
}

/// LXCFS 5.0 lets the kernel cache the size of a file from its last read in any container, and sendfile(2)
/// uses it. read(2) returns the whole file.
#[e2e::case]
fn only_busybox_cat_truncates_a_file(context: &'static TestContext) -> Result<()> {
    let node = shared(context)?;
    let shop = node.namespace("shop")?;
    let (all, one) = (cpus(&node)?, one_cpu(&node)?);
    let reader = "while :; do /bin/cat /proc/cpuinfo >/dev/null; sleep 0.05; done";
    let admitted = shop
        .pod("web")
        .annotated(OPT_IN, "enabled")
        .container_like("small", node::shell(reader, common_limits()))
        .container_like("large", node::idle(json!({})))
        .with(with_short_grace)
        .is_admitted()?;
    let pod = ready(&node, &shop, &admitted)?;
    // The size can come from another reader.
    until("busybox's cat to cut cpuinfo", || {
        let copied = pod.exec("large", &["/bin/cat", "/proc/cpuinfo"])?;
        let listed = copied.lines().filter(|line| line.starts_with("processor")).count();
        Ok((listed == one, format!("{listed} processors")))
    })?;
    ContainerView::read(&pod, "large")?.with_cpus(all).map(drop)
}

/// LXCFS mixes up the containers of such pods if its files are mounted by hand. The guard therefore skips
/// these pods.
#[e2e::case]
fn lxcfs_shows_wrong_values_for_shared_processes(context: &'static TestContext) -> Result<()> {
    let node = shared(context)?;
    let shop = node.namespace("shop")?;
    // The mounts that the guard adds to a suitable pod.
    let like = idle_pod(&shop, "like")
        .annotated(OPT_IN, "enabled")
        .container_like("side", node::idle(limits(&json!({"memory": "128Mi"}))))
        .as_dry_run()
        .is_admitted()?;
    let manual = |name: &str, field: &str| {
        let spec = like.pod["spec"].clone();
        shop.pod(name).with(|pod| {
            pod["spec"] = spec;
            pod["spec"][field] = true.into();
        })
    };
    let host = manual("host", "hostPID").is_admitted()?.without_warnings()?;
    let shared = manual("shared", "shareProcessNamespace").is_admitted()?.without_warnings()?;

    // Memory and CPUs come from the reader's cgroup, but the uptime from the node's first process.
    let host = ready(&node, &shop, &host)?;
    ContainerView::read(&host, "app")?.with_memory(256)?.with_uptime_of_first_process(&node)?;
    // The pause container is the first process. It has only the limits of the whole pod.
    let shared = ready(&node, &shop, &shared)?;
    for container in ["app", "side"] {
        ContainerView::read(&shared, container)?.with_memory(256 + 128)?.with_cpus(cpus(&node)?)?;
    }
    Ok(())
}
