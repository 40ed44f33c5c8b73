use super::*;
use crate::field::FieldError;
use crate::normalize::{Normalized, normalize_as};
use crate::value::{Arena, read_json};

/// A document with a kind of Kubernetes, in which `extra` is new and `protocol` has another value.
const DOCUMENT: &str = r##"{
  "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.37.2"}, "paths": {},
  "components": {"schemas": {
    "io.k8s.api.core.v1.Service": {
      "type": "object",
      "properties": {
        "apiVersion": {"type": "string"}, "kind": {"type": "string"},
        "metadata": {"allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}], "default": {}},
        "spec": {"allOf": [{"$ref": "#/components/schemas/io.k8s.api.core.v1.ServiceSpec"}], "default": {}}
      },
      "x-kubernetes-group-version-kind": [{"group": "", "kind": "Service", "version": "v1"}]
    },
    "io.k8s.api.core.v1.ServiceSpec": {
      "type": "object",
      "properties": {
        "clusterIP": {"type": "string"},
        "extra": {"allOf": [{"$ref": "#/components/schemas/io.k8s.api.core.v1.Extra"}], "default": {}},
        "ports": {"type": "array", "items": {"allOf": [{"$ref": "#/components/schemas/io.k8s.api.core.v1.ServicePort"}], "default": {}}},
        "sizes": {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.api.resource.Quantity"}}
      }
    },
    "io.k8s.api.core.v1.Extra": {
      "type": "object", "required": ["on"],
      "properties": {
        "on": {"type": "boolean", "default": false}, "since": {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.Time"},
        "protocol": {"type": "string", "enum": ["A"]}, "raw": {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.runtime.RawExtension"},
        "port": {"type": "string", "format": "int-or-string"}, "small": {"type": "integer", "format": "int32"},
        "ports": {"type": "array", "items": {"$ref": "#/components/schemas/io.k8s.api.core.v1.ServicePort"}}
      }
    },
    "io.k8s.api.core.v1.ServicePort": {
      "type": "object", "required": ["port", "name"],
      "properties": {
        "name": {"type": "string"}, "port": {"type": "integer", "format": "int32", "default": 0},
        "protocol": {"type": "string", "enum": ["QUIC", "TCP"]},
        "targetPort": {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.util.intstr.IntOrString"}
      }
    },
    "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": {"type": "object", "properties": {"name": {"type": "string"}}},
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": {"type": "string", "format": "date-time"},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": "string"},
    "io.k8s.apimachinery.pkg.runtime.RawExtension": {"type": "object"},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": "string", "format": "int-or-string"}
  }}
}"##;

fn add(text: &str) -> (TypesBuilder, Result<Option<String>, OpenApiError>) {
    let (arena, mut builder) = (Arena::new(), TypesBuilder::default());
    let version = builder.add(read_json(text, &arena).unwrap());
    (builder, version)
}

/// Returns the fields of a Service that are unknown, and its errors.
fn judge(types: &Types, spec: &str) -> (Vec<String>, Vec<String>) {
    let arena = Arena::new();
    let text =
        format!(r#"{{"apiVersion": "v1", "kind": "Service", "metadata": {{"name": "a"}}, "spec": {spec}}}"#);
    let object = read_json(arena.text(&text), &arena).unwrap();
    let texts = |errors: &[FieldError]| errors.iter().map(ToString::to_string).collect();
    match normalize_as(types, ("", "v1", "Service"), object, false, &arena) {
        Ok(Normalized { unknown, invalid, .. }) => {
            (unknown.iter().map(ToString::to_string).collect(), texts(&invalid))
        }
        Err(errors) => (Vec::new(), texts(&errors)),
    }
}

#[test]
fn a_document_replaces_fields_and_enums() {
    let (builder, version) = add(DOCUMENT);
    assert_eq!(version.unwrap().as_deref(), Some("v1.37.2"));
    let types = builder.finish();
    assert!(types.has(("", "v1", "Service")) && !types.has(("", "v1", "Pod")));
    for (spec, unknown, errors) in [
        (
            r#"{"extra": {"on": true}, "ports": [{"port": 1, "protocol": "QUIC", "targetPort": "a"}]}"#,
            "",
            &[][..],
        ),
        (
            r#"{"selector": {}, "ports": [{"nodePort": 1, "port": 1}]}"#,
            "spec.ports[0].nodePort spec.selector",
            &[],
        ),
        (
            r#"{"ports": [{"protocol": "UDP"}]}"#,
            "",
            &[
                "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                "spec.ports[0].protocol: Unsupported value: \"UDP\": supported values: \"QUIC\", \"TCP\"",
            ],
        ),
        // No test has tried the fields of a type that is not recorded, or the fields below them.
        (r#"{"extra": {"protocol": "B", "ports": [{}], "raw": {"a": [1]}}}"#, "", &[]),
        (r#"{"extra": {"off": 1}}"#, "spec.extra.off", &[]),
        (
            r#"{"extra": {"port": true, "since": "now", "small": 4294967296}, "sizes": {"a": 1, "b": "1Gi"}}"#,
            "",
            &[
                "spec.extra.port: Invalid type: expected an integer or a string, found a boolean",
                "spec.extra.since: Invalid type: expected a time such as 2026-01-02T15:04:05Z, found \"now\"",
                "spec.extra.small: Invalid type: expected an integer from -2147483648 to 2147483647, found a number",
            ],
        ),
    ] {
        let (found, texts) = judge(&types, spec);
        assert_eq!(
            (found.join(" ").as_str(), &texts[..]),
            (unknown, &errors.iter().map(ToString::to_string).collect::<Vec<_>>()[..]),
            "{spec}"
        );
    }
}

#[test]
fn other_texts_are_refused_with_the_reason() {
    for (text, error) in [
        (
            r#"{"paths": {"api/v1": {"serverRelativeURL": "/openapi/v3/api/v1"}}}"#,
            "this is the list of OpenAPI documents, not one of them",
        ),
        (r#"{"swagger": "2.0", "definitions": {}}"#, "this is OpenAPI v2"),
        (r#"{"kind": "Pod"}"#, "this is not an OpenAPI v3 document"),
        ("[]", "this is not an OpenAPI v3 document"),
        (r#"{"openapi": "3.0.0"}"#, "this is not an OpenAPI v3 document"),
        (
            r##"{"openapi": "3.0.0", "components": {"schemas": {"A": {"properties": {"b": {"$ref": "#/components/schemas/B"}}}}}}"##,
            "the schema \"B\" is not in the document",
        ),
        (
            r##"{"openapi": "3.0.0", "components": {"schemas": {"A": {"properties": {"a": {"$ref": "#/components/schemas/B"}}}, "B": {"$ref": "#/components/schemas/B"}}}}"##,
            "the schema \"B\" is not in the document",
        ),
        (
            r#"{"openapi": "3.0.0", "components": {"schemas": {"A": {"properties": {"a b=string\nX": {}}}}}}"#,
            "the schema \"A\" has a field with a space or another character that fields don't have",
        ),
        (
            r#"{"openapi": "3.0.0", "components": {"schemas": {"A\tB": {"properties": {}}}}}"#,
            "the schema \"A\\tB\" has a name with a space or another character that types don't have",
        ),
    ] {
        assert_eq!(add(text).1.unwrap_err().to_string(), error, "{text}");
    }
}

/// The text of every recorded field is one that the documents of the same version lead to.
#[test]
fn recorded_fields_keep_their_details() {
    assert!(is_same("replicas?=*int32", "int32") && is_same("mode?=uint16", "int32"));
    assert!(is_same("env?=[]core/v1.EnvVar", "[]core/v1.EnvVar"));
    assert!(!is_same("replicas?=*int32", "string"));
    assert_eq!(short("io.k8s.api.core.v1.PodSpec"), "core/v1.PodSpec");
    assert_eq!(short("com.example.v1.PodSpec"), "com.example.v1.PodSpec");
}
