//! `check` with documents of kind `Cases`.

use serde_json::Value;

use crate::check::{files, policy};
use crate::harness::{Run, durward, durward_in};

const EXAMPLE: [&str; 6] = [
    "check",
    "examples/kubernetesclusters/cases.yaml",
    "--with",
    "examples/kubernetesclusters/crd.yaml",
    "--with",
    "examples/kubernetesclusters/policy.yaml",
];

/// Checks cases with a policy in a directory with more files.
fn cases(policy: &str, cases: &str, more: &[(&str, &str)]) -> Run {
    let cases = format!("apiVersion: durward.dev/v1alpha1\nkind: Cases\ncases:\n{cases}");
    let dir = files(&[&[("policy.yaml", policy), ("cases.yaml", &cases)], more].concat());
    durward_in(dir.path(), &["check", "cases.yaml", "--with", "policy.yaml"], "")
}

fn config_map(expect: &str) -> String {
    format!(
        "- name: one\n  object: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: a}}, data: {{size: l}}}}\n{expect}"
    )
}

const DENY: &str = "  expect: {verdict: deny}\n";
const ALLOW: &str = "  expect: {verdict: allow}\n";

#[test]
fn all_cases_of_the_example_pass() {
    let run = durward(&EXAMPLE);
    assert_eq!(run.code, 0, "{}{}", run.out, run.err);
    assert!(run.out.ends_with("namespace default: 10 cases passed\n"), "{}", run.out);
    assert!(!run.err.contains("nothing was judged"), "{}", run.err);
}

#[test]
fn a_failed_case_shows_both_verdicts_and_its_place() {
    let failing = policy("object.data.size == 's'", "Deny");
    let run = cases(&failing, &config_map(ALLOW), &[]);
    assert_eq!(run.code, 1, "{}", run.err);
    let expected = "cases.yaml:6:3: case \"one\" failed\n  expected allow\n  actual   deny: failed expression: object.data.size == 's' (policy p)\n";
    assert!(run.out.starts_with(expected), "{}", run.out);
    assert!(run.out.ends_with("1 of 1 case failed\n"), "{}", run.out);
    assert_eq!(cases(&failing, &config_map(DENY), &[]).code, 0);
}

#[test]
fn the_report_in_json_follows_its_schema() {
    let run = durward(&[&EXAMPLE[..], &["-o", "json"]].concat());
    let report: Value = serde_json::from_str(&run.out).unwrap();
    let schema = std::fs::read_to_string(crate::harness::root().join("docs/src/reference/check.schema.json"));
    let schema = serde_json::from_str(&schema.unwrap()).unwrap();
    assert_eq!(crate::schema::errors(&schema, &report), [""; 0]);
    assert_eq!(report["totals"]["cases"], 10);
    assert_eq!(report["cases"][0]["name"], "the sample has neither key nor password");
    assert_eq!(report["cases"][0]["line"], 5);
    assert_eq!(report["cases"][0]["passed"], true);
}

#[test]
fn compares_policy_reason_and_message_of_one_denial() {
    let failing = policy("object.data.size == 's'", "Deny");
    for (expect, passes) in [
        ("{verdict: deny, policy: p, reason: Invalid}", true),
        ("{verdict: deny, reason: Forbidden}", false),
        ("{verdict: deny, message: \"failed expression: object.data.size == 's'\"}", true),
        ("{verdict: deny, message: failed}", false),
        ("{verdict: deny, messageMatches: ^failed}", true),
        ("{verdict: deny, messageMatches: denied}", false),
        ("{verdict: skip, policy: other}", false),
        ("{verdict: error}", false),
    ] {
        let run = cases(&failing, &config_map(&format!("  expect: {expect}\n")), &[]);
        assert_eq!(run.code, i32::from(!passes), "{expect}: {}{}", run.out, run.err);
    }
    let unknown = cases(&failing, &config_map("  expect: {verdict: skip, policy: pp}\n"), &[]);
    assert!(unknown.out.contains("no policy is named pp\n  Next: did you mean p?"), "{}", unknown.out);
    let error = policy("object.data.absent == ''", "Deny");
    let run = cases(&error, &config_map("  expect: {verdict: error, messageMatches: 'no such key'}\n"), &[]);
    assert_eq!(run.code, 0, "{}", run.out);
    let warning = policy("object.data.size == 's'", "Warn");
    assert_eq!(cases(&warning, &config_map(ALLOW), &[]).code, 0);
}

#[test]
fn a_case_brings_its_own_facts() {
    let labels = policy("namespaceObject.metadata.labels.team == 'shop'", "Deny");
    let run = cases(&labels, &config_map(ALLOW), &[]);
    assert_eq!(run.code, 1);
    assert!(run.out.contains("actual   unknown: needs the Namespace object \"default\""), "{}", run.out);
    assert!(run.out.contains("  Next: add the Namespace"), "{}", run.out);
    let with = |facts: &str, verdict: &str| config_map(&format!("  {facts}\n{verdict}"));
    assert_eq!(cases(&labels, &with("namespaceLabels: {team: shop}", ALLOW), &[]).code, 0);
    assert_eq!(cases(&labels, &with("namespaceLabels: {team: bank}", DENY), &[]).code, 0);

    let user = policy("request.userInfo.username == 'ann' && 'dev' in request.userInfo.groups", "Deny");
    assert_eq!(cases(&user, &with("user: {name: ann, groups: [dev]}", ALLOW), &[]).code, 0);
    assert_eq!(cases(&user, &with("user: ann", DENY), &[]).code, 0);

    let grants = policy("authorizer.group('').resource('pods').check('get').allowed()", "Deny");
    let granted = "grants: [{verbs: [get], apiGroups: [''], resources: [pods]}]";
    assert_eq!(cases(&grants, &with(granted, ALLOW), &[]).code, 0);
    assert_eq!(cases(&grants, &with("grants: []", DENY), &[]).code, 0);
}

#[test]
fn a_case_brings_its_own_params() {
    let params = policy("object.data.size == params.data.size", "Deny")
        .replace("  matchConstraints:", "  paramKind: {apiVersion: v1, kind: ConfigMap}\n  matchConstraints:")
        .replace("policyName: p,", "policyName: p, paramRef: {name: sizes, parameterNotFoundAction: Deny},");
    let sizes = |size: &str| {
        format!(
            "  params: [{{apiVersion: v1, kind: ConfigMap, metadata: {{name: sizes}}, data: {{size: {size}}}}}]\n"
        )
    };
    assert_eq!(cases(&params, &config_map(&(sizes("l") + ALLOW)), &[]).code, 0);
    assert_eq!(cases(&params, &config_map(&(sizes("m") + DENY)), &[]).code, 0);
    let none = cases(&params, &config_map("  params: []\n  expect: {verdict: error}\n"), &[]);
    assert_eq!(none.code, 0, "{}{}", none.out, none.err);
    let unknown = cases(&params, &config_map(ALLOW), &[]);
    assert!(unknown.out.contains("actual   unknown: needs the params"), "{}", unknown.out);
}

#[test]
fn reads_objects_of_other_files() {
    let failing = policy("object.data.size == 's'", "Deny");
    let more = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {size: s}}\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: b}, data: {size: l}}\n";
    let files = [("maps/all.yaml", more)];
    let one = |reference: &str, verdict: &str| {
        cases(
            &failing,
            &format!("- {{name: one, object: {reference}, expect: {{verdict: {verdict}}}}}\n"),
            &files,
        )
    };
    assert_eq!(one("maps/all.yaml#1", "allow").code, 0);
    assert_eq!(one("maps/all.yaml#2", "deny").code, 0);
    for (reference, error) in [
        ("maps/all.yaml", "cases.yaml:4:15: Cases: cases[0].object: maps/all.yaml has 2 objects"),
        ("maps/all.yaml#3", "maps/all.yaml has 2 objects"),
        ("maps/all.yaml#0", "\"maps/all.yaml#0\" has no number after #"),
        ("absent.yaml", "absent.yaml cannot be read"),
    ] {
        let run = one(reference, "deny");
        assert_eq!(run.code, 2, "{reference}");
        assert!(run.err.contains(error), "{}", run.err);
    }
}

#[test]
fn reports_all_mistakes_with_their_places() {
    let text = "- {name: a, object: [], expect: {verdict: denied}}\n- {nme: b, expect: {}}\n- {name: c, operation: UPDATE, oldObject: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}, user: 5, expect: {verdict: allow, reason: x}}\n- {name: c, object: x.yaml, expect: {verdict: deny, messageMatches: '('}}\n";
    let run = cases(&policy("true", "Deny"), text, &[]);
    assert_eq!(run.code, 2, "{}", run.out);
    for error in [
        "cases.yaml:4:13: Cases: cases[0].object: a Kubernetes object is a map",
        "cases.yaml:4:34: Cases: cases[0].expect.verdict: \"denied\" is not a known value\n    use one of: allow, deny, skip, error",
        "cases.yaml:5:4: Cases: cases[1].nme: unknown field\n    did you mean name?",
        "cases.yaml:5:3: Cases: cases[1]: the case has no object",
        "cases.yaml:6:13: Cases: cases[2].operation: oldObject alone is the operation DELETE",
        "Cases: cases[2].user: must be a map",
        "Cases: cases[2].expect.reason: reason needs the verdict deny or error",
        "Cases: cases[3].expect.messageMatches: messageMatches is not a regular expression",
    ] {
        assert!(run.err.contains(error), "{error}\n{}", run.err);
    }
}

#[test]
fn a_document_without_cases_is_an_error() {
    for text in ["", "cases: []\n", "cases:\n"] {
        let dir = files(&[("c.yaml", &format!("apiVersion: durward.dev/v1alpha1\nkind: Cases\n{text}"))]);
        let run = durward_in(dir.path(), &["check", "c.yaml"], "");
        assert_eq!(run.code, 2, "{}", run.out);
        assert!(run.err.contains("the document has no cases"), "{}", run.err);
    }
    let dir = files(&[("c.yaml", "apiVersion: durward.dev/v1\nkind: Cases\ncases: []\n")]);
    let run = durward_in(dir.path(), &["check", "c.yaml"], "");
    assert!(
        run.err.contains("c.yaml:1:1: Cases: apiVersion: this version of Cases is not known"),
        "{}",
        run.err
    );
}

#[test]
fn an_update_keeps_kind_name_and_namespace_and_params_must_be_valid() {
    let object =
        |kind: &str, metadata: &str| format!("{{apiVersion: v1, kind: {kind}, metadata: {metadata}}}");
    let new = object("ConfigMap", "{name: a}");
    let case = |old: &str, params: &str| {
        let case = format!("- name: one\n  object: {new}\n  oldObject: {old}\n  params: [{params}]\n{ALLOW}");
        cases(&policy("1 == 1", "Deny"), &case, &[])
    };
    let same = object("ConfigMap", "{name: a, namespace: default}");
    assert_eq!(case(&same, "").code, 0, "{}", case(&same, "").out);
    for (old, params, part) in [
        (
            object("ConfigMap", "{name: b}"),
            String::new(),
            "oldObject is ConfigMap default/b and object is ConfigMap default/a",
        ),
        (object("ConfigMap", "{name: a, namespace: z}"), String::new(), "oldObject is ConfigMap z/a"),
        (object("Secret", "{name: a}"), String::new(), "oldObject is Secret default/a"),
        (same.clone(), format!("{same}, {same}"), "params: ConfigMap \"a\": the object is in cases.yaml:"),
        (same.clone(), object("ConfigMap", "{name: b, labels: {a: 1}}"), "Invalid type: expected a string"),
    ] {
        let run = case(&old, &params);
        assert_eq!(run.code, 1, "{part}: {}{}", run.out, run.err);
        assert!(run.out.contains(part), "{part}: {}", run.out);
    }
}
