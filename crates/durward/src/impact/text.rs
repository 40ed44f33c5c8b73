//! Formats the impact of a deletion: the deciding clusters first, empty clusters in one line.

use std::fmt::Write as _;

use guards::deletion::{ClusterImpact, Finding, Impact};

use crate::output::Style;

/// The number of empty clusters that are named.
const NAMED: usize = 12;

/// Formats one object. Among several objects, one that can be deleted takes one line. `here` is the name of the local cluster.
pub(super) fn format_impact<'i>(
    impact: &'i Impact,
    is_one_of_many: bool,
    here: &'i str,
    style: Style,
) -> String {
    let mut out = headline(impact, here, style);
    // The local cluster is first. A member cluster can have any name.
    let called = |at, reached: &'i ClusterImpact| if at == 0 { here } else { reached.cluster.as_str() };
    let all = impact.clusters.iter().enumerate().map(|(at, reached)| (called(at, reached), reached));
    let (empty, mut notable): (Vec<_>, Vec<_>) =
        all.partition(|(_, reached)| reached.finding == Finding::Empty);
    if is_one_of_many && impact.verdict == "allow" && notable.is_empty() {
        return out;
    }
    let width = notable.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    notable.sort_by_key(|(_, reached)| match reached.finding {
        Finding::InUse => 0,
        Finding::Unknown => 1,
        Finding::WouldStay => 2,
        Finding::Empty => 3,
    });
    for (name, reached) in &notable {
        // Writing to a `String` can't fail.
        let _ = writeln!(out, "  {name:<width$}  {}", line(reached, style));
    }
    for why in &impact.unsure {
        let _ = writeln!(out, "  {}  {} ({})", style.yellow("unknown"), why.text, why.cause);
    }
    let empty: Vec<&str> = empty.iter().map(|&(name, _)| name).collect();
    if !empty.is_empty() {
        let named = empty.get(..NAMED).unwrap_or(&empty).join(", ");
        let more = empty.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let _ = writeln!(out, "  {}", style.dim(&format!("nothing in use in {named}{more}")));
    }
    // If no cluster explains the verdict, the text of the guard does.
    let says_why = match impact.verdict {
        "unknown" => notable.iter().any(|(_, reached)| reached.finding == Finding::Unknown),
        _ => !notable.is_empty(),
    };
    if !says_why
        && impact.unsure.is_empty()
        && let Some(message) = &impact.message
    {
        let _ = writeln!(out, "  {message}");
    }
    if impact.verdict == "allow" {
        for warning in &impact.warnings {
            let _ = writeln!(out, "  {} {warning}", style.yellow("Warning:"));
        }
    }
    out
}

fn headline(impact: &Impact, here: &str, style: Style) -> String {
    let kind = if impact.kind == "Namespace" { "ns" } else { "crd" };
    let all = impact.clusters.len();
    let count = |finding| impact.clusters.iter().filter(|reached| reached.finding == finding).count();
    let clusters = if all == 1 { "cluster" } else { "clusters" };
    let summary = match impact.verdict {
        "allow" if count(Finding::Unknown) > 0 => style.yellow(&format!(
            "may be deleted; {} of {all} {clusters} not seen, and acknowledged",
            count(Finding::Unknown)
        )),
        "allow" => style.green(&format!("may be deleted: nothing in use in {all} {clusters}")),
        "deny" if count(Finding::InUse) > 0 => style
            .red(&format!("in use in {} of {all} {clusters}: a deletion is refused", count(Finding::InUse))),
        "deny" => style.red("a deletion is refused"),
        _ => style.yellow("unknown: a deletion is refused until it is known"),
    };
    let summary = if impact.exists == Some(false) {
        style.yellow(&format!("does not exist in {here}"))
    } else {
        summary
    };
    let exists = match impact.exists {
        Some(_) => "",
        None => "  (whether it exists could not be seen)",
    };
    format!("{}  {summary}{exists}\n", style.bold(&format!("{kind}/{}", impact.name)))
}

fn line(reached: &ClusterImpact, style: Style) -> String {
    let word = match reached.finding {
        Finding::InUse => style.red("in use"),
        Finding::Unknown => style.yellow("unknown"),
        Finding::WouldStay => "would stay".to_owned(),
        Finding::Empty => "empty".to_owned(),
    };
    let acknowledged = match &reached.acknowledged {
        Some(by) => format!("  (acknowledged until {}: {})", by.until, by.reason),
        None => String::new(),
    };
    format!("{word}  {}{acknowledged}", reached.summary)
}
