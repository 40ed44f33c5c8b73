//! Pods while Durward is down, or while it lacks a permission.

use e2e::prelude::*;
use rustix::process::Signal;

use super::environment::{
    DEFAULTS, OPTED_IN, PODS_WEBHOOK, await_injection, eventually_ok, opted_in, scratch,
};
use super::files::{DEFAULT_FILES, LxcfsChecks as _, STATUS};

/// Returns how many pods the API server admitted because a webhook call failed.
pub(crate) fn admitted_unreviewed(cluster: &Cluster) -> Result<f64> {
    Ok(cluster.metrics()?.sum("apiserver_admission_webhook_fail_open_count", &[("name", PODS_WEBHOOK)]))
}

/// Returns how many pods the API server denied because a webhook call failed.
pub(crate) fn denied_unreviewed(cluster: &Cluster) -> Result<f64> {
    let labels = [("name", PODS_WEBHOOK), ("error_type", "calling_webhook_error")];
    Ok(cluster.metrics()?.sum("apiserver_admission_webhook_rejection_count", &labels))
}

#[e2e::case]
fn policy_ignore_admits_pods_unchanged_while_durward_is_down(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&scratch())?;
    let mut installation = Installation::by_url(context, &cluster, DEFAULTS)?;
    let (shop, opted_in_namespace) =
        (cluster.namespace("shop")?, cluster.labelled_namespace("asking", &OPTED_IN)?);
    let before = admitted_unreviewed(&cluster)?;
    installation.register()?;
    until("a call of the API server to fail", || {
        opted_in(&shop, "probe").as_dry_run().is_admitted()?.untouched()?;
        let failed = admitted_unreviewed(&cluster)? - before;
        Ok((failed > 0.5, "no call failed".to_owned()))
    })?;
    opted_in(&shop, "web").is_admitted()?.untouched()?.without_annotation(STATUS)?;
    opted_in_namespace.pod("web").is_admitted()?.untouched()?.without_annotation(STATUS)?;
    // A restarted server adds files again, without a change in the API server.
    let _durward = installation.serve().start_ready(context)?;
    opted_in(&shop, "later").is_admitted()?.with_files(&DEFAULT_FILES).map(drop)
}

#[e2e::case]
fn policy_fail_denies_only_pods_that_opt_in_while_durward_is_down(
    context: &'static TestContext,
) -> Result<()> {
    let cluster = context.cluster(&scratch())?;
    let mut installation =
        Installation::by_url(context, &cluster, "  lxcfs: {webhook: {failurePolicy: Fail}}")?;
    let shop = cluster.namespace("shop")?;
    let before = denied_unreviewed(&cluster)?;
    installation.register()?;
    eventually_ok("a pod that opts in to be denied", || {
        let pod = opted_in(&shop, "probe").as_dry_run();
        pod.is_denied_with(&format!("failed calling webhook \"{PODS_WEBHOOK}\""))
    })?;
    ensure!(denied_unreviewed(&cluster)? > before + 0.5, "a pod was denied without a counter");
    shop.pod("plain").is_admitted()?.untouched().map(drop)
}

#[e2e::case]
fn a_missing_permission_is_named_in_the_warning(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&scratch())?;
    let mut installation = Installation::by_url(context, &cluster, DEFAULTS)?;
    let shop = cluster.namespace("shop")?;
    let before = installation.serve().named("durward-permitted").start_ready(context)?;
    installation.register()?;
    await_injection(&shop)?;
    before.signal(Signal::TERM)?;
    ensure!(before.await_end(Duration::from_secs(30))? == Exit::Code(0), "it did not exit with zero");

    // A webhook by URL is called whether Durward is ready or not.
    cluster.kubectl().run(&["delete", "clusterrolebinding", "durward"])?.succeeded()?;
    let durward = installation.serve().named("durward-not-permitted").start(context)?;
    eventually_ok("a pod that is admitted untouched, with a warning", || {
        let admitted = opted_in(&shop, "web").as_dry_run().is_admitted()?;
        admitted.untouched()?.with_warning("Durward is not permitted to get namespaces (RBAC: verb get)")
    })?;
    let unknown =
        durward.metrics()?.sum("durward_unknown_total", &[("guard", "lxcfs"), ("cause", "forbidden")]);
    ensure!(unknown > 0.5, "a review without permission was not counted");
    eventually_ok("the reason in /readyz", || {
        let page = durward.page("/readyz")?;
        let words = "not permitted to list namespaces (RBAC: verb list)";
        ensure!(page.status == 503 && page.body.contains(words), "{} {}", page.status, page.body);
        Ok(())
    })?;

    // `onUnknown: deny` denies pods instead, with the same reason.
    installation.configure("  lxcfs: {onUnknown: deny}")?;
    durward.signal(Signal::HUP)?;
    eventually_ok("a denied pod", || {
        let pod = opted_in(&shop, "web").as_dry_run();
        pod.is_denied_with("Durward is not permitted to get namespaces (RBAC: verb get)")
    })?;

    installation.grant()?;
    durward.await_ready()?;
    await_injection(&shop)?;
    opted_in(&shop, "later").is_admitted()?.with_files(&DEFAULT_FILES)?.without_warnings().map(drop)
}

#[e2e::case]
fn namespaces_are_read_one_by_one_without_the_watch(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&scratch())?;
    let mut installation = Installation::by_url(context, &cluster, DEFAULTS)?;
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/durward";
    let only_get = json!({"rules": [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]}]});
    cluster.api().merge(role, &only_get)?.succeeded()?;
    let account = cluster.service_account("durward-system", "durward")?;
    until("Durward's account to lose the permission", || {
        let status = account.api.get("/api/v1/namespaces")?.status;
        Ok((status == 403, status.to_string()))
    })?;

    // Durward knows no namespace in advance, so each verdict comes from a read for the pod.
    let durward = installation.serve().named("durward-without-watch").start(context)?;
    installation.register()?;
    await_injection(&cluster.namespace("shop")?)?;
    cluster
        .labelled_namespace("asking", &OPTED_IN)?
        .pod("web")
        .is_admitted()?
        .with_files(&DEFAULT_FILES)?
        .without_warnings()?;
    let strict =
        cluster.labelled_namespace("strict", &[("pod-security.kubernetes.io/enforce", "baseline")])?;
    opted_in(&strict, "web").is_admitted()?.skipped_because("enforces Pod Security \"baseline\"")?;
    eventually_ok("the reason in /readyz", || {
        let page = durward.page("/readyz")?;
        let words = "not permitted to list namespaces (RBAC: verb list)";
        ensure!(page.status == 503 && page.body.contains(words), "{} {}", page.status, page.body);
        Ok(())
    })
}
