//! What keeps a `CustomResourceDefinition`: its objects, wherever they are and whatever version they have.

use anyhow::{Context as _, Result, ensure};
use e2e::api::Answer;
use e2e::console::print;
use e2e::context::TestContext;
use e2e::fleet::Member;
use serde_json::json;

use super::attempt::{delete, try_delete};
use super::house::{alone, beside};
use super::objects::{
    Definition, annotate, await_answer, await_gone, await_gone_everywhere, remove, there, untouched,
};

#[e2e::case]
fn objects_in_a_member_deny_deleting_a_propagated_crd(context: &'static TestContext) -> Result<()> {
    let fleet = beside(context)?;
    let widgets = Definition::new(&["v1"]);
    widgets.propagated(&fleet, false)?;
    let m1 = fleet.member("m1")?;
    // Behind Karmada's back, in a namespace that it does not know either.
    let own = m1.namespace("own")?;
    let object = widgets.make(&own, "v1", "one")?;
    let api = fleet.karmada().api();
    let told = format!("m1 (1 object: {}/one)", own.name());
    delete(api, &widgets.path())?.refused()?.saying(&[&told, &widgets.name()])?.telling("m1", "InUse")?;
    untouched(fleet.karmada(), &widgets.path())?;
    untouched(m1, &object)?;

    remove(m1, &object)?;
    await_gone(m1, "m1", &object)?;
    delete(api, &widgets.path())?.allowed()?.without_warnings()?;
    await_gone_everywhere(&fleet, &widgets.path())
}

#[e2e::case]
fn objects_on_the_control_plane_deny_deleting_a_crd(context: &'static TestContext) -> Result<()> {
    let fleet = beside(context)?;
    let widgets = Definition::new(&["v1"]);
    widgets.in_cluster(fleet.karmada())?;
    let shop = fleet.namespace("shop")?;
    let object = widgets.make(&shop, "v1", "one")?;
    let api = fleet.karmada().api();
    let told = format!("the control plane (1 object: {}/one)", shop.name());
    delete(api, &widgets.path())?.refused()?.saying(&[&told])?;
    untouched(fleet.karmada(), &object)?;
    remove(fleet.karmada(), &object)?;
    delete(api, &widgets.path())?.allowed()?;
    await_gone_everywhere(&fleet, &widgets.path())
}

#[e2e::case]
fn a_member_is_read_at_the_version_that_it_serves(context: &'static TestContext) -> Result<()> {
    let fleet = beside(context)?;
    let (m1, karmada) = (fleet.member("m1")?, fleet.karmada());
    let widgets = Definition::new(&["v2"]);
    widgets.in_cluster(karmada)?;
    let older = widgets.at(&["v1"]);
    older.in_cluster(m1)?;
    let object = older.make(&m1.namespace("own")?, "v1", "one")?;
    // What a look at the control plane's version would get.
    let path = widgets.objects("v2", "default");
    let durward = karmada.certified("durward", None)?;
    let other = durward.api.get(&fleet.proxied("m1", &path))?;
    ensure!(other.status == 404, "m1 answers {} for {path}", other.status);

    delete(karmada.api(), &widgets.path())?.refused()?.saying(&["m1 (1 object: "])?;
    remove(m1, &object)?;
    delete(karmada.api(), &widgets.path())?.allowed()?.without_warnings()?;
    await_gone(karmada, "the control plane", &widgets.path())?;
    // Karmada never knew of m1's.
    untouched(m1, &widgets.path())
}

#[e2e::case]
fn a_crd_of_another_group_is_denied_with_the_missing_line(context: &'static TestContext) -> Result<()> {
    let fleet = beside(context)?;
    let others = Definition::new(&["v1"]).of_group("other.example.org");
    others.in_cluster(fleet.karmada())?;
    delete(fleet.karmada().api(), &others.path())?
        .refused()?
        .saying(&["could not be checked", "crds: {groups: [shop.example.org, other.example.org]}"])?;
    untouched(fleet.karmada(), &others.path())
}

#[e2e::case]
fn deletecollection_keeps_the_crd_in_use(context: &'static TestContext) -> Result<()> {
    let fleet = beside(context)?;
    let karmada = fleet.karmada();
    let mut both = [Definition::new(&["v1"]), Definition::new(&["v1"])];
    // They are deleted in the order of their names, and the first refusal ends it.
    both.sort_by_key(Definition::name);
    let [free, used] = both.map(|one| one.labelled(json!({"lab": "collected"})));
    for definition in [&free, &used] {
        definition.in_cluster(karmada)?;
    }
    let m2 = fleet.member("m2")?;
    used.in_cluster(m2)?;
    let object = used.make(&m2.namespace("own")?, "v1", "one")?;

    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?labelSelector=lab%3Dcollected";
    let deleted = karmada.kubectl().run(&["delete", "--raw", path])?;
    ensure!(!deleted.is_success(), "the collection was deleted: {}", deleted.stdout);
    for words in [used.name().as_str(), "m2 (1 object: "] {
        ensure!(deleted.stderr.contains(words), "kubectl does not say {words:?}: {}", deleted.stderr);
    }
    untouched(karmada, &used.path())?;
    untouched(m2, &object)?;
    await_gone(karmada, "the control plane", &free.path())?;

    remove(m2, &object)?;
    karmada.kubectl().run(&["delete", "--raw", path])?.succeeded()?;
    await_gone(karmada, "the control plane", &used.path())
}

#[e2e::case(Exclusive)]
fn a_conversion_webhook_that_is_down_makes_a_crd_unknown(context: &'static TestContext) -> Result<()> {
    // Alone: while it lasts, no namespace at all can be deleted in m1, whose controller looks for these objects
    // too.
    let fleet = alone(context)?;
    let (karmada, m1) = (fleet.karmada(), fleet.member("m1")?);
    let widgets = Definition::new(&["v1"]);
    for cluster in [karmada, m1] {
        widgets.in_cluster(cluster)?;
    }
    let own = m1.namespace("own")?;
    let object = widgets.make(&own, "v1", "one")?;
    // Stored at v1, and to be converted to whatever is asked for by somebody who is not there.
    let mut changed = widgets.at(&["v1", "v2"]).object();
    changed["spec"]["conversion"] = json!({
        "strategy": "Webhook",
        "webhook": {"clientConfig": {"url": "https://127.0.0.1:1/convert"}, "conversionReviewVersions": ["v1"]},
    });
    let spec = json!({"spec": changed["spec"]});
    m1.api().merge(&widgets.path(), &spec)?.succeeded()?;
    let converted = Converted { member: m1, path: widgets.path() };
    let read = widgets.objects("v2", own.name());
    await_answer(m1, &read, |status| status == 429 || status >= 500)?;

    delete(karmada.api(), &widgets.path())?
        .refused()?
        .saying(&["could not be checked in 1 of 4 clusters: m1 ("])?
        .telling("m1", "Unknown")?;
    untouched(karmada, &widgets.path())?;

    drop(converted);
    await_answer(m1, &read, |status| status == 200)?;
    try_delete(karmada.api(), &widgets.path())?.refused()?.telling("m1", "InUse")?;
    remove(m1, &object)?;
    delete(karmada.api(), &widgets.path())?.allowed()?;
    await_gone(karmada, "the control plane", &widgets.path())
}

/// A definition whose conversion webhook is not there, until this is dropped.
struct Converted<'a> {
    member: &'a Member,
    path: String,
}

impl Drop for Converted<'_> {
    fn drop(&mut self) {
        let none = json!({"spec": {"conversion": {"strategy": "None", "webhook": null}}});
        let done = self.member.api().merge(&self.path, &none).and_then(Answer::succeeded);
        if let Err(error) = done {
            print(format_args!("a definition keeps its conversion webhook: {error:#}"));
        }
    }
}

#[e2e::case]
fn a_terminating_crd_can_be_deleted_again(context: &'static TestContext) -> Result<()> {
    let fleet = beside(context)?;
    let karmada = fleet.karmada();
    let widgets = Definition::new(&["v1"]);
    widgets.in_cluster(karmada)?;
    let shop = fleet.namespace("shop")?;
    let object = widgets.make(&shop, "v1", "one")?;
    // It waits for its object, which waits for somebody.
    let held = json!({"metadata": {"finalizers": ["example.org/held"]}});
    karmada.api().merge(&object, &held)?.succeeded()?;
    let anyway = json!({"durward.dev/delete-anyway": widgets.name()});
    annotate(karmada, &widgets.path(), &anyway)?;
    delete(karmada.api(), &widgets.path())?.allowed()?;
    annotate(karmada, &widgets.path(), &json!({"durward.dev/delete-anyway": null}))?;
    let definition = there(karmada, &widgets.path())?;
    definition["metadata"]["deletionTimestamp"].as_str().context("it is not being deleted")?;
    delete(karmada.api(), &widgets.path())?.allowed()?;
    karmada.api().merge(&object, &json!({"metadata": {"finalizers": null}}))?.succeeded()?;
    await_gone(karmada, "the control plane", &widgets.path())
}
