//! The texts of rulings: messages for users, causes for programs, warnings and audit annotations.
//!
//! The message of a long fleet names the first clusters and counts the others; `details.causes` has all of them. kubectl prints
//! those only for reason Invalid, so the message is complete on its own. Warnings list the clusters for a denial and a dry run.

mod remedy;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::SystemTime;

use admission::{Cause, Denial, DenialCause, Ruling, one_line};

use super::config::{Config, Groups, Names};
use super::facts::ClusterFacts;
use super::findings::{Finding, ObjectCount};
use super::karmada::KarmadaPart;
use super::summary::FleetSummary;
use super::target::{DeletionKind, Target};
use crate::overrides::{DELETE_ANYWAY, Override};
use cluster::cause;
use cluster::fleet::{Fleet, FleetMember};

/// The prefix of warnings. It names the guard.
const PREFIX: &str = "deletion: ";

/// The clusters that a message names.
const MAX_CLUSTERS: usize = 10;

/// The objects that a message names for one cluster.
const MAX_OBJECTS: usize = 5;

/// The field of a cause about the local cluster. A member cluster can have the name `here`, but not this one.
const LOCAL_FIELD: &str = "(control plane)";

/// The field of a cause about the whole fleet.
const FLEET_FIELD: &str = "(fleet)";

/// A warning about unjoining. If the Cluster is Ready, Karmada's execution controller (1.16, `handleWorkDelete`) deletes the
/// objects of its Works, and Works of namespaces never ask to preserve anything.
const UNJOINED: &str = "unjoining a cluster that is Ready deletes there what Karmada brought, and all that is in the namespaces that it brought";

/// Returns the name of a cluster for users.
fn name<'c>(config: &Config, cluster: &'c ClusterFacts) -> &'c str {
    match (cluster.is_local(), config.is_karmada()) {
        (true, true) => "the control plane",
        (true, false) => "this cluster",
        (false, _) => cluster.member.cluster.name(),
    }
}

/// Returns numbers and names: `3 pods, 1 claim: web-0, web-1, web-2, data-web-0`.
fn contents(config: &Config, counts: &[ObjectCount]) -> String {
    let numbers = joined(counts, ", ", ObjectCount::text);
    if config.names == Names::Count {
        return numbers;
    }
    let all: Vec<&str> = counts.iter().flat_map(|count| &count.names).map(String::as_str).collect();
    let shown = all.get(..MAX_OBJECTS).unwrap_or(&all);
    let is_cut = counts.iter().any(|count| count.more)
        || counts.iter().map(|count| count.objects).sum::<usize>() > shown.len();
    format!("{numbers}: {}{}", shown.join(", "), if is_cut { ", …" } else { "" })
}

/// Returns the first cause, and the number of the others.
fn reason(causes: &[Cause]) -> String {
    let first = causes.first().map_or("no cause was given", |cause| cause.text.as_str());
    match causes.len() {
        0 | 1 => first.to_owned(),
        more => format!("{first}; and {} more that could not be read", more - 1),
    }
}

/// Returns the findings of one cluster in full.
pub(super) fn findings(config: &Config, cluster: &ClusterFacts) -> String {
    let found = &cluster.findings;
    match found.finding() {
        Finding::InUse if found.unknown.is_empty() => contents(config, &found.in_use),
        Finding::InUse => {
            format!("{}; not all could be seen: {}", contents(config, &found.in_use), reason(&found.unknown))
        }
        Finding::Unknown => reason(&found.unknown),
        Finding::WouldStay => contents(config, &found.stays),
        Finding::Empty => "nothing".to_owned(),
    }
}

fn joined<T>(all: &[T], separator: &str, text: impl Fn(&T) -> String) -> String {
    all.iter().map(text).collect::<Vec<_>>().join(separator)
}

/// Lists the first few, and the number of the others.
fn first_few<T>(all: &[T], others: &str, text: impl Fn(&T) -> String) -> String {
    let shown = all.get(..MAX_CLUSTERS).unwrap_or(all);
    let list = joined(shown, ", ", text);
    if shown.len() < all.len() {
        format!("{list} and {} more {others}", all.len() - shown.len())
    } else {
        list
    }
}

/// Lists clusters with their findings: `m1 (3 pods: a, b, c), m2 (1 claim: data)`.
fn list(config: &Config, clusters: &[&ClusterFacts]) -> String {
    first_few(clusters, "clusters", |cluster| {
        let found = &cluster.findings;
        // The reasons are in the causes; here it is enough that the findings are incomplete.
        let findings = if found.unknown.is_empty() || found.in_use.is_empty() {
            findings(config, cluster)
        } else {
            format!("{}; not all could be seen", contents(config, &found.in_use))
        };
        format!("{} ({findings})", name(config, cluster))
    })
}

/// Lists clusters that could not be read: `m5 could not be asked (no answer in 1.5 s)`.
fn list_unknown(config: &Config, clusters: &[&ClusterFacts]) -> String {
    first_few(clusters, "clusters that could not be asked", |cluster| {
        format!("{} could not be asked ({})", name(config, cluster), reason(&cluster.findings.unknown))
    })
}

/// Lists clusters with their findings. Without a fleet, the local cluster is not named.
fn list_or_only(config: &Config, clusters: &[&ClusterFacts]) -> String {
    match clusters.first() {
        Some(only) if config.fleet == Fleet::None => findings(config, only),
        _ => list(config, clusters),
    }
}

/// Returns ` in 2 of 5 clusters`, or nothing if there is no fleet or its size is not known.
fn share(config: &Config, some: usize, summary: &FleetSummary<'_>) -> String {
    match summary.clusters {
        _ if config.fleet == Fleet::None || summary.incomplete.is_some() => String::new(),
        1 => format!(" in {some} of 1 cluster"),
        all => format!(" in {some} of {all} clusters"),
    }
}

fn see_impact(target: &Target) -> String {
    format!("see: kubectl durward impact {}/{}", target.kind.short_name(), target.name)
}

/// Returns the sentence about override annotations that do not count.
fn ignored_override(why: &str) -> String {
    format!(". The annotation {DELETE_ANYWAY} does not count: {why}")
}

/// Returns the end of a message: acknowledgements and overrides that do not count, and what the user can do.
fn ending(config: &Config, target: &Target, summary: &FleetSummary<'_>, remedy: &str) -> String {
    let mut out = String::new();
    let invalid = &summary.invalid_acknowledgements;
    if !invalid.is_empty() {
        let list = first_few(invalid, "acknowledgements that do not count", Clone::clone);
        out = format!(". {}", remedy::sentence(&list));
    }
    if let Some(why) = &summary.invalid_override {
        format!("{out}{}. {remedy}, or {}", ignored_override(why), see_impact(target))
    } else {
        let command = remedy::override_command(config, target);
        format!("{out}. {remedy}, or {}; {command}", see_impact(target))
    }
}

/// Creates a denial of one line, whatever line breaks the names and reasons in it have.
fn denial(message: &str, mut causes: Vec<DenialCause>) -> Denial {
    for cause in &mut causes {
        cause.message = one_line(&cause.message);
    }
    Denial { causes, ..Denial::forbidden(one_line(message)) }
}

fn denial_cause(reason: &str, message: String, field: &str) -> DenialCause {
    DenialCause { reason: reason.to_owned(), message, field: field.to_owned() }
}

/// Returns the denial of a deletion that would delete objects in use.
pub(super) fn in_use(config: &Config, target: &Target, summary: &FleetSummary<'_>) -> Denial {
    let share = share(config, summary.in_use.len(), summary);
    // Writing to a String cannot fail, here and below.
    let mut message =
        format!("{} is still in use{share}: {}", target.text(), list_or_only(config, &summary.in_use));
    if let Some(cause) = &summary.incomplete {
        let _ = write!(message, "; {}", cause.text);
    }
    if !summary.unknown.is_empty() {
        let _ = write!(message, "; {}", list_unknown(config, &summary.unknown));
    }
    let remedy = match (target.kind, summary.in_use.len()) {
        (DeletionKind::Crd, _) => "Delete the objects first",
        (DeletionKind::Namespace, 1) => "Empty it",
        (DeletionKind::Namespace, _) => "Empty them",
    };
    message.push_str(&ending(config, target, summary, remedy));
    denial(&message, causes_for_programs(config, summary))
}

/// Returns the denial for `onUnknown: deny`.
pub(super) fn unknown(config: &Config, target: &Target, summary: &FleetSummary<'_>) -> Denial {
    let mut message = format!("{} could not be checked", target.text());
    let mut parts: Vec<String> = summary.incomplete.iter().map(|cause| cause.text.clone()).collect();
    if !summary.unknown.is_empty() {
        message.push_str(&share(config, summary.unknown.len(), summary));
        parts.push(list_or_only(config, &summary.unknown));
    }
    let _ = write!(message, ": {}", parts.join("; "));
    match summary.clusters - summary.unknown.len() - summary.acknowledged.len() {
        _ if summary.incomplete.is_some() => {}
        0 => {}
        1 => message.push_str(". Nothing is in use in the other one"),
        others => {
            let _ = write!(message, ". Nothing is in use in the other {others}");
        }
    }
    message.push_str(&ending(config, target, summary, &remedy::for_unknown(config, summary)));
    denial(&message, causes_for_programs(config, summary))
}

/// Returns one cause per code, so that metrics count each code once per review.
pub(super) fn causes(config: &Config, summary: &FleetSummary<'_>) -> Vec<Cause> {
    let mut by_code: BTreeMap<&'static str, Vec<&ClusterFacts>> = BTreeMap::new();
    for cluster in &summary.unknown {
        let code = cluster.findings.unknown.first().map_or(cause::REFUSED, |cause| cause.code);
        by_code.entry(code).or_default().push(cluster);
    }
    let by_code = by_code.into_iter();
    let of_clusters = by_code.map(|(code, clusters)| Cause::new(code, list_unknown(config, &clusters)));
    summary.incomplete.iter().cloned().chain(of_clusters).collect()
}

/// Returns `details.causes`: one for each cluster with findings.
fn causes_for_programs(config: &Config, summary: &FleetSummary<'_>) -> Vec<DenialCause> {
    let field = |cluster: &ClusterFacts| {
        if cluster.is_local() { LOCAL_FIELD.to_owned() } else { cluster.member.cluster.name().to_owned() }
    };
    let incomplete = summary.incomplete.iter();
    let incomplete = incomplete.map(|cause| denial_cause("Unknown", cause.text.clone(), FLEET_FIELD));
    let clusters = summary.in_use.iter().chain(&summary.unknown).chain(&summary.stays).map(|cluster| {
        let reason = cluster.findings.finding().reason();
        denial_cause(reason, findings(config, cluster), &field(cluster))
    });
    let acknowledged = summary.acknowledged.iter().map(|(cluster, acknowledgement)| {
        let (why, until) = (reason(&cluster.findings.unknown), &acknowledgement.until);
        denial_cause("Acknowledged", format!("{why}; acknowledged until {until}"), &field(cluster))
    });
    incomplete.chain(clusters).chain(acknowledged).collect()
}

/// Adds warnings and audit annotations to a ruling.
pub(super) fn annotate(
    config: &Config,
    target: &Target,
    summary: &FleetSummary<'_>,
    mut ruling: Ruling,
) -> Ruling {
    let is_denied = matches!(summary.finding(), Finding::InUse | Finding::Unknown);
    if target.dry_run || is_denied {
        warn_of_clusters(config, target, summary, &mut ruling);
    }
    if summary.is_empty_fleet {
        let local = if config.is_karmada() { "the control plane" } else { "this cluster" };
        let text = format!("the fleet has no clusters: only {local} was looked at");
        ruling.warnings.push(format!("{PREFIX}{text}"));
        ruling.audit.set("fleet", text);
    }
    if !is_denied {
        warn_of_rest(config, summary, &mut ruling);
    }
    ruling.audit.set("clusters-asked", summary.clusters.to_string());
    let names = |clusters: &[&ClusterFacts]| {
        joined(clusters, ", ", |cluster| cluster.member.cluster.name().to_owned())
    };
    for (key, clusters) in
        [("in-use", &summary.in_use), ("not-seen", &summary.unknown), ("would-stay", &summary.stays)]
    {
        if !clusters.is_empty() {
            ruling.audit.set(key, names(clusters));
        }
    }
    if let Some(cause) = &summary.incomplete {
        ruling.audit.set("not-sure-of-the-fleet", &cause.text);
    }
    if !summary.acknowledged.is_empty() {
        let list = joined(&summary.acknowledged, "; ", |(cluster, a)| {
            format!("{} until {}: {}", name(config, cluster), a.until, a.reason)
        });
        ruling.audit.set("acknowledged", list);
    }
    ruling
}

/// Adds a warning for each cluster with findings.
fn warn_of_clusters(config: &Config, target: &Target, summary: &FleetSummary<'_>, ruling: &mut Ruling) {
    let found: Vec<_> = summary.in_use.iter().chain(&summary.unknown).chain(&summary.stays).collect();
    for cluster in found.iter().take(MAX_CLUSTERS) {
        let verb = match cluster.findings.finding() {
            Finding::InUse | Finding::Empty => "has ",
            Finding::Unknown => "could not be asked: ",
            Finding::WouldStay => "would keep ",
        };
        let text = findings(config, cluster);
        ruling.warnings.push(format!("{PREFIX}{} {verb}{text}", name(config, cluster)));
    }
    if found.len() > MAX_CLUSTERS {
        let more = found.len() - MAX_CLUSTERS;
        ruling.warnings.push(format!("{PREFIX}{more} more clusters; {}", see_impact(target)));
    }
    if found.is_empty() && summary.incomplete.is_none() {
        let read = summary.clusters - summary.acknowledged.len();
        let clusters = if read == 1 { "cluster" } else { "clusters" };
        let text = target.text();
        ruling.warnings.push(format!("{PREFIX}nothing of {text} is in use in {read} {clusters}"));
    }
}

/// Adds warnings about clusters that an allowed deletion does not empty.
fn warn_of_rest(config: &Config, summary: &FleetSummary<'_>, ruling: &mut Ruling) {
    let consequence = if config.is_karmada() {
        "Karmada carries the deletion out there when it returns"
    } else {
        "nobody looked at what it holds"
    };
    for (cluster, a) in summary.acknowledged.iter().take(MAX_CLUSTERS) {
        ruling.warnings.push(format!(
            "{PREFIX}{} could not be asked ({}), acknowledged until {}: {}; {consequence}",
            name(config, cluster),
            reason(&cluster.findings.unknown),
            a.until,
            a.reason,
        ));
    }
    if summary.acknowledged.len() > MAX_CLUSTERS {
        let more = summary.acknowledged.len() - MAX_CLUSTERS;
        ruling.warnings.push(format!("{PREFIX}{more} more clusters are acknowledged; {consequence}"));
    }
    for cluster in summary.stays.iter().take(MAX_CLUSTERS) {
        let text = findings(config, cluster);
        ruling.warnings.push(format!("{PREFIX}{} would keep {text}", name(config, cluster)));
    }
}

/// Returns the ruling for a target with valid override annotations.
pub(super) fn overridden(target: &Target, reason: &str, until: &str) -> Ruling {
    let text = target.text();
    let warning =
        format!("{PREFIX}{text} passes unchecked: {DELETE_ANYWAY} until {until}, because: {reason}");
    Ruling::allow().warn(warning).audit("break-glass", format!("until {until}: {reason}"))
}

/// Returns the denial for a part of Karmada that the fleet needs.
pub(super) fn karmada_part(
    config: &Config,
    target: &Target,
    part: KarmadaPart<'_>,
    members: &[FleetMember],
    now: SystemTime,
) -> Ruling {
    let (what, first) = match part {
        KarmadaPart::Core => {
            let (number, clusters) = (members.len(), if members.len() == 1 { "cluster" } else { "clusters" });
            (
                format!("is a part of Karmada itself: without it the fleet of {number} {clusters} is lost"),
                format!("Unjoin the clusters first ({UNJOINED})"),
            )
        }
        KarmadaPart::ExecutionSpace(cluster) => (
            format!("holds all that Karmada has brought to {cluster}, which would be deleted there"),
            format!(
                "If it is to leave the fleet: Unjoin {cluster} first, which removes this namespace by itself ({UNJOINED})"
            ),
        ),
    };
    let text = target.text();
    let message = match target.find_override(config.break_glass, now) {
        Override::Invalid(why) => format!("{text} {what}{}. {first}", ignored_override(&why)),
        Override::None | Override::Active { .. } => {
            let command = remedy::override_command(config, target);
            format!("{text} {what}. {first}, or {}; {command}", see_impact(target))
        }
    };
    let causes = vec![denial_cause("KarmadasOwn", what, LOCAL_FIELD)];
    Ruling::deny(denial(&message, causes)).audit("karmadas-own", &target.name)
}

/// Returns the ruling for a CRD whose objects Durward isn't configured to read.
pub(super) fn unreadable_group(config: &Config, target: &Target, now: SystemTime) -> Ruling {
    let group = target.group();
    let groups = config.groups.0.iter().map(String::as_str).chain([group]).collect::<Vec<_>>().join(", ");
    let text = format!(
        "objects of {group} may not be read, for it is not in crds.groups. Write in Durward's configuration, under guards.deletion, crds: {{groups: [{groups}]}} ({:?} would be every group), and apply what durward manifests prints then",
        Groups::ALL
    );
    let ending = match target.find_override(config.break_glass, now) {
        Override::Invalid(why) => ignored_override(&why),
        Override::None | Override::Active { .. } => {
            format!("; {}", remedy::override_command(config, target))
        }
    };
    let message = format!("{} could not be checked: {text}{ending}", target.text());
    let causes = vec![denial_cause("Unknown", text.clone(), FLEET_FIELD)];
    Ruling::unknown(Cause::new(cause::FORBIDDEN, text))
        .refuse_with(Denial { causes, ..Denial::forbidden(message) })
}
