//! Pods that controllers create.

use std::time::Instant;

use e2e::node;
use e2e::prelude::*;

use super::environment::shared;
use super::view::{ContainerView, VIEW_SCRIPT, common_limits, idle_pod, ready};
use crate::cases::environment::OPT_IN;
use crate::cases::objects::{list, name_of};

#[e2e::case]
fn pods_of_deployments_and_stateful_sets_see_their_limits(context: &'static TestContext) -> Result<()> {
    let node = shared(context)?;
    let shop = node.namespace("shop")?;
    let created_at = Instant::now();
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "set"},
        "spec": {
            "replicas": 1, "serviceName": "set", "selector": {"matchLabels": {"made-by": "set"}},
            "template": template("set", &node::idle(common_limits()), "Always"),
        },
    });
    node.cluster().api().create(&shop.path("apps/v1/statefulsets"), &set)?.succeeded()?;
    let deployed =
        idle_pod(&shop, "deployed").annotated(OPT_IN, "enabled").from_a_deployment().is_admitted()?;
    let of_set = await_pod_of(&node, &shop, "set")?.is_ready()?;
    for pod in [ready(&node, &shop, &deployed)?, of_set] {
        ContainerView::read(&pod, "app")?.with_memory(256)?.with_uptime_since(created_at)?;
    }
    Ok(())
}

#[e2e::case]
fn pods_of_jobs_and_cron_jobs_see_their_limits(context: &'static TestContext) -> Result<()> {
    let node = shared(context)?;
    let shop = node.namespace("shop")?;
    let api = node.cluster().api();
    let created_at = Instant::now();
    let looking = node::shell(VIEW_SCRIPT, common_limits());
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"},
        "spec": {"template": template("job", &looking, "Never")},
    });
    api.create(&shop.path("batch/v1/jobs"), &job)?.succeeded()?;
    // Once a year, and the last run was years ago: it is due now and not again.
    let cron = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "cron"},
        "spec": {
            "schedule": "0 0 1 1 *",
            "jobTemplate": {"spec": {"template": template("cron", &looking, "Never")}},
        },
    });
    let crons = shop.path("batch/v1/cronjobs");
    api.create(&crons, &cron)?.succeeded()?;
    let long_ago = json!({"status": {"lastScheduleTime": "2020-01-01T00:00:00Z"}});
    api.merge(&format!("{crons}/cron/status"), &long_ago)?.succeeded()?;
    for maker in ["job", "cron"] {
        let pod = await_pod_of(&node, &shop, maker)?.is_done()?;
        let seen = ContainerView::of_log(&pod, "app").with_context(|| format!("a pod of {maker}"))?;
        seen.with_memory(256)?.with_uptime_since(created_at)?;
    }
    Ok(())
}

/// Returns a template whose pods opt in by annotation.
fn template(maker: &str, container: &Value, restart: &str) -> Value {
    let mut container = container.clone();
    container["name"] = "app".into();
    json!({
        "metadata": {"labels": {"made-by": maker}, "annotations": {OPT_IN: "enabled"}},
        "spec": {
            "containers": [container], "restartPolicy": restart, "terminationGracePeriodSeconds": 1,
        },
    })
}

/// Waits for the pod of a template.
fn await_pod_of<'a>(node: &Node, namespace: &Namespace<'a>, maker: &str) -> Result<RunningPod<'a>> {
    let path = format!("{}?labelSelector=made-by%3D{maker}", namespace.path("pods"));
    let pod = eventually(format_args!("a pod made by {maker}"), WAIT_LIMIT, || {
        let pod = list(node.cluster().api(), &path)?.pop();
        Ok(pod.map_or_else(|| Poll::Pending("none".to_owned()), Poll::Ready))
    })?;
    Ok(node.pod(namespace, name_of(&pod)))
}
