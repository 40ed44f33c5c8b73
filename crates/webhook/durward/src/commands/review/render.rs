//! Formats an answer as text.

use console::output::{self, Style};
use console::yaml;

use super::answer::Answered;

/// The optional parts of an answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown {
    /// How the verdict was found.
    pub(super) evaluation: bool,
    /// The patch.
    pub(super) patch: bool,
    /// The object after the patch.
    pub(super) object: bool,
}

/// Formats request, verdict and reason.
pub(super) fn text(one: &Answered, shown: Shown, style: Style) -> String {
    let mut lines = vec![format!("{}  {}", style.bold(&one.source), question(one))];
    let by = one.guard.unwrap_or("no guard is called");
    let reason = match (&one.message, one.patch.len()) {
        // The next steps of a guard need a cluster, and here is none.
        (Some(message), _) if one.saw_nothing() => {
            let reason = guards::without_steps(message).replace('\n', "\n    ");
            format!(
                ": {reason}\n    Next: record the clusters with durward snapshot --out DIR, then add --snapshot DIR"
            )
        }
        (Some(message), _) => format!(": {}", message.replace('\n', "\n    ")),
        _ if one.guard.is_none() && !one.evaluation.not_called.is_empty() => {
            format!("; not called: {}", one.evaluation.not_called.join("; "))
        }
        (None, 0) => String::new(),
        (None, 1) => ": 1 addition".to_owned(),
        (None, many) => format!(": {many} additions"),
    };
    lines.push(format!("  {by}  {}{reason}", verdict(one, style)));
    lines.extend(one.warnings.iter().map(|warning| format!("  {} {warning}", style.yellow("warning:"))));
    if shown.evaluation {
        lines.extend(evaluation_lines(one, style));
    }
    if shown.patch && !one.patch.is_empty() {
        lines.push("  patch:".to_owned());
        lines.extend(one.patch.iter().map(|operation| format!("    {}", serde_json::json!(operation))));
    }
    if shown.object
        && let Some(yaml) = one.patched_object.as_ref().and_then(|object| yaml::stream(&[object]).ok())
    {
        lines.push("  object after the patch:".to_owned());
        lines.extend(yaml.lines().map(|line| format!("    {line}")));
    }
    output::lines(lines)
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
        ("allow", true) | ("not-called", _) => style.green("allow"),
        ("mutate", _) => style.cyan("mutate"),
        ("deny", false) => style.red("deny"),
        ("deny", true) => style.yellow("allow (mode: audit, would deny)"),
        (_, true) => style.yellow("allow: could not check"),
        (_, false) => style.red("deny: could not check"),
    }
}

fn evaluation_lines(one: &Answered, style: Style) -> Vec<String> {
    let mut lines = Vec::new();
    let mut add = |what: &str, text: &str| lines.push(style.dim(&format!("  {what:<9} {text}")));
    if one.guard.is_none() {
        if one.evaluation.not_called.is_empty() {
            add("rule", "no webhook rule matches");
        }
        return lines;
    }
    let rules = if one.evaluation.rules.is_empty() {
        "no rule matches; called because of --guard".to_owned()
    } else {
        one.evaluation.rules.join(", ")
    };
    add("rule", &rules);
    one.evaluation.not_called.iter().for_each(|guard| add("skipped", guard));
    if !one.evaluation.match_conditions.is_empty() {
        let names = one.evaluation.match_conditions.join(", ");
        add(
            "not run",
            &format!(
                "matchConditions {names}: only the API server evaluates them; see durward manifests --only webhooks"
            ),
        );
    }
    if one.evaluation.facts.is_empty() {
        add("facts", "none: the guard read only the object");
    }
    one.evaluation.facts.iter().for_each(|fact| add("fact", fact));
    one.causes.iter().for_each(|cause| add("reason", &format!("{}: {}", cause.code, cause.text)));
    one.audit.iter().for_each(|(key, value)| add("audit", &format!("{key}={value}")));
    add("policy", &one.settle_policy);
    add("time", &format!("{} us", one.evaluation.took.as_micros()));
    lines
}
