//! What the configuration changes, where the API server has a say in it: what is registered, and what it takes of
//! the patched pod.

use anyhow::{Result, ensure};
use e2e::context::TestContext;
use e2e::installation::Installation;
use e2e::pods::{Admitted, Pod};
use rustix::process::Signal;
use serde_json::json;

use super::files::{Looks as _, SIX, STATUS, check_mounts};
use super::house::{DEFAULTS, ENABLED, SWITCH, await_files, await_sentence, reviews, wanting, workshop};

/// The mounts of every init container, native sidecars included.
fn check_init_containers(admitted: &Admitted, files: impl Fn(&str) -> &'static [&'static str]) -> Result<()> {
    let containers = admitted.pod["spec"]["initContainers"].as_array().map(Vec::as_slice).unwrap_or_default();
    ensure!(containers.len() == 2, "expected two init containers, and there are {containers:?}");
    for container in containers {
        check_mounts(container, files(container["name"].as_str().unwrap_or_default()))?;
    }
    Ok(())
}

fn with_init_containers(pod: Pod<'_>) -> Pod<'_> {
    pod.init_container("once", json!({})).init_container("sidecar", json!({"restartPolicy": "Always"}))
}

#[e2e::case]
fn init_containers_get_files_if_configured_or_named(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&workshop())?;
    let mut installation = Installation::by_url(context, &cluster, DEFAULTS)?;
    let durward = installation.serve().named("durward-init").start_ready(context)?;
    installation.register()?;
    let shop = cluster.namespace("shop")?;
    await_files(&shop)?;
    let pod = |name| with_init_containers(wanting(&shop, name));
    check_init_containers(&pod("neither").is_admitted()?.with_files(&SIX)?, |_| &[])?;
    let named = pod("named").annotated("durward.dev/lxcfs-containers", "app,sidecar").is_admitted()?;
    check_init_containers(&named, |name| if name == "sidecar" { &SIX } else { &[] })?;

    installation.configure("  lxcfs: {initContainers: true}")?;
    durward.signal(Signal::HUP)?;
    await_sentence("init containers to get files", || {
        check_init_containers(&pod("probe").as_dry_run().is_admitted()?, |_| &SIX)
    })?;
    check_init_containers(&pod("all").is_admitted()?.with_files(&SIX)?.without_warnings()?, |_| &SIX)
}

#[e2e::case]
fn audit_mode_changes_nothing_and_warns(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&workshop())?;
    let mut installation = Installation::by_url(context, &cluster, "  lxcfs: {mode: audit}")?;
    let _durward = installation.serve().named("durward-audit").start_ready(context)?;
    installation.register()?;
    let shop = cluster.namespace("shop")?;
    await_sentence("a warning of the auditing guard", || {
        let audited = wanting(&shop, "probe").as_dry_run().by_kubectl_apply().is_admitted()?;
        audited.with_warning(
            "mode is audit, so the pod is left as it is; enforced it would become: app=cpuinfo,",
        )
    })?;
    wanting(&shop, "web").is_admitted()?.untouched()?.without_annotation(STATUS)?;
    Ok(())
}

#[e2e::case]
fn webhooks_follow_the_selector_and_the_opt_in_options(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&workshop())?;
    let guards = "  lxcfs:\n    optIn: {annotation: true, label: false, namespaceLabel: false}\n    \
        webhook: {namespaceSelector: {matchExpressions: [{key: tier, operator: NotIn, values: [system]}]}}";
    let mut installation = Installation::by_url(context, &cluster, guards)?;
    let durward = installation.serve().named("durward-narrow").start_ready(context)?;
    installation.register()?;
    let (shop, system) =
        (cluster.namespace("shop")?, cluster.labelled_namespace("shop", &[("tier", "system")])?);
    let asking = cluster.labelled_namespace("asking", &ENABLED)?;
    await_files(&shop)?;

    let before = reviews(&durward)?;
    wanting(&system, "not-selected").is_admitted()?.untouched()?;
    shop.pod("labelled").labelled(SWITCH, "enabled").is_admitted()?.untouched()?;
    asking.pod("silent").is_admitted()?.untouched()?;
    let asked = reviews(&durward)? - before;
    ensure!(asked < 0.5, "{asked} pods were asked about that the registration leaves out");
    wanting(&asking, "annotated").is_admitted()?.with_files(&SIX)?;
    ensure!((reviews(&durward)? - before - 1.0).abs() < 0.5, "the pod that opts in was not asked about once");

    // Registered anew without any of it, the same pods are asked about: so it was the registration that left them out.
    installation.configure(DEFAULTS)?;
    durward.signal(Signal::HUP)?;
    installation.register()?;
    await_sentence("the wider registration to be heard", || {
        asking.pod("probe").as_dry_run().is_admitted()?.with_files(&SIX)
    })?;
    wanting(&system, "selected").is_admitted()?.with_files(&SIX)?;
    shop.pod("labelled-too").labelled(SWITCH, "enabled").is_admitted()?.with_files(&SIX)?;
    Ok(())
}
