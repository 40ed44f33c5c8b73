//! A user who can only patch namespaces tries to take a namespace with etcd pods out of the guard.

use e2e::etcd_cluster::{self, pods};
use e2e::prelude::*;

use super::user_with;
use crate::cases::attempt::Attempt;
use crate::cases::etcd::configuration::one_hour_ahead;
use crate::cases::etcd::environment::{
    Environment, LABEL, Profile, environment, installed, namespace, scratch,
};
use crate::cases::etcd::requests::attempt;

fn path_of(ns: &Namespace<'_>) -> String {
    format!("/api/v1/namespaces/{}", ns.name())
}

/// Adds a pod of etcd without a process.
fn add_pod(ns: &Namespace<'_>) -> Result<()> {
    pods::set(ns, "etcd", 3, |_| {})?.add("etcd-0", etcd_cluster::address()?)
}

fn label(api: &Api, path: &str, labels: &Value) -> Result<Attempt> {
    Ok(attempt(api.merge(path, &json!({"metadata": {"labels": labels}}))?))
}

#[e2e::case]
fn a_namespace_with_etcd_pods_stays_in_the_guard(context: &'static TestContext) -> Result<()> {
    let Environment { cluster, .. } = environment(context)?;
    let mallory = user_with(cluster, "labels-namespaces", "", (&["namespaces"], &["get", "patch"]))?;
    mallory.await_permitted("/api/v1/namespaces/default")?;
    guarded_labels_are_kept(cluster, &mallory.api)
}

/// Changes labels of a namespace without and with etcd pods, also if there are none before or after the change.
pub(in crate::cases) fn guarded_labels_are_kept(cluster: &Cluster, api: &Api) -> Result<()> {
    let ns = namespace(cluster, "kept", Profile::Transfer)?;
    let path = path_of(&ns);
    for labels in [json!({LABEL: null}), json!({LABEL: Profile::Transfer.name()}), Value::Null] {
        label(api, &path, &labels)?.allowed()?.without_warnings()?;
    }
    label(api, &path, &json!({LABEL: Profile::Transfer.name(), "tier": "db"}))?.allowed()?;
    add_pod(&ns)?;
    let denial = format!(
        "cannot change label {LABEL} of namespace {}: etcd pod etcd-0 would no longer be guarded",
        ns.name()
    );
    for labels in [json!({LABEL: null}), json!({LABEL: "x"}), Value::Null] {
        let denied = label(api, &path, &labels)?.denied()?;
        denied.with_message(&[&denial, ", then repeat the change: "])?;
    }
    let object = cluster.api().get(&path)?.succeeded()?.body;
    ensure!(object["metadata"]["labels"][LABEL] == Profile::Transfer.name(), "{object}");
    label(api, &path, &json!({"tier": null, "other": "x"}))?.allowed()?.without_warnings()?;
    let annotations = json!({
        "durward.dev/delete-anyway": ns.name(), "durward.dev/delete-reason": "moved",
        "durward.dev/delete-until": one_hour_ahead()?,
    });
    api.merge(&path, &json!({"metadata": {"annotations": annotations}}))?.succeeded()?;
    label(api, &path, &json!({LABEL: null}))?.allowed()?.with_warning("is not checked").map(drop)
}

/// The subresources of a namespace also write its labels.
#[e2e::case]
fn subresources_of_a_namespace_do_not_change_its_guarded_labels(context: &'static TestContext) -> Result<()> {
    let Environment { cluster, .. } = environment(context)?;
    let resources: &[&str] = &["namespaces/status", "namespaces/finalize"];
    let mallory = user_with(cluster, "finishes-namespaces", "", (resources, &["get", "patch", "update"]))?;
    let ns = environment(context)?.namespace("subresource", Profile::Transfer)?;
    let path = path_of(&ns);
    add_pod(&ns)?;
    let mut without = cluster.api().get(&path)?.succeeded()?.body;
    without["metadata"]["labels"] = json!({});
    until("the permission", || {
        let answer = mallory.api.replace(&format!("{path}/finalize?dryRun=All"), &Value::Null)?;
        Ok((answer.status != 403, answer.message().to_owned()))
    })?;
    let denied = label(&mallory.api, &format!("{path}/status"), &json!({LABEL: null}))?.denied()?;
    denied.with_message(&["cannot change label guarded of namespace"])?;
    let denied = attempt(mallory.api.replace(&format!("{path}/finalize"), &without)?).denied()?;
    denied.with_message(&["cannot change label guarded of namespace"])?;
    let labels = cluster.api().get(&path)?.succeeded()?.body["metadata"]["labels"].clone();
    ensure!(labels[LABEL] == Profile::Transfer.name(), "{labels}");
    Ok(())
}

#[e2e::case]
fn a_namespace_with_etcd_pods_does_not_become_exempt(context: &'static TestContext) -> Result<()> {
    let cluster = scratch(context)?;
    let key =
        "webhook: {namespaceSelector: {matchExpressions: [{key: env, operator: NotIn, values: [dev]}]}}";
    let (_installation, _durward) = installed(context, cluster, &[key])?;
    let mallory = user_with(cluster, "exempts-namespaces", "", (&["namespaces"], &["get", "patch"]))?;
    let ns = namespace(cluster, "exempt", Profile::Transfer)?;
    let path = path_of(&ns);
    mallory.await_permitted(&path)?;
    let changes = [(json!({"env": "dev"}), "env")];
    for (labels, key) in &changes {
        // Without etcd pods, the namespace leaves the guard and returns.
        label(&mallory.api, &path, labels)?.allowed()?;
        label(&mallory.api, &path, &json!({*key: null}))?.allowed()?;
    }
    add_pod(&ns)?;
    for (labels, key) in &changes {
        let denial = format!("cannot change label {key} of namespace {}", ns.name());
        label(&mallory.api, &path, labels)?.denied()?.with_message(&[&denial])?;
    }
    for labels in [json!({"env": "prod"}), json!({"env": null})] {
        label(&mallory.api, &path, &labels)?.allowed()?;
    }
    Ok(())
}
