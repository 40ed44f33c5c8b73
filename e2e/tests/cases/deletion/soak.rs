//! What takes a minute or more: `make soak`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Error, Result, ensure};
use e2e::controlplane::Cluster;
use e2e::patience::{Seen, eventually};
use e2e::stage::Stage;
use serde_json::json;

use super::attempt::{delete, try_delete};
use super::house::alone;
use super::objects::{path_of, untouched};

/// The member's API server remembers a token for ten seconds, and a deleted account's for longer.
const REVOKED_WITHIN: Duration = Duration::from_secs(300);

pub(crate) fn a_token_that_was_revoked_is_told_with_its_secret(stage: &'static Stage) -> Result<()> {
    let fleet = alone(stage)?;
    let shop = fleet.namespace("shop")?;
    let path = path_of(&shop);
    let api = fleet.karmada().api();
    {
        // Karmada asks members as this account, whose token stands in a Secret of the member.
        revoke(fleet.member("m1")?)?;
        let told = eventually("the token to be refused", REVOKED_WITHIN, || {
            let told = try_delete(api, &path)?.told();
            Ok(if told.contains("credentials of m1") { Seen::Yes(told) } else { Seen::NotYet(told) })
        })?;
        ensure!(told.contains("karmada-cluster/m1-impersonator"), "the Secret is not named: {told}");
        delete(api, &path)?.refused()?.telling("m1", "Unknown")?;
        untouched(fleet.karmada(), &path)?;
    }
    // A token that was revoked stays so: the member has to join anew.
    drop(fleet.unjoin("m1")?);
    super::members::comes_back(&fleet, &path)
}

/// Takes away the token by which Karmada asks this member.
fn revoke(member: &Cluster) -> Result<()> {
    let secrets = "/api/v1/namespaces/karmada-cluster/secrets";
    let list = member.api().get(secrets)?.succeeded()?.body;
    let its = list["items"].as_array().into_iter().flatten().find(|secret| {
        secret["metadata"]["annotations"]["kubernetes.io/service-account.name"] == "karmada-impersonator"
    });
    let name = its.and_then(|secret| secret["metadata"]["name"].as_str());
    let name = name.context("the member has no token of karmada-impersonator")?;
    member.api().delete(&format!("{secrets}/{name}"))?.succeeded()?;
    Ok(())
}

pub(crate) fn two_replicas_are_replaced_one_by_one_and_no_deletion_goes_unjudged(
    stage: &'static Stage,
) -> Result<()> {
    let fleet = alone(stage)?;
    let (used, free) = (fleet.namespace("used")?, fleet.namespace("free")?);
    let m2 = fleet.member("m2")?;
    m2.runs_pod(&m2.known_namespace(used.name()), "web")?;
    let api = fleet.karmada().api();
    let over = AtomicBool::new(false);
    // The shared one stands at 127.0.0.1; the other at the other address of the same name.
    let serve = |name: &str| {
        let serve = fleet.installation().serve().named(name);
        serve.listening_on_other_loopback().start_ready(stage)
    };
    let (judged, replaced) = std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut judged = 0;
            while !over.load(Ordering::Relaxed) {
                try_delete(api, &path_of(&used))?.refused()?.saying(&["m2 (1 pod: web)"])?;
                try_delete(api, &path_of(&free))?.allowed()?;
                judged += 2;
            }
            anyhow::Ok(judged)
        });
        let replace = || -> Result<()> {
            for round in 0..3 {
                let second = serve(&format!("durward-second-{round}"))?;
                fleet.replace_durward(stage)?;
                drop(second);
            }
            Ok(())
        };
        let replaced = replace();
        over.store(true, Ordering::Relaxed);
        (load.join().unwrap_or_else(|_| Err(Error::msg("the load panicked"))), replaced)
    });
    replaced?;
    ensure!(judged? > 20, "hardly anything was judged meanwhile");
    api.merge(&path_of(&free), &json!({"metadata": {"labels": {"lab": "done"}}}))?.succeeded()?;
    Ok(())
}
