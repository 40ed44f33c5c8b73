//! Cases that take a minute or more: `make soak`.

use e2e::prelude::*;

use super::environment::exclusive;
use super::objects::exists;
use crate::cases::attempt::Attempt;
use crate::cases::objects::{list, name_of};

#[e2e::case(Soak)]
fn a_revoked_token_is_named_with_its_secret(context: &'static TestContext) -> Result<()> {
    let fleet = exclusive(context)?;
    let (_, path) = fleet.new_namespace("shop")?;
    {
        // Karmada uses this account in members; its token is in a Secret of the member.
        revoke(fleet.member("m1")?)?;
        let is_revoked = |attempt: &Attempt| attempt.contains("credentials of m1");
        fleet.await_dry_run("the token to be rejected", &path, is_revoked)?;
        fleet
            .delete(&path)?
            .denied()?
            .with_message(&["karmada-cluster/m1-impersonator"])?
            .with_cause("m1", "Unknown")?;
        exists(fleet.karmada(), &path)?;
    }
    // A revoked token stays revoked: the member has to join again.
    drop(fleet.unjoin("m1")?);
    super::members::await_allowed(&fleet, &path)
}

/// Deletes the token that Karmada uses in this member.
fn revoke(member: &Cluster) -> Result<()> {
    let secrets = "/api/v1/namespaces/karmada-cluster/secrets";
    let secret = list(member.api(), secrets)?.into_iter().find(|secret| {
        secret["metadata"]["annotations"]["kubernetes.io/service-account.name"] == "karmada-impersonator"
    });
    let secret = secret.context("the member has no token of karmada-impersonator")?;
    member.api().delete(&format!("{secrets}/{}", name_of(&secret)))?.succeeded().map(drop)
}
