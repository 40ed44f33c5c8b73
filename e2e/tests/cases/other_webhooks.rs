//! Other people's webhooks in the same chain.

use anyhow::{Context as _, Result, ensure};
use e2e::context::TestContext;
use e2e::third_party::Webhook;
use serde_json::{Value, json};

use super::files::{Looks as _, SIX};
use super::house::{await_sentence, visit, wanting};

/// Adds a proxy to a pod that has none.
fn add_proxy(request: &Value) -> Vec<Value> {
    let containers = request["object"]["spec"]["containers"].as_array();
    if containers.into_iter().flatten().any(|container| container["name"] == "proxy") {
        return Vec::new();
    }
    let proxy = json!({"name": "proxy", "image": "images.example/proxy:1"});
    vec![json!({"op": "add", "path": "/spec/containers/-", "value": proxy})]
}

#[e2e::case]
fn a_container_that_another_webhook_adds_later_gets_files(context: &'static TestContext) -> Result<()> {
    let house = visit(context)?;
    let shop = house.cluster.labelled_namespace("shop", &[("foreign", "mesh")])?;
    let mesh = Webhook::start([127, 0, 0, 1], &[], add_proxy)?;
    // Webhooks are called in the order of their configurations' names, and ours is called durward.
    let registration = mesh.registration("mesh", ("foreign", "mesh"));
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    house.cluster.api().create(path, &registration)?.succeeded()?;
    await_sentence("the other webhook to add its container", || {
        shop.pod("plain").as_dry_run().is_admitted()?.with_mounts_in("proxy", &[])
    })?;

    let admitted = wanting(&shop, "web").is_admitted()?;
    let seen = mesh.requests();
    let seen = seen.last().context("the other webhook was not asked")?;
    ensure!(
        seen["object"]["spec"]["volumes"].to_string().contains("lxcfs-meminfo"),
        "the other webhook was asked before us, so nothing was to be completed: {seen}"
    );
    // Both containers have all files, and each file's volume is there once.
    let admitted = admitted.with_files(&SIX)?.without_warnings()?;
    let names: Vec<&Value> = admitted.pod["spec"]["containers"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|container| &container["name"])
        .collect();
    ensure!(names == ["app", "proxy"], "the containers are {names:?}");
    Ok(())
}
