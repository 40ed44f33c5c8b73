//! Pods that ask, pods that do not, and pods that ask for less.

use std::time::Instant;

use anyhow::{Result, ensure};
use e2e::context::TestContext;
use e2e::node;
use serde_json::{Value, json};

use super::house::{beside, beside_by};
use super::view::{Sight, briefly, common_limits, fewer_than, idler, limits, node_memory, processors, ready};
use crate::cases::files::{Looks as _, SIX, STATUS};
use crate::cases::house::{ENABLED, OLD_SWITCH, SWITCH};

#[e2e::case]
fn a_pod_sees_its_own_memory_uptime_and_cpus(context: &'static TestContext) -> Result<()> {
    let node = beside(context)?;
    let shop = node.namespace("shop")?;
    let asking = node.labelled_namespace("asking", &ENABLED)?;
    let made = Instant::now();
    let pods = [
        (&shop, idler(&shop, "by-annotation").annotated(SWITCH, "enabled")),
        (&shop, idler(&shop, "by-label").labelled(SWITCH, "enabled")),
        (&shop, idler(&shop, "by-older-annotation").annotated(OLD_SWITCH, "true")),
        (&asking, idler(&asking, "by-namespace")),
    ];
    let admitted = pods.map(|(namespace, pod)| {
        anyhow::Ok((namespace, pod.is_admitted()?.with_files(&SIX)?.without_warnings()?))
    });
    let one = fewer_than(&node)?;
    for admitted in admitted {
        let (namespace, admitted) = admitted?;
        let pod = ready(&node, namespace, &admitted)?;
        Sight::from(&pod, "app")?.with_memory(256)?.with_processors(one)?.with_age_since(made)?;
    }
    Ok(())
}

#[e2e::case]
fn a_pod_that_opts_out_sees_the_node(context: &'static TestContext) -> Result<()> {
    let node = beside(context)?;
    let asking = node.labelled_namespace("asking", &ENABLED)?;
    let out = idler(&asking, "out").annotated(SWITCH, "disabled").is_admitted()?.untouched()?;
    let silent = idler(&asking, "silent").is_admitted()?.with_files(&SIX)?;
    Sight::from(&ready(&node, &asking, &out)?, "app")?.of_the(&node)?;
    // So it is the word on the pod that counted.
    Sight::from(&ready(&node, &asking, &silent)?, "app")?.with_memory(256)?;
    Ok(())
}

/// What the guard's page says of `nproc`, of busybox's programs and of the files that are not among the six.
#[e2e::case]
fn programs_that_ask_the_kernel_see_the_node(context: &'static TestContext) -> Result<()> {
    let node = beside(context)?;
    let shop = node.namespace("shop")?;
    let admitted = idler(&shop, "web").annotated(SWITCH, "enabled").is_admitted()?;
    let pod = ready(&node, &shop, &admitted)?;
    let sight = Sight::from(&pod, "app")?.with_memory(256)?.with_processors(fewer_than(&node)?)?;
    let all = processors(&node)?.to_string();
    ensure!(sight.said("nproc").trim() == all, "nproc says {}", sight.said("nproc"));
    let (free, memory) = (sight.number("kernel-free", "Mem:")?, node_memory(&node)? / 1024);
    ensure!(free.abs_diff(memory) <= 1, "busybox's free counts {free} MiB, and the node has {memory}");
    let up = pod.exec("app", &["/bin/uptime"])?;
    let told = sight.said("up");
    // Both say "up", and the clock before it.
    let since = |said: &str| {
        said.split_once("up").map(|(_, rest)| rest.split(',').next().map(str::trim).map(ToOwned::to_owned))
    };
    ensure!(since(&up) != since(told), "busybox's uptime says as /proc/uptime: {up}");
    // glibc counts processors in the file `online`, which is not among the six.
    let online = pod.exec("app", &["getconf", "_NPROCESSORS_ONLN"])?;
    ensure!(online.trim() == all, "getconf _NPROCESSORS_ONLN says {online}");
    Ok(())
}

#[e2e::case]
fn a_pod_sees_only_the_chosen_files_in_the_chosen_containers(context: &'static TestContext) -> Result<()> {
    let node = beside(context)?;
    let shop = node.namespace("shop")?;
    let fewer = idler(&shop, "fewer")
        .annotated(SWITCH, "enabled")
        .annotated("durward.dev/lxcfs-files", "meminfo")
        .is_admitted()?
        .with_files(&["meminfo"])?;
    let one = idler(&shop, "one")
        .container_like("side", node::idle(common_limits()))
        .annotated(SWITCH, "enabled")
        .annotated("durward.dev/lxcfs-containers", "!side")
        .is_admitted()?;
    let fewer = ready(&node, &shop, &fewer)?;
    Sight::from(&fewer, "app")?.with_memory(256)?.with_age_of(&node)?.with_processors(processors(&node)?)?;
    let one = ready(&node, &shop, &one)?;
    Sight::from(&one, "app")?.with_memory(256)?;
    Sight::from(&one, "side")?.of_the(&node)?;
    Ok(())
}

#[e2e::case(Reconfigures)]
fn the_online_file_makes_programs_count_the_cpus_of_the_limit(context: &'static TestContext) -> Result<()> {
    let node = beside_by(context, "  lxcfs: {files: [meminfo, online, loadavg], onlyIfLimited: true}")?;
    let shop = node.namespace("shop")?;
    let both = idler(&shop, "both").annotated(SWITCH, "enabled").is_admitted()?.without_warnings()?;
    let memory = shop
        .pod("memory")
        .annotated(SWITCH, "enabled")
        .container_like("app", node::idle(limits(&json!({"memory": "64Mi"}))))
        .container_like("unlimited", node::idle(json!({})))
        .with(briefly)
        .is_admitted()?
        .with_mounts_in("app", &["/proc/meminfo"])?
        .with_mounts_in("unlimited", &[])?;
    let whole = shop
        .pod("whole")
        .annotated(SWITCH, "enabled")
        .container_like("app", node::idle(json!({})))
        .with(briefly)
        .with(|pod: &mut Value| pod["spec"]["resources"] = common_limits()["resources"].clone())
        .is_admitted()?;
    let one = fewer_than(&node)?.to_string();
    let online = |pod: &node::RunningPod<'_>| pod.exec("app", &["getconf", "_NPROCESSORS_ONLN"]);

    let both = ready(&node, &shop, &both)?;
    Sight::from(&both, "app")?.with_memory(256)?;
    let counted = online(&both)?;
    ensure!(counted.trim() == one, "getconf counts {counted} processors at a limit of a half");
    let memory = ready(&node, &shop, &memory)?;
    Sight::from(&memory, "app")?.with_memory(64)?.with_processors(processors(&node)?)?;
    Sight::from(&memory, "unlimited")?.of_the(&node)?;
    // The kubelet gives a container without limits those of its pod.
    let whole = ready(&node, &shop, &whole)?;
    Sight::from(&whole, "app")?.with_memory(256)?;
    let counted = online(&whole)?;
    ensure!(counted.trim() == one, "getconf counts {counted} processors in a pod with a limit of a half");
    Ok(())
}

#[e2e::case]
fn a_pod_sees_the_file_that_it_mounts_itself(context: &'static TestContext) -> Result<()> {
    let node = beside(context)?;
    let shop = node.namespace("shop")?;
    let own = "MemTotal: 77824 kB\nMemFree: 77824 kB\nMemAvailable: 77824 kB\nBuffers: 0 kB\nCached: 0 kB\n";
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "own"}, "data": {"meminfo": own}});
    node.cluster().api().create(&shop.path("configmaps"), &map)?.succeeded()?;
    let mut container = common_limits();
    container["volumeMounts"] = json!([{"name": "own", "mountPath": "/proc/meminfo", "subPath": "meminfo"}]);
    let made = Instant::now();
    let admitted = shop
        .pod("own")
        .annotated(SWITCH, "enabled")
        .container_like("app", node::idle(container))
        .with(briefly)
        .with(|pod| pod["spec"]["volumes"] = json!([{"name": "own", "configMap": {"name": "own"}}]))
        .is_admitted()?
        .with_warning("container \"app\" keeps the pod's own mount at /proc/meminfo")?;
    let status = admitted.pod["metadata"]["annotations"][STATUS].as_str().unwrap_or_default();
    ensure!(status.starts_with("app=cpuinfo,diskstats,stat,swaps,uptime"), "the status is {status:?}");
    let pod = ready(&node, &shop, &admitted)?;
    Sight::from(&pod, "app")?.with_memory(76)?.with_age_since(made)?.with_processors(fewer_than(&node)?)?;
    Ok(())
}
