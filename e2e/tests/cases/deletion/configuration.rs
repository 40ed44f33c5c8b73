//! Other configurations: audit mode, hidden names, and clusters without Karmada.

use std::time::Instant;

use e2e::fixture::Undo;
use e2e::prelude::*;
use e2e::pressure::Pressure;

use super::super::environment::scratch;
use super::environment::{GROUPS, exclusive_with, shared_with};
use super::objects::{annotate, create, delete, deployment, dry_run, exists, path_of};
use crate::cases::attempt::{await_allowed, await_denied, retry_until};
use crate::cases::objects::{allow, await_gone};

#[e2e::case(Reconfigures)]
fn audit_mode_allows_the_deletion_and_warns(context: &'static TestContext) -> Result<()> {
    let fleet = shared_with(context, &["fleet: karmada", "mode: audit", GROUPS])?;
    let shop = fleet.namespace("shop")?;
    let m2 = fleet.member("m2")?;
    m2.make_running_pod(&m2.existing_namespace(shop.name()), "web")?;
    let would_deny = || {
        fleet.durward(|durward| {
            Ok(durward.metrics()?.sum("durward_would_deny_total", &[("guard", "deletion")]))
        })
    };
    let before = would_deny()?;
    delete(fleet.karmada().api(), &path_of(&shop))?.allowed()?.with_warning("m2: 1 pod (web)")?;
    ensure!(would_deny()? > before + 0.5, "no counter increased");
    Ok(())
}

#[e2e::case(Reconfigures)]
fn names_count_hides_object_names(context: &'static TestContext) -> Result<()> {
    let fleet = shared_with(context, &["fleet: karmada", "showObjectNames: false", GROUPS])?;
    let shop = fleet.namespace("shop")?;
    let m2 = fleet.member("m2")?;
    m2.make_running_pod(&m2.existing_namespace(shop.name()), "very-secret")?;
    let denied = delete(fleet.karmada().api(), &path_of(&shop))?.denied()?.with_message(&["m2: 1 pod"])?;
    ensure!(
        !denied.describe().contains("very-secret"),
        "the response contains a name: {}",
        denied.describe()
    );
    exists(fleet.karmada(), &path_of(&shop))
}

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// The policies are inert within this time, or within the other one if processes wait for a processor.
const OFF_WITHIN: Duration = Duration::from_secs(2);
const OFF_WITHIN_IF_STARVED: Duration = Duration::from_secs(10);

/// On Karmada, policies and bindings are applied by hand. They are inert without the webhook configuration too.
#[e2e::case(Reconfigures)]
fn karmadas_policy_denies_until_the_webhooks_are_deleted(context: &'static TestContext) -> Result<()> {
    let selector = "webhook: {namespaceSelector: example.org/guarded=yes}";
    let fleet = exclusive_with(context, &["fleet: karmada", GROUPS, selector])?;
    let karmada = fleet.karmada();
    let printed = Durward::webhooks(context, fleet.installation().config())?;
    let only = ["apply", "-l", "app.kubernetes.io/managed-by=durward", "-f", "-"];
    let applied = karmada.kubectl().run_with(&only, &printed)?.succeeded()?.stdout;
    ensure!(
        applied.contains("durward-deletion-labels") && !applied.contains("webhookconfiguration"),
        "{applied}"
    );
    let ns = karmada.labelled_namespace("guarded", &[("example.org/guarded", "yes")])?;
    let path = format!("{}?dryRun=All", path_of(&ns));
    let leave =
        || karmada.api().merge(&path, &json!({"metadata": {"labels": {"example.org/guarded": null}}}));
    eventually("the policy to deny", WAIT_LIMIT, || {
        let answer = leave()?;
        let is_denied = answer.status == 403 && answer.message().contains("'durward-deletion-labels'");
        Ok(if is_denied { Poll::Ready(()) } else { Poll::Pending(answer.message().to_owned()) })
    })?;
    let configuration = format!("{CONFIGURATIONS}/durward");
    let mut saved = karmada.api().get(&configuration)?.succeeded()?.body;
    saved["metadata"] = json!({"name": "durward", "labels": saved["metadata"]["labels"]});
    let restored = Undo::new("the webhooks of Karmada do not return", || {
        karmada.api().create(CONFIGURATIONS, &saved)?.succeeded()?;
        let policies = "validatingadmissionpolicies,validatingadmissionpolicybindings";
        let delete = ["delete", policies, "-l", "app.kubernetes.io/managed-by=durward"];
        karmada.kubectl().run(&delete)?.succeeded().map(drop)
    });
    karmada.api().delete(&configuration)?.succeeded()?;
    let (deleted, pressure) = (Instant::now(), Pressure::begin());
    while !leave()?.is_success() {
        let limit = if pressure.is_starved() { OFF_WITHIN_IF_STARVED } else { OFF_WITHIN };
        ensure!(deleted.elapsed() < limit, "denied for more than {limit:?}");
    }
    restored.undo()
}

#[e2e::case]
fn only_labeled_namespaces_are_guarded_with_scope_labeled(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&scratch())?;
    let (_installation, _durward) =
        Installation::start(context, &cluster, "  deletion: {scope: labeled}", "durward-alone")?;
    only_labeled_namespaces_are_guarded(&cluster)
}

/// Expects that the guard `deletion` protects a labeled namespace while it is in use, and no other namespace.
pub(in crate::cases) fn only_labeled_namespaces_are_guarded(cluster: &Cluster) -> Result<()> {
    let guarded = cluster.labelled_namespace("guarded", &[("durward.dev/guard", "deletion")])?;
    let preview = cluster.namespace("preview")?;
    let web = create(&guarded, "apps/v1/deployments", &deployment("web", 0))?;
    create(&preview, "apps/v1/deployments", &deployment("web", 0))?;
    let try_guarded = || dry_run(cluster.api(), &path_of(&guarded));
    await_denied("the labeled namespace to be guarded", try_guarded)?;
    let words = format!("namespace \"{}\" is still in use: 1 Deployment (web)", guarded.name());
    delete(cluster.api(), &path_of(&guarded))?.denied()?.with_message(&[&words])?;
    delete(cluster.api(), &path_of(&preview))?.allowed()?.without_warnings()?;
    cluster.api().delete(&web)?.succeeded()?;
    await_gone(cluster, &web)?;
    delete(cluster.api(), &path_of(&guarded))?.allowed().map(drop)
}

/// No Karmada runs here: a review that needs the fleet is Unknown, and other deletions are allowed.
#[e2e::case]
fn only_labeled_namespaces_and_karmada_itself_are_reviewed(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&scratch())?;
    let mut installation = Installation::by_url(context, &cluster, "  deletion: {}")?;
    installation.configure("  deletion:\n    fleet: karmada\n    scope: labeled")?;
    let durward = installation.serve().named("durward-labelled").start_ready(context)?;
    installation.register()?;
    let guarded = cluster.labelled_namespace("guarded", &[("durward.dev/guard", "deletion")])?;
    let other = cluster.labelled_namespace("other", &[("durward.dev/guard", "lxcfs")])?;
    let plain = cluster.namespace("plain")?;
    let own = cluster.exact_namespace("karmada-system", &[])?;
    let unreadable = "the list of the fleet's clusters could not be read";
    let send = || dry_run(cluster.api(), &path_of(&guarded));
    retry_until("a review of the labeled namespace", send, |attempt| attempt.contains(unreadable))?;
    delete(cluster.api(), &path_of(&own))?.denied()?.with_message(&[unreadable])?;
    let reviews =
        || Ok::<_, anyhow::Error>(durward.metrics()?.sum("durward_reviews_total", &[("guard", "deletion")]));
    let before = reviews()?;
    delete(cluster.api(), &path_of(&plain))?.allowed()?.without_warnings()?;
    delete(cluster.api(), &path_of(&other))?.allowed()?.without_warnings()?;
    ensure!(reviews()? < before + 0.5, "Durward reviewed a namespace without the label");
    drop(installation);
    await_allowed("the webhooks to be removed", || dry_run(cluster.api(), &path_of(&own)))?;
    delete(cluster.api(), &path_of(&own))?.allowed().map(drop)
}

/// The API of Clusters lists nothing here, like one that leads to another server.
#[e2e::case]
fn only_an_empty_list_of_clusters_without_execution_namespaces_is_an_empty_fleet(
    context: &'static TestContext,
) -> Result<()> {
    let cluster = context.cluster(&scratch())?;
    let clusters = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusters.cluster.karmada.io"},
        "spec": {
            "group": "cluster.karmada.io", "scope": "Cluster",
            "names": {"plural": "clusters", "singular": "cluster", "kind": "Cluster", "listKind": "ClusterList"},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    cluster.api().create(crds, &clusters)?.succeeded()?;
    let (shop, other) = (cluster.namespace("shop")?, cluster.namespace("other")?);
    let space = cluster.exact_namespace("karmada-es-m1", &[])?;
    let rules = json!([{"apiGroups": ["cluster.karmada.io"], "resources": ["clusters"], "verbs": ["get", "list", "watch"]}]);
    allow(&cluster, "reads-clusters", &rules, "system:serviceaccount:durward-system:durward")?;
    let mut installation = Installation::by_url(context, &cluster, "  deletion: {}")?;
    installation.configure("  deletion: {fleet: karmada}")?;
    let _durward = installation.serve().named("durward-empty-fleet").start_ready(context)?;
    installation.register()?;
    let why = "the list of Clusters is empty, but namespace karmada-es-m1 exists";
    let send = || dry_run(cluster.api(), &path_of(&shop));
    retry_until("the empty list to be refused", send, |attempt| attempt.contains(why))?;
    for path in [path_of(&shop), path_of(&space)] {
        delete(cluster.api(), &path)?.denied()?.with_message(&[why])?;
    }
    annotate(&cluster, &path_of(&space), &json!({"durward.dev/break-glass": space.name()}))?;
    delete(cluster.api(), &path_of(&space))?.allowed()?;
    // No controller runs here that finishes the deletion.
    let mut finished = cluster.api().get(&path_of(&space))?.succeeded()?.body;
    finished["spec"]["finalizers"] = json!([]);
    cluster.api().replace(&format!("{}/finalize", path_of(&space)), &finished)?.succeeded()?;
    await_gone(&cluster, &path_of(&space))?;
    delete(cluster.api(), &path_of(&shop))?.allowed()?.with_warning("the fleet has no member clusters")?;
    delete(cluster.api(), &path_of(&other))?.allowed()?;
    // Other cases use this cluster without Karmada's APIs.
    drop(installation);
    let crd = format!("{crds}/clusters.cluster.karmada.io");
    await_allowed("the CRD to be deleted", || delete(cluster.api(), &crd))?;
    await_gone(&cluster, &crd)
}
