//! Generates CRDs of `v1beta1` whose schemas are not structural, and objects of them.

use fastrand::Rng;
use serde_json::{Map, Value as Json, json};

const NAMES: [&str; 7] = ["a", "b", "list", "mode", "size", "x-y", "items"];
const DEPTH: u32 = 3;

fn pick<T: Copy>(rng: &mut Rng, items: &[T]) -> T {
    items[rng.usize(..items.len())]
}

/// A CRD of a kind that keeps unknown fields.
pub(crate) fn crd(rng: &mut Rng, kind: &str) -> Json {
    let plural = format!("{}s", kind.to_lowercase());
    let mut schema = json!({ "properties": { "spec": node(rng, DEPTH) } });
    if rng.bool() {
        schema["type"] = json!("object");
    }
    if rng.bool() {
        schema["required"] = json!(["spec"]);
    }
    if rng.u32(..4) == 0 {
        schema["properties"]["metadata"] = json!({ "properties": { "name": { "maxLength": 20 } } });
        schema["properties"]["kind"] = json!({ "enum": [kind] });
    }
    let mut spec = json!({
        "group": "example.org",
        "names": { "plural": plural, "kind": kind },
        "validation": { "openAPIV3Schema": schema },
        "additionalPrinterColumns": [{ "name": "Mode", "type": "string", "JSONPath": ".spec.mode" }],
    });
    if rng.bool() {
        spec["version"] = json!("v1");
    } else {
        spec["versions"] = json!([{ "name": "v1", "served": true, "storage": true }]);
        spec["subresources"] = json!({ "status": {} });
    }
    if rng.bool() {
        spec["scope"] = json!(pick(rng, &["Namespaced", "Cluster"]));
    }
    if rng.bool() {
        spec["preserveUnknownFields"] = json!(true);
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1beta1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.example.org") },
        "spec": spec,
    })
}

fn node(rng: &mut Rng, depth: u32) -> Json {
    let mut schema = match rng.u32(..if depth == 0 { 9 } else { 16 }) {
        0 | 1 => json!({ "type": "string", "maxLength": 3 }),
        2 => json!({ "type": "integer", "minimum": 0 }),
        3 => json!({ "type": "boolean" }),
        4 => json!({ "enum": ["x", 1, true] }),
        5 => json!({}),
        6 => json!({ "anyOf": [{ "type": "string" }, { "type": "integer" }] }),
        7 => json!({ "type": "object" }),
        8 => json!({ "type": "array" }),
        9 => json!({ "type": "array", "items": node(rng, depth - 1) }),
        10 => json!({ "items": node(rng, depth - 1), "minItems": 1 }),
        11 => json!({ "type": "object", "additionalProperties": node(rng, depth - 1) }),
        12 => json!({ "type": "object", "additionalProperties": true }),
        _ => object(rng, depth),
    };
    if rng.u32(..8) == 0 && schema["anyOf"].is_null() {
        add_clause(rng, &mut schema);
    }
    if rng.u32(..8) == 0 {
        schema["nullable"] = json!(true);
    }
    schema
}

fn object(rng: &mut Rng, depth: u32) -> Json {
    let mut schema = json!({ "properties": {} });
    for _ in 0..rng.usize(1..4) {
        schema["properties"][pick(rng, &NAMES)] = node(rng, depth - 1);
    }
    if rng.bool() {
        schema["type"] = json!("object");
    }
    if rng.bool() {
        schema["required"] = json!([pick(rng, &NAMES)]);
    }
    schema
}

/// Adds clauses with types, descriptions and fields that only they name.
fn add_clause(rng: &mut Rng, schema: &mut Json) {
    let field = pick(rng, &["allOf", "anyOf", "oneOf"]);
    let mut clause = match schema["type"].as_str() {
        Some("string") => json!({ "pattern": "^[a-z]*$" }),
        Some("integer") => json!({ "maximum": 5 }),
        Some("array") => json!({ "maxItems": 2 }),
        Some("object") => json!({ "properties": { "b": { "enum": ["x"] } }, "required": ["a"] }),
        Some(_) => json!({}),
        None => json!({ "type": "object", "properties": { "b": { "enum": ["x"] } } }),
    };
    clause["description"] = json!("a clause");
    if schema["type"].is_string() && rng.bool() {
        clause["type"] = schema["type"].clone();
    }
    schema[field] = json!([clause]);
}

/// An object for a CRD: fields that are declared and others, values that fit and others. A null fits only where null is valid, since
/// `v1` removes the others.
pub(crate) fn thing(rng: &mut Rng, crd: &Json, name: &str) -> Json {
    let schema = &crd["spec"]["validation"]["openAPIV3Schema"];
    let mut thing = json!({
        "apiVersion": "example.org/v1",
        "kind": crd["spec"]["names"]["kind"],
        "metadata": { "name": name },
        "more": strange(rng, 2),
    });
    if rng.u32(..8) > 0 {
        thing["spec"] = value(rng, &schema["properties"]["spec"], 4);
    }
    thing
}

fn value(rng: &mut Rng, schema: &Json, depth: u32) -> Json {
    if schema["nullable"] == true && rng.u32(..4) == 0 {
        return Json::Null;
    }
    if depth == 0 || rng.u32(..12) == 0 {
        return strange(rng, 1);
    }
    if let Some(values) = schema["enum"].as_array() {
        return values[rng.usize(..values.len())].clone();
    }
    let has_properties = schema["properties"].is_object();
    match schema["type"].as_str() {
        Some("string") => json!(pick(rng, &["", "ab", "abcd", "A"])),
        Some("integer") => json!(rng.i64(-1..8)),
        Some("boolean") => json!(rng.bool()),
        Some("array") => (0..rng.usize(..3)).map(|_| value(rng, &schema["items"], depth - 1)).collect(),
        None if schema["items"].is_object() => {
            (0..rng.usize(..3)).map(|_| value(rng, &schema["items"], depth - 1)).collect()
        }
        None if !has_properties => strange(rng, 2),
        _ => {
            let mut fields = Map::new();
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                if rng.u32(..4) > 0 {
                    fields.insert(name.clone(), value(rng, property, depth - 1));
                }
            }
            for _ in 0..rng.usize(..2) {
                let name = pick(rng, &["a", "b", "unknown", "more.dots"]);
                let below = &schema["additionalProperties"];
                if !fields.contains_key(name) {
                    let other =
                        if below.is_object() { value(rng, below, depth - 1) } else { strange(rng, 2) };
                    fields.insert(name.to_owned(), other);
                }
            }
            Json::Object(fields)
        }
    }
}

/// A value that no schema describes, without null.
fn strange(rng: &mut Rng, depth: u32) -> Json {
    match rng.u32(..if depth == 0 { 4 } else { 6 }) {
        0 => json!("x"),
        1 => json!(rng.i64(..9)),
        2 => json!(1.5),
        3 => json!(rng.bool()),
        4 => (0..rng.usize(..3)).map(|_| strange(rng, depth - 1)).collect(),
        _ => {
            let fields = ["a", "b", "unknown"].into_iter().filter(|_| rng.bool()).collect::<Vec<_>>();
            fields.into_iter().map(|name| (name.to_owned(), strange(rng, depth - 1))).collect()
        }
    }
}
