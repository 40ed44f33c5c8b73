//! What the configuration makes of it: stances for people and controllers, what is denied instead of told, what
//! is guarded one level up, and how the glass is broken. Each case installs a Durward of its own.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::context::TestContext;
use e2e::controlplane::Cluster;
use e2e::etcd_cluster::{EtcdCluster, FakeMember, pods};
use serde_json::json;

use super::attempt::{Way, came_to, delete, delete_at, try_delete};
use super::house::{Kind, controller, installed, namespace, workshop};

#[e2e::case]
fn unknown_policy_differs_for_users_and_controllers(context: &'static TestContext) -> Result<()> {
    let cluster = workshop(context)?;
    let keys = ["whenUnknown: {people: deny, controllers: allow}"];
    let (_installation, durward) = installed(context, cluster, &keys)?;
    let space = namespace(cluster, "unknown", Kind::Transfer)?;
    let pods = pods::set(&space, "etcd", 3, |_| {})?;
    let pages = (0..3).map(|_| FakeMember::page("200 OK", "text/html", "<html>It works</html>"));
    let pages = pages.collect::<Result<Vec<_>>>()?;
    for (at, page) in pages.iter().enumerate() {
        pods.add(&format!("etcd-{at}"), page.address())?;
    }
    let by_controller = controller(cluster)?;
    for way in Way::ALL {
        way.tried(cluster.api(), &pods, "etcd-0")?.refused()?.saying(&["could not be checked"])?;
        way.tried(&by_controller.api, &pods, "etcd-0")?.allowed()?.warning("allowed unchecked")?;
    }
    let unknown = durward.metrics()?.sum("durward_unknown_total", &[("guard", "etcd")]);
    ensure!(unknown > 5.5, "it was not told {unknown} times that it is not known");
    Ok(())
}

#[e2e::case]
fn warnings_can_be_configured_as_denials(context: &'static TestContext) -> Result<()> {
    let cluster = workshop(context)?;
    let keys = ["dataSafety: deny", "smallEnsembles: deny", "membershipChange: deny"];
    let (_installation, _durward) = installed(context, cluster, &keys)?;
    let space = namespace(cluster, "denied", Kind::Allow)?;
    let mut etcd = EtcdCluster::of(3).start(context)?;
    let empty = json!([{"name": "data", "emptyDir": {}}]);
    let losing = etcd.pods_like(&space, |pod| pod["spec"]["volumes"] = empty)?;
    let follower = etcd.follower()?.name().to_owned();
    try_delete(&losing, &follower)?.refused()?.saying(&["what the member has written is lost"])?;

    let space = namespace(cluster, "denied", Kind::Allow)?;
    let pods = etcd.pods_in(&space)?;
    let leader = etcd.leader()?.name().to_owned();
    try_delete(&pods, &follower)?.allowed()?.without_warnings()?;
    Way::Delete.tried_at_once(cluster.api(), &pods, &leader)?.refused()?.saying(&["killed at once"])?;
    try_delete(&pods, &leader)?.allowed()?;
    etcd.add_learner(context)?;
    try_delete(&pods, &follower)?.refused()?.saying(&["its membership is changing"])?;

    let space = namespace(cluster, "denied", Kind::Allow)?;
    let one = EtcdCluster::of(1).start(context)?;
    let pods = one.pods_in(&space)?;
    delete(&pods, "etcd-0")?.refused()?.saying(&["it is the only member"])?;
    Ok(())
}

#[e2e::case]
fn audit_mode_allows_everything_and_warns(context: &'static TestContext) -> Result<()> {
    let cluster = workshop(context)?;
    let (_installation, durward) = installed(context, cluster, &["mode: audit"])?;
    let space = namespace(cluster, "audit", Kind::Transfer)?;
    let etcd = EtcdCluster::of(3).start(context)?;
    let pods = etcd.pods_in(&space)?;
    let followers = etcd.followers()?;
    let _stopped = followers[0].stop()?;
    try_delete(&pods, followers[1].name())?.allowed()?.warning("only 1 other member is healthy")?;
    let would = durward.metrics()?.sum("durward_would_deny_total", &[("guard", "etcd")]);
    ensure!(would > 0.5, "nothing is counted that would be denied");
    Ok(())
}

#[e2e::case]
fn also_guard_denies_users_and_warns_controllers(context: &'static TestContext) -> Result<()> {
    let cluster = workshop(context)?;
    let keys = ["alsoGuard: [scale, statefulsets, persistentvolumeclaims, poddisruptionbudgets]"];
    let (_installation, _durward) = installed(context, cluster, &keys)?;
    let space = namespace(cluster, "above", Kind::Transfer)?;
    let etcd = EtcdCluster::of(3).start(context)?;
    let pods = etcd.pods_in(&space)?;
    let api = cluster.api();
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "etcd"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "etcd"}}},
    });
    api.create(&space.path("persistentvolumeclaims"), &claim)?.succeeded()?;
    api.create(&space.path("policy/v1/poddisruptionbudgets"), &budget)?.succeeded()?;

    let set = pods.set_path();
    let scaled = |to: u32| json!({"spec": {"replicas": to}});
    for path in [format!("{set}?dryRun=All"), format!("{set}/scale?dryRun=All")] {
        came_to(api.merge(&path, &scaled(1))?).refused()?;
        came_to(api.merge(&path, &scaled(0))?).refused()?;
        came_to(api.merge(&path, &scaled(5))?).allowed()?;
    }
    let paths = [
        set,
        format!("{}/data", space.path("persistentvolumeclaims")),
        format!("{}/etcd", space.path("policy/v1/poddisruptionbudgets")),
    ];
    let by_controller = controller(cluster)?;
    for path in &paths {
        let tried = format!("{path}?dryRun=All");
        delete_at(api, &tried)?.refused()?.saying(&["cannot be deleted"])?;
        let passed = delete_at(&by_controller.api, &tried)?.allowed()?;
        passed.warning("etcd: ")?;
        ensure!(api.get(path)?.is_success(), "{path} is gone");
    }
    Ok(())
}

/// What the verb allows, whoever has it; by RBAC, as an administrator gives it.
fn allowed_to(cluster: &Cluster, user: &str, rules: &serde_json::Value) -> Result<()> {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": user}, "rules": rules,
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    cluster.api().create(&format!("{rbac}/clusterroles"), &role)?.succeeded()?;
    cluster.api().create(&format!("{rbac}/clusterrolebindings"), &binding)?.succeeded().map(drop)
}

#[e2e::case]
fn the_override_needs_the_verb_or_reason_and_expiry(context: &'static TestContext) -> Result<()> {
    let cluster = workshop(context)?;
    let (installation, durward) = installed(context, cluster, &[])?;
    let space = namespace(cluster, "glass", Kind::Transfer)?;
    let etcd = EtcdCluster::of(3).start(context)?;
    let pods = etcd.pods_in(&space)?;
    let followers = etcd.followers()?;
    let _stopped = followers[0].stop()?;
    let name = followers[1].name();
    let may_delete = json!({"apiGroups": [""], "resources": ["pods", "pods/eviction"], "verbs": ["*"]});
    allowed_to(cluster, "glass-alice", &json!([may_delete]))?;
    let alice = cluster.user("glass-alice", &[])?;
    alice.await_permitted(&pods.path(name))?;
    let annotate = |annotations: serde_json::Value| {
        let change = json!({"metadata": {"annotations": annotations}});
        cluster.api().merge(&pods.path(name), &change)?.succeeded().map(drop)
    };
    let anyway = "durward.dev/delete-anyway";
    annotate(json!({(anyway): name}))?;
    Way::Delete.tried(&alice.api, &pods, name)?.refused()?.saying(&["delete-reason is missing"])?;
    // An administrator has every verb, this one too.
    Way::Delete.tried(cluster.api(), &pods, name)?.allowed()?;
    // What an eviction brings has no annotations: Durward looks at the pod's.
    Way::Evict.tried(&alice.api, &pods, name)?.refused()?;
    annotate(
        json!({"durward.dev/delete-reason": "disk of etcd-1 is gone", "durward.dev/delete-until": in_an_hour()?}),
    )?;
    for way in Way::ALL {
        let passed = way.tried(&alice.api, &pods, name)?.allowed()?;
        passed.warning("passes unchecked")?.warning("disk of etcd-1 is gone")?;
    }
    drop(durward);
    Way::Delete.tried(&alice.api, &pods, name)?.unanswered()?;
    Way::Delete.goes(cluster.api(), &pods, name)?.allowed()?;
    ensure!(pods.is_going(name)?, "{name} did not go");
    drop(installation);
    Ok(())
}

/// RFC 3339, as `date` writes it.
fn in_an_hour() -> Result<String> {
    let said =
        std::process::Command::new("date").args(["-u", "-d", "1 hour", "+%Y-%m-%dT%H:%M:%SZ"]).output();
    let said = said.context("cannot run date")?;
    Ok(String::from_utf8_lossy(&said.stdout).trim().to_owned())
}

/// What the case that follows takes at most, beside other cases.
const QUICK: Duration = Duration::from_secs(5);

#[e2e::case]
fn an_exempt_user_is_not_delayed(context: &'static TestContext) -> Result<()> {
    let cluster = workshop(context)?;
    let keys = ["exempt: {users: [exempt-bob]}"];
    let (_installation, _durward) = installed(context, cluster, &keys)?;
    let space = namespace(cluster, "exempt", Kind::Transfer)?;
    let pods = pods::set(&space, "etcd", 3, |_| {})?;
    let silent = FakeMember::silent()?;
    pods.add("etcd-0", silent.address())?;
    let bob = cluster.user("exempt-bob", &["system:masters"])?;
    for way in Way::ALL {
        way.tried(cluster.api(), &pods, "etcd-0")?.refused()?;
        let met = silent.met();
        way.tried(&bob.api, &pods, "etcd-0")?.allowed()?.within(QUICK)?;
        ensure!(silent.met() == met, "a member was asked about somebody who is exempt");
    }
    Ok(())
}
