//! Options of the guard: unknown results for users and controllers, denials instead of warnings,
//! and the override.
//!
//! Each case installs its own Durward.

use e2e::etcd_cluster::{EtcdCluster, FakeMember, pods};
use e2e::prelude::*;

use super::environment::{Profile, controller, installed, namespace, scratch};
use super::requests::{Removal, delete, dry_run};
use crate::cases::objects::allow;

#[e2e::case]
fn unknown_policy_differs_for_users_and_controllers(context: &'static TestContext) -> Result<()> {
    let cluster = scratch(context)?;
    let keys = ["onUnknown: {users: deny, controllers: allow}"];
    let (_installation, durward) = installed(context, cluster, &keys)?;
    let ns = namespace(cluster, "unknown", Profile::Transfer)?;
    let pods = pods::set(&ns, "etcd", 3, |_| {})?;
    let pages = (0..3).map(|_| FakeMember::page("200 OK", "text/html", "<html>It works</html>"));
    let pages = pages.collect::<Result<Vec<_>>>()?;
    for (at, page) in pages.iter().enumerate() {
        pods.add(&format!("etcd-{at}"), page.address())?;
    }
    let by_controller = controller(cluster)?;
    for removal in Removal::ALL {
        removal
            .dry_run(cluster.api(), &pods, "etcd-0")?
            .denied()?
            .with_message(&["cannot check etcd quorum"])?;
        removal
            .dry_run(&by_controller.api, &pods, "etcd-0")?
            .allowed()?
            .with_warning("allowed without a check")?;
    }
    let unknown = durward.metrics()?.sum("durward_unknown_total", &[("guard", "etcd")]);
    ensure!(unknown > 5.5, "the counter of Unknown results is {unknown}");
    Ok(())
}

#[e2e::case]
fn the_loss_of_the_last_copy_is_denied_and_other_side_effects_warn(
    context: &'static TestContext,
) -> Result<()> {
    let cluster = scratch(context)?;
    let (_installation, _durward) = installed(context, cluster, &[])?;
    let empty = || json!([{"name": "data", "emptyDir": {}}]);
    let ns = namespace(cluster, "losing", Profile::Allow)?;
    let mut etcd = EtcdCluster::of(3).start(context)?;
    let losing = etcd.pods_like(&ns, |pod| pod["spec"]["volumes"] = empty())?;
    let follower = etcd.follower()?.name().to_owned();
    dry_run(&losing, &follower)?.allowed()?.with_warning("its data is lost")?;

    let ns = namespace(cluster, "warned", Profile::Allow)?;
    let pods = etcd.pods_in(&ns)?;
    let leader = etcd.leader()?.name().to_owned();
    Removal::Delete
        .dry_run_without_grace(cluster.api(), &pods, &leader)?
        .allowed()?
        .with_warning("killed at once")?;
    etcd.add_learner(context)?;
    dry_run(&pods, &follower)?.allowed()?.with_warning("the membership is changing")?;

    let ns = namespace(cluster, "last", Profile::Allow)?;
    let one = EtcdCluster::of(1).start(context)?;
    let last = one.pods_like(&ns, |pod| pod["spec"]["volumes"] = empty())?;
    delete(&last, "etcd-0")?.denied()?.with_message(&["it is the only member, and its data is lost"])?;
    let ns = namespace(cluster, "kept", Profile::Allow)?;
    delete(&one.pods_in(&ns)?, "etcd-0")?.allowed()?.with_warning("it is the only member").map(drop)
}

#[e2e::case]
fn audit_mode_allows_everything_and_warns(context: &'static TestContext) -> Result<()> {
    let cluster = scratch(context)?;
    let (_installation, durward) = installed(context, cluster, &["mode: audit"])?;
    let ns = namespace(cluster, "audit", Profile::Transfer)?;
    let etcd = EtcdCluster::of(3).start(context)?;
    let pods = etcd.pods_in(&ns)?;
    let followers = etcd.followers()?;
    let _stopped = followers[0].stop()?;
    dry_run(&pods, followers[1].name())?.allowed()?.with_warning("1 of 3 members would be left")?;
    let would = durward.metrics()?.sum("durward_would_deny_total", &[("guard", "etcd")]);
    ensure!(would > 0.5, "no denial of the audit mode was counted");
    Ok(())
}

#[e2e::case]
fn the_override_needs_the_verb_or_reason_and_expiry(context: &'static TestContext) -> Result<()> {
    let cluster = scratch(context)?;
    let (installation, durward) = installed(context, cluster, &[])?;
    let ns = namespace(cluster, "override", Profile::Transfer)?;
    let etcd = EtcdCluster::of(3).start(context)?;
    let pods = etcd.pods_in(&ns)?;
    let followers = etcd.followers()?;
    let _stopped = followers[0].stop()?;
    let name = followers[1].name();
    let may_delete = json!({"apiGroups": [""], "resources": ["pods", "pods/eviction"], "verbs": ["*"]});
    allow(cluster, "override-alice", &json!([may_delete]), "override-alice")?;
    let alice = cluster.user("override-alice", &[])?;
    alice.await_permitted(&pods.path(name))?;
    let annotate = |annotations: Value| {
        let change = json!({"metadata": {"annotations": annotations}});
        cluster.api().merge(&pods.path(name), &change)?.succeeded().map(drop)
    };
    let anyway = "durward.dev/delete-anyway";
    // The lines of the denial run as they are printed. The placeholder is refused.
    let denied = Removal::Delete.dry_run(&alice.api, &pods, name)?.denied()?;
    let shell = |line: &str, reason: &str| {
        cluster.kubectl().shell(&denied.command(line, reason)?)?.succeeded().map(drop)
    };
    shell("Next: ", "")?;
    shell("Override", "<reason>")?;
    Removal::Delete.dry_run(&alice.api, &pods, name)?.denied()?.with_message(&["is the placeholder"])?;
    annotate(json!({(anyway): null, "durward.dev/delete-reason": null, "durward.dev/delete-until": null}))?;
    shell("Override", "disk of etcd-1 is gone")?;
    Removal::Delete.dry_run(&alice.api, &pods, name)?.allowed()?.with_warning("disk of etcd-1 is gone")?;
    annotate(json!({"durward.dev/delete-reason": null, "durward.dev/delete-until": null}))?;
    Removal::Delete
        .dry_run(&alice.api, &pods, name)?
        .denied()?
        .with_message(&["delete-reason is missing"])?;
    // An administrator has every verb, including this one. An incomplete override does not count for administrators either.
    let incomplete = ["delete-reason is missing"];
    Removal::Delete.dry_run(cluster.api(), &pods, name)?.denied()?.with_message(&incomplete)?;
    annotate(json!({"durward.dev/break-glass": name}))?;
    Removal::Delete.dry_run(cluster.api(), &pods, name)?.allowed()?.without_warnings()?;
    let needs = ["lacks the verb break-glass on guards.durward.dev/etcd"];
    Removal::Delete.dry_run(&alice.api, &pods, name)?.denied()?.with_message(&needs)?;
    // An Eviction has no annotations: Durward reads those of the pod.
    Removal::Evict.dry_run(&alice.api, &pods, name)?.denied()?;
    annotate(
        json!({"durward.dev/delete-reason": "disk of etcd-1 is gone", "durward.dev/delete-until": one_hour_ahead()?}),
    )?;
    for removal in Removal::ALL {
        let passed = removal.dry_run(&alice.api, &pods, name)?.allowed()?;
        passed.with_warning("is not checked")?.with_warning("disk of etcd-1 is gone")?;
    }
    drop(durward);
    Removal::Delete.dry_run(&alice.api, &pods, name)?.not_reviewed()?;
    Removal::Delete.send(cluster.api(), &pods, name)?.allowed()?;
    ensure!(pods.is_terminating(name)?, "{name} was not deleted");
    drop(installation);
    Ok(())
}

/// Returns a time in one hour in RFC 3339.
pub(in crate::cases) fn one_hour_ahead() -> Result<String> {
    let output =
        std::process::Command::new("date").args(["-u", "-d", "1 hour", "+%Y-%m-%dT%H:%M:%SZ"]).output();
    let output = output.context("cannot run date")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Longest time of a review in the next case, next to other cases.
const REVIEW_LIMIT: Duration = Duration::from_secs(5);

#[e2e::case]
fn an_exempt_user_is_not_delayed(context: &'static TestContext) -> Result<()> {
    let cluster = scratch(context)?;
    let keys = ["exempt: {users: [exempt-bob]}"];
    let (_installation, _durward) = installed(context, cluster, &keys)?;
    let ns = namespace(cluster, "exempt", Profile::Transfer)?;
    let pods = pods::set(&ns, "etcd", 3, |_| {})?;
    let silent = FakeMember::silent()?;
    pods.add("etcd-0", silent.address())?;
    let bob = cluster.user("exempt-bob", &["system:masters"])?;
    for removal in Removal::ALL {
        removal.dry_run(cluster.api(), &pods, "etcd-0")?.denied()?;
        let met = silent.connections();
        removal.dry_run(&bob.api, &pods, "etcd-0")?.allowed()?.within(REVIEW_LIMIT)?;
        ensure!(silent.connections() == met, "a member was contacted for an exempt user");
    }
    Ok(())
}
