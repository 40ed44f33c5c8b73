//! Decisions that are certain although facts are missing, and the fields that validations are about.

#![allow(clippy::expect_used, reason = "a test fails by it")]

use policy::facts::{Facts, Limit, Lookup};
use policy::release::Release;
use policy::request::{AdmissionRequest, GroupVersion, RequestUser};
use policy::set::{Decisions, Missing, PolicySet, PolicySetBuilder};
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
    let mut builder = PolicySetBuilder::new(Release::for_new(35));
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

fn evaluate(set: &PolicySet, user: Option<&str>) -> Decisions {
    let arena = Arena::new();
    let pod = GroupVersion { group: "", version: "v1", name: "Pod" };
    let request = AdmissionRequest {
        operation: "CREATE",
        kind: pod,
        resource: GroupVersion { name: "pods", ..pod },
        name: "web",
        namespace: "prod",
        user: RequestUser { name: user.unwrap_or_default(), ..RequestUser::default() },
        user_is_unknown: user.is_none(),
        object: read_json(r#"{"metadata":{"name":"web"},"spec":{"containers":[]}}"#, &arena)
            .expect("an object"),
        ..AdmissionRequest::default()
    };
    set.evaluate(&request, &Facts::default(), &arena, &|| true)
}

/// The number of denials and the missing facts.
fn outcome(set: &PolicySet) -> (usize, Vec<Lookup>) {
    let evaluation = evaluate(set, None);
    let denials = evaluation.denials.len();
    let missing = evaluation.missing.into_iter().map(|missing| missing.lookup).collect();
    (denials, missing)
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
    assert_eq!(evaluate(&set, Some("ann")).denials.len(), 0);
    assert_eq!(evaluate(&set, Some("bob")).denials.len(), 1);
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
        (evaluation.denials.len(), !evaluation.missing.is_empty())
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
    let evaluated = |expression: &str| {
        let set = load(&json!({}), &json!({ "variables": doubled }), &[expression], &json!({}));
        evaluate(&set, Some("ann"))
    };
    let denials = |expression: &str| {
        let evaluation = evaluated(expression);
        assert_eq!(evaluation.missing, [], "{expression}");
        evaluation.denials.into_iter().map(|denial| denial.message).collect::<Vec<_>>()
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
    ] {
        let messages = denials(expression);
        let message = messages.first().map(String::as_str).unwrap_or_default();
        assert!(
            message.contains("cost budget") || message.contains("cost limit"),
            "{expression}: {messages:?}"
        );
    }
    // The cost is small, since it depends on the outer list only. An API server with enough memory decides.
    for expression in ["[variables.v40].flatten() == []", &format!("{v17}.flatten() == []")] {
        assert_eq!(limits(&evaluated(expression)), [Limit::Memory], "{expression}");
    }
}

/// The limits that an evaluation reached. It must have decided nothing else.
fn limits(decisions: &Decisions) -> Vec<Limit> {
    let others = Decisions { missing: Vec::new(), ..decisions.clone() };
    assert_eq!(others, Decisions::default());
    let limit = |missing: &Missing| match missing.lookup {
        Lookup::Limit(limit) => Some(limit),
        _ => None,
    };
    decisions.missing.iter().filter_map(limit).collect()
}

/// A limit of the evaluator never allows or denies. The failure policy, the actions, the order of expressions and the operators around
/// it don't matter.
#[test]
fn a_limit_decides_nothing() {
    let nested = |index: usize| match index {
        0 => "[['x', 'y']]".to_owned(),
        _ => format!("[variables.v{0}, variables.v{0}]", index - 1),
    };
    let text = |index: usize| match index {
        0 => format!("'{}'", "x".repeat(15_000)),
        1..=8 => format!("variables.t{0} + variables.t{0}", index - 1),
        _ => "''".to_owned(),
    };
    let variables: Vec<Json> = (0..=40)
        .flat_map(|index| {
            [
                json!({ "name": format!("v{index}"), "expression": format!("dyn({})", nested(index)) }),
                json!({ "name": format!("t{index}"), "expression": text(index) }),
            ]
        })
        .collect();
    let hostile = [
        "variables.t8.split('').size() == 1",
        "variables.t8.replace('', variables.t8) == ''",
        "[variables.v40].flatten(40) == []",
        "variables.v40 == [variables.v39, variables.v39]",
        "variables.v40 == variables.v40",
        "[variables.v40, variables.v40].distinct() == []",
        "variables.v40 in [variables.v39, variables.v40]",
        "'%s'.format([variables.v40]) == ''",
        "{'a': variables.v40} == {'a': variables.v40}",
        "sets.contains([variables.v40], [variables.v40])",
        "optional.of(variables.v40) == optional.of(variables.v40)",
        "[variables.v40, variables.v40].lastIndexOf(variables.v40) == 0",
    ];
    let limits_of = |source: &str, failure_policy: &str| {
        let fields = json!({ "failurePolicy": failure_policy, "variables": variables });
        limits(&evaluate(&load(&json!({}), &fields, &[source], &json!({})), Some("ann")))
    };
    for expression in hostile {
        assert_eq!(limits_of(expression, "Ignore"), [Limit::Memory], "{expression}");
    }
    assert_eq!(limits_of(r"'a'.matches(r'\pL{900}\pL{900}')", "Fail"), [Limit::Regex]);
    let digits = "1".repeat(42);
    for number in ["1e39", "-1e39", &digits] {
        let source = format!("quantity('{number}').add(quantity('1')).isLessThan(quantity('5'))");
        assert_eq!(limits_of(&source, "Ignore"), [Limit::Digits], "{source}");
    }
    assert_eq!(limits_of("sign(quantity('1e39').sub(1)) == 1", "Ignore"), [Limit::Digits]);
    let decided = format!("isQuantity('{digits}') && quantity('1e39').isGreaterThan(quantity('1'))");
    let decided = evaluate(&load(&json!({}), &json!({}), &[&decided], &json!({})), Some("ann"));
    assert_eq!((decided.denials, decided.missing.len()), (Vec::new(), 0));
    let limited = hostile[0];
    for (before, after) in [("", " || true"), ("", " && false"), ("!(", ")"), ("", " ? true : true")] {
        let source = format!("{before}{limited}{after}");
        assert_eq!(limits_of(&source, "Fail"), [Limit::Memory], "{source}");
        assert_eq!(limits_of(&source, "Ignore"), [Limit::Memory], "{source}");
    }
    let condition = |expression: &str| json!([{ "name": "c", "expression": expression }]);
    let without_memory = |expressions: &[&str], more: Json| {
        let mut fields = json!({ "failurePolicy": "Ignore", "variables": variables });
        fields.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        limits(&evaluate(&load(&json!({}), &fields, expressions, &json!({})), Some("ann")))
    };
    // Another expression of the policy denies or fails, before or after.
    for expressions in [["1 == 2", limited], [limited, "1 == 2"], ["[1][2] == 1", limited]] {
        assert_eq!(without_memory(&expressions, json!({})), [Limit::Memory], "{expressions:?}");
    }
    let in_condition = json!({ "matchConditions": condition("'a'.matches(r'\\pL{900}\\pL{900}') || true") });
    assert_eq!(without_memory(&["1 == 2"], in_condition), [Limit::Regex]);
    let in_message = json!({ "validations": [{ "expression": "1 == 2", "messageExpression": "variables.t8.split('')[0]" }] });
    assert_eq!(without_memory(&[], in_message), [Limit::Memory]);
    let in_annotation =
        json!({ "auditAnnotations": [{ "key": "k", "valueExpression": "variables.t8.split('')[0]" }] });
    assert_eq!(without_memory(&["1 == 2"], in_annotation), [Limit::Memory]);
    // The API server skips these expressions as well.
    for skipped in ["true || ", "!(false && ", "false ? true : true || "] {
        let source = format!("{skipped}{limited}{}", if skipped.contains('(') { ")" } else { "" });
        let set = load(&json!({}), &json!({ "variables": variables }), &[&source], &json!({}));
        let evaluation = evaluate(&set, Some("ann"));
        assert!(evaluation.missing.is_empty() && evaluation.denials.is_empty(), "{source}");
    }
}

#[test]
fn a_loop_over_unknown_checks_does_not_exceed_the_cost_limit() {
    let expression = "[1, 2, 3].all(i, authorizer.path('/x').check('get').errored())";
    let set = load(&json!({}), &json!({}), &[expression], &json!({}));
    let evaluation = evaluate(&set, Some("ann"));
    assert_eq!(evaluation.denials, [], "one check costs 350,000, and the answer can end the loop");
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
        evaluate(&set, Some("ann")).denials.into_iter().map(|denial| denial.message).collect();
    assert_eq!(
        messages,
        [
            "expression 'string(variables.v)' resulted in error: composited variable \"v\" fails to evaluate: no such attribute(s): authorizer"
        ]
    );
}
