//! A release in a namespace that enforces Pod Security `restricted`.

use e2e::prelude::*;

use super::configurations::HOME;
use super::environment::{installed, pod_gets_files, values, without_node};
use crate::cases::objects::contains_all;

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

/// The manifest can be applied again, because fields that Durward writes are not in it.
#[e2e::case]
fn an_installation_differs_in_nothing_from_the_chart(context: &'static TestContext) -> Result<()> {
    let environment = installed(context)?;
    let manifest =
        environment.helm.run(&["get", "manifest", Helm::RELEASE, "--namespace", HOME])?.succeeded()?.stdout;
    let kubectl = environment.node.cluster().kubectl();
    for more in [&[][..], &["--server-side", "--force-conflicts"][..]] {
        let output = kubectl.run_with(&[&["diff", "-f", "-"], more].concat(), &manifest)?;
        output.exited_with(0).with_context(|| format!("{more:?}"))?;
        ensure!(output.stdout.is_empty(), "{more:?}: {}", output.stdout);
    }
    Ok(())
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

#[e2e::case]
fn a_second_installation_besides_one_by_kubectl_is_refused(context: &'static TestContext) -> Result<()> {
    let cluster = context.own_cluster(&Options::named("by-kubectl"))?;
    cluster.exact_namespace(HOME, &[])?;
    let helm = Helm::of(context, &cluster)?;
    let rendered = helm.template(HOME, &values())?.succeeded()?.stdout;
    cluster.kubectl().apply(&rendered)?.succeeded()?;
    let output = helm.install(HOME, &values())?;
    output.exited_with(1)?;
    contains_all(
        &output.stderr,
        &["durward that no Helm release owns", "Remove the other installation first"],
    )
}
