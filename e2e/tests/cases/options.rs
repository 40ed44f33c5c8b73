//! Options that change the webhooks or the patch, against the API server.

use e2e::prelude::*;
use rustix::process::Signal;

use super::environment::{DEFAULTS, await_injection, eventually_ok, opted_in, reviews, scratch};
use super::files::{DEFAULT_FILES, LxcfsChecks as _, STATUS, check_mounts};

/// Checks the mounts of every init container, including native sidecars.
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
    let cluster = context.cluster(&scratch())?;
    let (installation, durward) = Installation::start(context, &cluster, DEFAULTS, "durward-init")?;
    let shop = cluster.namespace("shop")?;
    await_injection(&shop)?;
    let pod = |name| with_init_containers(opted_in(&shop, name));
    check_init_containers(&pod("neither").is_admitted()?.with_files(&DEFAULT_FILES)?, |_| &[])?;
    let named = pod("named").annotated("durward.dev/lxcfs-containers", "app,sidecar").is_admitted()?;
    check_init_containers(&named, |name| if name == "sidecar" { &DEFAULT_FILES } else { &[] })?;

    installation.configure("  lxcfs: {includeInitContainers: true}")?;
    durward.signal(Signal::HUP)?;
    eventually_ok("init containers to get files", || {
        check_init_containers(&pod("probe").as_dry_run().is_admitted()?, |_| &DEFAULT_FILES)
    })?;
    check_init_containers(&pod("all").is_admitted()?.with_files(&DEFAULT_FILES)?.without_warnings()?, |_| {
        &DEFAULT_FILES
    })
}

#[e2e::case]
fn audit_mode_changes_nothing_and_warns(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&scratch())?;
    let (_installation, _durward) =
        Installation::start(context, &cluster, "  lxcfs: {mode: audit}", "durward-audit")?;
    let shop = cluster.namespace("shop")?;
    eventually_ok("a warning of the auditing guard", || {
        let audited = opted_in(&shop, "probe").as_dry_run().by_kubectl_apply().is_admitted()?;
        audited.with_warning("lxcfs: audit: would be changed: app=cpuinfo,")
    })?;
    opted_in(&shop, "web").is_admitted()?.untouched()?.without_annotation(STATUS).map(drop)
}

#[e2e::case]
fn webhooks_follow_the_selector(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&scratch())?;
    let guards = "  lxcfs:\n    \
        webhook: {namespaceSelector: {matchExpressions: [{key: tier, operator: NotIn, values: [system]}]}}";
    let (mut installation, durward) = Installation::start(context, &cluster, guards, "durward-narrow")?;
    let (shop, system) =
        (cluster.namespace("shop")?, cluster.labelled_namespace("shop", &[("tier", "system")])?);
    await_injection(&shop)?;

    let before = reviews(&durward)?;
    opted_in(&system, "not-selected").is_admitted()?.untouched()?;
    let count = reviews(&durward)? - before;
    ensure!(count < 0.5, "{count} pods were reviewed that the webhooks exclude");
    opted_in(&shop, "annotated").is_admitted()?.with_files(&DEFAULT_FILES)?;
    ensure!((reviews(&durward)? - before - 1.0).abs() < 0.5, "the pod that opts in was not reviewed once");

    // The same pod is reviewed with the default webhook configuration, so the selector above excluded it.
    installation.configure(DEFAULTS)?;
    durward.signal(Signal::HUP)?;
    installation.register()?;
    eventually_ok("the wider webhooks to be used", || {
        opted_in(&system, "probe").as_dry_run().is_admitted()?.with_files(&DEFAULT_FILES)
    })?;
    opted_in(&system, "selected").is_admitted()?.with_files(&DEFAULT_FILES).map(drop)
}
