//! The objects that the policies protect, changed by a user without special rights. `versions` calls these checks with other API servers.

use e2e::etcd_cluster::pods::{self, Pods};
use e2e::etcd_cluster::{self, FakeMember};
use e2e::prelude::*;

use super::{KEYS, await_denied, is_allowed, is_denied, mallory};
use crate::cases::environment::eventually_ok;
use crate::cases::etcd::environment::{
    Environment, LABEL, Profile, environment, installed, namespace, scratch,
};
use crate::cases::etcd::requests::delete;

/// A uid that no object has.
const UNKNOWN_UID: &str = "0ddba11a-0000-4000-8000-000000000000";

fn owned(kind: &str) -> Value {
    json!([{"apiVersion": "v1", "kind": kind, "name": "x", "uid": UNKNOWN_UID}])
}

#[e2e::case]
fn pods_keep_labels_owners_images_and_deadlines(context: &'static TestContext) -> Result<()> {
    let Environment { cluster, .. } = environment(context)?;
    let mallory = mallory(cluster, "changes-pods")?;
    pods_are_kept(&environment(context)?.namespace("kept-pods", Profile::Transfer)?, &mallory.api)
}

/// Returns a patch of the first owner reference of a pod.
fn owner(pod: &Value, change: impl FnOnce(&mut Value)) -> Value {
    let mut owners = pod["metadata"]["ownerReferences"].clone();
    change(&mut owners[0]);
    json!({"metadata": {"ownerReferences": owners}})
}

/// Changes a pod of an etcd cluster in each way, and then in ways that pass.
pub(in crate::cases) fn pods_are_kept(ns: &Namespace<'_>, api: &Api) -> Result<()> {
    let pods = pods::set(ns, "etcd", 3, |_| {})?;
    pods.add("etcd-0", etcd_cluster::address()?)?;
    let (path, pod) = (pods.path("etcd-0"), pods.object("etcd-0")?);
    let mut containers = pod["spec"]["containers"].clone();
    containers[0]["image"] = "images.example/other:1".into();
    let denied = [
        ("label app", json!({"metadata": {"labels": {"app": null}}})),
        ("label app", json!({"metadata": {"labels": null}})),
        ("label app", json!({"metadata": {"labels": {"app": "other"}}})),
        ("the owner", owner(&pod, |owner| owner["uid"] = UNKNOWN_UID.into())),
        ("the owner", owner(&pod, |owner| owner["controller"] = false.into())),
        ("the owner", json!({"metadata": {"ownerReferences": null}})),
        ("an image", json!({"spec": {"containers": containers}})),
        ("activeDeadlineSeconds", json!({"spec": {"activeDeadlineSeconds": 1}})),
    ];
    let way_out = format!("kubectl annotate -n {} pod etcd-0 durward.dev/delete-anyway=etcd-0", ns.name());
    await_denied(|| api.merge(&format!("{path}?dryRun=All"), &denied[0].1), "etcd-pods")?;
    for (words, change) in &denied {
        is_denied(&api.merge(&path, change)?, "etcd-pods", &[words, &way_out])?;
    }
    is_denied(&api.merge(&format!("{path}/status"), &denied[0].1)?, "etcd-pods", &["label app"])?;
    ensure!(pods.object("etcd-0")?["metadata"]["labels"] == pod["metadata"]["labels"], "a label was changed");
    let allowed = [
        json!({"metadata": {"labels": {"tier": "db"}}}),
        json!({"metadata": {"labels": {"tier": null}}}),
        json!({"metadata": {"annotations": {"note": "x"}}}),
        json!({"spec": {"tolerations": [{"key": "x", "operator": "Exists"}]}}),
        json!({"metadata": {"finalizers": ["example.org/x"]}}),
        json!({"metadata": {"finalizers": null, "annotations": null}}),
    ];
    for change in &allowed {
        is_allowed(api.merge(&path, change)?)?;
    }
    is_allowed(api.merge(&format!("{path}/status"), &json!({"status": {"phase": "Running"}}))?)?;
    is_allowed(api.apply(
        &format!("{path}?force=true"),
        "ci",
        &json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "etcd-0", "labels": {"app": "etcd"}}}),
    )?)?;
    // A pod without labels, owner and annotations enters the guard. A pod that is in no etcd cluster changes freely.
    ns.pod("bare").is_admitted()?;
    let bare = pods.path("bare");
    is_allowed(api.merge(&bare, &json!({"spec": {"activeDeadlineSeconds": 9000}}))?)?;
    is_allowed(api.merge(&bare, &json!({"metadata": {"labels": {"app": "etcd"}}}))?)?;
    is_denied(&api.merge(&bare, &json!({"metadata": {"labels": null}}))?, "etcd-pods", &["label app"])?;
    // With the annotation, which the message names, the pod leaves.
    is_allowed(
        api.merge(&bare, &json!({"metadata": {"annotations": {"durward.dev/delete-anyway": "bare"}}}))?,
    )?;
    is_allowed(api.merge(&bare, &json!({"metadata": {"labels": null}}))?)
}

#[e2e::case]
fn namespaces_keep_the_labels_that_select_them(context: &'static TestContext) -> Result<()> {
    let Environment { cluster, .. } = environment(context)?;
    let mallory = mallory(cluster, "changes-namespaces")?;
    namespaces_are_kept(cluster, &mallory.api)
}

/// Takes the label of a guarded namespace away, by the resource and its subresources.
pub(in crate::cases) fn namespaces_are_kept(cluster: &Cluster, api: &Api) -> Result<()> {
    let ns = namespace(cluster, "kept", Profile::Transfer)?;
    let path = format!("/api/v1/namespaces/{}", ns.name());
    let labels = |labels: &Value| json!({"metadata": {"labels": labels}});
    await_denied(|| api.merge(&format!("{path}?dryRun=All"), &labels(&Value::Null)), "etcd-namespaces")?;
    for after in [json!({LABEL: null}), json!({LABEL: "x"}), Value::Null] {
        let words = [format!("namespace {}: label {LABEL}", ns.name())];
        is_denied(&api.merge(&path, &labels(&after))?, "etcd-namespaces", &[&words[0]])?;
        is_denied(&api.merge(&format!("{path}/status"), &labels(&after))?, "etcd-namespaces", &[&words[0]])?;
    }
    let mut finalized = cluster.api().get(&path)?.succeeded()?.body;
    finalized["metadata"]["labels"] = json!({});
    is_denied(&api.replace(&format!("{path}/finalize"), &finalized)?, "etcd-namespaces", &[])?;
    is_allowed(api.merge(&path, &labels(&json!({"tier": "db"})))?)?;
    is_allowed(api.merge(&path, &labels(&json!({"tier": null})))?)?;
    is_allowed(
        api.merge(&path, &json!({"metadata": {"annotations": {"durward.dev/delete-anyway": ns.name()}}}))?,
    )?;
    is_allowed(api.merge(&path, &labels(&json!({LABEL: null})))?)?;
    // It enters again, and another one was never in the guard.
    is_allowed(api.merge(&path, &labels(&json!({LABEL: Profile::Transfer.name()})))?)?;
    let other = cluster.namespace("not-guarded")?;
    let path = format!("/api/v1/namespaces/{}", other.name());
    is_allowed(api.merge(&path, &labels(&json!({"tier": "db"})))?)?;
    is_allowed(api.merge(&path, &labels(&json!({LABEL: Profile::Transfer.name()})))?)
}

#[e2e::case]
fn sets_and_their_pvcs_are_not_deleted_or_owned(context: &'static TestContext) -> Result<()> {
    let cluster = scratch(context)?;
    let (_installation, _durward) = installed(context, cluster, &KEYS)?;
    let mallory = mallory(cluster, "changes-sets")?;
    sets_are_kept(cluster, &mallory.api)
}

/// Deletes, scales and owns a `StatefulSet` and its PVC.
pub(in crate::cases) fn sets_are_kept(cluster: &Cluster, api: &Api) -> Result<()> {
    let ns = namespace(cluster, "kept-sets", Profile::Transfer)?;
    let pods = pods::set(&ns, "etcd", 3, |_| {})?;
    let (set, pvc) = (pods.stateful_set_path(), create_pvc(&pods)?);
    let path = |path: &str, more: &str| format!("{path}{more}");
    await_denied(|| api.delete(&path(&set, "?dryRun=All")), "etcd-sets")?;
    for options in [json!({}), json!({"propagationPolicy": "Foreground"}), json!({"orphanDependents": false})]
    {
        is_denied(
            &api.delete_with(&set, &options)?,
            "etcd-sets",
            &["--cascade=orphan", "kubectl annotate -n "],
        )?;
    }
    is_allowed(api.delete_with(&set, &json!({"propagationPolicy": "Orphan", "dryRun": ["All"]}))?)?;
    is_denied(&api.delete(&pvc)?, "etcd-sets", &["it has the data of a member"])?;
    let replicas = |replicas: u32| json!({"spec": {"replicas": replicas}});
    for to in [2, 0] {
        is_denied(&api.merge(&set, &replicas(to))?, "etcd-sets", &["can't be scaled down"])?;
        let scale = api.merge(&path(&set, "/scale"), &replicas(to))?;
        is_denied(
            &scale,
            "etcd-sets",
            &["annotate the StatefulSet, patch its spec.replicas, then remove the annotation"],
        )?;
    }
    is_allowed(api.merge(&path(&set, "/scale"), &replicas(4))?)?;
    is_allowed(api.merge(&set, &replicas(5))?)?;
    let restarted = json!({"spec": {"template": {"metadata": {"annotations": {"restartedAt": "now"}}}}});
    is_allowed(api.merge(&set, &restarted)?)?;
    for path in [&set, &pvc] {
        let owned = json!({"metadata": {"ownerReferences": owned("ConfigMap")}});
        for subresource in ["", "/status"] {
            let answer = api.merge(&format!("{path}{subresource}"), &owned)?;
            is_denied(&answer, "etcd-sets", &["guards.etcd.trustedOwners"])?;
        }
        is_allowed(api.merge(path, &json!({"metadata": {"labels": {"tier": "db"}}}))?)?;
    }
    // A set is not created with an owner either: its deletion would delete the pods.
    let mut created = cluster.api().get(&set)?.succeeded()?.body;
    created["metadata"] = json!({"name": "adopts", "ownerReferences": owned("ConfigMap")});
    let sets = ns.path("apps/v1/statefulsets");
    is_denied(&api.create(&sets, &created)?, "etcd-sets", &["an owner reference"])?;
    created["metadata"] = json!({"generateName": "other-", "ownerReferences": owned("ConfigMap")});
    created["spec"]["selector"]["matchLabels"] = json!({"app": "web"});
    created["spec"]["template"]["metadata"]["labels"] = json!({"app": "web"});
    is_allowed(api.create(&sets, &created)?)?;
    // Other objects in the namespace, and the same objects elsewhere.
    let elsewhere = cluster.namespace("sets-elsewhere")?;
    let others = pods::set(&elsewhere, "etcd", 3, |_| {})?;
    let their_pvc = create_pvc(&others)?;
    is_allowed(api.merge(&others.stateful_set_path(), &replicas(1))?)?;
    is_allowed(api.delete(&others.stateful_set_path())?)?;
    is_allowed(api.delete(&their_pvc)?)?;
    // Off-boarding, as the messages say.
    for path in [&set, &pvc] {
        let name = path.rsplit('/').next().unwrap_or_default();
        is_allowed(
            api.merge(path, &json!({"metadata": {"annotations": {"durward.dev/delete-anyway": name}}}))?,
        )?;
    }
    is_allowed(api.merge(&set, &replicas(1))?)?;
    is_allowed(api.delete(&set)?)?;
    is_allowed(api.delete(&pvc)?)
}

/// Creates a PVC with the labels that the controller gives to the PVCs of a set, and returns its path.
fn create_pvc(pods: &Pods<'_>) -> Result<String> {
    let pvc = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data-etcd-0", "labels": {"app": "etcd"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    let pvcs = pods.namespace().path("persistentvolumeclaims");
    pods.namespace().cluster().api().create(&pvcs, &pvc)?.succeeded()?;
    Ok(format!("{pvcs}/data-etcd-0"))
}

/// While Durward is down, its policies still deny, and updates that they don't deny pass.
#[e2e::case]
fn the_policies_deny_while_durward_is_down(context: &'static TestContext) -> Result<()> {
    let cluster = scratch(context)?;
    let (_installation, durward) = installed(context, cluster, &KEYS)?;
    let mallory = mallory(cluster, "without-durward")?;
    let ns = namespace(cluster, "down", Profile::Transfer)?;
    let silent = FakeMember::silent()?;
    let pods = pods::set(&ns, "etcd", 3, |_| {})?;
    pods.add("etcd-0", silent.address())?;
    drop(durward);
    eventually_ok("Durward to be down", || {
        let answer = delete(&pods, "etcd-0")?;
        ensure!(answer.contains("failed calling webhook"), "{}", answer.describe());
        Ok(())
    })?;
    let path = pods.path("etcd-0");
    is_denied(
        &mallory.api.merge(&path, &json!({"metadata": {"labels": null}}))?,
        "etcd-pods",
        &["label app"],
    )?;
    is_denied(&mallory.api.delete(&pods.stateful_set_path())?, "etcd-sets", &[])?;
    is_allowed(mallory.api.merge(&path, &json!({"metadata": {"labels": {"tier": "db"}}}))?)?;
    ensure!(silent.connections() == 0, "a member was asked");
    Ok(())
}
