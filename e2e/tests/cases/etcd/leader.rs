//! A leader transfers leadership before it is deleted, is denied, or is allowed, by configuration. A dry run
//! changes nothing.

use e2e::etcd_cluster::{EtcdCluster, Member, Release};
use e2e::prelude::*;

use super::environment::{Environment, Profile, controller, environment, guarded_etcd, lease, lease_path};
use super::quorum::two_followers;
use super::requests::{Removal, delete, dry_run};

/// A member that was away catches up when its leader retries.
const BACK_WITHIN: Duration = Duration::from_secs(60);

#[e2e::case]
fn leader_refuse_denies_users_and_transfers_for_controllers(context: &'static TestContext) -> Result<()> {
    let Environment { cluster, .. } = environment(context)?;
    let (ns, etcd) = guarded_etcd(context, 3, "refuse", Profile::Refuse)?;
    let pods = etcd.pods_in(&ns)?;
    let leader = etcd.leader()?;
    for removal in Removal::ALL {
        let removal = removal.send(cluster.api(), &pods, leader.name())?.denied()?;
        removal.with_message(&["it is the etcd leader", "onLeaderDelete: deny"])?;
    }
    ensure!(etcd.leader()?.name() == leader.name(), "a denied leader transferred leadership");
    ensure!(lease(cluster, ns.name())?.is_none(), "a denied leader has a reservation");
    let follower = etcd.follower()?.name();
    delete(&pods, follower)?.allowed()?.without_warnings()?;
    pods.replace(follower)?;
    // Otherwise a rolling update would never complete.
    let set = controller(cluster)?;
    Removal::Delete
        .send(&set.api, &pods, leader.name())?
        .allowed()?
        .with_warning("leadership was transferred to")?;
    ensure!(etcd.leader()?.name() != leader.name(), "the deleted member still leads");
    Ok(())
}

#[e2e::case]
fn leader_allow_warns_and_transfers_nothing(context: &'static TestContext) -> Result<()> {
    let (ns, etcd) = guarded_etcd(context, 3, "allow", Profile::Allow)?;
    let pods = etcd.pods_in(&ns)?;
    let leader = etcd.leader()?;
    let api = ns.cluster().api();
    dry_run(&pods, leader.name())?.allowed()?.with_warning("it is the leader")?;
    Removal::Delete
        .send_with_grace(api, &pods, leader.name(), 60)?
        .allowed()?
        .with_warning("the cluster elects another one")?;
    ensure!(etcd.leader()?.name() == leader.name(), "it transferred leadership without need");
    // A terminating pod gets a shorter grace period. This cannot be denied and is a warning.
    Removal::Delete
        .send_with_grace(api, &pods, leader.name(), 0)?
        .allowed()?
        .with_warning("it is still the leader")
        .map(drop)
}

#[e2e::case]
fn a_force_deleted_leader_transfers_leadership_first(context: &'static TestContext) -> Result<()> {
    let (ns, etcd) = guarded_etcd(context, 3, "force", Profile::Transfer)?;
    let _pods = etcd.pods_in(&ns)?;
    let leader = etcd.leader()?;
    let kubectl = ns.cluster().kubectl();
    let output =
        kubectl.run(&["-n", ns.name(), "delete", "pod", leader.name(), "--force", "--grace-period=0"])?;
    let output = output.succeeded()?.stderr;
    ensure!(output.contains("leadership was transferred to"), "{output}");
    ensure!(etcd.leader()?.name() != leader.name(), "the deleted member still leads");
    Ok(())
}

#[e2e::case]
fn a_dry_run_transfers_and_reserves_nothing(context: &'static TestContext) -> Result<()> {
    let Environment { cluster, .. } = environment(context)?;
    let (ns, etcd) = guarded_etcd(context, 3, "dry", Profile::Transfer)?;
    let pods = etcd.pods_in(&ns)?;
    let (leader, [one, other]) = (etcd.leader()?, two_followers(&etcd)?);
    let term = leader.status()?.term;
    for removal in Removal::ALL {
        for attempt in [
            removal.dry_run(cluster.api(), &pods, leader.name())?,
            removal.dry_run_by_options(cluster.api(), &pods, leader.name())?,
        ] {
            attempt.allowed()?.with_warning("it is the leader and would transfer leadership to etcd-")?;
        }
        removal.dry_run(cluster.api(), &pods, one.name())?.allowed()?.without_warnings()?;
    }
    ensure!(etcd.leader()?.name() == leader.name(), "a dry run transferred leadership");
    ensure!(leader.status()?.term == term, "there was an election");
    ensure!(lease(cluster, ns.name())?.is_none(), "a dry run wrote a reservation");
    ensure!(pods.active()?.len() == 3, "a dry run deleted a pod");
    let stopped = other.stop()?;
    for removal in Removal::ALL {
        removal.dry_run(cluster.api(), &pods, one.name())?.denied()?;
        removal.dry_run_by_options(cluster.api(), &pods, leader.name())?.denied()?;
    }
    // A real deletion writes the Lease, so its absence above means something.
    drop(stopped);
    one.await_reads(BACK_WITHIN)?;
    other.await_reads(BACK_WITHIN)?;
    delete(&pods, one.name())?.allowed()?;
    ensure!(lease(cluster, ns.name())?.is_some(), "no reservation was written");
    Ok(())
}

#[e2e::case]
fn leadership_goes_to_no_member_that_leaves_soon(context: &'static TestContext) -> Result<()> {
    let Environment { cluster, .. } = environment(context)?;
    let (ns, etcd) = guarded_etcd(context, 5, "next", Profile::Transfer)?;
    let pods = etcd.pods_in(&ns)?;
    let leader = etcd.leader()?;
    let followers = etcd.followers()?;
    let [going, cordoned, other, next] = followers[..] else { bail!("there are not four followers") };
    let node = format!("/api/v1/nodes/{}", pods.node(cordoned.name()));
    cluster.api().merge(&node, &json!({"spec": {"unschedulable": true}}))?.succeeded()?;
    delete(&pods, going.name())?.allowed()?;
    // Otherwise the leader waits for its replacement.
    cluster.api().delete(&lease_path(ns.name()))?.succeeded()?;
    // Two followers remain, and either one is a valid target.
    let verdict = dry_run(&pods, leader.name())?.allowed()?;
    let verdict = verdict.without_text(&[going.name(), cordoned.name()])?;
    let response = verdict.describe();
    let names_target =
        |member: &Member| response.contains(&format!("would transfer leadership to {}", member.name()));
    ensure!(names_target(next) || names_target(other), "{response}");
    Ok(())
}

#[e2e::case]
fn without_the_json_gateway_leadership_is_transferred(context: &'static TestContext) -> Result<()> {
    for release in Release::tested()? {
        let ns = environment(context)?.namespace("grpc", Profile::Transfer)?;
        let etcd = EtcdCluster::of(3).release(release).flag("--enable-grpc-gateway=false").start(context)?;
        let pods = etcd.pods_in(&ns)?;
        let roles = etcd.roles_by_metrics()?;
        let leader = roles.iter().find(|(_, leads)| *leads).context("no member leads")?.0;
        let mut followers = roles.iter().filter(|(_, leads)| !*leads).map(|(member, _)| *member);
        let (Some(down), Some(up)) = (followers.next(), followers.next()) else { bail!("no two followers") };
        delete(&pods, leader.name())?.allowed()?.with_warning("leadership was transferred to etcd-")?;
        let now = etcd.roles_by_metrics()?;
        ensure!(now.iter().any(|(member, leads)| *leads && member.name() != leader.name()), "it still leads");
        pods.replace(leader.name())?;
        let _stopped = down.stop()?;
        delete(&pods, up.name())?.denied()?.with_cause(down.name(), "NoResponse")?;
    }
    Ok(())
}
