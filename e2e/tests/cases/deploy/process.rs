//! The process of LXCFS: its end, its restart, and an LXCFS that is installed on the node.

use e2e::node::NAME;
use e2e::prelude::*;

use super::environment::{LXCFS, exclusive};
use super::pods::{has_256_mib, limited_pod, restarted};
use crate::cases::objects::{list, name_of};

#[e2e::case]
fn deleting_the_pod_breaks_files_until_containers_restart(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let shop = fixture.node.namespace("shop")?;
    limited_pod(&shop, "web").is_admitted()?;
    let web = fixture.node.pod(&shop, "web").is_ready()?;
    has_256_mib(&web)?;

    let old = fixture.pod(LXCFS)?["metadata"]["name"].as_str().context("a pod without a name")?.to_owned();
    let asked =
        fixture.node.cluster().kubectl().run(&["delete", "pod", "-n", fixture.namespace.name(), &old])?;
    asked.succeeded()?;
    fixture.node.await_workload(&fixture.namespace, "daemonsets", LXCFS)?;
    ensure!(fixture.pod(LXCFS)?["metadata"]["name"] != old.as_str(), "the pod was not replaced");
    fixture.await_label(true)?;
    has_dead_files(&web)?;
    limited_pod(&shop, "next").is_admitted()?;
    has_256_mib(&fixture.node.pod(&shop, "next").is_ready()?)?;
    has_dead_files(&web)?;
    fixture
        .await_diagnosis(&[&format!("started before LXCFS: {}/web", shop.name()), "restart these pods"])?;
    has_256_mib(&restarted(web)?)
}

#[e2e::case]
fn the_documented_commands_replace_it_on_a_drained_node(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let kubectl = fixture.node.cluster().kubectl();
    let shop = fixture.node.namespace("shop")?;
    let web = limited_pod(&shop, "web").from_a_deployment().is_admitted()?;
    fixture.node.pod(&shop, web.name()).is_ready()?;
    let before = fixture.process()?;
    let on_this_node =
        ["--field-selector=spec.nodeName=node-1", "--selector=app.kubernetes.io/component=lxcfs"];
    let of_lxcfs = |words: &[&str]| {
        kubectl
            .run(&[&["-n", fixture.namespace.name()], words, &on_this_node].concat())?
            .succeeded()
            .map(drop)
    };
    // Pods without a controller block a drain until they are gone.
    let drained = until("the node to be drained", || {
        let drain = ["drain", NAME, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=30s"];
        let output = kubectl.run(&drain)?;
        Ok((output.is_success(), output.stderr))
    });
    let replaced = drained
        .and_then(|()| of_lxcfs(&["delete", "pod"]))
        .and_then(|()| of_lxcfs(&["wait", "pod", "--for=condition=Ready", "--timeout=120s"]));
    // In any case, because other cases need the node.
    kubectl.run(&["uncordon", NAME])?.succeeded()?;
    replaced?;
    ensure!(fixture.process()? != before, "the process was not replaced");
    fixture.node.await_workload(&shop, "deployments", "web")?;
    let path = format!("{}?labelSelector=e2e.durward.dev/deployment%3Dweb", shop.path("pods"));
    let pods = list(fixture.node.cluster().api(), &path)?;
    let pod = pods.first().context("the Deployment has no pod")?;
    has_256_mib(&fixture.node.pod(&shop, name_of(pod)).is_ready()?)
}

#[e2e::case]
fn a_killed_lxcfs_restarts_and_its_mount_is_cleaned_up(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let pod = fixture.pod(LXCFS)?;
    let before = fixture.process()?;
    fixture.signal("KILL", before)?;
    // The dead mount has no process and cannot be read. The next mount can get the same device number.
    eventually("LXCFS to serve again", WAIT_LIMIT, || {
        let read = fixture.node.run(&["cat", "/var/lib/lxcfs/proc/meminfo"])?;
        Ok(match fixture.process() {
            Ok(pid) if pid != before && read.is_success() => Poll::Ready(()),
            other => Poll::Pending(format!("{other:?}, and {read:?}")),
        })
    })?;
    fixture.node.await_workload(&fixture.namespace, "daemonsets", LXCFS)?;
    let mounts = fixture.node.run(&["findmnt", "-no", "FSTYPE", "/var/lib/lxcfs"])?.succeeded()?.stdout;
    let mounts: Vec<_> = mounts.lines().filter(|kind| kind.trim() == "fuse.lxcfs").collect();
    ensure!(mounts.len() == 1, "there are {} mounts of LXCFS", mounts.len());
    let now = fixture.pod(LXCFS)?;
    ensure!(now["metadata"]["uid"] == pod["metadata"]["uid"], "its pod was replaced");
    let name = now["metadata"]["name"].as_str().context("a pod without a name")?;
    let arguments = ["logs", "-n", fixture.namespace.name(), name, "--previous"];
    let output = fixture.node.cluster().kubectl().run(&arguments)?.succeeded()?.stdout;
    ensure!(output.contains("LXCFS exited unexpectedly"), "its previous log is {output}");
    let shop = fixture.node.namespace("shop")?;
    limited_pod(&shop, "next").is_admitted()?;
    has_256_mib(&fixture.node.pod(&shop, "next").is_ready()?)
}

#[e2e::case]
fn the_pod_yields_to_an_lxcfs_installed_on_the_node(context: &'static TestContext) -> Result<()> {
    let mut fixture = exclusive(context)?;
    let remove = fixture.remove(LXCFS)?;
    fixture.await_label(false)?;
    remove.keep();
    fixture.start_own_lxcfs()?;
    let seen = (|| {
        let own = fixture.process()?;
        fixture.await_label(true)?;
        fixture.await_devices("1k")?;
        let shop = fixture.node.namespace("shop")?;
        limited_pod(&shop, "web").is_admitted()?;
        let web = fixture.node.pod(&shop, "web").is_ready()?;
        has_256_mib(&web)?;
        fixture.restore(LXCFS)?;
        fixture.await_logged(LXCFS, "another LXCFS serves /var/lib/lxcfs")?;
        ensure!(fixture.process()? == own, "the pod has mounted over it");
        has_256_mib(&web)
    })();
    // The pod is created again, because the kubelet's backoff after failures is long.
    fixture.remove(LXCFS)?.keep();
    fixture.stop_own_lxcfs()?;
    fixture.restore(LXCFS)?;
    seen
}

/// Expects "Transport endpoint is not connected" in the container.
fn has_dead_files(pod: &RunningPod<'_>) -> Result<()> {
    let read = pod.attempt("app", &["cat", "/proc/meminfo"])?;
    ensure!(read.stderr.contains("not connected"), "the container reads {read:?}");
    Ok(())
}
