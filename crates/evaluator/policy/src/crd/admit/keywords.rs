//! The keywords of a schema in a CRD, `ValidateCustomResourceDefinitionOpenAPISchema` of `pkg/apis/apiextensions/validation`.
//!
//! Each function checks one schema. The schemas within it are visited by [`rules::admit`](crate::crd::rules), which compiles their
//! rules in the same pass: a rule is compiled only if there are no errors of keywords at its schema and below.

use std::collections::HashSet;

use crate::field::{FieldError, Path};
use crate::schema::{Schema, SchemaType};
use crate::value::Value;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const LIST_TYPE: &str = "x-kubernetes-list-type";
const MAP_TYPE: &str = "x-kubernetes-map-type";
const MAP_KEYS: &str = "x-kubernetes-list-map-keys";

/// Checks that an update skips if the old CRD fails them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strictness {
    /// Types must be known.
    pub(crate) types: bool,
    /// The elements of a set must be atomic.
    pub(crate) atomic_sets: bool,
    /// The keys of maps must be present and not null, and so must elements of sets and maps.
    pub(crate) map_keys: bool,
}

impl Strictness {
    /// All checks, as for a new CRD.
    pub(crate) const ALL: Self = Self { types: true, atomic_sets: true, map_keys: true };
}

/// The place of a schema in a CRD.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeywordPlace {
    is_root: bool,
    /// Whether the schema describes `metadata`, `apiVersion` or `kind` of an object.
    in_meta: bool,
    /// The place where no defaults are allowed.
    no_defaults: Option<String>,
}

impl KeywordPlace {
    /// The root of a schema.
    pub(crate) fn root() -> Self {
        Self { is_root: true, ..Self::default() }
    }

    /// The place of a property of a schema.
    pub(crate) fn property(&self, schema: &Schema, name: &str) -> Self {
        let mut within = self.inner();
        let is_meta = matches!(name, "apiVersion" | "kind" | "metadata");
        if is_meta && (self.is_root || schema.is_embedded_resource) {
            within.in_meta = true;
            if self.is_root {
                within.no_defaults = Some(format!("in top-level {name}"));
            }
        }
        within
    }

    /// The place of the additional properties of a schema.
    pub(crate) fn additional(&self) -> Self {
        let mut within = self.inner();
        if self.in_meta {
            let reason = "inside additionalProperties applying to object metadata";
            within.no_defaults = Some(reason.to_owned());
        }
        within
    }

    /// The place of items, and of schemas within `allOf` and its like.
    pub(crate) fn inner(&self) -> Self {
        Self { is_root: false, ..self.clone() }
    }
}

/// Adds the errors of one schema.
pub(crate) fn check(
    schema: &Schema,
    within: &KeywordPlace,
    strictness: Strictness,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    types(schema, strictness, path, errors);
    unsupported(schema, within, path, errors);
    if schema.checks.as_ref().is_some_and(|checks| checks.unique_items) {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(&path.child("uniqueItems"), detail));
    }
    let is_exclusive = schema.additional_schema().is_some() || schema.forbids_additional();
    if is_exclusive && !schema.properties.is_empty() {
        let detail = "additionalProperties and properties are mutual exclusive";
        errors.push(FieldError::forbidden(&path.child("additionalProperties"), detail));
    }
    if schema.preserve == Some(false) {
        let path = path.child("x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid_json(&path, "false", "must be true or undefined"));
    }
    map_type(schema, path, errors);
    list_type(schema, strictness, path, errors);
    map_list(schema, path, errors);
    if strictness.map_keys {
        elements(schema, path, errors);
    }
}

fn types(schema: &Schema, strictness: Strictness, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(SchemaType::Other(name)) = &schema.kind else { return };
    let path = path.child("type");
    if strictness.types {
        errors.push(FieldError::not_supported(&path, name, &TYPES));
    }
    if &**name == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        errors.push(FieldError::forbidden(&path, detail));
    }
}

fn unsupported(schema: &Schema, within: &KeywordPlace, path: &Path, errors: &mut Vec<FieldError>) {
    if let Some(reason) = within.no_defaults.as_ref().filter(|_| schema.default.is_some()) {
        errors.push(FieldError::forbidden(&path.child("default"), &format!("must not be set {reason}")));
    }
    for name in &schema.unsupported {
        match *name {
            // The API server names no field, and only if there are no other errors.
            "$schema" => {}
            "items" => {
                let detail = "items must be a schema object and not an array";
                errors.push(FieldError::forbidden(&path.child(name), detail));
            }
            _ => errors.push(FieldError::forbidden(&path.child(name), &format!("{name} is not supported"))),
        }
    }
    if schema.has_empty_reference {
        errors.push(FieldError::forbidden(&path.child("$ref"), "$ref is not supported"));
    }
    if within.in_meta && schema.is_embedded_resource {
        let path = path.child("x-kubernetes-embedded-resource");
        errors.push(FieldError::forbidden(&path, "must not be used inside of resource meta"));
    }
}

/// Checks that a schema with another keyword has a type.
fn typed(schema: &Schema, wanted: &SchemaType, keyword: &str, path: &Path, errors: &mut Vec<FieldError>) {
    let detail = format!("must be {} if {keyword} is specified", wanted.name());
    let path = path.child("type");
    errors.push(match schema.type_name() {
        "" => FieldError::required(&path, &detail),
        name => FieldError::invalid(&path, name, &detail),
    });
}

fn map_type(schema: &Schema, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(map_type) = schema.map_type.as_deref() else { return };
    if schema.kind != Some(SchemaType::Object) {
        typed(schema, &SchemaType::Object, MAP_TYPE, path, errors);
    }
    let supported = ["atomic", "granular"];
    if !supported.contains(&map_type) {
        errors.push(FieldError::not_supported(&path.child(MAP_TYPE), map_type, &supported));
    }
}

fn list_type(schema: &Schema, strictness: Strictness, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(list_type) = schema.list_type.as_deref() else { return };
    if schema.kind != Some(SchemaType::Array) {
        typed(schema, &SchemaType::Array, LIST_TYPE, path, errors);
    } else if let Some(items) =
        schema.items.as_deref().filter(|_| list_type == "set" && strictness.atomic_sets)
        && !is_atomic(items)
    {
        let keyword = if items.kind == Some(SchemaType::Array) { LIST_TYPE } else { MAP_TYPE };
        let path = path.child("items").child(keyword);
        // The API server prints the list type in both errors.
        let value = items.list_type.as_deref().map_or(Value::Null, Value::String);
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        errors.push(FieldError::invalid_value(&path, value, detail));
    }
    let supported = ["atomic", "set", "map"];
    if !supported.contains(&list_type) {
        errors.push(FieldError::not_supported(&path.child(LIST_TYPE), list_type, &supported));
    }
}

/// Whether the elements of a set can be compared as a whole. Lists are atomic by default, and objects are not.
pub(super) fn is_atomic(items: &Schema) -> bool {
    match items.kind {
        Some(SchemaType::Array) => items.list_type.as_deref().is_none_or(|of| of == "atomic"),
        Some(SchemaType::Object) => items.map_type.as_deref() == Some("atomic"),
        _ => true,
    }
}

/// Checks the keys of a list of type `map`.
fn map_list(schema: &Schema, path: &Path, errors: &mut Vec<FieldError>) {
    let keys = schema.map_keys.as_slice();
    let is_map = schema.list_type.as_deref() == Some("map");
    if !keys.is_empty() && !is_map {
        let (path, detail) =
            (path.child(LIST_TYPE), "must be map if x-kubernetes-list-map-keys is non-empty");
        errors.push(match schema.list_type.as_deref() {
            None => FieldError::required(&path, detail),
            Some(of) => FieldError::invalid(&path, of, detail),
        });
    }
    if !is_map {
        return;
    }
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(&path.child(MAP_KEYS), detail));
    }
    let items_path = path.child("items");
    let Some(items) = schema.items.as_deref() else {
        if !schema.unsupported.contains(&"items") {
            let detail = "must have a schema if x-kubernetes-list-type is map";
            errors.push(FieldError::required(&items_path, detail));
        }
        return;
    };
    if items.kind != Some(SchemaType::Object) {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(&items_path.child("type"), items.type_name(), detail));
        return;
    }
    // The API server reports an error once. These errors contain all keys, so they are built once as well.
    let mut reported = HashSet::new();
    let mut invalid = |detail: &'static str, errors: &mut Vec<FieldError>| {
        if reported.insert(detail) {
            errors.push(FieldError::invalid_list(&path.child(MAP_KEYS), keys, detail));
        }
    };
    let mut seen = HashSet::new();
    for key in keys {
        match items.property(key) {
            Some(property) if matches!(property.kind, Some(SchemaType::Array | SchemaType::Object)) => {
                let path = items_path.child("properties").key(key).child("type");
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                errors.push(FieldError::invalid(&path, items.type_name(), detail));
            }
            Some(_) => {}
            None => invalid("entries must all be names of item properties", errors),
        }
        if !seen.insert(key) {
            invalid("must not contain duplicate entries", errors);
        }
    }
}

/// Checks that elements of sets and maps, and the keys of maps, are never null, and that keys are always present.
pub(super) fn elements(schema: &Schema, path: &Path, errors: &mut Vec<FieldError>) {
    let (Some(items), Some(list_type @ ("set" | "map"))) =
        (schema.items.as_deref(), schema.list_type.as_deref())
    else {
        return;
    };
    let path = path.child("items");
    if items.nullable {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(&path.child("nullable"), &detail));
    }
    if list_type == "set" {
        return;
    }
    let required = items.checks.as_ref().map(|checks| checks.required.as_slice()).unwrap_or_default();
    for key in &schema.map_keys {
        let Some(property) = items.property(key) else { continue };
        let path = path.child("properties").key(key);
        if !required.contains(key) && property.default.is_none() {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(FieldError::required(&path.child("default"), detail));
        }
        if property.nullable {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(&path.child("nullable"), detail));
        }
    }
}
