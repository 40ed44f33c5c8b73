//! The quorum rule: a healthy member can be deleted only if the others keep the quorum without it.

use e2e::etcd_cluster::pods::Pods;
use e2e::etcd_cluster::{EtcdCluster, Member, Release};
use e2e::prelude::*;

use super::environment::{Profile, environment, guarded_etcd, installed, lease_path, namespace, scratch};
use super::requests::{Removal, delete, dry_run, evict};

/// A hanging member takes its own second; two requests to it, plus time for a loaded machine.
const REVIEW_LIMIT: Duration = Duration::from_secs(6);

/// A member that was away catches up when its leader retries.
const BACK_WITHIN: Duration = Duration::from_secs(60);

pub(in crate::cases) fn two_followers(etcd: &EtcdCluster) -> Result<[&Member; 2]> {
    let followers = etcd.followers()?;
    let two = followers.get(..2).and_then(|two| <[&Member; 2]>::try_from(two).ok());
    two.context("there are fewer than two followers")
}

#[e2e::case]
fn each_of_three_healthy_members_can_be_deleted(context: &'static TestContext) -> Result<()> {
    for release in Release::tested()? {
        let ns = environment(context)?.namespace("three", Profile::Transfer)?;
        each_can_be_deleted(&ns, &EtcdCluster::of(3).release(release).start(context)?)?;
    }
    Ok(())
}

/// Deletes three members one after another in every way. The leader transfers leadership first.
pub(in crate::cases) fn each_can_be_deleted(ns: &Namespace<'_>, etcd: &EtcdCluster) -> Result<()> {
    let pods = etcd.pods_in(ns)?;
    let api = ns.cluster().api();
    let follower = etcd.follower()?;
    delete(&pods, follower.name())?.allowed()?.without_warnings()?;
    pods.replace(follower.name())?;
    for removal in [Removal::Evict, Removal::EvictBeta, Removal::Delete] {
        let leader = etcd.leader()?;
        let verdict = removal
            .send(api, &pods, leader.name())?
            .allowed()?
            .with_warning("leadership was transferred to etcd-")?;
        let next = etcd.leader()?;
        ensure!(next.name() != leader.name(), "the deleted member still leads: {}", verdict.describe());
        verdict.with_warning(&format!("leadership was transferred to {}", next.name()))?;
        ensure!(pods.is_terminating(leader.name())?, "{} was not deleted", leader.name());
        pods.replace(leader.name())?;
    }
    Ok(())
}

#[e2e::case]
fn with_one_of_three_down_only_that_one_can_be_deleted(context: &'static TestContext) -> Result<()> {
    for release in Release::tested()? {
        let ns = environment(context)?.namespace("down", Profile::Transfer)?;
        only_a_stopped_member_can_be_deleted(&ns, &EtcdCluster::of(3).release(release).start(context)?)?;
    }
    Ok(())
}

/// Stops one of three members, and deletes each in every way.
pub(in crate::cases) fn only_a_stopped_member_can_be_deleted(
    ns: &Namespace<'_>,
    etcd: &EtcdCluster,
) -> Result<()> {
    let pods = etcd.pods_in(ns)?;
    let (leader, [down, up]) = (etcd.leader()?, two_followers(etcd)?);
    let stopped = down.stop()?;
    for removal in Removal::ALL {
        for name in [up.name(), leader.name()] {
            removal
                .send(ns.cluster().api(), &pods, name)?
                .denied()?
                .with_message(&[name, "1 of 3 members would be left, 2 are needed", down.name()])?
                .with_cause(down.name(), "NoResponse")?;
            ensure!(!pods.is_terminating(name)?, "{name} was deleted");
        }
    }
    ensure!(etcd.leader()?.name() == leader.name(), "a denied leader transferred leadership");
    dry_run(&pods, down.name())?.allowed()?;
    delete(&pods, down.name())?.allowed()?;
    // The pod and its member return, and then another one can be deleted.
    pods.replace(down.name())?;
    stopped.undo()?;
    down.await_reads(BACK_WITHIN)?;
    etcd.leader()?;
    evict(&pods, up.name())?.allowed().map(drop)
}

#[e2e::case]
fn two_of_five_can_be_down_but_not_three(context: &'static TestContext) -> Result<()> {
    let (ns, etcd) = guarded_etcd(context, 5, "five", Profile::Transfer)?;
    let pods = etcd.pods_in(&ns)?;
    let followers = etcd.followers()?;
    let [one, two, three, four] = followers[..] else { bail!("there are not four followers") };
    let first = one.kill()?;
    dry_run(&pods, two.name())?.allowed()?;
    let second = two.kill()?;
    delete(&pods, three.name())?.denied()?.with_message(&["2 of 5 members would be left, 3 are needed"])?;
    evict(&pods, etcd.leader()?.name())?.denied()?;
    delete(&pods, one.name())?.allowed()?;
    first.undo()?;
    second.undo()?;
    one.await_reads(BACK_WITHIN)?;
    two.await_reads(BACK_WITHIN)?;
    // A terminating member does not count, whatever it answers and whether or not it has a reservation.
    ns.cluster().api().delete(&lease_path(ns.name()))?.succeeded()?;
    delete(&pods, three.name())?.allowed()?;
    ns.cluster().api().delete(&lease_path(ns.name()))?.succeeded()?;
    delete(&pods, four.name())?
        .denied()?
        .with_message(&["2 of 5 members would be left"])?
        .with_cause(one.name(), "Leaving")?
        .with_cause(three.name(), "Leaving")
        .map(drop)
}

#[e2e::case]
fn without_a_quorum_only_members_that_are_down_can_be_deleted(context: &'static TestContext) -> Result<()> {
    let (ns, etcd) = guarded_etcd(context, 3, "lost", Profile::Transfer)?;
    let pods = etcd.pods_in(&ns)?;
    let (left, [one, other]) = (etcd.leader()?, two_followers(&etcd)?);
    let (_one, _other) = (one.kill()?, other.kill()?);
    // Shortly after the loss it still reports itself as the leader; it cannot be deleted.
    delete(&pods, left.name())?.denied()?;
    etcd.await_leaderless(left)?;
    for removal in Removal::ALL {
        let denied = removal.send(ns.cluster().api(), &pods, left.name())?.denied()?;
        denied.with_message(&["has already lost quorum", "still answers"])?;
    }
    for down in [one, other] {
        delete(&pods, down.name())?.allowed()?.with_warning("the other members might not have quorum")?;
        // Otherwise the next one waits.
        ns.cluster().api().delete(&lease_path(ns.name()))?.succeeded()?;
    }
    ensure!(pods.active()? == [left.name()], "{:?}", pods.active()?);
    Ok(())
}

#[e2e::case]
fn one_or_two_members_are_allowed_with_an_outage_warning(context: &'static TestContext) -> Result<()> {
    let ns = environment(context)?.namespace("small", Profile::Transfer)?;
    for (members, words) in [(1, "it is the only member"), (2, "the cluster has 2 members")] {
        let etcd = EtcdCluster::of(members).named(&format!("etcd-of-{members}")).start(context)?;
        let pods = etcd.pods_in(&ns)?;
        for member in etcd.members() {
            dry_run(&pods, member.name())?.allowed()?.with_warning(words)?;
        }
        let last = etcd.members().last().context("no members")?;
        delete(&pods, last.name())?.allowed()?.with_warning("reads and writes fail")?;
    }
    Ok(())
}

#[e2e::case]
fn a_learner_can_be_deleted_and_is_mentioned(context: &'static TestContext) -> Result<()> {
    let ns = environment(context)?.namespace("learner", Profile::Transfer)?;
    let mut etcd = EtcdCluster::of(3).start(context)?;
    etcd.add_learner(context)?;
    let pods = etcd.pods_in(&ns)?;
    let learner = etcd.member("etcd-3")?;
    let voter = etcd.followers()?.into_iter().find(|member| member.name() != learner.name());
    let voter = voter.context("no follower votes")?;
    dry_run(&pods, voter.name())?.allowed()?.with_warning("learners that do not vote yet: 1")?;
    // A learner does not count: with one of three voters down, no other one can be deleted.
    let away = voter.stop()?;
    let leader = etcd.leader()?;
    delete(&pods, leader.name())?
        .denied()?
        .with_message(&["2 are needed"])?
        .with_cause(learner.name(), "Learner")?;
    drop(away);
    voter.await_reads(BACK_WITHIN)?;
    evict(&pods, learner.name())?.allowed()?.with_warning("does not vote").map(drop)
}

#[e2e::case]
fn a_member_that_never_started_counts_as_a_voter(context: &'static TestContext) -> Result<()> {
    let (ns, etcd) = guarded_etcd(context, 3, "announced", Profile::Transfer)?;
    let pods = etcd.pods_in(&ns)?;
    etcd.add_unstarted_member()?;
    delete(&pods, etcd.follower()?.name())?
        .denied()?
        .with_message(&["2 of 4 members would be left, 3 are needed"])
        .map(drop)
}

/// A member that is isolated from the others keeps its old member list, and answers clients.
#[e2e::case(Soak)]
fn an_isolated_member_with_an_old_list_never_makes_a_deletion_allowed(
    context: &'static TestContext,
) -> Result<()> {
    for run in 0..50 {
        let releases = Release::tested()?;
        let release = *releases.get(run % releases.len()).context("no release")?;
        let ns = environment(context)?.namespace("isolated", Profile::Transfer)?;
        let mut etcd = EtcdCluster::of(3).release(release).with_relays().start(context)?;
        let old = etcd.follower()?.name().to_owned();
        etcd.isolate(etcd.member(&old)?)?;
        etcd.await_leaderless(etcd.member(&old)?)?;
        etcd.add_voter(context)?;
        etcd.add_voter(context)?;
        let pods = etcd.pods_in(&ns)?;
        // The others are three of five, so each of them is needed.
        let (down, needed): (Vec<&Member>, Vec<&Member>) =
            etcd.members().iter().filter(|one| one.name() != old).partition(|one| one.name() == "etcd-4");
        let _stopped = down.iter().map(|one| one.stop()).collect::<Result<Vec<_>>>()?;
        for hidden in [None, needed.get(run % 3)] {
            let _frozen = hidden.map(|one| one.freeze()).transpose()?;
            for member in &needed {
                let attempt = delete(&pods, member.name())?;
                ensure!(!attempt.is_allowed(), "run {run}, {release}: {}", attempt.describe());
            }
        }
    }
    Ok(())
}

#[e2e::case]
fn nospace_is_a_warning_and_a_corrupt_member_does_not_count(context: &'static TestContext) -> Result<()> {
    let ns = environment(context)?.namespace("alarm", Profile::Transfer)?;
    let full = EtcdCluster::of(3).named("etcd-full").quota(2 << 20).start(context)?;
    let pods = full.pods_in(&ns)?;
    full.fill()?;
    delete(&pods, full.follower()?.name())?.allowed()?.with_warning("NOSPACE")?;

    let etcd = EtcdCluster::of(3).start(context)?;
    let pods = etcd.pods_in(&ns)?;
    let [corrupt, healthy] = two_followers(&etcd)?;
    corrupt.raise_alarm("CORRUPT")?;
    etcd.await_alarm("CORRUPT")?;
    delete(&pods, healthy.name())?
        .denied()?
        .with_message(&["1 of 3 members would be left"])?
        .with_cause(corrupt.name(), "Corrupt")?;
    delete(&pods, corrupt.name())?.allowed()?.with_warning("its data is corrupt").map(drop)
}

#[e2e::case]
fn a_corrupt_alarm_without_a_member_denies_every_deletion(context: &'static TestContext) -> Result<()> {
    let ns = environment(context)?.namespace("doubt", Profile::Transfer)?;
    for release in Release::tested()? {
        let name = format!("etcd-{}", release.to_string().replace('.', "-"));
        let etcd = EtcdCluster::of(3).named(&name).release(release).start(context)?;
        let pods = etcd.pods_in(&ns)?;
        let [one, other] = two_followers(&etcd)?;
        one.raise_alarm_without_member("CORRUPT")?;
        etcd.await_alarm("CORRUPT")?;
        for member in [etcd.leader()?, one, other] {
            dry_run(&pods, member.name())?
                .denied()?
                .with_message(&["CORRUPT alarm without naming a member"])?;
        }
    }
    Ok(())
}

#[e2e::case]
fn a_member_that_hangs_takes_its_deadline_and_does_not_count(context: &'static TestContext) -> Result<()> {
    let cluster = scratch(context)?;
    let (_installation, _durward) = installed(context, cluster, &["webhook: {timeoutSeconds: 10}"])?;
    let ns = namespace(cluster, "hangs", Profile::Transfer)?;
    let etcd = EtcdCluster::of(3).start(context)?;
    let pods = etcd.pods_in(&ns)?;
    let [hangs, healthy] = two_followers(&etcd)?;
    let frozen = hangs.freeze()?;
    for removal in [Removal::Delete, Removal::Evict] {
        removal
            .send(ns.cluster().api(), &pods, healthy.name())?
            .denied()?
            .within(REVIEW_LIMIT)?
            .with_cause(hangs.name(), "NoResponse")?;
    }
    // The others have one second as well, and both have to answer in it.
    eventually("the hanging member to be allowed", WAIT_LIMIT, || {
        let attempt = dry_run(&pods, hangs.name())?;
        Ok(if attempt.is_allowed() {
            Poll::Ready(attempt.allowed()?.within(REVIEW_LIMIT)?)
        } else {
            Poll::Pending(attempt.describe())
        })
    })?;
    frozen.undo()?;
    hangs.await_reads(BACK_WITHIN)?;
    // The status answers at once and a linearizable read never does, because the leader and the other
    // follower hang.
    let (leader, [one, other]) = (etcd.leader()?, two_followers(&etcd)?);
    let (_one, _other) = (leader.freeze()?, other.freeze()?);
    delete(&pods, one.name())?.denied()?.within(REVIEW_LIMIT)?;
    ensure!(pods.active()?.len() == 3, "one of three was deleted");
    Ok(())
}

/// A `StatefulSet` after the one of Kubernetes' own end-to-end tests. Its preStop hook removes the member under a condition.
const UPSTREAM_MANIFEST: &str =
    include_str!("../../../../crates/webhook/durward/tests/data/etcd-statefulset.yaml");

/// A pod doesn't show whether its preStop hook will remove the member, so only `memberOnPodDelete` counts.
#[e2e::case]
fn a_hook_does_not_change_the_quorum(context: &'static TestContext) -> Result<()> {
    let manifest: Value = serde_saphyr::from_str(UPSTREAM_MANIFEST).context("the upstream manifest")?;
    let conditional = &manifest["spec"]["template"]["spec"]["containers"][0];
    let mut always = conditional.clone();
    always["lifecycle"]["preStop"]["exec"]["command"] =
        json!(["/bin/sh", "-ec", "etcdctl member remove $ID; rm -rf /var/run/etcd"]);
    let shared = environment(context)?;
    for (members, left) in
        [(3, "1 of 3 members would be left, 2 are needed"), (4, "2 of 4 members would be left, 3 are needed")]
    {
        let (ns, etcd) = guarded_etcd(context, members, "document", Profile::Transfer)?;
        let other = shared.namespace("always", Profile::Transfer)?;
        let removed = shared.namespace("removed", Profile::Removed)?;
        let pods = [(&ns, conditional), (&other, &always), (&removed, conditional)].map(|(ns, container)| {
            etcd.pods_like(ns, |pod| {
                pod["spec"]["containers"] = json!([container]);
                pod["spec"]["volumes"][0]["name"] = "datadir".into();
            })
        });
        let [conditional, always, removed] = pods;
        let (conditional, always, removed) = (conditional?, always?, removed?);
        let [down, up] = two_followers(&etcd)?;
        dry_run(&conditional, up.name())?.allowed()?;
        let _stopped = down.stop()?;
        for pods in [&conditional, &always] {
            delete(pods, up.name())?
                .denied()?
                .with_message(&[left])?
                .with_cause(down.name(), "NoResponse")?;
            ensure!(!pods.is_terminating(up.name())?, "{} was deleted", up.name());
        }
        // Two of the three others are healthy, which is enough if the member leaves the list.
        if members == 4 {
            dry_run(&removed, up.name())?.allowed()?;
        }
    }
    Ok(())
}

#[e2e::case]
fn data_that_is_deleted_with_the_pod_is_a_warning(context: &'static TestContext) -> Result<()> {
    let (ns, etcd) = guarded_etcd(context, 3, "data", Profile::Transfer)?;
    let pods = etcd.pods_like(&ns, |pod| {
        pod["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    })?;
    let follower = etcd.follower()?.name();
    dry_run(&pods, follower)?.allowed()?.with_warning("its data is lost").map(drop)
}

/// A review covers one etcd cluster only, also with another one in the same namespace.
#[e2e::case]
fn etcd_clusters_in_one_namespace_are_separate(context: &'static TestContext) -> Result<()> {
    let ns = environment(context)?.namespace("tenants", Profile::Transfer)?;
    let healthy = EtcdCluster::of(3).named("healthy").start(context)?;
    let degraded = EtcdCluster::of(3).named("degraded").start(context)?;
    let (healthy_pods, degraded_pods): (Pods<'_>, Pods<'_>) = (healthy.pods_in(&ns)?, degraded.pods_in(&ns)?);
    let [down, up] = two_followers(&degraded)?;
    let _stopped = down.stop()?;
    delete(&degraded_pods, up.name())?.denied()?.without_text(&["healthy-"])?;
    delete(&healthy_pods, healthy.follower()?.name())?.allowed()?.without_warnings().map(drop)
}
