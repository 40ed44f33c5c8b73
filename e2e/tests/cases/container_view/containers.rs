//! Containers of every kind in one pod, each with what is its own.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::context::TestContext;
use e2e::namespace::Namespace;
use e2e::node;
use e2e::pods::Pod;
use e2e::wait::{Poll, eventually};
use serde_json::json;

use super::house::{beside, beside_by};
use super::view::{LOOK, Sight, briefly, common_limits, fewer_than, idler, limits, processors, ready};
use crate::cases::house::SWITCH;

/// A container starts in a second.
const STARTED_WITHIN: Duration = Duration::from_secs(60);

#[e2e::case]
fn two_containers_each_see_their_own_limits(context: &'static TestContext) -> Result<()> {
    let node = beside(context)?;
    let shop = node.namespace("shop")?;
    let all = processors(&node)?;
    let made = Instant::now();
    let admitted = idler(&shop, "web")
        .annotated(SWITCH, "enabled")
        // More processors than one and a half are two, and there are no more than the node has.
        .container_like("side", node::idle(limits(&json!({"memory": "96Mi", "cpu": "1500m"}))))
        .container_like("unlimited", node::idle(json!({})))
        .is_admitted()?;
    let pod = ready(&node, &shop, &admitted)?;
    Sight::from(&pod, "app")?.with_memory(256)?.with_processors(fewer_than(&node)?)?.with_age_since(made)?;
    Sight::from(&pod, "side")?.with_memory(96)?.with_processors(all.min(2))?.with_age_since(made)?;
    // Without a limit it sees the node's memory, and its age all the same.
    Sight::from(&pod, "unlimited")?.with_memory_of(&node)?.with_processors(all)?.with_age_since(made)?;
    Ok(())
}

#[e2e::case]
fn named_init_containers_and_sidecars_see_their_own_limits(context: &'static TestContext) -> Result<()> {
    let node = beside(context)?;
    let shop = node.namespace("shop")?;
    let made = Instant::now();
    let named = kinds(&shop, "named").annotated("durward.dev/lxcfs-containers", "app,once,sidecar");
    let (named, silent) = (named.is_admitted()?, kinds(&shop, "silent").is_admitted()?);
    let named = ready(&node, &shop, &named)?;
    Sight::of(&named.logs("once")?)?.with_memory(48)?.with_age_since(made)?;
    Sight::from(&named, "sidecar")?.with_memory(96)?.with_age_since(made)?;
    Sight::from(&named, "app")?.with_memory(256)?.with_age_since(made)?;
    let silent = ready(&node, &shop, &silent)?;
    Sight::of(&silent.logs("once")?)?.with_memory_of(&node)?;
    Sight::from(&silent, "sidecar")?.of_the(&node)?;
    Sight::from(&silent, "app")?.with_memory(256)?;
    Ok(())
}

#[e2e::case(Reconfigures)]
fn configured_init_containers_and_sidecars_see_their_own_limits(context: &'static TestContext) -> Result<()> {
    let node = beside_by(context, "  lxcfs: {initContainers: true}")?;
    let shop = node.namespace("shop")?;
    let pod = ready(&node, &shop, &kinds(&shop, "kinds").is_admitted()?)?;
    Sight::of(&pod.logs("once")?)?.with_memory(48)?;
    Sight::from(&pod, "sidecar")?.with_memory(96)?;
    Sight::from(&pod, "app")?.with_memory(256)?;
    Ok(())
}

/// A pod with an init container that writes what it sees, a native sidecar, and a container.
fn kinds<'a>(shop: &'a Namespace<'_>, name: &str) -> Pod<'a> {
    let mut sidecar = limits(&json!({"memory": "96Mi"}));
    sidecar["restartPolicy"] = "Always".into();
    idler(shop, name)
        .annotated(SWITCH, "enabled")
        .init_container("once", node::shell(LOOK, limits(&json!({"memory": "48Mi"}))))
        .init_container("sidecar", node::idle(sidecar))
}

#[e2e::case]
fn an_ephemeral_container_sees_its_target_or_the_whole_pod(context: &'static TestContext) -> Result<()> {
    let node = beside(context)?;
    let shop = node.namespace("shop")?;
    let admitted = idler(&shop, "web")
        .annotated(SWITCH, "enabled")
        .container_like("side", node::idle(limits(&json!({"memory": "128Mi"}))))
        .is_admitted()?;
    let made = Instant::now();
    let pod = ready(&node, &shop, &admitted)?;
    let debug = |name: &str, target: Option<&str>| {
        let container = format!("--container={name}");
        let target = target.map(|target| format!("--target={target}"));
        let mut words = vec!["debug", "-n", shop.name(), "web", &container, "--profile=general"];
        words.extend(target.as_deref());
        words.extend(["--image=durward.test/busybox:1", "--attach=false", "--", "sleep", "600"]);
        let said = node.cluster().kubectl().run(&words)?.succeeded()?;
        ensure!(!said.stderr.contains("Warning:"), "kubectl debug warns: {}", said.stderr);
        Ok(())
    };
    debug("into", Some("app"))?;
    debug("beside", None)?;
    eventually("both ephemeral containers to run", STARTED_WITHIN, || {
        let states = pod.object()?["status"]["ephemeralContainerStatuses"].clone();
        let states = states.as_array().map(Vec::as_slice).unwrap_or_default();
        let running = states.iter().filter(|state| state["state"]["running"].is_object()).count();
        Ok(if running == 2 { Poll::Ready(()) } else { Poll::Pending(json!(states).to_string()) })
    })?;
    // In the process namespace of its target it is taken for that.
    let seen = Sight::from(&pod, "into")?.with_memory(256)?.with_processors(fewer_than(&node)?)?;
    let own = Sight::from(&pod, "app")?;
    ensure!(own.uptime()? + 0.1 >= seen.uptime()?, "it is older than the container that it looks into");
    // It has no limits of its own; those of all containers together are the pod's.
    Sight::from(&pod, "beside")?.with_memory(256 + 128)?.with_age_since(made)?;
    Ok(())
}

/// LXCFS 5.0 lets the kernel remember how long a file was when it was read last, in whatever container, and
/// sendfile(2) believes it. Who reads by read(2) is not told less.
#[e2e::case]
fn only_busybox_cat_truncates_a_file(context: &'static TestContext) -> Result<()> {
    let node = beside(context)?;
    let shop = node.namespace("shop")?;
    let (all, one) = (processors(&node)?, fewer_than(&node)?);
    let reader = "while :; do /bin/cat /proc/cpuinfo >/dev/null; sleep 0.05; done";
    let admitted = shop
        .pod("web")
        .annotated(SWITCH, "enabled")
        .container_like("small", node::shell(reader, common_limits()))
        .container_like("large", node::idle(json!({})))
        .with(briefly)
        .is_admitted()?;
    let pod = ready(&node, &shop, &admitted)?;
    // Somebody else may just have looked how long it is.
    eventually("busybox's cat to cut cpuinfo", STARTED_WITHIN, || {
        let copied = pod.exec("large", &["/bin/cat", "/proc/cpuinfo"])?;
        let listed = copied.lines().filter(|line| line.starts_with("processor")).count();
        Ok(if listed == one { Poll::Ready(()) } else { Poll::Pending(format!("{listed} processors")) })
    })?;
    Sight::from(&pod, "large")?.with_processors(all)?;
    Ok(())
}

/// Whom LXCFS takes the containers of such pods for, if somebody mounts its files into them by hand: why the
/// guard leaves them alone.
#[e2e::case]
fn lxcfs_shows_wrong_values_for_shared_processes(context: &'static TestContext) -> Result<()> {
    let node = beside(context)?;
    let shop = node.namespace("shop")?;
    // What the guard gives a pod that has nothing against it.
    let like = idler(&shop, "like")
        .annotated(SWITCH, "enabled")
        .container_like("side", node::idle(limits(&json!({"memory": "128Mi"}))))
        .as_dry_run()
        .is_admitted()?;
    let by_hand = |name: &str, field: &str| {
        let spec = like.pod["spec"].clone();
        shop.pod(name).with(|pod| {
            pod["spec"] = spec;
            pod["spec"][field] = true.into();
        })
    };
    let host = by_hand("host", "hostPID").is_admitted()?.without_warnings()?;
    let shared = by_hand("shared", "shareProcessNamespace").is_admitted()?.without_warnings()?;

    // Memory and processors by the cgroup of whoever reads, but the age of the node's first process.
    let host = ready(&node, &shop, &host)?;
    Sight::from(&host, "app")?.with_memory(256)?.with_age_of_the_first_process(&node)?;
    // The pause container is the first process: it has no limits but those of the pod as a whole.
    let shared = ready(&node, &shop, &shared)?;
    for container in ["app", "side"] {
        Sight::from(&shared, container)?.with_memory(256 + 128)?.with_processors(processors(&node)?)?;
    }
    Ok(())
}
