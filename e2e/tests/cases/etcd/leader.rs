//! A leader hands over before it goes, is refused, or may go, as the configuration says; and a dry run does nothing.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::context::TestContext;
use e2e::etcd_cluster::{EtcdCluster, Release};
use serde_json::json;

use super::attempt::{Way, delete, try_delete};
use super::house::{House, Kind, controller, house, lease};
use super::quorum::two_followers;

/// A member that was away catches up as soon as its leader tries it again.
const BACK_WITHIN: Duration = Duration::from_secs(60);

#[e2e::case]
fn leader_refuse_denies_users_and_transfers_for_controllers(context: &'static TestContext) -> Result<()> {
    let House { cluster, .. } = house(context)?;
    let space = house(context)?.namespace("refuse", Kind::Refuse)?;
    let etcd = EtcdCluster::of(3).start(context)?;
    let pods = etcd.pods_in(&space)?;
    let leader = etcd.leader()?;
    for way in Way::ALL {
        let way = way.goes(cluster.api(), &pods, leader.name())?.refused()?;
        way.saying(&["it leads the ensemble", "leader: refuse", "etcdctl move-leader"])?;
    }
    ensure!(etcd.leader()?.name() == leader.name(), "a refused leader has handed over");
    ensure!(lease(cluster, space.name())?.is_none_or(|lease| !noted(&lease)), "a refused leader is noted");
    let follower = etcd.follower()?.name();
    delete(&pods, follower)?.allowed()?.without_warnings()?;
    pods.replace(follower)?;
    // Else a rolling update would never come to its end.
    let set = controller(cluster)?;
    Way::Delete.goes(&set.api, &pods, leader.name())?.allowed()?.warning("leadership moved to")?;
    ensure!(etcd.leader()?.name() != leader.name(), "it went and still leads");
    Ok(())
}

/// Whether anybody is noted to be on the way out.
fn noted(lease: &serde_json::Value) -> bool {
    let held = lease["metadata"]["annotations"]["durward.dev/reservations"].as_str();
    held.is_some_and(|held| held != "[]")
}

#[e2e::case]
fn leader_allow_warns_and_transfers_nothing(context: &'static TestContext) -> Result<()> {
    let space = house(context)?.namespace("allow", Kind::Allow)?;
    let etcd = EtcdCluster::of(3).start(context)?;
    let pods = etcd.pods_in(&space)?;
    let leader = etcd.leader()?;
    let api = space.cluster().api();
    try_delete(&pods, leader.name())?.allowed()?.warning("it leads")?;
    Way::Delete
        .goes_within(api, &pods, leader.name(), 60)?
        .allowed()?
        .warning("the ensemble elects another when it is gone")?;
    ensure!(etcd.leader()?.name() == leader.name(), "it has handed over, which nobody asked for");
    // It ends, and is told to be quick: that cannot be stopped, and is worth a word.
    Way::Delete.goes_within(api, &pods, leader.name(), 0)?.allowed()?.warning("it still leads")?;
    Ok(())
}

#[e2e::case]
fn a_force_deleted_leader_transfers_leadership_first(context: &'static TestContext) -> Result<()> {
    let space = house(context)?.namespace("force", Kind::Transfer)?;
    let etcd = EtcdCluster::of(3).start(context)?;
    let _pods = etcd.pods_in(&space)?;
    let leader = etcd.leader()?;
    let kubectl = space.cluster().kubectl();
    let said =
        kubectl.run(&["-n", space.name(), "delete", "pod", leader.name(), "--force", "--grace-period=0"])?;
    let said = said.succeeded()?.stderr;
    ensure!(said.contains("leadership moved to"), "{said}");
    ensure!(etcd.leader()?.name() != leader.name(), "it went and still leads");
    Ok(())
}

#[e2e::case]
fn a_dry_run_transfers_and_reserves_nothing(context: &'static TestContext) -> Result<()> {
    let House { cluster, .. } = house(context)?;
    let space = house(context)?.namespace("dry", Kind::Transfer)?;
    let etcd = EtcdCluster::of(3).start(context)?;
    let pods = etcd.pods_in(&space)?;
    let (leader, [one, other]) = (etcd.leader()?, two_followers(&etcd)?);
    let term = leader.status()?.term;
    for way in Way::ALL {
        for attempt in [
            way.tried(cluster.api(), &pods, leader.name())?,
            way.tried_by_options(cluster.api(), &pods, leader.name())?,
        ] {
            attempt.allowed()?.warning("it leads, and would hand over to etcd-")?;
        }
        way.tried(cluster.api(), &pods, one.name())?.allowed()?.without_warnings()?;
    }
    ensure!(etcd.leader()?.name() == leader.name(), "a dry run moved the leader");
    ensure!(leader.status()?.term == term, "there was an election");
    ensure!(lease(cluster, space.name())?.is_none(), "a dry run noted something");
    ensure!(pods.staying()?.len() == 3, "a dry run let something go");
    let stopped = other.stop()?;
    for way in Way::ALL {
        way.tried(cluster.api(), &pods, one.name())?.refused()?;
        way.tried_by_options(cluster.api(), &pods, leader.name())?.refused()?;
    }
    // See it written by what is none.
    drop(stopped);
    one.await_reads(BACK_WITHIN)?;
    other.await_reads(BACK_WITHIN)?;
    delete(&pods, one.name())?.allowed()?;
    ensure!(lease(cluster, space.name())?.is_some_and(|lease| noted(&lease)), "nothing was noted");
    Ok(())
}

#[e2e::case]
fn leadership_goes_to_no_member_that_leaves_soon(context: &'static TestContext) -> Result<()> {
    let House { cluster, .. } = house(context)?;
    let space = house(context)?.namespace("next", Kind::Transfer)?;
    let etcd = EtcdCluster::of(5).start(context)?;
    let pods = etcd.pods_in(&space)?;
    let leader = etcd.leader()?;
    let followers = etcd.followers()?;
    let [going, cordoned, ill, next] = followers[..] else { anyhow::bail!("not four of five follow") };
    let node = format!("/api/v1/nodes/{}", pods.node(cordoned.name()));
    cluster.api().merge(&node, &json!({"spec": {"unschedulable": true}}))?.succeeded()?;
    delete(&pods, going.name())?.allowed()?;
    let told = format!("would hand over to {}", next.name());
    // Of two who are left one leads soon: both are well, and it is the same one every time, or else the other.
    let verdict = try_delete(&pods, leader.name())?.allowed()?;
    let verdict = verdict.not_saying(&[going.name(), cordoned.name()])?;
    ensure!(
        verdict.told().contains(&told)
            || verdict.told().contains(&format!("would hand over to {}", ill.name())),
        "{}",
        verdict.told()
    );
    Ok(())
}

#[e2e::case]
fn without_the_gateway_users_can_delete_only_followers(context: &'static TestContext) -> Result<()> {
    let House { cluster, .. } = house(context)?;
    for release in Release::ALL {
        let space = house(context)?.namespace("gateway", Kind::Transfer)?;
        let etcd = EtcdCluster::of(3).release(release).flag("--enable-grpc-gateway=false").start(context)?;
        let pods = etcd.pods_in(&space)?;
        let roles = etcd.roles_by_metrics()?;
        let leader = roles.iter().find(|(_, leads)| *leads).context("nobody leads")?.0;
        let follower = roles.iter().find(|(_, leads)| !*leads).context("nobody follows")?.0;
        try_delete(&pods, leader.name())?.refused()?.saying(&["it leads", "without its JSON gateway"])?;
        try_delete(&pods, follower.name())?.allowed()?.warning("no JSON gateway")?;
        let set = controller(cluster)?;
        Way::Delete
            .tried(&set.api, &pods, leader.name())?
            .allowed()?
            .warning("cannot be asked to hand over")?;
        Way::Delete
            .tried_at_once(&set.api, &pods, leader.name())?
            .refused()?
            .saying(&["without its JSON gateway"])?;
        let _stopped = follower.stop()?;
        let other = roles.iter().find(|(member, leads)| !*leads && member.name() != follower.name());
        let other = other.context("one follower")?.0;
        delete(&pods, other.name())?.refused()?.telling(follower.name(), "Silent")?;
    }
    Ok(())
}
