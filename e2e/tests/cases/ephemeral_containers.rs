//! Ephemeral containers of running pods.

use e2e::prelude::*;

use super::environment::{OPTED_IN, opted_in, shared};
use super::files::{DEFAULT_FILES, LxcfsChecks as _, check_mounts, check_volumes};

#[e2e::case]
fn an_ephemeral_container_gets_the_files_of_its_pod(context: &'static TestContext) -> Result<()> {
    let fixture = shared(context)?;
    let api = fixture.cluster.api();
    let shop = fixture.cluster.namespace("shop")?;
    opted_in(&shop, "web").is_admitted()?.with_files(&DEFAULT_FILES)?;

    // Through the subresource.
    let first = json!({"name": "first", "image": "images.example/debug:1", "targetContainerName": "app"});
    let path = format!("{}/web/ephemeralcontainers", shop.path("pods"));
    let answer = api.merge(&path, &json!({"spec": {"ephemeralContainers": [first]}}))?.succeeded()?;
    ensure!(answer.warnings.is_empty(), "it warns: {:?}", answer.warnings);
    check_mounts(&answer.body["spec"]["ephemeralContainers"][0], &DEFAULT_FILES)?;

    // With kubectl. Running containers are not changed again, and cannot be.
    let output = fixture.cluster.kubectl().run(&[
        "debug",
        "-n",
        shop.name(),
        "web",
        "--container=second",
        "--image=images.example/debug:1",
        "--attach=false",
    ])?;
    let output = output.succeeded()?;
    ensure!(!output.stderr.contains("Warning:"), "kubectl debug warns: {}", output.stderr);
    let pod = api.get(&format!("{}/web", shop.path("pods")))?.succeeded()?.body;
    let containers = pod["spec"]["ephemeralContainers"].as_array().map(Vec::as_slice).unwrap_or_default();
    ensure!(containers.len() == 2, "expected two ephemeral containers, and there are {containers:?}");
    for container in containers {
        check_mounts(container, &DEFAULT_FILES)?;
    }
    check_volumes(&pod, &DEFAULT_FILES)
}

#[e2e::case]
fn an_ephemeral_container_of_a_pod_without_files_warns(context: &'static TestContext) -> Result<()> {
    let fixture = shared(context)?;
    let api = fixture.cluster.api();
    let shop = fixture.cluster.namespace("shop")?;
    shop.pod("web").is_admitted()?.untouched()?;
    // The namespace opts in after the pod was created.
    let labels = json!({"metadata": {"labels": {OPTED_IN[0].0: OPTED_IN[0].1}}});
    api.merge(&format!("/api/v1/namespaces/{}", shop.name()), &labels)?.succeeded()?;
    let path = format!("{}/web/ephemeralcontainers?dryRun=All", shop.path("pods"));
    let debug =
        json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "images.example/debug:1"}]}});
    let answer = eventually("a warning about the missing volumes", WAIT_LIMIT, || {
        let answer = api.merge(&path, &debug)?.succeeded()?;
        let warned = answer.warnings.iter().any(|warning| warning.contains("the pod has no LXCFS volumes"));
        Ok(if warned { Poll::Ready(answer) } else { Poll::Pending(format!("{:?}", answer.warnings)) })
    })?;
    check_mounts(&answer.body["spec"]["ephemeralContainers"][0], &[])
}

#[e2e::case]
fn an_ephemeral_container_of_a_skipped_pod_gets_no_files(context: &'static TestContext) -> Result<()> {
    let fixture = shared(context)?;
    let shop = fixture.cluster.namespace("shop")?;
    // A copy of a pod with files that also shares the node's processes.
    let spec = opted_in(&shop, "original").is_admitted()?.with_files(&DEFAULT_FILES)?.pod["spec"].clone();
    let copy = opted_in(&shop, "copy").with(|pod| {
        pod["spec"] = spec;
        pod["spec"]["hostPID"] = true.into();
    });
    let why = "hostPID is true";
    check_volumes(&copy.is_admitted()?.with_warning(why)?.pod, &DEFAULT_FILES)?;
    let debug =
        json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "images.example/debug:1"}]}});
    let path = format!("{}/copy/ephemeralcontainers", shop.path("pods"));
    let answer = fixture.cluster.api().merge(&path, &debug)?.succeeded()?;
    ensure!(
        answer.warnings.iter().any(|warning| warning.contains(why)),
        "no warning explains the missing files: {:?}",
        answer.warnings
    );
    check_mounts(&answer.body["spec"]["ephemeralContainers"][0], &[])
}
