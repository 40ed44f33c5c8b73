//! Finds the fields of a CRD that the comparison does not know: misspelled ones, and those of later releases.

use std::collections::BTreeMap;

use crate::field::Path;
use crate::value::{Value, write_json};

/// Fields of the specification. `names`, `conversion` and what else has no schema is compared as a whole, or does not matter to objects.
const SPEC: [&str; 6] = ["group", "names", "scope", "versions", "conversion", "preserveUnknownFields"];

/// Fields of a version.
const VERSION: [&str; 8] = [
    "name",
    "served",
    "storage",
    "deprecated",
    "deprecationWarning",
    "subresources",
    "additionalPrinterColumns",
    "selectableFields",
];

/// Fields of a schema without schemas in them.
const PLAIN: &[&str] = &[
    "type",
    "format",
    "title",
    "description",
    "default",
    "example",
    "externalDocs",
    "nullable",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "multipleOf",
    "maxProperties",
    "minProperties",
    "required",
    "enum",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
    // A structural schema has none of these with content.
    "id",
    "$schema",
    "$ref",
];

/// Unknown fields by version and path in it, with their JSON.
pub(super) type UnknownFields = BTreeMap<(String, Path), String>;

/// Returns the unknown fields of a CRD.
pub(super) fn unknown(crd: Value<'_>) -> UnknownFields {
    let mut finder = UnknownFinder { version: String::new(), found: UnknownFields::new() };
    let spec = crd.field("spec").unwrap_or_default();
    finder.rest(spec, &Path::new("spec"), &|name| SPEC.contains(&name));
    for version in spec.field("versions").unwrap_or_default().elements() {
        version
            .field("name")
            .and_then(|name| name.as_str())
            .unwrap_or_default()
            .clone_into(&mut finder.version);
        finder.rest(version, &Path::default(), &|name| VERSION.contains(&name) || name == "schema");
        let schema = version.field("schema").unwrap_or_default();
        let path = Path::new("schema");
        finder.rest(schema, &path, &|name| name == "openAPIV3Schema");
        finder.schema(schema.field("openAPIV3Schema").unwrap_or_default(), &path.child("openAPIV3Schema"));
    }
    finder.found
}

struct UnknownFinder {
    version: String,
    found: UnknownFields,
}

impl UnknownFinder {
    /// Keeps the fields of an object that are not known.
    fn rest(&mut self, object: Value<'_>, path: &Path, is_known: &dyn Fn(&str) -> bool) {
        let Value::Object(entries) = object else { return };
        for (name, value) in entries.iter().filter(|(name, _)| !is_known(name)) {
            let key = (self.version.clone(), path.child(name));
            self.found.insert(key, write_json(*value));
        }
    }

    /// Reads a schema. The reader of the CRD has limited its depth.
    fn schema(&mut self, schema: Value<'_>, path: &Path) {
        let Value::Object(entries) = schema else { return };
        for (name, value) in entries {
            let path = path.child(name);
            match *name {
                "properties" => {
                    let Value::Object(properties) = value else { continue };
                    for (name, property) in *properties {
                        self.schema(*property, &path.key(name));
                    }
                }
                "items" | "additionalProperties" | "not" => self.schema(*value, &path),
                "allOf" | "anyOf" | "oneOf" => {
                    for (index, schema) in value.elements().enumerate() {
                        self.schema(schema, &path.index(index));
                    }
                }
                name if PLAIN.contains(&name) => {}
                _ => {
                    let key = (self.version.clone(), path);
                    self.found.insert(key, write_json(*value));
                }
            }
        }
    }
}
