//! The files as a device of the kubelet, for pods that cannot have hostPath volumes.

use e2e::node::NAME;
use e2e::prelude::*;

use super::environment::{DEVICE_PLUGIN, LXCFS, RESOURCE, exclusive};
use super::pods::{
    RESTRICTED, count_reads, has_256_mib, limited_pod, reading_pod, restarted, restricted_pod,
    without_host_paths,
};

#[e2e::case]
fn a_restricted_pod_gets_the_device_without_host_paths(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let strict = fixture.node.labelled_namespace("strict", &RESTRICTED)?;
    let admitted = restricted_pod(&strict, "careful").is_admitted()?.without_warnings()?;
    requests_device(&admitted.pod)?;
    let pod = fixture.node.pod(&strict, "careful").is_ready()?;
    without_host_paths(&pod.object()?)?;
    has_256_mib(&pod)?;
    let mounted = pod.exec("app", &["grep", " /proc/meminfo ", "/proc/mounts"])?;
    ensure!(mounted.starts_with("lxcfs /proc/meminfo fuse.lxcfs ro,"), "it is mounted as {mounted}");
    // `auto` uses volumes where they are allowed.
    let shop = fixture.node.namespace("shop")?;
    let with_volumes = limited_pod(&shop, "web").as_dry_run().is_admitted()?;
    ensure!(with_volumes.pod["spec"]["volumes"].to_string().contains("lxcfs-meminfo"), "it has no files");
    Ok(())
}

#[e2e::case]
fn mount_method_device_plugin_gives_every_pod_the_device(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let shop = fixture.node.namespace("shop")?;
    let configured = fixture.configured("  lxcfs: {mountMethod: devicePlugin}")?;
    let admitted = limited_pod(&shop, "web").is_admitted()?.without_warnings()?;
    requests_device(&admitted.pod)?;
    let web = fixture.node.pod(&shop, "web").is_ready()?;
    without_host_paths(&web.object()?)?;
    has_256_mib(&web)?;
    drop(configured);
    Ok(())
}

#[e2e::case]
fn without_lxcfs_no_device_is_offered_and_pods_wait(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let strict = fixture.node.labelled_namespace("strict", &RESTRICTED)?;
    let lxcfs = fixture.remove(LXCFS)?;
    fixture.await_devices("0")?;
    restricted_pod(&strict, "waits").is_admitted()?;
    let waits = fixture.node.pod(&strict, "waits");
    waits.await_event("Insufficient durward.dev/lxcfs")?;
    // This pod is already bound, so the scheduler does not check it.
    restricted_pod(&strict, "bound")
        .with(|pod| pod["spec"]["nodeName"] = NAME.into())
        .is_admitted()?
        .with_warning("nodeName")?;
    let bound = fixture.node.pod(&strict, "bound");
    let ended = |pod: &Value| pod["status"]["reason"] == "UnexpectedAdmissionError";
    bound.await_state("failed for good", ended)?;
    lxcfs.restore()?;
    fixture.await_devices("1k")?;
    has_256_mib(&waits.is_ready()?)
}

#[e2e::case]
fn the_plugin_registers_again_after_a_kubelet_restart(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let strict = fixture.node.labelled_namespace("strict", &RESTRICTED)?;
    restricted_pod(&strict, "before").is_admitted()?;
    let before = fixture.node.pod(&strict, "before").is_ready()?;
    let registrations = |log: &str| log.matches("registered with the kubelet").count();
    let times = registrations(&fixture.log(DEVICE_PLUGIN)?);
    fixture.node.kubelet().restart()?;
    fixture.await_log(DEVICE_PLUGIN, "another registration", |log| registrations(log) > times)?;
    fixture.await_devices("1k")?;
    has_256_mib(&before)?;
    restricted_pod(&strict, "after").is_admitted()?;
    has_256_mib(&fixture.node.pod(&strict, "after").is_ready()?)?;
    ensure!(before.object()?["status"]["phase"] == "Running", "the pod from before does not run on");
    Ok(())
}

#[e2e::case]
fn pods_run_and_restart_without_the_plugin(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let strict = fixture.node.labelled_namespace("strict", &RESTRICTED)?;
    let shop = fixture.node.namespace("shop")?;
    let configured = fixture.configured("  lxcfs: {mountMethod: devicePlugin}")?;
    reading_pod(&shop, "reader").is_admitted()?;
    restricted_pod(&strict, "careful").is_admitted()?;
    let reader = fixture.node.pod(&shop, "reader").is_ready()?;
    let restricted_pod = fixture.node.pod(&strict, "careful").is_ready()?;
    let seen = count_reads(&reader)?;
    let plugin = fixture.remove(DEVICE_PLUGIN)?;
    fixture.await_devices("0")?;
    fixture.await_diagnosis(&["does not offer the resource durward.dev/lxcfs", "apply -k deploy/lxcfs"])?;
    // The kubelet remembers the allocated devices.
    has_256_mib(&restarted(restricted_pod)?)?;
    plugin.restore()?;
    fixture.await_devices("1k")?;
    let read = count_reads(&reader)?;
    ensure!(read > seen, "the pod stopped reading: {seen} and {read}");
    drop(configured);
    Ok(())
}

fn requests_device(pod: &Value) -> Result<()> {
    for container in pod["spec"]["containers"].as_array().into_iter().flatten() {
        let resources = &container["resources"];
        let asked = [&resources["limits"][RESOURCE], &resources["requests"][RESOURCE]];
        ensure!(asked == [&json!("1"), &json!("1")], "it requests {asked:?}");
    }
    Ok(())
}
