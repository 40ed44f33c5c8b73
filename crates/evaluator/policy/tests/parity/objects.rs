//! Generates objects from schemas: mostly valid ones, and ones with mutations.

use fastrand::Rng;
use serde_json::{Map, Value as Json, json};

use crate::literals::pick;
use crate::texts::{FORMATS, PATTERNS};

/// A text that becomes a number with this spelling. JSON values can't keep it.
const NUMBERS: [&str; 9] = [
    "1.0",
    "2.50",
    "1e2",
    "1E-2",
    "-0",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "123456789012345678901234567890",
];

/// Values that replace a part of an object.
const STRANGE: [&str; 18] = [
    "null",
    "true",
    "0",
    "-1",
    "7",
    "1.5",
    r#""""#,
    r#""x""#,
    r#""10%""#,
    r#""12""#,
    r#""é""#,
    "[]",
    "[null]",
    "{}",
    r#"["a", "a"]"#,
    r#"{"a": 1}"#,
    r#"[{"name": "x"}, {"name": "x"}]"#,
    r#""0123456789abcdefgh""#,
];

/// Fields of metadata and values, some of which the API server refuses or prunes.
const METADATA: [(&str, &str); 14] = [
    ("name", r#""Foo_Bar""#),
    ("name", r#""""#),
    ("name", "5"),
    ("labels", r#"{"a b": "-"}"#),
    ("labels", r#"{"a": 1}"#),
    ("labels", "null"),
    ("annotations", r#"{"a/b/c": "x"}"#),
    ("finalizers", r#"["x", "example.com/y", "a b"]"#),
    ("ownerReferences", r#"[{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": ""}]"#),
    ("undeclared", "1"),
    ("generateName", r#""w-""#),
    ("creationTimestamp", "null"),
    ("creationTimestamp", r#""yesterday""#),
    ("namespace", r#""other""#),
];

/// Generates objects.
pub(crate) struct Objects {
    rng: Rng,
}

/// An object that is created, or that updates another one.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) text: String,
    pub(crate) old: Option<String>,
    pub(crate) field_validation: &'static str,
}

impl Object {
    pub(crate) fn question(&self) -> Json {
        json!({ "object": self.text, "old": self.old, "fieldValidation": self.field_validation })
    }
}

impl Objects {
    pub(crate) fn new(rng: Rng) -> Self {
        Self { rng }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.u32(..100) < percent
    }

    /// An object of a CRD: valid, mutated, or an update with few changes.
    pub(crate) fn object(&mut self, crd: &Json) -> Object {
        let mut object = self.resource(crd);
        if self.chance(40) {
            self.mutate(&mut object);
        }
        let mut old = None;
        if self.chance(45) {
            old = Some(text(&object));
            if self.chance(15) {
                object = self.resource(crd);
            }
            for _ in 0..self.rng.usize(..3) {
                self.mutate(&mut object);
            }
        }
        if self.chance(8) {
            let is_update = old.is_some();
            self.spoil_metadata(&mut object, is_update);
        }
        let field_validation = pick(&mut self.rng, &["Warn", "Warn", "Warn", "Warn", "Strict", "Ignore"]);
        Object { text: text(&object), old, field_validation }
    }

    fn resource(&mut self, crd: &Json) -> Json {
        let version = &crd["spec"]["versions"][0];
        let mut object = self.value(&version["schema"]["openAPIV3Schema"]);
        if !object.is_object() {
            object = json!({});
        }
        let text = |value: &Json| value.as_str().expect("a text").to_owned();
        object["apiVersion"] = json!(format!("{}/{}", text(&crd["spec"]["group"]), text(&version["name"])));
        object["kind"] = crd["spec"]["names"]["kind"].clone();
        object["metadata"] = json!({ "name": "w1" });
        object
    }

    /// Changes the metadata, but not the name in an update.
    fn spoil_metadata(&mut self, object: &mut Json, is_update: bool) {
        let (field, value) = pick(&mut self.rng, &METADATA);
        if is_update && matches!(field, "name" | "generateName" | "namespace") {
            return;
        }
        object["metadata"][field] = serde_json::from_str(value).expect("a value");
        if field == "generateName" {
            object["metadata"].as_object_mut().expect("metadata").remove("name");
        }
    }

    /// A value for a schema. It does not obey the clauses of `allOf` and its like.
    pub(crate) fn value(&mut self, schema: &Json) -> Json {
        if schema["nullable"] == true && self.chance(20) {
            return Json::Null;
        }
        if let Some(values) = schema["enum"].as_array().filter(|values| !values.is_empty()) {
            return values[self.rng.usize(..values.len())].clone();
        }
        match schema["type"].as_str() {
            Some("string") => self.string(schema),
            Some("integer") => self.number(schema, true),
            Some("number") => self.number(schema, false),
            Some("boolean") => json!(self.rng.bool()),
            Some("array") => self.array(schema),
            Some("object") => self.fields(schema),
            _ if schema["x-kubernetes-int-or-string"] == true => {
                [json!(5), json!("10%"), json!("x")][self.rng.usize(..3)].clone()
            }
            _ => self.strange(),
        }
    }

    fn strange(&mut self) -> Json {
        serde_json::from_str(pick(&mut self.rng, &STRANGE)).expect("a value")
    }

    fn string(&mut self, schema: &Json) -> Json {
        let known = |table: &[(&str, &'static [&'static str])], key: &str| {
            table.iter().find(|(name, _)| *name == key).map(|(_, texts)| *texts)
        };
        // The first text matches in most cases.
        let texts = known(&FORMATS, schema["format"].as_str().unwrap_or_default())
            .or_else(|| known(&PATTERNS, schema["pattern"].as_str().unwrap_or_default()));
        if let Some(texts) = texts {
            return json!(if self.rng.bool() { texts[0] } else { pick(&mut self.rng, texts) });
        }
        let least = schema["minLength"].as_u64().unwrap_or(0);
        let most = schema["maxLength"].as_u64().unwrap_or(least + 3).max(least);
        let letters = ["a", "b", "é", "x", "1"];
        json!((0..self.rng.u64(least..=most)).map(|_| pick(&mut self.rng, &letters)).collect::<String>())
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the numbers are small")]
    fn number(&mut self, schema: &Json, is_integer: bool) -> Json {
        if self.chance(4) {
            return json!(format!("@{}", pick(&mut self.rng, &NUMBERS)));
        }
        let least = schema["minimum"].as_f64().unwrap_or(-2.0);
        let most = schema["maximum"].as_f64().unwrap_or(least + 12.0);
        let step = schema["multipleOf"].as_f64().unwrap_or(1.0);
        let steps = ((most - least) / step).clamp(0.0, 5.0);
        let value = (least / step).ceil() * step + step * f64::from(self.rng.u32(..=steps as u32));
        if is_integer || (value.fract() == 0.0 && self.rng.bool()) {
            json!(value as i64)
        } else {
            json!(value)
        }
    }

    fn array(&mut self, schema: &Json) -> Json {
        let least = schema["minItems"].as_u64().unwrap_or(0);
        let most = schema["maxItems"].as_u64().unwrap_or(least + 3).max(least);
        let mut items: Vec<Json> = Vec::new();
        let is_unique = !schema["x-kubernetes-list-type"].is_null() && !self.chance(10);
        for _ in 0..self.rng.u64(least..=most) {
            let item = self.value(&schema["items"]);
            let keys = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
            let mut keys = keys.filter_map(Json::as_str).peekable();
            let is_map = keys.peek().is_some();
            let is_same = |other: &Json| {
                if is_map { keys.clone().all(|key| other[key] == item[key]) } else { *other == item }
            };
            if !(is_unique && items.iter().any(is_same)) {
                items.push(item);
            }
        }
        json!(items)
    }

    fn fields(&mut self, schema: &Json) -> Json {
        let mut fields = Map::new();
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            if required.contains(&name.as_str()) || self.chance(70) {
                fields.insert(name.clone(), self.value(property));
            }
        }
        if schema["x-kubernetes-embedded-resource"] == true {
            self.add_type(&mut fields);
        }
        let has_more =
            schema["x-kubernetes-preserve-unknown-fields"] == true || schema["additionalProperties"] == true;
        if has_more && self.rng.bool() {
            let strange = self.strange();
            fields.entry("more").or_insert(strange);
        }
        if schema["additionalProperties"].is_object() {
            for name in ["a", "k.l", "m/n"] {
                if self.rng.bool() {
                    fields.insert(name.to_owned(), self.value(&schema["additionalProperties"]));
                }
            }
        }
        Json::Object(fields)
    }

    /// Fields of an embedded resource.
    fn add_type(&mut self, fields: &mut Map<String, Json>) {
        fields.insert("apiVersion".to_owned(), json!(pick(&mut self.rng, &["v1", "apps/v1", "a/b/c", ""])));
        fields.insert("kind".to_owned(), json!(pick(&mut self.rng, &["Pod", "Pod", "Deployment", "a b"])));
        fields.insert("metadata".to_owned(), json!({ "name": "embedded" }));
        if self.chance(20) {
            let (field, value) = pick(&mut self.rng, &METADATA);
            fields["metadata"][field] = serde_json::from_str(value).expect("a value");
        }
        if self.chance(10) {
            fields.remove(pick(&mut self.rng, &["apiVersion", "kind", "metadata"]));
        }
    }

    /// Changes a random part of an object below its metadata.
    fn mutate(&mut self, object: &mut Json) {
        let pointers = pointers(object);
        if pointers.is_empty() {
            object["spec"] = self.strange();
            return;
        }
        let pointer = pointers[self.rng.usize(..pointers.len())].clone();
        let strange = self.strange();
        let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
        let key = key.replace("~1", "/").replace("~0", "~");
        match self.rng.u32(..8) {
            0 => match object.pointer_mut(parent).expect("a parent") {
                Json::Object(fields) => drop(fields.remove(&key)),
                Json::Array(items) => drop(items.remove(key.parse().expect("an index"))),
                _ => {}
            },
            1 | 2 => {
                let target = object.pointer_mut(&pointer).expect("a value");
                match target {
                    Json::Object(fields) => drop(
                        fields.insert(pick(&mut self.rng, &["undeclared", "x y", "a"]).to_owned(), strange),
                    ),
                    Json::Array(items) if !items.is_empty() => items.push(items[0].clone()),
                    other => *other = strange,
                }
            }
            3 => {
                let value = object.pointer(&pointer).expect("a value").clone();
                if let Json::Object(fields) = object.pointer_mut(parent).expect("a parent") {
                    fields.insert(format!("@dup:{key}"), if self.rng.bool() { value } else { strange });
                }
            }
            4 => {
                let number = json!(format!("@{}", pick(&mut self.rng, &NUMBERS)));
                *object.pointer_mut(&pointer).expect("a value") = number;
            }
            _ => *object.pointer_mut(&pointer).expect("a value") = strange,
        }
    }
}

/// Pointers of all values of an object but type and metadata.
fn pointers(object: &Json) -> Vec<String> {
    let escape = |name: &str| name.replace('~', "~0").replace('/', "~1");
    let fields = object.as_object().into_iter().flatten();
    let fields = fields.filter(|(name, _)| !matches!(name.as_str(), "apiVersion" | "kind" | "metadata"));
    let mut found: Vec<String> = fields.map(|(name, _)| format!("/{}", escape(name))).collect();
    let mut next = 0;
    while next < found.len() {
        let pointer = found[next].clone();
        match object.pointer(&pointer) {
            Some(Json::Object(fields)) => {
                found.extend(fields.keys().map(|name| format!("{pointer}/{}", escape(name))));
            }
            Some(Json::Array(items)) => {
                found.extend((0..items.len()).map(|index| format!("{pointer}/{index}")));
            }
            _ => {}
        }
        next += 1;
    }
    found
}

/// The JSON text of an object. Marks become repeated keys and numbers.
fn text(object: &Json) -> String {
    let mut text = object.to_string().replace("\"@dup:", "\"");
    for number in NUMBERS {
        text = text.replace(&format!("\"@{number}\""), number);
    }
    text
}
