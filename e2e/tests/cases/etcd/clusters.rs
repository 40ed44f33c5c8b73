//! The etcd clusters that other cases rely on, without Durward.

use e2e::etcd_cluster::{EtcdCluster, IssuedFor, Release, ServerTls};
use e2e::prelude::*;

/// A member that was away catches up when its leader retries.
const BACK_WITHIN: Duration = Duration::from_secs(60);

#[e2e::case]
fn every_version_forms_a_cluster_and_transfers_leadership(context: &'static TestContext) -> Result<()> {
    for release in Release::tested()? {
        let etcd = EtcdCluster::of(3).release(release).start(context)?;
        let leader = etcd.leader()?;
        let version = leader.status()?.version;
        ensure!(version.starts_with(release.prefix()), "an etcd of {release} is {version}");
        let next = etcd.follower()?;
        next.read()?;
        etcd.transfer_leadership_to(next)?;
        ensure!(next.status()?.leads() && !leader.status()?.leads(), "the leadership was not transferred");
        let peers: Vec<_> = etcd.members().iter().map(e2e::etcd_cluster::Member::address).collect();
        ensure!(peers.iter().all(std::net::Ipv4Addr::is_loopback), "{peers:?}");
    }
    Ok(())
}

#[e2e::case]
fn without_a_quorum_there_is_no_leader(context: &'static TestContext) -> Result<()> {
    let etcd = EtcdCluster::of(3).start(context)?;
    let [one, other] = etcd.followers()?[..] else { bail!("there are not two followers") };
    let leader = etcd.leader()?;
    let gone = [one.kill()?, other.stop()?];
    ensure!(one.status().is_err(), "a killed member answers");
    etcd.await_leaderless(leader)?;
    for stopped in gone {
        stopped.undo()?;
    }
    leader.await_reads(BACK_WITHIN)?;
    etcd.leader().map(drop)
}

#[e2e::case]
fn a_frozen_member_does_not_answer_and_catches_up(context: &'static TestContext) -> Result<()> {
    let etcd = EtcdCluster::of(3).start(context)?;
    let (leader, follower) = (etcd.leader()?, etcd.follower()?);
    let frozen = follower.freeze()?;
    ensure!(follower.status().is_err(), "a frozen member answers");
    leader.write("while", b"frozen")?.succeeded()?;
    leader.read()?;
    frozen.undo()?;
    follower.await_reads(BACK_WITHIN)?;
    ensure!(follower.status()?.index >= leader.status()?.index, "it did not catch up");
    Ok(())
}

#[e2e::case]
fn learners_and_alarms_are_reported(context: &'static TestContext) -> Result<()> {
    let mut etcd = EtcdCluster::of(3).quota(2 << 20).start(context)?;
    etcd.add_learner(context)?;
    ensure!(etcd.members().len() == 4, "no learner");
    etcd.fill()?;
    etcd.leader()?.read()?;
    let (leader, follower) = (etcd.leader()?, etcd.member("etcd-3")?);
    ensure!(follower.read().is_err(), "a learner answers linearizable reads");
    leader.raise_alarm("CORRUPT")?;
    etcd.await_alarm("CORRUPT")
}

#[e2e::case]
fn a_cluster_serves_tls_and_requires_logins(context: &'static TestContext) -> Result<()> {
    for (to, asks) in [(IssuedFor::Addresses, false), (IssuedFor::Name("etcd.db.svc".to_owned()), true)] {
        let etcd = EtcdCluster::of(3).tls(ServerTls::new(to, asks)?).start(context)?;
        etcd.leader()?.read()?;
        etcd.enable_authentication("pass")?;
        ensure!(etcd.members()[0].read().is_err(), "no login is required");
    }
    Ok(())
}
