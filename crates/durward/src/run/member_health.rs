//! Publishes the results of health probes: the metric `durward_member_ready` and a note in `/readyz?verbose`.
//!
//! An unreachable cluster does not make a server unready, because every replica reads the same cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Mutex;

use admission::{lock, one_line};
use cluster::fleet::ClusterHealth;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use server::{Checks, Metrics};

/// Bound of the metric's labels, since a fleet can contain any number of names. The largest measured fleet has 5,000 clusters.
const CLUSTERS: usize = 5_000;

/// Bound of the lines in `/readyz`. In a network outage all lines are alike.
const LINES: usize = 20;

/// The name of the check.
const CHECK: &str = "fleet";

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct ClusterLabel {
    cluster: String,
}

/// The outputs.
pub(crate) struct MemberHealthReport {
    checks: Checks,
    ready: Family<ClusterLabel, Gauge>,
    shown: Mutex<BTreeSet<ClusterLabel>>,
}

impl MemberHealthReport {
    /// Registers the metric. There is no result yet.
    pub(crate) fn new(checks: Checks, metrics: &Metrics) -> Self {
        let ready = Family::<ClusterLabel, Gauge>::default();
        metrics.register(
            "member_ready",
            &[(
                "cluster",
                "name of the cluster; (local) is the calling cluster; at most 5000, failing ones first",
            )],
            "1 if the last health probe could read every resource that guards need, except custom resources",
            ready.clone(),
        );
        Self { checks, ready, shown: Mutex::default() }
    }

    /// Publishes results, or `None` if no guard asks for probes.
    pub(crate) fn publish(&self, health: Option<&[ClusterHealth]>) {
        self.count(health.unwrap_or_default());
        match health {
            // No guard has asked for probes since the start.
            None if self.checks.readiness_of(CHECK).is_none() => {}
            None => self.checks.add(CHECK).note("no guard reads a fleet"),
            Some([]) => self.checks.add(CHECK).note("the first health probe is running"),
            Some(health) => match note(health) {
                None => self.checks.add(CHECK).pass(),
                Some(note) => self.checks.add(CHECK).note(note),
            },
        }
    }

    fn count(&self, health: &[ClusterHealth]) {
        // Clusters of two control planes can have the same name. The name is ready if both are.
        let mut ready: BTreeMap<&str, bool> = BTreeMap::new();
        for one in health {
            *ready.entry(&one.cluster).or_insert(true) &= one.failures.is_empty();
        }
        let not_first = [false, true].into_iter().flat_map(|wanted| {
            let some = ready.iter().filter(move |(_, is_ready)| **is_ready == wanted);
            some.map(|(cluster, is_ready)| (ClusterLabel { cluster: (*cluster).to_owned() }, *is_ready))
        });
        let now: BTreeMap<ClusterLabel, bool> = not_first.take(CLUSTERS).collect();
        let mut shown = lock(&self.shown);
        for gone in shown.iter().filter(|label| !now.contains_key(*label)) {
            self.ready.remove(gone);
        }
        for (label, is_ready) in &now {
            self.ready.get_or_create(label).set(i64::from(*is_ready));
        }
        *shown = now.into_keys().collect();
    }
}

/// Returns the note for operators, or `None` if all clusters can be read.
fn note(health: &[ClusterHealth]) -> Option<String> {
    let failing: Vec<&ClusterHealth> = health.iter().filter(|one| !one.failures.is_empty()).collect();
    if failing.is_empty() {
        return None;
    }
    let mut note = format!("{} of {} clusters cannot be read", failing.len(), health.len());
    for one in failing.iter().take(LINES) {
        note.push_str(&line(one));
    }
    if failing.len() > LINES {
        // Writing to a `String` can't fail.
        let _ = write!(note, "\n    and {} more", failing.len() - LINES);
    }
    Some(note)
}

fn line(health: &ClusterHealth) -> String {
    let Some((resource, cause)) = health.failures.first() else { return String::new() };
    let more = match health.failures.len() {
        0 | 1 => String::new(),
        2 => " (and 1 more resource)".to_owned(),
        many => format!(" (and {} more resources)", many - 1),
    };
    // Foreign text is cut to one line.
    let (cluster, text) = (one_line(&health.cluster), one_line(&cause.text));
    format!("\n    {cluster}: {resource}{more}: {}: {text}", cause.code)
}

#[cfg(test)]
mod tests {
    use admission::Cause;
    use cluster::Resource;

    use super::*;

    fn health(cluster: &str, failures: &[(&'static str, &str)]) -> ClusterHealth {
        let failures = failures.iter().map(|(code, text)| (Resource::NAMESPACES, Cause::new(code, *text)));
        ClusterHealth { cluster: cluster.to_owned(), failures: failures.collect() }
    }

    #[test]
    fn publishes_members_while_they_are_in_the_fleet() {
        let (checks, metrics) = (Checks::new(), Metrics::new("t"));
        let report = MemberHealthReport::new(checks.clone(), &metrics);
        let line = |cluster: &str| {
            let begin = format!("durward_member_ready{{cluster=\"{cluster}\"}} ");
            metrics.encode().lines().find_map(|line| line.strip_prefix(&begin).map(str::to_owned))
        };
        report.publish(None);
        assert!(!checks.readiness().text.contains("fleet"));
        report.publish(Some(&[
            health("(local)", &[]),
            health("m1", &[("forbidden", "x")]),
            health("m2", &[]),
        ]));
        assert_eq!(
            (line("(local)"), line("m1"), line("m2")),
            (Some("1".into()), Some("0".into()), Some("1".into()))
        );
        report.publish(Some(&[health("(local)", &[]), health("m1", &[])]));
        assert_eq!((line("m1"), line("m2")), (Some("1".into()), None), "m2 has left the fleet");
        report.publish(None);
        assert_eq!(line("m1"), None);
        assert!(checks.readiness().text.contains("[!]fleet: no guard"));
    }

    #[test]
    fn notes_an_unreadable_member_and_stays_ready() {
        let (checks, metrics) = (Checks::new(), Metrics::new("t"));
        let report = MemberHealthReport::new(checks.clone(), &metrics);
        report.publish(Some(&[]));
        assert!(
            checks.readiness().ready && checks.readiness().text.contains("[!]fleet: the first health probe")
        );
        report.publish(Some(&[
            health("(local)", &[]),
            health("m2", &[("forbidden", "may not list\n \u{1b}[31mpods\u{202e}"), ("forbidden", "y")]),
        ]));
        let readiness = checks.readiness();
        assert!(readiness.ready);
        let expected = "[!]fleet: 1 of 2 clusters cannot be read\n    \
                        m2: namespaces (and 1 more resource): forbidden: may not list [31mpods\n";
        assert!(readiness.text.contains(expected), "{}", readiness.text);
        report.publish(Some(&[health("(local)", &[])]));
        assert!(checks.readiness().text.contains("[+]fleet ok"));
    }

    #[test]
    fn bounds_the_output_and_lists_failures_first() {
        let (checks, metrics) = (Checks::new(), Metrics::new("t"));
        let report = MemberHealthReport::new(checks.clone(), &metrics);
        let mut all: Vec<ClusterHealth> =
            (0..CLUSTERS + 10).map(|n| health(&format!("a{n:05}"), &[])).collect();
        all.extend((0..30).map(|n| health(&format!("z{n}"), &[("timeout", "x")])));
        report.publish(Some(&all));
        let text = metrics.encode();
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with("durward_member_ready{")).collect();
        assert_eq!(lines.len(), CLUSTERS);
        assert_eq!(lines.iter().filter(|line| line.contains("cluster=\"z")).count(), 30);
        assert!(checks.readiness().text.contains("\n    and 10 more\n"));
    }
}
