//! The effective scope of a guard, as its webhook entries have it.

use cluster::Clients;
use config::{Expression, Selector};
use guards::{NAMESPACE_NAME, WebhookEntry};

use crate::file::Guarded;

/// Describes what a guard protects, one line for each webhook, and warns if that is little or nothing.
pub(crate) fn describe(guard: &Guarded) -> (Vec<String>, Option<String>) {
    let name = guard.kind.name();
    let entries = guard.configured.webhooks();
    let is_audit = guard.configured.build(&Clients::offline()).settle_policy().mode == admission::Mode::Audit;
    let mode = if is_audit { " (mode: audit, nothing is denied)" } else { "" };
    let lines = entries.iter().map(|entry| format!("{name}: {}{mode}", scope(entry))).collect();
    let warning = if entries.is_empty() {
        Some(format!("{name} protects nothing: no webhook is configured"))
    } else if let Some(key) = guard.configured.exempts_all() {
        Some(format!("{name} protects nothing: {key} matches every user"))
    } else {
        let limited_to = entries.iter().find_map(|entry| entry.limited_to.as_deref());
        limited_to.map(|limit| format!("{name} protects only {limit}"))
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
    let objects = || labels(&entry.object_selector).map(|labels| format!("objects labeled {labels}"));
    if let Some(limit) = entry.limited_to.clone().or_else(objects) {
        text.extend([", only ", &limit]);
    }
    if let Some(names) = names(&entry.namespace_selector) {
        let namespaces = if names.len() == 1 { "namespace" } else { "namespaces" };
        text.extend([", only ", namespaces, " ", &names.join(", ")]);
    } else if let Some(labels) = labels(&entry.namespace_selector) {
        text.extend([", only namespaces labeled ", &labels]);
    }
    text
}

/// Returns the names of the namespaces, if the selector selects by nothing else.
fn names(selector: &Selector) -> Option<Vec<String>> {
    let mut expressions = selector.clone().into_iter();
    match (expressions.next(), expressions.next()) {
        (Some(Expression::In(key, names)), None) if key == NAMESPACE_NAME => {
            Some(names.into_iter().collect())
        }
        _ => None,
    }
}

/// Returns a selector as kubectl's `-l` takes it; `None` if it selects everything.
fn labels(selector: &Selector) -> Option<String> {
    let expressions: Vec<Expression> = selector.clone().into_iter().collect();
    (!expressions.is_empty()).then(|| selector.to_string())
}
