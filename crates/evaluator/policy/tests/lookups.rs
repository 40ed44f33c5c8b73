//! Lookups of an evaluation, and decisions without any.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by them")]

use policy::Authorization;
use policy::facts::{Facts, Limit, Lookup};
use policy::release::Release;
use policy::request::{AdmissionRequest, GroupVersion};
use policy::set::{Decisions, PolicySet, PolicySetBuilder, Recognized};
use policy::value::{Arena, Value, read_json};
use serde_json::{Value as Json, json};

fn policy(validations: &[&str]) -> Json {
    let validations: Vec<Json> =
        validations.iter().map(|expression| json!({ "expression": expression })).collect();
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": "p" },
        "spec": {
            "matchConstraints": { "resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]
            }] },
            "validations": validations,
        },
    })
}

fn binding(policy_name: &str) -> Json {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": "b" },
        "spec": { "policyName": policy_name, "validationActions": ["Deny"] },
    })
}

fn add(builder: &mut PolicySetBuilder, document: &Json) -> Recognized {
    let arena = Arena::new();
    let text = document.to_string();
    builder.add("test.yaml", read_json(arena.text(&text), &arena).expect("a document"))
}

fn load(policy: &Json) -> PolicySet {
    let mut builder = PolicySetBuilder::new(Release::for_new(35));
    add(&mut builder, policy);
    add(&mut builder, &binding("p"));
    match builder.finish() {
        Ok(set) => set,
        Err(errors) => panic!("a valid policy is refused: {errors:?}"),
    }
}

fn evaluate(set: &PolicySet, facts: &Facts, keep_going: bool) -> Decisions {
    let arena = Arena::new();
    let pod = GroupVersion { group: "", version: "v1", name: "Pod" };
    let request = AdmissionRequest {
        operation: "CREATE",
        kind: pod,
        resource: GroupVersion { name: "pods", ..pod },
        name: "web",
        namespace: "prod",
        object: Value::Object(&[]),
        ..AdmissionRequest::default()
    };
    set.evaluate(&request, facts, &arena, &|| keep_going)
}

fn needs(set: &PolicySet, facts: &Facts) -> Vec<Lookup> {
    evaluate(set, facts, true).missing.into_iter().map(|missing| missing.lookup).collect()
}

fn decided(set: &PolicySet, facts: &Facts) -> Decisions {
    let decisions = evaluate(set, facts, true);
    assert_eq!(decisions.missing, []);
    decisions
}

#[test]
fn asks_for_the_namespace_only_if_an_expression_needs_it() {
    let without = load(&policy(&["true"]));
    assert_eq!(needs(&without, &Facts::default()), []);
    let with = load(&policy(&["namespaceObject.metadata.name == 'prod'"]));
    assert_eq!(needs(&with, &Facts::default()), [Lookup::Namespace("prod".to_owned())]);
}

#[test]
fn decides_without_a_check_that_does_not_matter() {
    let set = load(&policy(&["authorizer.path('/x').check('get').allowed() || true"]));
    assert_eq!(decided(&set, &Facts::default()).denials, []);
}

#[test]
fn asks_for_all_checks_at_once_and_uses_the_answers() {
    let set = load(&policy(&[
        "authorizer.path('/x').check('get').allowed()",
        "authorizer.group('').resource('pods').namespace('prod').check('list').allowed()",
    ]));
    let mut facts = Facts::default();
    let lookups = needs(&set, &facts);
    assert_eq!(lookups.len(), 2);
    for (index, lookup) in lookups.into_iter().enumerate() {
        let Lookup::Check(check) = lookup else { panic!("not a check: {lookup:?}") };
        facts.decisions.insert(check, Authorization { allowed: index == 0, ..Authorization::default() });
    }
    let failed: Vec<_> = decided(&set, &facts).denials.iter().map(|denial| denial.validation).collect();
    assert_eq!(failed, [Some(1)]);
}

#[test]
fn stops_when_the_caller_asks() {
    let set = load(&policy(&["lists.range(10000).all(x, x >= 0)"]));
    let missing = evaluate(&set, &Facts::default(), false).missing;
    assert_eq!(missing[0].lookup, Lookup::Limit(Limit::Time));
}

#[test]
fn refuses_bindings_without_policy_and_names_that_occur_twice() {
    let mut builder = PolicySetBuilder::new(Release::for_new(35));
    assert_eq!(add(&mut builder, &policy(&["true"])), Recognized::Policy);
    assert_eq!(add(&mut builder, &policy(&["true"])), Recognized::Policy);
    assert_eq!(add(&mut builder, &binding("q")), Recognized::Binding);
    let errors: Vec<String> = match builder.finish() {
        Ok(_) => Vec::new(),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    };
    assert_eq!(
        errors,
        [
            "test.yaml: ValidatingAdmissionPolicy \"p\": metadata.name: Duplicate value: \"p\"",
            "test.yaml: ValidatingAdmissionPolicyBinding \"b\": spec.policyName: Invalid value: \"q\": no document defines this policy",
        ]
    );
}

#[test]
fn leaves_other_documents_alone() {
    let mut builder = PolicySetBuilder::new(Release::for_new(35));
    assert_eq!(add(&mut builder, &json!({ "apiVersion": "v1", "kind": "Pod" })), Recognized::Other);
    let mutating =
        json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy" });
    assert_eq!(add(&mut builder, &mutating), Recognized::Mutating);
    assert!(builder.finish().is_ok_and(|set| set.is_empty()));
}

#[test]
fn reports_the_place_of_an_error_within_an_expression() {
    let mut builder = PolicySetBuilder::new(Release::for_new(35));
    add(&mut builder, &policy(&["object.metadata.name ==\n  foo"]));
    let places: Vec<_> = match builder.finish() {
        Ok(_) => Vec::new(),
        Err(errors) => errors.into_iter().flat_map(|error| error.error.places).collect(),
    };
    assert_eq!(places, [(2, 3, "undeclared reference to 'foo' (in container '')".to_owned())]);
}
