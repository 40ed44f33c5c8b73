//! When the guard wants to be called: for every deletion of a Namespace or a `CustomResourceDefinition`.
//!
//! The rules name the resources without their subresources, so `namespaces/finalize` never comes. What is decided by
//! matchConditions is decided by the API server itself and holds while Durward is down: the way through for callers with the
//! verb, deletions that are under way already, and the install namespace. An expression that fails follows failurePolicy
//! without a call, so every map is looked for before it is looked into; `object` is null on a DELETE.
//!
//! The way through asks for a deed and the verb together: the verb alone is held by every cluster administrator (`verbs: ["*"]`),
//! for whom this guard is made (facts: run on kube-apiserver 1.35.4).

use ::config::Expression;

use super::NAME;
use super::config::{Config, Select};
use super::own;
use super::select::{LABEL, VALUE};
use super::target::{DEFINITIONS, DEFINITIONS_GROUP};
use crate::overrides;
use crate::webhook::{WebhookEntry, WebhookType, cel_string, condition, rule};

/// The one entry.
pub(super) fn entries(config: &Config) -> Vec<WebhookEntry> {
    let mut conditions = vec![
        overrides::condition(NAME),
        condition(
            "not-terminating",
            "oldObject == null || !has(oldObject.metadata.deletionTimestamp)".to_owned(),
        ),
    ];
    let install = config.common_config.install_namespace.as_str();
    if !config.is_karmada() && !install.is_empty() {
        conditions.push(condition(
            "not-the-install-namespace",
            format!("!({})", is_namespace(&format!("== {}", cel_string(install)))),
        ));
    }
    // Labelled only: the API server chooses by itself, which anybody may lean on who may set labels anyway. On Karmada its
    // own parts have to come too, and they bear no label.
    let rules = vec![
        rule("DELETE", "", "namespaces", "Cluster"),
        rule("DELETE", DEFINITIONS_GROUP, DEFINITIONS, "Cluster"),
    ];
    let mut entry = WebhookEntry::new(WebhookType::Validating, "deletion", rules, &config.common_config);
    match (config.select, config.is_karmada()) {
        (Select::All, _) => {}
        (Select::Labelled, false) => {
            entry.object_selector.extend(Expression::Equal(LABEL.to_owned(), VALUE.to_owned()));
        }
        (Select::Labelled, true) => conditions.push(condition("labelled-or-karmadas-own", labelled_or_own())),
    }
    entry.match_conditions = conditions;
    vec![entry]
}

fn is_namespace(named: &str) -> String {
    format!(
        "request.resource.resource == \"namespaces\" && oldObject != null && oldObject.metadata.name {named}"
    )
}

fn labelled_or_own() -> String {
    let (label, value) = (cel_string(LABEL), cel_string(VALUE));
    let names = own::NAMESPACES.map(cel_string).join(", ");
    let group = cel_string(&format!(".{}", own::GROUP));
    format!(
        "oldObject == null || \
         (has(oldObject.metadata.labels) && {label} in oldObject.metadata.labels && oldObject.metadata.labels[{label}] == {value}) || \
         ({}) || oldObject.metadata.name.startsWith({}) || oldObject.metadata.name.endsWith({group})",
        is_namespace(&format!("in [{names}]")),
        cel_string(own::SPACE),
    )
}

#[cfg(test)]
mod tests {
    use crate::webhook::FailurePolicy;
    use serde_json::json;

    use super::super::fixture::config;
    use super::*;

    fn the_entry(yaml: &str) -> WebhookEntry {
        let mut entries = entries(&config(yaml));
        assert_eq!(entries.len(), 1);
        entries.remove(0)
    }

    fn names(entry: &WebhookEntry) -> Vec<&str> {
        entry.match_conditions.iter().map(|c| c.name.as_str()).collect()
    }

    #[test]
    fn asks_about_deletions_of_two_kinds_and_refuses_while_it_is_down() {
        let entry = the_entry("{}");
        assert_eq!(
            serde_json::to_value(&entry.rules).unwrap(),
            json!([
                {"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["namespaces"], "scope": "Cluster"},
                {"operations": ["DELETE"], "apiGroups": ["apiextensions.k8s.io"], "apiVersions": ["v1"],
                 "resources": ["customresourcedefinitions"], "scope": "Cluster"},
            ])
        );
        assert_eq!((entry.webhook_type, entry.has_side_effects), (WebhookType::Validating, false));
        assert_eq!((entry.failure_policy, entry.timeout_seconds), (FailurePolicy::Fail, 10));
    }

    #[test]
    fn the_install_namespace_is_left_alone_except_on_karmada() {
        let plain = the_entry("installNamespace: guards");
        assert_eq!(names(&plain), ["no-break-glass", "not-terminating", "not-the-install-namespace"]);
        assert_eq!(
            plain.match_conditions[2].expression,
            r#"!(request.resource.resource == "namespaces" && oldObject != null && oldObject.metadata.name == "guards")"#
        );
        assert_eq!(names(&the_entry("fleet: {karmada: {}}")), ["no-break-glass", "not-terminating"]);
    }

    #[test]
    fn only_labelled_objects_come_where_that_is_asked_for_and_karmadas_own_parts_anyway() {
        let labels = |yaml: &str| the_entry(yaml).object_selector.to_string();
        assert_eq!(labels("{}"), "durward.dev/guard=deletion");
        assert!(labels("select: all").is_empty());
        assert!(labels("fleet: {contexts: [a]}").is_empty());
        let karmada = the_entry("fleet: {karmada: {}}\nselect: labelled");
        assert!(karmada.object_selector.selects_all());
        assert_eq!(names(&karmada).last(), Some(&"labelled-or-karmadas-own"));
        let expression = &karmada.match_conditions[2].expression;
        for part in [
            r#"oldObject.metadata.labels["durward.dev/guard"] == "deletion""#,
            r#"oldObject.metadata.name in ["karmada-system", "karmada-cluster"]"#,
            r#"oldObject.metadata.name.startsWith("karmada-es-")"#,
            r#"oldObject.metadata.name.endsWith(".karmada.io")"#,
        ] {
            assert!(expression.contains(part), "{expression}");
        }
    }
}
