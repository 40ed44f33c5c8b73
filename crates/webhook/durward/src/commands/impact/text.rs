//! Formats the impact of a deletion: the deciding clusters first, empty clusters in one line.

use std::fmt::Write as _;

use console::output::Style;
use guards::deletion::{ClusterImpact, Impact, UsageState};

/// The number of empty clusters that are named.
const NAMED: usize = 12;

/// How much of an impact is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// Empty clusters in one line.
    Alone,
    /// As `Alone`, but an object that can be deleted takes one line.
    OneOfMany,
    /// A line for each cluster.
    Wide,
}

/// Returns the name of the object as `kubectl get -o name` prints it.
pub(super) fn name(impact: &Impact) -> String {
    let kind = match impact.kind.as_str() {
        "Namespace" => "namespace",
        "CustomResourceDefinition" => "customresourcedefinition.apiextensions.k8s.io",
        resource => resource,
    };
    format!("{kind}/{}\n", impact.name)
}

/// Returns the name of the object as the command line takes it: `ns/shop`.
pub(super) fn short_name(impact: &Impact) -> String {
    let kind = match impact.kind.as_str() {
        "Namespace" => "ns",
        "CustomResourceDefinition" => "crd",
        resource => resource,
    };
    let space = if impact.namespace.is_empty() { String::new() } else { format!("{}/", impact.namespace) };
    format!("{kind}/{space}{}", impact.name)
}

/// Returns what is in use, or why it is not known, in one line. `here` is the name of the local cluster.
pub(super) fn summary(impact: &Impact, here: &str) -> String {
    if impact.exists == Some(false) {
        return "does not exist".to_owned();
    }
    let of = |state: UsageState| {
        let clusters = impact.clusters.iter().enumerate().filter(move |(_, one)| one.state == state);
        let called = |at, one| if at == 0 { here } else { one };
        let lines = clusters.map(|(at, one)| format!("{}: {}", called(at, &one.cluster), one.summary));
        lines.collect::<Vec<_>>()
    };
    let (in_use, unknown) = (of(UsageState::InUse), of(UsageState::Unknown));
    let incomplete = impact.incomplete.iter().map(|why| why.text.clone());
    let lines: Vec<String> = in_use.into_iter().chain(unknown).chain(incomplete).collect();
    match (&impact.message, lines.is_empty()) {
        (_, false) => lines.join("; "),
        (Some(message), true) => message.clone(),
        (None, true) => "nothing in use".to_owned(),
    }
}

/// Formats one object. `here` is the name of the local cluster.
pub(super) fn format_impact<'i>(impact: &'i Impact, detail: Detail, here: &'i str, style: Style) -> String {
    let mut out = headline(impact, here, style);
    // The local cluster is first. A member cluster can have any name.
    let called = |at, reached: &'i ClusterImpact| if at == 0 { here } else { reached.cluster.as_str() };
    let all = impact.clusters.iter().enumerate().map(|(at, reached)| (called(at, reached), reached));
    let (empty, mut notable): (Vec<_>, Vec<_>) =
        all.partition(|(_, reached)| detail != Detail::Wide && reached.state == UsageState::Empty);
    if detail == Detail::OneOfMany && impact.verdict == "allow" && notable.is_empty() {
        return out;
    }
    let width = notable.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    notable.sort_by_key(|(_, reached)| match reached.state {
        UsageState::InUse => 0,
        UsageState::Unknown => 1,
        UsageState::Empty => 2,
    });
    for (name, reached) in &notable {
        // Writing to a `String` can't fail.
        let _ = writeln!(out, "  {name:<width$}  {}", line(reached, style));
    }
    for why in &impact.incomplete {
        let _ = writeln!(out, "  {}  {} ({})", style.yellow("not checked"), why.text, why.cause);
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
        "unknown" => notable.iter().any(|(_, reached)| reached.state == UsageState::Unknown),
        _ => !notable.is_empty(),
    };
    if !says_why
        && impact.incomplete.is_empty()
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

/// Returns a text in the color of a verdict.
pub(super) fn paint(verdict: &str, style: Style, text: &str) -> String {
    match verdict {
        "deny" => style.red(text),
        "unknown" => style.yellow(text),
        _ => style.green(text),
    }
}

fn headline(impact: &Impact, here: &str, style: Style) -> String {
    let is = |state: UsageState| move |reached: &ClusterImpact| reached.state == state;
    let is_unknown = |reached: &ClusterImpact| reached.state == UsageState::Unknown;
    let summary = match impact.verdict {
        "allow" if impact.clusters.iter().any(is_unknown) => style.yellow(&format!(
            "can be deleted; {} could not be checked (acknowledged)",
            places(impact, here, is_unknown)
        )),
        "allow" => {
            let places = places(impact, here, |_| true);
            style.green(&format!("can be deleted: nothing in use in {places}"))
        }
        "deny" if impact.clusters.iter().any(is(UsageState::InUse)) => {
            let places = places(impact, here, is(UsageState::InUse));
            style.red(&format!("in use in {places}: a deletion would be denied"))
        }
        "deny" => style.red("a deletion would be denied"),
        _ if impact.clusters.iter().any(is_unknown) => {
            let places = places(impact, here, is_unknown);
            style.yellow(&format!("could not check {places}: a deletion would be denied"))
        }
        _ => style.yellow("could not check: a deletion would be denied"),
    };
    let summary = if impact.exists == Some(false) {
        style.yellow(&format!("does not exist in {here}"))
    } else {
        summary
    };
    let exists = match impact.exists {
        Some(_) => "",
        None => "  (could not check whether it exists)",
    };
    format!("{}  {summary}{exists}\n", style.bold(&short_name(impact)))
}

/// Returns the local cluster and the number of member clusters: `the control plane and 2 of 3 member clusters`.
fn places(impact: &Impact, here: &str, is_counted: impl Fn(&ClusterImpact) -> bool) -> String {
    let Some((local, members)) = impact.clusters.split_first() else { return here.to_owned() };
    let counted: Vec<_> = members.iter().filter(|reached| is_counted(reached)).collect();
    let share = match (counted.as_slice(), members.len()) {
        ([], _) => None,
        ([only], all) if all > 1 => Some(format!("member cluster {}", only.cluster)),
        ([_], _) => Some("1 member cluster".to_owned()),
        (some, all) if some.len() == all => Some(format!("{all} member clusters")),
        (some, all) => Some(format!("{} of {all} member clusters", some.len())),
    };
    match (is_counted(local), share) {
        (true, Some(share)) => format!("{here} and {share}"),
        (true, None) => here.to_owned(),
        (false, share) => share.unwrap_or_default(),
    }
}

fn line(reached: &ClusterImpact, style: Style) -> String {
    let word = match reached.state {
        UsageState::InUse => style.red("in use"),
        UsageState::Unknown => style.yellow("not checked"),
        UsageState::Empty => "empty".to_owned(),
    };
    let acknowledged = match &reached.acknowledged {
        Some(by) => format!("  (acknowledged until {}: {})", by.until, by.reason),
        None => String::new(),
    };
    format!("{word}  {}{acknowledged}", reached.summary)
}
