//! A rolling update of an etcd cluster with the worst settings: SIGTERM is ignored, the grace period is a
//! second, and there is no readiness probe.
//!
//! etcd transfers leadership by itself on SIGTERM, so a better setup would prove nothing.

use std::net::Ipv4Addr;

use e2e::etcd_cluster::writer::{Addresses, Cost, under_writes};
use e2e::prelude::*;

use super::environment::{Environment, exclusive};
use crate::cases::etcd::environment::{LABEL, Profile};
use crate::cases::objects::{await_gone, list};

/// Longest time without a leader during a transfer, which is one vote written to disk. Without a quorum it
/// lasts much longer.
const TRANSFER_LIMIT: Duration = Duration::from_millis(100);

const ATTEMPTS: usize = 3;

pub(super) const MEMBERS: [&str; 3] = ["etcd-0", "etcd-1", "etcd-2"];

/// The first process of a container gets only signals that it handles, and a shell handles none: etcd gets
/// SIGKILL.
///
/// Elections take three seconds, as across zones, so their cost differs clearly from that of a loaded
/// machine.
const ENTRYPOINT: &str = "etcd --name=$HOSTNAME --data-dir=/data/etcd \
    --listen-client-urls=http://0.0.0.0:2379 --advertise-client-urls=http://$HOSTNAME.etcd:2379 \
    --listen-peer-urls=http://0.0.0.0:2380 --initial-advertise-peer-urls=http://$HOSTNAME.etcd:2380 \
    --initial-cluster=etcd-0=http://etcd-0.etcd:2380,etcd-1=http://etcd-1.etcd:2380,etcd-2=http://etcd-2.etcd:2380 \
    --heartbeat-interval=100 --election-timeout=3000; \
    echo etcd has ended";

/// Returns a Service and a `StatefulSet`. Each member has a directory below `data`. A label separates the
/// pods from those of other namespaces during a drain.
fn manifest(ns: &str, data: &str) -> [(&'static str, Value); 2] {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "etcd"},
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": true, "selector": {"app": "etcd"},
            "ports": [{"name": "client", "port": 2379}, {"name": "peer", "port": 2380}]},
    });
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "etcd"},
        "spec": {
            "replicas": 3, "serviceName": "etcd", "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "etcd"}},
            "template": {
                "metadata": {"labels": {"app": "etcd", "of": ns}},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{
                        "name": "etcd", "image": Image::Etcd.name(), "imagePullPolicy": "Never",
                        "command": ["/bin/sh", "-c", ENTRYPOINT],
                        "env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                        "volumeMounts": [{"name": "data", "mountPath": "/data", "subPathExpr": "$(POD)"}],
                    }],
                    "volumes": [{"name": "data", "hostPath": {"path": data, "type": "DirectoryOrCreate"}}],
                },
            },
        },
    });
    [("services", service), ("apps/v1/statefulsets", set)]
}

/// Creates an etcd cluster in this namespace and waits until it is healthy.
pub(super) fn create_etcd(context: &TestContext, node: &Node, ns: &Namespace<'_>) -> Result<()> {
    let data = context.directory("etcd-data")?;
    for (resource, object) in manifest(ns.name(), &data.display().to_string()) {
        node.cluster().api().create(&ns.path(resource), &object)?.succeeded()?;
    }
    await_healthy(node, ns)
}

/// Waits until each member answers a linearizable read. A pod is ready before its member is.
pub(super) fn await_healthy(node: &Node, ns: &Namespace<'_>) -> Result<()> {
    node.await_workload(ns, "statefulsets", "etcd")?;
    node.pod(ns, "etcd-0").is_ready()?;
    until("the etcd cluster to be healthy", || {
        let output =
            node.pod(ns, "etcd-0").attempt("etcd", &["etcdctl", "endpoint", "health", "--cluster"])?;
        Ok((output.is_success(), output.stderr))
    })
}

pub(super) fn addresses(node: &Node, ns: &Namespace<'_>) -> Result<Vec<Ipv4Addr>> {
    let pods = list(node.cluster().api(), &ns.path("pods"))?;
    Ok(pods.iter().filter_map(|pod| pod["status"]["podIP"].as_str()?.parse().ok()).collect())
}

/// Measures the cost of a rolling update in a namespace with this guard.
fn rolling_update_cost(
    context: &TestContext,
    fixture: &Environment,
    profile: Option<Profile>,
) -> Result<Cost> {
    let node = fixture.node;
    let ns = fixture.namespace("rolls", profile)?;
    create_etcd(context, node, &ns)?;
    let members = Addresses::default();
    members.set(addresses(node, &ns)?);
    let uids = || -> Result<Vec<Value>> {
        let pods = MEMBERS.map(|name| node.pod(&ns, name).object());
        pods.into_iter().map(|pod| Ok(pod?["metadata"]["uid"].clone())).collect()
    };
    let before = uids()?;
    let cost = under_writes(&node.network(), &members, || {
        let kubectl = node.cluster().kubectl();
        kubectl.run(&["-n", ns.name(), "rollout", "restart", "statefulset", "etcd"])?.succeeded()?;
        let set = format!("{}/etcd", ns.path("apps/v1/statefulsets"));
        until("every pod to be replaced", || {
            members.set(addresses(node, &ns)?);
            let set = node.cluster().api().get(&set)?.succeeded()?.body;
            let status = &set["status"];
            let is_done = status["observedGeneration"] == set["metadata"]["generation"]
                && status["updatedReplicas"] == 3
                && status["readyReplicas"] == 3
                && status["currentRevision"] == status["updateRevision"];
            Ok((is_done, status.to_string()))
        })
    })?;
    let after = uids()?;
    ensure!(before.iter().all(|uid| !after.contains(uid)), "not every pod was replaced");
    let Cost { acknowledged, gap, leaderless, lost } = &cost;
    let profile = profile.map_or_else(|| "nothing".to_owned(), Profile::name);
    print(format_args!(
        "rolling update, guarded by {profile}: {acknowledged} writes, {} lost, longest gap {gap:?}, longest without a leader {leaderless:?}",
        lost.len()
    ));
    Ok(cost)
}

/// Checks the cost of a guarded update against an unguarded one.
fn check_cost(cost: &Cost, unguarded: &Cost) -> Result<()> {
    let Cost { acknowledged, lost, gap, leaderless } = cost;
    ensure!(*acknowledged > 100, "there were only {acknowledged} writes");
    ensure!(lost.is_empty(), "of {acknowledged} acknowledged writes these are lost: {lost:?}");
    ensure!(*leaderless < TRANSFER_LIMIT, "a member had no leader for {leaderless:?}");
    ensure!(
        *gap <= unguarded.gap / 4,
        "writes stopped for {gap:?}, and for {:?} without a guard",
        unguarded.gap
    );
    Ok(())
}

/// Returns the cost of a guarded update that passes the check. A loaded machine adds gaps and never removes
/// any, so one of several attempts is enough. All writes must be present in each.
fn guarded_cost(context: &TestContext, fixture: &Environment, unguarded: &Cost) -> Result<Cost> {
    for _ in 1..ATTEMPTS {
        let cost = rolling_update_cost(context, fixture, Some(Profile::Transfer))?;
        ensure!(cost.lost.is_empty(), "acknowledged writes are lost: {:?}", cost.lost);
        if check_cost(&cost, unguarded).is_ok() {
            return Ok(cost);
        }
    }
    let cost = rolling_update_cost(context, fixture, Some(Profile::Transfer))?;
    check_cost(&cost, unguarded)?;
    Ok(cost)
}

#[e2e::case(Soak)]
fn only_leadership_transfer_avoids_a_gap_in_writes(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let unguarded = rolling_update_cost(context, &fixture, None)?;
    ensure!(
        unguarded.gap > Duration::from_secs(1),
        "an unguarded update has no gap, so this proves nothing: {unguarded:?}"
    );
    let guarded_cost = guarded_cost(context, &fixture, &unguarded)?;
    // The same guard without the transfer: the quorum is kept, and every leader is killed.
    let allowed = rolling_update_cost(context, &fixture, Some(Profile::Allow))?;
    ensure!(allowed.lost.is_empty(), "acknowledged writes are lost: {:?}", allowed.lost);
    ensure!(
        check_cost(&allowed, &unguarded).is_err(),
        "the transfer makes no difference: {guarded_cost:?}, {allowed:?}, {unguarded:?}"
    );
    Ok(())
}

#[e2e::case(Soak)]
fn a_drained_leader_transfers_leadership_and_is_stopped(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let node = fixture.node;
    // The case deletes this namespace itself.
    let ns = node.cluster().labelled_namespace("drained", &[(LABEL, &Profile::Transfer.name())])?;
    create_etcd(context, node, &ns)?;
    let leader = leader(node, &ns)?;
    let kubectl = node.cluster().kubectl();
    let selector = format!("--pod-selector=of={},statefulset.kubernetes.io/pod-name={leader}", ns.name());
    let drained =
        kubectl.run(&["drain", e2e::node::NAME, "--ignore-daemonsets", &selector, "--timeout=100s"])?;
    kubectl.run(&["uncordon", e2e::node::NAME])?.succeeded()?;
    let output = format!("{}{}", drained.stdout, drained.stderr);
    ensure!(drained.is_success() && output.contains("leadership was transferred to"), "{output}");
    node.await_workload(&ns, "statefulsets", "etcd")?;
    // Deleting everything at once is a teardown, also of the leader.
    let path = format!("/api/v1/namespaces/{}", ns.name());
    node.cluster().api().delete(&path)?.succeeded()?;
    await_gone(node.cluster(), &path)
}

fn leader(node: &Node, ns: &Namespace<'_>) -> Result<String> {
    let command = ["etcdctl", "endpoint", "status", "--cluster", "-w", "json"];
    let output = node.pod(ns, "etcd-0").exec("etcd", &command)?;
    let output: Value = serde_json::from_str(&output)?;
    let endpoints = output.as_array().context("no endpoints")?;
    let leading =
        endpoints.iter().find(|one| one["Status"]["leader"] == one["Status"]["header"]["member_id"]);
    let endpoint = leading.and_then(|one| one["Endpoint"].as_str()).context("no member leads")?;
    let name = MEMBERS.into_iter().find(|name| endpoint.contains(name));
    name.map(ToOwned::to_owned).with_context(|| format!("no member has the endpoint {endpoint}"))
}
