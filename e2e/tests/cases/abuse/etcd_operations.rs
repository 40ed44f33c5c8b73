//! Work that looks like an attack and passes: by controllers, operators and administrators. Other updates never reach Durward.

use anyhow::Error;
use e2e::etcd_cluster::pods::{self, Pods};
use e2e::etcd_cluster::{EtcdCluster, FakeMember};
use e2e::prelude::*;

use super::user_with;
use crate::cases::etcd::environment::{
    Environment, LABEL, Profile, await_guard, environment, guarded_etcd, guards, installed, namespace,
    scratch,
};
use crate::cases::etcd::quorum::two_followers;
use crate::cases::etcd::requests::attempt;
use crate::cases::etcd::teardown::{replace_next, with_controllers};
use crate::cases::objects::await_gone;

/// The garbage collector's user, if each controller has its own.
const GARBAGE_COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";

fn reviews(durward: &Durward, labels: &[(&str, &str)]) -> Result<f64> {
    let labels: Vec<_> = labels.iter().copied().chain([("guard", "etcd")]).collect();
    Ok(durward.metrics()?.sum("durward_reviews_total", &labels))
}

#[e2e::case]
fn a_drain_of_two_members_takes_one_after_the_other(context: &'static TestContext) -> Result<()> {
    let Environment { cluster, durward } = environment(context)?;
    let (ns, etcd) = guarded_etcd(context, 3, "two", Profile::Transfer)?;
    let pods = etcd.stateful_set_in(&ns, |_| {})?;
    let node = format!("{}-both", ns.name());
    let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}});
    cluster.api().create("/api/v1/nodes", &object)?.succeeded()?;
    let both = two_followers(&etcd)?;
    for member in etcd.members() {
        pods.add_like(member.name(), member.address(), |pod| {
            if both.iter().any(|one| one.name() == member.name()) {
                pod["spec"]["nodeName"] = node.as_str().into();
            }
        })?;
    }
    let is_denied = || -> Result<bool> {
        let log = durward.log()?;
        Ok(log.lines().any(|line| line.contains(ns.name()) && line.contains("\"answer\":\"deny\"")))
    };
    let drained = std::thread::scope(|scope| {
        let drain = scope.spawn(|| cluster.kubectl().run(&["drain", &node, "--timeout=100s"]));
        let act = || -> Result<()> {
            let mut others = both.to_vec();
            for is_last in [false, true] {
                let at = eventually("the next pod to be evicted", WAIT_LIMIT, || {
                    let going = others.iter().map(|one| pods.is_terminating(one.name()));
                    let going = going.collect::<Result<Vec<bool>>>()?;
                    let found = going.iter().position(|is_going| *is_going);
                    Ok(found.map_or_else(|| Poll::Pending(format!("{going:?}")), Poll::Ready))
                })?;
                let going = others.remove(at);
                if !is_last {
                    until("the other eviction to be denied", || Ok((is_denied()?, "it is not")))?;
                    ensure!(!pods.is_terminating(others[0].name())?, "both were evicted");
                }
                // It returns on another node.
                pods.replace(going.name())?;
            }
            Ok(())
        };
        let acted = act();
        let drained = drain.join().unwrap_or_else(|_| Err(Error::msg("the drain panicked")));
        acted.and(drained)
    })?;
    let output = format!("{}{}", drained.stdout, drained.stderr);
    ensure!(drained.is_success() && output.contains("drained"), "the drain failed: {output}");
    ensure!(output.contains("will retry after 5s"), "no eviction waited: {output}");
    Ok(())
}

/// Waits until these are the owners of all pods.
fn await_owner(etcd: &EtcdCluster, pods: &Pods<'_>, uid: &Value) -> Result<()> {
    until(format_args!("all pods to have the owner {uid}"), || {
        let uids = etcd
            .members()
            .iter()
            .map(|member| Ok(pods.object(member.name())?["metadata"]["ownerReferences"][0]["uid"].clone()));
        let uids = uids.collect::<Result<Vec<Value>>>()?;
        Ok((uids.iter().all(|owner| owner == uid), Value::from(uids)))
    })
}

#[e2e::case]
fn controllers_orphan_adopt_roll_and_scale_without_a_denial(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&with_controllers("etcd-controllers"))?;
    let (_installation, durward) = installed(context, &cluster, &[])?;
    let etcd = EtcdCluster::of(3).start(context)?;
    let ns = namespace(&cluster, "works", Profile::Transfer)?;
    let pods = etcd.stateful_set_in(&ns, |_| {})?;
    pods.run_created_pods(&etcd)?;
    let kubectl = |arguments: &[&str]| {
        let all: Vec<&str> = ["-n", ns.name()].iter().chain(arguments).copied().collect();
        cluster.kubectl().run(&all)?.succeeded().map(drop)
    };
    let denied = [("verdict", "deny")];
    let before = reviews(&durward, &denied)?;

    kubectl(&["delete", "statefulset", "etcd", "--cascade=orphan"])?;
    await_gone(&cluster, &pods.stateful_set_path())?;
    await_owner(&etcd, &pods, &Value::Null)?;
    let pods = etcd.stateful_set_in(&ns, |_| {})?;
    let set = cluster.api().get(&pods.stateful_set_path())?.succeeded()?.body;
    await_owner(&etcd, &pods, &set["metadata"]["uid"])?;

    let image = |partition: usize| {
        let containers = json!([{"name": "etcd", "image": "durward.test/etcd:2"}]);
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": partition}});
        let template = json!({"spec": {"containers": containers}});
        let patch = json!({"spec": {"updateStrategy": strategy, "template": template}}).to_string();
        kubectl(&["patch", "statefulset", "etcd", "-p", &patch])
    };
    image(2)?;
    let first = replace_next(&etcd, &pods)?;
    ensure!(first == "etcd-2", "{first} was replaced instead of the only one in the partition");
    image(0)?;
    for _ in 0..2 {
        replace_next(&etcd, &pods)?;
    }

    kubectl(&["scale", "statefulset", "etcd", "--replicas=2"])?;
    until("the last pod to be deleted", || Ok((pods.is_terminating("etcd-2")?, "it stays")))?;
    pods.finish("etcd-2")?;
    kubectl(&["scale", "statefulset", "etcd", "--replicas=3"])?;
    pods.run_created_pods(&etcd)?;
    let more = reviews(&durward, &denied)? - before;
    ensure!(more < 0.5, "{more} requests of controllers were denied");
    etcd.leader()?.read()
}

/// The pods of an operator without a `StatefulSet`. It adopts pods, so it is among the `controllerUsers`.
#[e2e::case]
fn an_operator_adopts_its_pods_and_its_object_tears_them_down(context: &'static TestContext) -> Result<()> {
    let cluster = scratch(context)?;
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "etcdclusters.etcd.example.org"},
        "spec": {
            "group": "etcd.example.org", "scope": "Namespaced",
            "names": {"plural": "etcdclusters", "singular": "etcdcluster", "kind": "EtcdCluster"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    });
    let api = cluster.api();
    api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd)?.succeeded()?;
    let entry = format!(
        "      - {{namespaceSelector: {{matchLabels: {{{LABEL}: owned}}}}, selector: app=etcd, owner: {{apiVersion: etcd.example.org/v1, kind: EtcdCluster}}}}"
    );
    let guards = format!("{}\n{entry}", guards(&["controllerUsers: [etcd-operator]"]));
    let (_installation, _durward) = Installation::start(context, cluster, &guards, "durward-operator")?;
    await_guard(cluster)?;
    let ns = cluster.labelled_namespace("operated", &[(LABEL, "owned")])?;
    let path = ns.path("etcd.example.org/v1/etcdclusters");
    let object = json!({
        "apiVersion": "etcd.example.org/v1", "kind": "EtcdCluster", "metadata": {"name": "etcd"}, "spec": {"size": 3},
    });
    let made = eventually("the API server to serve the new kind", WAIT_LIMIT, || {
        Ok(Poll::from(api.create(&path, &object)?.succeeded()))
    })?;
    let owner = |uid: &Value| {
        json!({"metadata": {"ownerReferences": [{
            "apiVersion": "etcd.example.org/v1", "kind": "EtcdCluster", "name": "etcd", "uid": uid, "controller": true,
        }]}})
    };
    let owner = owner(&made.body["metadata"]["uid"]);
    let etcd = EtcdCluster::of(3).start(context)?;
    let pods = etcd.stateful_set_in(&ns, |_| {})?;
    for member in etcd.members() {
        pods.add_like(member.name(), member.address(), |pod| {
            pod["metadata"]["ownerReferences"] = owner["metadata"]["ownerReferences"].clone();
        })?;
    }
    let operator = user_with(cluster, "etcd-operator", "", (&["pods"], &["get", "patch"]))?;
    let [first, _] = two_followers(&etcd)?;
    let path_of_pod = pods.path(first.name());
    operator.await_permitted(&path_of_pod)?;
    let orphaned = json!({"metadata": {"ownerReferences": null}});
    let by_hand = api.merge(&path_of_pod, &orphaned)?;
    ensure!(by_hand.message().contains("the owner of a pod"), "{}", by_hand.message());
    for change in [&orphaned, &owner] {
        attempt(operator.api.merge(&path_of_pod, change)?).allowed()?.without_warnings()?;
    }

    api.delete(&format!("{path}/etcd"))?.succeeded()?;
    let collector = cluster.user(GARBAGE_COLLECTOR, &["system:masters"])?;
    for member in etcd.members() {
        attempt(collector.api.delete(&pods.path(member.name()))?).allowed()?.without_warnings()?;
    }
    ensure!(pods.active()?.is_empty(), "{:?} are left", pods.active()?);
    Ok(())
}

/// Sends requests, and expects this number of reviews for them.
fn expect_reviews(durward: &Durward, expected: u8, send: impl FnOnce() -> Result<()>) -> Result<()> {
    let before = reviews(durward, &[])?;
    send()?;
    let count = reviews(durward, &[])? - before;
    ensure!((count - f64::from(expected)).abs() < 0.5, "{count} reviews instead of {expected}");
    Ok(())
}

#[e2e::case]
fn updates_never_reach_durward(context: &'static TestContext) -> Result<()> {
    let cluster = scratch(context)?;
    let (_installation, durward) = installed(context, cluster, &[])?;
    let api = cluster.api();
    let merge = |path: &str, changes: &[Value]| {
        changes.iter().try_for_each(|change| api.merge(path, change)?.succeeded().map(drop))
    };
    let ns = namespace(cluster, "counted", Profile::Transfer)?;
    let silent = FakeMember::silent()?;
    let pods = pods::set(&ns, "etcd", 3, |_| {})?;
    let metadata = [
        json!({"metadata": {"labels": {"tier": "db"}}}),
        json!({"metadata": {"annotations": {"note": "x"}}}),
        json!({"metadata": {"finalizers": ["example.org/x"]}}),
        json!({"metadata": {"labels": {"tier": null}, "annotations": null, "finalizers": null}}),
    ];
    let changes = [
        json!({"metadata": {"labels": {"app": "x"}}}),
        json!({"metadata": {"ownerReferences": null}}),
        json!({"spec": {"activeDeadlineSeconds": 9}}),
    ];
    expect_reviews(&durward, 0, || {
        // The status of a kubelet, and each field of the metadata.
        pods.add("etcd-0", silent.address())?;
        merge(&pods.path("etcd-0"), &metadata)?;
        merge(
            &pods.path("etcd-0"),
            &[json!({"spec": {"tolerations": [{"key": "x", "operator": "Exists"}]}})],
        )?;
        // Pods that no entry selects, also in another namespace.
        pods.add_like("web", silent.address(), |pod| pod["metadata"]["labels"] = json!({"app": "web"}))?;
        merge(&pods.path("web"), &changes)?;
        let other = cluster.namespace("unguarded")?;
        let elsewhere = pods::set(&other, "etcd", 3, |_| {})?;
        elsewhere.add("etcd-0", silent.address())?;
        merge(&elsewhere.path("etcd-0"), &changes)?;
        for path in [pods.path("web"), elsewhere.path("etcd-0")] {
            api.delete(&path)?.succeeded()?;
        }
        // Other objects.
        merge(&format!("/api/v1/namespaces/{}", ns.name()), &metadata[..2])?;
        let set = pods.stateful_set_path();
        merge(&set, &[json!({"spec": {"replicas": 5}}), json!({"spec": {"minReadySeconds": 3}})])?;
        merge(&format!("{set}/status"), &[json!({"status": {"replicas": 3}})])?;
        merge(&format!("{set}/scale"), &[json!({"spec": {"replicas": 6}})])
    })?;
    ensure!(silent.connections() == 0, "a member was asked");
    // The API server denies the changes that matter by itself.
    expect_reviews(&durward, 0, || {
        for change in &changes {
            ensure!(api.merge(&pods.path("etcd-0"), change)?.status == 403, "{change} was allowed");
        }
        let path = format!("/api/v1/namespaces/{}", ns.name());
        let left = api.merge(&path, &json!({"metadata": {"labels": {LABEL: null}}}))?;
        ensure!(left.status == 403, "the namespace left the guard");
        Ok(())
    })
}
