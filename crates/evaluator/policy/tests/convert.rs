//! The conversion of CRDs from `v1beta1` to `v1`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by them")]

use policy::crd::Crd;
use policy::crd::convert::convert;
use policy::crd::object::{decode, validate};
use policy::document::read;
use policy::value::{Arena, Value, read_json, write_json};
use serde_json::{Value as Json, json};

mod old_crds;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/kubernetesclusters/");

fn data(name: &str) -> Json {
    let text = std::fs::read_to_string(format!("{DATA}{name}")).unwrap();
    let arena = Arena::new();
    let value = read(&text).unwrap()[0].value(&arena);
    to_json(value)
}

fn to_json(value: Value<'_>) -> Json {
    serde_json::from_str(&write_json(value)).unwrap()
}

/// A converted CRD, and the fields that are required and not declared.
fn converted(crd: &Json, samples: &[Json]) -> Result<(Json, Vec<String>), Vec<String>> {
    let arena = Arena::new();
    let value = |json: &Json| read_json(arena.text(&json.to_string()), &arena).unwrap();
    let samples: Vec<Value<'_>> = samples.iter().map(value).collect();
    match convert(value(crd), &samples, &arena) {
        Ok(found) => Ok((
            to_json(found.crd),
            found.undeclared.iter().map(|field| format!("{} {}", field.path, field.is_kept)).collect(),
        )),
        Err(errors) => Err(errors.iter().map(ToString::to_string).collect()),
    }
}

/// A CRD of `v1beta1` with a schema.
fn crd(schema: &Json) -> Json {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1beta1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "things.example.org" },
        "spec": {
            "group": "example.org",
            "version": "v1",
            "names": { "plural": "things", "kind": "Thing" },
            "validation": { "openAPIV3Schema": schema },
        },
    })
}

fn schema_of(crd: &Json) -> &Json {
    &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
}

/// The schema of the field `spec` after the conversion.
fn converted_spec(spec: &Json) -> Json {
    let (converted, _) = converted(&crd(&json!({ "properties": { "spec": spec } })), &[]).unwrap();
    schema_of(&converted)["properties"]["spec"].clone()
}

/// The errors of an object, the fields that are removed, and the object that is stored.
fn judge(crd: &Json, thing: &Json) -> (Vec<String>, Vec<String>, Json) {
    let arena = Arena::new();
    let value = |json: &Json| read_json(arena.text(&json.to_string()), &arena).unwrap();
    let crd = Crd::read(value(crd)).unwrap();
    let version = &crd.versions[0];
    let decoded = decode(version, (&crd.group, &crd.kind), value(thing), false, &arena).unwrap();
    let found = validate((&crd, version), decoded.object, None, 35, &arena, &|| true);
    assert!(found.undecided.is_empty(), "{:?}", found.undecided);
    let mut errors: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
    errors.retain(|error| !error.starts_with("metadata.namespace"));
    errors.sort();
    (errors, decoded.unknown.iter().map(ToString::to_string).collect(), to_json(decoded.object))
}

#[test]
fn keeps_what_the_crd_of_the_document_kept() {
    let (found, undeclared) = converted(&data("crd-v1beta1.yaml"), &[]).unwrap();
    assert_eq!(found, data("crd-v1-faithful.yaml"));
    assert_eq!(undeclared, ["spec.masterList true", "spec.nodeList true"]);
    for name in ["sample.yaml", "with-key.yaml"] {
        let sample = data(name);
        assert_eq!(judge(&found, &sample), (Vec::new(), Vec::new(), sample), "{name}");
    }
    let recorded = std::fs::read_to_string(format!("{DATA}bad.errors.txt")).unwrap();
    let mut wanted: Vec<&str> = recorded.lines().filter_map(|line| line.strip_prefix("* ")).collect();
    wanted.sort_unstable();
    assert_eq!(judge(&found, &data("bad.yaml")).0, wanted);
}

#[test]
fn declares_the_fields_of_samples() {
    let samples = [data("sample.yaml"), data("with-key.yaml")];
    let (found, undeclared) = converted(&data("crd-v1beta1.yaml"), &samples).unwrap();
    assert!(undeclared.is_empty());
    let ip = json!({ "type": "array", "items": { "type": "object", "properties": { "ip": { "type": "string" } } } });
    let spec = &schema_of(&found)["properties"]["spec"];
    assert_eq!((&spec["properties"]["masterList"], &spec["properties"]["nodeList"]), (&ip, &ip));
    assert_eq!(spec["properties"]["privateSSHKey"], json!({ "type": "string" }));
    assert!(!found.to_string().contains("x-kubernetes-preserve-unknown-fields"), "{found}");
    for sample in samples {
        assert_eq!(judge(&found, &sample), (Vec::new(), Vec::new(), sample));
    }
    let mut other = data("sample.yaml");
    other["spec"]["unseen"] = json!(1);
    assert_eq!(judge(&found, &other).1, ["spec.unseen"]);
}

#[test]
fn declares_the_type_that_samples_agree_on() {
    let thing = |spec: Json| json!({ "apiVersion": "example.org/v1", "kind": "Thing", "metadata": { "name": "a" }, "spec": spec });
    let samples = [
        thing(
            json!({ "n": 1, "f": 1, "s": "a", "port": 80, "mixed": 1, "list": [], "map": {}, "gone": null }),
        ),
        thing(
            json!({ "n": 2, "f": 1.5, "s": null, "port": "http", "mixed": [1], "list": [[1]], "deep": { "x": true } }),
        ),
    ];
    let (found, _) = converted(&crd(&json!({ "properties": { "status": {} } })), &samples).unwrap();
    let any = json!({ "nullable": true, "x-kubernetes-preserve-unknown-fields": true });
    assert_eq!(
        schema_of(&found),
        &json!({
            "type": "object",
            "properties": {
                "status": any,
                "spec": {
                    "type": "object",
                    "properties": {
                        "n": { "type": "integer" },
                        "f": { "type": "number" },
                        "s": { "type": "string", "nullable": true },
                        "port": { "x-kubernetes-int-or-string": true },
                        "mixed": any,
                        "list": { "type": "array", "items": { "type": "array", "items": { "type": "integer" } } },
                        "map": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                        "gone": any,
                        "deep": { "type": "object", "properties": { "x": { "type": "boolean" } } },
                    },
                },
            },
        })
    );
    for sample in samples {
        let (errors, unknown, _) = judge(&found, &sample);
        assert!(errors.is_empty() && unknown.is_empty(), "{errors:?} {unknown:?}");
    }
}

#[test]
fn adds_fields_of_samples_to_a_crd_that_removes_unknown_fields() {
    let mut old = crd(&json!({
        "type": "object",
        "properties": { "spec": { "type": "object", "required": ["a"], "properties": { "b": { "type": "string", "default": "x" } } } },
    }));
    old["spec"]["preserveUnknownFields"] = json!(false);
    let (same, undeclared) = converted(&old, &[]).unwrap();
    assert_eq!(schema_of(&same), &old["spec"]["validation"]["openAPIV3Schema"]);
    assert_eq!(undeclared, ["spec.a false"]);
    let sample = json!({ "apiVersion": "example.org/v1", "kind": "Thing", "metadata": { "name": "a" }, "spec": { "a": [true] } });
    let (found, undeclared) = converted(&old, &[sample]).unwrap();
    assert_eq!(
        schema_of(&found)["properties"]["spec"]["properties"],
        json!({ "a": { "type": "array", "items": { "type": "boolean" } }, "b": { "type": "string", "default": "x" } })
    );
    assert!(undeclared.is_empty());
    let other = json!({ "apiVersion": "example.org/v2", "kind": "Thing", "spec": { "a": 1 } });
    assert_eq!(converted(&old, &[other]).unwrap().0, same, "a sample of another version");
}

#[test]
fn moves_the_fields_of_the_specification() {
    let mut old = crd(&json!({ "type": "object" }));
    let column = json!({ "name": "Mode", "type": "string", "JSONPath": ".spec.mode", "priority": 1 });
    old["status"] = json!({ "storedVersions": ["v1"] });
    old["spec"]["versions"] = json!([{ "name": "v1", "served": true, "storage": true }, { "name": "v2", "served": false, "storage": false }]);
    old["spec"]["additionalPrinterColumns"] = json!([column]);
    old["spec"]["subresources"] = json!({ "status": {} });
    old["spec"]["conversion"] =
        json!({ "strategy": "Webhook", "webhookClientConfig": { "url": "https://a.b/c" } });
    let (found, _) = converted(&old, &[]).unwrap();
    let version = |name: &str, flag: bool| {
        json!({
            "name": name,
            "served": flag,
            "storage": flag,
            "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            "subresources": { "status": {} },
            "additionalPrinterColumns": [{ "name": "Mode", "type": "string", "jsonPath": ".spec.mode", "priority": 1 }],
        })
    };
    assert_eq!(
        found,
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": { "name": "things.example.org" },
            "spec": {
                "group": "example.org",
                "names": { "plural": "things", "kind": "Thing" },
                "scope": "Namespaced",
                "conversion": {
                    "strategy": "Webhook",
                    "webhook": { "clientConfig": { "url": "https://a.b/c" }, "conversionReviewVersions": ["v1beta1"] },
                },
                "versions": [version("v1", true), version("v2", false)],
            },
        })
    );
}

#[test]
fn takes_schema_subresources_and_columns_of_each_version() {
    let mut old = crd(&Json::Null);
    old["spec"].as_object_mut().unwrap().remove("validation");
    old["spec"]["versions"] = json!([
        { "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": { "properties": { "spec": { "type": "string" } } } } },
        { "name": "v2", "served": true, "storage": false, "additionalPrinterColumns": [{ "name": "A", "type": "string", "JSONPath": ".a" }] },
    ]);
    let (found, _) = converted(&old, &[]).unwrap();
    let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let versions = &found["spec"]["versions"];
    assert_eq!(versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"], json!({ "type": "string" }));
    assert_eq!(versions[1]["schema"]["openAPIV3Schema"], open, "a version without a schema kept everything");
    assert_eq!(
        versions[1]["additionalPrinterColumns"],
        json!([{ "name": "A", "type": "string", "jsonPath": ".a" }])
    );
}

#[test]
fn keeps_unknown_fields_and_untyped_values() {
    let any = json!({ "nullable": true, "x-kubernetes-preserve-unknown-fields": true });
    let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    for (spec, wanted) in [
        (json!({}), any.clone()),
        (json!({ "type": "object" }), open.clone()),
        (json!({ "type": "array" }), json!({ "type": "array", "items": any })),
        (
            json!({ "type": "array", "items": { "type": "object" } }),
            json!({ "type": "array", "items": open }),
        ),
        (json!({ "type": "object", "additionalProperties": true }), open.clone()),
        (
            json!({ "type": "object", "additionalProperties": {} }),
            json!({ "type": "object", "additionalProperties": any }),
        ),
        (
            json!({ "properties": { "a": { "type": "string" } }, "required": ["a"] }),
            json!({
                "nullable": true,
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": { "a": { "type": "string" } },
                "required": ["a"],
            }),
        ),
        (
            json!({ "anyOf": [{ "type": "string" }, { "type": "integer" }] }),
            json!({ "nullable": true, "x-kubernetes-int-or-string": true }),
        ),
    ] {
        assert_eq!(converted_spec(&spec), wanted, "{spec}");
    }
}

#[test]
fn writes_clauses_without_types_and_declares_what_they_name() {
    let found = converted_spec(&json!({
        "type": "object",
        "allOf": [{ "type": "object", "description": "x", "properties": { "a": { "type": "string", "minLength": 1 } } }],
        "anyOf": [{ "required": ["b"] }, { "title": "y", "properties": { "b": { "enum": [1] } } }],
    }));
    assert_eq!(
        found,
        json!({
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": true,
            "properties": {
                "a": { "type": "string" },
                "b": { "nullable": true, "x-kubernetes-preserve-unknown-fields": true },
            },
            "allOf": [{ "properties": { "a": { "minLength": 1 } } }],
            "anyOf": [{ "required": ["b"] }, { "properties": { "b": { "enum": [1] } } }],
        })
    );
}

#[test]
fn names_the_path_of_each_loss() {
    let path = "spec.validation.openAPIV3Schema";
    let spec = |spec: Json| json!({ "properties": { "spec": spec } });
    for (schema, wanted) in [
        (
            spec(json!({ "type": "object", "anyOf": [{ "properties": { "a": { "type": "string" } } }, {}] })),
            format!(
                "{path}.properties[spec].anyOf[0].properties[a].type: Forbidden: must be empty to be structural"
            ),
        ),
        (
            json!({ "properties": { "metadata": { "required": ["labels"] } } }),
            format!(
                "{path}.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified"
            ),
        ),
        (
            json!({ "additionalProperties": { "type": "string" } }),
            format!("{path}.additionalProperties: Forbidden: must not be used at the root"),
        ),
        (
            spec(json!({ "$ref": "#/a" })),
            format!("{path}.properties[spec].$ref: Forbidden: $ref is not supported"),
        ),
        (
            spec(json!({ "type": "text" })),
            format!(
                "{path}.properties[spec].type: Unsupported value: \"text\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\""
            ),
        ),
        (
            spec(json!({ "type": "string", "default": "x" })),
            format!(
                "{path}.properties[spec].default: Forbidden: defaults need spec.preserveUnknownFields: false"
            ),
        ),
        (
            spec(json!({ "type": "array", "items": { "type": "string" }, "uniqueItems": true })),
            format!(
                "{path}.properties[spec].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
            ),
        ),
    ] {
        assert_eq!(converted(&crd(&schema), &[]).unwrap_err(), [wanted], "{schema}");
    }
}

#[test]
fn refuses_what_is_not_a_crd() {
    let errors = |spec: Json| converted(&json!({ "spec": spec }), &[]).unwrap_err().join("; ");
    assert_eq!(errors(json!(1)), "spec: Invalid type: expected an object");
    assert_eq!(errors(json!({})), "spec.versions: Required value");
    assert_eq!(
        errors(json!({ "preserveUnknownFields": "no" })),
        "spec.preserveUnknownFields: Invalid type: expected a boolean"
    );
    assert_eq!(
        errors(json!({ "version": "v1", "preserveUnknownFields": false })),
        "spec.versions[0].schema.openAPIV3Schema: Required value: without a schema, all fields would be removed"
    );
    let mut both = crd(&json!({}));
    both["spec"]["versions"] = json!([{ "name": "v1", "schema": { "openAPIV3Schema": {} } }]);
    assert_eq!(
        converted(&both, &[]).unwrap_err(),
        ["spec.validation: Forbidden: the versions have schema as well, and no API server accepts both"]
    );
}

#[test]
fn random_crds_keep_all_fields_and_the_verdicts_of_the_original_schema() {
    let mut rng = fastrand::Rng::with_seed(1);
    let (mut refused, mut valid, mut invalid) = (0, 0, 0);
    for _ in 0..200 {
        let old = old_crds::crd(&mut rng, "Thing");
        let Ok((new, _)) = converted(&old, &[]) else {
            refused += 1;
            continue;
        };
        for _ in 0..12 {
            let thing = old_crds::thing(&mut rng, &old, "thing");
            let (wanted, _, _) = judge(&old, &thing);
            let (found, unknown, stored) = judge(&new, &thing);
            assert_eq!(found.is_empty(), wanted.is_empty(), "{old}\n{new}\n{thing}\n{wanted:?}\n{found:?}");
            if found.is_empty() {
                valid += 1;
                assert_eq!((unknown.as_slice(), &stored), ([].as_slice(), &thing), "{old}\n{new}");
            } else {
                invalid += 1;
            }
        }
    }
    assert!(refused < 40, "{refused} of 200 are refused");
    assert!(valid > 300 && invalid > 300, "{valid} valid, {invalid} invalid");
}
