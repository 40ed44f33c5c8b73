//! The printed permissions are sufficient and minimal, and a missing one is named.

use e2e::prelude::*;

use super::environment::{ExclusiveFleet, exclusive, shared};
use super::members::await_allowed;
use super::objects::{exists, path_of};
use crate::cases::attempt::Attempt;

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// Grants the printed permissions on drop.
fn restore_on_drop(fleet: &ExclusiveFleet) -> Undo<'_> {
    Undo::new("Durward's permissions are not restored", || fleet.installation().grant())
}

#[e2e::case(Exclusive)]
fn a_missing_permission_in_a_member_is_named(context: &'static TestContext) -> Result<()> {
    let fleet = exclusive(context)?;
    let (_, path) = fleet.new_namespace("shop")?;
    let api = fleet.karmada().api();
    let before = fleet.unknown("forbidden")?;
    {
        let _restored = restore_on_drop(&fleet);
        // First one resource is removed, then the whole binding.
        let role = api.get(&format!("{ROLES}/durward-member"))?.succeeded()?.body;
        let rules = role["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
        let rest: Vec<_> = rules.iter().filter(|rule| rule["resources"] != json!(["pods"])).collect();
        ensure!(rest.len() + 1 == rules.len(), "no rule is about pods alone: {role}");
        api.merge(&format!("{ROLES}/durward-member"), &json!({"rules": rest}))?.succeeded()?;
        for name in ["m1", "m2", "m3"] {
            let words = format!("not permitted to list pods in {name} (RBAC in {name}: verb list)");
            await_denial(&fleet, &path, &words)?;
        }
        api.delete(&format!("{BINDINGS}/durward-member"))?.succeeded()?;
        for name in ["m1", "m2", "m3"] {
            let words = format!("not permitted to get namespaces in {name} (RBAC in {name}: verb get)");
            await_denial(&fleet, &path, &words)?;
        }
        fleet.delete(&path)?.denied()?.with_cause("m1", "Unknown")?.with_cause("m3", "Unknown")?;
        exists(fleet.karmada(), &path)?;
        ensure!(fleet.unknown("forbidden")? > before + 0.5, "no counter increased");
    }
    await_allowed(&fleet, &path)
}

#[e2e::case(Exclusive)]
fn a_missing_permission_for_the_proxy_or_clusters_is_named(context: &'static TestContext) -> Result<()> {
    let fleet = exclusive(context)?;
    let (_, path) = fleet.new_namespace("shop")?;
    let api = fleet.karmada().api();
    {
        let _restored = restore_on_drop(&fleet);
        let role = api.get(&format!("{ROLES}/durward"))?.succeeded()?.body;
        let rules = role["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
        for (resource, words) in
            [("clusters/proxy", "verb get on clusters/proxy"), ("clusters", "not permitted to list clusters")]
        {
            let rest: Vec<_> = rules.iter().filter(|rule| rule["resources"] != json!([resource])).collect();
            ensure!(rest.len() + 1 == rules.len(), "no rule is about {resource} alone: {role}");
            api.merge(&format!("{ROLES}/durward"), &json!({"rules": rest}))?.succeeded()?;
            await_denial(&fleet, &path, words)?;
            fleet.delete(&path)?.denied()?;
            exists(fleet.karmada(), &path)?;
        }
    }
    await_allowed(&fleet, &path)
}

#[e2e::case]
fn durward_can_read_no_secret_and_change_nothing(context: &'static TestContext) -> Result<()> {
    let fleet = shared(context)?;
    let durward = fleet.karmada().certified("durward", None)?;
    let shop = fleet.namespace("shop")?;
    ensure!(durward.api.get("/api/v1/namespaces")?.is_success(), "durward cannot read namespaces");
    for path in ["/api/v1/secrets", "/api/v1/namespaces/karmada-cluster/secrets/m1"] {
        let status = durward.api.get(path)?.status;
        ensure!(status == 403, "durward gets {status} for {path}");
    }
    let created = durward.api.create(&shop.path("configmaps"), &json!({"metadata": {"name": "mark"}}))?;
    ensure!(created.status == 403, "durward can create: {}", created.status);
    let deleted = durward.api.delete(&path_of(&shop))?;
    ensure!(deleted.status == 403, "durward can delete: {}", deleted.status);
    for member in fleet.members() {
        let read = durward.api.get(&fleet.proxied(member.name(), "/api/v1/namespaces"))?;
        ensure!(read.is_success(), "durward cannot read namespaces in {}: {}", member.name(), read.status);
        for path in ["/api/v1/secrets", "/api/v1/configmaps", "/api/v1/nodes"] {
            let status = durward.api.get(&fleet.proxied(member.name(), path))?.status;
            ensure!(status == 403, "durward gets {status} for {path} in {}", member.name());
        }
        let pods = fleet.proxied(member.name(), &shop.path("pods"));
        let status = durward.api.create(&pods, &json!({"metadata": {"name": "mark"}}))?.status;
        ensure!(status == 403, "durward can create in {}: {status}", member.name());
    }
    Ok(())
}

/// Waits until a dry run is denied with these words.
fn await_denial(fleet: &ExclusiveFleet, path: &str, words: &str) -> Result<()> {
    let what = format!("a denial with {words:?}");
    let is_expected = |attempt: &Attempt| attempt.is_denied() && attempt.contains(words);
    fleet.await_dry_run(&what, path, is_expected)
}
