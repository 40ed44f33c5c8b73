//! The rule of the quorum: a member that can be counted on goes only if the others are a quorum without it.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::ensemble::pods::Pods;
use e2e::ensemble::{Ensemble, Line, Member};
use e2e::patience::{Seen, eventually};
use e2e::stage::Stage;
use serde_json::json;

use super::attempt::{Way, delete, evict, try_delete};
use super::house::{Kind, house, installed, namespace, workshop};

/// A member that hangs costs its own second; two looks at it and what a loaded machine takes.
const ONE_HANGS: Duration = Duration::from_secs(6);

/// A member that was away catches up as soon as its leader tries it again.
const BACK_WITHIN: Duration = Duration::from_secs(60);

/// Two followers; there are no fewer.
pub(super) fn two_followers(ensemble: &Ensemble) -> Result<[&Member; 2]> {
    let followers = ensemble.followers()?;
    let two = followers.get(..2).and_then(|two| <[&Member; 2]>::try_from(two).ok());
    two.context("fewer than two members follow")
}

pub(crate) fn of_three_healthy_members_of_3_4_each_may_go(stage: &'static Stage) -> Result<()> {
    each_may_go(stage, Line::V3_4)
}

pub(crate) fn of_three_healthy_members_of_3_5_each_may_go(stage: &'static Stage) -> Result<()> {
    each_may_go(stage, Line::V3_5)
}

pub(crate) fn of_three_healthy_members_of_3_6_each_may_go(stage: &'static Stage) -> Result<()> {
    each_may_go(stage, Line::V3_6)
}

/// One after another, by every way there is; the leader hands over first.
fn each_may_go(stage: &'static Stage, line: Line) -> Result<()> {
    let space = house(stage)?.namespace("three", Kind::Transfer)?;
    let ensemble = Ensemble::of(3).line(line).start(stage)?;
    let pods = ensemble.pods_in(&space)?;
    let api = space.cluster().api();
    let follower = ensemble.follower()?;
    delete(&pods, follower.name())?.allowed()?.without_warnings()?;
    pods.replace(follower.name())?;
    for way in [Way::Evict, Way::EvictBeta, Way::Delete] {
        let leader = ensemble.leader()?;
        let verdict = way.goes(api, &pods, leader.name())?.allowed()?.warning("leadership moved to etcd-")?;
        let next = ensemble.leader()?;
        ensure!(next.name() != leader.name(), "it still leads: {}", verdict.told());
        verdict.warning(&format!("leadership moved to {}", next.name()))?;
        ensure!(pods.is_going(leader.name())?, "{} was not let go", leader.name());
        pods.replace(leader.name())?;
    }
    Ok(())
}

pub(crate) fn with_one_of_three_down_no_healthy_one_goes_and_that_one_does(
    stage: &'static Stage,
) -> Result<()> {
    let space = house(stage)?.namespace("down", Kind::Transfer)?;
    for line in Line::ALL {
        let name = format!("etcd-{}", line.to_string().replace('.', "-"));
        let ensemble = Ensemble::of(3).named(&name).line(line).start(stage)?;
        let pods = ensemble.pods_in(&space)?;
        let (leader, [down, up]) = (ensemble.leader()?, two_followers(&ensemble)?);
        let stopped = down.stop()?;
        for way in Way::ALL {
            for name in [up.name(), leader.name()] {
                way.goes(space.cluster().api(), &pods, name)?
                    .refused()?
                    .saying(&[
                        name,
                        "only 1 other member is healthy",
                        "2 of the 3",
                        down.name(),
                        "delete-anyway",
                    ])?
                    .telling(down.name(), "Silent")?;
                ensure!(!pods.is_going(name)?, "{name} was let go");
            }
        }
        ensure!(ensemble.leader()?.name() == leader.name(), "a leader that does not go has handed over");
        try_delete(&pods, down.name())?.allowed()?;
        delete(&pods, down.name())?.allowed()?;
        // Its pod comes back, and its member: then another may go.
        pods.replace(down.name())?;
        stopped.start()?;
        down.await_reads(BACK_WITHIN)?;
        ensemble.leader()?;
        evict(&pods, up.name())?.allowed()?;
    }
    Ok(())
}

pub(crate) fn of_five_two_may_be_away_and_not_three(stage: &'static Stage) -> Result<()> {
    let space = house(stage)?.namespace("five", Kind::Transfer)?;
    let ensemble = Ensemble::of(5).start(stage)?;
    let pods = ensemble.pods_in(&space)?;
    let followers = ensemble.followers()?;
    let [one, two, three, four] = followers[..] else { anyhow::bail!("not four of five follow") };
    let first = one.kill()?;
    try_delete(&pods, two.name())?.allowed()?;
    let second = two.kill()?;
    delete(&pods, three.name())?.refused()?.saying(&["only 2 other members are healthy", "3 of the 5"])?;
    evict(&pods, ensemble.leader()?.name())?.refused()?;
    delete(&pods, one.name())?.allowed()?;
    first.start()?;
    second.start()?;
    one.await_reads(BACK_WITHIN)?;
    two.await_reads(BACK_WITHIN)?;
    // The one that was let go counts for nothing, whatever it says.
    delete(&pods, three.name())?.allowed()?;
    delete(&pods, four.name())?
        .refused()?
        .saying(&["only 2 other members are healthy"])?
        .telling(one.name(), "Leaving")?
        .telling(three.name(), "Leaving")?;
    Ok(())
}

pub(crate) fn where_the_quorum_is_lost_what_is_left_stays_and_what_is_down_goes(
    stage: &'static Stage,
) -> Result<()> {
    let space = house(stage)?.namespace("lost", Kind::Transfer)?;
    let ensemble = Ensemble::of(3).start(stage)?;
    let pods = ensemble.pods_in(&space)?;
    let (left, [one, other]) = (ensemble.leader()?, two_followers(&ensemble)?);
    let (_one, _other) = (one.kill()?, other.kill()?);
    // A moment after the loss it still takes itself for the leader; nobody else may.
    delete(&pods, left.name())?.refused()?;
    ensemble.await_leaderless(left)?;
    for way in Way::ALL {
        let refused = way.goes(space.cluster().api(), &pods, left.name())?.refused()?;
        refused.saying(&["the quorum is lost", "one of the members that are left"])?;
    }
    for down in [one, other] {
        delete(&pods, down.name())?.allowed()?.warning("the others are not known to be a quorum")?;
    }
    ensure!(pods.staying()? == [left.name()], "{:?}", pods.staying()?);
    Ok(())
}

pub(crate) fn one_and_two_members_go_with_a_warning_that_it_is_an_outage(
    stage: &'static Stage,
) -> Result<()> {
    let space = house(stage)?.namespace("small", Kind::Transfer)?;
    for (members, words) in [(1, "it is the only member"), (2, "the ensemble has 2 members")] {
        let ensemble = Ensemble::of(members).named(&format!("etcd-of-{members}")).start(stage)?;
        let pods = ensemble.pods_in(&space)?;
        for member in ensemble.members() {
            try_delete(&pods, member.name())?.allowed()?.warning(words)?;
        }
        let last = ensemble.members().last().context("no members")?;
        delete(&pods, last.name())?.allowed()?.warning("nothing can be read or written")?;
    }
    Ok(())
}

pub(crate) fn a_learner_goes_and_while_there_is_one_that_is_told(stage: &'static Stage) -> Result<()> {
    let space = house(stage)?.namespace("learner", Kind::Transfer)?;
    let mut ensemble = Ensemble::of(3).start(stage)?;
    ensemble.add_learner(stage)?;
    let pods = ensemble.pods_in(&space)?;
    let learner = ensemble.member("etcd-3")?;
    let voter = ensemble.followers()?.into_iter().find(|member| member.name() != learner.name());
    let voter = voter.context("no voter follows")?;
    try_delete(&pods, voter.name())?.allowed()?.warning("members that do not vote yet: 1")?;
    // It counts for nothing: with one of three voters down none of the others goes.
    let away = voter.stop()?;
    let leader = ensemble.leader()?;
    delete(&pods, leader.name())?.refused()?.saying(&["2 of the 3"])?.telling(learner.name(), "Learner")?;
    drop(away);
    voter.await_reads(BACK_WITHIN)?;
    evict(&pods, learner.name())?.allowed()?.warning("no vote that could be missed")?;
    Ok(())
}

pub(crate) fn a_member_that_was_announced_and_never_started_counts_as_a_voter(
    stage: &'static Stage,
) -> Result<()> {
    let space = house(stage)?.namespace("announced", Kind::Transfer)?;
    let ensemble = Ensemble::of(3).start(stage)?;
    let pods = ensemble.pods_in(&space)?;
    ensemble.announce_member()?;
    delete(&pods, ensemble.follower()?.name())?
        .refused()?
        .saying(&["only 2 other members are healthy", "3 of the 4"])?;
    Ok(())
}

pub(crate) fn a_full_database_is_told_and_a_corrupt_member_counts_for_nothing(
    stage: &'static Stage,
) -> Result<()> {
    let space = house(stage)?.namespace("alarm", Kind::Transfer)?;
    let full = Ensemble::of(3).named("etcd-full").quota(2 << 20).start(stage)?;
    let pods = full.pods_in(&space)?;
    full.fill()?;
    delete(&pods, full.follower()?.name())?.allowed()?.warning("NOSPACE")?;

    let ensemble = Ensemble::of(3).start(stage)?;
    let pods = ensemble.pods_in(&space)?;
    let [corrupt, well] = two_followers(&ensemble)?;
    corrupt.raises("CORRUPT")?;
    ensemble.await_alarm("CORRUPT")?;
    delete(&pods, well.name())?
        .refused()?
        .saying(&["only 1 other member is healthy"])?
        .telling(corrupt.name(), "Corrupt")?;
    delete(&pods, corrupt.name())?.allowed()?.warning("its data is corrupt")?;
    Ok(())
}

pub(crate) fn where_nobody_knows_whose_data_is_corrupt_nobody_goes(stage: &'static Stage) -> Result<()> {
    let space = house(stage)?.namespace("doubt", Kind::Transfer)?;
    for line in Line::ALL {
        let name = format!("etcd-{}", line.to_string().replace('.', "-"));
        let ensemble = Ensemble::of(3).named(&name).line(line).start(stage)?;
        let pods = ensemble.pods_in(&space)?;
        let [one, other] = two_followers(&ensemble)?;
        one.raises_of_nobody("CORRUPT")?;
        ensemble.await_alarm("CORRUPT")?;
        for member in [ensemble.leader()?, one, other] {
            try_delete(&pods, member.name())?.refused()?.saying(&["names no member", "hashkv"])?;
        }
    }
    Ok(())
}

pub(crate) fn a_member_that_hangs_costs_its_own_time_and_counts_for_nothing(
    stage: &'static Stage,
) -> Result<()> {
    let cluster = workshop(stage)?;
    // The default.
    let (_installation, _durward) = installed(stage, cluster, &["memberDeadline: 1s"])?;
    let space = namespace(cluster, "hangs", Kind::Transfer)?;
    let ensemble = Ensemble::of(3).start(stage)?;
    let pods = ensemble.pods_in(&space)?;
    let [hangs, well] = two_followers(&ensemble)?;
    let frozen = hangs.freeze()?;
    for way in [Way::Delete, Way::Evict] {
        way.goes(space.cluster().api(), &pods, well.name())?
            .refused()?
            .within(ONE_HANGS)?
            .telling(hangs.name(), "Silent")?;
    }
    // The others have a second as well, and both have to answer in it.
    eventually("the one that hangs to be let go", BACK_WITHIN, || {
        let attempt = try_delete(&pods, hangs.name())?;
        Ok(if attempt.is_allowed() {
            Seen::Yes(attempt.allowed()?.within(ONE_HANGS)?)
        } else {
            Seen::NotYet(attempt.told())
        })
    })?;
    frozen.thaw()?;
    hangs.await_reads(BACK_WITHIN)?;
    // Status comes at once, and what a quorum stands behind never: this one's leader and the other one hang.
    let (leader, [one, other]) = (ensemble.leader()?, two_followers(&ensemble)?);
    let (_one, _other) = (leader.freeze()?, other.freeze()?);
    delete(&pods, one.name())?.refused()?.within(ONE_HANGS)?;
    ensure!(pods.staying()?.len() == 3, "one of three was let go");
    Ok(())
}

pub(crate) fn where_pods_take_their_member_along_a_quorum_is_one_of_the_others(
    stage: &'static Stage,
) -> Result<()> {
    let space = house(stage)?.namespace("leaves", Kind::Transfer)?;
    let ensemble = Ensemble::of(4).start(stage)?;
    let hook = json!({"preStop": {"exec": {"command": ["/bin/sh", "-c", "etcdctl member remove $ID; rm -rf /var/lib/etcd"]}}});
    let leaving = ensemble.pods_like(&space, |pod| pod["spec"]["containers"][0]["lifecycle"] = hook)?;
    let [down, up] = two_followers(&ensemble)?;
    let _stopped = down.stop()?;
    // Two of three others are healthy: enough where the member leaves the list, and not where it stays.
    try_delete(&leaving, up.name())?.allowed()?;
    let staying = house(stage)?.namespace("stays", Kind::Transfer)?;
    let staying = ensemble.pods_in(&staying)?;
    try_delete(&staying, up.name())?.refused()?.saying(&["only 2 other members", "3 of the 4"])?;
    Ok(())
}

pub(crate) fn data_that_goes_with_the_pod_is_told(stage: &'static Stage) -> Result<()> {
    let space = house(stage)?.namespace("data", Kind::Transfer)?;
    let ensemble = Ensemble::of(3).start(stage)?;
    let pods = ensemble.pods_like(&space, |pod| {
        pod["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    })?;
    let follower = ensemble.follower()?.name();
    try_delete(&pods, follower)?.allowed()?.warning("what the member has written is lost")?;
    Ok(())
}

/// Whose pods are all that is asked about: the pods of another ensemble in the same namespace are others.
pub(crate) fn ensembles_of_one_namespace_do_not_count_for_each_other(stage: &'static Stage) -> Result<()> {
    let space = house(stage)?.namespace("tenants", Kind::Transfer)?;
    let well = Ensemble::of(3).named("well").start(stage)?;
    let ill = Ensemble::of(3).named("ill").start(stage)?;
    let (of_well, of_ill): (Pods<'_>, Pods<'_>) = (well.pods_in(&space)?, ill.pods_in(&space)?);
    let [down, up] = two_followers(&ill)?;
    let _stopped = down.stop()?;
    delete(&of_ill, up.name())?.refused()?.not_saying(&["well-"])?;
    delete(&of_well, well.follower()?.name())?.allowed()?.without_warnings()?;
    Ok(())
}
