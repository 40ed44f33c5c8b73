//! The texts of rulings: denials for users, and causes for programs.
//!
//! A denial names the first clusters and counts the others; `details.causes` contains all of them.

mod remedy;
mod warnings;

use std::collections::BTreeMap;

use admission::text::one_line;
use admission::{Cause, Denial, DenialCause, Ruling};

use super::NAME;
use super::case::Case;
use super::cluster_facts::{ClusterFacts, ObjectCount, Reason, UsageState};
use super::config::Config;
use super::karmada::KarmadaPart;
use super::summary::FleetSummary;
use super::target::{DeletionSubject, Target};
use crate::message::{MAX_SUMMARY, Message};
use crate::overrides::{self, Overridable, Overrides};
use cluster::cause;
use cluster::fleet::{Fleet, FleetMember, LOCAL};

pub(super) use warnings::{annotate, overridden};

/// The clusters that the warnings of a dry run name.
const MAX_WARNINGS: usize = 10;

/// The lines of a denial about single clusters.
const MAX_LINES: usize = 5;

/// The objects that a text names for one cluster.
const MAX_OBJECTS: usize = 5;

/// The short form of the cause if the API server does not have the object of the review.
const ANOTHER_CLUSTER: &str = "Durward is connected to another cluster";

/// The field of a cause about the whole fleet.
const FLEET_FIELD: &str = "(fleet)";

/// The page about unjoining. If the Cluster is Ready, Karmada's execution controller (1.16, `handleWorkDelete`) deletes the
/// objects of its Works, and Works of namespaces never ask to preserve anything.
const UNJOIN_PAGE: &str =
    "https://github.com/durward/durward/blob/main/docs/src/deletion/offline.md#what-unjoin-deletes";

/// Returns the name of a cluster for users.
fn name<'c>(config: &Config, cluster: &'c ClusterFacts) -> &'c str {
    match (cluster.is_local(), config.is_karmada()) {
        (true, true) => "the control plane",
        (true, false) => "this cluster",
        (false, _) => cluster.member.cluster.name(),
    }
}

/// Returns the name of a cluster in a sentence: `member cluster m2`.
fn place(config: &Config, cluster: &ClusterFacts) -> String {
    let name = name(config, cluster);
    if cluster.is_local() { name.to_owned() } else { format!("member cluster {name}") }
}

/// Returns the place of one cluster, or the share of several: `2 of 5 member clusters`.
fn share(config: &Config, some: &[&ClusterFacts], summary: &FleetSummary<'_>) -> String {
    if let [only] = some {
        return place(config, only);
    }
    let local = some.iter().find(|cluster| cluster.is_local());
    let members: Vec<_> = some.iter().filter(|cluster| !cluster.is_local()).collect();
    let share = match members.as_slice() {
        [only] => place(config, only),
        // Without the whole list, the size of the fleet is not known.
        some if summary.incomplete.is_some() => format!("{} member clusters", some.len()),
        some => format!("{} of {} member clusters", some.len(), summary.members),
    };
    match local {
        Some(local) => format!("{} and {share}", name(config, local)),
        None => share,
    }
}

/// Returns the text with as many items as fit into the first line, at most `max`.
fn fit(max: usize, text: impl Fn(usize) -> String) -> String {
    // Each item takes at least three characters: a letter, a comma and a blank.
    let max = max.min(MAX_SUMMARY / 3);
    let fitting = (1..=max).rev().map(&text).find(|text| text.chars().count() <= MAX_SUMMARY);
    fitting.unwrap_or_else(|| text(0))
}

/// Returns numbers with the first names: `3 pods (web-0, web-1, web-2), 1 PVC (data-web-0)`.
fn contents(config: &Config, counts: &[ObjectCount], max_names: usize) -> String {
    let mut left = if config.show_object_names { max_names } else { 0 };
    let text = |count: &ObjectCount| {
        let names = count.names.get(..left).unwrap_or(&count.names);
        left -= names.len();
        let more = if names.len() < count.objects || count.more { ", …" } else { "" };
        let names = if names.is_empty() { String::new() } else { format!(" ({}{more})", names.join(", ")) };
        format!("{}{names}", count.text())
    };
    counts.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// Returns the first cause, and the number of the others.
fn reason(causes: &[Cause]) -> String {
    let first = causes.first().map_or("no reason was given", |cause| cause.text.as_str());
    match causes.len() {
        0 | 1 => first.to_owned(),
        more => format!("{first}; and {} more failed requests", more - 1),
    }
}

/// Returns the findings of one cluster in full.
pub(super) fn findings(config: &Config, cluster: &ClusterFacts) -> String {
    match cluster.state() {
        UsageState::InUse if cluster.unknown.is_empty() => contents(config, &cluster.in_use, MAX_OBJECTS),
        UsageState::InUse => {
            let contents = contents(config, &cluster.in_use, MAX_OBJECTS);
            format!("{contents}; not everything could be read: {}", reason(&cluster.unknown))
        }
        UsageState::Unknown => reason(&cluster.unknown),
        UsageState::Empty => "nothing".to_owned(),
    }
}

/// Lists the first names, and the number of the others.
fn first_names(config: &Config, clusters: &[&ClusterFacts], max: usize) -> String {
    let shown: Vec<&str> = clusters.iter().take(max).map(|cluster| name(config, cluster)).collect();
    match clusters.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Adds lines about the clusters that could not be checked: one line for each code.
fn unknown_lines(config: &Config, summary: &FleetSummary<'_>, message: Message) -> Message {
    let message = summary.incomplete.iter().fold(message, |message, cause| message.detail(&cause.text));
    let by_code = by_code(&summary.unknown).into_iter().take(MAX_LINES);
    by_code.fold(message, |message, (code, clusters)| match clusters.as_slice() {
        [only] => message.detail(&named_reason(config, only)),
        several => {
            message.detail(&format!("{}: {}", first_names(config, several, MAX_LINES), remedy::phrase(code)))
        }
    })
}

/// Returns why a cluster could not be checked. Most texts begin with its name.
fn named_reason(config: &Config, cluster: &ClusterFacts) -> String {
    let (name, reason) = (name(config, cluster), reason(&cluster.unknown));
    if reason.contains(name) || remedy::is_wrong_cluster(cluster) {
        reason
    } else {
        format!("{name}: {reason}")
    }
}

/// Groups clusters that could not be checked by the code of their first cause.
fn by_code<'c>(clusters: &[&'c ClusterFacts]) -> BTreeMap<&'static str, Vec<&'c ClusterFacts>> {
    let mut by_code: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for cluster in clusters {
        let code = cluster.unknown.first().map_or(cause::REFUSED, |cause| cause.code);
        by_code.entry(code).or_default().push(*cluster);
    }
    by_code
}

/// Adds the command that overrides the denial.
fn overriding(allowed: Overrides, &Case { target, now, .. }: &Case<'_>, message: Message) -> Message {
    let Target { subject: DeletionSubject { name, .. }, annotations, .. } = target;
    let object = &*target.subject.argument(' ');
    Overridable { guard: NAME, allowed, object, name, annotations }.add_command(message, now, "")
}

/// Creates the denial from its first lines and the steps.
fn deny(case: &Case<'_>, summary: &FleetSummary<'_>, mut message: Message, steps: remedy::Steps) -> Denial {
    for why in summary.invalid_acknowledgements.iter().take(MAX_LINES) {
        message = message.detail(&format!("Acknowledgement ignored: {why}"));
    }
    message = overrides::add_invalid(message, &case.current_override);
    if let Some(next) = steps.next {
        message = message.next(&next);
    }
    if let Some(admin) = steps.admin {
        message = message.admin(&admin);
    }
    if !steps.is_transient {
        // Durward reads override annotations of the stored object, which it does not have.
        let is_wrong = summary.unknown.iter().any(|cluster| remedy::is_wrong_cluster(cluster));
        let allowed = if is_wrong { Overrides::Permission } else { case.config.overrides };
        message = overriding(allowed, case, message);
    }
    denial(&message, causes_for_programs(case.config, summary))
}

fn denial(message: &Message, mut causes: Vec<DenialCause>) -> Denial {
    for cause in &mut causes {
        cause.message = one_line(&cause.message);
    }
    Denial { causes, ..Denial::forbidden(message.to_string()) }
}

fn denial_cause(reason: Reason, message: String, field: &str) -> DenialCause {
    DenialCause { reason: format!("{reason:?}"), message, field: field.to_owned() }
}

/// Returns the beginning of a sentence that says that Durward can't tell whether the object is in use.
fn cannot_tell(target: &Target) -> String {
    format!("cannot tell whether {} is in use", target.subject.text())
}

/// Returns the cause if the API server does not have the object of the review.
pub(super) fn another_cluster(target: &Target) -> Cause {
    let text = format!("{ANOTHER_CLUSTER}, which does not have this {}", target.subject.kind.word());
    Cause::new(cause::WRONG_CLUSTER, text)
}

/// Returns the denial of a deletion that would delete objects in use.
pub(super) fn in_use(case: &Case<'_>, summary: &FleetSummary<'_>) -> Denial {
    let &Case { config, target, .. } = case;
    let (text, in_use) = (target.subject.text(), &summary.in_use);
    let unchecked = match (summary.unknown.len(), &summary.incomplete) {
        (0, None) => String::new(),
        (0, Some(_)) => "; other clusters could not be checked".to_owned(),
        (1, _) => "; 1 cluster could not be checked".to_owned(),
        (more, _) => format!("; {more} clusters could not be checked"),
    };
    let share = share(config, in_use, summary);
    let message = match in_use.as_slice() {
        [only] => {
            let place = if config.fleet == Fleet::None { String::new() } else { format!(" in {share}") };
            let message = Message::new(&fit(MAX_OBJECTS, |max| {
                let contents = contents(config, &only.in_use, max);
                format!("{text} is still in use{place}: {contents}{unchecked}")
            }));
            match only.unknown.as_slice() {
                [] => message,
                unknown => message.detail(&format!("not everything could be read: {}", reason(unknown))),
            }
        }
        several => {
            // The share of two clusters can name both.
            let is_named = several.iter().filter(|cluster| !cluster.is_local()).count() == 1;
            let message = Message::new(&fit(several.len(), |max| {
                let names = first_names(config, several, max);
                let names = if is_named { String::new() } else { format!(": {names}") };
                format!("{text} is still in use in {share}{names}{unchecked}")
            }));
            several.iter().take(MAX_LINES).fold(message, |message, cluster| {
                message.detail(&format!("{}: {}", name(config, cluster), findings(config, cluster)))
            })
        }
    };
    let message = unknown_lines(config, summary, message);
    deny(case, summary, message, remedy::for_in_use(target, summary))
}

/// Returns the denial for `onUnknown: deny`. Line 1 has the whole reason if it fits, else a few words, and details follow.
pub(super) fn unknown(case: &Case<'_>, summary: &FleetSummary<'_>) -> Denial {
    let &Case { config, target, .. } = case;
    let whole = |cluster: &ClusterFacts| reason(&cluster.unknown);
    let (mut short, mut long) = (Vec::new(), Vec::new());
    if let Some(cause) = &summary.incomplete {
        long.push(cause.text.clone());
        short.push("not all member clusters are known".to_owned());
    }
    match summary.unknown.as_slice() {
        [] => {}
        [only] if remedy::is_wrong_cluster(only) => {
            long.push(whole(only));
            short.push(ANOTHER_CLUSTER.to_owned());
        }
        [only] => {
            let code = only.unknown.first().map_or("", |cause| cause.code);
            let text = |why: &str| format!("{} could not be checked ({why})", place(config, only));
            long.push(text(&whole(only)));
            short.push(text(remedy::phrase(code)));
        }
        several => short.push(format!("{} could not be checked", share(config, several, summary))),
    }
    let unknown_members = summary.unknown.iter().filter(|cluster| !cluster.is_local()).count();
    let others = summary.members.saturating_sub(unknown_members + summary.acknowledged.len());
    let empty = match (others, unknown_members) {
        (0, _) => String::new(),
        _ if summary.incomplete.is_some() => String::new(),
        (others, 0) => format!("; nothing in use in {}", member_clusters(others)),
        (1, _) => "; nothing in use in the other one".to_owned(),
        (others, _) => format!("; nothing in use in the other {others}"),
    };
    let line = |parts: &[String]| {
        let line = format!("{}: {}", cannot_tell(target), parts.join("; "));
        fit(1, |max| format!("{line}{}", if max == 0 { "" } else { &empty }))
    };
    let is_whole = long.len() == short.len() && line(&long).chars().count() <= MAX_SUMMARY;
    let message = if is_whole {
        Message::new(&line(&long))
    } else {
        unknown_lines(config, summary, Message::new(&line(&short)))
    };
    deny(case, summary, message, remedy::for_unknown(case, summary))
}

/// Returns `1 member cluster` or `3 member clusters`.
fn member_clusters(number: usize) -> String {
    format!("{number} member cluster{}", if number == 1 { "" } else { "s" })
}

/// Returns one cause per code, so that metrics count each code once per review.
pub(super) fn causes(config: &Config, summary: &FleetSummary<'_>) -> Vec<Cause> {
    let unchecked = |cluster: &&ClusterFacts| {
        format!("{} could not be checked ({})", name(config, cluster), reason(&cluster.unknown))
    };
    let of_clusters = by_code(&summary.unknown).into_iter().map(|(code, clusters)| {
        let shown: Vec<_> = clusters.iter().take(MAX_WARNINGS).map(unchecked).collect();
        let more = clusters.len() - shown.len();
        let more = if more == 0 { String::new() } else { format!(" and {more} more clusters") };
        Cause::new(code, format!("{}{more}", shown.join(", ")))
    });
    summary.incomplete.iter().cloned().chain(of_clusters).collect()
}

/// Returns `details.causes`: one for each cluster with findings.
fn causes_for_programs(config: &Config, summary: &FleetSummary<'_>) -> Vec<DenialCause> {
    let incomplete = summary.incomplete.iter();
    let incomplete = incomplete.map(|cause| denial_cause(Reason::Unknown, cause.text.clone(), FLEET_FIELD));
    let name = |cluster: &ClusterFacts| cluster.member.cluster.name().to_owned();
    let of = |reason: Reason| {
        move |cluster: &&ClusterFacts| denial_cause(reason, findings(config, cluster), &name(cluster))
    };
    let clusters = summary.in_use.iter().map(of(Reason::InUse));
    let clusters = clusters.chain(summary.unknown.iter().map(of(Reason::Unknown)));
    let acknowledged = summary.acknowledged.iter().map(|(cluster, acknowledgement)| {
        let (why, until) = (reason(&cluster.unknown), &acknowledgement.until);
        denial_cause(Reason::Acknowledged, format!("{why}; acknowledged until {until}"), &name(cluster))
    });
    incomplete.chain(clusters).chain(acknowledged).collect()
}

/// Returns the denial for a part of Karmada that the fleet needs. It offers no override: the loss is too large.
pub(super) fn karmada_part(case: &Case<'_>, part: KarmadaPart<'_>, members: &[FleetMember]) -> Ruling {
    let text = case.target.subject.text();
    let (what, next) = match part {
        KarmadaPart::Core => (
            format!(
                "{text} is part of Karmada: deleting it breaks the fleet of {}",
                member_clusters(members.len())
            ),
            "unjoin the member clusters first".to_owned(),
        ),
        KarmadaPart::ExecutionSpace(cluster) => (
            format!(
                "{text} is Karmada's work queue for member cluster {cluster}: deleting it deletes everything Karmada deployed there"
            ),
            format!("to remove {cluster} from the fleet: karmadactl unjoin {cluster}"),
        ),
    };
    let message = Message::new(&what);
    let message = overrides::add_invalid(message, &case.current_override);
    let message = message.next(&format!(
        "{next}. If a cluster is Ready, that also deletes what Karmada deployed there: {UNJOIN_PAGE}"
    ));
    let causes = vec![denial_cause(Reason::KarmadasOwn, what, LOCAL)];
    Ruling::deny(denial(&message, causes)).audit("karmada-part", &case.target.subject.name)
}

/// Returns the ruling for a CRD whose objects Durward isn't configured to read.
pub(super) fn unreadable_group(case: &Case<'_>) -> Ruling {
    let &Case { config, target, .. } = case;
    let group = target.subject.group();
    let groups = config.api_groups.0.iter().map(String::as_str).chain([group]).collect::<Vec<_>>().join(", ");
    let why = format!("API group {group} is not in guards.deletion.crds.apiGroups");
    let message = Message::new(&format!("{}: {why}", cannot_tell(target)));
    let message = overrides::add_invalid(message, &case.current_override).admin(&format!(
        "add it to values.yaml, then helm upgrade; without the chart, apply what `durward manifests` prints: crds: {{apiGroups: [{groups}]}}"
    ));
    let message = overriding(config.overrides, case, message);
    let causes = vec![denial_cause(Reason::Unknown, why.clone(), FLEET_FIELD)];
    Ruling::unknown(Cause::new(cause::FORBIDDEN, why)).refuse_with(denial(&message, causes))
}
