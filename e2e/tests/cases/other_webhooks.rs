//! Other webhooks in the same chain.

use e2e::prelude::*;
use e2e::third_party::Webhook;

use super::environment::{eventually_ok, opted_in, shared};
use super::files::{DEFAULT_FILES, LxcfsChecks as _};
use crate::cases::objects::contains_all;

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
    let fixture = shared(context)?;
    let shop = fixture.cluster.labelled_namespace("shop", &[("foreign", "mesh")])?;
    let mesh = Webhook::start([127, 0, 0, 1], &[], add_proxy)?;
    // The API server calls webhooks in the order of their configuration names; ours is `durward`.
    let registration = mesh.registration("mesh", ("foreign", "mesh"));
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    fixture.cluster.api().create(path, &registration)?.succeeded()?;
    eventually_ok("the other webhook to add its container", || {
        shop.pod("plain").as_dry_run().is_admitted()?.with_mounts_in("proxy", &[])
    })?;

    let admitted = opted_in(&shop, "web").is_admitted()?;
    let requests = mesh.requests();
    let requests = requests.last().context("the other webhook was not called")?;
    contains_all(&requests["object"]["spec"]["volumes"].to_string(), &["lxcfs-meminfo"])?;
    // Both containers have all files, and each volume exists once.
    let admitted = admitted.with_files(&DEFAULT_FILES)?.without_warnings()?;
    let names: Vec<&Value> = admitted.pod["spec"]["containers"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|container| &container["name"])
        .collect();
    ensure!(names == ["app", "proxy"], "the containers are {names:?}");
    Ok(())
}
