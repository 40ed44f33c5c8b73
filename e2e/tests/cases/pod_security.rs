//! Namespaces whose Pod Security level denies the volumes of the files.

use e2e::prelude::*;
use rustix::process::Signal;

use super::environment::{
    DEFAULTS, await_injection, eventually_ok, opted_in, restricted, restricted_container,
};
use super::files::{DEFAULT_FILES, LxcfsChecks as _, STATUS};

const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

/// Returns a pod that opts in and that the level `restricted` allows.
fn restricted_pod<'a>(namespace: &'a Namespace<'_>, name: &str) -> Pod<'a> {
    opted_in(namespace, name).container_like("app", restricted_container(json!({})))
}

#[e2e::case]
fn pods_that_pod_security_would_deny_get_no_files(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&restricted())?;
    let (installation, durward) = Installation::start(
        context,
        &cluster,
        "  lxcfs: {podSecurityDefault: restricted}",
        "durward-restricted",
    )?;
    let unlabeled = cluster.namespace("silent")?;
    let lenient = cluster.labelled_namespace("lenient", &[(ENFORCE, "privileged")])?;
    await_injection(&lenient)?;

    restricted_pod(&unlabeled, "web")
        .is_admitted()?
        .skipped_because("podSecurityDefault \"restricted\" forbids hostPath volumes")?;
    for level in ["baseline", "restricted"] {
        let strict = cluster.labelled_namespace("strict", &[(ENFORCE, level)])?;
        restricted_pod(&strict, "web")
            .is_admitted()?
            .skipped_because(&format!("enforces Pod Security {level:?}, which forbids hostPath"))?;
    }
    restricted_pod(&lenient, "web").is_admitted()?.with_files(&DEFAULT_FILES)?.without_warnings()?;

    // With its default, the option does not fit this cluster: the pod gets volumes and is denied. So the API
    // server's level decided, not the pod.
    installation.configure(DEFAULTS)?;
    durward.signal(Signal::HUP)?;
    eventually_ok("the pod to be refused", || {
        restricted_pod(&unlabeled, "other")
            .as_dry_run()
            .is_denied_with("violates PodSecurity \"restricted:latest\"")
    })?;
    Ok(())
}

fn pod_with_resources<'a>(namespace: &'a Namespace<'_>, name: &str, resources: Value) -> Pod<'a> {
    restricted_pod(namespace, name).with(|pod| {
        if !resources.is_null() {
            pod["spec"]["containers"][0]["resources"] = resources;
        }
    })
}

fn requests_device(admitted: &Admitted, amount: &str) -> Result<()> {
    let pod = &admitted.pod;
    for which in ["limits", "requests"] {
        let found = &pod["spec"]["containers"][0]["resources"][which]["durward.dev/lxcfs"];
        ensure!(*found == amount, "expected {which} of {amount}: {pod}");
    }
    ensure!(pod["spec"]["nodeSelector"].is_null(), "{pod}");
    ensure!(pod["metadata"]["annotations"][STATUS] == "app=device", "{pod}");
    Ok(())
}

#[e2e::case]
fn pods_request_a_device_if_volumes_are_denied_else_ready_nodes(context: &'static TestContext) -> Result<()> {
    const READY: &str = "durward.dev/lxcfs-ready";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let guard = |affinity: &str| {
        format!("  lxcfs: {{podSecurityDefault: restricted, mountMethod: auto, nodeAffinity: {affinity}}}")
    };
    let cluster = context.cluster(&restricted())?;
    let (installation, durward) =
        Installation::start(context, &cluster, &guard("required"), "durward-device")?;
    let unlabeled = cluster.namespace("silent")?;
    let lenient = cluster.labelled_namespace("lenient", &[(ENFORCE, "privileged")])?;
    await_injection(&lenient)?;

    // The added resources are valid next to any existing ones.
    for (name, resources) in [
        ("bare", Value::Null),
        ("empty", json!({})),
        ("limited", json!({"limits": {"memory": "256Mi"}})),
        ("requesting", json!({"requests": {"cpu": "100m"}})),
        ("both", json!({"limits": {"cpu": "1", "example.org/gpu": "1"}, "requests": {"cpu": "100m"}})),
    ] {
        let admitted = pod_with_resources(&unlabeled, name, resources)
            .is_admitted()?
            .with_mounts(&[])?
            .without_warnings()?;
        requests_device(&admitted, "1")?;
    }
    let as_a_whole = restricted_pod(&unlabeled, "whole").with(|pod| {
        pod["spec"]["resources"] = json!({"limits": {"memory": "1Gi"}, "requests": {"cpu": "1"}});
    });
    requests_device(&as_a_whole.is_admitted()?.without_warnings()?, "1")?;
    let by_hand = json!({"limits": {"durward.dev/lxcfs": "2"}});
    requests_device(&pod_with_resources(&unlabeled, "two", by_hand).is_admitted()?, "2")?;

    let selected = |name: &str, selector: Value| {
        restricted_pod(&lenient, name).with(|pod| pod["spec"]["nodeSelector"] = selector).is_admitted()
    };
    for (name, selector) in [("anywhere", Value::Null), ("ssd", json!({"disk": "ssd"}))] {
        let pod = selected(name, selector)?.with_files(&DEFAULT_FILES)?.without_warnings()?.pod;
        ensure!(pod["spec"]["nodeSelector"][READY] == "true", "{pod}");
        ensure!(pod["spec"]["containers"][0]["resources"]["limits"].is_null(), "{pod}");
    }
    selected("elsewhere", json!({READY: "no"}))?
        .skipped_because("its nodeSelector durward.dev/lxcfs-ready=\"no\" excludes nodes")?;

    installation.configure(&guard("preferred"))?;
    durward.signal(Signal::HUP)?;
    let terms = |pod: &Value| pod["spec"]["affinity"]["nodeAffinity"][PREFERRED].clone();
    let ours = json!({"weight": 100, "preference": {"matchExpressions":
        [{"key": READY, "operator": "In", "values": ["true"]}]}});
    eventually_ok("a pod to prefer nodes that are ready", || {
        let pod =
            restricted_pod(&lenient, "probe").as_dry_run().is_admitted()?.with_files(&DEFAULT_FILES)?.pod;
        ensure!(terms(&pod) == json!([ours]), "{pod}");
        Ok(())
    })?;
    let disk = json!({"weight": 1, "preference": {"matchExpressions":
        [{"key": "disk", "operator": "In", "values": ["ssd"]}]}});
    for (name, affinity, expected) in [
        ("of-pods", json!({"podAntiAffinity": {}}), json!([ours])),
        ("of-nodes", json!({"nodeAffinity": {PREFERRED: [disk]}}), json!([disk, ours])),
    ] {
        let pod = restricted_pod(&lenient, name).with(|pod| pod["spec"]["affinity"] = affinity);
        let pod = pod.is_admitted()?.with_files(&DEFAULT_FILES)?.without_warnings()?.pod;
        ensure!(terms(&pod) == expected, "{pod}");
    }
    Ok(())
}
