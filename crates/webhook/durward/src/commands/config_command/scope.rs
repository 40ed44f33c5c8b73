//! The effective scope of a guard, as its webhook entries have it.

use std::sync::Arc;

use admission::{Guard, Mode};
use cluster::Clients;
use config::{Expression, Selector};
use guards::{NAMESPACE_NAME, NativePolicy, WebhookEntry};
use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;

use crate::file::Guarded;

/// Describes what a guard protects, one line for each webhook and native policy, and warns if that is little or nothing.
pub(crate) fn describe(guard: &Guarded) -> (Vec<String>, Option<String>) {
    let name = guard.kind.name();
    let entries = guard.configured.webhooks();
    let is_audit = |guard: &Arc<dyn Guard>| guard.settle_policy().mode == Mode::Audit;
    let is_audit = guard.configured.build(&Clients::offline()).iter().all(is_audit);
    let mode = if is_audit { " (mode: audit, nothing is denied)" } else { "" };
    let of_entries = entries.iter().map(|entry| format!("{name}: {}{mode}", scope(entry)));
    let of_policies = guard.configured.policies();
    let of_policies = of_policies.iter().map(|policy| format!("{name}: {}{mode}", of_policy(policy)));
    let lines = of_entries.chain(of_policies).collect();
    let warning = if entries.is_empty() {
        Some(format!("{name} protects nothing: no webhook is configured"))
    } else if let Some(key) = guard.configured.exempts_all() {
        Some(format!("{name} protects nothing: {key} matches every user"))
    } else {
        let limited = entries.iter().find_map(|entry| Some((entry, entry.limited_to.as_deref()?)));
        limited.map(|(entry, limit)| match entries.as_slice() {
            [_] => format!("{name} protects only {limit}"),
            _ => format!("{name}: {}", scope(entry)),
        })
    };
    (lines, warning)
}

/// Describes the requests of a webhook entry: operations, resources, and the selected objects and namespaces.
pub(crate) fn scope(entry: &WebhookEntry) -> String {
    let mut text = entry.rules.iter().map(request).collect::<Vec<_>>().join("; ");
    for limit in [objects(entry), namespaces(entry)].into_iter().flatten() {
        text.extend([", only ", &limit]);
    }
    text
}

/// Describes a native policy, which the API server evaluates, by its requests.
fn of_policy(policy: &NativePolicy) -> String {
    let resources = policy.spec.match_constraints.as_ref().and_then(|all| all.resource_rules.as_ref());
    let requests = resources.into_iter().flatten().map(|rule| {
        let list = |list: &Option<Vec<String>>| list.iter().flatten().cloned().collect::<Vec<_>>().join(",");
        let names = rule.resource_names.iter().flatten().map(|name| format!(" {name}"));
        format!("{} {}{}", list(&rule.operations), list(&rule.resources), names.collect::<String>())
    });
    format!("{}, by the native policy {}", requests.collect::<Vec<_>>().join("; "), policy.name())
}

/// Returns the operations and resources of a rule, such as `DELETE pods`.
pub(crate) fn request(rule: &RuleWithOperations) -> String {
    let list = |list: &Option<Vec<String>>| list.iter().flatten().cloned().collect::<Vec<_>>().join(",");
    format!("{} {}", list(&rule.operations), list(&rule.resources))
}

/// Returns the objects of an entry, such as `objects labeled app=etcd`; `None` if it selects all.
pub(crate) fn objects(entry: &WebhookEntry) -> Option<String> {
    let labeled = || labels(&entry.object_selector).map(|labels| format!("objects labeled {labels}"));
    entry.limited_to.clone().or_else(labeled)
}

/// Returns the namespaces of an entry, such as `namespace db`; `None` if it selects all.
pub(crate) fn namespaces(entry: &WebhookEntry) -> Option<String> {
    match names(&entry.namespace_selector) {
        Some(names) if names.len() == 1 => Some(format!("namespace {}", names[0])),
        Some(names) => Some(format!("namespaces {}", names.join(", "))),
        None => labels(&entry.namespace_selector).map(|labels| format!("namespaces labeled {labels}")),
    }
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
