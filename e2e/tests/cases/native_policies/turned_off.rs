//! The off switch: without the webhook configuration, the policies deny nothing.

use std::time::Instant;

use e2e::prelude::*;
use e2e::pressure::Pressure;

use super::await_denied;
use crate::cases::etcd::environment::{LABEL, Profile, guards, namespace};

const CONFIGURATION: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/durward";

/// The policies are inert within this time, or within the other one if processes wait for a processor.
const OFF_WITHIN: Duration = Duration::from_secs(2);
const OFF_WITHIN_IF_STARVED: Duration = Duration::from_secs(10);

/// No controller runs here, so nothing cleans up: only the missing params turn the policies off. Durward itself is not asked.
#[e2e::case]
fn without_the_webhook_configuration_nothing_is_denied(context: &'static TestContext) -> Result<()> {
    let cluster = context.own_cluster(&Options::named("off-switch"))?;
    policies_are_turned_off(context, &cluster, &["Background"])
}

/// `kubectl delete --cascade=orphan` keeps the objects that the configuration owns. The garbage collector completes the deletion.
#[e2e::case]
fn policies_that_are_orphaned_deny_nothing(context: &'static TestContext) -> Result<()> {
    let cluster = context.own_cluster(&Options::named("off-orphans").with_controllers())?;
    policies_are_turned_off(context, &cluster, &["Orphan", "Foreground"])
}

/// Registers the policies, deletes the webhook configuration in each way, and expects that they deny nothing then.
pub(in crate::cases) fn policies_are_turned_off(
    context: &'static TestContext,
    cluster: &Cluster,
    propagations: &[&str],
) -> Result<()> {
    let mut installation = Installation::by_url(context, cluster, &guards(&super::KEYS))?;
    let ns = namespace(cluster, "off", Profile::Transfer)?;
    let path = format!("/api/v1/namespaces/{}?dryRun=All", ns.name());
    let leave = || cluster.api().merge(&path, &json!({"metadata": {"labels": {LABEL: null}}}));
    for propagation in propagations {
        installation.register()?;
        await_denied(leave, "etcd-namespaces")?;
        let options = json!({"propagationPolicy": propagation});
        cluster.api().delete_with(CONFIGURATION, &options)?.succeeded()?;
        let (deleted, pressure) = (Instant::now(), Pressure::begin());
        while !leave()?.is_success() {
            let limit = if pressure.is_starved() { OFF_WITHIN_IF_STARVED } else { OFF_WITHIN };
            ensure!(deleted.elapsed() < limit, "denied for more than {limit:?} ({propagation})");
        }
        print(format_args!("inert {:?} after the deletion ({propagation})", deleted.elapsed()));
    }
    Ok(())
}

/// With `manage: all` nothing returns by itself.
#[e2e::case(Soak)]
fn nothing_returns_by_itself(context: &'static TestContext) -> Result<()> {
    let cluster = context.own_cluster(&Options::named("stays-off").with_controllers())?;
    let mut installation = Installation::managed_by_url(context, &cluster, "all", &guards(&super::KEYS))?;
    let _durward = installation.serve().named("durward-stays-off").start_ready(context)?;
    installation.register()?;
    let ns = namespace(&cluster, "off", Profile::Transfer)?;
    let path = format!("/api/v1/namespaces/{}?dryRun=All", ns.name());
    let leave = || cluster.api().merge(&path, &json!({"metadata": {"labels": {LABEL: null}}}));
    await_denied(leave, "etcd-namespaces")?;
    cluster.api().delete(CONFIGURATION)?.succeeded()?;
    let deleted = Instant::now();
    while deleted.elapsed() < Duration::from_secs(300) {
        let answer = leave()?;
        ensure!(answer.is_success() || deleted.elapsed() < OFF_WITHIN, "{}", answer.message());
        std::thread::sleep(Duration::from_secs(5));
    }
    ensure!(cluster.api().get(CONFIGURATION)?.status == 404, "the configuration is there again");
    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let left = cluster.api().get(policies)?.succeeded()?.body;
    let names: Vec<_> =
        left["items"].as_array().into_iter().flatten().map(|one| &one["metadata"]["name"]).collect();
    ensure!(names.is_empty(), "the garbage collector left {names:?}");
    Ok(())
}
