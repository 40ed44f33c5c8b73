//! What is printed is enough, and no more; and what is taken away is missed by name.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::console::print;
use e2e::context::TestContext;
use e2e::wait::{Poll, eventually};
use serde_json::json;

use super::attempt::{delete, try_delete};
use super::house::{Alone, alone, beside};
use super::members::{comes_back, comes_back_within};
use super::objects::{path_of, untouched};

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// Until a member, or the API server, has heard of it.
const HEARD_WITHIN: Duration = Duration::from_secs(60);

/// Until members have it back: the word that Karmada has of them may be old, and what it then takes for done is
/// done when it has looked again.
const RESTORED_WITHIN: Duration = Duration::from_secs(120);

/// Grants what is printed when it is dropped.
struct Restored<'a>(&'a Alone);

impl Drop for Restored<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.installation().grant() {
            print(format_args!("Durward's permissions do not come back: {error:#}"));
        }
    }
}

#[e2e::case(Exclusive)]
fn a_missing_permission_in_a_member_is_named(context: &'static TestContext) -> Result<()> {
    let fleet = alone(context)?;
    let shop = fleet.namespace("shop")?;
    let path = path_of(&shop);
    let api = fleet.karmada().api();
    let before = fleet.unknown("forbidden")?;
    {
        let _restored = Restored(&fleet);
        // All but one kind, then nothing.
        let role = api.get(&format!("{ROLES}/durward-member"))?.succeeded()?.body;
        let rules = role["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
        let rest: Vec<_> = rules.iter().filter(|rule| rule["resources"] != json!(["pods"])).collect();
        ensure!(rest.len() + 1 == rules.len(), "no rule is about pods alone: {role}");
        api.merge(&format!("{ROLES}/durward-member"), &json!({"rules": rest}))?.succeeded()?;
        for name in ["m1", "m2", "m3"] {
            await_words(
                &fleet,
                &path,
                &format!("not permitted to list pods in {name} (RBAC in {name}: verb list)"),
            )?;
        }
        api.delete(&format!("{BINDINGS}/durward-member"))?.succeeded()?;
        for name in ["m1", "m2", "m3"] {
            let words = format!("not permitted to get namespaces in {name} (RBAC in {name}: verb get)");
            await_words(&fleet, &path, &words)?;
        }
        delete(api, &path)?.refused()?.telling("m1", "Unknown")?.telling("m3", "Unknown")?;
        untouched(fleet.karmada(), &path)?;
        ensure!(fleet.unknown("forbidden")? > before + 0.5, "no counter tells of it");
    }
    comes_back_within(RESTORED_WITHIN, &fleet, &path)
}

#[e2e::case(Exclusive)]
fn a_missing_permission_for_the_proxy_or_clusters_is_named(context: &'static TestContext) -> Result<()> {
    let fleet = alone(context)?;
    let shop = fleet.namespace("shop")?;
    let path = path_of(&shop);
    let api = fleet.karmada().api();
    {
        let _restored = Restored(&fleet);
        let role = api.get(&format!("{ROLES}/durward"))?.succeeded()?.body;
        let rules = role["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
        for (resource, words) in
            [("clusters/proxy", "verb get on clusters/proxy"), ("clusters", "not permitted to list clusters")]
        {
            let rest: Vec<_> = rules.iter().filter(|rule| rule["resources"] != json!([resource])).collect();
            ensure!(rest.len() + 1 == rules.len(), "no rule is about {resource} alone: {role}");
            api.merge(&format!("{ROLES}/durward"), &json!({"rules": rest}))?.succeeded()?;
            await_words(&fleet, &path, words)?;
            delete(api, &path)?.refused()?;
            untouched(fleet.karmada(), &path)?;
        }
    }
    comes_back(&fleet, &path)
}

#[e2e::case]
fn durward_can_read_no_secret_and_change_nothing(context: &'static TestContext) -> Result<()> {
    let fleet = beside(context)?;
    let durward = fleet.karmada().certified("durward", None)?;
    let shop = fleet.namespace("shop")?;
    ensure!(durward.api.get("/api/v1/namespaces")?.is_success(), "durward may not even read namespaces");
    for path in ["/api/v1/secrets", "/api/v1/namespaces/karmada-cluster/secrets/m1"] {
        let status = durward.api.get(path)?.status;
        ensure!(status == 403, "durward is answered {status} for {path}");
    }
    let created = durward.api.create(&shop.path("configmaps"), &json!({"metadata": {"name": "mark"}}))?;
    ensure!(created.status == 403, "durward may create: {}", created.status);
    let deleted = durward.api.delete(&path_of(&shop))?;
    ensure!(deleted.status == 403, "durward may delete: {}", deleted.status);
    for member in fleet.members() {
        let read = durward.api.get(&fleet.proxied(member.name(), "/api/v1/namespaces"))?;
        ensure!(read.is_success(), "durward may not read namespaces in {}: {}", member.name(), read.status);
        for path in ["/api/v1/secrets", "/api/v1/configmaps", "/api/v1/nodes"] {
            let status = durward.api.get(&fleet.proxied(member.name(), path))?.status;
            ensure!(status == 403, "durward is answered {status} for {path} in {}", member.name());
        }
        let pods = fleet.proxied(member.name(), &shop.path("pods"));
        let status = durward.api.create(&pods, &json!({"metadata": {"name": "mark"}}))?.status;
        ensure!(status == 403, "durward may create in {}: {status}", member.name());
    }
    Ok(())
}

/// Waits until a dry run is refused in these words.
fn await_words(fleet: &Alone, path: &str, words: &str) -> Result<()> {
    eventually(format_args!("a refusal that says {words:?}"), HEARD_WITHIN, || {
        let attempt = try_delete(fleet.karmada().api(), path)?;
        let told = attempt.told();
        Ok(if attempt.refused().is_ok() && told.contains(words) {
            Poll::Ready(())
        } else {
            Poll::Pending(told)
        })
    })
}
