//! The etcd clusters by themselves, without Durward: what the other cases rest on.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::context::TestContext;
use e2e::etcd_cluster::{EtcdCluster, IssuedFor, Release, ServerTls};

/// A member that was away catches up as soon as its leader tries it again.
const BACK_WITHIN: Duration = Duration::from_secs(60);

pub(crate) fn every_line_forms_an_ensemble_and_hands_its_leadership_on(
    context: &'static TestContext,
) -> Result<()> {
    for release in Release::ALL {
        let etcd = EtcdCluster::of(3).release(release).start(context)?;
        let leader = etcd.leader()?;
        let version = leader.status()?.version;
        ensure!(version.starts_with(release.prefix()), "an etcd of {release} is {version}");
        let next = etcd.follower()?;
        next.reads()?;
        etcd.led_by(next)?;
        ensure!(next.status()?.leads() && !leader.status()?.leads(), "the leadership was not handed on");
        let peers: Vec<_> = etcd.members().iter().map(e2e::etcd_cluster::Member::address).collect();
        ensure!(peers.iter().all(std::net::Ipv4Addr::is_loopback), "{peers:?}");
    }
    Ok(())
}

pub(crate) fn without_a_quorum_nobody_leads_until_there_is_one_again(
    context: &'static TestContext,
) -> Result<()> {
    let etcd = EtcdCluster::of(3).start(context)?;
    let [one, other] = etcd.followers()?[..] else { anyhow::bail!("not two of three follow") };
    let leader = etcd.leader()?;
    let gone = [one.kill()?, other.stop()?];
    ensure!(one.status().is_err(), "a killed member answers");
    etcd.await_leaderless(leader)?;
    for stopped in gone {
        stopped.start()?;
    }
    leader.await_reads(BACK_WITHIN)?;
    etcd.leader().map(drop)
}

pub(crate) fn a_frozen_member_is_silent_and_catches_up(context: &'static TestContext) -> Result<()> {
    let etcd = EtcdCluster::of(3).start(context)?;
    let (leader, follower) = (etcd.leader()?, etcd.follower()?);
    let frozen = follower.freeze()?;
    ensure!(follower.status().is_err(), "a frozen member answers");
    leader.writes("while", b"frozen")?.succeeded()?;
    leader.reads()?;
    frozen.thaw()?;
    follower.await_reads(BACK_WITHIN)?;
    ensure!(follower.status()?.index >= leader.status()?.index, "it did not catch up");
    Ok(())
}

pub(crate) fn learners_alarms_and_members_that_never_start_are_told(
    context: &'static TestContext,
) -> Result<()> {
    let mut etcd = EtcdCluster::of(3).quota(2 << 20).start(context)?;
    etcd.add_learner(context)?;
    ensure!(etcd.members().len() == 4, "no learner");
    etcd.fill()?;
    etcd.leader()?.reads()?;
    let (leader, follower) = (etcd.leader()?, etcd.member("etcd-3")?);
    ensure!(follower.reads().is_err(), "a learner serves what a quorum stands behind");
    leader.raises("CORRUPT")?;
    etcd.await_alarm("CORRUPT")
}

pub(crate) fn an_ensemble_serves_tls_and_asks_for_logins(context: &'static TestContext) -> Result<()> {
    for (to, asks) in [(IssuedFor::Addresses, false), (IssuedFor::Name("etcd.db.svc".to_owned()), true)] {
        let etcd = EtcdCluster::of(3).tls(ServerTls::new(to, asks)?).start(context)?;
        etcd.leader()?.reads()?;
        etcd.ask_for_logins("pass")?;
        ensure!(etcd.members()[0].reads().is_err(), "nobody has to log in");
    }
    Ok(())
}
