//! Deletions that are never delayed: teardown, repair, and pods that already terminate.
//!
//! The guard recognizes them by the state of objects, because some clusters run all controllers under one
//! user. The cases run real controllers both ways.

use e2e::etcd_cluster::pods::{Pods, kubelet};
use e2e::etcd_cluster::{EtcdCluster, FakeMember, pods};
use e2e::prelude::*;

use super::environment::{Environment, Profile, environment, guarded_etcd, installed, namespace};
use super::quorum::two_followers;
use super::requests::{Removal, attempt, delete};

/// A member that was away catches up when its leader retries.
const BACK_WITHIN: Duration = Duration::from_secs(60);

/// Returns three pods whose members never answer.
fn hanging_members<'a>(ns: &'a e2e::namespace::Namespace<'a>) -> Result<(Pods<'a>, Vec<FakeMember>)> {
    let pods = pods::set(ns, "etcd", 3, |_| {})?;
    let members = (0..3).map(|_| FakeMember::silent()).collect::<Result<Vec<_>>>()?;
    for (at, member) in members.iter().enumerate() {
        pods.add(&format!("etcd-{at}"), member.address())?;
    }
    Ok((pods, members))
}

#[e2e::case]
fn teardown_and_repair_contact_no_member(context: &'static TestContext) -> Result<()> {
    let Environment { cluster, .. } = environment(context)?;
    let api = cluster.api();
    let ns = environment(context)?.namespace("teardown", Profile::Transfer)?;
    let (pods, members) = hanging_members(&ns)?;
    let by = |removals: &[Removal], pods: &Pods<'_>, name: &str, what: &str| -> Result<()> {
        for removal in removals {
            removal.dry_run(api, pods, name)?.allowed().with_context(|| what.to_owned())?;
        }
        let contacts: usize = members.iter().map(FakeMember::connections).sum();
        ensure!(contacts == 0, "a member was contacted {what}");
        Ok(())
    };
    let by_all = |pods: &Pods<'_>, name: &str, what: &str| by(&Removal::ALL, pods, name, what);
    let phase = |name: &str, phase: &str| pods.set_status(name, &json!({"status": {"phase": phase}}));
    phase("etcd-0", "Failed")?;
    by_all(&pods, "etcd-0", "about a pod that has failed")?;
    phase("etcd-0", "Running")?;
    api.delete(&format!("/api/v1/nodes/{}", pods.node("etcd-1")))?.succeeded()?;
    by_all(&pods, "etcd-1", "about a pod whose node is gone")?;

    // Foreground deletion: the StatefulSet stays until its pods are gone.
    let foreground = json!({"propagationPolicy": "Foreground"});
    api.delete_with(&pods.stateful_set_path(), &foreground)?.succeeded()?;
    ensure!(api.get(&pods.stateful_set_path())?.is_success(), "there is a garbage collector here");
    by_all(&pods, "etcd-2", "about a pod whose StatefulSet is being deleted")?;

    let (gone, exit) = (
        environment(context)?.namespace("gone", Profile::Transfer)?,
        "about a pod whose StatefulSet is gone",
    );
    let of_gone = pods::set(&gone, "etcd", 3, |_| {})?;
    of_gone.add("etcd-0", members[0].address())?;
    api.delete_with(&of_gone.stateful_set_path(), &json!({"propagationPolicy": "Background"}))?
        .succeeded()?;
    by_all(&of_gone, "etcd-0", exit)?;

    let ns = environment(context)?.namespace("ends", Profile::Transfer)?;
    let of_ending = pods::set(&ns, "etcd", 3, |_| {})?;
    of_ending.add("etcd-0", members[0].address())?;
    api.delete(&format!("/api/v1/namespaces/{}", ns.name()))?.succeeded()?;
    // The API server itself denies evictions there.
    by(&[Removal::Delete], &of_ending, "etcd-0", "about a pod whose namespace is being deleted")?;

    // Orphaned pods are not deleted with their owner, so they are reviewed like others.
    let ns = environment(context)?.namespace("orphans", Profile::Transfer)?;
    let of_orphans = pods::set(&ns, "etcd", 3, |_| {})?;
    of_orphans.add("etcd-0", members[0].address())?;
    api.delete_with(&of_orphans.stateful_set_path(), &json!({"propagationPolicy": "Orphan"}))?.succeeded()?;
    delete(&of_orphans, "etcd-0")?.denied()?;
    ensure!(members[0].connections() > 0, "no member was contacted");

    // A crashed member is asked too, because a kubelet that is cut off reports an old state.
    let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
    let crashed = json!({"status": {"containerStatuses": [{
        "name": "etcd", "image": "x", "imageID": "", "ready": false, "restartCount": 7, "state": waiting,
    }]}});
    of_orphans.set_status("etcd-0", &crashed)?;
    Removal::ALL.iter().try_for_each(|way| way.dry_run(api, &of_orphans, "etcd-0")?.allowed().map(drop))
}

#[e2e::case]
fn a_mirror_pod_is_allowed_with_a_warning(context: &'static TestContext) -> Result<()> {
    let Environment { cluster, .. } = environment(context)?;
    let ns = environment(context)?.namespace("mirror", Profile::Transfer)?;
    let pods = pods::set(&ns, "etcd", 3, |_| {})?;
    let fake = FakeMember::silent()?;
    // Only a kubelet can create a mirror pod, and only for its own node.
    pods.add("etcd-0", fake.address())?;
    let node = pods.node("etcd-0");
    let kubelet = kubelet(cluster, &node)?;
    let uid =
        cluster.api().get(&format!("/api/v1/nodes/{node}"))?.succeeded()?.body["metadata"]["uid"].clone();
    let mirror = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "etcd-static", "labels": {"app": "etcd"},
            "annotations": {"kubernetes.io/config.mirror": "abc"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": true}],
        },
        "spec": {"nodeName": node, "containers": [{"name": "etcd", "image": "durward.test/etcd:1"}]},
    });
    kubelet.api.create(&ns.path("pods"), &mirror)?.succeeded()?;
    for removal in Removal::ALL {
        let dry_run = removal.dry_run(cluster.api(), &pods, "etcd-static")?.allowed()?;
        dry_run.with_warning("the mirror of a static pod")?;
    }
    ensure!(fake.connections() == 0, "a member was contacted");
    Ok(())
}

#[e2e::case]
fn deletecollection_keeps_the_quorum(context: &'static TestContext) -> Result<()> {
    let Environment { cluster, .. } = environment(context)?;
    let (ns, etcd) = guarded_etcd(context, 3, "collection", Profile::Transfer)?;
    let pods = etcd.pods_in(&ns)?;
    let collection = format!("{}?labelSelector=app%3Detcd", ns.path("pods"));
    attempt(cluster.api().delete(&format!("{collection}&dryRun=All"))?).allowed()?;
    ensure!(pods.active()?.len() == 3, "a dry run of a collection deleted a pod");
    attempt(cluster.api().delete(&collection)?).denied()?;
    ensure!(pods.active()?.len() == 2, "{:?} of three remain", pods.active()?);
    attempt(cluster.api().delete(&collection)?).denied()?;
    ensure!(pods.active()?.len() == 2, "after the second request {:?} of three remain", pods.active()?);
    etcd.leader()?.read()
}

#[e2e::case]
fn controllers_with_own_names_roll_and_tear_down(context: &'static TestContext) -> Result<()> {
    roll_and_tear_down(context, true)
}

#[e2e::case]
fn controllers_with_one_name_roll_and_tear_down(context: &'static TestContext) -> Result<()> {
    roll_and_tear_down(context, false)
}

/// Returns the options of a cluster whose controllers roll and delete a `StatefulSet`.
pub(in crate::cases) fn with_controllers(name: &str) -> Options {
    Options::named(name).with_these_controllers(&[
        "namespace",
        "garbagecollector",
        "serviceaccount",
        "statefulset",
    ])
}

fn roll_and_tear_down(context: &'static TestContext, is_each_itself: bool) -> Result<()> {
    let cluster = if is_each_itself {
        context.cluster(&with_controllers("etcd-controllers"))?
    } else {
        let as_one = with_controllers("etcd-controllers-as-one");
        context.cluster(&as_one.controller_flag("--use-service-account-credentials=false"))?
    };
    if !is_each_itself {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "as-one"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{
                "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:kube-controller-manager",
            }],
        });
        let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
        cluster.api().create(path, &binding)?.succeeded()?;
    }
    let (_installation, durward) = installed(context, &cluster, &[])?;
    let etcd = EtcdCluster::of(3).start(context)?;
    // Users cannot delete leaders here, and rolling updates complete anyway.
    let ns = namespace(&cluster, "rolls", Profile::Refuse)?;
    let pods = etcd.stateful_set_in(&ns, |_| {})?;
    pods.run_created_pods(&etcd)?;
    delete(&pods, etcd.leader()?.name())?.denied()?;
    rolling_update(&cluster, &etcd, &pods)?;
    let user = if is_each_itself {
        "system:serviceaccount:kube-system:statefulset-controller"
    } else {
        "system:kube-controller-manager"
    };
    ensure!(durward.log()?.contains(user), "{user} sent no request");

    // Orphaned pods stay guarded.
    let kubectl = cluster.kubectl();
    kubectl.run(&["-n", ns.name(), "delete", "statefulset", "etcd", "--cascade=orphan"])?.succeeded()?;
    until("the pods to be without an owner", || {
        let owners = pods.object("etcd-0")?["metadata"]["ownerReferences"].clone();
        Ok((owners.is_null(), owners.to_string()))
    })?;
    let [down, up] = two_followers(&etcd)?;
    let stopped = down.stop()?;
    delete(&pods, up.name())?.denied()?;
    stopped.undo()?;
    down.await_reads(BACK_WITHIN)?;
    delete_with_pods(&cluster, &pods, || {
        let path = format!("/api/v1/namespaces/{}", ns.name());
        cluster.api().delete(&path)?.succeeded().map(drop)?;
        Ok(path)
    })?;

    // The StatefulSet is deleted with all three pods.
    let ns = namespace(&cluster, "goes", Profile::Refuse)?;
    let pods = etcd.stateful_set_in(&ns, |_| {})?;
    pods.run_created_pods(&etcd)?;
    delete_with_pods(&cluster, &pods, || {
        kubectl.run(&["-n", ns.name(), "delete", "statefulset", "etcd", "--wait=false"])?.succeeded()?;
        Ok(pods.path("etcd-0"))
    })?;
    ensure!(pods.active()?.is_empty(), "{:?} remain", pods.active()?);
    Ok(())
}

/// Runs a rolling update, with the case as the kubelet. Every pod is replaced, and none while its member
/// leads.
fn rolling_update(cluster: &Cluster, etcd: &EtcdCluster, pods: &Pods<'_>) -> Result<()> {
    let ns = pods.namespace().name();
    let uids =
        || -> Result<Vec<String>> { etcd.members().iter().map(|member| pods.uid(member.name())).collect() };
    let before = uids()?;
    let term = etcd.leader()?.status()?.term;
    cluster.kubectl().run(&["-n", ns, "rollout", "restart", "statefulset", "etcd"])?.succeeded()?;
    for _ in etcd.members() {
        replace_next(etcd, pods)?;
    }
    let after = uids()?;
    ensure!(before.iter().all(|uid| !after.contains(uid)), "not every pod was replaced");
    let terms = etcd.leader()?.status()?.term - term;
    ensure!(terms <= 3, "there were {terms} elections for three pods");
    Ok(())
}

/// Waits until a controller deletes the next pod, ends it as the kubelet, and starts its successor. Returns its name.
pub(in crate::cases) fn replace_next<'e>(etcd: &'e EtcdCluster, pods: &Pods<'_>) -> Result<&'e str> {
    let going = eventually("the next pod to be deleted", WAIT_LIMIT, || {
        for member in etcd.members() {
            if pods.is_terminating(member.name())? {
                return Ok(Poll::Ready(member));
            }
        }
        Ok(Poll::Pending("no pod is terminating".to_owned()))
    })?;
    ensure!(etcd.leader()?.name() != going.name(), "{} was deleted while it led", going.name());
    let stopped = going.stop()?;
    pods.finish(going.name())?;
    stopped.undo()?;
    going.await_reads(BACK_WITHIN)?;
    pods.run_created_pods(etcd)?;
    Ok(going.name())
}

/// Deletes an object that all pods depend on, with the case as their kubelet.
fn delete_with_pods(
    cluster: &Cluster,
    pods: &Pods<'_>,
    begin: impl FnOnce() -> Result<String>,
) -> Result<()> {
    let path = begin()?;
    let list = pods.namespace().path("pods");
    until(format_args!("{path} to be gone"), || {
        let found = cluster.api().get(&list)?.succeeded()?.body;
        for pod in found["items"].as_array().map(Vec::as_slice).unwrap_or_default() {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            if pod["metadata"]["deletionTimestamp"].is_string() {
                pods.finish(name)?;
            }
        }
        let left: &[Value] = found["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        let gone = cluster.api().get(&path)?.status == 404 && left.is_empty();
        Ok((gone, format!("{} pods are left", left.len())))
    })
}
