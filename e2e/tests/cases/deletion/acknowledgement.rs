//! Acknowledged members, which do not have to answer: for how long, and for what not.

use e2e::prelude::*;

use super::environment::exclusive;
use super::objects::{annotate, await_deleted_everywhere, exists, path_of, remove};
use super::overrides::time_in;
use crate::cases::attempt::Attempt;
use crate::cases::objects::{await_deleted, contains_all};

const REASON: &str = "durward.dev/acknowledge-unreachable";
const UNTIL: &str = "durward.dev/acknowledge-until";
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Annotations on a Cluster, which are removed on drop.
struct AnnotatedCluster<'a>(&'a Fleet, &'static str);

impl AnnotatedCluster<'_> {
    fn acknowledge(&self, reason: &Value, until: &Value) -> Result<()> {
        let path = format!("/apis/cluster.karmada.io/v1alpha1/clusters/{}", self.1);
        annotate(self.0.karmada(), &path, &json!({REASON: reason, UNTIL: until}))
    }
}

impl Drop for AnnotatedCluster<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.acknowledge(&Value::Null, &Value::Null) {
            print(format_args!("the annotations of a case stay on {}: {error:#}", self.1));
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
    let mark = AnnotatedCluster(&fleet, "m1");
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

    fleet.delete(&path)?.allowed()?.with_warning("Karmada will delete it there when the cluster is back")?;
    for name in ["m2", "m3"] {
        await_deleted(fleet.member(name)?, &path)?;
    }
    stopped.undo()?;
    await_deleted_everywhere(&fleet, &path)
}

#[e2e::case(Exclusive)]
fn one_command_acknowledges_several_clusters_only_while_they_are_unreachable(
    context: &'static TestContext,
) -> Result<()> {
    let fleet = exclusive(context)?;
    let (shop, busy) = (fleet.namespace("shop")?, fleet.namespace("busy")?);
    let path = path_of(&shop);
    let m1 = fleet.member("m1")?;
    let _marks = ["m1", "m2"].map(|name| AnnotatedCluster(&fleet, name));
    fleet.run_pod("m1", &busy, "web")?;
    {
        let _frozen = m1.freeze()?;
        fleet.dry_run(&path)?.denied()?.with_cause("m1", "Unknown")?;
        let kubeconfig = fleet.karmada().kubectl().kubeconfig().display().to_string();
        let reason = ["--reason", "weak link", "--for", "7d", "--kubeconfig", &kubeconfig];
        let command = [&["acknowledge", "m1", "cluster/m2"][..], &reason].concat();
        Durward::command(context, &command)?.succeeded()?;
        fleet.dry_run(&path)?.allowed()?.with_warning("weak link")?;
        let listed = ["acknowledge", "--list", "--kubeconfig", &kubeconfig];
        contains_all(
            &Durward::command(context, &listed)?.succeeded()?.stdout,
            &["m1  until ", "m2  until "],
        )?;
        let removal = ["acknowledge", "m2", "--remove", "--kubeconfig", &kubeconfig];
        Durward::command(context, &removal)?.succeeded()?;
        let left = Durward::command(context, &listed)?.succeeded()?.stdout;
        ensure!(left.contains("m1  until ") && !left.contains("m2"), "m2 is still listed: {left}");
    }
    let is_back = |attempt: &Attempt| !attempt.has_warning("weak link");
    fleet.await_dry_run("m1 to answer again", &path_of(&busy), is_back)?;
    // m1 answers, so its answer counts.
    fleet.delete(&path_of(&busy))?.denied()?.with_message(&["m1: 1 pod (web)"])?;
    fleet.delete(&path)?.allowed().map(drop)
}
