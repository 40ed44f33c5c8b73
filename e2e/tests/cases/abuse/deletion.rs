//! The deletion guard: labels that take an object out of it, and reviews that no API server sent.

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
    let why = format!("changing label {GUARD} of namespace \"{}\" takes it out of the guard", shop.name());
    let words = [why.as_str(), "it is still in use: 1 pod (web)", "then repeat the change: kubectl annotate"];
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
    let why = format!("changing label {GUARD} of CRD \"{}\" takes it out of the guard", widgets.name());
    for subresource in ["", "/status"] {
        is_kept(&mallory.api, &format!("{}{subresource}", widgets.path()), &[&why, "1 object"])?;
    }
    let moved = mallory.api.merge(&path, &json!({"metadata": {"labels": {"tier": "dev"}}}))?;
    ensure!(moved.status == 403, "{}: {}", moved.status, moved.message());
    contains_all(moved.message(), &["changing label tier of namespace"])?;

    // Other changes, and namespaces that are not in use, pass.
    mallory.api.merge(&path, &json!({"metadata": {"labels": {"more": "1"}}}))?.succeeded()?;
    let of_empty = format!("/api/v1/namespaces/{}", empty.name());
    mallory.api.merge(&of_empty, &json!({"metadata": {"labels": {GUARD: null}}}))?.succeeded()?;
    mallory.api.merge(&of_empty, &json!({"metadata": {"labels": {GUARD: "deletion"}}}))?.succeeded()?;

    // While Durward is down, only such changes are blocked.
    drop(durward);
    let down = mallory.api.merge(&path, &json!({"metadata": {"labels": {GUARD: null}}}))?;
    contains_all(down.message(), &["failed calling webhook", "deletion-labels.durward.dev"])?;
    mallory.api.merge(&path, &json!({"metadata": {"labels": {"more": "2"}}}))?.succeeded()?;
    drop(installation);
    Ok(())
}
