//! While no Durward answers: members are not let go, and nothing else is held up.

use anyhow::{Result, ensure};
use e2e::context::TestContext;
use e2e::etcd_cluster::pods::kubelet;
use e2e::etcd_cluster::{EtcdCluster, pods};
use serde_json::json;

use super::attempt::{Way, delete};
use super::house::{Kind, installed, namespace, workshop};

#[e2e::case]
fn kubelets_and_unrelated_drains_work_while_durward_is_down(context: &'static TestContext) -> Result<()> {
    let cluster = workshop(context)?;
    let (installation, durward) = installed(context, cluster, &[])?;
    let space = namespace(cluster, "outage", Kind::Transfer)?;
    let etcd = EtcdCluster::of(3).start(context)?;
    let guarded = etcd.pods_in(&space)?;
    let followers = etcd.followers()?;
    let (going, staying) = (followers[0].name(), followers[1].name());
    delete(&guarded, going)?.allowed()?;
    drop(durward);

    // Its own namespace stays guarded: what cannot be judged is not let go.
    for way in Way::ALL {
        way.goes(cluster.api(), &guarded, staying)?.unanswered()?;
    }
    // A pod that goes may be asked to go again, and its node's last word counts.
    delete(&guarded, going)?.allowed()?;
    let node = kubelet(cluster, &guarded.node(going))?;
    ensure!(guarded.finish_as(&node, going)?.is_success(), "the kubelet's last delete was refused");
    ensure!(cluster.api().get(&guarded.path(going))?.status == 404, "{going} is still there");
    // A kubelet that ends a pod which nobody let go is asked about like anybody.
    let node = kubelet(cluster, &guarded.node(staying))?;
    ensure!(!guarded.finish_as(&node, staying)?.is_success(), "a kubelet took a member that nobody let go");
    // A pod of another kind in the same namespace is only evicted by asking: its eviction bears no labels.
    let other = |pod: &mut serde_json::Value| pod["metadata"]["labels"] = json!({"app": "web"});
    guarded.add_like("web", e2e::etcd_cluster::address()?, other)?;
    Way::Delete.goes(cluster.api(), &guarded, "web")?.allowed()?.without_warnings()?;

    // Elsewhere nobody is asked, by whatever labels.
    let elsewhere = cluster.namespace("elsewhere")?;
    let free = pods::set(&elsewhere, "etcd", 3, |_| {})?;
    for (way, name) in Way::ALL.into_iter().zip(["etcd-0", "etcd-1", "etcd-2"]) {
        free.add(name, e2e::etcd_cluster::address()?)?;
        way.goes(cluster.api(), &free, name)?.allowed()?.without_warnings()?;
    }
    let drained = pods::set(&elsewhere, "web", 1, |_| {})?;
    drained.add("web-0", e2e::etcd_cluster::address()?)?;
    let said = cluster.kubectl().run(&[
        "drain",
        &drained.node("web-0"),
        "--ignore-daemonsets",
        "--force",
        "--disable-eviction=false",
        "--timeout=1s",
    ])?;
    // No kubelet ends it, so the drain waits in vain; that it may go is what counts.
    ensure!(drained.is_going("web-0")?, "a drain elsewhere is held up: {}", said.stderr);
    drop(installation);
    Ok(())
}
