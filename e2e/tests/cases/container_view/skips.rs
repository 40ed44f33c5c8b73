//! Pods that the guard leaves alone run as if it were not there, and say why.

use anyhow::Result;
use e2e::context::TestContext;
use e2e::node;
use serde_json::json;

use super::house::beside;
use super::view::{Sight, briefly, common_limits, idler, ready};
use crate::cases::files::Looks as _;
use crate::cases::house::SWITCH;

#[e2e::case]
fn a_pod_in_a_restricted_namespace_runs_without_files(context: &'static TestContext) -> Result<()> {
    let node = beside(context)?;
    let labels = [("pod-security.kubernetes.io/enforce", "restricted")];
    let strict = node.labelled_namespace("strict", &labels)?;
    let mut container = common_limits();
    container["securityContext"] = json!({
        "allowPrivilegeEscalation": false, "runAsNonRoot": true, "runAsUser": 65532,
        "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
    });
    let admitted = strict
        .pod("careful")
        .annotated(SWITCH, "enabled")
        .container_like("app", node::idle(container))
        .with(briefly)
        .is_admitted()?
        .left_without_files_because("enforces Pod Security restricted, which refuses hostPath")?;
    Sight::from(&ready(&node, &strict, &admitted)?, "app")?.of_the(&node)?;
    Ok(())
}

#[e2e::case]
fn pods_that_share_processes_run_without_files(context: &'static TestContext) -> Result<()> {
    let node = beside(context)?;
    let shop = node.namespace("shop")?;
    let sharing = |name: &str, field: &str, why: &str| {
        let pod =
            idler(&shop, name).annotated(SWITCH, "enabled").with(|pod| pod["spec"][field] = true.into());
        pod.is_admitted()?.left_without_files_because(why)
    };
    let host = sharing("host", "hostPID", "it has hostPID")?;
    let shared = sharing("shared", "shareProcessNamespace", "it has shareProcessNamespace")?;
    for admitted in [host, shared] {
        Sight::from(&ready(&node, &shop, &admitted)?, "app")?.of_the(&node)?;
    }
    Ok(())
}
