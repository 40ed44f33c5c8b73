//! Checks that a schema is structural: its types are declared outside of `allOf` and its like.
//!
//! Other checks of keywords, such as allowed types and list types, belong to `crd::admit`.

use super::model::{Additional, Schema, SchemaType};
use crate::field::{FieldError, Path};

/// The position of a schema.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Checks a schema. The errors are sorted by text, as the API server does.
pub(crate) fn check(schema: &Schema, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    unsupported(schema, path, &mut errors);
    // The API server converts the schema first, and checks the structure only if it can.
    if errors.is_empty() {
        structure(schema, Level::Root, path, &mut errors);
        complete(schema, Some(schema), path, path, &mut errors);
    }
    errors.sort_by_cached_key(ToString::to_string);
    errors
}

/// Whether a schema has no field that can't be converted.
pub(crate) fn is_supported(schema: &Schema) -> bool {
    !schema.any(&mut |schema| !schema.unsupported.is_empty() || schema.preserve == Some(false))
}

/// Fields that can't be converted.
fn unsupported(schema: &Schema, path: &Path, errors: &mut Vec<FieldError>) {
    for name in &schema.unsupported {
        let detail = match *name {
            "items" => "items must be a schema object and not an array".to_owned(),
            name => format!("{name} is not supported"),
        };
        errors.push(FieldError::forbidden(&path.child(name), &detail));
    }
    if schema.preserve == Some(false) {
        let path = path.child(PRESERVE);
        errors.push(FieldError::invalid_json(&path, "false", "must be true or undefined"));
    }
    for (path, schema, _) in below(schema, path) {
        unsupported(schema, &path, errors);
    }
    for (path, schema) in junctors(schema, path) {
        unsupported(schema, &path, errors);
    }
}

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";

/// The schemas of items, properties and additional properties.
fn below<'s>(schema: &'s Schema, path: &Path) -> Vec<(Path, &'s Schema, Level)> {
    let field = |path: Path, schema| (path, schema, Level::Field);
    let items = schema.items.as_deref().map(|items| (path.child("items"), items, Level::Item));
    let properties = path.child("properties");
    let properties = schema.properties.iter().map(|(name, schema)| field(properties.key(name), schema));
    let additional = schema.additional_schema();
    let additional = additional.map(|schema| field(path.child("additionalProperties"), schema));
    items.into_iter().chain(properties).chain(additional).collect()
}

/// The schemas within `not`, `allOf`, `anyOf` and `oneOf`.
pub(crate) fn junctors<'s>(schema: &'s Schema, path: &Path) -> Vec<(Path, &'s Schema)> {
    let Some(checks) = &schema.checks else { return Vec::new() };
    let mut found: Vec<(Path, &Schema)> =
        checks.not.as_ref().map(|not| (path.child("not"), not)).into_iter().collect();
    for (name, schemas) in [("allOf", &checks.all_of), ("anyOf", &checks.any_of), ("oneOf", &checks.one_of)] {
        let path = path.child(name);
        found.extend(schemas.iter().enumerate().map(|(index, schema)| (path.index(index), schema)));
    }
    found
}

fn structure(schema: &Schema, level: Level, path: &Path, errors: &mut Vec<FieldError>) {
    if schema.kind == Some(SchemaType::Array) && schema.items.is_none() {
        errors.push(FieldError::required(&path.child("items"), "must be specified"));
    }
    for (path, inner, level) in below(schema, path) {
        structure(inner, level, &path, errors);
    }
    if schema.is_int_or_string {
        for (name, is_set) in
            [(PRESERVE, schema.preserves_unknown_fields()), (EMBEDDED, schema.is_embedded_resource)]
        {
            if is_set {
                let detail = "must be false if x-kubernetes-int-or-string is true";
                errors.push(FieldError::invalid_json(&path.child(name), "true", detail));
            }
        }
    }
    let skips_any_of = is_int_or_string_any_of(schema);
    let first = schema.checks.as_ref().and_then(|checks| checks.all_of.first());
    let skips_first = first.is_some_and(is_int_or_string_any_of);
    value_validation(schema, skips_any_of, skips_first, path, errors);
    types(schema, level, path, errors);
    additional_properties(schema, level, path, errors);
    metadata(schema, level, path, errors);
}

fn types(schema: &Schema, level: Level, path: &Path, errors: &mut Vec<FieldError>) {
    let type_path = path.child("type");
    let name = schema.type_name();
    if schema.is_embedded_resource && name != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if name.is_empty() {
            FieldError::required(&type_path, detail)
        } else {
            FieldError::invalid(&type_path, name, detail)
        });
    } else if name.is_empty() && !schema.is_int_or_string && !schema.preserves_unknown_fields() {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(&type_path, detail));
    }
    if level == Level::Root && !name.is_empty() && name != "object" {
        errors.push(FieldError::invalid(&type_path, name, "must be object at the root"));
    }
}

fn additional_properties(schema: &Schema, level: Level, path: &Path, errors: &mut Vec<FieldError>) {
    if schema.additional.is_none() {
        return;
    }
    let path = path.child("additionalProperties");
    if level == Level::Root {
        errors.push(FieldError::forbidden(&path, "must not be used at the root"));
    }
    if schema.is_embedded_resource {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(&path, detail));
    }
}

/// Checks `apiVersion`, `kind` and `metadata` of the root and of embedded objects.
fn metadata(schema: &Schema, level: Level, path: &Path, errors: &mut Vec<FieldError>) {
    let properties = path.child("properties");
    let is_object = level == Level::Root || schema.is_embedded_resource;
    for name in ["kind", "apiVersion"] {
        if let Some(property) = schema.property(name).filter(|_| is_object)
            && property.kind != Some(SchemaType::String)
        {
            let path = properties.key(name).child("type");
            errors.push(FieldError::invalid(&path, property.type_name(), "must be string"));
        }
    }
    if let Some(metadata) = schema.property("metadata") {
        let path = properties.key("metadata");
        if is_object && metadata.kind != Some(SchemaType::Object) {
            let type_path = path.child("type");
            errors.push(FieldError::invalid(&type_path, metadata.type_name(), "must be object"));
        }
        if level == Level::Root && !restricts_names_only(metadata) {
            let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
            errors.push(FieldError::forbidden(&path, detail));
        }
    }
    if schema.is_embedded_resource && !schema.preserves_unknown_fields() && schema.properties.is_empty() {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(&properties, detail));
    }
}

/// Whether the schema of metadata has only `name` and `generateName`, and besides them a type and a default.
fn restricts_names_only(metadata: &Schema) -> bool {
    let is_name = |name: &str| matches!(name, "name" | "generateName");
    metadata.properties.iter().all(|(name, _)| is_name(name))
        && metadata.additional.is_none()
        && is_blank(metadata)
}

/// Whether a schema has nothing but a type, a default, properties and additional properties.
fn is_blank(schema: &Schema) -> bool {
    let is_converted =
        |name: &&str| matches!(*name, "required" | "x-kubernetes-list-map-keys" | "x-kubernetes-validations");
    // The API server converts other empty lists to absent ones.
    !schema.empty.iter().any(is_converted)
        && schema.items.is_none()
        && !schema.nullable
        && schema.preserve.is_none()
        && !schema.is_int_or_string
        && !schema.is_embedded_resource
        && schema.list_type.is_none()
        && schema.map_keys.is_empty()
        && schema.map_type.is_none()
        && schema.checks.is_none()
        && schema.rules.is_empty()
        && !schema.has_title
        && !schema.has_description
}

/// Whether `anyOf` allows integers and strings and nothing else.
pub(crate) fn is_int_or_string_any_of(schema: &Schema) -> bool {
    let Some(checks) = &schema.checks else { return false };
    let [integer, string] = checks.any_of.as_slice() else { return false };
    [(integer, SchemaType::Integer), (string, SchemaType::String)].into_iter().all(|(schema, kind)| {
        schema.kind.as_ref() == Some(&kind)
            && schema.default.is_none()
            && schema.properties.is_empty()
            && !schema.empty.contains(&"properties")
            && matches!(schema.additional, None | Some(Additional::Allowed(false)))
            && is_blank(schema)
    })
}

/// Checks the value validations. Within `anyOf` for integers and strings, types are allowed.
fn value_validation(
    schema: &Schema,
    skips_any_of: bool,
    skips_first: bool,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    let Some(checks) = &schema.checks else { return };
    let any_of = if skips_any_of { &[] } else { checks.any_of.as_slice() };
    for (name, schemas) in [("anyOf", any_of), ("allOf", &checks.all_of), ("oneOf", &checks.one_of)] {
        for (index, inner) in schemas.iter().enumerate() {
            let skips = skips_first && name == "allOf" && index == 0;
            nested(inner, skips, &path.child(name).index(index), errors);
        }
    }
    if let Some(not) = &checks.not {
        nested(not, false, &path.child("not"), errors);
    }
    if let Some(pattern) = &checks.pattern
        && let Some(error) = pattern.syntax_error()
    {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        errors.push(FieldError::invalid(&path.child("pattern"), &pattern.source, &detail));
    }
}

/// Checks a schema within `allOf` and its like.
fn nested(schema: &Schema, skips_any_of: bool, path: &Path, errors: &mut Vec<FieldError>) {
    value_validation(schema, skips_any_of, false, path, errors);
    if let Some(items) = &schema.items {
        nested(items, false, &path.child("items"), errors);
    }
    let properties = path.child("properties");
    for (name, property) in &schema.properties {
        nested(property, false, &properties.key(name), errors);
    }
    let has_additional = !matches!(schema.additional, None | Some(Additional::Allowed(false)));
    let forbidden = [
        (schema.kind.is_some(), "type", "must be empty to be structural"),
        (has_additional, "additionalProperties", "must be undefined to be structural"),
        (schema.default.is_some(), "default", "must be undefined to be structural"),
        (schema.has_title, "title", "must be empty to be structural"),
        (schema.has_description, "description", "must be empty to be structural"),
        (schema.nullable, "nullable", "must be false to be structural"),
        (schema.preserves_unknown_fields(), PRESERVE, "must be false to be structural"),
        (schema.is_embedded_resource, EMBEDDED, "must be false to be structural"),
        (schema.is_int_or_string, "x-kubernetes-int-or-string", "must be false to be structural"),
        (!schema.map_keys.is_empty(), "x-kubernetes-list-map-keys", "must be empty to be structural"),
        (schema.list_type.is_some(), "x-kubernetes-list-type", "must be undefined to be structural"),
        (schema.map_type.is_some(), "x-kubernetes-map-type", "must be undefined to be structural"),
        (!schema.rules.is_empty(), "x-kubernetes-validations", "must be empty to be structural"),
    ];
    for (is_set, name, detail) in forbidden {
        if is_set {
            errors.push(FieldError::forbidden(&path.child(name), detail));
        }
    }
    if schema.property("metadata").is_some() {
        let path = properties.key("metadata");
        errors.push(FieldError::forbidden(&path, "must not be specified in a nested context"));
    }
}

/// Checks that all fields in value validations are declared outside of them. `declared` is the structure at this place.
fn complete(
    schema: &Schema,
    declared: Option<&Schema>,
    declared_path: &Path,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    for (path, inner) in junctors(schema, path) {
        complete_nested(inner, declared, declared_path, &path, errors);
    }
}

fn complete_nested(
    schema: &Schema,
    declared: Option<&Schema>,
    declared_path: &Path,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    let Some(declared) = declared else {
        errors.push(FieldError::required(declared_path, &format!("because it is defined in {path}")));
        return;
    };
    complete(schema, Some(declared), declared_path, path, errors);
    if let Some(items) = &schema.items {
        let (declared_path, path) = (declared_path.child("items"), path.child("items"));
        complete_nested(items, declared.items.as_deref(), &declared_path, &path, errors);
    }
    for (name, property) in &schema.properties {
        let key = |path: &Path| path.child("properties").key(name);
        let (declared_path, path) = (key(declared_path), key(path));
        complete_nested(property, declared.property(name), &declared_path, &path, errors);
    }
}
