//! A release in a namespace that enforces Pod Security `restricted`.

use e2e::prelude::*;

use super::configurations::{HOME, bare_cluster};
use super::environment::{home_path, installed, pod_gets_files, values, without_node};
use super::removal::WEBHOOKS;
use crate::cases::objects::{contains_all, name_of};

#[e2e::case]
fn helm_installs_two_replicas_whose_guards_are_called_through_the_service(
    context: &'static TestContext,
) -> Result<()> {
    let environment = installed(context)?;
    ensure!(environment.replicas()?.len() == 2, "{:?}", environment.replicas()?);

    // lxcfs
    let shop = environment.node.namespace("shop")?;
    pod_gets_files(&shop)?;

    // deletion
    environment.namespace_is_kept(&*environment.used_namespace()?)?;
    environment.delete_as_dry_run(&*environment.empty_namespace()?)?.succeeded()?;

    // etcd: a pod without a node can be deleted, and a running one that can't be asked can not.
    let db = environment.etcd_namespace()?;
    db.pod("pending").labelled("app", "etcd").with(without_node).is_admitted()?;
    environment.api().delete(&format!("{}/pending", db.path("pods")))?.succeeded()?;
    let etcd = e2e::node::idle(json!({}));
    db.pod("etcd").labelled("app", "etcd").container_like("etcd", etcd).is_admitted()?;
    environment.node.pod(&db, "etcd").is_ready()?;
    let denied = environment.api().delete(&format!("{}/etcd?dryRun=All", db.path("pods")))?;
    contains_all(denied.message(), &["cannot check etcd quorum"])?;
    environment.audit.has_no_forbidden_requests().map(drop)
}

/// The doctor runs in a pod of its own with Durward's account, until it finds no problem.
#[e2e::case]
fn helm_test_runs_the_doctor(context: &'static TestContext) -> Result<()> {
    let environment = installed(context)?;
    let test = ["test", Helm::RELEASE, "--namespace", HOME, "--timeout", "3m"];
    let output = environment.helm.run(&test)?.succeeded()?;
    contains_all(&output.stdout, &["TEST SUITE:     durward-test", "Phase:          Succeeded"])?;
    let left = environment.home("pods")?;
    ensure!(left.iter().all(|pod| name_of(pod) != "durward-test"), "the pod of the test is left");
    environment.audit.has_no_forbidden_requests().map(drop)
}

#[e2e::case]
fn helm_and_pod_security_report_no_warnings(context: &'static TestContext) -> Result<()> {
    let environment = installed(context)?;
    let output = environment.install(&values())?;
    let warnings: Vec<_> = output.stderr.lines().filter(|line| line.contains("arning")).collect();
    ensure!(warnings.is_empty(), "{warnings:?}");
    contains_all(
        &output.stdout,
        &["with the guards deletion, etcd, lxcfs", "rollout status deployment/durward"],
    )
}

#[e2e::case]
fn an_installation_differs_in_nothing_from_the_chart(context: &'static TestContext) -> Result<()> {
    installed(context)?.differs_in_nothing()
}

#[e2e::case]
fn a_second_release_is_refused(context: &'static TestContext) -> Result<()> {
    let environment = installed(context)?;
    let other = environment.node.namespace("other")?;
    let output = environment.helm.install(other.name(), &values())?;
    output.exited_with(1)?;
    let expected = format!("Durward is installed in this cluster as release durward in namespace {HOME}");
    contains_all(&output.stderr, &[&expected, "helm -n durward-system upgrade durward"])
}

/// An earlier chart had LXCFS in the namespace of the release. A move would end the files in all running containers.
#[e2e::case]
fn an_upgrade_does_not_move_lxcfs(context: &'static TestContext) -> Result<()> {
    let cluster = bare_cluster(context)?;
    let helm = Helm::of(context, &cluster)?;
    let template = json!({
        "metadata": {"labels": {"app": "lxcfs"}},
        "spec": {"containers": [{"name": "lxcfs", "image": "durward.test/lxcfs:1"}]},
    });
    let metadata = json!({
        "name": "durward-lxcfs",
        "labels": {"app.kubernetes.io/managed-by": "Helm"},
        "annotations": {"meta.helm.sh/release-name": Helm::RELEASE, "meta.helm.sh/release-namespace": HOME},
    });
    let running = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata,
        "spec": {"selector": {"matchLabels": {"app": "lxcfs"}}, "template": template},
    });
    cluster.api().create(&home_path("apps/v1/daemonsets"), &running)?.succeeded()?;
    let upgrade = |namespace: &str| {
        let mut values = values();
        let image = json!({"repository": "durward.test/lxcfs", "tag": "1"});
        values["lxcfs"] = json!({"enabled": true, "namespace": namespace, "image": image});
        helm.with_values(&["upgrade", "--install"], HOME, &values, &["--dry-run=server"])
    };
    let refused = upgrade("durward-lxcfs")?;
    refused.exited_with(1)?;
    contains_all(
        &refused.stderr,
        &["LXCFS runs in the namespace durward-system", "--set lxcfs.namespace=durward-system"],
    )?;
    upgrade(HOME)?.succeeded()?;
    cluster.api().delete(&format!("{}/durward-lxcfs", home_path("apps/v1/daemonsets")))?.succeeded().map(drop)
}

/// Helm refuses objects of kubectl without `--take-ownership`. It takes over an object of its own release that kubectl created
/// again.
#[e2e::case]
fn helm_takes_over_objects_that_kubectl_created(context: &'static TestContext) -> Result<()> {
    let cluster = bare_cluster(context)?;
    let helm = Helm::of(context, &cluster)?;
    let rendered = helm.template(HOME, &values())?.succeeded()?.stdout;
    let kubectl = cluster.kubectl();
    kubectl.apply(&rendered)?.succeeded()?;
    // No pod runs, so the webhooks deny everything until they are deleted.
    let removed = Undo::new("an installation is not removed", || {
        let webhooks = ["delete", "validatingwebhookconfiguration,mutatingwebhookconfiguration", "durward"];
        kubectl.run(&[&webhooks[..], &["--ignore-not-found"]].concat())?.succeeded()?;
        kubectl.run_with(&["delete", "--ignore-not-found", "-f", "-"], &rendered)?.succeeded().map(drop)
    });
    let refused = helm.with_values(&["install"], HOME, &values(), &[])?;
    refused.exited_with(1)?;
    contains_all(&refused.stderr, &["exists and cannot be imported into the current release"])?;
    helm.with_values(&["install"], HOME, &values(), &["--take-ownership"])?.succeeded()?;

    let map = cluster.api().get(&format!("{}/durward", home_path("configmaps")))?.succeeded()?.body;
    let text = map["data"]["durward.yaml"].as_str().context("no durward.yaml")?;
    let config = e2e::context::write(&context.directory("by-kubectl")?, "durward.yaml", text)?;
    let config = config.display().to_string();
    for path in WEBHOOKS {
        cluster.api().delete(path)?.succeeded()?;
    }
    let printed = Durward::command(context, &["manifests", "--config", &config, "--only", "webhooks"])?;
    kubectl.apply(&printed.succeeded()?.stdout)?.succeeded()?;
    helm.with_values(&["upgrade"], HOME, &values(), &[])?.succeeded()?;
    for path in WEBHOOKS {
        let metadata = cluster.api().get(path)?.succeeded()?.body["metadata"].take();
        ensure!(metadata["annotations"]["meta.helm.sh/release-name"] == Helm::RELEASE, "{metadata}");
    }
    removed.undo()
}
