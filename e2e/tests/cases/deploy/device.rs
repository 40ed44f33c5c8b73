//! The files as a device of the kubelet, for pods that may have no volume of the node's.

use anyhow::{Result, ensure};
use e2e::context::TestContext;
use e2e::node::NAME;
use serde_json::{Value, json};

use super::house::{DEVICE, LXCFS, RESOURCE, enter};
use super::pods::{
    RESTRICTED, careful, read_256, reading, shows_256, started_anew, wanting, without_host_paths,
};

#[e2e::case]
fn a_restricted_pod_gets_the_device_without_host_paths(context: &'static TestContext) -> Result<()> {
    let stay = enter(context)?;
    let strict = stay.node.labelled_namespace("strict", &RESTRICTED)?;
    let admitted = careful(&strict, "careful").is_admitted()?.without_warnings()?;
    asks_for_one(&admitted.pod)?;
    let pod = stay.node.pod(&strict, "careful").is_ready()?;
    without_host_paths(&pod.object()?)?;
    shows_256(&pod)?;
    let mounted = pod.exec("app", &["grep", " /proc/meminfo ", "/proc/mounts"])?;
    ensure!(mounted.starts_with("lxcfs /proc/meminfo fuse.lxcfs ro,"), "it is mounted as {mounted}");
    // Where volumes may be, `auto` takes those.
    let shop = stay.node.namespace("shop")?;
    let with_volumes = wanting(&shop, "web").as_dry_run().is_admitted()?;
    ensure!(with_volumes.pod["spec"]["volumes"].to_string().contains("lxcfs-meminfo"), "it has no files");
    Ok(())
}

#[e2e::case]
fn backend_device_gives_every_pod_the_device(context: &'static TestContext) -> Result<()> {
    let stay = enter(context)?;
    let shop = stay.node.namespace("shop")?;
    let configured = stay.configured("  lxcfs: {backend: device}")?;
    let admitted = wanting(&shop, "web").is_admitted()?.without_warnings()?;
    asks_for_one(&admitted.pod)?;
    let web = stay.node.pod(&shop, "web").is_ready()?;
    without_host_paths(&web.object()?)?;
    shows_256(&web)?;
    drop(configured);
    Ok(())
}

#[e2e::case]
fn without_lxcfs_no_device_is_offered_and_pods_wait(context: &'static TestContext) -> Result<()> {
    let stay = enter(context)?;
    let strict = stay.node.labelled_namespace("strict", &RESTRICTED)?;
    let lxcfs = stay.without(LXCFS)?;
    stay.offers("0")?;
    careful(&strict, "waits").is_admitted()?;
    let waits = stay.node.pod(&strict, "waits");
    waits.meets("Insufficient durward.dev/lxcfs")?;
    // Nobody asks the scheduler about this one.
    careful(&strict, "bound")
        .with(|pod| pod["spec"]["nodeName"] = NAME.into())
        .is_admitted()?
        .with_warning("nodeName")?;
    let bound = stay.node.pod(&strict, "bound");
    let ended = |pod: &Value| pod["status"]["reason"] == "UnexpectedAdmissionError";
    bound.becomes("failed for good", ended)?;
    lxcfs.back()?;
    stay.offers("1k")?;
    shows_256(&waits.is_ready()?)
}

#[e2e::case]
fn the_plugin_registers_again_after_a_kubelet_restart(context: &'static TestContext) -> Result<()> {
    let stay = enter(context)?;
    let strict = stay.node.labelled_namespace("strict", &RESTRICTED)?;
    careful(&strict, "before").is_admitted()?;
    let before = stay.node.pod(&strict, "before").is_ready()?;
    let told = |log: &str| log.matches("the kubelet knows the devices").count();
    let times = told(&stay.log(DEVICE)?);
    stay.node.kubelet().restart()?;
    stay.await_log(DEVICE, "the kubelet told once more", |log| told(log) > times)?;
    stay.offers("1k")?;
    shows_256(&before)?;
    careful(&strict, "after").is_admitted()?;
    shows_256(&stay.node.pod(&strict, "after").is_ready()?)?;
    ensure!(before.object()?["status"]["phase"] == "Running", "the pod from before does not run on");
    Ok(())
}

#[e2e::case]
fn pods_run_and_restart_without_the_plugin(context: &'static TestContext) -> Result<()> {
    let stay = enter(context)?;
    let strict = stay.node.labelled_namespace("strict", &RESTRICTED)?;
    let shop = stay.node.namespace("shop")?;
    let configured = stay.configured("  lxcfs: {backend: device}")?;
    reading(&shop, "reader").is_admitted()?;
    careful(&strict, "careful").is_admitted()?;
    let reader = stay.node.pod(&shop, "reader").is_ready()?;
    let careful = stay.node.pod(&strict, "careful").is_ready()?;
    let seen = read_256(&reader)?;
    let plugin = stay.without(DEVICE)?;
    stay.offers("0")?;
    stay.tells(&["nobody offers the resource durward.dev/lxcfs", "apply -k deploy/lxcfs"])?;
    // What it was given, the kubelet remembers.
    shows_256(&started_anew(careful)?)?;
    plugin.back()?;
    stay.offers("1k")?;
    let read = read_256(&reader)?;
    ensure!(read > seen, "the pod did not read on: {seen} and {read}");
    drop(configured);
    Ok(())
}

/// Every container has one device.
fn asks_for_one(pod: &Value) -> Result<()> {
    for container in pod["spec"]["containers"].as_array().into_iter().flatten() {
        let resources = &container["resources"];
        let asked = [&resources["limits"][RESOURCE], &resources["requests"][RESOURCE]];
        ensure!(asked == [&json!("1"), &json!("1")], "it asks for {asked:?}");
    }
    Ok(())
}
