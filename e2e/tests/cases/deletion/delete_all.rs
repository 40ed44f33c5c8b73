//! `kubectl delete … --all` on a fleet.

use std::collections::BTreeSet;

use e2e::prelude::*;

use super::environment::exclusive;
use super::objects::{Crd, exists, path_of};
use crate::cases::objects::name_of;

/// Namespaces that Kubernetes itself never deletes.
const UNDELETABLE: [&str; 3] = ["default", "kube-system", "kube-public"];

#[e2e::case(Exclusive)]
fn deleting_all_namespaces_judges_each_one(context: &'static TestContext) -> Result<()> {
    let fleet = exclusive(context)?;
    let (used, free) = (fleet.namespace("used")?, fleet.namespace("free")?);
    fleet.run_pod("m3", &used, "web")?;
    let all = names(&fleet, "namespaces")?;
    let tried = fleet.karmada().kubectl().run(&["delete", "namespaces", "--all", "--dry-run=server"])?;
    ensure!(!tried.is_success(), "the dry run passed");

    let denied = |name: &str, words: &str| {
        let line = tried
            .stderr
            .lines()
            .find(|line| line.starts_with("Error from server") && (line.contains(&format!("\"{name}\""))));
        let line = line.with_context(|| format!("{name} was not denied: {}", tried.stderr))?;
        ensure!(line.contains(words), "the denial of {name} does not contain {words:?}: {line}");
        Ok(())
    };
    for name in UNDELETABLE {
        denied(name, "this namespace may not be deleted")?;
    }
    for name in ["karmada-system", "karmada-cluster"] {
        denied(name, "is part of Karmada")?;
    }
    for member in fleet.members() {
        let words = format!("is Karmada's work queue for member cluster {}", member.name());
        denied(&format!("karmada-es-{}", member.name()), &words)?;
    }
    denied(used.name(), "m3: 1 pod (web)")?;
    let passed: BTreeSet<&str> = tried
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("namespace \"")?.split('"').next())
        .collect();
    ensure!(passed.contains(free.name()), "{} was denied: {}", free.name(), tried.stderr);
    // Each namespace has exactly one verdict, including those that other cases left.
    for name in &all {
        let is_refused = tried
            .stderr
            .lines()
            .any(|line| line.starts_with("Error from server") && line.contains(&format!("\"{name}\"")));
        ensure!(is_refused != passed.contains(name.as_str()), "{name} has no verdict, or two");
    }
    exists(fleet.karmada(), &path_of(&free))?;
    ensure!(names(&fleet, "namespaces")?.is_superset(&all), "a dry run deleted something");
    Ok(())
}

#[e2e::case(Exclusive)]
fn deleting_all_crds_judges_each_one(context: &'static TestContext) -> Result<()> {
    let fleet = exclusive(context)?;
    let karmada = fleet.karmada();
    let [used, free] = [Crd::new(&["v1"]), Crd::new(&["v1"])];
    for crd in [&used, &free] {
        crd.create_in(karmada)?;
    }
    let m2 = fleet.member("m2")?;
    used.create_in(m2)?;
    used.create_object(&m2.namespace("own")?, "v1", "one")?;

    let all = names(&fleet, "customresourcedefinitions")?;
    let arguments = ["delete", "customresourcedefinitions", "--all", "--dry-run=server"];
    let tried = karmada.kubectl().run(&arguments)?;
    let refusals: Vec<&str> =
        tried.stderr.lines().filter(|line| line.starts_with("Error from server")).collect();
    let refusal = |name: &str| refusals.iter().find(|line| line.contains(&format!("\"{name}\"")));
    let mut karmadas = 0;
    for name in all.iter().filter(|name| name.ends_with(".karmada.io")) {
        let line = refusal(name).with_context(|| format!("{name} was not denied"))?;
        ensure!(line.contains("is part of Karmada"), "{line}");
        karmadas += 1;
    }
    ensure!(karmadas > 10, "Karmada has only {karmadas} definitions here");
    let line = refusal(&used.name()).context("the CRD in use was not denied")?;
    ensure!(line.contains("m2: 1 object ("), "{line}");
    ensure!(refusal(&free.name()).is_none(), "the unused CRD was denied: {:?}", refusal(&free.name()));
    let passed = format!("customresourcedefinition.apiextensions.k8s.io \"{}\" deleted", free.name());
    ensure!(tried.stdout.contains(&passed), "{} has no verdict: {}", free.name(), tried.stdout);
    exists(karmada, &free.path())
}

#[e2e::case]
fn parts_of_karmada_cannot_be_deleted(context: &'static TestContext) -> Result<()> {
    let fleet = super::environment::shared(context)?;
    let _api = fleet.karmada().api();
    let works = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/works.work.karmada.io";
    let paths = ["/api/v1/namespaces/karmada-system", "/api/v1/namespaces/karmada-cluster", works];
    for path in paths {
        fleet.delete(path)?.denied()?.with_message(&["is part of Karmada"])?;
        exists(fleet.karmada(), path)?;
    }
    let space = "/api/v1/namespaces/karmada-es-m1";
    fleet.delete(space)?.denied()?.with_message(&["karmadactl unjoin m1"])?;
    exists(fleet.karmada(), space)?;
    // No cluster has this name, so the execution namespace is an ordinary namespace.
    let left = fleet.karmada().exact_namespace("karmada-es-left-behind", &[])?;
    fleet.dry_run(&path_of(&left))?.allowed().map(drop)
}

/// Returns the objects of a kind, except those that are being deleted.
fn names(fleet: &Fleet, resource: &str) -> Result<BTreeSet<String>> {
    let list = fleet.karmada().kubectl().get(&[resource])?;
    let items = list["items"].as_array().into_iter().flatten();
    let kept = items.filter(|item| item["metadata"]["deletionTimestamp"].is_null());
    Ok(kept.map(|item| name_of(item).to_owned()).collect())
}
