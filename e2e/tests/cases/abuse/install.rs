//! Durward itself is attacked: its namespace, its webhook configurations and its token.

use e2e::prelude::*;

use crate::cases::environment::{eventually_ok, scratch};
use crate::cases::objects::{allow, contains_all};
use crate::cases::webhooks::options;

const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/durward";
const HOME: &str = "/api/v1/namespaces/durward-system";

const DELETION: &str = "  deletion: {scope: all}";

/// The account of Durward.
const ACCOUNT: &str = "--as=system:serviceaccount:durward-system:durward";

/// Expects that a deletion of Durward's namespace is denied with these words.
fn is_denied(api: &Api, words: &[&str]) -> Result<()> {
    check_denied(api, HOME, words)
}

fn check_denied(api: &Api, path: &str, words: &[&str]) -> Result<()> {
    let answer = api.delete(path)?;
    ensure!(answer.status == 403, "{}: {}", answer.status, answer.message());
    contains_all(answer.message(), words)
}

/// Waits until a deletion of Durward's namespace is denied.
fn await_denied(api: &Api, word: &str) -> Result<()> {
    let dry_run = format!("{HOME}?dryRun=All");
    eventually_ok("Durward's namespace to be protected", || check_denied(api, &dry_run, &[word]))
}

/// Waits until a dry run of the deletion of Durward's namespace is allowed.
fn await_allowed(cluster: &Cluster) -> Result<()> {
    eventually_ok("Durward's namespace to be deletable", || {
        cluster.api().delete(&format!("{HOME}?dryRun=All"))?.succeeded().map(drop)
    })
}

#[e2e::case]
fn the_namespace_of_durward_is_not_deleted_before_the_guards(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&options())?;
    let mut installation = Installation::managed_by_url(context, &cluster, "all", DELETION)?;
    let (shop, empty) = (cluster.namespace("shop")?, cluster.namespace("empty")?);
    shop.pod("web").is_admitted()?;
    installation.register()?;
    let durward = installation.serve().named("durward-install-abuse").start_ready(context)?;
    let rules = json!([{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "delete"]}]);
    allow(&cluster, "mallory", &rules, "mallory")?;
    let mallory = cluster.user("mallory", &[])?;
    mallory.await_permitted(HOME)?;
    let why = "ValidatingAdmissionPolicy 'durward-install-namespace'";
    await_denied(&mallory.api, why)?;
    is_denied(&mallory.api, &["namespace durward-system contains Durward", "Next: helm uninstall durward"])?;

    // Everything else is deleted, and the guards stay.
    let all = mallory.kubectl.run(&["delete", "namespaces", "--all", "--wait=false"])?;
    contains_all(&all.stderr, &[why, "is still in use"])?;
    contains_all(&all.stdout, &[empty.name()])?;
    let entries = cluster.api().get(VALIDATING)?.succeeded()?.body["webhooks"].to_string();
    contains_all(&entries, &["\"deletion.durward.dev\""])?;
    let shop_path = format!("/api/v1/namespaces/{}", shop.name());
    ensure!(mallory.api.delete(&shop_path)?.status == 403, "the guard does not deny any more");

    // The annotation that the message names.
    let annotate = |annotations: Value| {
        cluster.api().merge(HOME, &json!({"metadata": {"annotations": annotations}}))?.succeeded().map(drop)
    };
    annotate(json!({"durward.dev/delete-anyway": "durward-system"}))?;
    mallory.api.delete(&format!("{HOME}?dryRun=All"))?.succeeded()?;
    annotate(json!({"durward.dev/delete-anyway": null}))?;
    is_denied(&mallory.api, &[why])?;

    // A Durward that is down keeps its namespace, and `unregister` frees it.
    drop(durward);
    is_denied(&mallory.api, &[why])?;
    installation.command(&["unregister"])?.succeeded()?;
    await_allowed(&cluster)
}

#[e2e::case]
fn entries_that_durward_did_not_write_are_reported(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&scratch())?;
    let mut installation = Installation::managed_by_url(context, &cluster, "all", DELETION)?;
    installation.register()?;
    let durward = installation.serve().named("durward-foreign").start_ready(context)?;
    let has_entries = || {
        let entries = cluster.api().get(VALIDATING)?.succeeded()?.body["webhooks"].to_string();
        contains_all(&entries, &["\"deletion.durward.dev\""])
    };
    eventually_ok("the entries", has_entries)?;

    // The token of Durward can write this object, but not the one that could change pods.
    for (kind, expected) in [("validating", "yes"), ("mutating", "no")] {
        let object = format!("{kind}webhookconfigurations.admissionregistration.k8s.io/durward");
        let answer = cluster.kubectl().run(&["auth", "can-i", "patch", &object, ACCOUNT])?;
        ensure!(answer.stdout.trim() == expected, "{kind}: {answer:?}");
    }
    let entry = |name: &str| {
        json!({
            "name": name, "clientConfig": {"url": "https://192.0.2.1/x"}, "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore", "timeoutSeconds": 1,
            "rules": [{"operations": ["CREATE"], "apiGroups": ["example.org"], "apiVersions": ["v1"], "resources": ["x"]}],
        })
    };
    let names = ["x.example.org", "etcd-pods.durward.dev"];
    let added = names.map(|name| json!({"op": "add", "path": "/webhooks/-", "value": entry(name)}));
    let patch = json!(added).to_string();
    let arguments =
        ["patch", "validatingwebhookconfiguration", "durward", "--type=json", "-p", &patch, ACCOUNT];
    cluster.kubectl().run(&arguments)?.succeeded()?;

    let labels = [("target", "cluster"), ("kind", "validating")];
    until("the metric to count the entries", || {
        let count = durward.metrics()?.sum("durward_webhooks_foreign", &labels);
        Ok(((count - 2.0).abs() < 0.1, count.to_string()))
    })?;
    contains_all(&durward.log()?, &["has entries that Durward did not write", names[0], names[1]])?;
    let doctor = installation.command(&["doctor", "install"])?;
    doctor.exited_with(1)?;
    contains_all(&doctor.stdout, &["(foreign-entry)", names[0], names[1], "kubectl edit"])?;
    let entries = cluster.api().get(VALIDATING)?.succeeded()?.body["webhooks"].to_string();
    contains_all(&entries, &names)
}
