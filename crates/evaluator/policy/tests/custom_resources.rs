//! Creates and updates of custom resources: all steps, with the texts of the API server.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::collections::BTreeMap;

use policy::crd::Crd;
use policy::crd::object::{decode, validate};
use policy::document::read;
use policy::field::{FieldError, Validated};
use policy::value::Arena;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/kubernetesclusters/");

fn data(name: &str) -> String {
    std::fs::read_to_string(format!("{DATA}{name}")).unwrap()
}

/// The answer to a change, and the fields that the API server does not know.
#[derive(Debug)]
struct Answer {
    errors: Vec<String>,
    unknown: Vec<String>,
    validated: Validated,
}

/// Judges a change as an API server of a minor does. An update names the old object.
fn judge(crd: &str, new: &str, old: Option<&str>, server: u8) -> Answer {
    judge_of(&read_crd(crd), new, old, server)
}

fn read_crd(text: &str) -> Crd {
    let arena = Arena::new();
    Crd::read(read(text).unwrap()[0].value(&arena)).unwrap()
}

fn judge_of(crd: &Crd, new: &str, old: Option<&str>, server: u8) -> Answer {
    let arena = Arena::new();
    let value = |text: &str| read(text).unwrap()[0].value(&arena);
    let (new, old) = (value(new), old.map(value));
    let api_version = new.field("apiVersion").and_then(|value| value.as_str()).unwrap();
    let version = crd.served(api_version.split_once('/').unwrap().1).unwrap();
    let names = (crd.group.as_str(), crd.kind.as_str());
    let texts = |errors: &[FieldError]| errors.iter().map(ToString::to_string).collect::<Vec<_>>();
    let new = match decode(version, names, new, false, &arena) {
        Ok(new) => new,
        Err(errors) => {
            return Answer { errors: texts(&errors), unknown: Vec::new(), validated: Validated::default() };
        }
    };
    let old = old.map(|old| decode(version, names, old, true, &arena).unwrap().object);
    let validated = validate((crd, version), new.object, old, server, &arena, &|| true);
    assert!(!arena.is_full());
    Answer {
        errors: texts(&validated.errors),
        unknown: new.unknown.iter().map(ToString::to_string).collect(),
        validated,
    }
}

fn create(crd: &str, new: &str) -> Answer {
    judge(crd, new, None, 35)
}

/// The recorded errors of a `kubectl create`.
fn recorded(name: &str) -> Vec<String> {
    let mut errors: Vec<String> =
        data(name).lines().filter_map(|line| line.strip_prefix("* ")).map(str::to_owned).collect();
    errors.sort();
    errors
}

/// A manifest in a namespace, as `check` completes it.
fn in_namespace(manifest: &str) -> String {
    manifest.replacen("metadata:\n", "metadata:\n  namespace: default\n", 1)
}

#[test]
fn the_bad_object_of_the_source_document_has_the_recorded_errors() {
    for crd in ["crd-v1-faithful.yaml", "crd-v1beta1.yaml"] {
        let answer = create(&data(crd), &in_namespace(&data("bad.yaml")));
        let mut errors = answer.errors;
        errors.sort();
        assert_eq!(errors, recorded("bad.errors.txt"), "{crd}");
        for name in ["sample.yaml", "with-key.yaml"] {
            let answer = create(&data(crd), &in_namespace(&data(name)));
            assert!(answer.errors.is_empty() && answer.unknown.is_empty(), "{crd} {name}: {answer:?}");
            assert!(answer.validated.undecided.is_empty(), "{crd} {name}: {answer:?}");
        }
    }
}

/// The CRD of the source document in `v1`, with the types that `v1` requires and without `x-kubernetes-preserve-unknown-fields`.
fn naive() -> String {
    let faithful = data("crd-v1-faithful.yaml");
    let kept = faithful.lines().filter(|line| !line.contains("x-kubernetes-preserve-unknown-fields"));
    kept.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_naive_conversion_of_that_crd_prunes_the_lists_that_it_requires() {
    let answer = create(&naive(), &in_namespace(&data("sample.yaml")));
    assert_eq!(answer.errors, ["spec.masterList: Required value", "spec.nodeList: Required value"]);
    let unknown = ["spec.masterList", "spec.nodeList", "spec.privateSSHKey", "spec.serviceCIDR"];
    assert_eq!(answer.unknown, unknown);
}

/// A CRD of things with a schema and parts of its version.
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

fn thing(metadata: &str, more: &str) -> String {
    format!("{{apiVersion: example.org/v1, kind: Thing, metadata: {{namespace: shop, {metadata}}}{more}}}")
}

const ANY: &str = "{type: object, x-kubernetes-preserve-unknown-fields: true}";

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

#[test]
fn metadata_of_a_new_object_is_checked() {
    let crd = things(ANY, "");
    let errors = |metadata: &str| create(&crd, &thing(metadata, "")).errors;
    assert_eq!(errors("name: Foo_Bar"), [format!("metadata.name: Invalid value: \"Foo_Bar\": {SUBDOMAIN}")]);
    assert_eq!(errors("name: ''"), ["metadata.name: Required value: name or generateName is required"]);
    assert_eq!(errors("name: a, generateName: b-"), [""; 0]);
    assert_eq!(
        errors("name: a, labels: {a: 'b c'}"),
        [
            "metadata.labels: Invalid value: \"b c\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
        ]
    );
    let keys = errors("name: a, labels: {'/b': x}, annotations: {'A/B': x, 'a/b/c': x}, finalizers: ['a b']");
    let starts: Vec<&str> = keys.iter().map(|error| error.split(" must ").next().unwrap()).collect();
    let expected = [
        "metadata.labels: Invalid value: \"/b\": prefix part",
        "metadata.annotations: Invalid value: \"a/b/c\": a valid label key",
        "metadata.finalizers: Invalid value: \"a b\": name part",
    ];
    assert_eq!(starts, expected);
    assert_eq!(
        errors("name: a, finalizers: [orphan, foregroundDeletion]"),
        [
            "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and foregroundDeletion cannot be both set"
        ]
    );
    let long = "x".repeat(256 * 1024);
    assert_eq!(
        errors(&format!("name: a, annotations: {{a: {long}}}")),
        ["metadata.annotations: Too long: may not be more than 262144 bytes"] // lint: allow(text of the API server)
    );
    let cluster_scoped = crd.replace("Namespaced", "Cluster");
    assert_eq!(
        create(&cluster_scoped, &thing("name: a", "")).errors,
        ["metadata.namespace: Forbidden: not allowed on this type"]
    );
}

#[test]
fn owners_are_checked_with_the_texts_of_the_release() {
    let crd = things(ANY, "");
    let owners = "name: a, ownerReferences: [{apiVersion: a/b/c, kind: '', name: x, uid: ''}, {apiVersion: v1, kind: Event, name: e, uid: u}]";
    assert_eq!(
        judge(&crd, &thing(owners, ""), None, 36).errors,
        [
            "metadata.ownerReferences.apiVersion: Invalid value: \"a/b/c\": version must not be empty",
            "metadata.ownerReferences.kind: Invalid value: \"\": must not be empty",
            "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
            "metadata.ownerReferences: Invalid value: {\"apiVersion\":\"v1\",\"kind\":\"Event\",\"name\":\"e\",\"uid\":\"u\"}: /v1, Kind=Event is disallowed from being an owner",
        ]
    );
    let errors = judge(&crd, &thing(owners, ""), None, 37).errors;
    assert_eq!(
        errors[..3],
        [
            "metadata.ownerReferences[0].apiVersion: Invalid value: \"a/b/c\": must be <group>/<version> or <version>",
            "metadata.ownerReferences[0].kind: Required value: must not be empty",
            "metadata.ownerReferences[0].uid: Required value: must not be empty",
        ]
    );
    let owner = |name: &str| format!("{{apiVersion: v1, kind: Pod, name: {name}, uid: u, controller: true}}");
    let two = |second: &str| format!("name: a, ownerReferences: [{}, {}]", owner("a"), owner(second));
    assert_eq!(create(&crd, &thing(&two("a"), "")).errors, [""; 0], "equal references are one");
    let errors = create(&crd, &thing(&two("b"), "")).errors;
    assert!(errors[0].ends_with(
        "Only one reference can have Controller set to true. Found \"true\" in references for Pod/a and Pod/b"
    ));
}

#[test]
fn an_update_keeps_what_can_not_change() {
    let crd = things(ANY, "");
    let update = |new: &str, old: &str| judge(&crd, &thing(new, ""), Some(&thing(old, "")), 35).errors;
    assert_eq!(update("name: Foo_Bar", "name: Foo_Bar"), [""; 0], "the name of an object that exists");
    assert_eq!(update("name: a, uid: b", "name: a"), [""; 0], "the old object has no uid");
    assert_eq!(
        update("name: a, uid: b", "name: a, uid: c"),
        ["metadata.uid: Invalid value: \"b\": field is immutable"]
    );
    assert_eq!(
        update(
            "name: a, finalizers: [a/b, a/c]",
            "name: a, finalizers: [a/b], deletionTimestamp: '2026-01-01T00:00:00Z'"
        ),
        [
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"a/c\"}"
        ]
    );
    assert_eq!(
        update("name: a, deletionGracePeriodSeconds: 3", "name: a"),
        ["metadata.deletionGracePeriodSeconds: Invalid value: 3: field is immutable"]
    );
    // Each error is reported once, although the API server checks labels twice.
    assert_eq!(update("name: a, labels: {a: 'b c'}", "name: a").len(), 1);
}

#[test]
fn finalizers_without_a_domain_are_a_warning() {
    let crd = things(ANY, "");
    let warnings = |minor| {
        let new = thing("name: a, finalizers: [x, example.org, a.b/c, orphan]", "");
        judge(&crd, &new, Some(&thing("name: a, finalizers: [w]", "")), minor).validated.warnings
    };
    let warning = |name: &str, path: &str| {
        format!(
            "metadata.finalizers: \"{name}\": prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers"
        )
    };
    assert_eq!(warnings(35), [warning("example.org", " including a path (/)"), warning("x", "")]);
    assert_eq!(warnings(31), [warning("example.org", ""), warning("x", "")]);
}

#[test]
fn embedded_objects_are_decoded_and_checked() {
    let schema = "{type: object, properties: {spec: {type: object, properties: {template: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}}}}}";
    let crd = things(schema, "");
    let with = |template: &str| create(&crd, &thing("name: a", &format!(", spec: {{template: {template}}}")));
    let answer =
        with("{apiVersion: v1, kind: Pod, metadata: {name: p, lables: {}, labels: {a: b}}, spec: {x: 1}}");
    assert_eq!((answer.errors.len(), answer.unknown), (0, vec!["spec.template.metadata.lables".to_owned()]));
    let errors = with("{metadata: {name: a%b, labels: {a: 'b c'}}}").errors;
    let starts = [
        "spec.template.apiVersion: Required value",
        "spec.template.kind: Required value",
        "spec.template.metadata.name: Invalid value: \"a%b\": may not contain '%'", // lint: allow(text of the API server)
        "spec.template.metadata.labels: Invalid value: \"b c\": a valid label must",
    ];
    assert_eq!(errors.len(), starts.len());
    for (error, start) in errors.iter().zip(starts) {
        assert!(error.starts_with(start), "{error}");
    }
    assert_eq!(
        with("{apiVersion: a/b/c, kind: P_d}").errors[0],
        "spec.template.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c"
    );
    assert_eq!(
        with("{apiVersion: v1, kind: 3}").errors,
        ["spec.template.kind: Invalid type: expected a string"]
    );
}

/// A CRD with a template of an object, and an object with such a template with metadata.
fn templated(metadata: &str) -> [String; 2] {
    let schema = "{type: object, properties: {spec: {type: object, properties: {template: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}}}}}";
    let template = format!(", spec: {{template: {{apiVersion: v1, kind: Pod, metadata: {{{metadata}}}}}}}");
    [things(schema, ""), thing("name: a", &template)]
}

#[test]
fn fields_that_the_api_server_sets_in_a_request_are_checked_in_embedded_objects() {
    let errors = |metadata: &str, server: u8| {
        let [crd, object] = templated(metadata);
        let created = judge(&crd, &object, None, server).errors;
        assert_eq!(judge(&crd, &object, Some(&object), server).errors, created);
        let prefix = "spec.template.metadata.";
        created.iter().map(|error| error.strip_prefix(prefix).unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        errors("generation: -1", 35),
        ["generation: Invalid value: -1: must be greater than or equal to 0"]
    );
    let ok = "generation: 1, managedFields: [{operation: Apply, fieldsType: FieldsV1, manager: 'a b'}]";
    assert_eq!(errors(ok, 35), [""; 0]);
    let operations = "managedFields: [{}, {operation: Foo}, {operation: Update}]";
    assert_eq!(
        errors(operations, 36),
        [
            "managedFields[0].operation: Invalid value: \"\": must be `Apply` or `Update`",
            "managedFields[1].operation: Invalid value: \"Foo\": must be `Apply` or `Update`",
        ]
    );
    assert_eq!(
        errors(operations, 37),
        [
            "managedFields[0].operation: Required value: must not be empty",
            "managedFields[1].operation: Unsupported value: \"Foo\": supported values: \"Apply\", \"Update\"",
        ]
    );
    let entry = |more: &str| errors(&format!("managedFields: [{{operation: Apply, {more}}}]"), 35);
    assert_eq!(
        entry("fieldsType: X"),
        ["managedFields[0].fieldsType: Invalid value: \"X\": must be `FieldsV1`"]
    );
    assert_eq!(
        entry(&format!("manager: {}", "é".repeat(65))),
        ["managedFields[0].manager: Too long: may not be more than 128 bytes"] // lint: allow(text of the API server)
    );
    assert_eq!(
        entry(r#"manager: "é\n\u00AD""#),
        [
            r#"managedFields[0].manager: Invalid value: "é\n\u00ad": invalid character U+000A (at position 2)"#,
            r#"managedFields[0].manager: Invalid value: "é\n\u00ad": invalid character U+00AD (at position 3)"#,
        ]
    );
    assert_eq!(
        entry(&format!("subresource: {}", "a".repeat(257))),
        ["managedFields[0].subresource: Too long: may not be more than 256 bytes"] // lint: allow(text of the API server)
    );
    let owner = "{apiVersion: v1, kind: Pod, name: a, uid: u, controller: true}";
    let owners = errors(&format!("ownerReferences: [{owner}, {owner}]"), 35);
    assert!(owners[0].ends_with(
        "Only one reference can have Controller set to true. Found \"true\" in references for Pod/a and Pod/a"
    ));
    let owner = "{apiVersion: v1, kind: Pod, name: a, uid: ''}";
    let required = |index| format!("ownerReferences[{index}].uid: Required value: must not be empty");
    assert_eq!(errors(&format!("ownerReferences: [{owner}, {owner}]"), 37), [required(0), required(1)]);
}

#[test]
fn keys_and_kinds_become_lowercase_as_in_go() {
    let [crd, object] = templated("annotations: {İ/b: x}");
    let object = object.replace("kind: Pod", "kind: İa").replace("name: a", "name: a, annotations: {İ/b: x}");
    assert_eq!(create(&crd, &object).errors, [""; 0]);
}

#[test]
fn times_of_embedded_objects_have_a_year_with_four_digits() {
    let errors = |metadata: &str| {
        let [crd, object] = templated(metadata);
        create(&crd, &object).errors
    };
    let wrong = |metadata: &str, time: &str| {
        let why = "the year must have four digits";
        format!(r#"spec.template.metadata: Invalid value: {metadata}: parsing time "{time}": {why}"#)
    };
    let late = "10000-01-01T00:59:59Z";
    for field in ["creationTimestamp", "deletionTimestamp"] {
        let metadata = format!(r#"{{"{field}":"{late}"}}"#);
        let found = errors(&format!("{field}: '9999-12-31T23:59:59-01:00', generation: 0"));
        assert_eq!(found, [wrong(&metadata, late)]);
    }
    let early = "-0001-12-31T23:00:00Z";
    let metadata = format!(r#"{{"managedFields":[{{"time":"{early}"}}]}}"#);
    let found = errors("managedFields: [{time: '0000-01-01T00:00:00+01:00'}]");
    assert_eq!(found, [wrong(&metadata, early)]);
    let ok = "creationTimestamp: '9999-12-31T23:59:59Z', deletionTimestamp: '0000-01-01T00:00:00Z'";
    assert_eq!(errors(ok), [""; 0]);
}

#[test]
fn replicas_of_the_subresource_scale_are_checked() {
    let scale = ", subresources: {scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}}";
    let crd = things(ANY, scale);
    let errors = |spec: &str| create(&crd, &thing("name: a", &format!(", {spec}"))).errors;
    assert_eq!(errors("spec: {replicas: 3}, status: {replicas: 0, selector: a=b}"), [""; 0]);
    assert_eq!(
        errors("spec: {replicas: -1}"),
        [".spec.replicas: Invalid value: -1: should be a non-negative integer"]
    );
    assert_eq!(
        errors("spec: {replicas: 2147483648}"),
        [".spec.replicas: Invalid value: 2147483648: should be less than or equal to 2147483647"]
    );
    assert_eq!(
        errors("spec: {replicas: three}, status: [1]"),
        [
            ".spec.replicas: Invalid value: 0: .spec.replicas accessor error: the value is of the type string, expected int",
            ".status.replicas: Invalid value: 0: .status.replicas accessor error: the value is of the type list, expected map",
            ".status.selector: Invalid value: \"\": .status.selector accessor error: the value is of the type list, expected map",
        ]
    );
}

#[test]
fn rules_are_evaluated_unless_an_error_keeps_the_api_server_from_them() {
    let schema = "{type: object, properties: {spec: {type: object, x-kubernetes-validations: [{rule: self.a < 3}], properties: {a: {type: integer, maximum: 9}, b: {type: string, x-kubernetes-validations: [{rule: self != ''}]}}}}}";
    let crd = things(schema, "");
    let errors = |spec: &str| create(&crd, &thing("name: a", spec)).errors;
    assert_eq!(errors(""), [""; 0], "no field has rules");
    assert_eq!(errors(", spec: {a: 1}"), [""; 0]);
    let bound = "spec.a: Invalid value: 10: spec.a in body should be less than or equal to 9";
    let rules = [
        "spec: Invalid value: failed rule: self.a < 3",
        "spec.b: Invalid value: \"\": failed rule: self != ''",
    ];
    assert_eq!(errors(", spec: {a: 10, b: ''}"), [&[bound], &rules[..]].concat(), "a bound skips no rules");
    let skipped = errors(", spec: {a: x}");
    assert_eq!(
        skipped[1..],
        [
            "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"
        ]
    );
}

#[test]
fn rules_of_unchanged_values_are_warnings() {
    let schema = "{type: object, properties: {spec: {type: object, properties: {a: {type: integer, x-kubernetes-validations: [{rule: self < 3}]}, b: {type: string}}}}}";
    let crd = things(schema, "");
    let spec = |spec: &str| thing("name: a", &format!(", spec: {{{spec}}}"));
    let update = |new: &str, old: &str| judge(&crd, &spec(new), Some(&spec(old)), 35).validated;
    let unchanged = update("a: 4, b: new", "a: 4, b: old");
    assert_eq!(unchanged.errors, []);
    assert_eq!(unchanged.unchanged[0].to_string(), "spec.a: Invalid value: 4: failed rule: self < 3");
    assert_eq!(update("a: 5", "a: 4").errors.len(), 1);
}

#[test]
fn rules_that_do_not_compile_leave_the_verdict_open() {
    let schema = "{type: object, properties: {spec: {type: object, properties: {a: {type: integer, x-kubernetes-validations: [{rule: self.b}]}}}}}";
    let validated = create(&things(schema, ""), &thing("name: a", ", spec: {a: 1}")).validated;
    assert_eq!(validated.errors, []);
    let why = validated.undecided[0].to_string();
    assert!(
        why.contains("refuses the rules of the CRD") && why.contains("does not support field selection"),
        "{why}"
    );
}

#[test]
fn an_update_ignores_errors_that_it_does_not_cause() {
    let schema = "{type: object, properties: {spec: {type: object, properties: {a: {type: integer, maximum: 9}, b: {type: string}}}}}";
    let crd = things(schema, "");
    let spec = |spec: &str| thing("name: a", &format!(", spec: {{{spec}}}"));
    let update = |new: &str, old: &str| judge(&crd, &spec(new), Some(&spec(old)), 35).errors;
    assert_eq!(update("a: 10, b: new", "a: 10, b: old"), [""; 0]);
    assert_eq!(
        update("a: 11", "a: 10"),
        ["spec.a: Invalid value: 11: spec.a in body should be less than or equal to 9"]
    );
}

#[test]
fn a_schema_that_is_not_structural_leaves_the_verdict_open() {
    let crd = naive().replacen("        type: object\n", "", 1);
    let answer = create(&crd, &in_namespace(&data("bad.yaml")));
    assert_eq!(answer.errors, [""; 0]);
    assert_eq!(answer.validated.undecided.len(), 1, "{answer:?}");
}

/// The errors of a step that are recorded for a case.
fn of_step(case: &serde_json::Value, step: &str) -> Vec<String> {
    let errors = case[step].as_array().into_iter().flatten();
    errors.map(|error| error.as_str().unwrap().to_owned()).collect()
}

#[test]
fn objects_of_gateway_api_have_the_recorded_errors() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/gateway-api/");
    let file = |name: &str| std::fs::read_to_string(format!("{directory}{name}")).unwrap();
    let mut crds: BTreeMap<String, Crd> = BTreeMap::new();
    let mut judged = 0;
    for line in file("cases.jsonl").lines() {
        let mut case: serde_json::Value = serde_json::from_str(line).unwrap();
        let name = case["crd"].as_str().unwrap();
        let crd = crds.entry(name.to_owned()).or_insert_with(|| read_crd(&file(name)));
        if crd.namespaced {
            case["object"]["metadata"]["namespace"] = "default".into();
        }
        let answer = judge_of(crd, &case["object"].to_string(), None, 35);
        let is_skipped =
            |error: &String| error.starts_with("<nil>: Invalid value: null: some validation rules");
        let (skipped, mut errors): (Vec<_>, Vec<_>) = answer.errors.into_iter().partition(is_skipped);
        let steps = if skipped.is_empty() { &["schema", "list", "cel"][..] } else { &["schema", "list"] };
        let mut recorded: Vec<String> = steps.iter().flat_map(|step| of_step(&case, step)).collect();
        errors.sort();
        recorded.sort();
        assert_eq!(errors, recorded, "{}", case["id"]);
        assert!(answer.validated.undecided.is_empty(), "{}", case["id"]);
        judged += 1;
    }
    assert_eq!(judged, 142);
}
