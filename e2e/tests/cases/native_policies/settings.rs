//! The settings of a guard hold for its policies: mode, exemptions, controllers and overrides.

use e2e::etcd_cluster::{self, pods};
use e2e::prelude::*;

use super::{KEYS, await_denied, is_allowed, is_denied, mallory};
use crate::cases::environment::eventually_ok;
use crate::cases::etcd::environment::{LABEL, Profile, installed, namespace, scratch};
use crate::cases::objects::allow;

/// A request that each policy of the guard denies, by purpose: its path, and a merge patch or a deletion.
struct Denied {
    purpose: &'static str,
    /// The path of the object with the annotations.
    object: String,
    /// A path below the object.
    subresource: &'static str,
    patch: Option<Value>,
}

impl Denied {
    fn send(&self, api: &Api) -> Result<e2e::api::Answer> {
        let path = format!("{}{}?dryRun=All", self.object, self.subresource);
        match &self.patch {
            Some(patch) => api.merge(&path, patch),
            None => api.delete(&path),
        }
    }

    fn name(&self) -> &str {
        self.object.rsplit('/').next().unwrap_or_default()
    }
}

/// Creates one object for each policy.
fn denied(ns: &Namespace<'_>) -> Result<Vec<Denied>> {
    let pods = pods::set(ns, "etcd", 3, |_| {})?;
    pods.add("etcd-0", etcd_cluster::address()?)?;
    let one = |purpose, object: String, subresource, patch| Denied { purpose, object, subresource, patch };
    let labels = |labels: Value| Some(json!({"metadata": {"labels": labels}}));
    let set = pods.stateful_set_path();
    let fewer = || Some(json!({"spec": {"replicas": 1}}));
    Ok(vec![
        one("etcd-pods", pods.path("etcd-0"), "", labels(Value::Null)),
        one("etcd-namespaces", format!("/api/v1/namespaces/{}", ns.name()), "", labels(json!({LABEL: null}))),
        one("etcd-sets", set.clone(), "", None),
        one("etcd-sets", set, "", fewer()),
        one("install-namespace", "/api/v1/namespaces/durward-system".to_owned(), "", None),
    ])
}

#[e2e::case]
fn audit_mode_warns(context: &'static TestContext) -> Result<()> {
    let cluster = scratch(context)?;
    let (_installation, _durward) = installed(context, cluster, &["mode: audit", KEYS[0]])?;
    let ns = namespace(cluster, "audited", Profile::Transfer)?;
    for one in denied(&ns)? {
        eventually_ok("a warning", || {
            let answer = one.send(cluster.api())?.succeeded()?;
            let text = format!("Validation failed for ValidatingAdmissionPolicy 'durward-{}'", one.purpose);
            ensure!(answer.warnings.iter().any(|warning| warning.contains(&text)), "{:?}", answer.warnings);
            Ok(())
        })?;
    }
    Ok(())
}

#[e2e::case]
fn exempt_callers_and_controllers_pass(context: &'static TestContext) -> Result<()> {
    let cluster = scratch(context)?;
    let exempt = "exempt: {users: [ci-bob], groups: [\"ops-*\"], serviceAccounts: [\"ci/*\"]}";
    let controllers = "controllerUsers: [\"system:serviceaccount:operators:*\"]";
    let (_installation, _durward) = installed(context, cluster, &[exempt, controllers, KEYS[0]])?;
    let ns = namespace(cluster, "exempted", Profile::Transfer)?;
    let all = denied(&ns)?;
    let mallory = mallory(cluster, "not-exempt")?;
    for one in &all {
        await_denied(|| one.send(&mallory.api), one.purpose)?;
    }
    for (user, groups) in [
        ("ci-bob", vec!["system:masters"]),
        ("alice", vec!["system:masters", "ops-berlin"]),
        ("system:serviceaccount:ci:runner", vec!["system:masters"]),
        ("system:serviceaccount:operators:etcd", vec!["system:masters"]),
        ("system:serviceaccount:kube-system:statefulset-controller", vec!["system:masters"]),
        ("system:kube-controller-manager", vec!["system:masters"]),
    ] {
        let user_api = cluster.user(user, &groups)?;
        for one in &all {
            is_allowed(one.send(&user_api.api)?).with_context(|| user.to_owned())?;
        }
    }
    Ok(())
}

#[e2e::case]
fn annotations_override_the_policies(context: &'static TestContext) -> Result<()> {
    let cluster = scratch(context)?;
    let (_installation, _durward) = installed(context, cluster, &KEYS)?;
    let ns = namespace(cluster, "overridden", Profile::Transfer)?;
    let mallory = mallory(cluster, "overrides-policies")?;
    let root = cluster.certified("root", Some("system:masters"))?;
    for one in denied(&ns)? {
        let annotate = |annotations: Value| {
            let patch = json!({"metadata": {"annotations": annotations}});
            cluster.api().merge(&one.object, &patch)?.succeeded().map(drop)
        };
        await_denied(|| one.send(&mallory.api), one.purpose)?;
        annotate(json!({"durward.dev/delete-anyway": "other"}))?;
        is_denied(&one.send(&mallory.api)?, one.purpose, &[])?;
        annotate(json!({"durward.dev/delete-anyway": one.name()}))?;
        is_allowed(one.send(&mallory.api)?)?;
        annotate(json!({"durward.dev/delete-anyway": null, "durward.dev/break-glass": one.name()}))?;
        is_denied(&one.send(&mallory.api)?, one.purpose, &[])?;
        is_allowed(one.send(&root.api)?)?;
        annotate(json!({"durward.dev/break-glass": null}))?;
    }
    Ok(())
}

#[e2e::case]
fn only_the_verb_overrides_with_overrides_permission(context: &'static TestContext) -> Result<()> {
    let cluster = scratch(context)?;
    let (_installation, _durward) = installed(context, cluster, &["overrides: permission", KEYS[0]])?;
    let ns = namespace(cluster, "permission", Profile::Transfer)?;
    let mallory = mallory(cluster, "lacks-the-verb")?;
    let rules = json!([
        {"apiGroups": ["durward.dev"], "resources": ["guards"], "resourceNames": ["etcd"], "verbs": ["break-glass"]},
        {"apiGroups": ["", "apps"], "resources": ["*"], "verbs": ["*"]},
    ]);
    allow(cluster, "has-the-verb", &rules, "has-the-verb")?;
    let alice = cluster.user("has-the-verb", &[])?;
    alice.await_permitted("/api/v1/namespaces/default/pods/x")?;
    for one in denied(&ns)? {
        let annotations =
            json!({"durward.dev/delete-anyway": one.name(), "durward.dev/break-glass": one.name()});
        let patch = json!({"metadata": {"annotations": annotations}});
        cluster.api().merge(&one.object, &patch)?.succeeded()?;
        await_denied(|| one.send(&mallory.api), one.purpose)?;
        eventually_ok("the verb", || is_allowed(one.send(&alice.api)?))?;
        let removed = json!({"durward.dev/delete-anyway": null, "durward.dev/break-glass": null});
        cluster.api().merge(&one.object, &json!({"metadata": {"annotations": removed}}))?.succeeded()?;
    }
    Ok(())
}
