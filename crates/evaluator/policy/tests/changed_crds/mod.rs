//! Generates CRDs, changes of them, and objects of them. Some CRDs are refused by the API server, and some objects are not valid.

use fastrand::Rng;
use serde_json::{Map, Value as Json, json};

const NAMES: [&str; 5] = ["a", "b", "c", "x-y", "items"];
const TEXTS: [&str; 6] = ["", "a", "b", "abc", "2020-01-01", "10%"];
const DEPTH: u32 = 3;
/// Changes of one schema.
const MAX_EDITS: usize = 2;

fn pick<T: Copy>(rng: &mut Rng, items: &[T]) -> T {
    items[rng.usize(..items.len())]
}

/// A CRD, and the same with one or two changes of its schema.
pub(crate) fn pair(rng: &mut Rng, kind: &str) -> (Json, Json) {
    let spec = node(rng, DEPTH, "object");
    let mut schema = json!({ "type": "object", "properties": { "spec": spec } });
    if rng.u32(..5) == 0 {
        schema["required"] = json!(["spec"]);
    }
    let old = crd(kind, &schema);
    for _ in 0..rng.usize(1..=MAX_EDITS) {
        let mut pointers = Vec::new();
        schemas(&schema, "", &mut pointers);
        // The root must stay an object with all fields.
        let at = pointers[rng.usize(1..pointers.len())].clone();
        edit(rng, schema.pointer_mut(&at).expect("a schema"));
    }
    (old, crd(kind, &schema))
}

/// An object of a CRD.
pub(crate) fn thing(rng: &mut Rng, crd: &Json, name: &str) -> Json {
    let spec = &crd["spec"];
    let schema = &spec["versions"][0]["schema"]["openAPIV3Schema"];
    let mut thing = json!({
        "apiVersion": "example.org/v1",
        "kind": spec["names"]["kind"],
        "metadata": { "name": name },
    });
    if rng.u32(..20) > 0 {
        thing["spec"] = value(rng, &schema["properties"]["spec"]);
    }
    thing
}

fn crd(kind: &str, schema: &Json) -> Json {
    let plural = format!("{}s", kind.to_lowercase());
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.example.org") },
        "spec": {
            "group": "example.org",
            "scope": "Cluster",
            "names": { "plural": plural, "kind": kind },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }],
        },
    })
}

/// A schema of a type, or of any type if it is empty.
fn node(rng: &mut Rng, depth: u32, kind: &str) -> Json {
    const SCALARS: [&str; 8] =
        ["string", "string", "integer", "integer", "number", "boolean", "int-or-string", "any"];
    const ALL: [&str; 12] = [
        "string",
        "string",
        "integer",
        "number",
        "boolean",
        "int-or-string",
        "any",
        "object",
        "object",
        "map",
        "array",
        "array",
    ];
    let kind = match kind {
        "" if depth == 0 => pick(rng, &SCALARS),
        "" => pick(rng, &ALL),
        kind => kind,
    };
    let mut schema = match kind {
        "int-or-string" => json!({ "x-kubernetes-int-or-string": true }),
        "any" => json!({ "x-kubernetes-preserve-unknown-fields": true }),
        "object" => object(rng, depth.saturating_sub(1)),
        "map" => json!({ "type": "object", "additionalProperties": node(rng, depth - 1, "") }),
        "array" => array(rng, depth.saturating_sub(1)),
        kind => json!({ "type": kind }),
    };
    if rng.u32(..3) == 0 {
        restrict(rng, &mut schema);
    }
    if rng.u32(..8) == 0 {
        schema["nullable"] = json!(true);
    }
    if rng.u32(..8) == 0 {
        schema["default"] = value(rng, &schema);
    }
    schema
}

fn object(rng: &mut Rng, depth: u32) -> Json {
    let mut schema = json!({ "type": "object", "properties": {} });
    for name in NAMES {
        if rng.bool() {
            schema["properties"][name] = node(rng, depth, "");
        }
    }
    if rng.u32(..6) == 0 {
        schema["x-kubernetes-preserve-unknown-fields"] = json!(true);
    }
    schema
}

fn array(rng: &mut Rng, depth: u32) -> Json {
    let list_type = pick(rng, &["atomic", "atomic", "set", "map"]);
    let items = match list_type {
        "set" => json!({ "type": "string" }),
        "map" => {
            let mut items = object(rng, depth);
            items["properties"]["a"] = json!({ "type": "string" });
            items["required"] = json!(["a"]);
            items
        }
        _ => node(rng, depth, ""),
    };
    let mut schema = json!({ "type": "array", "items": items });
    if list_type != "atomic" || rng.bool() {
        schema["x-kubernetes-list-type"] = json!(list_type);
    }
    if list_type == "map" {
        schema["x-kubernetes-list-map-keys"] = json!(["a"]);
    }
    schema
}

/// Adds a validation.
fn restrict(rng: &mut Rng, schema: &mut Json) {
    let names: Vec<String> =
        schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
    let name = if names.is_empty() { "a".to_owned() } else { names[rng.usize(..names.len())].clone() };
    match schema["type"].as_str().unwrap_or_default() {
        "string" => match rng.u32(..7) {
            0 => schema["maxLength"] = json!(rng.u32(..5)),
            1 => schema["minLength"] = json!(rng.u32(..3)),
            2 => schema["pattern"] = json!(pick(rng, &["^[a-z]*$", "a", "^$"])),
            3 => schema["format"] = json!(pick(rng, &["date", "byte", "unknown", "ipv4"])),
            4 => schema["enum"] = json!(TEXTS[..rng.usize(1..5)]),
            5 => schema["not"] = json!({ "enum": [pick(rng, &TEXTS)] }),
            _ => schema["x-kubernetes-validations"] = json!([{ "rule": "self != 'abc'" }]),
        },
        "integer" | "number" => match rng.u32(..7) {
            0 => schema["maximum"] = json!(rng.u32(..6)),
            1 => schema["minimum"] = json!(rng.u32(..3)),
            2 => schema["multipleOf"] = json!(rng.u32(1..4)),
            3 => schema["enum"] = json!([1, 2, 3]),
            4 => schema["format"] = json!(pick(rng, &["int32", "int64", "double"])),
            5 => schema["anyOf"] = json!([{ "minimum": 3 }, { "maximum": rng.u32(..3) }]),
            _ => {
                schema["maximum"] = json!(5);
                schema["exclusiveMaximum"] = json!(rng.bool());
            }
        },
        "array" => match rng.u32(..3) {
            0 => schema["maxItems"] = json!(rng.u32(..4)),
            1 => schema["minItems"] = json!(rng.u32(..2)),
            _ => {}
        },
        "object" if !names.is_empty() => match rng.u32(..6) {
            0 => schema["required"] = json!([name]),
            1 => schema["oneOf"] = json!([{ "required": [name] }, { "required": [names[0]] }]),
            2 => schema["anyOf"] = json!([{ "required": [name] }, { "required": [names[0]] }]),
            3 => schema["not"] = json!({ "required": [name] }),
            4 => schema["allOf"] = json!([{ "required": [name] }]),
            _ => schema["maxProperties"] = json!(rng.u32(1..4)),
        },
        _ => {}
    }
}

/// Changes a schema.
fn edit(rng: &mut Rng, schema: &mut Json) {
    let kind = schema["type"].as_str().unwrap_or_default().to_owned();
    let has_properties = schema["properties"].is_object();
    let fields = schema.as_object_mut().expect("a schema");
    let name = pick(rng, &NAMES);
    match rng.u32(..16) {
        0 | 1 => {
            let structure = ["type", "properties", "items", "additionalProperties"];
            let others: Vec<String> =
                fields.keys().filter(|key| !structure.contains(&key.as_str())).cloned().collect();
            if !others.is_empty() {
                fields.remove(&others[rng.usize(..others.len())]);
            }
        }
        2..5 => restrict(rng, schema),
        5 => *schema = node(rng, 2, ""),
        6 if kind == "integer" => *schema = json!({ "x-kubernetes-int-or-string": true }),
        6 if kind == "string" => *schema = json!({ "x-kubernetes-int-or-string": true }),
        6 => drop(fields.insert("nullable".to_owned(), json!(true))),
        7 => match fields.remove("nullable") {
            Some(_) => {}
            None => drop(fields.insert("nullable".to_owned(), json!(true))),
        },
        8 => match fields.remove("default") {
            Some(_) => {}
            None => schema["default"] = value(rng, &schema.clone()),
        },
        9 if kind == "object" => match fields.remove("x-kubernetes-preserve-unknown-fields") {
            Some(_) => {}
            None => drop(fields.insert("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true))),
        },
        10 if kind == "object" => {
            if let Some(properties) = schema["properties"].as_object_mut() {
                properties.remove(name);
            }
        }
        11 if kind == "object" && has_properties => {
            schema["properties"][name] = node(rng, 1, "");
        }
        12 if kind == "object" => {
            fields.remove("properties");
            fields.remove("additionalProperties");
            fields.insert("additionalProperties".to_owned(), node(rng, 1, ""));
        }
        13 if kind == "object" && has_properties => {
            let default = value(rng, &schema["properties"][name].clone());
            if schema["properties"][name].is_object() {
                schema["required"] = json!([name]);
                if rng.bool() {
                    schema["properties"][name]["default"] = default;
                }
            }
        }
        14 if kind == "array" => {
            let list_type = pick(rng, &["atomic", "set"]);
            fields.remove("x-kubernetes-list-map-keys");
            fields.insert("x-kubernetes-list-type".to_owned(), json!(list_type));
        }
        _ => {
            restrict(rng, schema);
            restrict(rng, schema);
        }
    }
}

/// A value for a schema, which mostly obeys the validations.
fn value(rng: &mut Rng, schema: &Json) -> Json {
    if schema["nullable"] == true && rng.u32(..3) == 0 {
        return Json::Null;
    }
    if let Some(values) = schema["enum"].as_array() {
        return values[rng.usize(..values.len())].clone();
    }
    match schema["type"].as_str() {
        Some("string") => json!(pick(rng, &TEXTS)),
        Some("integer") => json!(rng.u32(..7)),
        Some("number") => pick_number(rng),
        Some("boolean") => json!(rng.bool()),
        Some("array") => {
            let items = (0..rng.usize(..4)).map(|_| value(rng, &schema["items"])).collect::<Vec<_>>();
            json!(items)
        }
        Some("object") => {
            let mut found = Map::new();
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                let is_required = schema["required"].as_array().is_some_and(|all| all.contains(&json!(name)));
                if is_required || rng.u32(..3) > 0 {
                    found.insert(name.clone(), value(rng, property));
                }
            }
            if schema["additionalProperties"].is_object() {
                for name in NAMES.into_iter().take(rng.usize(..4)) {
                    found.insert(name.to_owned(), value(rng, &schema["additionalProperties"]));
                }
            }
            if schema["x-kubernetes-preserve-unknown-fields"] == true && rng.bool() {
                found.insert(pick(rng, &["a", "more"]).to_owned(), any(rng));
            }
            Json::Object(found)
        }
        _ if schema["x-kubernetes-int-or-string"] == true => {
            if rng.bool() {
                json!(rng.u32(..7))
            } else {
                json!(pick(rng, &TEXTS))
            }
        }
        _ => any(rng),
    }
}

fn pick_number(rng: &mut Rng) -> Json {
    if rng.bool() { json!(rng.u32(..7)) } else { json!(f64::from(rng.u32(..14)) / 2.0) }
}

fn any(rng: &mut Rng) -> Json {
    let values =
        [json!(1), json!("a"), json!(true), json!({ "a": "b", "c": [{ "d": 1 }] }), json!([1]), json!({})];
    values[rng.usize(..values.len())].clone()
}

/// Adds the pointers of all schemas that are not within `allOf` and its like.
fn schemas(schema: &Json, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        schemas(property, &format!("{at}/properties/{name}"), found);
    }
    for name in ["items", "additionalProperties"] {
        if schema[name].is_object() {
            schemas(&schema[name], &format!("{at}/{name}"), found);
        }
    }
}
