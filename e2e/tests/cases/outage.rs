//! What becomes of pods while nobody answers, or while Durward may not see what it must.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::context::TestContext;
use e2e::controlplane::Cluster;
use e2e::installation::Installation;
use e2e::supervisor::Exit;
use e2e::wait::{Poll, eventually};
use rustix::process::Signal;
use serde_json::json;

use super::files::{Looks as _, SIX, STATUS};
use super::house::{
    DEFAULTS, ENABLED, HEARD_WITHIN, PODS_WEBHOOK, await_files, await_sentence, wanting, workshop,
};

/// How many pods the API server let in although nobody answered.
pub(crate) fn failed_open(cluster: &Cluster) -> Result<f64> {
    Ok(cluster.metrics()?.sum("apiserver_admission_webhook_fail_open_count", &[("name", PODS_WEBHOOK)]))
}

/// How many pods the API server refused because nobody answered.
pub(crate) fn failed_calls(cluster: &Cluster) -> Result<f64> {
    let labels = [("name", PODS_WEBHOOK), ("error_type", "calling_webhook_error")];
    Ok(cluster.metrics()?.sum("apiserver_admission_webhook_rejection_count", &labels))
}

#[e2e::case]
fn policy_ignore_admits_pods_unchanged_while_durward_is_down(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&workshop())?;
    let mut installation = Installation::by_url(context, &cluster, DEFAULTS)?;
    let (shop, asking) = (cluster.namespace("shop")?, cluster.labelled_namespace("asking", &ENABLED)?);
    let before = failed_open(&cluster)?;
    installation.register()?;
    eventually("the API server to call in vain", HEARD_WITHIN, || {
        wanting(&shop, "probe").as_dry_run().is_admitted()?.untouched()?;
        let failed = failed_open(&cluster)? - before;
        Ok(if failed > 0.5 { Poll::Ready(()) } else { Poll::Pending("no call failed".to_owned()) })
    })?;
    wanting(&shop, "web").is_admitted()?.untouched()?.without_annotation(STATUS)?;
    asking.pod("web").is_admitted()?.untouched()?.without_annotation(STATUS)?;
    // Once somebody answers, the next pod has its files, with nothing done to the API server.
    let _durward = installation.serve().start_ready(context)?;
    wanting(&shop, "later").is_admitted()?.with_files(&SIX)?;
    Ok(())
}

#[e2e::case]
fn policy_fail_denies_only_pods_that_opt_in_while_durward_is_down(
    context: &'static TestContext,
) -> Result<()> {
    let cluster = context.cluster(&workshop())?;
    let mut installation =
        Installation::by_url(context, &cluster, "  lxcfs: {webhook: {failurePolicy: Fail}}")?;
    let shop = cluster.namespace("shop")?;
    let before = failed_calls(&cluster)?;
    installation.register()?;
    await_sentence("a pod that wants files to be refused", || {
        let pod = wanting(&shop, "probe").as_dry_run();
        pod.is_denied_with(&format!("failed calling webhook \"{PODS_WEBHOOK}\""))
    })?;
    ensure!(failed_calls(&cluster)? > before + 0.5, "a pod was refused, and no counter says so");
    shop.pod("plain").is_admitted()?.untouched()?;
    Ok(())
}

#[e2e::case]
fn a_missing_permission_is_named_in_the_warning(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&workshop())?;
    let mut installation = Installation::by_url(context, &cluster, DEFAULTS)?;
    let shop = cluster.namespace("shop")?;
    let before = installation.serve().named("durward-permitted").start_ready(context)?;
    installation.register()?;
    await_files(&shop)?;
    before.signal(Signal::TERM)?;
    ensure!(before.await_end(Duration::from_secs(30))? == Exit::Code(0), "it did not end well");

    // The permissions go, and Durward is started again: at a URL it is called whether it is ready or not.
    cluster.kubectl().run(&["delete", "clusterrolebinding", "durward"])?.succeeded()?;
    let durward = installation.serve().named("durward-not-permitted").start(context)?;
    await_sentence("a pod that is admitted untouched, with a warning", || {
        let admitted = wanting(&shop, "web").as_dry_run().is_admitted()?;
        admitted.untouched()?.with_warning("Durward is not permitted to get namespaces (RBAC: verb get)")
    })?;
    let unknown =
        durward.metrics()?.sum("durward_unknown_total", &[("guard", "lxcfs"), ("cause", "forbidden")]);
    ensure!(unknown > 0.5, "a review came to nothing for want of permission, and no counter says so");
    await_sentence("it to say why it is not ready", || {
        let page = durward.page("/readyz")?;
        let words = "not permitted to list namespaces (RBAC: verb list)";
        ensure!(page.status == 503 && page.body.contains(words), "{} {}", page.status, page.body);
        Ok(())
    })?;

    // Who would rather have no pod than one without its files says so, and is told why as well.
    installation.configure("  lxcfs: {whenUnknown: deny}")?;
    durward.signal(Signal::HUP)?;
    await_sentence("a pod that is refused", || {
        let pod = wanting(&shop, "web").as_dry_run();
        pod.is_denied_with("Durward is not permitted to get namespaces (RBAC: verb get)")
    })?;

    installation.grant()?;
    durward.await_ready()?;
    await_files(&shop)?;
    wanting(&shop, "later").is_admitted()?.with_files(&SIX)?.without_warnings()?;
    Ok(())
}

#[e2e::case]
fn namespaces_are_read_one_by_one_without_the_watch(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&workshop())?;
    let mut installation = Installation::by_url(context, &cluster, DEFAULTS)?;
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/durward";
    let only_get = json!({"rules": [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]}]});
    cluster.api().merge(role, &only_get)?.succeeded()?;
    let account = cluster.service_account("durward-system", "durward")?;
    eventually("Durward's account to be refused a list of namespaces", HEARD_WITHIN, || {
        let status = account.api.get("/api/v1/namespaces")?.status;
        Ok(if status == 403 { Poll::Ready(()) } else { Poll::Pending(status.to_string()) })
    })?;

    // It knows of no namespace beforehand, so each of these verdicts comes from a question asked for the pod.
    let durward = installation.serve().named("durward-without-watch").start(context)?;
    installation.register()?;
    await_files(&cluster.namespace("shop")?)?;
    cluster
        .labelled_namespace("asking", &ENABLED)?
        .pod("web")
        .is_admitted()?
        .with_files(&SIX)?
        .without_warnings()?;
    let strict =
        cluster.labelled_namespace("strict", &[("pod-security.kubernetes.io/enforce", "baseline")])?;
    wanting(&strict, "web").is_admitted()?.left_without_files_because("enforces Pod Security baseline")?;
    await_sentence("it to say why it is not ready", || {
        let page = durward.page("/readyz")?;
        let words = "not permitted to list namespaces (RBAC: verb list)";
        ensure!(page.status == 503 && page.body.contains(words), "{} {}", page.status, page.body);
        Ok(())
    })
}
