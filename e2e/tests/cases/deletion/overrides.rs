//! The override: who can use it, with which annotations, and that it works while Durward is down.

use std::time::SystemTime;

use e2e::prelude::*;
use k8s_openapi::jiff::Timestamp;

use super::environment::{exclusive, shared};
use super::objects::{Crd, annotate, delete, dry_run, exists, path_of};
use crate::cases::objects::allow;

const BREAK_GLASS: &str = "durward.dev/break-glass";
const ANYWAY: &str = "durward.dev/delete-anyway";
const REASON: &str = "durward.dev/delete-reason";
const UNTIL: &str = "durward.dev/delete-until";

/// Returns a time from now in RFC 3339, in whole seconds.
pub(super) fn time_in(by: Duration) -> Result<String> {
    let time = (SystemTime::now() + by).duration_since(SystemTime::UNIX_EPOCH)?;
    Ok(Timestamp::from_second(i64::try_from(time.as_secs())?)?.to_string())
}

#[e2e::case]
fn an_administrator_needs_only_the_annotation(context: &'static TestContext) -> Result<()> {
    let fleet = shared(context)?;
    let (shop, path) = fleet.new_namespace("shop")?;
    fleet.run_pod("m2", &shop, "web")?;
    let root = fleet.karmada().certified("root", Some("system:masters"))?;
    delete(&root.api, &path)?.denied()?.with_message(&["m2: 1 pod (web)"])?;

    annotate(fleet.karmada(), &path, &json!({BREAK_GLASS: "another"}))?;
    let wrong = "break-glass is \"another\", expected ".to_owned();
    delete(&root.api, &path)?.denied()?.with_message(&["m2: 1 pod (web)", &wrong])?;
    exists(fleet.karmada(), &path)?;

    annotate(fleet.karmada(), &path, &json!({BREAK_GLASS: shop.name()}))?;
    // The API server first decides by the object in its cache. If the object changed meanwhile, the API server calls the webhook again.
    until("the API server's cache to contain the annotation", || {
        let cached = fleet.karmada().api().get(&format!("{path}?resourceVersion=0"))?;
        let annotation = cached.body["metadata"]["annotations"][BREAK_GLASS].to_string();
        Ok((annotation.contains(shop.name()), annotation))
    })?;
    delete(&root.api, &path)?.allowed()?.without_warnings()?;
    ensure!(
        count_rulings(&fleet, shop.name())? == 2,
        "Durward reviewed a request that the API server decides"
    );
    Ok(())
}

#[e2e::case(Exclusive)]
fn an_administrator_can_override_while_durward_is_down(context: &'static TestContext) -> Result<()> {
    let fleet = exclusive(context)?;
    let (shop, other) = (fleet.namespace("shop")?, fleet.namespace("other")?);
    let widgets = Crd::new(&["v1"]);
    widgets.create_in(fleet.karmada())?;
    widgets.create_object(&other, "v1", "one")?;
    fleet.run_pod("m3", &shop, "web")?;
    let api = fleet.karmada().api();
    let down = fleet.stop_durward(context);
    for path in [path_of(&shop), path_of(&other), widgets.path()] {
        let denied = api.delete(&path)?;
        let words = "failed calling webhook \"deletion.durward.dev\"";
        ensure!(denied.message().contains(words), "{path}: {} {}", denied.status, denied.message());
        exists(fleet.karmada(), &path)?;
    }
    for (path, name) in [(path_of(&shop), shop.name()), (widgets.path(), widgets.name().as_str())] {
        annotate(fleet.karmada(), &path, &json!({BREAK_GLASS: name}))?;
        fleet.delete(&path)?.allowed()?;
    }
    drop(down);
    // The restarted server denies as before.
    let path = path_of(&other);
    fleet.run_pod("m3", &other, "web")?;
    fleet.delete(&path)?.denied()?.with_message(&["m3: 1 pod (web)"]).map(drop)
}

#[e2e::case]
fn a_user_without_the_verb_needs_name_reason_and_expiry(context: &'static TestContext) -> Result<()> {
    let fleet = shared(context)?;
    let karmada = fleet.karmada();
    let (shop, path) = fleet.new_namespace("shop")?;
    fleet.run_pod("m1", &shop, "web")?;
    let name = format!("deleter-of-{}", shop.name());
    let ann = karmada.user(&name, &["system:authenticated"])?;
    let rules =
        json!([{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "delete", "patch"]}]);
    allow(karmada, &name, &rules, &name)?;
    ann.await_permitted(&path)?;

    let (soon, later) = (time_in(Duration::from_secs(3600))?, time_in(Duration::from_secs(48 * 3600))?);
    let all =
        |anyway: &str, reason: Value, until: Value| json!({ANYWAY: anyway, REASON: reason, UNTIL: until});
    let own = shop.name();
    let wrong: [(Value, Vec<&str>); 6] = [
        (all(own, Value::Null, Value::Null), vec!["delete-reason is missing", "delete-until is missing"]),
        (all(own, json!("  "), json!(soon)), vec!["delete-reason is empty"]),
        (
            all(own, json!("moved"), json!("2026-01-01T00:00:00Z")),
            vec!["2026-01-01T00:00:00Z is in the past"],
        ),
        (all(own, json!("moved"), json!(later)), vec!["more than 24 hours ahead"]),
        (all(own, json!("moved"), json!("tonight")), vec!["\"tonight\" is not a time"]),
        (all("shop", json!("moved"), json!(soon)), vec!["delete-anyway is \"shop\", expected "]),
    ];
    delete(&ann.api, &path)?.denied()?.without_text(&["Override ignored"])?;
    for (annotations, words) in &wrong {
        annotate(karmada, &path, annotations)?;
        delete(&ann.api, &path)?.denied()?.with_message(&["m1: 1 pod (web)"])?.with_message(words)?;
        exists(karmada, &path)?;
    }
    annotate(karmada, &path, &all(own, json!("moved to m9"), json!(soon)))?;
    dry_run(&ann.api, &path)?.allowed()?;
    delete(&ann.api, &path)?.allowed()?.with_warning("moved to m9")?;
    let log = fleet.durward(Durward::log)?;
    let line = log.lines().rfind(|line| line.contains(own)).context("the log has no line of it")?;
    ensure!(line.contains("\"allow\"") && line.contains(&name), "the log line is {line}");
    // The audit log of the API server has the findings, and finally why they did not count.
    let output = |key: &str| -> Result<Vec<String>> {
        let key = format!("deletion.durward.dev/{key}");
        let events = fleet.audited(own)?;
        Ok(events.iter().filter_map(|event| Some(event["annotations"][&key].as_str()?.to_owned())).collect())
    };
    ensure!(
        output("in-use")? == vec!["m1"; wrong.len() + 1],
        "the clusters in use in the audit log: {:?}",
        output("in-use")?
    );
    let overrides = output("override")?;
    let is_recorded =
        overrides.last().is_some_and(|last| last.contains("moved to m9") && last.contains(&soon));
    ensure!(is_recorded, "the overrides in the audit log: {overrides:?}");
    Ok(())
}

/// Returns how many rulings about an object of this name are in the log.
fn count_rulings(fleet: &super::environment::SharedFleet, name: &str) -> Result<usize> {
    let log = fleet.durward(Durward::log)?;
    Ok(log.lines().filter(|line| line.contains(&format!("\"{name}\""))).count())
}
