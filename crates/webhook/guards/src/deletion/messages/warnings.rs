//! Warnings and audit annotations of rulings. Warnings list the clusters only in a dry run, so they do not repeat a denial.

use admission::{OVERRIDE, Ruling};

use super::super::case::Case;
use super::super::cluster_facts::{ClusterFacts, UsageState};
use super::super::config::Config;
use super::super::summary::FleetSummary;
use super::super::target::Target;
use super::{MAX_WARNINGS, findings, member_clusters, name, reason};

/// The prefix of warnings. It names the guard.
const PREFIX: &str = "deletion: ";

/// Adds warnings and audit annotations to a ruling.
pub(in crate::deletion) fn annotate(
    case: &Case<'_>,
    summary: &FleetSummary<'_>,
    mut ruling: Ruling,
) -> Ruling {
    let &Case { config, target, .. } = case;
    let local = if config.is_karmada() { "the control plane" } else { "this cluster" };
    if target.dry_run {
        warn_of_clusters(config, target, summary, local, &mut ruling);
    }
    if summary.is_empty_fleet {
        let text = format!("the fleet has no member clusters, so Durward checked only {local}");
        ruling.warnings.push(format!("{PREFIX}{text}"));
        ruling.audit.set("fleet", text);
    }
    if !matches!(summary.state(), UsageState::InUse | UsageState::Unknown) {
        warn_of_rest(config, summary, &mut ruling);
    }
    ruling.audit.set("clusters-checked", summary.clusters.to_string());
    let names = |clusters: &[&ClusterFacts]| {
        let names: Vec<_> = clusters.iter().map(|cluster| cluster.member.cluster.name()).collect();
        names.join(", ")
    };
    for (key, clusters) in [("in-use", &summary.in_use), ("not-checked", &summary.unknown)] {
        if !clusters.is_empty() {
            ruling.audit.set(key, names(clusters));
        }
    }
    if let Some(cause) = &summary.incomplete {
        ruling.audit.set("fleet-unknown", &cause.text);
    }
    if !summary.acknowledged.is_empty() {
        let acknowledged = summary.acknowledged.iter();
        let list: Vec<_> = acknowledged
            .map(|(cluster, a)| format!("{} until {}: {}", name(config, cluster), a.until, a.reason))
            .collect();
        ruling.audit.set("acknowledged", list.join("; "));
    }
    ruling
}

/// Adds a warning for each cluster with findings.
fn warn_of_clusters(
    config: &Config,
    target: &Target,
    summary: &FleetSummary<'_>,
    local: &str,
    ruling: &mut Ruling,
) {
    let found: Vec<_> = summary.in_use.iter().chain(&summary.unknown).collect();
    for cluster in found.iter().take(MAX_WARNINGS) {
        let verb = match cluster.state() {
            UsageState::InUse | UsageState::Empty => "has ",
            UsageState::Unknown => "could not be checked: ",
        };
        let text = findings(config, cluster);
        ruling.warnings.push(format!("{PREFIX}{} {verb}{text}", name(config, cluster)));
    }
    if found.len() > MAX_WARNINGS {
        let more = found.len() - MAX_WARNINGS;
        ruling.warnings.push(format!("{PREFIX}{more} more clusters are in use or could not be checked"));
    }
    if found.is_empty() && summary.incomplete.is_none() {
        let members = match summary.members - summary.acknowledged.len() {
            0 => String::new(),
            members => format!(" and {}", member_clusters(members)),
        };
        let text = target.subject.text();
        ruling.warnings.push(format!("{PREFIX}{text} is not in use in {local}{members}"));
    }
}

/// Adds warnings about clusters that an allowed deletion does not empty.
fn warn_of_rest(config: &Config, summary: &FleetSummary<'_>, ruling: &mut Ruling) {
    let consequence = if config.is_karmada() {
        "Karmada will delete it there when the cluster is back"
    } else {
        "its objects are not known"
    };
    for (cluster, a) in summary.acknowledged.iter().take(MAX_WARNINGS) {
        ruling.warnings.push(format!(
            "{PREFIX}{} could not be checked ({}); acknowledged until {}: {}; {consequence}",
            name(config, cluster),
            reason(&cluster.unknown),
            a.until,
            a.reason,
        ));
    }
    if summary.acknowledged.len() > MAX_WARNINGS {
        let more = summary.acknowledged.len() - MAX_WARNINGS;
        ruling.warnings.push(format!("{PREFIX}{more} more clusters are acknowledged; {consequence}"));
    }
}

/// Returns the ruling for a target with valid override annotations.
pub(in crate::deletion) fn overridden(target: &Target, reason: &str, until: &str) -> Ruling {
    let text = target.subject.text();
    let warning =
        format!("{PREFIX}{text} is deleted without a check: override until {until}, reason: {reason}");
    Ruling::allow().warn(warning).audit(OVERRIDE, format!("until {until}: {reason}"))
}
