//! Members that need not answer, because somebody said so: for how long, and for what not.

use std::time::Duration;

use anyhow::Result;
use e2e::console::print;
use e2e::context::TestContext;
use e2e::fleet::Fleet;
use e2e::wait::{Poll, eventually};
use serde_json::{Value, json};

use super::attempt::{delete, try_delete};
use super::house::{GROUPS, alone, alone_by};
use super::objects::{await_gone, await_gone_everywhere, path_of, remove, untouched};
use super::overrides::ahead;

const REASON: &str = "durward.dev/acknowledge-unreachable";
const UNTIL: &str = "durward.dev/acknowledge-until";
const M1: &str = "/apis/cluster.karmada.io/v1alpha1/clusters/m1";
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Until a member that was stopped in its tracks is in time again.
const BACK_WITHIN: Duration = Duration::from_secs(60);

/// Annotations and labels on the Cluster m1, until this is dropped.
struct Marked<'a>(&'a Fleet);

impl Marked<'_> {
    fn by(&self, metadata: &Value) -> Result<()> {
        self.0.karmada().api().merge(M1, &json!({"metadata": metadata}))?.succeeded()?;
        Ok(())
    }

    fn annotated(&self, reason: &Value, until: &Value) -> Result<()> {
        self.by(&json!({"annotations": {REASON: reason, UNTIL: until}}))
    }
}

impl Drop for Marked<'_> {
    fn drop(&mut self) {
        let none =
            json!({"annotations": {REASON: null, UNTIL: null}, "labels": {"lab.example.org/link": null}});
        if let Err(error) = self.by(&none) {
            print(format_args!("what a case wrote on m1 stays there: {error:#}"));
        }
    }
}

#[e2e::case(Exclusive)]
fn an_acknowledged_member_does_not_deny_the_deletion(context: &'static TestContext) -> Result<()> {
    let fleet = alone(context)?;
    let shop = fleet.namespace("shop")?;
    let path = path_of(&shop);
    let api = fleet.karmada().api();
    let (m1, m2) = (fleet.member("m1")?, fleet.member("m2")?);
    // Nobody sees it, and it goes: what an acknowledgement means.
    m1.runs_pod(&m1.known_namespace(shop.name()), "unseen")?;
    let stopped = m1.stop()?;
    let mark = Marked(&fleet);
    let (week, year) = (json!(ahead(7 * DAY)?), json!(ahead(365 * DAY)?));
    let cut = json!("link cut, ticket 81");
    for (reason, until, words) in [
        (&cut, &json!("2026-01-01T00:00:00Z"), "ended at 2026-01-01T00:00:00Z"),
        (&cut, &year, "which is more than 30 days ahead"),
        (&cut, &json!("soon"), "is \"soon\", which is no time in RFC 3339"),
        (&cut, &Value::Null, "durward.dev/acknowledge-until is missing"),
        (&json!(" "), &week, "gives no reason"),
    ] {
        mark.annotated(reason, until)?;
        delete(api, &path)?.refused()?.saying(&["m1 (no connection", words])?;
        untouched(fleet.karmada(), &path)?;
    }

    mark.annotated(&cut, &week)?;
    try_delete(api, &path)?.allowed()?.warning("m1 could not be asked")?.warning("link cut, ticket 81")?;
    // It stands in for an answer that does not come, and for nothing that came.
    let inside = m2.known_namespace(shop.name());
    m2.runs_pod(&inside, "web")?;
    delete(api, &path)?.refused()?.saying(&["m2 (1 pod: web)"])?.telling("m1", "Acknowledged")?;
    remove(m2, &format!("{}/web", inside.path("pods")))?;

    delete(api, &path)?.allowed()?.warning("Karmada carries the deletion out there when it returns")?;
    for name in ["m2", "m3"] {
        await_gone(fleet.member(name)?, name, &path)?;
    }
    stopped.start()?;
    await_gone_everywhere(&fleet, &path)
}

#[e2e::case(Exclusive)]
fn a_label_acknowledges_only_an_unreachable_cluster(context: &'static TestContext) -> Result<()> {
    let until = ahead(7 * DAY)?;
    let acknowledge = format!(
        "acknowledge: [{{clusterSelector: {{matchLabels: {{lab.example.org/link: weak}}}}, until: \"{until}\", reason: weak link}}]"
    );
    let fleet = alone_by(context, &["fleet: {karmada: {}}", &acknowledge, GROUPS])?;
    let (shop, busy) = (fleet.namespace("shop")?, fleet.namespace("busy")?);
    let path = path_of(&shop);
    let api = fleet.karmada().api();
    let m1 = fleet.member("m1")?;
    let mark = Marked(&fleet);
    m1.runs_pod(&m1.known_namespace(busy.name()), "web")?;
    {
        let _frozen = m1.freeze()?;
        try_delete(api, &path)?.refused()?.telling("m1", "Unknown")?;
        mark.by(&json!({"labels": {"lab.example.org/link": "weak"}}))?;
        try_delete(api, &path)?.allowed()?.warning("weak link")?;
    }
    eventually("m1 to answer again", BACK_WITHIN, || {
        let attempt = try_delete(api, &path_of(&busy))?;
        let told = attempt.told();
        Ok(if attempt.has_warning("weak link") { Poll::Pending(told) } else { Poll::Ready(()) })
    })?;
    // It answers, so its answer counts.
    delete(api, &path_of(&busy))?.refused()?.saying(&["m1 (1 pod: web)"])?;
    delete(api, &path)?.allowed()?;
    await_gone_everywhere(&fleet, &path)
}
