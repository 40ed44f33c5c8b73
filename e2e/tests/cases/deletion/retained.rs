//! Resources that stay in a member after a deletion. Each case deletes for real and looks afterwards.

use e2e::prelude::*;

use super::environment::{GROUPS, shared, shared_with};
use super::objects::{Crd, annotate, await_deleted_everywhere, create, deployment, exists, path_of};
use crate::cases::objects::{await_gone, list};

const BREAK_GLASS: &str = "durward.dev/break-glass";

/// The configuration of cases about resources that Karmada did not propagate.
const IGNORING: [&str; 3] = ["fleet: karmada", "unmanagedResources: ignore", GROUPS];

#[e2e::case]
fn preserve_on_deletion_does_not_allow_the_deletion(context: &'static TestContext) -> Result<()> {
    let fleet = shared(context)?;
    let (shop, path) = fleet.new_namespace("shop")?;
    let web = create(&shop, "apps/v1/deployments", &deployment("web", 0))?;
    propagate(&shop, "web", true)?;
    let m1 = fleet.member("m1")?;
    fleet.await_propagated(m1, &web)?;
    let words = ["the control plane: 1 Deployment (web)", "m1: 1 Deployment (web)"];
    fleet.delete(&path)?.denied()?.with_message(&words)?.with_cause("m1", "InUse")?;
    exists(m1, &web)?;
    // The denial was right: the Deployment is deleted.
    annotate(fleet.karmada(), &path, &json!({BREAK_GLASS: shop.name()}))?;
    fleet.delete(&path)?.allowed()?;
    await_gone(m1, &web)
}

#[e2e::case(Reconfigures)]
fn an_unmanaged_namespace_stays_with_its_content(context: &'static TestContext) -> Result<()> {
    let fleet = shared_with(context, &IGNORING)?;
    let m1 = fleet.member("m1")?;
    let own = m1.namespace("older")?;
    m1.make_running_pod(&own, "web")?;
    let shop = fleet.karmada().exact_namespace(own.name(), &[])?;
    let path = path_of(&shop);
    for name in ["m2", "m3"] {
        fleet.await_propagated(fleet.member(name)?, &path)?;
    }
    fleet.delete(&path)?.allowed()?.with_warning("m1 would keep 1 pod (web")?;
    for name in ["m2", "m3"] {
        await_gone(fleet.member(name)?, &path)?;
    }
    await_gone(fleet.karmada(), &path)?;
    await_no_works(&fleet, "m1", shop.name())?;
    exists(m1, &path)?;
    exists(m1, &format!("{}/web", own.path("pods")))
}

#[e2e::case(Reconfigures)]
fn everything_in_a_propagated_namespace_counts(context: &'static TestContext) -> Result<()> {
    let fleet = shared_with(context, &IGNORING)?;
    let (shop, path) = fleet.new_namespace("shop")?;
    fleet.await_seen(&shop)?;
    let m3 = fleet.member("m3")?;
    let inside = m3.existing_namespace(shop.name());
    m3.make_running_pod(&inside, "web")?;
    fleet.delete(&path)?.denied()?.with_message(&["m3: 1 pod (web)"])?;
    exists(fleet.karmada(), &path)?;
    // The denial was right: the pod is deleted.
    annotate(fleet.karmada(), &path, &json!({BREAK_GLASS: shop.name()}))?;
    fleet.delete(&path)?.allowed()?;
    await_gone(m3, &format!("{}/web", inside.path("pods")))
}

#[e2e::case(Reconfigures)]
fn pods_of_a_propagated_deployment_are_deleted(context: &'static TestContext) -> Result<()> {
    let fleet = shared_with(context, &IGNORING)?;
    let m1 = fleet.member("m1")?;
    let own = m1.namespace("older")?;
    m1.make_running_pod(&own, "own")?;
    let shop = fleet.karmada().exact_namespace(own.name(), &[])?;
    let path = path_of(&shop);
    let web = create(&shop, "apps/v1/deployments", &deployment("web", 1))?;
    propagate(&shop, "web", false)?;
    fleet.await_propagated(m1, &web)?;
    let pods = own.path("pods");
    let count = || list(m1.api(), &pods).map(|pods| pods.len());
    await_count("the Deployment to have its pod", 2, count)?;
    let denied = fleet.delete(&path)?.denied()?;
    // The cluster has two pods, and one of them is deleted.
    denied.with_message(&["m1: 1 pod (web-"])?.with_cause("m1", "InUse")?;
    exists(m1, &web)?;
    annotate(fleet.karmada(), &path, &json!({BREAK_GLASS: shop.name()}))?;
    fleet.delete(&path)?.allowed()?;
    await_gone(m1, &web)?;
    await_count("the Deployment's pod to go", 1, count)?;
    await_gone(fleet.karmada(), &path)?;
    exists(m1, &path)?;
    exists(m1, &format!("{pods}/own"))
}

#[e2e::case(Reconfigures)]
fn objects_of_an_unmanaged_crd_stay(context: &'static TestContext) -> Result<()> {
    let fleet = shared_with(context, &IGNORING)?;
    let m1 = fleet.member("m1")?;
    let widgets = Crd::new(&["v1"]);
    widgets.create_in(fleet.karmada())?;
    widgets.create_in(m1)?;
    let object = widgets.create_object(&m1.namespace("own")?, "v1", "one")?;
    fleet.delete(&widgets.path())?.allowed()?.with_warning("m1 would keep 1 object (")?;
    await_gone(fleet.karmada(), &widgets.path())?;
    await_no_works(&fleet, "m1", &widgets.name())?;
    exists(m1, &widgets.path())?;
    exists(m1, &object)
}

#[e2e::case(Reconfigures)]
fn all_objects_of_a_propagated_crd_are_deleted(context: &'static TestContext) -> Result<()> {
    let fleet = shared_with(context, &IGNORING)?;
    let m1 = fleet.member("m1")?;
    let widgets = Crd::new(&["v1"]);
    widgets.create_propagated(&fleet, false)?;
    let object = widgets.create_object(&m1.namespace("own")?, "v1", "one")?;
    fleet.delete(&widgets.path())?.denied()?.with_message(&["m1: 1 object ("])?;
    exists(m1, &object)?;
    annotate(fleet.karmada(), &widgets.path(), &json!({BREAK_GLASS: widgets.name()}))?;
    fleet.delete(&widgets.path())?.allowed()?;
    await_gone(m1, &object)?;
    await_deleted_everywhere(&fleet, &widgets.path())
}

#[e2e::case(Reconfigures)]
fn a_preserved_crd_stays_with_its_unmanaged_objects(context: &'static TestContext) -> Result<()> {
    let fleet = shared_with(context, &IGNORING)?;
    let m1 = fleet.member("m1")?;
    let widgets = Crd::new(&["v1"]);
    widgets.create_propagated(&fleet, true)?;
    let object = widgets.create_object(&m1.namespace("own")?, "v1", "one")?;
    fleet.delete(&widgets.path())?.allowed()?.with_warning("m1 would keep 1 object (")?;
    await_gone(fleet.karmada(), &widgets.path())?;
    let binding = format!(
        "/apis/work.karmada.io/v1alpha2/clusterresourcebindings/{}-customresourcedefinition",
        widgets.name()
    );
    await_gone(fleet.karmada(), &binding)?;
    await_no_works(&fleet, "m1", &widgets.name())?;
    exists(m1, &widgets.path())?;
    exists(m1, &object)
}

#[e2e::case]
fn unmanaged_resources_deny_the_deletion_by_default(context: &'static TestContext) -> Result<()> {
    let fleet = shared(context)?;
    let m1 = fleet.member("m1")?;
    let own = m1.namespace("older")?;
    m1.make_running_pod(&own, "web")?;
    let shop = fleet.karmada().exact_namespace(own.name(), &[])?;
    let path = path_of(&shop);
    fleet.dry_run(&path)?.denied()?.with_message(&["m1: 1 pod (web)"])?;
    let widgets = Crd::new(&["v1"]);
    widgets.create_propagated(&fleet, true)?;
    widgets.create_object(&own, "v1", "one")?;
    fleet.dry_run(&widgets.path())?.denied()?.with_message(&["m1: 1 object ("]).map(drop)
}

/// Makes Karmada propagate a Deployment of a namespace to m1.
fn propagate(namespace: &Namespace<'_>, deployment: &str, preserved: bool) -> Result<()> {
    let policy = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy", "metadata": {"name": deployment},
        "spec": {
            "preserveResourcesOnDeletion": preserved,
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment}],
            "placement": {"clusterAffinity": {"clusterNames": ["m1"]}},
        },
    });
    create(namespace, "policy.karmada.io/v1alpha1/propagationpolicies", &policy).map(drop)
}

/// Waits until Karmada has no more work in a member for this name. Only then is the state of the member
/// final.
fn await_no_works(fleet: &Fleet, member: &str, name: &str) -> Result<()> {
    let path = format!("/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-{member}/works");
    eventually(format_args!("Karmada to be done with {name} in {member}"), WAIT_LIMIT, || {
        let works = list(fleet.karmada().api(), &path)?;
        let about = |work: &&Value| {
            let manifests = work["spec"]["workload"]["manifests"].as_array();
            manifests.into_iter().flatten().any(|manifest| manifest["metadata"]["name"] == name)
        };
        Ok(match works.iter().find(about) {
            Some(work) => Poll::Pending(work["metadata"].to_string()),
            None => Poll::Ready(()),
        })
    })
}

fn await_count(what: &str, expected: usize, count: impl Fn() -> Result<usize>) -> Result<()> {
    until(what, || {
        let now = count()?;
        ensure!(now < 100, "there are {now}");
        Ok((now == expected, format!("{now}")))
    })
}
