//! Pods that opt in, that do not, and that choose fewer files.

use std::time::Instant;

use e2e::node;
use e2e::prelude::*;

use super::environment::{shared, shared_with};
use super::view::{ContainerView, common_limits, cpus, idle_pod, limits, node_memory, one_cpu, ready};
use crate::cases::environment::{OLD_OPT_IN, OPT_IN, OPTED_IN, with_short_grace};
use crate::cases::files::{DEFAULT_FILES, LxcfsChecks as _, STATUS};

#[e2e::case]
fn a_pod_sees_its_own_memory_uptime_and_cpus(context: &'static TestContext) -> Result<()> {
    let node = shared(context)?;
    let shop = node.namespace("shop")?;
    let opted_in_namespace = node.labelled_namespace("asking", &OPTED_IN)?;
    let created_at = Instant::now();
    let pods = [
        (&shop, idle_pod(&shop, "by-annotation").annotated(OPT_IN, "enabled")),
        (&shop, idle_pod(&shop, "by-label").labelled(OPT_IN, "enabled")),
        (&shop, idle_pod(&shop, "by-older-annotation").annotated(OLD_OPT_IN, "true")),
        (&opted_in_namespace, idle_pod(&opted_in_namespace, "by-namespace")),
    ];
    let admitted = pods.map(|(namespace, pod)| {
        anyhow::Ok((namespace, pod.is_admitted()?.with_files(&DEFAULT_FILES)?.without_warnings()?))
    });
    let one = one_cpu(&node)?;
    for admitted in admitted {
        let (namespace, admitted) = admitted?;
        let pod = ready(&node, namespace, &admitted)?;
        ContainerView::read(&pod, "app")?.with_memory(256)?.with_cpus(one)?.with_uptime_since(created_at)?;
    }
    Ok(())
}

#[e2e::case]
fn a_pod_that_opts_out_sees_the_node(context: &'static TestContext) -> Result<()> {
    let node = shared(context)?;
    let opted_in_namespace = node.labelled_namespace("asking", &OPTED_IN)?;
    let out =
        idle_pod(&opted_in_namespace, "out").annotated(OPT_IN, "disabled").is_admitted()?.untouched()?;
    let plain = idle_pod(&opted_in_namespace, "silent").is_admitted()?.with_files(&DEFAULT_FILES)?;
    ContainerView::read(&ready(&node, &opted_in_namespace, &out)?, "app")?.of_node(&node)?;
    // The setting of the pod decided, because the namespace opts in.
    ContainerView::read(&ready(&node, &opted_in_namespace, &plain)?, "app")?.with_memory(256).map(drop)
}

/// The guard's page lists these: `nproc`, busybox's programs, and the files outside of the six.
#[e2e::case]
fn programs_that_ask_the_kernel_see_the_node(context: &'static TestContext) -> Result<()> {
    let node = shared(context)?;
    let shop = node.namespace("shop")?;
    let admitted = idle_pod(&shop, "web").annotated(OPT_IN, "enabled").is_admitted()?;
    let pod = ready(&node, &shop, &admitted)?;
    let sight = ContainerView::read(&pod, "app")?.with_memory(256)?.with_cpus(one_cpu(&node)?)?;
    let all = cpus(&node)?.to_string();
    ensure!(sight.output("nproc").trim() == all, "nproc prints {}", sight.output("nproc"));
    let (free, memory) = (sight.number("kernel-free", "Mem:")?, node_memory(&node)? / 1024);
    ensure!(free.abs_diff(memory) <= 1, "busybox's free counts {free} MiB, and the node has {memory}");
    let up = pod.exec("app", &["/bin/uptime"])?;
    let printed = sight.output("up");
    // Both print "up", and the clock before it.
    let since = |output: &str| {
        output.split_once("up").map(|(_, rest)| rest.split(',').next().map(str::trim).map(ToOwned::to_owned))
    };
    ensure!(since(&up) != since(printed), "busybox's uptime equals /proc/uptime: {up}");
    // glibc counts CPUs in the file `online`, which is not among the six.
    let online = pod.exec("app", &["getconf", "_NPROCESSORS_ONLN"])?;
    ensure!(online.trim() == all, "getconf _NPROCESSORS_ONLN prints {online}");
    Ok(())
}

#[e2e::case]
fn a_pod_sees_only_the_chosen_files_in_the_chosen_containers(context: &'static TestContext) -> Result<()> {
    let node = shared(context)?;
    let shop = node.namespace("shop")?;
    let fewer = idle_pod(&shop, "fewer")
        .annotated(OPT_IN, "enabled")
        .annotated("durward.dev/lxcfs-files", "meminfo")
        .is_admitted()?
        .with_files(&["meminfo"])?;
    let one = idle_pod(&shop, "one")
        .container_like("side", node::idle(common_limits()))
        .annotated(OPT_IN, "enabled")
        .annotated("durward.dev/lxcfs-containers", "!side")
        .is_admitted()?;
    let fewer = ready(&node, &shop, &fewer)?;
    ContainerView::read(&fewer, "app")?.with_memory(256)?.with_uptime_of(&node)?.with_cpus(cpus(&node)?)?;
    let one = ready(&node, &shop, &one)?;
    ContainerView::read(&one, "app")?.with_memory(256)?;
    ContainerView::read(&one, "side")?.of_node(&node).map(drop)
}

#[e2e::case(Reconfigures)]
fn the_online_file_makes_programs_count_the_cpus_of_the_limit(context: &'static TestContext) -> Result<()> {
    let node =
        shared_with(context, "  lxcfs: {files: [meminfo, online, loadavg], onlyLimitedContainers: true}")?;
    let shop = node.namespace("shop")?;
    let both = idle_pod(&shop, "both").annotated(OPT_IN, "enabled").is_admitted()?.without_warnings()?;
    let memory = shop
        .pod("memory")
        .annotated(OPT_IN, "enabled")
        .container_like("app", node::idle(limits(&json!({"memory": "64Mi"}))))
        .container_like("unlimited", node::idle(json!({})))
        .with(with_short_grace)
        .is_admitted()?
        .with_mounts_in("app", &["/proc/meminfo"])?
        .with_mounts_in("unlimited", &[])?;
    let whole = shop
        .pod("whole")
        .annotated(OPT_IN, "enabled")
        .container_like("app", node::idle(json!({})))
        .with(with_short_grace)
        .with(|pod: &mut Value| pod["spec"]["resources"] = common_limits()["resources"].clone())
        .is_admitted()?;
    let one = one_cpu(&node)?.to_string();
    let online = |pod: &node::RunningPod<'_>| pod.exec("app", &["getconf", "_NPROCESSORS_ONLN"]);

    let both = ready(&node, &shop, &both)?;
    ContainerView::read(&both, "app")?.with_memory(256)?;
    let counted = online(&both)?;
    ensure!(counted.trim() == one, "getconf counts {counted} processors at a limit of a half");
    let memory = ready(&node, &shop, &memory)?;
    ContainerView::read(&memory, "app")?.with_memory(64)?.with_cpus(cpus(&node)?)?;
    ContainerView::read(&memory, "unlimited")?.of_node(&node)?;
    // The kubelet gives a container without limits those of its pod.
    let whole = ready(&node, &shop, &whole)?;
    ContainerView::read(&whole, "app")?.with_memory(256)?;
    let counted = online(&whole)?;
    ensure!(counted.trim() == one, "getconf counts {counted} processors in a pod with a limit of a half");
    Ok(())
}

#[e2e::case]
fn a_pod_sees_the_file_that_it_mounts_itself(context: &'static TestContext) -> Result<()> {
    let node = shared(context)?;
    let shop = node.namespace("shop")?;
    let own = "MemTotal: 77824 kB\nMemFree: 77824 kB\nMemAvailable: 77824 kB\nBuffers: 0 kB\nCached: 0 kB\n";
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "own"}, "data": {"meminfo": own}});
    node.cluster().api().create(&shop.path("configmaps"), &map)?.succeeded()?;
    let mut container = common_limits();
    container["volumeMounts"] = json!([{"name": "own", "mountPath": "/proc/meminfo", "subPath": "meminfo"}]);
    let created_at = Instant::now();
    let admitted = shop
        .pod("own")
        .annotated(OPT_IN, "enabled")
        .container_like("app", node::idle(container))
        .with(with_short_grace)
        .with(|pod| pod["spec"]["volumes"] = json!([{"name": "own", "configMap": {"name": "own"}}]))
        .is_admitted()?
        .with_warning("container \"app\" already mounts /proc/meminfo")?;
    let status = admitted.pod["metadata"]["annotations"][STATUS].as_str().unwrap_or_default();
    ensure!(status.starts_with("app=cpuinfo,diskstats,stat,swaps,uptime"), "the status is {status:?}");
    let pod = ready(&node, &shop, &admitted)?;
    ContainerView::read(&pod, "app")?
        .with_memory(76)?
        .with_uptime_since(created_at)?
        .with_cpus(one_cpu(&node)?)
        .map(drop)
}
