//! Defects of schemas that the API server refuses.

use fastrand::Rng;
use serde_json::{Value as Json, json};

use crate::literals::pick;

/// A place for a defect.
#[derive(Clone, Copy, PartialEq)]
enum At {
    /// The root of the schema.
    Root,
    /// Any structural schema below the root.
    Node,
    /// A structural schema with this type.
    Type(&'static str),
    /// A clause of `allOf` and its like, which is added to a schema if there is none.
    Clause,
}

/// Field and value that are set. The field is absent if the value is empty.
type Defect = (At, &'static str, &'static str);

/// Adds a defect. It has no effect if the schema has no place for it.
pub(crate) fn spoil(rng: &mut Rng, root: &mut Json) {
    let (at, field, value) = pick(rng, &DEFECTS);
    let found: Vec<String> = match at {
        At::Root => vec![String::new()],
        At::Clause => clauses(rng, root),
        At::Node => nodes(root).into_iter().filter(|pointer| !pointer.is_empty()).collect(),
        At::Type(name) => {
            let has_type = |pointer: &String| root.pointer(pointer).is_some_and(|node| node["type"] == name);
            nodes(root).into_iter().filter(|pointer| !pointer.is_empty()).filter(has_type).collect()
        }
    };
    if found.is_empty() {
        return;
    }
    let pointer = &found[rng.usize(..found.len())];
    let schema = root.pointer_mut(pointer).expect("a schema").as_object_mut().expect("a schema");
    if value.is_empty() {
        schema.remove(field);
        return;
    }
    let value: Json = serde_json::from_str(value).expect("a value");
    match (schema.get_mut(field), value) {
        // Properties are added to the present ones.
        (Some(Json::Object(present)), Json::Object(added)) if field == "properties" => present.extend(added),
        (_, value) => drop(schema.insert(field.to_owned(), value)),
    }
}

/// Pointers of all structural schemas, the root included.
pub(crate) fn nodes(root: &Json) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut next = 0;
    while next < found.len() {
        let pointer = found[next].clone();
        let node = root.pointer(&pointer).expect("a schema");
        for name in node["properties"].as_object().into_iter().flat_map(|properties| properties.keys()) {
            found.push(format!("{pointer}/properties/{}", name.replace('~', "~0").replace('/', "~1")));
        }
        for field in ["items", "additionalProperties"] {
            if node[field].is_object() {
                found.push(format!("{pointer}/{field}"));
            }
        }
        next += 1;
    }
    found
}

/// Pointers of the clauses of a schema. One is added to a random schema.
fn clauses(rng: &mut Rng, root: &mut Json) -> Vec<String> {
    let all = nodes(root);
    let node = &all[rng.usize(..all.len())];
    let schema = root.pointer_mut(node).expect("a schema");
    let name = pick(rng, &["allOf", "anyOf", "oneOf", "not"]);
    if name == "not" {
        if schema["not"].is_null() {
            schema["not"] = json!({});
        }
        return vec![format!("{node}/not")];
    }
    match &mut schema[name] {
        Json::Array(present) => present.push(json!({})),
        absent => *absent = json!([{}]),
    }
    let last = schema[name].as_array().map_or(0, Vec::len) - 1;
    vec![format!("{node}/{name}/{last}")]
}

const DEFECTS: [Defect; 92] = [
    (At::Root, "type", ""),
    (At::Root, "type", r#""string""#),
    (At::Root, "nullable", "true"),
    (At::Root, "additionalProperties", "true"),
    (At::Root, "additionalProperties", r#"{"type": "string"}"#),
    (
        At::Root,
        "properties",
        r#"{"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}"#,
    ),
    (At::Root, "properties", r#"{"metadata": {"type": "object", "required": ["labels"]}}"#),
    (At::Root, "properties", r#"{"metadata": {"type": "object", "description": "x"}}"#),
    (
        At::Root,
        "properties",
        r#"{"metadata": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}"#,
    ),
    (At::Root, "properties", r#"{"metadata": {"type": "string"}}"#),
    (At::Root, "properties", r#"{"metadata": {"type": "object", "default": {}}}"#),
    (
        At::Root,
        "properties",
        r#"{"metadata": {"type": "object", "properties": {"name": {"type": "string", "default": "x"}}}}"#,
    ),
    (At::Root, "properties", r#"{"kind": {"type": "integer"}}"#),
    (At::Root, "properties", r#"{"apiVersion": {"type": "object"}}"#),
    (At::Root, "properties", r#"{"kind": {"type": "string", "default": "x"}}"#),
    (At::Root, "x-kubernetes-embedded-resource", "true"),
    (At::Root, "default", "{}"),
    (At::Root, "default", r#"{"spec": 1}"#),
    (At::Node, "type", ""),
    (At::Node, "type", r#""foo""#),
    (At::Node, "type", r#""null""#),
    (At::Node, "type", r#""array""#),
    (At::Node, "type", r#""object""#),
    (At::Node, "type", "1"),
    (At::Node, "id", r#""x""#),
    (At::Node, "id", r#""""#),
    (At::Node, "$schema", r#""x""#),
    (At::Node, "$ref", r##""#/x""##),
    (At::Node, "$ref", r#""""#),
    (At::Node, "patternProperties", r#"{"^a": {"type": "string"}}"#),
    (At::Node, "patternProperties", "{}"),
    (At::Node, "definitions", r#"{"a": {"type": "string"}}"#),
    (At::Node, "dependencies", r#"{"a": ["b"]}"#),
    (At::Node, "dependencies", r#"{"a": {"type": "string"}}"#),
    (At::Node, "additionalItems", "false"),
    (At::Node, "additionalItems", r#"{"type": "string"}"#),
    (At::Node, "uniqueItems", "true"),
    (At::Node, "x-kubernetes-int-or-string", "true"),
    (At::Node, "x-kubernetes-preserve-unknown-fields", "false"),
    (At::Node, "x-kubernetes-embedded-resource", "true"),
    (At::Node, "x-kubernetes-list-type", r#""set""#),
    (At::Node, "x-kubernetes-list-type", r#""map""#),
    (At::Node, "x-kubernetes-list-type", r#""bag""#),
    (At::Node, "x-kubernetes-list-map-keys", r#"["a"]"#),
    (At::Node, "x-kubernetes-map-type", r#""atomic""#),
    (At::Node, "x-kubernetes-map-type", r#""loose""#),
    (At::Node, "pattern", r#""(""#),
    (At::Node, "pattern", r#""a{1001}""#),
    (At::Node, "pattern", r#""[a-""#),
    (At::Node, "pattern", r#""(?<=a)b""#),
    (At::Node, "pattern", r#""\\""#),
    (At::Node, "default", "1"),
    (At::Node, "default", r#""x""#),
    (At::Node, "default", "{}"),
    (At::Node, "default", r#"{"undeclared": 1}"#),
    (At::Node, "default", "[]"),
    (At::Node, "items", r#"{"type": "string"}"#),
    (At::Node, "items", r#"[{"type": "string"}]"#),
    (At::Node, "additionalProperties", r#"{"type": "string"}"#),
    (At::Node, "additionalProperties", "false"),
    (At::Node, "required", r#""a""#),
    (At::Node, "maxLength", r#""5""#),
    (At::Node, "nullable", r#""yes""#),
    (At::Type("array"), "items", ""),
    (At::Type("array"), "items", "{}"),
    (At::Type("array"), "x-kubernetes-list-map-keys", "[]"),
    (At::Type("array"), "x-kubernetes-list-map-keys", r#"["name", "name"]"#),
    (At::Type("array"), "x-kubernetes-list-map-keys", r#"["undeclared"]"#),
    (At::Type("array"), "x-kubernetes-list-type", r#""set""#),
    (At::Type("array"), "x-kubernetes-list-type", r#""map""#),
    (At::Type("object"), "additionalProperties", "true"),
    (At::Type("object"), "required", ""),
    (At::Type("object"), "x-kubernetes-map-type", r#""atomic""#),
    (At::Type("object"), "properties", ""),
    (
        At::Type("object"),
        "properties",
        r#"{"name": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}"#,
    ),
    (At::Type("object"), "properties", r#"{"name": {"type": "string", "nullable": true}}"#),
    (At::Clause, "type", r#""string""#),
    (At::Clause, "title", r#""x""#),
    (At::Clause, "description", r#""x""#),
    (At::Clause, "default", "1"),
    (At::Clause, "nullable", "true"),
    (At::Clause, "additionalProperties", "true"),
    (At::Clause, "additionalProperties", r#"{"minLength": 1}"#),
    (At::Clause, "properties", r#"{"undeclared": {"minLength": 1}}"#),
    (At::Clause, "properties", r#"{"metadata": {}}"#),
    (At::Clause, "items", r#"{"minLength": 1}"#),
    (At::Clause, "x-kubernetes-preserve-unknown-fields", "true"),
    (At::Clause, "x-kubernetes-embedded-resource", "true"),
    (At::Clause, "x-kubernetes-int-or-string", "true"),
    (At::Clause, "x-kubernetes-list-map-keys", r#"["a"]"#),
    (At::Clause, "x-kubernetes-list-type", r#""set""#),
    (At::Clause, "x-kubernetes-map-type", r#""atomic""#),
];
