//! The fleet of the tests is a real one, without Durward: its members, propagation, and the permissions to
//! read a member.

use std::time::Instant;

use e2e::fixture::Fixture as _;
use e2e::prelude::*;

use super::objects::{allow, await_gone, list, name_of, ready_status};

const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";

/// A frozen member delays a caller until the caller's timeout.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);

#[e2e::case]
fn two_push_members_and_one_pull_member_are_ready(context: &TestContext) -> Result<()> {
    let fleet = context.fleet()?;
    let clusters = list(fleet.karmada().api(), CLUSTERS)?;
    let mode = |cluster: &Value| cluster["spec"]["syncMode"].as_str().unwrap_or_default().to_owned();
    let mut members: Vec<_> =
        clusters.iter().map(|cluster| (name_of(cluster), mode(cluster), ready_status(cluster))).collect();
    members.sort_unstable();
    let expected = [("m1", "Push"), ("m2", "Push"), ("m3", "Pull")];
    let expected = expected.map(|(name, mode)| (name, mode.to_owned(), "True"));
    ensure!(members == expected, "the fleet is {members:?}");
    Ok(())
}

#[e2e::case]
fn a_namespace_is_propagated_to_every_member_with_the_label(context: &TestContext) -> Result<()> {
    let fleet = context.fleet()?;
    let shop = fleet.namespace("shop")?;
    for member in fleet.members() {
        let path = format!("/api/v1/namespaces/{}", shop.name());
        let namespace = member.api().get(&path)?.succeeded()?.body;
        let label = &namespace["metadata"]["labels"]["karmada.io/managed"];
        ensure!(label == "true", "in {} it is labeled {label}", member.name());
    }
    // An object that is created in one member is in no other, and not on the control plane.
    let m2 = fleet.member("m2")?;
    m2.make_running_pod(&m2.existing_namespace(shop.name()), "web")?;
    let pod = format!("{}/web", shop.path("pods"));
    let running = m2.api().get(&pod)?.succeeded()?.body;
    ensure!(running["status"]["phase"] == "Running", "the pod is {}", running["status"]);
    for elsewhere in [fleet.karmada(), fleet.member("m1")?, fleet.member("m3")?] {
        ensure!(elsewhere.api().get(&pod)?.status == 404, "the pod is at {} too", elsewhere.url());
    }
    Ok(())
}

#[e2e::case]
fn deleting_a_namespace_removes_it_from_every_member(context: &TestContext) -> Result<()> {
    let fleet = context.fleet()?;
    let shop = fleet.namespace("doomed")?;
    fleet.await_seen(&shop)?;
    let path = format!("/api/v1/namespaces/{}", shop.name());
    let m3 = fleet.member("m3")?;
    m3.make_running_pod(&m3.existing_namespace(shop.name()), "web")?;
    // This case is about Karmada alone, with or without a deletion guard.
    let passing = json!({"metadata": {"annotations": {"durward.dev/break-glass": shop.name()}}});
    fleet.karmada().api().merge(&path, &passing)?.succeeded()?;
    fleet.karmada().api().delete(&path)?.succeeded()?;
    for member in fleet.members() {
        await_gone(member, &path)?;
    }
    Ok(())
}

#[e2e::case]
fn two_bindings_let_a_plain_user_read_every_member(context: &TestContext) -> Result<()> {
    let fleet = context.fleet()?;
    let onlooker = fleet.karmada().certified("onlooker", None)?;
    let path = fleet.proxied("m3", "/api/v1/namespaces");
    let refused = onlooker.api.get(&path)?;
    let message = refused.message();
    ensure!(refused.status == 403 && message.contains("clusters/proxy"), "without a binding: {message}");
    grant_access(&fleet, "onlooker")?;
    for member in fleet.members() {
        let path = fleet.proxied(member.name(), "/api/v1/namespaces");
        until(format_args!("{path} to answer the onlooker"), || {
            let answer = onlooker.api.get(&path)?;
            Ok((answer.is_success(), answer.body.to_string()))
        })?;
        let own = member.api().get("/api/v1/namespaces/kube-system")?.succeeded()?.body;
        let same =
            list(&onlooker.api, &path)?.iter().any(|item| item["metadata"]["uid"] == own["metadata"]["uid"]);
        ensure!(same, "{path} does not read {}", member.name());
    }
    // The permission allows this and no more.
    let secrets = onlooker.api.get(&fleet.proxied("m1", "/api/v1/secrets"))?;
    ensure!(secrets.status == 403, "the onlooker reads secrets: {}", secrets.status);
    Ok(())
}

#[e2e::case(Exclusive)]
fn a_frozen_member_delays_callers_and_a_stopped_one_refuses_them(context: &TestContext) -> Result<()> {
    let fleet = context.exclusive_fleet()?;
    let (m1, m2) = (fleet.member("m1")?, fleet.member("m2")?);
    let version = fleet.proxied("m1", "/version");
    let timeout = format!("--request-timeout={}s", REQUEST_TIMEOUT.as_secs());
    let get_raw = |path: &str| fleet.karmada().kubectl().run(&["get", "--raw", path, &timeout]);

    let frozen = m1.freeze()?;
    let began = Instant::now();
    let held = get_raw(&version)?;
    ensure!(!held.is_success(), "a frozen member answered: {}", held.stdout);
    ensure!(began.elapsed() >= REQUEST_TIMEOUT, "the caller was not delayed but got {:?}", held.stderr);
    ensure!(m2.api().get("/readyz")?.is_success(), "m2 is frozen too");
    frozen.undo()?;

    let stopped = m1.stop()?;
    let refused = get_raw(&version)?;
    ensure!(refused.stderr.contains("connection refused"), "a stopped member returns {:?}", refused.stderr);
    stopped.undo()?;
    ensure!(m1.api().get("/readyz")?.is_success(), "m1 was not started again");

    let stopped = fleet.aggregated().stop()?;
    let gone = get_raw(CLUSTERS)?;
    ensure!(!gone.is_success(), "the stopped aggregated API answered: {}", gone.stdout);
    stopped.undo()?;
    fleet.await_restored()
}

/// Lets a user read namespaces of every member through Karmada: the proxy on the control plane, and a role
/// that a policy propagates.
///
/// Karmada impersonates the user in members because of the first binding.
fn grant_access(fleet: &Fleet, user: &str) -> Result<()> {
    let member_role = format!("{user}-members");
    let names: Vec<&str> = fleet.members().iter().map(Member::name).collect();
    let selectors: Vec<Value> = ["ClusterRole", "ClusterRoleBinding"]
        .iter()
        .map(|kind| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "name": member_role}))
        .collect();
    let clusters = json!({"apiGroups": ["cluster.karmada.io"], "resources": ["clusters"], "verbs": ["get", "list", "watch"]});
    let proxy =
        json!({"apiGroups": ["cluster.karmada.io"], "resources": ["clusters/proxy"], "verbs": ["get"]});
    let namespaces = json!({"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list"]});
    let karmada = fleet.karmada();
    allow(karmada, &format!("{user}-fleet"), &json!([clusters, proxy]), user)?;
    allow(karmada, &member_role, &json!([namespaces]), user)?;
    let policy = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterPropagationPolicy",
        "metadata": {"name": member_role},
        "spec": {"resourceSelectors": selectors, "placement": {"clusterAffinity": {"clusterNames": names}}},
    });
    let path = "/apis/policy.karmada.io/v1alpha1/clusterpropagationpolicies";
    karmada.api().create(path, &policy)?.succeeded().map(drop)
}
