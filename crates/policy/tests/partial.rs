//! Decisions that are certain although facts are missing, and the fields that validations are about.

#![allow(clippy::expect_used, reason = "a test fails by it")]

use policy::facts::{Facts, Lookup};
use policy::release::Release;
use policy::request::{GroupVersion, Request, User};
use policy::set::{Builder, Evaluation, PolicySet};
use policy::value::{Arena, read_json};
use serde_json::{Value as Json, json};

fn load(constraints: &Json, more: &Json, validations: &[&str], binding: &Json) -> PolicySet {
    let mut spec = json!({
        "matchConstraints": { "resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]
        }] },
        "validations": validations.iter().map(|text| json!({ "expression": text })).collect::<Vec<_>>(),
    });
    let merge = |into: &mut Json, from: &Json| {
        for (key, value) in from.as_object().into_iter().flatten() {
            into[key] = value.clone();
        }
    };
    merge(&mut spec["matchConstraints"], constraints);
    merge(&mut spec, more);
    let mut bound = json!({ "policyName": "p", "validationActions": ["Deny"] });
    merge(&mut bound, binding);
    let mut builder = Builder::new(Release::for_new(35));
    for (kind, spec) in [("", spec), ("Binding", bound)] {
        let arena = Arena::new();
        let document = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": format!("ValidatingAdmissionPolicy{kind}"),
            "metadata": { "name": "p" },
            "spec": spec,
        });
        builder.add("", read_json(arena.text(&document.to_string()), &arena).expect("a document"));
    }
    builder.finish().map_err(|errors| format!("{errors:?}")).expect("valid policies")
}

fn evaluate(set: &PolicySet, user: Option<&str>) -> Evaluation {
    let arena = Arena::new();
    let pod = GroupVersion { group: "", version: "v1", name: "Pod" };
    let request = Request {
        operation: "CREATE",
        kind: pod,
        resource: GroupVersion { name: "pods", ..pod },
        name: "web",
        namespace: "prod",
        user: User { name: user.unwrap_or_default(), ..User::default() },
        user_is_unknown: user.is_none(),
        object: read_json(r#"{"metadata":{"name":"web"},"spec":{"containers":[]}}"#, &arena)
            .expect("an object"),
        ..Request::default()
    };
    set.evaluate_partly(&request, &Facts::default(), &arena, &|| true)
}

/// The number of denials and the missing facts.
fn outcome(set: &PolicySet) -> (usize, Vec<Lookup>) {
    let evaluation = evaluate(set, None);
    let missing = evaluation.missing.into_iter().map(|missing| missing.lookup).collect();
    (evaluation.decisions.denials.len(), missing)
}

#[test]
fn reports_denials_that_do_not_need_a_missing_fact() {
    let set = load(&json!({}), &json!({}), &["namespaceObject.metadata.name == 'x'", "1 == 2"], &json!({}));
    assert_eq!(outcome(&set), (1, vec![Lookup::Namespace("prod".to_owned())]));
}

#[test]
fn drops_denials_of_a_policy_that_might_not_match() {
    let selector = json!({ "namespaceSelector": { "matchLabels": { "team": "a" } } });
    let set = load(&selector, &json!({}), &["1 == 2"], &json!({}));
    assert_eq!(outcome(&set), (0, vec![Lookup::Namespace("prod".to_owned())]));
    let passes = load(&selector, &json!({}), &["1 == 1"], &json!({}));
    assert_eq!(outcome(&passes), (0, vec![]), "the object passes in any namespace");
}

#[test]
fn knows_the_name_of_a_namespace() {
    let by_name = |operator: &str, more: Json| {
        let key = "kubernetes.io/metadata.name";
        let mut expressions = vec![json!({ "key": key, "operator": operator, "values": ["prod"] })];
        expressions.extend(more.as_array().cloned().unwrap_or_default());
        let selector = json!({ "namespaceSelector": { "matchExpressions": expressions } });
        outcome(&load(&selector, &json!({}), &["1 == 2"], &json!({})))
    };
    let other = json!([{ "key": "team", "operator": "Exists" }]);
    assert_eq!(by_name("In", json!([])), (1, vec![]));
    assert_eq!(by_name("NotIn", json!([])), (0, vec![]));
    assert_eq!(by_name("NotIn", other.clone()), (0, vec![]));
    assert_eq!(by_name("In", other), (0, vec![Lookup::Namespace("prod".to_owned())]));
}

#[test]
fn the_user_is_a_fact() {
    let with = |expression: &str| load(&json!({}), &json!({}), &[expression], &json!({}));
    let set = with("request.userInfo.username == 'ann'");
    assert_eq!(outcome(&set), (0, vec![Lookup::User]));
    assert_eq!(evaluate(&set, Some("ann")).decisions.denials.len(), 0);
    assert_eq!(evaluate(&set, Some("bob")).decisions.denials.len(), 1);
    assert_eq!(outcome(&with("has(request.userInfo.username)")), (0, vec![Lookup::User]));
    assert_eq!(outcome(&with("dyn(request)['userInfo'] == {}")), (0, vec![Lookup::User]));
    assert_eq!(outcome(&with("request.name == 'web' || request.userInfo.username == 'ann'")), (0, vec![]));
    assert_eq!(outcome(&with("request.name == 'other'")), (1, vec![]));
}

#[test]
fn match_conditions_with_missing_facts_leave_the_verdict_open() {
    let condition =
        json!({ "matchConditions": [{ "name": "c", "expression": "request.userInfo.username == 'ann'" }] });
    assert_eq!(outcome(&load(&json!({}), &condition, &["1 == 2"], &json!({}))), (0, vec![Lookup::User]));
    assert_eq!(outcome(&load(&json!({}), &condition, &["1 == 1"], &json!({}))), (0, vec![]));
}

#[test]
fn missing_parameters_leave_the_verdict_open() {
    let kind = json!({ "paramKind": { "apiVersion": "v1", "kind": "ConfigMap" } });
    let missing = |expression: &str, action: &str| {
        let reference = json!({ "paramRef": { "name": "x", "parameterNotFoundAction": action } });
        let evaluation = evaluate(&load(&json!({}), &kind, &[expression], &reference), None);
        (evaluation.decisions.denials.len(), !evaluation.missing.is_empty())
    };
    assert_eq!(missing("params.data.x == ''", "Allow"), (0, true));
    assert_eq!(missing("params.data.x == ''", "Deny"), (0, true));
    assert_eq!(missing("1 == 2", "Allow"), (0, true), "there may be no parameters");
    assert_eq!(missing("1 == 1", "Deny"), (0, true), "there may be no parameters");
}

#[test]
fn names_the_field_that_a_validation_reads() {
    let variables = json!({ "variables": [
        { "name": "containers", "expression": "object.spec.containers" },
        { "name": "names", "expression": "variables.containers.map(c, c.name)" },
    ] });
    let cases = [
        ("has(object.spec.replicas) && object.spec.replicas < 5", Some("spec.replicas")),
        ("object.spec.containers.all(c, c.image != object.metadata.name)", None),
        ("object.spec.min < object.spec.max", Some("spec")),
        ("object.metadata.labels['app'] == 'x'", Some("metadata.labels.app")),
        ("object.?spec[?'host'].orValue('') == ''", Some("spec.host")),
        ("variables.names.size() > 0", Some("spec.containers")),
        ("object.spec.containers[0].name == 'a'", Some("spec.containers[0].name")),
        ("request.name == 'web'", None),
    ];
    let expressions: Vec<&str> = cases.iter().map(|(expression, _)| *expression).collect();
    let set = load(&json!({}), &variables, &expressions, &json!({}));
    for (index, (expression, field)) in cases.iter().enumerate() {
        let (_, subject) = set.validation("p", index).expect("a validation");
        assert_eq!(subject.map(ToString::to_string).as_deref(), *field, "{expression}");
    }
}

#[test]
fn a_policy_on_another_version_of_the_resource_is_not_evaluated() {
    let rule = |version: &str| {
        json!({ "resourceRules": [{
            "apiGroups": [""], "apiVersions": [version], "operations": ["CREATE"], "resources": ["pods"]
        }] })
    };
    let other = vec![Lookup::Conversion { policy: "p".to_owned(), rule: "/v2 pods".to_owned() }];
    for expression in ["1 == 1", "1 == 2"] {
        let set = load(&rule("v2"), &json!({}), &[expression], &json!({}));
        assert_eq!(outcome(&set), (0, other.clone()), "{expression}");
        let binding = json!({ "matchResources": rule("v2") });
        let set = load(&json!({}), &json!({}), &[expression], &binding);
        assert_eq!(outcome(&set), (0, other.clone()), "{expression} in the binding");
    }
}

#[test]
fn reads_a_doubled_list_in_bounded_time_and_memory() {
    let doubled: Vec<Json> = (0..=40)
        .map(|index| {
            let expression = match index {
                0 => "[1, 2, 3, 4]".to_owned(),
                _ => format!("variables.v{0} + variables.v{0}", index - 1),
            };
            json!({ "name": format!("v{index}"), "expression": expression })
        })
        .collect();
    let denials = |expression: &str| {
        let set = load(&json!({}), &json!({ "variables": doubled }), &[expression], &json!({}));
        let denials = evaluate(&set, Some("ann")).decisions.denials;
        denials.into_iter().map(|denial| denial.message).collect::<Vec<_>>()
    };
    assert_eq!(denials("size(variables.v40) == 4398046511104"), [""; 0]);
    assert_eq!(denials("variables.v40[5] == 2 && variables.v40.exists(x, x == 2)"), [""; 0]);
    let v17 = format!("[{}]", ["variables.v17"; 100].join(", "));
    for expression in [
        "variables.v40.sort() == []",
        "sets.contains(variables.v40, [9])",
        "variables.v40 == variables.v40",
        "variables.v40.sum() == 1",
        "variables.v40.slice(0, 1000000000) == []",
        "[variables.v40].flatten() == []",
        &format!("{v17}.flatten() == []"),
    ] {
        let messages = denials(expression);
        let message = messages.first().map(String::as_str).unwrap_or_default();
        assert!(
            message.contains("cost budget") || message.contains("cost limit"),
            "{expression}: {messages:?}"
        );
    }
}

#[test]
fn a_loop_over_unknown_checks_does_not_exceed_the_cost_limit() {
    let expression = "[1, 2, 3].all(i, authorizer.path('/x').check('get').errored())";
    let set = load(&json!({}), &json!({}), &[expression], &json!({}));
    let evaluation = evaluate(&set, Some("ann"));
    assert_eq!(evaluation.decisions.denials, [], "one check costs 350,000, and the answer can end the loop");
    let lookups: Vec<_> = evaluation.missing.iter().map(|missing| &missing.lookup).collect();
    assert!(matches!(lookups[..], [Lookup::Check(_)]), "{lookups:?}");
}

#[test]
fn an_audit_annotation_has_no_authorizer() {
    let more = json!({
        "variables": [{ "name": "v", "expression": "authorizer.path('/x').check('get').allowed()" }],
        "auditAnnotations": [{ "key": "k", "valueExpression": "string(variables.v)" }],
    });
    let set = load(&json!({}), &more, &["true"], &json!({}));
    let messages: Vec<_> =
        evaluate(&set, Some("ann")).decisions.denials.into_iter().map(|denial| denial.message).collect();
    assert_eq!(
        messages,
        [
            "expression 'string(variables.v)' resulted in error: composited variable \"v\" fails to evaluate: no such attribute(s): authorizer"
        ]
    );
}
