//! Objects that deny deleting a CRD, in any cluster and at any version.

use e2e::prelude::*;

use super::environment::{exclusive, shared};
use super::objects::{Crd, annotate, await_deleted_everywhere, await_status, exists, get, remove};
use crate::cases::objects::{await_gone, contains_all};

#[e2e::case]
fn objects_in_a_member_deny_deleting_a_propagated_crd(context: &'static TestContext) -> Result<()> {
    let fleet = shared(context)?;
    let widgets = Crd::new(&["v1"]);
    widgets.create_propagated(&fleet, false)?;
    let m1 = fleet.member("m1")?;
    // Karmada does not know this object or its namespace.
    let own = m1.namespace("own")?;
    let object = widgets.create_object(&own, "v1", "one")?;
    let expected = format!("m1: 1 object ({}/one)", own.name());
    fleet
        .delete(&widgets.path())?
        .denied()?
        .with_message(&[&expected, &widgets.name()])?
        .with_cause("m1", "InUse")?;
    exists(fleet.karmada(), &widgets.path())?;
    exists(m1, &object)?;

    remove(m1, &object)?;
    await_gone(m1, &object)?;
    fleet.delete(&widgets.path())?.allowed()?.without_warnings()?;
    await_deleted_everywhere(&fleet, &widgets.path())
}

#[e2e::case]
fn objects_on_the_control_plane_deny_deleting_a_crd(context: &'static TestContext) -> Result<()> {
    let fleet = shared(context)?;
    let widgets = Crd::new(&["v1"]);
    widgets.create_in(fleet.karmada())?;
    let shop = fleet.namespace("shop")?;
    let object = widgets.create_object(&shop, "v1", "one")?;
    let expected = format!("the control plane: 1 object ({}/one)", shop.name());
    fleet.delete(&widgets.path())?.denied()?.with_message(&[&expected])?;
    exists(fleet.karmada(), &object)?;
    remove(fleet.karmada(), &object)?;
    fleet.delete(&widgets.path())?.allowed()?;
    await_deleted_everywhere(&fleet, &widgets.path())
}

#[e2e::case]
fn a_member_is_read_at_the_version_that_it_serves(context: &'static TestContext) -> Result<()> {
    let fleet = shared(context)?;
    let (m1, karmada) = (fleet.member("m1")?, fleet.karmada());
    let widgets = Crd::new(&["v2"]);
    widgets.create_in(karmada)?;
    let older = widgets.with_versions(&["v1"]);
    older.create_in(m1)?;
    let object = older.create_object(&m1.namespace("own")?, "v1", "one")?;
    // The path that a reader at the control plane's version would get.
    let path = widgets.objects("v2", "default");
    let durward = karmada.certified("durward", None)?;
    let other = durward.api.get(&fleet.proxied("m1", &path))?;
    ensure!(other.status == 404, "m1 answers {} for {path}", other.status);

    fleet.delete(&widgets.path())?.denied()?.with_message(&["m1: 1 object ("])?;
    remove(m1, &object)?;
    fleet.delete(&widgets.path())?.allowed()?.without_warnings()?;
    await_gone(karmada, &widgets.path())?;
    // Karmada never knew the CRD in m1.
    exists(m1, &widgets.path())
}

#[e2e::case]
fn a_crd_of_another_group_is_denied_with_the_missing_line(context: &'static TestContext) -> Result<()> {
    let fleet = shared(context)?;
    let others = Crd::new(&["v1"]).of_group("other.example.org");
    others.create_in(fleet.karmada())?;
    fleet.delete(&others.path())?.denied()?.with_message(&[
        "cannot tell whether CRD",
        "crds: {apiGroups: [shop.example.org, other.example.org]}",
    ])?;
    exists(fleet.karmada(), &others.path())
}

#[e2e::case]
fn deletecollection_keeps_the_crd_in_use(context: &'static TestContext) -> Result<()> {
    let fleet = shared(context)?;
    let karmada = fleet.karmada();
    let mut both = [Crd::new(&["v1"]), Crd::new(&["v1"])];
    // A collection is deleted in the order of names, and the first denial ends it.
    both.sort_by_key(Crd::name);
    let [free, used] = both.map(|one| one.labelled(json!({"lab": "collected"})));
    for crd in [&free, &used] {
        crd.create_in(karmada)?;
    }
    let m2 = fleet.member("m2")?;
    used.create_in(m2)?;
    let object = used.create_object(&m2.namespace("own")?, "v1", "one")?;

    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?labelSelector=lab%3Dcollected";
    let deleted = karmada.kubectl().run(&["delete", "--raw", path])?;
    ensure!(!deleted.is_success(), "the collection was deleted: {}", deleted.stdout);
    contains_all(&deleted.stderr, &[used.name().as_str(), "m2: 1 object ("])?;
    exists(karmada, &used.path())?;
    exists(m2, &object)?;
    await_gone(karmada, &free.path())?;

    remove(m2, &object)?;
    karmada.kubectl().run(&["delete", "--raw", path])?.succeeded()?;
    await_gone(karmada, &used.path())
}

#[e2e::case(Exclusive)]
fn a_conversion_webhook_that_is_down_makes_a_crd_unknown(context: &'static TestContext) -> Result<()> {
    // Exclusive: meanwhile no namespace in m1 can be deleted, because its controller lists these objects too.
    let fleet = exclusive(context)?;
    let (karmada, m1) = (fleet.karmada(), fleet.member("m1")?);
    let widgets = Crd::new(&["v1"]);
    for cluster in [karmada, m1] {
        widgets.create_in(cluster)?;
    }
    let own = m1.namespace("own")?;
    let object = widgets.create_object(&own, "v1", "one")?;
    // Stored at v1; reads at another version need a webhook that does not run.
    let mut changed = widgets.with_versions(&["v1", "v2"]).object();
    changed["spec"]["conversion"] = json!({
        "strategy": "Webhook",
        "webhook": {"clientConfig": {"url": "https://127.0.0.1:1/convert"}, "conversionReviewVersions": ["v1"]},
    });
    let spec = json!({"spec": changed["spec"]});
    m1.api().merge(&widgets.path(), &spec)?.succeeded()?;
    let converted = Undo::new("a CRD keeps its conversion webhook", || {
        let none = json!({"spec": {"conversion": {"strategy": "None", "webhook": null}}});
        m1.api().merge(&widgets.path(), &none)?.succeeded().map(drop)
    });
    let read = widgets.objects("v2", own.name());
    await_status(m1, &read, |status| status == 429 || status >= 500)?;

    fleet
        .delete(&widgets.path())?
        .denied()?
        .with_message(&["member cluster m1 could not be checked ("])?
        .with_cause("m1", "Unknown")?;
    exists(karmada, &widgets.path())?;

    drop(converted);
    await_status(m1, &read, |status| status == 200)?;
    fleet.dry_run(&widgets.path())?.denied()?.with_cause("m1", "InUse")?;
    remove(m1, &object)?;
    fleet.delete(&widgets.path())?.allowed()?;
    await_gone(karmada, &widgets.path())
}

#[e2e::case]
fn a_terminating_crd_can_be_deleted_again(context: &'static TestContext) -> Result<()> {
    let fleet = shared(context)?;
    let karmada = fleet.karmada();
    let widgets = Crd::new(&["v1"]);
    widgets.create_in(karmada)?;
    let shop = fleet.namespace("shop")?;
    let object = widgets.create_object(&shop, "v1", "one")?;
    // The CRD waits for its object, which waits for its finalizer.
    let held = json!({"metadata": {"finalizers": ["example.org/held"]}});
    karmada.api().merge(&object, &held)?.succeeded()?;
    let passing = json!({"durward.dev/break-glass": widgets.name()});
    annotate(karmada, &widgets.path(), &passing)?;
    fleet.delete(&widgets.path())?.allowed()?;
    annotate(karmada, &widgets.path(), &json!({"durward.dev/break-glass": null}))?;
    let crd = get(karmada, &widgets.path())?;
    crd["metadata"]["deletionTimestamp"].as_str().context("it is not being deleted")?;
    fleet.delete(&widgets.path())?.allowed()?;
    karmada.api().merge(&object, &json!({"metadata": {"finalizers": null}}))?.succeeded()?;
    await_gone(karmada, &widgets.path())
}
