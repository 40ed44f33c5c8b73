//! The deletion guard: labels that take an object out of it.

use e2e::prelude::*;

use crate::cases::deletion::objects::Crd;
use crate::cases::environment::{eventually_ok, scratch};
use crate::cases::objects::{allow, contains_all};

const GUARD: &str = "durward.dev/guard";

/// Expects that the removal of the label is denied with these words.
fn is_kept(api: &Api, path: &str, words: &[&str]) -> Result<()> {
    let answer = api.merge(path, &json!({"metadata": {"labels": {GUARD: null}}}))?;
    ensure!(answer.status == 403, "{}: {}", answer.status, answer.message());
    contains_all(answer.message(), words)
}

#[e2e::case]
fn the_label_of_a_namespace_in_use_is_not_removed(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&scratch())?;
    let guarded = [(GUARD, "deletion"), ("tier", "prod")];
    let shop = cluster.labelled_namespace("shop", &guarded)?;
    let empty = cluster.labelled_namespace("empty", &guarded)?;
    shop.pod("web").is_admitted()?;
    let widgets = Crd::new(&["v1"]).labelled(json!({GUARD: "deletion"}));
    widgets.create_in(&cluster)?;
    widgets.create_object(&empty, "v1", "one")?;
    let guards = "  deletion: {scope: labeled, crds: {apiGroups: [\"*\"]}, webhook: {namespaceSelector: {matchLabels: {tier: prod}}}}";
    let (installation, durward) = Installation::start(context, &cluster, guards, "durward-labels")?;
    let resources = ["namespaces", "namespaces/status", "namespaces/finalize"];
    let crds = ["customresourcedefinitions", "customresourcedefinitions/status"];
    let verbs = ["get", "patch", "update", "delete"];
    let rules = json!([
        {"apiGroups": [""], "resources": resources, "verbs": verbs},
        {"apiGroups": ["apiextensions.k8s.io"], "resources": crds, "verbs": verbs},
    ]);
    allow(&cluster, "relabels", &rules, "mallory")?;
    let mallory = cluster.user("mallory", &[])?;
    let path = format!("/api/v1/namespaces/{}", shop.name());
    mallory.await_permitted(&path)?;
    let why = format!("namespace {}: label durward.dev/guard, tier can't be changed", shop.name());
    let policy = "ValidatingAdmissionPolicy 'durward-deletion-labels'";
    let words = [policy, why.as_str(), "then remove the annotation"];
    let dry_run = format!("{path}?dryRun=All");
    eventually_ok("the guard to deny", || is_kept(&mallory.api, &dry_run, &words))?;
    for subresource in ["", "/status"] {
        is_kept(&mallory.api, &format!("{path}{subresource}"), &words)?;
    }
    let mut finalized = mallory.api.get(&path)?.succeeded()?.body;
    finalized["metadata"]["labels"] = json!({"tier": "prod"});
    let finalized = mallory.api.replace(&format!("{path}/finalize"), &finalized)?;
    ensure!(finalized.status == 403, "{}: {}", finalized.status, finalized.message());
    contains_all(finalized.message(), &words)?;
    contains_all(mallory.api.delete(&path)?.message(), &["is still in use: 1 pod (web)"])?;
    let why = format!("CRD {}: label ", widgets.name());
    for subresource in ["", "/status"] {
        is_kept(&mallory.api, &format!("{}{subresource}", widgets.path()), &[policy, &why])?;
    }
    let moved = mallory.api.merge(&path, &json!({"metadata": {"labels": {"tier": "dev"}}}))?;
    ensure!(moved.status == 403, "{}: {}", moved.status, moved.message());
    contains_all(moved.message(), &words)?;

    // Other changes pass, also while Durward is down. A namespace that is not in use needs the annotation too.
    mallory.api.merge(&path, &json!({"metadata": {"labels": {"more": "1"}}}))?.succeeded()?;
    let of_empty = format!("/api/v1/namespaces/{}", empty.name());
    drop(durward);
    is_kept(&mallory.api, &of_empty, &[policy])?;
    mallory.api.merge(&path, &json!({"metadata": {"labels": {"more": "2"}}}))?.succeeded()?;
    let anyway = json!({"metadata": {"annotations": {"durward.dev/delete-anyway": empty.name()}}});
    mallory.api.merge(&of_empty, &anyway)?.succeeded()?;
    mallory.api.merge(&of_empty, &json!({"metadata": {"labels": {GUARD: null}}}))?.succeeded()?;
    drop(installation);
    Ok(())
}
