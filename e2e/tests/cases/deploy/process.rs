//! The process of LXCFS: what happens when it ends, and whose it is.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::context::TestContext;
use e2e::node::{NAME, RunningPod};
use e2e::wait::{Poll, eventually};

use super::house::{LXCFS, enter};
use super::pods::{shows_256, started_anew, wanting};

/// A container that has ended is started again at once, and the kubelet waits longer each time.
const AGAIN_WITHIN: Duration = Duration::from_secs(120);

#[e2e::case]
fn deleting_the_pod_breaks_files_until_containers_restart(context: &'static TestContext) -> Result<()> {
    let stay = enter(context)?;
    let shop = stay.node.namespace("shop")?;
    wanting(&shop, "web").is_admitted()?;
    let web = stay.node.pod(&shop, "web").is_ready()?;
    shows_256(&web)?;

    let old = stay.pod(LXCFS)?["metadata"]["name"].as_str().context("a pod without a name")?.to_owned();
    let asked = stay.node.cluster().kubectl().run(&["delete", "pod", "-n", stay.home.name(), &old])?;
    asked.succeeded()?;
    stay.node.stands(&stay.home, "daemonsets", LXCFS)?;
    ensure!(stay.pod(LXCFS)?["metadata"]["name"] != old.as_str(), "it is the same pod");
    stay.is_labelled(true)?;
    dead(&web)?;
    wanting(&shop, "next").is_admitted()?;
    shows_256(&stay.node.pod(&shop, "next").is_ready()?)?;
    dead(&web)?;
    shows_256(&started_anew(web)?)
}

#[e2e::case]
fn the_documented_commands_replace_it_on_a_drained_node(context: &'static TestContext) -> Result<()> {
    let stay = enter(context)?;
    let kubectl = stay.node.cluster().kubectl();
    let shop = stay.node.namespace("shop")?;
    let web = wanting(&shop, "web").from_a_deployment().is_admitted()?;
    stay.node.pod(&shop, web.name()).is_ready()?;
    let before = stay.process()?;
    let on_this_node =
        ["--field-selector=spec.nodeName=node-1", "--selector=app.kubernetes.io/component=lxcfs"];
    let of_lxcfs = |words: &[&str]| {
        kubectl.run(&[&["-n", stay.home.name()], words, &on_this_node].concat())?.succeeded().map(drop)
    };
    // Pods of other cases that nothing would make again have to be gone first.
    let drained = eventually("the node to be drained", AGAIN_WITHIN, || {
        let drain = ["drain", NAME, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=30s"];
        let said = kubectl.run(&drain)?;
        Ok(if said.is_success() { Poll::Ready(()) } else { Poll::Pending(said.stderr) })
    });
    let replaced = drained
        .and_then(|()| of_lxcfs(&["delete", "pod"]))
        .and_then(|()| of_lxcfs(&["wait", "pod", "--for=condition=Ready", "--timeout=120s"]));
    // Whatever came of it: other cases come to this node.
    kubectl.run(&["uncordon", NAME])?.succeeded()?;
    replaced?;
    ensure!(stay.process()? != before, "it is the same process");
    stay.node.stands(&shop, "deployments", "web")?;
    let path = format!("{}?labelSelector=e2e.durward.dev/deployment%3Dweb", shop.path("pods"));
    let pods = stay.node.cluster().api().get(&path)?.succeeded()?.body;
    let name = pods["items"][0]["metadata"]["name"].as_str().context("the Deployment has no pod")?;
    shows_256(&stay.node.pod(&shop, name).is_ready()?)
}

#[e2e::case]
fn a_killed_lxcfs_restarts_and_its_mount_is_cleaned_up(context: &'static TestContext) -> Result<()> {
    let stay = enter(context)?;
    let pod = stay.pod(LXCFS)?;
    let before = stay.process()?;
    stay.signal("KILL", before)?;
    // What it has left has a process no more, and can't be read. The next mount may have its device number again.
    eventually("LXCFS to serve again", AGAIN_WITHIN, || {
        let read = stay.node.run(&["cat", "/var/lib/lxcfs/proc/meminfo"])?;
        Ok(match stay.process() {
            Ok(pid) if pid != before && read.is_success() => Poll::Ready(()),
            other => Poll::Pending(format!("{other:?}, and {read:?}")),
        })
    })?;
    stay.node.stands(&stay.home, "daemonsets", LXCFS)?;
    let mounts = stay.node.run(&["findmnt", "-no", "FSTYPE", "/var/lib/lxcfs"])?.succeeded()?.stdout;
    let mounts: Vec<_> = mounts.lines().filter(|kind| kind.trim() == "fuse.lxcfs").collect();
    ensure!(mounts.len() == 1, "{} mounts of LXCFS lie above each other", mounts.len());
    let now = stay.pod(LXCFS)?;
    ensure!(now["metadata"]["uid"] == pod["metadata"]["uid"], "its pod is another one");
    let name = now["metadata"]["name"].as_str().context("a pod without a name")?;
    let arguments = ["logs", "-n", stay.home.name(), name, "--previous"];
    let said = stay.node.cluster().kubectl().run(&arguments)?.succeeded()?.stdout;
    ensure!(said.contains("LXCFS has ended by itself"), "its last words are {said}");
    let shop = stay.node.namespace("shop")?;
    wanting(&shop, "next").is_admitted()?;
    shows_256(&stay.node.pod(&shop, "next").is_ready()?)
}

#[e2e::case]
fn the_pod_yields_to_an_lxcfs_installed_on_the_node(context: &'static TestContext) -> Result<()> {
    let mut stay = enter(context)?;
    let without = stay.without(LXCFS)?;
    stay.is_labelled(false)?;
    without.stays();
    stay.house().installed()?;
    let seen = (|| {
        let own = stay.process()?;
        stay.is_labelled(true)?;
        stay.offers("1k")?;
        let shop = stay.node.namespace("shop")?;
        wanting(&shop, "web").is_admitted()?;
        let web = stay.node.pod(&shop, "web").is_ready()?;
        shows_256(&web)?;
        stay.comes_back(LXCFS)?;
        stay.await_word(LXCFS, "another LXCFS serves /var/lib/lxcfs")?;
        ensure!(stay.process()? == own, "the shipped one has mounted over it");
        shows_256(&web)
    })();
    // What is shipped comes anew: the kubelet waits long before it starts again what failed.
    stay.without(LXCFS)?.stays();
    stay.house().uninstalled()?;
    stay.comes_back(LXCFS)?;
    seen
}

/// Whatever a container reads of LXCFS's files is "Transport endpoint is not connected".
fn dead(pod: &RunningPod<'_>) -> Result<()> {
    let read = pod.attempt("app", &["cat", "/proc/meminfo"])?;
    ensure!(read.stderr.contains("not connected"), "the container reads {read:?}");
    Ok(())
}
