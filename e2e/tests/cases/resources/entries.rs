//! Webhook entries follow the policies, and policies whose entries are missing are reported.

use std::path::Path;

use e2e::prelude::*;
use rustix::process::Signal;

use super::{exclusive, file, guards, policy};
use crate::cases::environment::eventually_ok;
use crate::cases::objects::contains_all;

const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/durward";

/// Writes a policy that denies all objects of a resource.
fn deny(directory: &Path, resource: &str) -> Result<String> {
    let name = format!("no-{resource}");
    let text = policy(&name, resource, "Deny", "false", &format!("{resource} are not allowed"));
    file(directory, &format!("{name}.yaml"), &text)
}

/// Waits until an object of the resource is denied by its policy.
fn await_denied(cluster: &Cluster, kind: &str, resource: &str) -> Result<()> {
    let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}});
    until(format_args!("{resource} to be denied"), || {
        let answer =
            cluster.api().create(&format!("/api/v1/namespaces/default/{resource}?dryRun=All"), &object)?;
        let text = answer.message().to_owned();
        Ok((text.contains(&format!("{resource} are not allowed")), text))
    })
}

#[e2e::case]
fn a_reload_adds_the_rules_of_a_new_policy(context: &'static TestContext) -> Result<()> {
    let cluster = exclusive(context)?;
    let directory = context.directory("resources-entries")?;
    deny(&directory, "configmaps")?;
    let guards = guards(&[directory.display().to_string()], "");
    let mut installation = Installation::managed_by_url(context, &cluster, "all", &guards)?;
    let durward = installation.serve().named("durward-entries").start_ready(context)?;
    installation.register()?;
    await_denied(&cluster, "ConfigMap", "configmaps")?;
    deny(&directory, "secrets")?;
    durward.signal(Signal::HUP)?;
    await_denied(&cluster, "Secret", "secrets")?;

    // A condition that was added by hand stays, and is reported.
    let entry = json!([{"op": "add", "path": "/webhooks/0/matchConditions", "value": [{"name": "never", "expression": "false"}]}]);
    let patch =
        ["patch", "validatingwebhookconfiguration", "durward", "--type=json", "-p", &entry.to_string()];
    cluster.kubectl().run(&patch)?.succeeded()?;
    let doctor = installation.command(&["doctor", "install"])?;
    doctor.exited_with(1)?;
    ensure!(doctor.stdout.contains("(narrowed)"), "{}", doctor.stdout);
    Ok(())
}

#[e2e::case]
fn policies_without_entries_are_reported_as_not_enforced(context: &'static TestContext) -> Result<()> {
    let cluster = exclusive(context)?;
    let directory = context.directory("resources-not-enforced")?;
    deny(&directory, "configmaps")?;
    let guards = guards(&[directory.display().to_string()], "");
    let mut installation = Installation::managed_by_url(context, &cluster, "caBundle", &guards)?;
    let durward = installation.serve().named("durward-not-enforced").start_ready(context)?;
    installation.register()?;
    await_denied(&cluster, "ConfigMap", "configmaps")?;
    let not_enforced = || durward.metrics()?.value("durward_policies_not_enforced", &[]);
    let await_count = |count: f64| {
        eventually_ok("the number of policies that are not enforced", || {
            let now = not_enforced()?;
            ensure!((now - count).abs() < 0.5, "{now}");
            Ok(())
        })
    };
    await_count(0.0)?;

    deny(&directory, "secrets")?;
    durward.signal(Signal::HUP)?;
    await_count(1.0)?;
    eventually_ok("policies that are not enforced in page and log", || {
        let page = durward.page("/readyz?verbose")?;
        ensure!(page.status == 200, "{}", page.body);
        contains_all(&page.body, &["not enforced", "no-secrets"])?;
        contains_all(&durward.log()?, &["not enforced", "no-secrets"])
    })?;
    let doctor = installation.command(&["doctor", "install"])?;
    doctor.exited_with(1)?;
    contains_all(&doctor.stdout, &["not-enforced", "no-secrets", "durward manifests"])?;

    installation.register()?;
    await_denied(&cluster, "Secret", "secrets")?;
    await_count(0.0)?;
    let webhooks = cluster.api().get(VALIDATING)?.succeeded()?.body["webhooks"].take();
    ensure!(webhooks.as_array().is_some_and(|all| all.len() == 1), "{webhooks}");

    // A reload makes a pass, which otherwise follows within a minute.
    let reload = |number: usize| {
        durward.reload_after(|| installation.configure(&format!("{}\n# {number}", guards.trim_end())))
    };
    // An entry that was narrowed by hand. An apply does not remove a field that another client added.
    let condition = json!([{"name": "never", "expression": "request.name != 'a'"}]);
    let narrower = [("rules/0/operations", json!(["CREATE"])), ("matchConditions", condition)];
    for (number, (field, value)) in narrower.into_iter().enumerate() {
        let patch =
            json!([{"op": "add", "path": format!("/webhooks/0/{field}"), "value": value}]).to_string();
        let patch = ["patch", "validatingwebhookconfiguration", "durward", "--type=json", "-p", &patch];
        cluster.kubectl().run(&patch)?.succeeded()?;
        reload(2 * number)?;
        eventually_ok(&format!("a narrower field {field} to be reported"), || {
            let count = not_enforced()?;
            ensure!(count > 0.5, "durward_policies_not_enforced is {count}");
            contains_all(&durward.page("/readyz?verbose")?.body, &["not enforced"])
        })?;
        let doctor = installation.command(&["doctor", "install"])?;
        doctor.exited_with(1)?;
        contains_all(
            &doctor.stdout,
            &["not-enforced", "no-configmaps", "durward manifests", "replace -f -"],
        )?;
        installation.replace_webhooks()?;
        reload(2 * number + 1)?;
        await_count(0.0)?;
    }
    Ok(())
}

/// A guard that a reload turns off denies nothing, also while its entry is there.
#[e2e::case]
fn a_guard_that_is_turned_off_denies_nothing(context: &'static TestContext) -> Result<()> {
    let cluster = exclusive(context)?;
    let directory = context.directory("resources-turned-off")?;
    deny(&directory, "configmaps")?;
    let others = "  deletion: {fleet: none, scope: labeled}";
    let on = format!("{others}\n{}", guards(&[directory.display().to_string()], ""));
    let mut installation = Installation::managed_by_url(context, &cluster, "all", &on)?;
    let durward = installation.serve().named("durward-turned-off").start_ready(context)?;
    installation.register()?;
    await_denied(&cluster, "ConfigMap", "configmaps")?;
    installation.configure(others)?;
    durward.signal(Signal::HUP)?;
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let create = || cluster.api().create("/api/v1/namespaces/default/configmaps?dryRun=All", &object);
    let has_entry = || -> Result<bool> {
        let webhooks = cluster.api().get(VALIDATING)?.succeeded()?.body["webhooks"].to_string();
        Ok(webhooks.contains("resources-fail.durward.dev"))
    };
    until("the guard to be off", || {
        let answer = create()?;
        // An answer must not be an error of the call.
        ensure!(!answer.message().contains("failed calling webhook"), "{}", answer.message());
        Ok((answer.is_success() && !has_entry()?, answer.message().to_owned()))
    })?;
    installation.configure(&on)?;
    durward.signal(Signal::HUP)?;
    await_denied(&cluster, "ConfigMap", "configmaps")
}
