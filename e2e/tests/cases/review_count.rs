//! That only pods which may want the files cost a call, and none costs two.

use anyhow::{Result, ensure};
use e2e::context::TestContext;
use e2e::controlplane::Cluster;
use e2e::pods::Pod;
use serde_json::{Value, json};

use super::files::{Looks as _, SIX};
use super::house::{ENABLED, House, OLD_SWITCH, SWITCH, alone, reviews, wanting};

/// Creates the pod and expects so many reviews of it.
fn is_asked(house: &House, times: u8, what: &str, pod: Pod<'_>) -> Result<()> {
    let before = reviews(&house.durward)?;
    pod.is_admitted()?;
    let asked = reviews(&house.durward)? - before;
    ensure!(
        (asked - f64::from(times)).abs() < 0.5,
        "expected {times} reviews of {what}, and there were {asked}"
    );
    Ok(())
}

#[e2e::case(Exclusive)]
fn a_pod_that_opts_in_is_reviewed_once(context: &'static TestContext) -> Result<()> {
    let house = alone(context)?;
    let (shop, asking) =
        (house.cluster.namespace("shop")?, house.cluster.labelled_namespace("asking", &ENABLED)?);
    is_asked(&house, 1, "an annotated pod", wanting(&shop, "annotated"))?;
    is_asked(&house, 1, "a labelled pod", shop.pod("labelled").labelled(SWITCH, "enabled"))?;
    is_asked(&house, 1, "a pod with the older annotation", shop.pod("older").annotated(OLD_SWITCH, "true"))?;
    is_asked(&house, 1, "a silent pod in a namespace that asks", asking.pod("silent"))?;
    let thrice = wanting(&asking, "thrice").labelled(SWITCH, "enabled").annotated(OLD_SWITCH, "true");
    is_asked(&house, 1, "a pod that asks in three ways in a namespace that asks", thrice)
}

#[e2e::case(Exclusive)]
fn a_pod_that_does_not_opt_in_is_not_reviewed(context: &'static TestContext) -> Result<()> {
    let house = alone(context)?;
    let (shop, asking) =
        (house.cluster.namespace("shop")?, house.cluster.labelled_namespace("asking", &ENABLED)?);
    is_asked(&house, 0, "a plain pod", shop.pod("plain").labelled("app", "web").annotated("note", "x"))?;
    is_asked(&house, 0, "a pod of a plain Deployment", shop.pod("deployed").from_a_deployment())?;
    is_asked(&house, 0, "a pod with the older word for no", shop.pod("no").annotated(OLD_SWITCH, "false"))?;
    is_asked(&house, 0, "a pod that opts out", asking.pod("out").annotated(SWITCH, "disabled"))?;
    is_asked(
        &house,
        0,
        "a pod that opts out by its label",
        asking.pod("out-2").labelled(SWITCH, "disabled"),
    )?;
    for (name, no) in [("out-3", "false"), ("out-4", "No")] {
        let pod = asking.pod(name).annotated(OLD_SWITCH, no);
        is_asked(&house, 0, "a pod that opts out by the older word in a namespace that asks", pod)?;
    }
    let newer = wanting(&asking, "newer").annotated(OLD_SWITCH, "false");
    is_asked(&house, 1, "a pod whose newer word beats its older no", newer)
}

#[e2e::case(Exclusive)]
fn updates_and_deletion_of_a_pod_are_not_reviewed(context: &'static TestContext) -> Result<()> {
    let house = alone(context)?;
    let api = house.cluster.api();
    let shop = house.cluster.namespace("shop")?;
    is_asked(&house, 1, "an annotated pod", wanting(&shop, "web"))?;
    let path = format!("{}/web", shop.path("pods"));
    let before = reviews(&house.durward)?;
    api.merge(&path, &json!({"metadata": {"labels": {"app": "web"}}}))?.succeeded()?;
    api.merge(&format!("{path}/status"), &json!({"status": {"phase": "Running"}}))?.succeeded()?;
    let debug =
        json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "images.example/debug:1"}]}});
    ensure!((reviews(&house.durward)? - before).abs() < 0.5, "a change of a pod was reviewed");
    api.merge(&format!("{path}/ephemeralcontainers"), &debug)?.succeeded()?;
    ensure!(
        (reviews(&house.durward)? - before - 1.0).abs() < 0.5,
        "its ephemeral container was not reviewed once"
    );
    api.delete(&format!("{path}?gracePeriodSeconds=0"))?.succeeded()?;
    ensure!((reviews(&house.durward)? - before - 1.0).abs() < 0.5, "the deletion of a pod was reviewed");
    ensure!(api.get(&path)?.status == 404, "the pod is still there");
    Ok(())
}

#[e2e::case(Exclusive)]
fn kube_system_and_the_own_namespace_are_not_reviewed(context: &'static TestContext) -> Result<()> {
    let house = alone(context)?;
    let before = reviews(&house.durward)?;
    for namespace in ["kube-system", "durward-system"] {
        let pod = create_in(house.cluster, namespace)?;
        ensure!(
            pod["spec"]["volumes"].is_null(),
            "a pod in {namespace} was given {}",
            pod["spec"]["volumes"]
        );
    }
    ensure!((reviews(&house.durward)? - before).abs() < 0.5, "the server was asked about a pod there");
    let shop = house.cluster.namespace("shop")?;
    wanting(&shop, "elsewhere").is_admitted()?.with_files(&SIX)?;
    Ok(())
}

/// A pod that wants the files, in a namespace that is not the case's own, as a dry run.
fn create_in(cluster: &Cluster, namespace: &str) -> Result<Value> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "annotations": {SWITCH: "enabled"}},
        "spec": {"containers": [{"name": "app", "image": "images.example/app:1"}], "automountServiceAccountToken": false},
    });
    let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
    Ok(cluster.api().create(&path, &pod)?.succeeded()?.body)
}
