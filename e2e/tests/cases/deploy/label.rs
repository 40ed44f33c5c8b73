//! What the Node says of LXCFS, and the pods that go by it.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::context::TestContext;
use e2e::namespace::Namespace;
use e2e::node::{self, NAME};
use e2e::wait::{Poll, eventually};
use serde_json::{Value, json};

use super::house::{GUARDS, KEEPER, LXCFS, READY, REPORT, enter, has_label};
use super::pods::{shows_256, wanting};
use crate::cases::house::SWITCH;

/// A controller makes a pod within a second; a loaded machine may take longer.
const MADE_WITHIN: Duration = Duration::from_secs(60);

#[e2e::case]
fn label_and_annotation_follow_lxcfs_and_outlast_the_agent(context: &'static TestContext) -> Result<()> {
    let stay = enter(context)?;
    let report = stay.report()?;
    ensure!(report["files"]["meminfo"] == "served" && report["root"] == "/var/lib/lxcfs", "it is {report}");
    ensure!(report["version"].is_string(), "of LXCFS no version is told: {report}");
    let lxcfs = stay.without(LXCFS)?;
    stay.is_labelled(false)?;
    stay.reports("meminfo missing", |report| report["files"]["meminfo"] == "missing")?;
    lxcfs.back()?;
    stay.is_labelled(true)?;
    stay.reports("meminfo served", |report| report["files"]["meminfo"] == "served")?;

    // LXCFS goes on without who keeps them, and so do they; whatever else is left is told.
    let supervisor = stay.without(KEEPER)?;
    let node = stay.node.object()?;
    let annotation = &node["metadata"]["annotations"][REPORT];
    ensure!(has_label(&node) && annotation.is_string(), "they went with their agent: {annotation}");
    let kubectl = stay.node.cluster().kubectl();
    kubectl.run(&["annotate", "node", NAME, &format!("{REPORT}-")])?.succeeded()?;
    stay.tells(&["no annotation that would say who keeps it", "label node node-1 durward.dev/lxcfs-ready-"])?;
    kubectl.run(&["label", "node", NAME, &format!("{READY}-")])?.succeeded()?;
    stay.tells(&["nobody tells how LXCFS does there", "apply -k deploy/lxcfs"])?;
    supervisor.back()?;
    stay.is_labelled(true)
}

#[e2e::case]
fn a_changed_configuration_needs_no_restart(context: &'static TestContext) -> Result<()> {
    let stay = enter(context)?;
    let before = stay.pod(KEEPER)?["metadata"]["uid"].clone();
    stay.tell_nodes("  lxcfs: {nodeReadiness: ignore}")?;
    let seen = stay.is_labelled(false).and_then(|()| stay.reports("nothing", Value::is_null));
    stay.tell_nodes(GUARDS)?;
    seen?;
    stay.is_labelled(true)?;
    let after = stay.pod(KEEPER)?;
    ensure!(after["metadata"]["uid"] == before, "its pod is another one");
    ensure!(after["status"]["containerStatuses"][0]["restartCount"] == 0, "it was started again");
    Ok(())
}

#[e2e::case]
fn pods_that_require_readiness_wait_for_lxcfs(context: &'static TestContext) -> Result<()> {
    let stay = enter(context)?;
    let shop = stay.node.namespace("shop")?;
    let lxcfs = stay.without(LXCFS)?;
    stay.is_labelled(false)?;
    let admitted = wanting(&shop, "web").is_admitted()?;
    selects_ready_nodes(&admitted.pod)?;
    let web = stay.node.pod(&shop, "web");
    web.meets("didn't match Pod's node affinity/selector")?;
    // Neither of these can go elsewhere, so neither gets the selector.
    let named = wanting(&shop, "named").with(|pod| pod["spec"]["nodeName"] = NAME.into());
    selects_nothing(&named.as_dry_run().is_admitted()?.pod)?;
    selects_nothing(&of_a_daemon_set(&shop)?)?;
    ensure!(web.object()?["spec"]["nodeName"].is_null(), "it was scheduled");
    lxcfs.back()?;
    shows_256(&web.is_ready()?)
}

#[e2e::case]
fn pods_that_prefer_readiness_wait_on_the_node(context: &'static TestContext) -> Result<()> {
    let stay = enter(context)?;
    let shop = stay.node.namespace("shop")?;
    let configured = stay.configured("  lxcfs: {nodeReadiness: prefer}")?;
    let lxcfs = stay.without(LXCFS)?;
    stay.is_labelled(false)?;
    let admitted = wanting(&shop, "web").is_admitted()?;
    let terms =
        &admitted.pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
    let term = json!({"weight": 100, "preference": {
        "matchExpressions": [{"key": READY, "operator": "In", "values": ["true"]}],
    }});
    ensure!(terms == &json!([term]), "it prefers {terms}");
    selects_nothing(&admitted.pod)?;
    let web = stay.node.pod(&shop, "web");
    web.meets("is not a file")?;
    ensure!(web.object()?["spec"]["nodeName"] == NAME, "it waits, and not on the node");
    lxcfs.back()?;
    shows_256(&web.is_ready()?)?;
    drop(configured);
    Ok(())
}

#[e2e::case]
fn a_missing_permission_is_logged(context: &'static TestContext) -> Result<()> {
    let stay = enter(context)?;
    let kubectl = stay.node.cluster().kubectl();
    // Taken away by its own file, and given back by the same.
    let rbac = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/lxcfs/rbac.yaml");
    kubectl.run(&["delete", "clusterrolebinding", "durward-lxcfs"])?.succeeded()?;
    let seen = (|| {
        let pod = stay.pod(KEEPER)?["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        kubectl.run(&["delete", "pod", "-n", stay.home.name(), &pod])?.succeeded()?;
        stay.await_word(KEEPER, "the service account needs patch on nodes")
    })();
    kubectl.run(&["apply", "-f", rbac])?.succeeded()?;
    seen?;
    stay.await_word(KEEPER, "keeping the node")?;
    // Nobody has taken it off, since that was forbidden too; from now on it is kept again.
    let lxcfs = stay.without(LXCFS)?;
    stay.is_labelled(false)?;
    lxcfs.back()?;
    stay.is_labelled(true)
}

#[e2e::case]
fn the_agent_token_can_change_one_label_and_one_annotation(context: &'static TestContext) -> Result<()> {
    let stay = enter(context)?;
    let pod = stay.pod(KEEPER)?["metadata"]["name"].as_str().context("a pod without a name")?.to_owned();
    let bound = ["--bound-object-kind", "Pod", "--bound-object-name", &pod];
    let thief = stay.bearer(&bound)?;
    let path = format!("/api/v1/nodes/{NAME}");
    let label = |key: &str, value: Value| json!({"metadata": {"labels": {key: value}}});
    let refused = [
        (&path, label("kubernetes.io/os", Value::Null), "may change only the label"),
        (&path, label("shop", "x".into()), "may change only the label"),
        (&path, json!({"metadata": {"annotations": {"shop": "x"}}}), "may change only the label"),
        (&path, json!({"spec": {"unschedulable": true}}), "may change only the label"),
        (&format!("{path}/status"), json!({"status": {"capacity": {"shop": "1"}}}), "cannot patch resource"),
    ];
    for (path, change, why) in refused {
        let answer = thief.merge(path, &change)?;
        let message = answer.message();
        ensure!(!answer.is_success() && message.contains(why), "{change} is answered: {message}");
    }
    // Of a pod on no node, as of one on another.
    let unbound = stay.bearer(&[])?.merge(&path, &label(READY, "no".into()))?;
    ensure!(unbound.message().contains("only the Node on which it runs ()"), "{}", unbound.message());
    thief.merge(&path, &label(READY, "true".into()))?.succeeded()?;
    Ok(())
}

impl super::house::House {
    /// Somebody with a token of the service account of `lxcfs-node`.
    fn bearer(&self, bound: &[&str]) -> Result<e2e::api::Api> {
        let kubectl = self.node.cluster().kubectl();
        let mut arguments = vec!["create", "token", "durward-lxcfs", "-n", self.home.name()];
        arguments.extend(bound);
        let token = kubectl.run(&arguments)?.succeeded()?.stdout;
        let mut config: Value = serde_json::from_slice(&std::fs::read(kubectl.kubeconfig())?)?;
        config["users"][0]["user"] = json!({"token": token.trim()});
        self.context.api(&config)
    }
}

/// The pod goes to nodes that are ready, and that is all it asks of them.
fn selects_ready_nodes(pod: &Value) -> Result<()> {
    let selector = &pod["spec"]["nodeSelector"];
    ensure!(selector == &json!({READY: "true"}), "it selects {selector}");
    Ok(())
}

/// The pod has its files and goes anywhere.
fn selects_nothing(pod: &Value) -> Result<()> {
    let spec = &pod["spec"];
    ensure!(spec["nodeSelector"].is_null(), "it selects {}", spec["nodeSelector"]);
    let volumes = spec["volumes"].to_string();
    ensure!(volumes.contains("lxcfs-meminfo"), "it has no files: {volumes}");
    Ok(())
}

/// The pod that a `DaemonSet` makes of a template that wants files.
fn of_a_daemon_set(shop: &Namespace<'_>) -> Result<Value> {
    let api = shop.cluster().api();
    let labels = json!({"app": "everywhere"});
    let mut container = node::idle(json!({}));
    container["name"] = "app".into();
    let set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "everywhere"},
        "spec": {"selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels, "annotations": {SWITCH: "enabled"}},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
        }},
    });
    api.create(&shop.path("apps/v1/daemonsets"), &set)?.succeeded()?;
    let path = format!("{}?labelSelector=app%3Deverywhere", shop.path("pods"));
    eventually("a pod of the DaemonSet", MADE_WITHIN, || {
        let pods = api.get(&path)?.succeeded()?.body;
        Ok(match pods["items"].get(0) {
            Some(pod) => Poll::Ready(pod.clone()),
            None => Poll::Pending("none".to_owned()),
        })
    })
}
