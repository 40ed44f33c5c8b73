//! Publishes the results of health probes: the metric `durward_clusters` and a note in `/readyz?verbose`.
//!
//! An unreachable cluster does not make a server unready, because every replica reads the same cluster.

use admission::one_line;
use cluster::fleet::ClusterHealth;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use server::{Checks, Metrics};

/// Bound of the lines in `/readyz`. In a network outage all lines are alike.
const LINES: usize = 20;

/// The name of the check.
const CHECK: &str = "fleet";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

/// The outputs.
pub(crate) struct MemberHealthReport {
    checks: Checks,
    clusters: Family<StateLabel, Gauge>,
}

impl MemberHealthReport {
    /// Registers the metric. There is no result yet.
    pub(crate) fn new(checks: Checks, metrics: &Metrics) -> Self {
        let clusters = Family::<StateLabel, Gauge>::default();
        let help = "Clusters by the result of the last health probe, the calling cluster included";
        metrics.register("clusters", &[("state", "readable, unreadable")], help, clusters.clone());
        Self { checks, clusters }
    }

    /// Publishes results. There are none before the first probe, and if no guard reads a fleet.
    pub(crate) fn publish(&self, health: &[ClusterHealth]) {
        if health.is_empty() {
            self.clusters.clear();
            if self.checks.readiness_of(CHECK).is_some() {
                self.checks.add(CHECK).pass();
            }
            return;
        }
        let unreadable: Vec<String> = health.iter().filter_map(line).collect();
        let counts = [("readable", health.len() - unreadable.len()), ("unreadable", unreadable.len())];
        for (state, count) in counts {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.clusters.get_or_create(&StateLabel { state }).set(count);
        }
        if unreadable.is_empty() {
            return self.checks.add(CHECK).pass();
        }
        let mut note = format!("{} of {} clusters cannot be read", unreadable.len(), health.len());
        note.extend(unreadable.iter().take(LINES).map(String::as_str));
        if unreadable.len() > LINES {
            note.push_str("\n    …");
        }
        self.checks.add(CHECK).note(note);
    }
}

/// Returns the line of a cluster that can't be read. Foreign text is cut to one line.
fn line(health: &ClusterHealth) -> Option<String> {
    let cause = health.failure.as_ref()?;
    Some(format!("\n    {}: {}: {}", one_line(&health.cluster), cause.code, one_line(&cause.text)))
}

#[cfg(test)]
mod tests {
    use admission::Cause;

    use super::*;

    fn health(cluster: &str, failure: Option<&str>) -> ClusterHealth {
        let failure = failure.map(|text| Cause::new("forbidden", text));
        ClusterHealth { cluster: cluster.to_owned(), failure }
    }

    #[test]
    fn counts_clusters_and_notes_those_that_cannot_be_read() {
        let (checks, metrics) = (Checks::new(), Metrics::new("t"));
        let report = MemberHealthReport::new(checks.clone(), &metrics);
        let count = |state: &str| {
            let begin = format!("durward_clusters{{state=\"{state}\"}} ");
            metrics.encode().lines().find_map(|line| line.strip_prefix(&begin).map(str::to_owned))
        };
        report.publish(&[]);
        assert!(!checks.readiness().text.contains("fleet"));
        report
            .publish(&[health("(local)", None), health("m2", Some("cannot list\n \u{1b}[31mpods\u{202e}"))]);
        assert_eq!((count("readable"), count("unreadable")), (Some("1".into()), Some("1".into())));
        let readiness = checks.readiness();
        assert!(readiness.ready);
        let expected = "[!]fleet: 1 of 2 clusters cannot be read\n    m2: forbidden: cannot list [31mpods\n";
        assert!(readiness.text.contains(expected), "{}", readiness.text);
        report.publish(&[health("(local)", None)]);
        assert!(checks.readiness().text.contains("[+]fleet ok"));
        assert_eq!((count("readable"), count("unreadable")), (Some("1".into()), Some("0".into())));
        report.publish(&[]);
        assert_eq!(count("readable"), None);
    }

    #[test]
    fn the_note_has_a_limit() {
        let (checks, metrics) = (Checks::new(), Metrics::new("t"));
        let report = MemberHealthReport::new(checks.clone(), &metrics);
        let all: Vec<_> = (0..30).map(|n| health(&format!("m{n}"), Some("x"))).collect();
        report.publish(&all);
        let text = checks.readiness().text;
        assert!(text.contains("30 of 30 clusters") && text.contains("\n    …\n"), "{text}");
        assert_eq!(text.matches("forbidden").count(), LINES);
    }
}
