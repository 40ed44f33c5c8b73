//! The label and the annotation of the Node, and the pods that depend on them.

use e2e::node::{self, NAME};
use e2e::prelude::*;

use super::environment::{GUARDS, LABEL_AGENT, LXCFS, READY, REPORT, exclusive, has_label};
use super::pods::{has_256_mib, limited_pod};
use crate::cases::environment::OPT_IN;
use crate::cases::objects::list;

#[e2e::case]
fn label_and_annotation_follow_lxcfs_and_outlast_the_agent(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let report = fixture.report()?;
    ensure!(report["files"]["meminfo"] == "served" && report["root"] == "/var/lib/lxcfs", "it is {report}");
    let lxcfs = fixture.remove(LXCFS)?;
    fixture.await_label(false)?;
    fixture.await_report("meminfo missing", |report| report["files"]["meminfo"] == "missing")?;
    lxcfs.restore()?;
    fixture.await_label(true)?;
    fixture.await_report("meminfo served", |report| report["files"]["meminfo"] == "served")?;

    // Without the agent, LXCFS, label and annotation stay; a missing one is reported.
    let supervisor = fixture.remove(LABEL_AGENT)?;
    let node = fixture.node.object()?;
    let annotation = &node["metadata"]["annotations"][REPORT];
    ensure!(has_label(&node) && annotation.is_string(), "they were removed with the agent: {annotation}");
    let kubectl = fixture.node.cluster().kubectl();
    kubectl.run(&["annotate", "node", NAME, &format!("{REPORT}-")])?.succeeded()?;
    fixture
        .await_diagnosis(&["but the annotation is missing", "label node node-1 durward.dev/lxcfs-ready-"])?;
    kubectl.run(&["label", "node", NAME, &format!("{READY}-")])?.succeeded()?;
    fixture.await_diagnosis(&["lxcfs-node is missing", "apply -k deploy/lxcfs"])?;
    supervisor.restore()?;
    fixture.await_label(true)
}

#[e2e::case]
fn a_changed_configuration_needs_no_restart(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let before = fixture.pod(LABEL_AGENT)?["metadata"]["uid"].clone();
    fixture.configure_agents("  lxcfs: {nodeAffinity: none}")?;
    let seen = fixture.await_label(false).and_then(|()| fixture.await_report("nothing", Value::is_null));
    fixture.configure_agents(GUARDS)?;
    seen?;
    fixture.await_label(true)?;
    let after = fixture.pod(LABEL_AGENT)?;
    ensure!(after["metadata"]["uid"] == before, "its pod was replaced");
    ensure!(after["status"]["containerStatuses"][0]["restartCount"] == 0, "it was restarted");
    Ok(())
}

#[e2e::case]
fn pods_that_require_readiness_wait_for_lxcfs(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let shop = fixture.node.namespace("shop")?;
    let lxcfs = fixture.remove(LXCFS)?;
    fixture.await_label(false)?;
    let admitted = limited_pod(&shop, "web").is_admitted()?;
    selects_ready_nodes(&admitted.pod)?;
    let web = fixture.node.pod(&shop, "web");
    web.await_event("didn't match Pod's node affinity/selector")?;
    // These pods can run on this node only, so they get no selector.
    let named = limited_pod(&shop, "named").with(|pod| pod["spec"]["nodeName"] = NAME.into());
    selects_nothing(&named.as_dry_run().is_admitted()?.pod)?;
    selects_nothing(&daemon_set_pod(&shop)?)?;
    ensure!(web.object()?["spec"]["nodeName"].is_null(), "it was scheduled");
    lxcfs.restore()?;
    // A kubelet that has not seen the new label yet refuses the pod for good. A controller would replace it.
    let placed = web.await_state("placed", |pod| pod["status"]["phase"] != "Pending")?;
    if placed.object()?["status"]["reason"] != "NodeAffinity" {
        return has_256_mib(&placed.is_ready()?);
    }
    fixture.node.cluster().api().delete(&format!("{}/web", shop.path("pods")))?.succeeded()?;
    limited_pod(&shop, "web-2").is_admitted()?;
    has_256_mib(&fixture.node.pod(&shop, "web-2").is_ready()?)
}

#[e2e::case]
fn pods_that_prefer_readiness_wait_on_the_node(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let shop = fixture.node.namespace("shop")?;
    let configured = fixture.configured("  lxcfs: {nodeAffinity: preferred}")?;
    let lxcfs = fixture.remove(LXCFS)?;
    fixture.await_label(false)?;
    let admitted = limited_pod(&shop, "web").is_admitted()?;
    let terms =
        &admitted.pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
    let term = json!({"weight": 100, "preference": {
        "matchExpressions": [{"key": READY, "operator": "In", "values": ["true"]}],
    }});
    ensure!(terms == &json!([term]), "it prefers {terms}");
    selects_nothing(&admitted.pod)?;
    let web = fixture.node.pod(&shop, "web");
    web.await_event("is not a file")?;
    ensure!(web.object()?["spec"]["nodeName"] == NAME, "it waits, but is not bound to the node");
    lxcfs.restore()?;
    has_256_mib(&web.is_ready()?)?;
    drop(configured);
    Ok(())
}

#[e2e::case]
fn a_missing_permission_is_logged(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let kubectl = fixture.node.cluster().kubectl();
    // The binding is removed by name and restored from its file.
    let rbac = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/lxcfs/rbac.yaml");
    kubectl.run(&["delete", "clusterrolebinding", "durward-lxcfs"])?.succeeded()?;
    let seen = (|| {
        let pod = fixture.pod(LABEL_AGENT)?["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        kubectl.run(&["delete", "pod", "-n", fixture.namespace.name(), &pod])?.succeeded()?;
        fixture.await_logged(LABEL_AGENT, "the service account needs permission to patch nodes")
    })();
    kubectl.run(&["apply", "-f", rbac])?.succeeded()?;
    seen?;
    fixture.await_logged(LABEL_AGENT, "started")?;
    // The label stayed, because removing it was forbidden too; now it is updated again.
    let lxcfs = fixture.remove(LXCFS)?;
    fixture.await_label(false)?;
    lxcfs.restore()?;
    fixture.await_label(true)
}

#[e2e::case]
fn the_agent_token_can_change_one_label_and_one_annotation(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let pod =
        fixture.pod(LABEL_AGENT)?["metadata"]["name"].as_str().context("a pod without a name")?.to_owned();
    let bound = ["--bound-object-kind", "Pod", "--bound-object-name", &pod];
    let stolen_token = fixture.token_client(&bound)?;
    let path = format!("/api/v1/nodes/{NAME}");
    let label = |key: &str, value: Value| json!({"metadata": {"labels": {key: value}}});
    let refused = [
        (&path, label("kubernetes.io/os", Value::Null), "can change only the label"),
        (&path, label("shop", "x".into()), "can change only the label"),
        (&path, json!({"metadata": {"annotations": {"shop": "x"}}}), "can change only the label"),
        (&path, json!({"spec": {"unschedulable": true}}), "can change only the label"),
        (&format!("{path}/status"), json!({"status": {"capacity": {"shop": "1"}}}), "cannot patch resource"),
    ];
    for (path, change, why) in refused {
        let answer = stolen_token.merge(path, &change)?;
        let message = answer.message();
        ensure!(!answer.is_success() && message.contains(why), "{change} is answered: {message}");
    }
    // The token of a pod without a node, like that of another node.
    let unbound = fixture.token_client(&[])?.merge(&path, &label(READY, "no".into()))?;
    ensure!(unbound.message().contains("only the Node on which it runs ()"), "{}", unbound.message());
    stolen_token.merge(&path, &label(READY, "true".into()))?.succeeded().map(drop)
}

impl super::environment::Environment {
    /// Returns a client with a token of the service account of `durward-node label`.
    fn token_client(&self, bound: &[&str]) -> Result<e2e::api::Api> {
        let kubectl = self.node.cluster().kubectl();
        let mut arguments = vec!["create", "token", "durward-lxcfs", "-n", self.namespace.name()];
        arguments.extend(bound);
        let token = kubectl.run(&arguments)?.succeeded()?.stdout;
        let mut config: Value = serde_json::from_slice(&std::fs::read(kubectl.kubeconfig())?)?;
        config["users"][0]["user"] = json!({"token": token.trim()});
        self.context.api(&config)
    }
}

/// Expects the selector of ready nodes and no other.
fn selects_ready_nodes(pod: &Value) -> Result<()> {
    let selector = &pod["spec"]["nodeSelector"];
    ensure!(selector == &json!({READY: "true"}), "it selects {selector}");
    Ok(())
}

/// Expects files and no node selector.
fn selects_nothing(pod: &Value) -> Result<()> {
    let spec = &pod["spec"];
    ensure!(spec["nodeSelector"].is_null(), "it selects {}", spec["nodeSelector"]);
    let volumes = spec["volumes"].to_string();
    ensure!(volumes.contains("lxcfs-meminfo"), "it has no files: {volumes}");
    Ok(())
}

/// Returns the pod that a `DaemonSet` creates from a template that opts in.
fn daemon_set_pod(shop: &Namespace<'_>) -> Result<Value> {
    let api = shop.cluster().api();
    let labels = json!({"app": "everywhere"});
    let mut container = node::idle(json!({}));
    container["name"] = "app".into();
    let set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "everywhere"},
        "spec": {"selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels, "annotations": {OPT_IN: "enabled"}},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
        }},
    });
    api.create(&shop.path("apps/v1/daemonsets"), &set)?.succeeded()?;
    let path = format!("{}?labelSelector=app%3Deverywhere", shop.path("pods"));
    eventually("a pod of the DaemonSet", WAIT_LIMIT, || {
        let pod = list(api, &path)?.pop();
        Ok(pod.map_or_else(|| Poll::Pending("none".to_owned()), Poll::Ready))
    })
}
