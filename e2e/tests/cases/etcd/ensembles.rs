//! The ensembles by themselves, without Durward: what the other cases rest on.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::ensemble::{Ensemble, Line, MadeOutTo, Trust};
use e2e::stage::Stage;

/// A member that was away catches up as soon as its leader tries it again.
const BACK_WITHIN: Duration = Duration::from_secs(60);

pub(crate) fn every_line_forms_an_ensemble_and_hands_its_leadership_on(stage: &'static Stage) -> Result<()> {
    for line in Line::ALL {
        let ensemble = Ensemble::of(3).line(line).start(stage)?;
        let leader = ensemble.leader()?;
        let version = leader.status()?.version;
        ensure!(version.starts_with(line.prefix()), "an etcd of {line} is {version}");
        let next = ensemble.follower()?;
        next.reads()?;
        ensemble.led_by(next)?;
        ensure!(next.status()?.leads() && !leader.status()?.leads(), "the leadership was not handed on");
        let peers: Vec<_> = ensemble.members().iter().map(e2e::ensemble::Member::address).collect();
        ensure!(peers.iter().all(std::net::Ipv4Addr::is_loopback), "{peers:?}");
    }
    Ok(())
}

pub(crate) fn without_a_quorum_nobody_leads_until_there_is_one_again(stage: &'static Stage) -> Result<()> {
    let ensemble = Ensemble::of(3).start(stage)?;
    let [one, other] = ensemble.followers()?[..] else { anyhow::bail!("not two of three follow") };
    let leader = ensemble.leader()?;
    let gone = [one.kill()?, other.stop()?];
    ensure!(one.status().is_err(), "a killed member answers");
    ensemble.await_leaderless(leader)?;
    for stopped in gone {
        stopped.start()?;
    }
    leader.await_reads(BACK_WITHIN)?;
    ensemble.leader().map(drop)
}

pub(crate) fn a_frozen_member_is_silent_and_catches_up(stage: &'static Stage) -> Result<()> {
    let ensemble = Ensemble::of(3).start(stage)?;
    let (leader, follower) = (ensemble.leader()?, ensemble.follower()?);
    let frozen = follower.freeze()?;
    ensure!(follower.status().is_err(), "a frozen member answers");
    leader.writes("while", b"frozen")?.succeeded()?;
    leader.reads()?;
    frozen.thaw()?;
    follower.await_reads(BACK_WITHIN)?;
    ensure!(follower.status()?.index >= leader.status()?.index, "it did not catch up");
    Ok(())
}

pub(crate) fn learners_alarms_and_members_that_never_start_are_told(stage: &'static Stage) -> Result<()> {
    let mut ensemble = Ensemble::of(3).quota(2 << 20).start(stage)?;
    ensemble.add_learner(stage)?;
    ensure!(ensemble.members().len() == 4, "no learner");
    ensemble.fill()?;
    ensemble.leader()?.reads()?;
    let (leader, follower) = (ensemble.leader()?, ensemble.member("etcd-3")?);
    ensure!(follower.reads().is_err(), "a learner serves what a quorum stands behind");
    leader.raises("CORRUPT")?;
    ensemble.await_alarm("CORRUPT")
}

pub(crate) fn an_ensemble_serves_tls_and_asks_for_logins(stage: &'static Stage) -> Result<()> {
    for (to, asks) in [(MadeOutTo::Addresses, false), (MadeOutTo::Name("etcd.db.svc".to_owned()), true)] {
        let ensemble = Ensemble::of(3).trusting(Trust::new(to, asks)?).start(stage)?;
        ensemble.leader()?.reads()?;
        ensemble.ask_for_logins("pass")?;
        ensure!(ensemble.members()[0].reads().is_err(), "nobody has to log in");
    }
    Ok(())
}
