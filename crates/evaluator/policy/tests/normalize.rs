//! Objects of built-in kinds against a round trip through the API server's Go types.
//!
//! `crates/evaluator/policy/tools/types` records the cases: manifests as users write them, and generated objects of every kind.

mod show;

use std::collections::BTreeSet;
use std::path::Path;

use policy::normalize::{normalize, round_trip, with_empty};
use policy::value::{Arena, Value, read_json};
use show::show;

/// Numbers of Go's JSON have no types, so `1.0` is recorded as `1`.
fn untyped(value: &Value<'_>) -> String {
    show(value).replace("double:", "")
}

#[test]
fn objects_are_what_a_round_trip_through_the_go_types_makes_of_them() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/normalize.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    let (mut cases, mut refused, mut unknown_fields) = (0, 0, 0);
    let mut wrong = Vec::new();
    for (number, line) in text.lines().enumerate() {
        cases += 1;
        let arena = Arena::new();
        let case = read_json(line, &arena).unwrap();
        let api_version = case.field("apiVersion").and_then(|value| value.as_str()).unwrap();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = case.field("kind").and_then(|value| value.as_str()).unwrap();
        let object = case.field("object").unwrap();
        let mut report =
            |problem: String| wrong.push(format!("line {}: {api_version} {kind}: {problem}", number + 1));
        let result = round_trip((group, version, kind), object, &arena);
        match (result, case.field("error")) {
            (Err(_), Some(_)) => refused += 1,
            (Ok(_), Some(error)) => report(format!("decoded, and Go says {}", show(&error))),
            (Err(errors), None) => report(format!("refused, and Go decodes it: {errors:?}")),
            (Ok(normalized), None) => {
                let (found, expected) =
                    (untyped(&normalized.object), untyped(&case.field("result").unwrap()));
                if found != expected {
                    report(format!("\n     is {found}\n should {expected}"));
                }
                let found: BTreeSet<String> =
                    normalized.unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
                let expected: BTreeSet<String> = case
                    .field("unknown")
                    .unwrap_or_default()
                    .elements()
                    .filter_map(|problem| problem.as_str().map(ToOwned::to_owned))
                    .collect();
                if found != expected {
                    report(format!("unknown fields are {found:?} and should be {expected:?}"));
                }
                unknown_fields += found.len();
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {cases} cases differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(
        cases > 150 && refused > 5 && unknown_fields > 5,
        "{cases} cases, {refused} refused, {unknown_fields} unknown fields"
    );
}

/// Conversions as an API server 1.35 prints them for a dry run.
#[test]
fn pods_and_secrets_are_converted() {
    for (kind, object, expected) in [
        (
            "Pod",
            r#"{"spec": {"containers": [], "serviceAccount": "a"}}"#,
            r#"{"metadata": {}, "spec": {"containers": [], "securityContext": {}, "serviceAccount": "a", "serviceAccountName": "a"}, "status": {}}"#,
        ),
        (
            "Pod",
            r#"{"spec": {"containers": [], "securityContext": {"runAsUser": 1}, "serviceAccount": "a", "serviceAccountName": "b"}}"#,
            r#"{"metadata": {}, "spec": {"containers": [], "securityContext": {"runAsUser": 1}, "serviceAccount": "b", "serviceAccountName": "b"}, "status": {}}"#,
        ),
        (
            "Secret",
            r#"{"data": {"b": "YQ==", "x": "YQ=="}, "stringData": {"a": "abcd", "x": "b"}}"#,
            r#"{"data": {"a": "YWJjZA==", "b": "YQ==", "x": "Yg=="}, "metadata": {}}"#,
        ),
    ] {
        let arena = Arena::new();
        let object = read_json(object, &arena).unwrap();
        let normalized = normalize(("", "v1", kind), object, &arena).unwrap();
        assert_eq!(show(&normalized.object), show(&read_json(expected, &arena).unwrap()));
    }
}

#[test]
fn only_checks_of_crds_see_empty_lists_and_maps_of_schemas() {
    let arena = Arena::new();
    let with = |schema: &str| {
        let text = format!(
            r#"{{"metadata": {{}}, "spec": {{"group": "", "names": {{"kind": "", "plural": "", "shortNames": []}}, "scope": "", "versions": [{{"name": "v1", "schema": {{"openAPIV3Schema": {schema}}}, "served": true, "storage": true}}]}}}}"#
        );
        read_json(arena.text(&text), &arena).unwrap()
    };
    let kind = ("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let schema = r#"{"enum": [], "properties": {}, "type": "object"}"#;
    let full = with_empty(kind, with(schema), &arena).unwrap().object;
    let shown = normalize(kind, with(schema), &arena).unwrap().object;
    assert_eq!(
        show(&full.field("spec").unwrap()).replace(r#""enum":[],"properties":{},"#, ""),
        show(&shown.field("spec").unwrap())
    );
    assert_ne!(show(&full), show(&shown));
    assert!(!show(&full).contains("shortNames"));
}

#[test]
fn metadata_of_other_kinds_is_decoded_and_their_other_fields_stay() {
    let form = |object: &str| {
        let arena = Arena::new();
        let normalized =
            normalize(("example.org", "v1", "Thing"), read_json(object, &arena).unwrap(), &arena);
        normalized
            .map(|normalized| (show(&normalized.object), normalized.unknown))
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let (object, unknown) = form(
        r#"{"metadata": {"name": "a", "lables": {}, "labels": {}, "creationTimestamp": null}, "spec": {"list": [], "none": null}}"#,
    )
    .unwrap();
    let expected = Arena::new();
    let expected = read_json(r#"{"metadata": {"name": "a"}, "spec": {"list": [], "none": null}}"#, &expected)
        .map(|value| show(&value))
        .unwrap();
    assert_eq!(object, expected);
    assert_eq!(unknown.iter().map(ToString::to_string).collect::<Vec<_>>(), ["metadata.lables"]);
    let errors = form(r#"{"metadata": {"namespace": 123, "labels": {"t": 1}}}"#).unwrap_err();
    assert_eq!(
        errors,
        [
            "metadata.labels.t: Invalid type: expected a string, found a number",
            "metadata.namespace: Invalid type: expected a string, found a number",
        ]
    );
}
