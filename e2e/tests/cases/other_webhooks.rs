//! Other webhooks in the same chain.

use e2e::prelude::*;
use e2e::third_party::Webhook;

use super::environment::{OLD_OPT_IN, eventually_ok, opted_in, shared};
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

/// Adds a file as crazytaxii's injector does, without a look at the mounts of the pod.
fn add_meminfo_again(request: &Value) -> Vec<Value> {
    let spec = &request["object"]["spec"];
    let path = "/proc/meminfo";
    let volume = json!({"name": "lxcfs-proc-meminfo", "hostPath": {"path": format!("/var/lib/lxcfs{path}")}});
    let mount = json!({"name": "lxcfs-proc-meminfo", "mountPath": path});
    let add = |list: &Value, to: &str, value: Value| {
        let (path, value) =
            if list.is_array() { (format!("{to}/-"), value) } else { (to.to_owned(), json!([value])) };
        json!({"op": "add", "path": path, "value": value})
    };
    vec![
        add(&spec["volumes"], "/spec/volumes", volume),
        add(&spec["containers"][0]["volumeMounts"], "/spec/containers/0/volumeMounts", mount),
    ]
}

#[e2e::case]
fn with_an_older_injector_pods_are_rejected_and_the_doctor_names_it(
    context: &'static TestContext,
) -> Result<()> {
    const OLDER: &str = "lxcfs-sidecar-injector-cfg";
    let fixture = shared(context)?;
    let shop = fixture.cluster.labelled_namespace("shop", &[("foreign", "injector")])?;
    let injector = Webhook::start([127, 0, 0, 1], &[], add_meminfo_again)?;
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    let registration = injector.registration(OLDER, ("foreign", "injector"));
    fixture.cluster.api().create(path, &registration)?.succeeded()?;
    eventually_ok("the API server to call both injectors", || {
        let pod = shop.pod("web").annotated(OLD_OPT_IN, "true").as_dry_run();
        pod.is_denied_with("mountPath: Invalid value: \"/proc/meminfo\": must be unique")
    })?;

    let kubectl = fixture.cluster.kubectl();
    let admin = kubectl.kubeconfig().display().to_string();
    let output = Durward::command(context, &["doctor", "lxcfs", "--kubeconfig", &admin])?;
    output.exited_with(1)?;
    contains_all(
        &output.stdout,
        &["another injector is registered", &format!("delete mutatingwebhookconfiguration {OLDER}")],
    )?;
    kubectl.run(&["delete", "mutatingwebhookconfiguration", OLDER])?.succeeded()?;
    eventually_ok("a pod with the older annotation to be admitted", || {
        shop.pod("web").annotated(OLD_OPT_IN, "true").as_dry_run().is_admitted()?.with_files(&DEFAULT_FILES)
    })
    .map(drop)
}
