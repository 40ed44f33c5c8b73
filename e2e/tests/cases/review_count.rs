//! Only pods that can opt in cause a review, and none causes two.

use e2e::prelude::*;

use super::environment::{Environment, OLD_OPT_IN, OPT_IN, OPTED_IN, exclusive, opted_in, reviews};
use super::files::{DEFAULT_FILES, LxcfsChecks as _};

/// Creates the pod and expects this number of reviews.
fn expect_reviews(fixture: &Environment, times: u8, what: &str, pod: Pod<'_>) -> Result<()> {
    let before = reviews(&fixture.durward)?;
    pod.is_admitted()?;
    let count = reviews(&fixture.durward)? - before;
    let is_expected = (count - f64::from(times)).abs() < 0.5;
    ensure!(is_expected, "expected {times} reviews of {what}, but there were {count}");
    Ok(())
}

#[e2e::case(Exclusive)]
fn a_pod_that_opts_in_is_reviewed_once(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let (shop, opted_in_namespace) =
        (fixture.cluster.namespace("shop")?, fixture.cluster.labelled_namespace("asking", &OPTED_IN)?);
    expect_reviews(&fixture, 1, "an annotated pod", opted_in(&shop, "annotated"))?;
    expect_reviews(&fixture, 1, "a labelled pod", shop.pod("labelled").labelled(OPT_IN, "enabled"))?;
    expect_reviews(
        &fixture,
        1,
        "a pod with the older annotation",
        shop.pod("older").annotated(OLD_OPT_IN, "true"),
    )?;
    expect_reviews(
        &fixture,
        1,
        "a pod without a setting in a namespace that opts in",
        opted_in_namespace.pod("silent"),
    )?;
    let thrice =
        opted_in(&opted_in_namespace, "thrice").labelled(OPT_IN, "enabled").annotated(OLD_OPT_IN, "true");
    expect_reviews(&fixture, 1, "a pod that opts in in three ways, in a namespace that opts in", thrice)
}

#[e2e::case(Exclusive)]
fn a_pod_that_does_not_opt_in_is_not_reviewed(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let (shop, opted_in_namespace) =
        (fixture.cluster.namespace("shop")?, fixture.cluster.labelled_namespace("asking", &OPTED_IN)?);
    expect_reviews(
        &fixture,
        0,
        "a plain pod",
        shop.pod("plain").labelled("app", "web").annotated("note", "x"),
    )?;
    expect_reviews(&fixture, 0, "a pod of a plain Deployment", shop.pod("deployed").from_a_deployment())?;
    expect_reviews(
        &fixture,
        0,
        "a pod with the older word for no",
        shop.pod("no").annotated(OLD_OPT_IN, "false"),
    )?;
    expect_reviews(
        &fixture,
        0,
        "a pod that opts out",
        opted_in_namespace.pod("out").annotated(OPT_IN, "disabled"),
    )?;
    expect_reviews(
        &fixture,
        0,
        "a pod that opts out by its label",
        opted_in_namespace.pod("out-2").labelled(OPT_IN, "disabled"),
    )?;
    for (name, no) in [("out-3", "false"), ("out-4", "No")] {
        let pod = opted_in_namespace.pod(name).annotated(OLD_OPT_IN, no);
        expect_reviews(
            &fixture,
            0,
            "a pod that opts out by the older annotation in a namespace that opts in",
            pod,
        )?;
    }
    let newer = opted_in(&opted_in_namespace, "newer").annotated(OLD_OPT_IN, "false");
    expect_reviews(&fixture, 1, "a pod whose newer word beats its older no", newer)
}

#[e2e::case(Exclusive)]
fn updates_and_deletion_of_a_pod_are_not_reviewed(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let api = fixture.cluster.api();
    let shop = fixture.cluster.namespace("shop")?;
    expect_reviews(&fixture, 1, "an annotated pod", opted_in(&shop, "web"))?;
    let path = format!("{}/web", shop.path("pods"));
    let before = reviews(&fixture.durward)?;
    api.merge(&path, &json!({"metadata": {"labels": {"app": "web"}}}))?.succeeded()?;
    api.merge(&format!("{path}/status"), &json!({"status": {"phase": "Running"}}))?.succeeded()?;
    let debug =
        json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "images.example/debug:1"}]}});
    ensure!((reviews(&fixture.durward)? - before).abs() < 0.5, "a change of a pod was reviewed");
    api.merge(&format!("{path}/ephemeralcontainers"), &debug)?.succeeded()?;
    let count = reviews(&fixture.durward)? - before;
    ensure!((count - 1.0).abs() < 0.5, "its ephemeral container was reviewed {count} times");
    api.delete(&format!("{path}?gracePeriodSeconds=0"))?.succeeded()?;
    ensure!((reviews(&fixture.durward)? - before - 1.0).abs() < 0.5, "the deletion of a pod was reviewed");
    ensure!(api.get(&path)?.status == 404, "the pod is still there");
    Ok(())
}

#[e2e::case(Exclusive)]
fn kube_system_and_the_own_namespace_are_not_reviewed(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let before = reviews(&fixture.durward)?;
    for namespace in ["kube-system", "durward-system"] {
        let pod = create_in(fixture.cluster, namespace)?;
        ensure!(pod["spec"]["volumes"].is_null(), "a pod in {namespace} got {}", pod["spec"]["volumes"]);
    }
    ensure!((reviews(&fixture.durward)? - before).abs() < 0.5, "a pod there was reviewed");
    let shop = fixture.cluster.namespace("shop")?;
    opted_in(&shop, "elsewhere").is_admitted()?.with_files(&DEFAULT_FILES).map(drop)
}

/// Creates a pod that opts in, in a namespace that the case did not create, as a dry run.
fn create_in(cluster: &Cluster, namespace: &str) -> Result<Value> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "annotations": {OPT_IN: "enabled"}},
        "spec": {"containers": [{"name": "app", "image": "images.example/app:1"}], "automountServiceAccountToken": false},
    });
    let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
    Ok(cluster.api().create(&path, &pod)?.succeeded()?.body)
}
