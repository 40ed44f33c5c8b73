//! Responses that a real member cannot be made to give. Durward must not take one of them for an empty response.

use e2e::fault::{Fault, Proxy};
use e2e::prelude::*;

use super::environment::exclusive;
use super::members::{await_allowed, await_through};
use super::objects::{Crd, path_of, remove};

/// A member has three of the ten seconds of a review.
const IN_TIME: Duration = Duration::from_secs(6);

fn faults() -> Vec<(Fault, &'static str)> {
    let error = Fault::Status { code: 500, reason: "InternalError", message: "etcdserver: leader changed" };
    let absent = Fault::Status { code: 404, reason: "NotFound", message: "the server could not find it" };
    let teapot = Fault::Answer { status: 418, content_type: "text/plain", body: "I am a teapot".to_owned() };
    let redirect = Fault::Answer { status: 302, content_type: "text/html", body: "<a>login</a>".to_owned() };
    let array = Fault::Answer { status: 200, content_type: "application/json", body: "[]".to_owned() };
    let nothing = Fault::Answer { status: 200, content_type: "application/json", body: "{}".to_owned() };
    let null = Fault::Answer { status: 200, content_type: "application/json", body: "null".to_owned() };
    let created = Fault::Answer { status: 204, content_type: "application/json", body: String::new() };
    vec![
        (Fault::Reset, "unreachable"),
        (Fault::Expired, "busy"),
        (Fault::TooMany { retry_after: 1 }, "busy"),
        (error, "busy"),
        (Fault::EmptyReason, "busy"),
        (Fault::NotFoundText, "not-served"),
        (absent, "not-served"),
        (Fault::Garbage, "garbage"),
        (Fault::Text, "garbage"),
        (Fault::Html, "garbage"),
        (Fault::Empty, "garbage"),
        (Fault::Cut, "garbage"),
        (Fault::BrokenOff, ""),
        (Fault::OtherKind, "garbage"),
        (teapot, "refused"),
        (redirect, "refused"),
        (array, "garbage"),
        (nothing, "garbage"),
        (null, "garbage"),
        (created, ""),
        (Fault::Silence, "timeout"),
    ]
}

#[e2e::case(Exclusive)]
fn no_malformed_response_counts_as_an_empty_namespace(context: &'static TestContext) -> Result<()> {
    let fleet = exclusive(context)?;
    let (shop, path) = fleet.new_namespace("shop")?;
    let m1 = fleet.member("m1")?;
    let proxy = Proxy::before(m1.url(), m1.ca())?;
    {
        let _published = fleet.publish("m1", &proxy.url())?;
        await_through(&proxy, &fleet, &path)?;
        let ask = |on: &str, is_whole: bool, fault: &Fault, cause: &str| {
            let on = if is_whole { proxy.on(on).exactly() } else { proxy.on(on) };
            let rule = on.answers(fault.clone());
            let before = if cause.is_empty() { 0.0 } else { fleet.unknown(cause)? };
            let attempt = fleet.dry_run(&path)?;
            let response = attempt.describe();
            attempt
                .denied()
                .and_then(|denied| denied.within(IN_TIME)?.with_cause("m1", "Unknown"))
                .with_context(|| format!("{fault:?}"))?;
            ensure!(rule.hits() > 0, "no request met {fault:?}: {response}");
            if !cause.is_empty() {
                let now = fleet.unknown(cause)?;
                ensure!(now > before + 0.5, "{fault:?} was not counted as {cause}: {response}");
            }
            anyhow::Ok(())
        };
        for (fault, cause) in faults() {
            ask(
                &path,
                true,
                &fault,
                if matches!(fault, Fault::Status { code: 404, .. }) { "" } else { cause },
            )?;
            ask(&shop.path("pods"), true, &fault, cause)?;
        }
        // Only Lists have pages.
        for (fault, cause) in [(Fault::EndlessPages, "garbage"), (Fault::ExpiringPages, "busy")] {
            ask(&shop.path("pods"), true, &fault, cause)?;
        }
        // One failed List is enough.
        ask("/cronjobs", false, &Fault::Garbage, "garbage")?;
        let mute = proxy.mute();
        fleet.dry_run(&path)?.denied()?.within(IN_TIME)?.with_cause("m1", "Unknown")?;
        ensure!(mute.hits() > 0, "no request met the fault");
    }
    await_allowed(&fleet, &path)
}

/// Unit tests of the crate `cluster` have these answers to reads and Lists. The case above shows that the path through Karmada changes
/// none of them.
#[e2e::case(Soak)]
fn no_malformed_response_counts_as_a_missing_crd(context: &'static TestContext) -> Result<()> {
    let fleet = exclusive(context)?;
    let shop = fleet.namespace("shop")?;
    let m1 = fleet.member("m1")?;
    let widgets = Crd::new(&["v1"]);
    widgets.create_in(fleet.karmada())?;
    widgets.create_in(m1)?;
    let proxy = Proxy::before(m1.url(), m1.ca())?;
    let _published = fleet.publish("m1", &proxy.url())?;
    await_through(&proxy, &fleet, &path_of(&shop))?;
    let objects = widgets.objects("v1", "").replace("/namespaces/", "");
    let ask = |fault: &Fault| {
        for on in [widgets.path(), objects.clone()] {
            let rule = proxy.on(&on).answers(fault.clone());
            let attempt = fleet.dry_run(&widgets.path())?;
            let response = attempt.describe();
            attempt
                .denied()
                .and_then(|denied| denied.within(IN_TIME)?.with_cause("m1", "Unknown"))
                .with_context(|| format!("{fault:?} on {on}"))?;
            ensure!(rule.hits() > 0, "no request met {fault:?} on {on}: {response}");
        }
        anyhow::Ok(())
    };
    for (fault, _) in faults() {
        ask(&fault)?;
    }
    fleet.dry_run(&widgets.path())?.allowed()?;
    let object = widgets.create_object(&m1.existing_namespace(shop.name()), "v1", "one")?;
    fleet.dry_run(&widgets.path())?.denied()?.with_cause("m1", "InUse")?;
    remove(m1, &object)
}
