//! Pods run on the node as on any other.

use std::path::Path;

use e2e::node;
use e2e::prelude::*;

#[e2e::case]
fn a_pod_runs_and_answers_exec(context: &TestContext) -> Result<()> {
    let node = context.node()?;
    let shop = node.namespace("shop")?;
    let container = node::shell("echo in the log; trap 'exit 0' TERM; while :; do sleep 1; done", json!({}));
    shop.pod("web").container_like("app", container).is_admitted()?;
    let web = node.pod(&shop, "web").is_ready()?;
    logs(&web, "in the log\n")?;
    ensure!(web.exec("app", &["echo", "by exec"])? == "by exec\n", "exec returned another output");
    let refused = web.attempt("app", &["sh", "-c", "echo why >&2; exit 3"])?;
    refused.exited_with(3)?;
    ensure!(refused.stderr.contains("why"), "the failing command returned {refused:?}");
    web.await_event("Started: ")?;
    web.is_deleted()
}

#[e2e::case]
fn a_pod_succeeds_and_a_failed_one_reports_why(context: &TestContext) -> Result<()> {
    let node = context.node()?;
    let shop = node.namespace("shop")?;
    let once = |pod: &mut Value| pod["spec"]["restartPolicy"] = "Never".into();
    shop.pod("good").container_like("app", node::shell("echo well", json!({}))).with(once).is_admitted()?;
    shop.pod("bad")
        .container_like("app", node::shell("echo ill; exit 7", json!({})))
        .with(once)
        .is_admitted()?;
    let good = node.pod(&shop, "good").is_done()?;
    logs(&good, "well\n")?;
    until("the error of the failed pod", || {
        let error = node.pod(&shop, "bad").is_done().err().map(|error| format!("{error:#}"));
        let error = error.unwrap_or_default();
        Ok((error.contains("it is Failed") && error.contains("app: ill"), error))
    })
}

/// Waits until the log of the pod is this one. The container runtime can write the log later than the container prints it.
fn logs(pod: &RunningPod<'_>, expected: &str) -> Result<()> {
    until("the log of the pod", || {
        let log = pod.logs("app")?;
        Ok((log == expected, log))
    })
}

#[e2e::case]
fn pods_resolve_the_api_server_and_each_other(context: &TestContext) -> Result<()> {
    let node = context.node()?;
    let shop = node.namespace("shop")?;
    let headless = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"clusterIP": "None", "selector": {"app": "web"}},
    });
    node.cluster().api().create(&shop.path("services"), &headless)?.succeeded()?;
    let page = "mkdir /www; echo it is me >/www/index.html; trap 'exit 0' TERM; httpd -f -h /www & wait $!";
    shop.pod("web")
        .labelled("app", "web")
        .container_like("app", node::shell(page, json!({})))
        .is_admitted()?;
    shop.pod("guest").container_like("app", node::idle(json!({}))).is_admitted()?;
    let web = node.pod(&shop, "web").is_ready()?;
    let guest = node.pod(&shop, "guest").is_ready()?;

    let api = guest.exec("app", &["nslookup", "-type=a", "kubernetes.default.svc.cluster.local"])?;
    ensure!(api.contains("Address: 10.0.0.1\n"), "the API server's name resolves to {api}");
    let reached = "nc -w 5 kubernetes.default.svc.cluster.local 443 </dev/null";
    guest.exec("app", &["sh", "-c", reached]).context("the API server at the address of its Service")?;
    let address = web.object()?["status"]["podIP"].as_str().unwrap_or_default().to_owned();
    ensure!(address.starts_with("10.244.0."), "the pod's address is {address:?}");
    let name = format!("web.{}.svc.cluster.local", shop.name());
    until("the pod's name to resolve to it", || {
        let output = guest.attempt("app", &["wget", "-q", "-O", "-", &format!("http://{name}/")])?;
        Ok((output.stdout == "it is me\n", format!("{output:?}")))
    })
}

#[e2e::case]
fn the_node_is_not_visible_on_the_host(context: &TestContext) -> Result<()> {
    let node = context.node()?;
    let shop = node.namespace("shop")?;
    shop.pod("web").container_like("app", node::idle(json!({}))).is_admitted()?;
    let web = node.pod(&shop, "web").is_ready()?;
    let uid = web.object()?["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let volumes = format!("/var/lib/kubelet/pods/{uid}");
    ensure!(node.path(&volumes).is_dir(), "the node has no {volumes}");
    ensure!(!Path::new(&volumes).exists(), "this host has {volumes}");
    let bridges = node.run(&["ip", "-o", "link", "show", "cni0"])?.succeeded()?.stdout;
    ensure!(bridges.contains("cni0"), "the node's bridge is {bridges:?}");
    ensure!(!Path::new("/sys/class/net/cni0").exists(), "this host has the node's bridge");
    Ok(())
}
