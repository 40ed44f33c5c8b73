//! The effective scope of a guard, as its webhook entries have it.

use cluster::Clients;
use config::{Expression, Selector};
use guards::WebhookEntry;

use crate::file::Guarded;

/// The label by which objects opt in to a guard.
const GUARD_LABEL: &str = "durward.dev/guard";

/// Describes what a guard protects, one line for each webhook, and warns if that is little or nothing.
pub(crate) fn describe(guard: &Guarded) -> (Vec<String>, Option<String>) {
    let name = guard.kind.name();
    let entries = guard.configured.webhooks();
    let is_audit = guard.configured.build(&Clients::offline()).settle_policy().mode == admission::Mode::Audit;
    let mode = if is_audit { " (mode: audit, nothing is denied)" } else { "" };
    let lines = entries.iter().map(|entry| format!("{name}: {}{mode}", scope(entry))).collect();
    let opt_in =
        |entry: &WebhookEntry| labels(&entry.object_selector).filter(|labels| labels.contains(GUARD_LABEL));
    let narrow: Option<Vec<String>> = entries.iter().map(opt_in).collect();
    let warning = match narrow {
        _ if entries.is_empty() => Some(format!("{name} protects nothing: no webhook is configured")),
        Some(labels) => labels.first().map(|label| format!("{name} protects only objects labeled {label}")),
        None => None,
    };
    (lines, warning)
}

/// Describes the requests of a webhook entry: operations, resources, and the selected objects and namespaces.
pub(crate) fn scope(entry: &WebhookEntry) -> String {
    let mut rules: Vec<String> = Vec::new();
    for rule in &entry.rules {
        let list = |list: &Option<Vec<String>>| list.iter().flatten().cloned().collect::<Vec<_>>().join(",");
        rules.push(format!("{} {}", list(&rule.operations), list(&rule.resources)));
    }
    let mut text = rules.join("; ");
    for (what, selector) in [("objects", &entry.object_selector), ("namespaces", &entry.namespace_selector)] {
        if let Some(labels) = labels(selector) {
            text.extend([", only ", what, " labeled ", &labels]);
        }
    }
    text
}

/// Returns a selector as kubectl's `-l` takes it; `None` if it selects everything.
fn labels(selector: &Selector) -> Option<String> {
    let expressions: Vec<Expression> = selector.clone().into_iter().collect();
    (!expressions.is_empty()).then(|| selector.to_string())
}
