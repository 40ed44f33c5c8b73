//! Labels of namespaces and CRDs.

use serde_json::{Value, json};

use super::super::fixture::config;
use crate::native_policy::NativePolicy;
use crate::native_policy::evaluate::AskedRequest;

fn policies(yaml: &str) -> Vec<NativePolicy> {
    super::policies(&config(yaml))
}

fn purposes(yaml: &str) -> Vec<&'static str> {
    policies(yaml).iter().map(|policy| policy.purpose).collect()
}

fn change(kind: &'static str, name: &str, before: &Value, after: Value) -> AskedRequest {
    let object = json!({"metadata": {"name": name, "labels": before}});
    AskedRequest::update(kind, &object, |object| object["metadata"]["labels"] = after)
}

const KINDS: [(&str, &[&str]); 2] =
    [("Namespace", &["", "status", "finalize"]), ("CustomResourceDefinition", &["", "status"])];

#[test]
fn only_guards_that_select_by_labels_have_the_policy_for_labels() {
    assert_eq!(purposes("scope: all"), ["install-namespace"]);
    assert_eq!(purposes("scope: labeled"), ["deletion-labels", "install-namespace"]);
    assert_eq!(purposes("scope: all\nfleet: karmada"), [""; 0]);
    assert_eq!(purposes("scope: labeled\nfleet: karmada"), ["deletion-labels"]);
    let named = "scope: all\nwebhook: {namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [a]}]}}";
    assert_eq!(purposes(named), ["install-namespace"]);
}

#[test]
fn the_label_of_the_guard_is_not_taken_away() {
    let all = policies("scope: labeled");
    let guarded = json!({"durward.dev/guard": "deletion"});
    for (kind, subresources) in KINDS {
        for subresource in subresources {
            for after in [Value::Null, json!({}), json!({"durward.dev/guard": "x"})] {
                let asked = change(kind, "shop", &guarded, after).sub(subresource);
                let answers = asked.answers(&all);
                assert_eq!(answers.len(), 1, "{kind} {subresource}");
                assert!(answers[0].contains("shop: label durward.dev/guard can't be changed"), "{answers:?}");
                assert!(
                    answers[0].contains("durward.dev/delete-anyway=shop, repeat the request, then remove"),
                    "{answers:?}"
                );
            }
            let more = json!({"durward.dev/guard": "deletion", "more": ""});
            assert!(change(kind, "shop", &guarded, more).sub(subresource).is_allowed(&all));
        }
        for before in [Value::Null, json!({"more": ""})] {
            assert!(change(kind, "shop", &before, guarded.clone()).is_allowed(&all));
            assert!(change(kind, "shop", &before, Value::Null).is_allowed(&all));
        }
    }
    let asked = || change("Namespace", "shop", &guarded, json!({}));
    assert!(asked().by("system:serviceaccount:kube-system:namespace-controller").is_allowed(&all));
    assert!(asked().unregistered().is_allowed(&all));
    assert!(asked().answers(&policies("scope: labeled\nmode: audit"))[0].starts_with("warning: "));
    assert!(asked().is_allowed(&policies("scope: labeled\nexempt: {namespaces: [shop]}")));
    let home = change("Namespace", "durward-system", &guarded, json!({}));
    assert!(home.is_allowed(&all) && !home.is_allowed(&policies("scope: labeled\nfleet: karmada")));
}

#[test]
fn a_namespace_is_not_taken_out_of_the_selector() {
    let all = policies("scope: all\nwebhook: {namespaceSelector: {matchLabels: {tier: prod}}}");
    let prod = json!({"tier": "prod"});
    assert!(!change("Namespace", "shop", &prod, json!({"tier": "dev"})).is_allowed(&all));
    assert!(change("Namespace", "shop", &json!({"tier": "dev"}), prod.clone()).is_allowed(&all));
    assert!(change("CustomResourceDefinition", "a.example.org", &prod, json!({})).is_allowed(&all));
}

#[test]
fn parts_of_karmada_need_no_label() {
    let all = policies("scope: labeled\nfleet: karmada");
    let guarded = json!({"durward.dev/guard": "deletion"});
    assert!(change("Namespace", "karmada-es-m1", &guarded, json!({})).is_allowed(&all));
    assert!(!change("Namespace", "shop", &guarded, json!({})).is_allowed(&all));
}
