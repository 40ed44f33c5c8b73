//! Generates CRDs. About half of them have defects that the API server refuses.

use fastrand::Rng;
use serde_json::{Value as Json, json};

use crate::definition_defects::{self, add_version, change, status};
use crate::literals::pick;
use crate::objects::Objects;
use crate::rules::add_rules;
use crate::schema_defects::spoil;
use crate::texts::{FORMATS, PATTERNS};

/// Names of properties. Some need care in a path.
const NAMES: [&str; 14] = [
    "a",
    "b",
    "c",
    "count",
    "name",
    "items",
    "kind",
    "metadata",
    "x-y",
    "with.dot",
    "with space",
    "a/b",
    "é",
    "type",
];
const ENUM: [&str; 4] = ["", "x", "Y", "ü"];
/// Levels of properties, items and additional properties.
const DEPTH: u32 = 3;

/// Generates CRDs.
pub(crate) struct Schemas {
    rng: Rng,
    objects: Objects,
}

impl Schemas {
    pub(crate) fn new(mut rng: Rng) -> Self {
        let objects = Objects::new(rng.fork());
        Self { rng, objects }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.u32(..100) < percent
    }

    /// A CRD, and the same one with a change and perhaps another schema. It is that of a cluster before the change.
    pub(crate) fn update(&mut self, crd: &Json) -> (Json, Json) {
        let (mut new, mut old) = (crd.clone(), crd.clone());
        old["status"] = status(&mut self.rng, crd);
        change(&mut self.rng, &mut new);
        for (crd, percent) in [(&mut new, 30), (&mut old, 20)] {
            let schema = crd.pointer_mut("/spec/versions/0/schema/openAPIV3Schema");
            if let Some(schema) = schema.filter(|schema| schema.is_object() && self.rng.u32(..100) < percent)
            {
                spoil(&mut self.rng, schema);
            }
        }
        (new, old)
    }

    /// A CRD, mostly with one version.
    pub(crate) fn crd(&mut self) -> Json {
        let mut schema = self.root();
        if self.chance(40) {
            add_rules(&mut self.rng, &mut schema, true);
        }
        if self.rng.bool() {
            for _ in 0..self.rng.usize(1..3) {
                spoil(&mut self.rng, &mut schema);
            }
        }
        let mut version =
            json!({ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } });
        if self.chance(25) {
            version["subresources"] = json!({ "status": {} });
        }
        let mut crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": { "name": "widgets.example.com" },
            "spec": {
                "group": "example.com",
                "scope": pick(&mut self.rng, &["Namespaced", "Namespaced", "Cluster"]),
                "names": { "plural": "widgets", "kind": "Widget" },
                "versions": [version],
            },
        });
        if self.chance(20) {
            let schema = self.root();
            add_version(&mut self.rng, &mut crd, schema);
        }
        if self.chance(20) {
            definition_defects::spoil(&mut self.rng, &mut crd);
        }
        crd
    }

    fn root(&mut self) -> Json {
        let mut schema = json!({ "type": "object", "properties": { "spec": self.object(DEPTH) } });
        if self.chance(50) {
            schema["properties"]["apiVersion"] = json!({ "type": "string" });
            schema["properties"]["kind"] = json!({ "type": "string" });
            schema["properties"]["metadata"] = json!({ "type": "object" });
        }
        if self.chance(15) {
            schema["properties"]["metadata"] = json!({ "type": "object", "properties": { "name": { "type": "string", "maxLength": 12, "pattern": "^w" } } });
        }
        if self.chance(40) {
            schema["properties"]["status"] = self.object(1);
        }
        if self.chance(30) {
            schema["properties"]["data"] = self.node(DEPTH);
        }
        if self.chance(40) {
            schema["required"] = json!([pick(&mut self.rng, &["spec", "spec", "spec", "data", "metadata"])]);
        }
        if self.chance(10) {
            schema["x-kubernetes-preserve-unknown-fields"] = json!(true);
        }
        if self.chance(10) {
            self.add_junctor(&mut schema, 1);
        }
        schema
    }

    /// A structural schema.
    fn node(&mut self, depth: u32) -> Json {
        let mut schema = match self.rng.u32(..if depth == 0 { 50 } else { 100 }) {
            0..17 => self.string(),
            17..29 => self.number("integer"),
            29..35 => self.number("number"),
            35..41 => json!({ "type": "boolean" }),
            41..46 => self.int_or_string(),
            46..50 => json!({ "x-kubernetes-preserve-unknown-fields": true }),
            50..68 => self.object(depth),
            68..78 => self.map(depth),
            78..96 => self.array(depth),
            _ => self.embedded(),
        };
        if self.chance(12) {
            schema["nullable"] = json!(true);
        }
        if self.chance(12) {
            let nested = self.rng.u32(1..3);
            self.add_junctor(&mut schema, nested);
        }
        if self.chance(5) {
            schema["description"] = json!("A field.");
        }
        if self.chance(12) {
            schema["default"] = self.objects.value(&schema);
        }
        schema
    }

    fn string(&mut self) -> Json {
        let mut schema = json!({ "type": "string" });
        self.restrict_string(&mut schema);
        schema
    }

    fn restrict_string(&mut self, schema: &mut Json) {
        match self.rng.u32(..10) {
            0 => schema["minLength"] = json!(self.rng.u32(..4)),
            1 => schema["maxLength"] = json!(self.rng.u32(..8)),
            2 => schema["pattern"] = json!(pick(&mut self.rng, &PATTERNS).0),
            3 | 4 => schema["format"] = json!(pick(&mut self.rng, &FORMATS).0),
            5 => schema["enum"] = json!(ENUM[..self.rng.usize(1..5)]),
            6 => {
                schema["minLength"] = json!(1);
                schema["maxLength"] = json!(3);
            }
            _ => {}
        }
    }

    fn number(&mut self, kind: &str) -> Json {
        let mut schema = json!({ "type": kind });
        self.restrict_number(&mut schema);
        schema
    }

    fn restrict_number(&mut self, schema: &mut Json) {
        const LIMITS: [&str; 8] = ["0", "1", "-3", "5", "10", "2.5", "1e3", "0.1"];
        let limit = |rng: &mut Rng| serde_json::from_str::<Json>(pick(rng, &LIMITS)).expect("a number");
        match self.rng.u32(..10) {
            0 => schema["minimum"] = limit(&mut self.rng),
            1 => schema["maximum"] = limit(&mut self.rng),
            2 => {
                schema["minimum"] = limit(&mut self.rng);
                schema["exclusiveMinimum"] = json!(self.rng.bool());
            }
            3 => {
                schema["maximum"] = limit(&mut self.rng);
                schema["exclusiveMaximum"] = json!(self.rng.bool());
            }
            4 => schema["multipleOf"] = json!(pick(&mut self.rng, &[2.0, 5.0, 0.5, 3.0, 0.1])),
            5 => schema["enum"] = [json!([1, 2, 3]), json!([1, 2.5, -1])][self.rng.usize(..2)].clone(),
            6 => {
                schema["format"] =
                    json!(pick(&mut self.rng, &["int32", "int64", "float", "double", "uint8"]));
            }
            _ => {}
        }
    }

    fn int_or_string(&mut self) -> Json {
        let types = json!([{ "type": "integer" }, { "type": "string" }]);
        let mut schema = json!({ "x-kubernetes-int-or-string": true });
        match self.rng.u32(..4) {
            0 => schema["anyOf"] = types,
            1 => schema["allOf"] = json!([{ "anyOf": types }, { "maxLength": 4 }]),
            2 => schema["pattern"] = json!("^[0-9]+%?$"),
            _ => {}
        }
        schema
    }

    fn object(&mut self, depth: u32) -> Json {
        let mut schema = json!({ "type": "object" });
        let mut names = Vec::new();
        for _ in 0..self.rng.usize(1..5) {
            let name = pick(&mut self.rng, &NAMES);
            if !names.contains(&name) {
                names.push(name);
                schema["properties"][name] = self.node(depth.saturating_sub(1));
            }
        }
        if self.chance(40) {
            schema["required"] = json!(names[..=self.rng.usize(..names.len())]);
        }
        if self.chance(4) {
            schema["required"] = json!([names[0], "undeclared"]);
        }
        if self.chance(12) {
            schema["x-kubernetes-preserve-unknown-fields"] = json!(true);
        }
        if self.chance(8) {
            schema["x-kubernetes-map-type"] = json!(pick(&mut self.rng, &["atomic", "granular"]));
        }
        if self.chance(6) {
            schema[pick(&mut self.rng, &["minProperties", "maxProperties"])] = json!(self.rng.u32(..4));
        }
        schema
    }

    fn map(&mut self, depth: u32) -> Json {
        let mut schema = json!({ "type": "object", "additionalProperties": self.node(depth - 1) });
        if self.chance(10) {
            schema["additionalProperties"] = json!(self.rng.bool());
        }
        if self.chance(25) {
            schema[pick(&mut self.rng, &["minProperties", "maxProperties"])] = json!(self.rng.u32(..4));
        }
        if self.chance(10) {
            schema["required"] = json!(["a"]);
        }
        schema
    }

    fn array(&mut self, depth: u32) -> Json {
        let mut schema = json!({ "type": "array" });
        match self.rng.u32(..10) {
            0..3 => {
                schema["x-kubernetes-list-type"] = json!("set");
                schema["items"] = self.node(0);
                schema["items"].as_object_mut().expect("a schema").remove("nullable");
            }
            3..6 => {
                schema["x-kubernetes-list-type"] = json!("map");
                schema["items"] = self.object(depth - 1);
                let keys = &["name", "port"][..self.rng.usize(1..3)];
                schema["x-kubernetes-list-map-keys"] = json!(keys);
                schema["items"]["required"] = json!(keys);
                for key in keys {
                    schema["items"]["properties"][key] =
                        if *key == "name" { json!({ "type": "string" }) } else { self.number("integer") };
                }
                if self.chance(30) {
                    schema["items"]["properties"]["name"]["default"] = json!("x");
                }
            }
            _ => {
                schema["items"] = self.node(depth - 1);
                if self.chance(20) {
                    schema["x-kubernetes-list-type"] = json!("atomic");
                }
            }
        }
        if self.chance(15) {
            schema["maxItems"] = json!(self.rng.u32(..3));
        }
        if self.chance(15) {
            schema["minItems"] = json!(self.rng.u32(..3));
        }
        schema
    }

    fn embedded(&mut self) -> Json {
        let mut schema = json!({ "type": "object", "x-kubernetes-embedded-resource": true });
        if self.chance(60) {
            schema["x-kubernetes-preserve-unknown-fields"] = json!(true);
        }
        if schema.get("x-kubernetes-preserve-unknown-fields").is_none() || self.chance(30) {
            schema["properties"] = json!({ "spec": self.object(1), "metadata": { "type": "object" } });
        }
        schema
    }

    fn add_junctor(&mut self, schema: &mut Json, depth: u32) {
        let name = pick(&mut self.rng, &["allOf", "anyOf", "oneOf", "not"]);
        if schema.get(name).is_some() {
            return;
        }
        let clause = if name == "not" {
            self.nested(schema, depth)
        } else {
            (0..self.rng.usize(1..4)).map(|_| self.nested(schema, depth)).collect()
        };
        schema[name] = clause;
    }

    /// A schema for a clause of allOf or its like: only value validations, for fields that the schema declares.
    fn nested(&mut self, schema: &Json, depth: u32) -> Json {
        let mut clause = json!({});
        match schema["type"].as_str() {
            Some("string") => self.restrict_string(&mut clause),
            Some("integer" | "number") => self.restrict_number(&mut clause),
            Some("boolean") => clause["enum"] = json!([self.rng.bool()]),
            Some("array") => {
                clause[pick(&mut self.rng, &["minItems", "maxItems"])] = json!(self.rng.u32(..3));
                if self.chance(40) && schema["items"].is_object() {
                    clause["items"] = self.nested(&schema["items"], depth);
                }
            }
            Some("object") => {
                let declared: Vec<String> = schema["properties"]
                    .as_object()
                    .map(|properties| properties.keys().filter(|name| *name != "metadata").cloned().collect())
                    .unwrap_or_default();
                if declared.is_empty() {
                    clause["minProperties"] = json!(1);
                }
                for name in declared {
                    if self.chance(30) {
                        clause["properties"][&name] = self.nested(&schema["properties"][&name], depth);
                    }
                    if self.chance(30) {
                        clause["required"] = json!([name]);
                    }
                }
            }
            _ => clause["enum"] = json!([1, "x", "10%"]),
        }
        if depth > 1 && self.chance(25) {
            let name = pick(&mut self.rng, &["allOf", "anyOf", "oneOf"]);
            clause[name] = (0..self.rng.usize(1..3)).map(|_| self.nested(schema, depth - 1)).collect();
        }
        clause
    }
}
