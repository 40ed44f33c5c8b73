//! Answers questions about CRDs and their objects with this crate, in the form of the API server's answers.

use policy::crd::{Crd, Version, object};
use policy::document;
use policy::normalize::Normalized;
use policy::value::{Arena, Value, read_json, write_json};
use serde_json::{Value as Json, json};

use crate::objects::Object;
use crate::words::comparable;

/// Each text once, in order.
pub(crate) fn texts(errors: impl IntoIterator<Item = impl ToString>) -> Json {
    let mut found: Vec<String> = errors.into_iter().map(|error| comparable(&error.to_string())).collect();
    found.sort();
    found.dedup();
    json!(found)
}

/// A CRD whose objects are judged.
pub(crate) struct Judge {
    crd: Crd,
    server: u8,
}

impl Judge {
    pub(crate) fn new(crd: &Json, server: u8) -> Self {
        let (arena, text) = (Arena::new(), crd.to_string());
        let crd =
            Crd::read(read_json(&text, &arena).expect("a CRD")).expect("a CRD that the API server accepts");
        Self { crd, server }
    }

    fn version(&self) -> &Version {
        self.crd.versions.first().expect("a version")
    }

    fn decode<'a>(
        &'a self,
        text: &'a str,
        is_stored: bool,
        arena: &'a Arena,
    ) -> Result<Normalized<'a>, Json> {
        let value = read_json(text, arena).expect("an object");
        object::decode(self.version(), (&self.crd.group, &self.crd.kind), value, is_stored, arena)
            .map_err(texts)
    }

    /// Creates or updates an object. The fields of the answer are those of the Go program, and `undecided`.
    pub(crate) fn process(&self, object: &Object) -> Json {
        let arena = Arena::new();
        let new = match self.decode(&object.text, false, &arena) {
            Ok(new) => new,
            Err(errors) => return json!({ "refused": errors }),
        };
        let unknown: Vec<String> =
            new.unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
        if object.field_validation == "Strict" && !unknown.is_empty() {
            return json!({ "refused": unknown });
        }
        let old = match object.old.as_ref().map(|old| self.decode(old, true, &arena)).transpose() {
            Ok(old) => old.map(|old| self.with_namespace(old.object, &arena)),
            // The API server drops malformed metadata that it has stored before it knew the schema.
            Err(errors) => return json!({ "undecided": errors }),
        };
        let named = self.with_namespace(new.object, &arena);
        let named = object::with_stored_status(self.version(), named, old, &arena);
        let crd = (&self.crd, self.version());
        let found = object::validate(crd, named, old, self.server, &arena, &|| true);
        let mut warnings = if object.field_validation == "Ignore" { Vec::new() } else { unknown };
        warnings.extend(found.warnings);
        warnings.extend(found.unchanged.iter().map(ToString::to_string));
        json!({
            "decoded": to_json(new.object),
            "errors": texts(found.errors),
            "undecided": texts(found.undecided),
            "warnings": texts(warnings),
        })
    }

    /// An object with the namespace and name that the API server sets.
    fn with_namespace<'a>(&self, object: Value<'a>, arena: &'a Arena) -> Value<'a> {
        let mut json = to_json(object);
        let metadata = &mut json["metadata"];
        if !self.crd.namespaced && metadata.is_object() {
            metadata.as_object_mut().expect("metadata").remove("namespace");
        } else if self.crd.namespaced && metadata["namespace"].as_str().is_none_or(str::is_empty) {
            metadata["namespace"] = json!("default");
        }
        if let (None | Some(""), Some(prefix)) =
            (metadata["name"].as_str(), metadata["generateName"].as_str())
        {
            metadata["name"] = json!(format!("{prefix}12345"));
        }
        read_json(arena.text(&json.to_string()), arena).expect("JSON")
    }
}

fn to_json(value: Value<'_>) -> Json {
    serde_json::from_str(&write_json(value)).expect("JSON")
}

/// Whether the reader of manifests refuses a text, for example since a key occurs twice.
pub(crate) fn is_unreadable(text: &str) -> bool {
    document::read(text).is_err()
}
