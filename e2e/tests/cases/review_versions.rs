//! Versions of `AdmissionReview`.

use e2e::prelude::*;

use super::environment::{await_injection, opted_in, reviews, scratch};
use super::files::{DEFAULT_FILES, LxcfsChecks as _};

#[e2e::case]
fn reviews_in_v1beta1_are_answered(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&scratch())?;
    let mut installation = Installation::by_url(
        context,
        &cluster,
        "  lxcfs: {webhook: {admissionReviewVersions: [v1beta1], failurePolicy: Fail}}",
    )?;
    let durward = installation.serve().start_ready(context)?;
    installation.register()?;
    // The API server sends the first version of the list that it supports.
    let registered = cluster.kubectl().get(&["mutatingwebhookconfiguration", "durward"])?;
    for webhook in registered["webhooks"].as_array().into_iter().flatten() {
        let versions = &webhook["admissionReviewVersions"];
        ensure!(*versions == json!(["v1beta1"]), "registered for {versions}");
    }
    let shop = cluster.namespace("shop")?;
    await_injection(&shop)?;
    let before = reviews(&durward)?;
    opted_in(&shop, "web").is_admitted()?.with_files(&DEFAULT_FILES)?.without_warnings()?;
    opted_in(&shop, "host")
        .with(|pod| pod["spec"]["hostPID"] = true.into())
        .is_admitted()?
        .skipped_because("hostPID is true")?;
    ensure!((reviews(&durward)? - before - 2.0).abs() < 0.5, "the server did not review each pod");
    Ok(())
}
