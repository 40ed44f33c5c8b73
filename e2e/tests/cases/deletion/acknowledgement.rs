//! Acknowledged members, which do not have to answer: for how long, and for what not.

use e2e::prelude::*;

use super::environment::{GROUPS, exclusive, exclusive_with};
use super::objects::{await_deleted_everywhere, exists, path_of, remove};
use super::overrides::time_in;
use crate::cases::attempt::Attempt;
use crate::cases::objects::await_deleted;

const REASON: &str = "durward.dev/acknowledge-unreachable";
const UNTIL: &str = "durward.dev/acknowledge-until";
const M1: &str = "/apis/cluster.karmada.io/v1alpha1/clusters/m1";
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Annotations and labels on the Cluster m1, which are removed on drop.
struct AnnotatedM1<'a>(&'a Fleet);

impl AnnotatedM1<'_> {
    fn merge(&self, metadata: &Value) -> Result<()> {
        self.0.karmada().api().merge(M1, &json!({"metadata": metadata}))?.succeeded()?;
        Ok(())
    }

    fn acknowledge(&self, reason: &Value, until: &Value) -> Result<()> {
        self.merge(&json!({"annotations": {REASON: reason, UNTIL: until}}))
    }
}

impl Drop for AnnotatedM1<'_> {
    fn drop(&mut self) {
        let none =
            json!({"annotations": {REASON: null, UNTIL: null}, "labels": {"lab.example.org/link": null}});
        if let Err(error) = self.merge(&none) {
            print(format_args!("the annotations and labels of a case stay on m1: {error:#}"));
        }
    }
}

#[e2e::case(Exclusive)]
fn an_acknowledged_member_does_not_deny_the_deletion(context: &'static TestContext) -> Result<()> {
    let fleet = exclusive(context)?;
    let (shop, path) = fleet.new_namespace("shop")?;
    fleet.await_seen(&shop)?;
    let (m1, m2) = (fleet.member("m1")?, fleet.member("m2")?);
    // No cluster reports this pod, and it is deleted: this is what an acknowledgement means.
    m1.make_running_pod(&m1.existing_namespace(shop.name()), "unseen")?;
    let stopped = m1.stop()?;
    let mark = AnnotatedM1(&fleet);
    let (week, year) = (json!(time_in(7 * DAY)?), json!(time_in(365 * DAY)?));
    let cut = json!("link cut, ticket 81");
    for (reason, until, words) in [
        (&cut, &json!("2026-01-01T00:00:00Z"), "the expiry 2026-01-01T00:00:00Z is in the past"),
        (&cut, &year, "is more than 30 days ahead"),
        (&cut, &json!("soon"), "the expiry \"soon\" is not a time"),
        (&cut, &Value::Null, "the expiry is missing"),
        (&json!(" "), &week, "the reason is empty"),
    ] {
        mark.acknowledge(reason, until)?;
        fleet.delete(&path)?.denied()?.with_message(&["member cluster m1 could not be checked (", words])?;
        exists(fleet.karmada(), &path)?;
    }

    mark.acknowledge(&cut, &week)?;
    fleet
        .dry_run(&path)?
        .allowed()?
        .with_warning("m1 could not be checked")?
        .with_warning("link cut, ticket 81")?;
    // An acknowledgement replaces a missing answer, not an answer that was given.
    let inside = m2.existing_namespace(shop.name());
    m2.make_running_pod(&inside, "web")?;
    fleet.delete(&path)?.denied()?.with_message(&["m2: 1 pod (web)"])?.with_cause("m1", "Acknowledged")?;
    remove(m2, &format!("{}/web", inside.path("pods")))?;

    fleet.delete(&path)?.allowed()?.with_warning("Karmada deletes there when the cluster is back")?;
    for name in ["m2", "m3"] {
        await_deleted(fleet.member(name)?, &path)?;
    }
    stopped.undo()?;
    await_deleted_everywhere(&fleet, &path)
}

#[e2e::case(Exclusive)]
fn a_label_acknowledges_only_an_unreachable_cluster(context: &'static TestContext) -> Result<()> {
    let until = time_in(7 * DAY)?;
    let acknowledge = format!(
        "unreachableClusters: [{{clusterSelector: {{matchLabels: {{lab.example.org/link: weak}}}}, until: \"{until}\", reason: weak link}}]"
    );
    let fleet = exclusive_with(context, &["fleet: karmada", &acknowledge, GROUPS])?;
    let (shop, busy) = (fleet.namespace("shop")?, fleet.namespace("busy")?);
    let path = path_of(&shop);
    let m1 = fleet.member("m1")?;
    let mark = AnnotatedM1(&fleet);
    fleet.run_pod("m1", &busy, "web")?;
    {
        let _frozen = m1.freeze()?;
        fleet.dry_run(&path)?.denied()?.with_cause("m1", "Unknown")?;
        mark.merge(&json!({"labels": {"lab.example.org/link": "weak"}}))?;
        fleet.dry_run(&path)?.allowed()?.with_warning("weak link")?;
    }
    let is_back = |attempt: &Attempt| !attempt.has_warning("weak link");
    fleet.await_dry_run("m1 to answer again", &path_of(&busy), is_back)?;
    // m1 answers, so its answer counts.
    fleet.delete(&path_of(&busy))?.denied()?.with_message(&["m1: 1 pod (web)"])?;
    fleet.delete(&path)?.allowed().map(drop)
}
