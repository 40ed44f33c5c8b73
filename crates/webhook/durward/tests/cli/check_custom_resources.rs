//! `check` with custom resources: the answer of the API server before it evaluates policies.

use std::fs;

use serde_json::json;

use crate::check::{files, policy};
use crate::harness::{Run, durward_in, root};

const SOURCE: &str = "crates/evaluator/policy/tests/data/kubernetesclusters";

/// A file of the source document.
fn source(name: &str) -> String {
    fs::read_to_string(root().join(SOURCE).join(name)).unwrap()
}

/// The CRD of the source document in `v1`, without `x-kubernetes-preserve-unknown-fields`.
fn naive() -> String {
    let crd = source("crd-v1-faithful.yaml");
    let kept = crd.lines().filter(|line| !line.contains("x-kubernetes-preserve-unknown-fields"));
    kept.collect::<Vec<_>>().join("\n")
}

fn check(all: &[(&str, &str)], arguments: &[&str]) -> Run {
    durward_in(files(all).path(), &[&["check"], arguments].concat(), "")
}

const TAIL: &str = "1 document checked by 0 policies for Kubernetes 1.35, namespace default: ";

#[test]
fn the_bad_object_of_the_source_document_has_the_four_errors_of_the_api_server() {
    let denied = |place: &str, error: &str| {
        format!("bad.yaml:{place}: KubernetesCluster default/bad: denied by the API server: spec.{error}\n")
    };
    let expected = [
        denied(
            "6:3",
            "clusterType: Invalid value: \"integer\": spec.clusterType in body must be of type string: \"integer\"",
        ),
        denied(
            "8:3",
            "scaleDown: Invalid value: -1: spec.scaleDown in body should be greater than or equal to 0",
        ),
        denied("5:1", "masterList: Required value"),
        denied("5:1", "nodeList: Required value"),
        format!("{TAIL}1 denied\n"),
    ];
    for (crd, note) in [
        ("crd-v1-faithful.yaml", ""),
        (
            "crd-v1beta1.yaml",
            "note: crd.yaml:1: CustomResourceDefinition \"kubernetesclusters.ecs.yun.com\" is read as Kubernetes 1.15 read v1beta1; no API server since 1.22 accepts it\n",
        ),
    ] {
        let (crd, bad, sample) = (source(crd), source("bad.yaml"), source("sample.yaml"));
        let all = [("crd.yaml", crd.as_str()), ("bad.yaml", &bad), ("sample.yaml", &sample)];
        let run = check(&all, &["bad.yaml", "--with", "crd.yaml"]);
        assert_eq!((run.code, run.out), (1, expected.concat()));
        assert_eq!(run.err, note);
        let run = check(&all, &["sample.yaml", "--with", "crd.yaml"]);
        assert_eq!((run.code, run.out), (0, format!("{TAIL}no violations\n")), "{}", run.err);
    }
}

#[test]
fn a_required_field_that_the_api_server_prunes_is_named_as_the_cause() {
    let (crd, sample) = (naive(), source("sample.yaml"));
    let all = [("crd.yaml", crd.as_str()), ("sample.yaml", &sample)];
    let arguments = ["sample.yaml", "--with", "crd.yaml"];
    let run = check(&all, &[&arguments[..], &["--field-validation", "ignore"]].concat());
    let cause = "\n  Next: required but not declared: the API server prunes it. Declare it in the schema of the CRD, or set x-kubernetes-preserve-unknown-fields: true there\n";
    let denied = |place: &str, list: &str| {
        format!(
            "sample.yaml:{place}: KubernetesCluster default/test-cluster: denied by the API server: spec.{list}: Required value{cause}"
        )
    };
    let expected = denied("8:3", "masterList") + &denied("10:3", "nodeList") + TAIL + "1 denied\n";
    assert_eq!((run.code, run.out), (1, expected), "{}", run.err);
    // kubectl asks for strict field validation, whose errors end the request before the schema does.
    let run = check(&all, &arguments);
    assert_eq!(run.code, 1);
    for line in [
        "sample.yaml:8:3: KubernetesCluster default/test-cluster: denied by the API server, which can't decode it: strict decoding error: unknown field \"spec.masterList\"\n",
        "sample.yaml:8:3: KubernetesCluster default/test-cluster: then denied by the API server: spec.masterList: Required value\n",
    ] {
        assert!(run.out.contains(line), "{}", run.out);
    }
    let faithful = source("crd-v1-faithful.yaml");
    let run = check(&[("crd.yaml", &faithful), ("sample.yaml", &sample)], &arguments);
    assert_eq!(run.code, 0, "{}", run.out);
}

/// A CRD of things with this schema, and more fields of its version.
fn things(schema: &str, more: &str) -> String {
    format!(
        "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: things.example.org}}
spec:
  group: example.org
  scope: Namespaced
  names: {{kind: Thing, plural: things}}
  versions:
  - {{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {schema}}}{more}}}
"
    )
}

const SIZED: &str = "{type: object, properties: {spec: {type: object, required: [color], properties: {size: {type: integer, default: 3, maximum: 9}, color: {type: string}}}}}";

fn thing(name: &str, spec: &str) -> String {
    format!("apiVersion: example.org/v1\nkind: Thing\nmetadata: {{name: {name}}}\nspec: {spec}\n")
}

/// A policy on things.
fn on_things(expression: &str) -> String {
    policy(expression, "Deny")
        .replace("apiGroups: [''], apiVersions: [v1]", "apiGroups: [example.org], apiVersions: ['*']")
        .replace("[configmaps]", "[things]")
}

#[test]
fn policies_see_defaults_and_no_pruned_fields() {
    let crd = things(SIZED, "");
    let policy = on_things("\"object.spec.size == 3 && !has(object.spec.colour)\"");
    let thing = thing("a", "{color: red, colour: red}");
    let all = [("crd.yaml", crd.as_str()), ("p.yaml", &policy), ("a.yaml", &thing)];
    let arguments = ["a.yaml", "--with", "crd.yaml", "--with", "p.yaml", "--field-validation", "warn"];
    let run = check(&all, &arguments);
    assert_eq!(
        (run.code, run.out.as_str()),
        (
            0,
            "a.yaml:4:20: Thing default/a: warning by the API server: unknown field \"spec.colour\"\n\
             1 document checked by 1 policy for Kubernetes 1.35, namespace default: 1 warning\n"
        ),
        "{}",
        run.err
    );
}

#[test]
fn the_report_says_which_denials_the_api_server_returns_first() {
    let (crd, policy) = (things(SIZED, ""), on_things("'false'"));
    let thing = thing("Big_Thing", "{size: 10, x: 1}");
    let all = [("crd.yaml", crd.as_str()), ("p.yaml", &policy), ("a.yaml", &thing)];
    let arguments = ["a.yaml", "--with", "crd.yaml", "--with", "p.yaml", "-o", "json"];
    let report = check(&all, &arguments).json();
    let document = &report["documents"][0];
    assert_eq!(document["schemaChecked"], true);
    let findings: Vec<_> = document["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| {
            json!([
                finding["field"],
                finding["code"],
                finding["serverOrder"],
                finding["line"],
                finding["column"]
            ])
        })
        .collect();
    assert_eq!(
        findings,
        [
            json!(["spec.x", 400, 0, 4, 18]),
            json!(["metadata.name", 422, 1, 3, 12]),
            json!(["spec.size", 422, 1, 4, 8]),
            json!(["spec.color", 422, 1, 4, 1]),
            json!(["", 422, 2, 1, 1]),
        ]
    );
    let text = check(&all, &arguments[..5]).out;
    let later = "a.yaml:1:1: Thing default/Big_Thing: then denied by policy \"p\", binding \"b\": failed expression: false\n";
    assert!(text.contains(later), "{text}");
    let schema = fs::read_to_string(root().join("docs/src/reference/check.schema.json")).unwrap();
    assert_eq!(crate::schema::errors(&serde_json::from_str(&schema).unwrap(), &report), [""; 0]);
}

#[test]
fn every_format_has_the_place_of_an_error_of_a_schema() {
    let (crd, thing) = (things(SIZED, ""), thing("a", "{color: red, size: 10}"));
    let error = "spec.size: Invalid value: 10: spec.size in body should be less than or equal to 9";
    for (format, place) in [
        ("text", "a.yaml:4:20: Thing default/a: denied by the API server: "),
        ("junit", "a.yaml:4:20: deny: "),
        ("github", "::error file=a.yaml,line=4,col=20,title=deny Thing default/a::"),
        ("sarif", "\"startColumn\": 20"),
        ("json", "\"column\": 20"),
        ("yaml", "column: 20"),
    ] {
        let all = [("crd.yaml", crd.as_str()), ("a.yaml", &thing)];
        let run = check(&all, &["a.yaml", "--with", "crd.yaml", "-o", format]);
        assert_eq!(run.code, 1, "{format}: {}", run.err);
        assert!(run.out.contains(place) && run.out.contains(error), "{format}: {}", run.out);
    }
}

#[test]
fn rules_are_evaluated_unless_an_error_keeps_the_api_server_from_them() {
    let schema = SIZED.replacen(
        "properties: {spec: {type: object,",
        "properties: {spec: {type: object, x-kubernetes-validations: [{rule: self.size < 5, message: too large}],",
        1,
    );
    let crd = things(&schema, "");
    let run = |spec: &str, options: &[&str]| {
        let thing = thing("a", spec);
        let args = [&["a.yaml", "--with", "crd.yaml"], options].concat();
        check(&[("crd.yaml", &crd), ("a.yaml", &thing)], &args)
    };
    assert_eq!(run("{color: red}", &[]).code, 0);
    let denied = run("{color: red, size: 7}", &[]);
    assert_eq!(denied.code, 1);
    let line = "a.yaml:4:1: Thing default/a: denied by the API server: spec: Invalid value: too large\n";
    assert!(denied.out.starts_with(line), "{}", denied.out);
    let older = run("{color: red, size: 7}", &["--kube-version", "1.34"]);
    assert!(older.out.contains("spec: Invalid value: \"object\": too large\n"), "{}", older.out);
    let skipped = run("{size: 7}", &[]);
    let line = "denied by the API server: <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation\n";
    assert_eq!(skipped.code, 1);
    assert!(skipped.out.contains(line) && !skipped.out.contains("too large"), "{}", skipped.out);
}

#[test]
fn a_rule_that_an_unchanged_value_breaks_is_a_warning() {
    let schema = SIZED.replacen(
        "size: {type: integer,",
        "size: {type: integer, x-kubernetes-validations: [{rule: self > 5}],",
        1,
    );
    assert_ne!(schema, SIZED);
    let crd = things(&schema, "");
    let run = |new: &str, old: &str| {
        let (new, old) = (thing("a", new), thing("a", old));
        let all = [("crd.yaml", crd.as_str()), ("new/a.yaml", &new), ("old/a.yaml", &old)];
        check(&all, &["new", "--old", "old", "--with", "crd.yaml"])
    };
    let unchanged = run("{color: red, size: 3}", "{color: blue, size: 3}");
    assert_eq!(unchanged.code, 0, "{}", unchanged.out);
    assert!(
        unchanged.out.contains("spec.size: Invalid value: 3: failed rule: self > 5"),
        "{}",
        unchanged.out
    );
    assert_eq!(run("{color: red, size: 4}", "{color: red, size: 3}").code, 1);
}

#[test]
fn an_update_is_compared_with_the_old_object() {
    let crd = things(SIZED, ", subresources: {status: {}}");
    let object = |spec: &str| thing("Big_Thing", spec);
    let run = |new: &str, old: &str| {
        let (new, old) = (object(new), object(old));
        let all = [("crd.yaml", crd.as_str()), ("new/a.yaml", &new), ("old/a.yaml", &old)];
        check(&all, &["new", "--old", "old", "--with", "crd.yaml"])
    };
    // The old object has the same errors, and its name is not checked again.
    assert_eq!(run("{color: red, size: 10}", "{color: blue, size: 10}").code, 0);
    let changed = run("{color: red, size: 11}", "{color: blue, size: 10}");
    assert_eq!(changed.code, 1);
    let line = "new/a.yaml:4:20: Thing default/Big_Thing (update): denied by the API server: spec.size: Invalid value: 11: ";
    assert!(changed.out.starts_with(line), "{}", changed.out);
}

#[test]
fn a_field_that_the_change_removes_from_a_crd_is_no_error_of_the_old_object() {
    let (new_crd, old_crd) = (
        things(SIZED, ""),
        things(&SIZED.replace("properties: {size", "properties: {shape: {type: string}, size"), ""),
    );
    let (new, old) = (thing("a", "{color: red}"), thing("a", "{color: red, shape: round}"));
    let all = [
        ("new/crd.yaml", new_crd.as_str()),
        ("new/a.yaml", &new),
        ("old/crd.yaml", &old_crd),
        ("old/a.yaml", &old),
    ];
    let run = check(&all, &["new", "--old", "old"]);
    assert_eq!(run.code, 0, "{}{}", run.out, run.err);
    let run = check(&all, &["new/a.yaml", "--old", "old/a.yaml", "--with", "new/crd.yaml"]);
    assert_eq!(run.code, 2, "without the old CRD, no cluster can have the field");
    assert!(run.err.contains("old/a.yaml:4:20: Thing \"a\": spec.shape: unknown field"), "{}", run.err);
}

/// A CRD with two versions without a webhook. Version v2 has a field with a default that can't change. This version is stored.
fn with_versions(stored: &str) -> String {
    let versions = [
        ("v1", "{n: {type: integer}}}"),
        (
            "v2",
            "{n: {type: integer}, mode: {type: string, default: a}}, x-kubernetes-validations: [{rule: self.mode == oldSelf.mode}]}",
        ),
    ]
    .map(|(name, spec)| {
        let schema = format!("{{type: object, properties: {{spec: {{type: object, properties: {spec}}}}}");
        format!("  - {{name: {name}, served: true, storage: {}, schema: {{openAPIV3Schema: {schema}}}}}\n", name == stored)
    });
    let crd = things("{}", "");
    format!("{}{}", crd.split_inclusive("versions:\n").next().unwrap(), versions.concat())
}

#[test]
fn an_old_object_has_only_the_defaults_of_the_stored_version() {
    let (new, old) = (thing("s", "{n: 2}").replace("/v1", "/v2"), thing("s", "{n: 1}"));
    for (stored, version, code) in [("v1", "/v1", 1), ("v1", "/v2", 1), ("v2", "/v1", 0), ("v2", "/v2", 0)] {
        let (crd, old) = (with_versions(stored), old.replace("/v1", version));
        let all = [("crd.yaml", crd.as_str()), ("new/a.yaml", &new), ("old/a.yaml", &old)];
        let run = check(&all, &["new", "--old", "old", "--with", "crd.yaml"]);
        assert_eq!(run.code, code, "{stored} {version}: {}{}", run.out, run.err);
        assert_eq!(run.out.contains("no such key: mode"), code == 1, "{}", run.out);
    }
}

#[test]
fn params_have_only_the_defaults_of_the_stored_version() {
    let params = thing("s", "{n: 1}");
    let policy = policy("has(params.spec.mode)", "Deny")
        .replace("  validations:", "  paramKind: {apiVersion: example.org/v2, kind: Thing}\n  validations:")
        .replace(
            "{policyName: p",
            "{policyName: p, paramRef: {name: s, namespace: default, parameterNotFoundAction: Deny}",
        );
    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
    for (stored, version, code) in [("v1", "/v1", 1), ("v1", "/v2", 1), ("v2", "/v1", 0), ("v2", "/v2", 0)] {
        let (crd, params) = (with_versions(stored), params.replace("/v1", version));
        let all = [
            ("with/crd.yaml", crd.as_str()),
            ("with/p.yaml", &policy),
            ("with/s.yaml", &params),
            ("a.yaml", object),
        ];
        let run = check(&all, &["a.yaml", "--with", "with"]);
        assert_eq!(run.code, code, "{stored} {version}: {}{}", run.out, run.err);
    }
}

#[test]
fn conversions_that_are_not_checked_are_a_note() {
    let versions = |strategy: &str| {
        let crd = things(SIZED, "").replace("  versions:\n", &format!("  conversion: {{strategy: {strategy}}}\n  versions:\n  - {{name: v2, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object}}}}}}\n"));
        crd.replace("{name: v1, served: true, storage: true", "{name: v1, served: true, storage: false")
    };
    for (strategy, how) in [("None", ""), ("Webhook", " by a webhook")] {
        let (crd, thing) = (versions(strategy), thing("a", "{color: red}"));
        let run = check(&[("crd.yaml", &crd), ("a.yaml", &thing)], &["a.yaml", "--with", "crd.yaml"]);
        let note = format!(
            "note: Thing is checked as v1 only: its conversion{how} to v2, which is stored, is not checked\n"
        );
        assert_eq!(run.code, 0, "{}", run.out);
        assert!(run.err.contains(&note), "{}", run.err);
    }
}

#[test]
fn a_schema_that_is_not_structural_is_an_error_of_the_crd_and_leaves_its_objects_open() {
    let crd = things("{properties: {spec: {type: object}}}", "");
    let thing = thing("a", "{}");
    let run = check(&[("crd.yaml", &crd), ("a.yaml", &thing)], &["."]);
    assert_eq!(run.code, 1);
    let error = "type: Required value: must not be empty at the root";
    for line in [
        format!(
            "CustomResourceDefinition things.example.org: denied by the API server: spec.validation.openAPIV3Schema.{error}\n"
        ),
        format!(
            "a.yaml:1:1: Thing default/a: could not decide: the API server refuses the schema of the CRD: spec.versions[0].schema.openAPIV3Schema.{error}\n"
        ),
    ] {
        assert!(run.out.contains(&line), "{}", run.out);
    }
}

#[test]
fn an_object_with_many_errors_is_judged_in_bounded_time() {
    let crd = things(
        "{type: object, properties: {spec: {type: object, properties: {list: {type: array, items: {type: string}}}}}}",
        "",
    );
    let thing = thing("a", &format!("{{list: [{}]}}", "1, ".repeat(200_000)));
    let run = check(&[("crd.yaml", &crd), ("a.yaml", &thing)], &["a.yaml", "--with", "crd.yaml"]);
    assert_eq!((run.code, run.out.lines().count()), (1, 1_002), "{}", run.err);
    assert!(run.out.contains("denied by the API server: more errors are not shown\n"), "{}", run.out);
}
