//! Durward is down: members cannot be deleted, and nothing else is delayed.

use e2e::etcd_cluster::pods::kubelet;
use e2e::etcd_cluster::{EtcdCluster, pods};
use e2e::prelude::*;

use super::environment::{Profile, installed, namespace, scratch};
use super::requests::{Removal, delete};

#[e2e::case]
fn kubelets_and_unrelated_drains_work_while_durward_is_down(context: &'static TestContext) -> Result<()> {
    let cluster = scratch(context)?;
    let (installation, durward) = installed(context, cluster, &[])?;
    let ns = namespace(cluster, "outage", Profile::Transfer)?;
    let etcd = EtcdCluster::of(3).start(context)?;
    let guarded = etcd.pods_in(&ns)?;
    let followers = etcd.followers()?;
    let (going, staying) = (followers[0].name(), followers[1].name());
    delete(&guarded, going)?.allowed()?;
    drop(durward);

    // The namespace stays guarded: without a review no pod is deleted.
    for removal in Removal::ALL {
        removal.send(cluster.api(), &guarded, staying)?.not_reviewed()?;
    }
    // A terminating pod can be deleted again, and the kubelet's final delete counts.
    delete(&guarded, going)?.allowed()?;
    let node = kubelet(cluster, &guarded.node(going))?;
    ensure!(guarded.finish_as(&node, going)?.is_success(), "the kubelet's final delete was denied");
    ensure!(cluster.api().get(&guarded.path(going))?.status == 404, "{going} is still there");
    // A kubelet that ends a pod without an earlier deletion is reviewed like a user.
    let node = kubelet(cluster, &guarded.node(staying))?;
    ensure!(!guarded.finish_as(&node, staying)?.is_success(), "a kubelet deleted a member without a review");
    // Another pod in the namespace is reviewed only on eviction, because an Eviction has no labels.
    let other = |pod: &mut Value| pod["metadata"]["labels"] = json!({"app": "web"});
    guarded.add_like("web", e2e::etcd_cluster::address()?, other)?;
    Removal::Delete.send(cluster.api(), &guarded, "web")?.allowed()?.without_warnings()?;

    // Pods in other namespaces are not reviewed, whatever their labels.
    let elsewhere = cluster.namespace("elsewhere")?;
    let free = pods::set(&elsewhere, "etcd", 3, |_| {})?;
    for (removal, name) in Removal::ALL.into_iter().zip(["etcd-0", "etcd-1", "etcd-2"]) {
        free.add(name, e2e::etcd_cluster::address()?)?;
        removal.send(cluster.api(), &free, name)?.allowed()?.without_warnings()?;
    }
    let drained = pods::set(&elsewhere, "web", 1, |_| {})?;
    drained.add("web-0", e2e::etcd_cluster::address()?)?;
    let output = cluster.kubectl().run(&[
        "drain",
        &drained.node("web-0"),
        "--ignore-daemonsets",
        "--force",
        "--disable-eviction=false",
        "--timeout=1s",
    ])?;
    // No kubelet ends the pod, so the drain times out. Only the eviction counts here.
    ensure!(drained.is_terminating("web-0")?, "an unrelated drain is delayed: {}", output.stderr);
    drop(installation);
    Ok(())
}
