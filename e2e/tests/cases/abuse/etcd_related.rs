//! Ways to delete the objects of an etcd cluster without a deletion that looks like one: an owner reference with an unknown uid or name
//! hands an object to the garbage collector; a `StatefulSet` adopts pods; and a second deletion cancels one that keeps the pods.

use e2e::controlplane::User;
use e2e::etcd_cluster::pods::Pods;
use e2e::etcd_cluster::{self, pods};
use e2e::prelude::*;

use super::user_with;
use crate::cases::attempt::Attempt;
use crate::cases::etcd::configuration::one_hour_ahead;
use crate::cases::etcd::environment::{Profile, controller, installed, namespace, scratch};
use crate::cases::etcd::requests::attempt;
use crate::cases::objects::allow;

pub(in crate::cases) const KEYS: [&str; 1] =
    ["alsoProtect: [statefulsets, persistentvolumeclaims, poddisruptionbudgets]"];

/// Creates the objects of an etcd cluster, and returns the paths of those that are protected.
pub(super) fn protected_objects(pods: &Pods<'_>) -> Result<[String; 3]> {
    let (ns, api) = (pods.namespace(), pods.namespace().cluster().api());
    let pvc = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    let pdb = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "etcd"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "etcd"}}},
    });
    let (pvcs, pdbs) = (ns.path("persistentvolumeclaims"), ns.path("policy/v1/poddisruptionbudgets"));
    api.create(&pvcs, &pvc)?.succeeded()?;
    api.create(&pdbs, &pdb)?.succeeded()?;
    Ok([pods.stateful_set_path(), format!("{pvcs}/data"), format!("{pdbs}/etcd")])
}

fn owned() -> Value {
    let uid = "0ddba11a-0000-4000-8000-000000000000";
    json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": uid}]}})
}

fn mallory(cluster: &Cluster, name: &str, suffix: &str) -> Result<User> {
    let rule = |group: &str, resource: &str| json!({"apiGroups": [group], "resources": [format!("{resource}{suffix}")], "verbs": ["get", "patch"]});
    let rules = json!([
        rule("apps", "statefulsets"),
        rule("", "persistentvolumeclaims"),
        rule("policy", "poddisruptionbudgets"),
    ]);
    allow(cluster, name, &rules, name)?;
    cluster.user(name, &[])
}

fn is_denied(attempt: Attempt) -> Result<()> {
    let denied = attempt.denied()?;
    denied.with_message(&["adding an owner to ", " can delete it: ", ", then repeat the change: "]).map(drop)
}

#[e2e::case]
fn an_unknown_owner_does_not_delete_a_protected_object(context: &'static TestContext) -> Result<()> {
    let cluster = scratch(context)?;
    let (_installation, _durward) = installed(context, cluster, &KEYS)?;
    let mallory = mallory(cluster, "owns-objects", "")?;
    mallory.await_permitted("/apis/apps/v1/namespaces/default/statefulsets/x")?;
    added_owners_are_denied(cluster, &mallory.api)
}

/// Adds an owner to each protected object of an etcd cluster, which has none before.
pub(in crate::cases) fn added_owners_are_denied(cluster: &Cluster, api: &Api) -> Result<()> {
    let ns = namespace(cluster, "owned", Profile::Transfer)?;
    let pods = pods::set(&ns, "etcd", 3, |_| {})?;
    pods.add("etcd-0", etcd_cluster::address()?)?;
    let by_controller = controller(cluster)?;
    for path in protected_objects(&pods)? {
        is_denied(attempt(api.merge(&path, &owned())?))?;
        let stored = cluster.api().get(&path)?.succeeded()?.body;
        ensure!(stored["metadata"]["ownerReferences"].is_null(), "{stored}");
        // An operator owns such objects, and is only warned.
        let dry_run = format!("{path}?dryRun=All");
        attempt(by_controller.api.merge(&dry_run, &owned())?).allowed()?.with_warning("etcd: ")?;
        for change in
            [json!({"metadata": {"labels": {"tier": "db"}}}), json!({"metadata": {"ownerReferences": null}})]
        {
            attempt(api.merge(&path, &change)?).allowed()?.without_warnings()?;
        }
        let overridden = json!({"metadata": {"annotations": {
            "durward.dev/delete-anyway": stored["metadata"]["name"], "durward.dev/delete-reason": "moved",
            "durward.dev/delete-until": one_hour_ahead()?,
        }}});
        attempt(api.merge(&path, &overridden)?).allowed()?;
        attempt(api.merge(&path, &owned())?).allowed()?.with_warning("moved")?;
    }
    Ok(())
}

/// The subresource `status` also writes owner references.
#[e2e::case]
fn the_status_of_a_protected_object_does_not_add_an_owner(context: &'static TestContext) -> Result<()> {
    let cluster = scratch(context)?;
    let (_installation, _durward) = installed(context, cluster, &KEYS)?;
    let ns = namespace(cluster, "owned-status", Profile::Transfer)?;
    let pods = pods::set(&ns, "etcd", 3, |_| {})?;
    pods.add("etcd-0", etcd_cluster::address()?)?;
    let mallory = mallory(cluster, "owns-by-status", "/status")?;
    for path in protected_objects(&pods)? {
        let status = format!("{path}/status");
        mallory.await_permitted(&status)?;
        is_denied(attempt(mallory.api.merge(&status, &owned())?))?;
        attempt(mallory.api.merge(&status, &json!({"metadata": {"labels": {"tier": "db"}}}))?).allowed()?;
    }
    Ok(())
}

/// The garbage collector reads an owner by its name, and deletes the object if there is none.
#[e2e::case]
fn an_existing_owner_of_a_protected_object_is_not_changed(context: &'static TestContext) -> Result<()> {
    let cluster = scratch(context)?;
    let (_installation, _durward) = installed(context, cluster, &KEYS)?;
    let ns = namespace(cluster, "owner-renamed", Profile::Transfer)?;
    let pods = pods::set(&ns, "etcd", 3, |_| {})?;
    pods.add("etcd-0", etcd_cluster::address()?)?;
    let mallory = mallory(cluster, "renames-owners", "")?;
    let by_controller = controller(cluster)?;
    for path in protected_objects(&pods)? {
        attempt(by_controller.api.merge(&path, &owned())?).allowed()?;
        mallory.await_permitted(&path)?;
        let mut changed = owned();
        changed["metadata"]["ownerReferences"][0]["name"] = "gone".into();
        is_denied(attempt(mallory.api.merge(&path, &changed)?))?;
        let mut blocking = owned();
        blocking["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = false.into();
        attempt(mallory.api.merge(&path, &blocking)?).allowed()?.without_warnings()?;
    }
    Ok(())
}

/// A set whose template has none of the labels that Durward selects, and whose pod is a member.
#[e2e::case]
fn a_statefulset_that_adopted_a_member_is_not_deleted(context: &'static TestContext) -> Result<()> {
    let cluster = scratch(context)?;
    let (_installation, _durward) = installed(context, cluster, &KEYS)?;
    let ns = namespace(cluster, "adopted", Profile::Transfer)?;
    let pods = pods::set(&ns, "etcd", 3, |_| {})?;
    let set = cluster.api().get(&pods.stateful_set_path())?.succeeded()?.body;
    let labels = json!({"part": "data"});
    let other = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "other"},
        "spec": {
            "replicas": 1, "serviceName": "other", "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": set["spec"]["template"]["spec"]},
        },
    });
    let mallory = deletes_sets(cluster, "adopts")?;
    let other = cluster.api().create(&ns.path("apps/v1/statefulsets"), &other)?.succeeded()?.body;
    let path = format!("{}/other", ns.path("apps/v1/statefulsets"));
    mallory.await_permitted(&path)?;
    attempt(mallory.api.delete(&format!("{path}?dryRun=All"))?).allowed()?.without_warnings()?;
    pods.add_like("other-0", etcd_cluster::address()?, |pod| {
        pod["metadata"]["labels"]["part"] = "data".into();
        pod["metadata"]["ownerReferences"][0]["name"] = "other".into();
        pod["metadata"]["ownerReferences"][0]["uid"] = other["metadata"]["uid"].clone();
    })?;
    let denied = attempt(mallory.api.delete(&path)?).denied()?;
    denied.with_message(&["cannot delete StatefulSet ", "its etcd member would be deleted with it"]).map(drop)
}

/// The API server computes the finalizers again for each deletion, so a second one drops the finalizer `orphan`.
#[e2e::case]
fn a_second_deletion_does_not_cancel_orphaning(context: &'static TestContext) -> Result<()> {
    let cluster = scratch(context)?;
    let (_installation, _durward) = installed(context, cluster, &KEYS)?;
    let ns = namespace(cluster, "orphaned", Profile::Transfer)?;
    let pods = pods::set(&ns, "etcd", 3, |_| {})?;
    pods.add("etcd-0", etcd_cluster::address()?)?;
    let (path, mallory) = (pods.stateful_set_path(), deletes_sets(cluster, "cancels")?);
    mallory.await_permitted(&path)?;
    let delete = |policy: &str| -> Result<Attempt> {
        Ok(attempt(mallory.api.delete_with(&path, &json!({"propagationPolicy": policy}))?))
    };
    delete("Orphan")?.allowed()?;
    delete("Background")?.denied()?.with_message(&["its 3 etcd members would be deleted with it"])?;
    let stored = cluster.api().get(&path)?.succeeded()?.body;
    ensure!(stored["metadata"]["finalizers"] == json!(["orphan"]), "{stored}");
    // No garbage collector runs here.
    cluster.api().merge(&path, &json!({"metadata": {"finalizers": null}}))?.succeeded().map(drop)
}

fn deletes_sets(cluster: &Cluster, name: &str) -> Result<User> {
    user_with(cluster, name, "apps", (&["statefulsets"], &["get", "delete"]))
}
