//! The commands of Durward on a real fleet.

use std::os::unix::fs::symlink;

use e2e::prelude::*;

use super::environment::{exclusive, shared};
use super::objects::{exists, path_of};
use crate::cases::attempt::Attempt;
use crate::cases::objects::contains_all;
use crate::cases::pages::{Expect, Shell};

#[e2e::case]
fn impact_gives_the_verdict_of_the_guard(context: &'static TestContext) -> Result<()> {
    let fleet = shared(context)?;
    let (shop, empty) = (fleet.namespace("shop")?, fleet.namespace("empty")?);
    fleet.run_pod("m2", &shop, "web")?;
    let installation = fleet.installation();
    let (used, free) = (format!("ns/{}", shop.name()), format!("ns/{}", empty.name()));

    let output = installation.command(&["impact", &used])?;
    output.exited_with(1)?;
    contains_all(&output.stdout, &["m2", "1 pod", "web"])?;
    let json = installation.command(&["impact", &used, "--output=json"])?;
    let impact: Value = serde_json::from_str(&json.stdout).context("impact's JSON")?;
    ensure!(impact.to_string().contains("\"web\""), "impact's JSON does not name the pod: {impact}");
    let output = installation.command(&["impact", &free])?;
    output.exited_with(0)?;
    exists(fleet.karmada(), &path_of(&shop))?;
    exists(fleet.karmada(), &path_of(&empty))
}

#[e2e::case(Exclusive)]
fn a_stopped_member_is_unchecked_in_a_snapshot_and_for_the_doctor(
    context: &'static TestContext,
) -> Result<()> {
    let fleet = exclusive(context)?;
    let (shop, empty) = (fleet.namespace("shop")?, fleet.namespace("empty")?);
    fleet.run_pod("m3", &shop, "web")?;
    let installation = fleet.installation();
    let directory = context.directory("snapshot")?.join("snapshot");
    let out = format!("--out={}", directory.display());
    let (used, free) = (format!("ns/{}", shop.name()), format!("ns/{}", empty.name()));
    let stopped = fleet.member("m2")?.stop()?;
    let config = format!("--config={}", installation.config().display());
    installation.command(&["snapshot", &out, &used, &free])?;
    let snapshot = format!("--snapshot={}", directory.display());
    for (what, namespace, code) in [(&used, &shop, 1), (&free, &empty, 3)] {
        let live = installation.command(&["impact", what, "--output=json"])?;
        let replayed = Durward::command(context, &["impact", what, &config, &snapshot, "--output=json"])?;
        live.exited_with(code)?;
        ensure!(replayed.code() == live.code(), "replayed it is {:?}: {}", replayed.code(), replayed.stderr);
        let (live, replayed) = (findings(&live.stdout)?, findings(&replayed.stdout)?);
        ensure!(live == replayed, "replayed it is {replayed:?}\nand live {live:?}");
        fleet.dry_run(&path_of(namespace))?.denied()?;
    }
    let output = installation.command(&["doctor", "fleet"])?;
    output.exited_with(1)?;
    ensure!(output.stdout.contains("m2"), "doctor does not name m2: {}", output.stdout);
    stopped.undo()
}

/// Returns the verdict and the findings of each cluster. Texts are left out, because those of a snapshot differ.
fn findings(impact: &str) -> Result<Vec<Value>> {
    let impact: Value = serde_json::from_str(impact).context("impact's JSON")?;
    let report = impact.get(0).context("impact reported no object")?;
    let clusters = report["clusters"].as_array().context("impact reported no clusters")?;
    ensure!(clusters.len() == 4, "impact reported {} clusters", clusters.len());
    let found = clusters.iter().map(|cluster| {
        let causes: Vec<&Value> =
            cluster["unchecked"].as_array().into_iter().flatten().map(|why| &why["cause"]).collect();
        json!([cluster["cluster"], cluster["state"], cluster["inUse"], causes])
    });
    Ok(std::iter::once(report["verdict"].clone()).chain(found).collect())
}

#[e2e::case(Exclusive)]
fn the_runbook_for_an_outage_unblocks_a_karmada_control_plane(context: &'static TestContext) -> Result<()> {
    let fleet = exclusive(context)?;
    let (_shop, path) = fleet.new_namespace("shop")?;
    let directory = context.directory("karmada-admin")?;
    symlink(fleet.karmada().kubectl().kubeconfig(), directory.join("karmada-admin.config"))?;
    let shell = Shell::new(context, fleet.karmada(), &directory)?;
    let down = fleet.stop_durward(context);
    fleet.dry_run(&path)?.not_reviewed()?;
    let followed = shell.run_page("runbooks/durward-down.md", |_, command| {
        Ok(if command.contains("karmada") { Expect::Success } else { Expect::Skip })
    });
    let unblocked =
        followed.and_then(|()| fleet.await_dry_run("a deletion to be allowed", &path, Attempt::is_allowed));
    drop(down);
    fleet.installation().register()?;
    fleet.await_dry_run("the guard to be called", &path, |attempt| attempt.has_warning("is not in use"))?;
    unblocked
}

/// A CRD like Argo CD's, which keeps all fields.
const APPLICATIONS: &str = r#"{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
"metadata": {"name": "applications.argoproj.io"}, "spec": {"group": "argoproj.io", "scope": "Namespaced",
"names": {"kind": "Application", "plural": "applications", "singular": "application", "listKind": "ApplicationList"},
"versions": [{"name": "v1alpha1", "served": true, "storage": true,
"schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}"#;

#[e2e::case(Exclusive)]
fn a_change_of_manifests_is_compared_with_the_fleet_and_with_its_snapshot(
    context: &'static TestContext,
) -> Result<()> {
    let fleet = exclusive(context)?;
    let (shop, free) = (fleet.namespace("shop")?, fleet.namespace("free")?);
    let argocd = fleet.namespace("argocd")?;
    fleet.run_pod("m3", &shop, "web")?;
    let api = fleet.karmada().api();
    api.create(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        &serde_json::from_str(APPLICATIONS)?,
    )?
    .succeeded()?;
    let path = format!("/apis/argoproj.io/v1alpha1/namespaces/{}/applications", argocd.name());
    let application = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {"name": "shop", "finalizers": ["resources-finalizer.argocd.argoproj.io"],
            "ownerReferences": [{"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "name": "shops", "uid": "1"}]},
        "spec": {"destination": {"server": "https://kubernetes.default.svc"}},
        "status": {"resources": [{"version": "v1", "kind": "Namespace", "name": shop.name()}]}});
    eventually("the CRD to be served", WAIT_LIMIT, || {
        Ok(Poll::from(api.create(&path, &application)?.succeeded()))
    })?;
    // The page names this permission.
    let kubectl = fleet.karmada().kubectl();
    kubectl
        .run(&[
            "create",
            "clusterrole",
            "applications",
            "--verb=list",
            "--resource=applications.argoproj.io",
        ])?
        .succeeded()?;
    kubectl
        .run(&[
            "create",
            "clusterrolebinding",
            "applications",
            "--clusterrole=applications",
            "--user=durward",
        ])?
        .succeeded()?;
    let directory = context.directory("change")?;
    let old = format!(
        "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {{name: shops, namespace: {}}}\n---\n\
         apiVersion: v1\nkind: Namespace\nmetadata: {{name: {}}}\n",
        argocd.name(),
        free.name()
    );
    let old = e2e::context::write(&directory, "old.yaml", &old)?.display().to_string();
    let new = e2e::context::write(&directory, "new.yaml", "")?.display().to_string();
    let installation = fleet.installation();
    let live = installation.command(&["impact", "--diff", &old, &new, "-o", "json"])?;
    live.exited_with(1)?;
    let verdicts = |report: &str| -> Result<Vec<(String, String)>> {
        let report: Value = serde_json::from_str(report)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let removed = report["removed"].as_array().context("removed")?.iter();
        Ok(removed.map(|one| (text(&one["name"]), text(&one["verdict"]))).collect())
    };
    let of = |name: &str, verdict: &str| (name.to_owned(), verdict.to_owned());
    let expected =
        [of(shop.name(), "deny"), of("shop", "deny"), of(free.name(), "allow"), of("shops", "allow")];
    let found = verdicts(&live.stdout)?;
    ensure!(found == expected, "{found:?}");

    let snapshot = directory.join("fleet").display().to_string();
    // Other cases may stop members or lack permissions in their CRDs, which the snapshot says.
    let config = installation.config().display().to_string();
    installation.command(&["snapshot", "--out", &snapshot])?;
    let replayed = Durward::command(
        context,
        &["impact", "--diff", &old, &new, "--config", &config, "--snapshot", &snapshot, "-o", "json"],
    )?;
    let replayed = verdicts(&replayed.stdout)?;
    ensure!(replayed == expected, "{replayed:?}");
    kubectl.run(&["delete", "clusterrole/applications", "clusterrolebinding/applications"])?.succeeded()?;
    // Argo CD would remove the finalizer.
    let shop = format!("{path}/shop");
    api.merge(&shop, &json!({"metadata": {"finalizers": null}}))?.succeeded()?;
    api.delete(&shop)?.succeeded()?;
    // Durward has no permission for this group, so it denies.
    let admin = kubectl.kubeconfig().display().to_string();
    let crd = "crd/applications.argoproj.io";
    Durward::command(
        context,
        &["override", crd, "--reason", "end of the case", "--for", "1h", "--kubeconfig", &admin],
    )?
    .succeeded()?;
    eventually("the CRD to be free", WAIT_LIMIT, || {
        let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/applications.argoproj.io";
        Ok(Poll::from(api.delete(crd)?.succeeded().map(drop)))
    })
}

#[e2e::case(Exclusive)]
fn stored_objects_of_all_members_are_judged_under_a_new_crd(context: &'static TestContext) -> Result<()> {
    let fleet = exclusive(context)?;
    let crd = |fields: Value| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "crates.shop.example.org"},
            "spec": {"group": "shop.example.org", "scope": "Namespaced",
                "names": {"kind": "Crate", "plural": "crates", "singular": "crate", "listKind": "CrateList"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": fields}}}]}})
    };
    let text = json!({"type": "string"});
    let old = crd(json!({"size": text, "note": text}));
    let new = crd(json!({"size": text}));
    for (member, note) in [("m1", Value::Null), ("m2", json!("for later")), ("m3", Value::Null)] {
        let api = fleet.member(member)?.api();
        api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &old)?.succeeded()?;
        let mut object = json!({"apiVersion": "shop.example.org/v1", "kind": "Crate", "metadata": {"name": "a"}, "size": "small"});
        if !note.is_null() {
            object["note"] = note;
        }
        eventually("the CRD to be served", WAIT_LIMIT, || {
            Ok(Poll::from(
                api.create("/apis/shop.example.org/v1/namespaces/default/crates", &object)?.succeeded(),
            ))
        })?;
    }
    let directory = context.directory("crates")?;
    let file = e2e::context::write(&directory, "new.json", &new.to_string())?.display().to_string();
    let output = fleet.installation().command(&["diff", "crd", &file, "--live"])?;
    output.exited_with(1)?;
    contains_all(
        &output.stdout,
        &["m2: Crate default/a: loses fields: note\n", "1 of 3 objects in 3 clusters becomes invalid"],
    )?;
    for member in fleet.members() {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/crates.shop.example.org";
        member.api().delete(path)?.succeeded()?;
    }
    Ok(())
}
