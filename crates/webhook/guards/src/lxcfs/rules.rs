//! Webhook entries: the API server calls the guard only for pods that can opt in, and once per pod.
//!
//! There are two entries, because a namespace opts in by its labels and a pod by its own metadata. The first selects namespaces
//! that opt in. The second selects all other namespaces and pods that opt in themselves. The API server evaluates selectors first
//! and matchConditions last (`plugin/webhook/generic/webhook.go`). A failing expression follows failurePolicy without a call, so
//! each expression checks that a map exists before it reads it.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::MatchCondition;

use super::config::Config;
use super::opt_in::{OLD_NO, OLD_SWITCH, SWITCH};
use crate::cel;
use crate::common::SYSTEM_NAMESPACE;
use crate::webhook::{WebhookEntry, WebhookType, condition, rule};
use ::config::{Expression, Selector};

/// Returns the entries of the configuration.
pub(super) fn entries(config: &Config) -> Vec<WebhookEntry> {
    let not_out = condition("not-opted-out", not_opted_out());
    let opted_in = condition("pod-opts-in", opts_in());
    let selector = |is_enabled: fn(String, BTreeSet<String>) -> Expression| {
        let mut selector = config.common_config.namespace_selector.clone();
        selector.extend(is_enabled(SWITCH.to_owned(), ["enabled".to_owned()].into()));
        selector
    };
    vec![
        entry(config, "lxcfs-namespaces", selector(Expression::In), vec![not_out.clone()]),
        entry(config, "lxcfs-pods", selector(Expression::NotIn), vec![opted_in, not_out]),
    ]
}

fn entry(
    config: &Config,
    name: &str,
    namespace_selector: Selector,
    conditions: Vec<MatchCondition>,
) -> WebhookEntry {
    let mut match_conditions = vec![condition("not-excluded", not_excluded(config))];
    match_conditions.extend(conditions);
    let rules = vec![
        rule("CREATE", "", "pods", "Namespaced"),
        rule("UPDATE", "", "pods/ephemeralcontainers", "Namespaced"),
    ];
    let entry = WebhookEntry::new(WebhookType::Mutating, name, rules, &config.common_config);
    WebhookEntry { namespace_selector, match_conditions, ..entry }
}

fn not_excluded(config: &Config) -> String {
    let mut names = vec![SYSTEM_NAMESPACE];
    let own = config.common_config.namespace.as_str();
    if !own.is_empty() && own != SYSTEM_NAMESPACE {
        names.push(own);
    }
    format!("!(request.namespace in [{}])", names.into_iter().map(cel::string).collect::<Vec<_>>().join(", "))
}

/// Mirrors the opt-outs of [`PodOptIn::enabled`](super::opt_in::PodOptIn::enabled): `disabled` wins, and an opt-out by the older
/// annotation counts if the pod has no newer setting.
fn not_opted_out() -> String {
    format!(
        "!({}) && !({}) && (!({} && {}) || ({}) || ({}))",
        entry_is("annotations", SWITCH, "disabled"),
        entry_is("labels", SWITCH, "disabled"),
        has("annotations", OLD_SWITCH),
        old_opts_out(),
        has("annotations", SWITCH),
        has("labels", SWITCH),
    )
}

fn opts_in() -> String {
    format!(
        "({}) || ({} && !({})) || ({})",
        has("annotations", SWITCH),
        has("annotations", OLD_SWITCH),
        old_opts_out(),
        has("labels", SWITCH),
    )
}

/// Ignores case, as [`PodOptIn`](super::opt_in::PodOptIn) does.
fn old_opts_out() -> String {
    let words = OLD_NO.map(cel::string).join(", ");
    format!("{}.lowerAscii() in [{words}]", at("annotations", OLD_SWITCH))
}

fn has(map: &str, key: &str) -> String {
    format!("has(object.metadata.{map}) && {} in object.metadata.{map}", cel::string(key))
}

fn at(map: &str, key: &str) -> String {
    format!("object.metadata.{map}[{}]", cel::string(key))
}

fn entry_is(map: &str, key: &str, value: &str) -> String {
    format!("{} && {} == {}", has(map, key), at(map, key), cel::string(value))
}

#[cfg(test)]
mod tests {
    use crate::common::FailurePolicy;
    use serde_json::json;

    use super::super::fixture::config;
    use super::*;

    fn selector(entry: &WebhookEntry) -> String {
        entry.namespace_selector.to_string()
    }

    fn expressions(entry: &WebhookEntry) -> Vec<(&str, &str)> {
        entry.match_conditions.iter().map(|c| (c.name.as_str(), c.expression.as_str())).collect()
    }

    const NOT_EXCLUDED: (&str, &str) =
        ("not-excluded", r#"!(request.namespace in ["kube-system", "durward-system"])"#);
    const NOT_OPTED_OUT: (&str, &str) = (
        "not-opted-out",
        concat!(
            r#"!(has(object.metadata.annotations) && "durward.dev/lxcfs" in object.metadata.annotations && "#,
            r#"object.metadata.annotations["durward.dev/lxcfs"] == "disabled") && "#,
            r#"!(has(object.metadata.labels) && "durward.dev/lxcfs" in object.metadata.labels && "#,
            r#"object.metadata.labels["durward.dev/lxcfs"] == "disabled") && "#,
            r#"(!(has(object.metadata.annotations) && "sidecar-injector.lxcfs/inject" in object.metadata.annotations && "#,
            r#"object.metadata.annotations["sidecar-injector.lxcfs/inject"].lowerAscii() in ["false", "no"]) || "#,
            r#"(has(object.metadata.annotations) && "durward.dev/lxcfs" in object.metadata.annotations) || "#,
            r#"(has(object.metadata.labels) && "durward.dev/lxcfs" in object.metadata.labels))"#
        ),
    );
    const BY_ANNOTATION: &str = concat!(
        r#"(has(object.metadata.annotations) && "durward.dev/lxcfs" in object.metadata.annotations) || "#,
        r#"(has(object.metadata.annotations) && "sidecar-injector.lxcfs/inject" in object.metadata.annotations && "#,
        r#"!(object.metadata.annotations["sidecar-injector.lxcfs/inject"].lowerAscii() in ["false", "no"]))"#
    );
    const BY_LABEL: &str =
        r#"(has(object.metadata.labels) && "durward.dev/lxcfs" in object.metadata.labels)"#;

    #[test]
    fn two_entries_select_each_pod_at_most_once() {
        let entries = entries(&config("{}"));
        assert_eq!(entries.len(), 2);
        let [namespaces, pods] = entries.as_slice() else { panic!() };
        assert_eq!((namespaces.name.as_str(), pods.name.as_str()), ("lxcfs-namespaces", "lxcfs-pods"));
        assert_eq!(selector(namespaces), "durward.dev/lxcfs in (enabled)");
        assert_eq!(selector(pods), "durward.dev/lxcfs notin (enabled)");
        assert_eq!(expressions(namespaces), [NOT_EXCLUDED, NOT_OPTED_OUT]);
        let either = format!("{BY_ANNOTATION} || {BY_LABEL}");
        assert_eq!(expressions(pods), [NOT_EXCLUDED, ("pod-opts-in", either.as_str()), NOT_OPTED_OUT]);
    }

    #[test]
    fn entries_match_new_pods_and_ephemeral_containers_and_ignore_failures() {
        for entry in entries(&config("{}")) {
            assert_eq!(entry.webhook_type, WebhookType::Mutating);
            assert_eq!(
                serde_json::to_value(&entry.rules).unwrap(),
                json!([
                    {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "scope": "Namespaced"},
                    {"operations": ["UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/ephemeralcontainers"], "scope": "Namespaced"},
                ])
            );
            assert!(entry.object_selector.selects_all());
            assert_eq!((entry.failure_policy, entry.timeout_seconds), (FailurePolicy::Ignore, 5));
            assert!(!entry.has_side_effects);
        }
    }

    #[test]
    fn entries_add_the_configured_selector() {
        let config = config("namespace: guards\nwebhook: {namespaceSelector: {matchLabels: {team: shop}}}");
        for entry in entries(&config) {
            assert!(selector(&entry).starts_with("team=shop,durward.dev/lxcfs "));
            assert_eq!(expressions(&entry)[0].1, r#"!(request.namespace in ["kube-system", "guards"])"#);
        }
    }

    #[test]
    fn names_and_expressions_fit_the_api() {
        for entry in entries(&config("{}")) {
            let names: Vec<&str> = entry.match_conditions.iter().map(|c| c.name.as_str()).collect();
            assert!(names.len() <= 64 && names.iter().all(|name| name.len() <= 63));
            assert!(entry.match_conditions.iter().all(|c| c.expression.len() < 10 * 1024));
        }
    }
}
