//! Formats an answer as text.

use config::Problem;

use super::answer::Answered;
use crate::documents::yaml_stream;
use crate::output::Style;

/// Formats request, verdict and reason; with `verbose` also how the verdict was found.
pub(super) fn text(one: &Answered, verbose: bool, show_patch: bool, style: Style) -> Result<String, Problem> {
    let mut lines = vec![format!("{}  {}", style.bold(&one.source), question(one))];
    let by = one.guard.unwrap_or("no guard is asked");
    let reason = match (&one.message, one.patch.len()) {
        (Some(message), _) => format!(": {message}"),
        _ if one.guard.is_none() && !one.evaluation.not_asked.is_empty() => {
            format!("; not asked: {}", one.evaluation.not_asked.join("; "))
        }
        (None, 0) => String::new(),
        (None, 1) => ": 1 addition".to_owned(),
        (None, many) => format!(": {many} additions"),
    };
    lines.push(format!("  {by}  {}{reason}", verdict(one, style)));
    lines.extend(one.warnings.iter().map(|warning| format!("  {} {warning}", style.yellow("warning:"))));
    if verbose {
        lines.extend(evaluation_lines(one, style));
    }
    if show_patch && let Some(object) = &one.patched_object {
        lines.push("  after the patch:".to_owned());
        let yaml = yaml_stream(&[object])?;
        lines.extend(yaml.lines().map(|line| format!("    {line}")));
    }
    lines.push(String::new());
    Ok(lines.join("\n"))
}

/// Formats the request in one line.
pub(crate) fn question(one: &Answered) -> String {
    let name = if one.name.is_empty() { "(no name yet)" } else { &one.name };
    let place = match one.namespace.as_str() {
        "" => String::new(),
        _ if one.kind == "Namespace" => String::new(),
        namespace => format!("{namespace}/"),
    };
    let dry = if one.dry_run { ", dry run" } else { "" };
    let by = if one.user.is_empty() { String::new() } else { format!(" by {}", one.user) };
    format!("{} {} {place}{name}{by}{dry}", one.operation, one.kind)
}

fn verdict(one: &Answered, style: Style) -> String {
    match (one.verdict, one.allowed) {
        ("allow", true) => style.green("allow"),
        ("unasked", _) => style.green("passes"),
        ("mutate", _) => style.cyan("mutate"),
        ("deny", false) => style.red("deny"),
        ("deny", true) => style.yellow("allow (would deny: mode is audit)"),
        (_, true) => style.yellow("unknown, so allow"),
        (_, false) => style.red("unknown, so deny"),
    }
}

fn evaluation_lines(one: &Answered, style: Style) -> Vec<String> {
    let mut lines = Vec::new();
    let mut add = |what: &str, text: &str| lines.push(style.dim(&format!("  {what:<9} {text}")));
    if one.guard.is_none() {
        if one.evaluation.not_asked.is_empty() {
            add("rule", "none of the guards that are on has a rule that fits");
        }
        return lines;
    }
    let rules = if one.evaluation.rules.is_empty() {
        "none fits; asked by --guard".to_owned()
    } else {
        one.evaluation.rules.join(", ")
    };
    add("rule", &rules);
    one.evaluation.not_asked.iter().for_each(|guard| add("not asked", guard));
    if !one.evaluation.match_conditions.is_empty() {
        let names = one.evaluation.match_conditions.join(", ");
        add(
            "unseen",
            &format!(
                "matchConditions {names}: the API server's to evaluate; see durward guards --config FILE"
            ),
        );
    }
    if one.evaluation.facts.is_empty() {
        add("facts", "nothing was looked at but the object");
    }
    one.evaluation.facts.iter().for_each(|fact| add("fact", fact));
    one.causes.iter().for_each(|cause| add("cause", &format!("{}: {}", cause.code, cause.text)));
    one.audit.iter().for_each(|(key, value)| add("audit", &format!("{key}={value}")));
    add("stance", &one.settle_policy);
    add("time", &format!("{} us", one.evaluation.took.as_micros()));
    lines
}
