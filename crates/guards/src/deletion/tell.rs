//! What is said: to the person at kubectl, to programs, and to the audit log.
//!
//! A long fleet is summarised for people and told in full to programs (`details.causes`); kubectl prints those only for reason
//! Invalid, so the whole sense stands in the message. Warnings are the preview of a dry run and are told with a denial as well.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::SystemTime;

use admission::{Cause, Denial, DenialCause, Ruling, one_line};

use super::config::{Config, Groups, Names};
use super::decide::Whole;
use super::facts::Seen;
use super::own::Own;
use super::remedy::{anyway, of_unknown, sentence};
use super::sight::{Count, Finding};
use super::target::{Subject, Target};
use crate::overrides::{DELETE_ANYWAY, Override};
use cluster::cause;
use cluster::fleet::{Fleet, FleetMember};

/// What every warning begins with, so that a person knows who speaks.
const VOICE: &str = "deletion: ";

/// Clusters that are named in a message; the rest is counted.
const NAMED: usize = 10;

/// The field of a cause that is about the cluster that asks. A member may be called `here`, but not this.
const HERE: &str = "(control plane)";

/// The field of a cause that is about no cluster: which there are, and what may be read in all of them.
const FLEET: &str = "(fleet)";

/// Names of objects that are told of one cluster.
const OBJECTS: usize = 5;

/// What nobody should find out by doing it: Karmada's execution controller (1.16, `handleWorkDelete`) deletes what the Works of a
/// Cluster that goes stand for while it is Ready, and Works of namespaces never ask to preserve anything.
const UNJOINED: &str = "unjoining a cluster that is Ready deletes there what Karmada brought, and all that is in the namespaces that it brought";

/// What a cluster is called.
pub(super) fn called<'s>(config: &Config, seen: &'s Seen) -> &'s str {
    match (seen.is_here(), config.is_karmada()) {
        (true, true) => "the control plane",
        (true, false) => "this cluster",
        (false, _) => seen.member.cluster.name(),
    }
}

/// `3 pods, 1 claim: web-0, web-1, web-2, data-web-0`.
pub(super) fn contents(config: &Config, counts: &[Count]) -> String {
    let told = counts.iter().map(Count::told).collect::<Vec<_>>().join(", ");
    if config.names == Names::Count {
        return told;
    }
    let all: Vec<&str> = counts.iter().flat_map(|count| &count.names).map(String::as_str).collect();
    let shown = all.get(..OBJECTS).unwrap_or(&all);
    let is_cut = counts.iter().any(|count| count.more)
        || counts.iter().map(|count| count.objects).sum::<usize>() > shown.len();
    format!("{told}: {}{}", shown.join(", "), if is_cut { ", …" } else { "" })
}

/// Why something could not be seen, as the end of a sentence.
pub(super) fn why(causes: &[Cause]) -> String {
    let first = causes.first().map_or("no cause was given", |cause| cause.text.as_str());
    match causes.len() {
        0 | 1 => first.to_owned(),
        more => format!("{first}; and {} more that could not be read", more - 1),
    }
}

/// Everything that is said of one cluster.
pub(super) fn within(config: &Config, seen: &Seen) -> String {
    match seen.sight.finding() {
        Finding::InUse if seen.sight.unseen.is_empty() => contents(config, &seen.sight.in_use),
        Finding::InUse => {
            let unseen = why(&seen.sight.unseen);
            format!("{}; not all could be seen: {unseen}", contents(config, &seen.sight.in_use))
        }
        Finding::Unknown => why(&seen.sight.unseen),
        Finding::WouldStay => contents(config, &seen.sight.stays),
        Finding::Empty => "nothing".to_owned(),
    }
}

/// The first few, and how many more there are.
fn few(all: &[String], more: &str) -> String {
    let shown = all.get(..NAMED).unwrap_or(all);
    let told = shown.join(", ");
    if shown.len() < all.len() { format!("{told} and {} more {more}", all.len() - shown.len()) } else { told }
}

/// `m1 (3 pods: a, b, c), m2 (1 claim: data)`.
fn listed(config: &Config, clusters: &[&Seen]) -> String {
    let told: Vec<String> = clusters
        .iter()
        .map(|&seen| {
            // What could not be seen beside it is in the causes; here it is enough that it is not everything.
            let unseen = if seen.sight.unseen.is_empty() || seen.sight.in_use.is_empty() {
                ""
            } else {
                "; not all could be seen"
            };
            let inner =
                if unseen.is_empty() { within(config, seen) } else { contents(config, &seen.sight.in_use) };
            format!("{} ({inner}{unseen})", called(config, seen))
        })
        .collect();
    few(&told, "clusters")
}

/// `m5 could not be asked (no answer in 1.5 s)`.
fn not_asked(config: &Config, clusters: &[&Seen]) -> String {
    let told: Vec<String> = clusters
        .iter()
        .map(|seen| format!("{} could not be asked ({})", called(config, seen), why(&seen.sight.unseen)))
        .collect();
    few(&told, "clusters that could not be asked")
}

/// `in 2 of 5 clusters`; nothing where there is only one, or where nobody knows how many there are.
fn share(config: &Config, some: usize, whole: &Whole<'_>) -> String {
    match whole.clusters {
        _ if config.fleet == Fleet::None || whole.unsure.is_some() => String::new(),
        1 => format!(" in {some} of 1 cluster"),
        all => format!(" in {some} of {all} clusters"),
    }
}

fn see(target: &Target) -> String {
    format!("see: kubectl durward impact {}/{}", target.subject.short(), target.name)
}

/// What a message ends with: what does not count although somebody meant it to, and the way out.
fn ending(config: &Config, target: &Target, whole: &Whole<'_>, way_out: &str) -> String {
    // Writing to a String cannot fail, here and below.
    let mut out = String::new();
    if !whole.notes.is_empty() {
        out.push_str(". ");
        out.push_str(&sentence(&few(&whole.notes, "acknowledgements that do not count")));
    }
    if let Some(wrong) = &whole.glass {
        let _ = write!(out, ". The annotation {DELETE_ANYWAY} does not count: {wrong}");
    }
    let _ = write!(out, ". {way_out}, or {}", see(target));
    if whole.glass.is_none() {
        let _ = write!(out, "; {}", anyway(config, target));
    }
    out
}

/// A refusal on one line, whatever the names and reasons that it repeats hold: this guard writes no second one.
fn refusal(message: &str, mut causes: Vec<DenialCause>) -> Denial {
    for cause in &mut causes {
        cause.message = one_line(&cause.message);
    }
    Denial { causes, ..Denial::forbidden(one_line(message)) }
}

/// The refusal of what is in use.
pub(super) fn in_use(config: &Config, target: &Target, whole: &Whole<'_>) -> Denial {
    let share = share(config, whole.in_use.len(), whole);
    let what = match (config.fleet == Fleet::None, whole.in_use.first()) {
        (true, Some(only)) => within(config, only),
        _ => listed(config, &whole.in_use),
    };
    let mut message = format!("{} is still in use{share}: {what}", target.told());
    if let Some(cause) = &whole.unsure {
        let _ = write!(message, "; {}", cause.text);
    }
    if !whole.unknown.is_empty() {
        let _ = write!(message, "; {}", not_asked(config, &whole.unknown));
    }
    let way_out = match (target.subject, whole.in_use.len()) {
        (Subject::Definition, _) => "Delete the objects first",
        (Subject::Namespace, 1) => "Empty it",
        (Subject::Namespace, _) => "Empty them",
    };
    message.push_str(&ending(config, target, whole, way_out));
    refusal(&message, details(config, whole))
}

/// The refusal of what could not be seen.
pub(super) fn unknown(config: &Config, target: &Target, whole: &Whole<'_>) -> Denial {
    let mut message = format!("{} could not be checked", target.told());
    let mut parts = Vec::new();
    if let Some(cause) = &whole.unsure {
        parts.push(cause.text.clone());
    }
    if !whole.unknown.is_empty() {
        message.push_str(&share(config, whole.unknown.len(), whole));
        parts.push(match (config.fleet == Fleet::None, whole.unknown.first()) {
            (true, Some(only)) => within(config, only),
            _ => listed(config, &whole.unknown),
        });
    }
    let _ = write!(message, ": {}", parts.join("; "));
    let others = whole.clusters - whole.unknown.len() - whole.acknowledged.len();
    if whole.unsure.is_none() && others > 0 {
        let others = if others == 1 { "one".to_owned() } else { others.to_string() };
        let _ = write!(message, ". Nothing is in use in the other {others}");
    }
    let way_out = of_unknown(config, whole);
    message.push_str(&ending(config, target, whole, &way_out));
    refusal(&message, details(config, whole))
}

/// The causes, one for each code, so that each is counted once for a review, whatever the fleet's size.
pub(super) fn causes(config: &Config, whole: &Whole<'_>) -> Vec<Cause> {
    let mut causes: Vec<Cause> = whole.unsure.iter().cloned().collect();
    let mut by_code: BTreeMap<&'static str, Vec<&Seen>> = BTreeMap::new();
    for seen in &whole.unknown {
        let code = seen.sight.unseen.first().map_or(cause::REFUSED, |cause| cause.code);
        by_code.entry(code).or_default().push(seen);
    }
    causes.extend(by_code.into_iter().map(|(code, seen)| Cause::new(code, not_asked(config, &seen))));
    causes
}

/// What a program knows the cluster by: its name, and for the one that asks something that is no name.
fn field(seen: &Seen) -> &str {
    if seen.is_here() { HERE } else { seen.member.cluster.name() }
}

/// For programs: every cluster where there is something to say.
fn details(config: &Config, whole: &Whole<'_>) -> Vec<DenialCause> {
    let detail = |reason: &str, message: String, field: &str| DenialCause {
        reason: reason.to_owned(),
        message,
        field: field.to_owned(),
    };
    let of = |seen: &Seen| {
        let finding = seen.sight.finding();
        detail(finding.reason(), within(config, seen), field(seen))
    };
    let unsure = whole.unsure.iter().map(|cause| detail("Unknown", cause.text.clone(), FLEET));
    let silent = whole.acknowledged.iter().map(|(seen, acknowledgement)| {
        let told = format!("{}; acknowledged until {}", why(&seen.sight.unseen), acknowledgement.until);
        detail("Acknowledged", told, field(seen))
    });
    let seen = whole.in_use.iter().chain(&whole.unknown).chain(&whole.stays).map(|seen| of(seen));
    unsure.chain(seen).chain(silent).collect()
}

/// The same ruling with its warnings and audit annotations.
pub(super) fn beside(config: &Config, target: &Target, whole: &Whole<'_>, mut ruling: Ruling) -> Ruling {
    let finding = whole.finding();
    let is_refused = matches!(finding, Finding::InUse | Finding::Unknown);
    if target.dry_run || is_refused {
        preview(config, target, whole, &mut ruling);
    }
    if whole.is_bare {
        let here = if config.is_karmada() { "the control plane" } else { "this cluster" };
        let text = format!("the fleet has no clusters: only {here} was looked at");
        ruling.warnings.push(format!("{VOICE}{text}"));
        ruling.audit.set("fleet", text);
    }
    if !is_refused {
        allowed(config, whole, &mut ruling);
    }
    ruling.audit.set("clusters-asked", whole.clusters.to_string());
    let names = |clusters: &[&Seen]| {
        clusters.iter().map(|seen| seen.member.cluster.name()).collect::<Vec<_>>().join(", ")
    };
    for (key, clusters) in
        [("in-use", &whole.in_use), ("not-seen", &whole.unknown), ("would-stay", &whole.stays)]
    {
        if !clusters.is_empty() {
            ruling.audit.set(key, names(clusters));
        }
    }
    if let Some(cause) = &whole.unsure {
        ruling.audit.set("not-sure-of-the-fleet", &cause.text);
    }
    if !whole.acknowledged.is_empty() {
        let told: Vec<String> = whole
            .acknowledged
            .iter()
            .map(|(seen, a)| format!("{} until {}: {}", called(config, seen), a.until, a.reason))
            .collect();
        ruling.audit.set("acknowledged", told.join("; "));
    }
    ruling
}

/// What is where, a line for each cluster.
fn preview(config: &Config, target: &Target, whole: &Whole<'_>, ruling: &mut Ruling) {
    let found = whole.in_use.iter().chain(&whole.unknown).chain(&whole.stays);
    let lines: Vec<String> = found
        .map(|seen| {
            let (name, within) = (called(config, seen), within(config, seen));
            match seen.sight.finding() {
                Finding::InUse => format!("{name} has {within}"),
                Finding::Unknown => format!("{name} could not be asked: {within}"),
                Finding::WouldStay => format!("{name} would keep {within}"),
                Finding::Empty => format!("{name} has nothing"),
            }
        })
        .collect();
    for line in lines.iter().take(NAMED) {
        ruling.warnings.push(format!("{VOICE}{line}"));
    }
    if lines.len() > NAMED {
        ruling.warnings.push(format!("{VOICE}{} more clusters; {}", lines.len() - NAMED, see(target)));
    }
    if lines.is_empty() && whole.unsure.is_none() {
        let seen = whole.clusters - whole.acknowledged.len();
        let clusters = if seen == 1 { "cluster" } else { "clusters" };
        ruling.warnings.push(format!("{VOICE}nothing of {} is in use in {seen} {clusters}", target.told()));
    }
}

/// What an allowed deletion leaves open.
fn allowed(config: &Config, whole: &Whole<'_>, ruling: &mut Ruling) {
    let consequence = if config.is_karmada() {
        "Karmada carries the deletion out there when it returns"
    } else {
        "nobody looked at what it holds"
    };
    for (seen, a) in whole.acknowledged.iter().take(NAMED) {
        ruling.warnings.push(format!(
            "{VOICE}{} could not be asked ({}), acknowledged until {}: {}; {consequence}",
            called(config, seen),
            why(&seen.sight.unseen),
            a.until,
            a.reason,
        ));
    }
    if whole.acknowledged.len() > NAMED {
        let more = whole.acknowledged.len() - NAMED;
        ruling.warnings.push(format!("{VOICE}{more} more clusters are acknowledged; {consequence}"));
    }
    for seen in whole.stays.iter().take(NAMED) {
        let (name, within) = (called(config, seen), within(config, seen));
        ruling.warnings.push(format!("{VOICE}{name} would keep {within}"));
    }
}

/// The allow of somebody who broke the glass.
pub(super) fn glass_broken(target: &Target, reason: &str, until: &str) -> Ruling {
    Ruling::allow()
        .warn(format!(
            "{VOICE}{} passes unchecked: {DELETE_ANYWAY} until {until}, because: {reason}",
            target.told()
        ))
        .audit("break-glass", format!("until {until}: {reason}"))
}

/// The refusal of what the fleet itself needs.
pub(super) fn karmadas_own(
    config: &Config,
    target: &Target,
    own: Own<'_>,
    members: &[FleetMember],
    now: SystemTime,
) -> Ruling {
    let (what, first) = match own {
        Own::Core => {
            let clusters = if members.len() == 1 { "cluster" } else { "clusters" };
            let what = format!(
                "is a part of Karmada itself: without it the fleet of {} {clusters} is lost",
                members.len()
            );
            (what, format!("Unjoin the clusters first ({UNJOINED})"))
        }
        Own::Space(cluster) => (
            format!("holds all that Karmada has brought to {cluster}, which would be deleted there"),
            format!(
                "If it is to leave the fleet: Unjoin {cluster} first, which removes this namespace by itself ({UNJOINED})"
            ),
        ),
    };
    let message = match target.glass(config.break_glass, now) {
        Override::Refused(wrong) => {
            format!(
                "{} {what}. The annotation {DELETE_ANYWAY} does not count: {wrong}. {first}",
                target.told()
            )
        }
        Override::Whole | Override::Broken { .. } => {
            format!("{} {what}. {first}, or {}; {}", target.told(), see(target), anyway(config, target))
        }
    };
    let detail = DenialCause { reason: "KarmadasOwn".to_owned(), message: what, field: HERE.to_owned() };
    Ruling::deny(refusal(&message, vec![detail])).audit("karmadas-own", &target.name)
}

/// What is said of a definition whose objects Durward may not read.
pub(super) fn uncovered(config: &Config, target: &Target, now: SystemTime) -> Ruling {
    let group = target.group();
    let mut groups: Vec<&str> = config.groups.0.iter().map(String::as_str).collect();
    groups.push(group);
    let line = format!("crds: {{groups: [{}]}}", groups.join(", "));
    let text = format!(
        "objects of {group} may not be read, for it is not in crds.groups. Write in Durward's configuration, under guards.deletion, {line} ({:?} would be every group), and apply what durward manifests prints then",
        Groups::ALL
    );
    let denial = Denial {
        causes: vec![DenialCause {
            reason: "Unknown".to_owned(),
            message: text.clone(),
            field: FLEET.to_owned(),
        }],
        ..Denial::forbidden(format!(
            "{} could not be checked: {text}{}",
            target.told(),
            match target.glass(config.break_glass, now) {
                Override::Refused(wrong) =>
                    format!(". The annotation {DELETE_ANYWAY} does not count: {wrong}"),
                Override::Whole | Override::Broken { .. } => format!("; {}", anyway(config, target)),
            }
        ))
    };
    Ruling::unknown(Cause::new(cause::FORBIDDEN, text)).refuse_with(denial)
}
