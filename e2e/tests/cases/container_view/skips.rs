//! Pods that the guard skips run without files and get a warning.

use e2e::node;
use e2e::prelude::*;

use super::environment::shared;
use super::view::{ContainerView, common_limits, idle_pod, ready};
use crate::cases::environment::{OPT_IN, restricted_container, with_short_grace};
use crate::cases::files::LxcfsChecks as _;

#[e2e::case]
fn a_pod_in_a_restricted_namespace_runs_without_files(context: &'static TestContext) -> Result<()> {
    let node = shared(context)?;
    let labels = [("pod-security.kubernetes.io/enforce", "restricted")];
    let strict = node.labelled_namespace("strict", &labels)?;
    let container = restricted_container(common_limits());
    let admitted = strict
        .pod("careful")
        .annotated(OPT_IN, "enabled")
        .container_like("app", node::idle(container))
        .with(with_short_grace)
        .is_admitted()?
        .skipped_because("enforces Pod Security \"restricted\", which forbids hostPath")?;
    ContainerView::read(&ready(&node, &strict, &admitted)?, "app")?.of_node(&node).map(drop)
}

#[e2e::case]
fn pods_that_share_processes_run_without_files(context: &'static TestContext) -> Result<()> {
    let node = shared(context)?;
    let shop = node.namespace("shop")?;
    let sharing = |name: &str, field: &str, why: &str| {
        let pod =
            idle_pod(&shop, name).annotated(OPT_IN, "enabled").with(|pod| pod["spec"][field] = true.into());
        pod.is_admitted()?.skipped_because(why)
    };
    let host = sharing("host", "hostPID", "hostPID is true")?;
    let shared = sharing("shared", "shareProcessNamespace", "shareProcessNamespace is true")?;
    for admitted in [host, shared] {
        ContainerView::read(&ready(&node, &shop, &admitted)?, "app")?.of_node(&node)?;
    }
    Ok(())
}
