//! When the guard wants to be called: only for pods that may want it, and never twice for one pod.
//!
//! Two entries, because a namespace's opt-in is told by labels of the namespace and a pod's by its own: the first has the
//! namespaces that opt in, the second every other namespace and asks for a word on the pod. The API server evaluates
//! selectors first and matchConditions last (`plugin/webhook/generic/webhook.go`); an expression that fails follows
//! failurePolicy without a call, so every map is looked for before it is looked into.

use admission::{
    LabelSelector, MatchCondition, Reinvocation, Rule, Scope, SelectorOperator, SideEffects, WebhookEntry,
    WebhookType,
};

use super::config::Config;
use super::decide::LEFT_ALONE;
use super::wish::{OLD_NO, OLD_SWITCH, SWITCH};

/// The entries that the configuration asks for.
pub(super) fn entries(config: &Config) -> Vec<WebhookEntry> {
    let by = config.opt_in;
    let mut entries = Vec::new();
    let not_out = condition("not-opted-out", not_opted_out());
    if by.namespace_label {
        let selector =
            config.terms.namespace_selector.clone().and(SWITCH, SelectorOperator::In, &["enabled"]);
        entries.push(entry(config, "lxcfs-namespaces", selector, vec![not_out.clone()]));
    }
    if by.annotation || by.label {
        let mut selector = config.terms.namespace_selector.clone();
        if by.namespace_label {
            selector = selector.and(SWITCH, SelectorOperator::NotIn, &["enabled"]);
        }
        let wants = condition("pod-opts-in", opts_in(by.annotation, by.label));
        entries.push(entry(config, "lxcfs-pods", selector, vec![wants, not_out]));
    }
    entries
}

fn entry(
    config: &Config,
    name: &str,
    namespace_selector: LabelSelector,
    conditions: Vec<MatchCondition>,
) -> WebhookEntry {
    let mut match_conditions = vec![condition("not-left-alone", not_left_alone(config))];
    match_conditions.extend(conditions);
    WebhookEntry {
        webhook_type: WebhookType::Mutating,
        name: name.to_owned(),
        rules: vec![rule("CREATE", "pods"), rule("UPDATE", "pods/ephemeralcontainers")],
        namespace_selector,
        object_selector: LabelSelector::default(),
        match_conditions,
        failure_policy: config.terms.failure_policy,
        side_effects: SideEffects::None,
        timeout_seconds: config.terms.timeout_seconds,
        // A webhook after us may add a container, which then lacks the files.
        reinvocation: Reinvocation::IfNeeded,
        review_versions: config.terms.review_versions.clone(),
    }
}

fn rule(operation: &str, resource: &str) -> Rule {
    Rule {
        operations: vec![operation.to_owned()],
        api_groups: vec![String::new()],
        api_versions: vec!["v1".to_owned()],
        resources: vec![resource.to_owned()],
        scope: Scope::Namespaced,
    }
}

fn condition(name: &str, expression: String) -> MatchCondition {
    MatchCondition { name: name.to_owned(), expression }
}

fn not_left_alone(config: &Config) -> String {
    let mut names = vec![LEFT_ALONE];
    if !config.terms.install_namespace.is_empty() && config.terms.install_namespace != LEFT_ALONE {
        names.push(&config.terms.install_namespace);
    }
    format!("!(request.namespace in [{}])", names.into_iter().map(text).collect::<Vec<_>>().join(", "))
}

fn not_opted_out() -> String {
    format!(
        "!({}) && !({})",
        entry_is("annotations", SWITCH, "disabled"),
        entry_is("labels", SWITCH, "disabled")
    )
}

fn opts_in(by_annotation: bool, by_label: bool) -> String {
    let mut ways = Vec::new();
    if by_annotation {
        let refusals = OLD_NO.map(text).join(", ");
        ways.push(has("annotations", SWITCH));
        ways.push(format!(
            "{} && !({} in [{refusals}])",
            has("annotations", OLD_SWITCH),
            at("annotations", OLD_SWITCH)
        ));
    }
    if by_label {
        ways.push(has("labels", SWITCH));
    }
    ways.into_iter().map(|way| format!("({way})")).collect::<Vec<_>>().join(" || ")
}

fn has(map: &str, key: &str) -> String {
    format!("has(object.metadata.{map}) && {} in object.metadata.{map}", text(key))
}

fn at(map: &str, key: &str) -> String {
    format!("object.metadata.{map}[{}]", text(key))
}

fn entry_is(map: &str, key: &str, value: &str) -> String {
    format!("{} && {} == {}", has(map, key), at(map, key), text(value))
}

/// A CEL string; JSON's escapes are CEL's too.
fn text(value: &str) -> String {
    serde_json::Value::from(value).to_string()
}
