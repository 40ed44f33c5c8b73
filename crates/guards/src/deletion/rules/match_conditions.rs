//! The match condition for changes of labels sends a review exactly if the object leaves the guard.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::decide::leaves;
use super::super::fixture::{config, crd, namespace};
use super::label_changes;
use crate::match_conditions::send;

/// Labels of an object before and after an update.
const LABELS: [&[(&str, &str)]; 8] = [
    &[],
    &[("tier", "prod")],
    &[("tier", "dev")],
    &[("tier", "")],
    &[("durward.dev/guard", "deletion")],
    &[("durward.dev/guard", "deletion"), ("tier", "prod")],
    &[("durward.dev/guard", "deletion"), ("tier", "dev")],
    &[("durward.dev/guard", "off"), ("free", "")],
];

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Returns objects with these labels: without labels, the API server omits the field or sends an empty one.
fn objects(name: &str, labels: &BTreeMap<String, String>) -> Vec<Value> {
    let mut all = vec![json!({"metadata": {"name": name, "labels": labels}})];
    if labels.is_empty() {
        all.push(json!({"metadata": {"name": name}}));
    }
    all
}

/// Checks all pairs of labels. Returns how many objects leave the guard.
fn check(yaml: &str) -> usize {
    let config = config(yaml);
    let Some(entry) = label_changes(&config) else { panic!("{yaml}") };
    let mut left = 0;
    for mut target in
        [namespace("shop"), namespace("karmada-es-one"), crd("a.example.org"), crd("b.karmada.io")]
    {
        let resource = target.kind.resource().plural;
        for (old, new) in
            LABELS.iter().flat_map(|old| LABELS.iter().map(move |new| (labels(old), labels(new))))
        {
            target.labels.clone_from(&old);
            let expected = leaves(&config, &target, &new);
            left += usize::from(expected);
            for (before, after) in objects(&target.name, &old).iter().flat_map(|before| {
                objects(&target.name, &new).into_iter().map(move |after| (before.clone(), after))
            }) {
                let request = json!({"operation": "UPDATE", "resource": {"group": "", "version": "v1", "resource": resource}});
                let is_sent = send(&entry, &request, &after, &before);
                assert_eq!(is_sent, expected, "{yaml}: {resource} {before} -> {after}");
            }
        }
    }
    left
}

#[test]
fn each_operator_of_a_selector_means_the_same_to_the_api_server() {
    let one = |expression: &str| format!("{{matchExpressions: [{expression}]}}");
    for selector in [
        one("{key: tier, operator: In, values: [prod, dev]}"),
        one("{key: tier, operator: NotIn, values: [prod]}"),
        one("{key: tier, operator: Exists}"),
        one("{key: tier, operator: DoesNotExist}"),
        one("{key: tier, operator: NotIn, values: [dev]}, {key: free, operator: DoesNotExist}"),
        "{matchLabels: {tier: prod}}".to_owned(),
    ] {
        for yaml in [
            format!("webhook: {{namespaceSelector: {selector}}}"),
            format!("scope: labeled\nwebhook: {{namespaceSelector: {selector}}}"),
        ] {
            assert!(check(&yaml) > 0, "{yaml}");
        }
    }
}

#[test]
fn the_guard_label_means_the_same_to_the_api_server() {
    for yaml in [
        "scope: labeled",
        "fleet: karmada\nscope: labeled",
        "fleet: karmada\nscope: labeled\nwebhook: {namespaceSelector: {matchLabels: {tier: prod}}}",
    ] {
        assert!(check(yaml) > 0, "{yaml}");
    }
}
