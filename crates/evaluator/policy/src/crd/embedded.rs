//! Objects within custom resources: fields with `x-kubernetes-embedded-resource`, such as a template of a Pod.
//!
//! The API server decodes their metadata into its own type, as it does for the metadata of the resource itself. Keys are in their
//! order, since Go's order is random.

use crate::cel::library::formats;
use crate::field::{FieldError, Path, PathStep};
use crate::meta::{MetadataChecks, NameSyntax};
use crate::normalize::{EncodedMetadata, metadata};
use crate::release::Release;
use crate::schema::Schema;
use crate::value::format::{lowercase, quote};
use crate::value::number::parse_timestamp;
use crate::value::{Arena, Value};

/// A name that passes all checks, for embedded objects without one.
const ANY_NAME: &str = "fakename";

/// A field of an embedded object that the API server can't decode: the metadata, `apiVersion` or `kind`.
pub(super) struct Undecodable<'a> {
    path: Path,
    value: Value<'a>,
    /// The errors of the field, or of fields below it.
    pub(super) errors: Vec<FieldError>,
}

impl Undecodable<'_> {
    /// Returns the API server's error about a default with this field. The error prints the value of the field, which can be the whole
    /// metadata.
    pub(super) fn in_default(&self) -> FieldError {
        let is_metadata = self.path.steps().last() == Some(&PathStep::Field("metadata".to_owned()));
        let detail = match self.errors.first() {
            Some(error) if is_metadata => error.to_string(),
            _ => "must be a string".to_owned(),
        };
        FieldError::invalid_value(&self.path, self.value, &detail)
    }
}

/// Decodes the metadata of embedded objects. Returns the value and the unknown fields of their metadata, sorted by text.
pub(super) fn decode<'a>(
    value: Value<'a>,
    schema: &Schema,
    arena: &'a Arena,
) -> Result<(Value<'a>, Vec<Path>), Vec<Undecodable<'a>>> {
    let mut decoder = EmbeddedDecoder { arena, unknown: Vec::new(), undecodable: Vec::new() };
    let value = decoder.value(value, schema, &Path::default());
    if !decoder.undecodable.is_empty() {
        return Err(decoder.undecodable);
    }
    decoder.unknown.sort_by_cached_key(ToString::to_string);
    Ok((value, decoder.unknown))
}

struct EmbeddedDecoder<'a> {
    arena: &'a Arena,
    unknown: Vec<Path>,
    undecodable: Vec<Undecodable<'a>>,
}

impl<'a> EmbeddedDecoder<'a> {
    fn value(&mut self, value: Value<'a>, schema: &Schema, path: &Path) -> Value<'a> {
        match value {
            Value::Object(entries) => {
                let entry = |(name, value): &(&'a str, Value<'a>)| {
                    let value =
                        if schema.is_embedded_resource { self.field(name, *value, path) } else { *value };
                    let value = match below(schema, path, name) {
                        Some((schema, path)) => self.value(value, schema, &path),
                        None => value,
                    };
                    (*name, value)
                };
                let entries: Vec<(&'a str, Value<'a>)> = entries.iter().map(entry).collect();
                self.arena.object(&entries)
            }
            Value::List(items) => {
                let Some(schema) = &schema.items else { return value };
                let items = items.iter().enumerate();
                let items: Vec<Value<'a>> =
                    items.map(|(index, item)| self.value(*item, schema, &path.index(index))).collect();
                Value::List(self.arena.slice(&items))
            }
            scalar => scalar,
        }
    }

    /// Decodes a field of an embedded object.
    fn field(&mut self, name: &str, value: Value<'a>, path: &Path) -> Value<'a> {
        let path = path.child(name);
        let errors = match (name, value) {
            ("apiVersion" | "kind", Value::String(_)) => return value,
            ("apiVersion" | "kind", _) => vec![FieldError::wrong_type(&path, "a string")],
            ("metadata", _) => match metadata(value, &path, self.arena) {
                Ok(EncodedMetadata { value, unknown }) => {
                    self.unknown.extend(unknown);
                    return value;
                }
                Err(errors) => errors,
            },
            _ => return value,
        };
        self.undecodable.push(Undecodable { path, value, errors });
        value
    }
}

/// Validates embedded objects.
pub(super) fn validate(
    value: Value<'_>,
    schema: &Schema,
    path: &Path,
    release: Release,
    errors: &mut Vec<FieldError>,
) {
    match value {
        Value::Object(entries) => {
            if schema.is_embedded_resource {
                object(value, path, release, errors);
            }
            for (name, value) in entries {
                if let Some((schema, path)) = below(schema, path, name) {
                    validate(*value, schema, &path, release, errors);
                }
            }
        }
        Value::List(items) => {
            let Some(schema) = &schema.items else { return };
            for (index, item) in items.iter().enumerate() {
                validate(*item, schema, &path.index(index), release, errors);
            }
        }
        _ => {}
    }
}

/// Validates one embedded object.
fn object(value: Value<'_>, path: &Path, release: Release, errors: &mut Vec<FieldError>) {
    for name in ["apiVersion", "kind"] {
        let path = path.child(name);
        match value.field(name) {
            None => errors.push(FieldError::required(&path, "")),
            Some(Value::String("")) => errors.push(FieldError::invalid(&path, "", "must not be empty")),
            Some(Value::String(text)) if name == "kind" => {
                let problems = formats::label_1035(&lowercase(text));
                if !problems.is_empty() {
                    let detail =
                        format!("may have mixed case, but should otherwise match: {}", problems.join(","));
                    errors.push(FieldError::invalid(&path, text, &detail));
                }
            }
            Some(Value::String(text)) if text.matches('/').count() > 1 => {
                let detail = format!("unexpected GroupVersion string: {text}");
                errors.push(FieldError::invalid(&path, text, &detail));
            }
            // Decoding has refused other types.
            Some(_) => {}
        }
    }
    let Some(metadata) = value.field("metadata") else { return };
    let path = path.child("metadata");
    if let Some(time) = unreadable_time(metadata) {
        let detail = format!("parsing time {}: the year must have four digits", quote(time));
        errors.push(FieldError::invalid_value(&path, metadata, &detail));
        return;
    }
    let named = |field: &str| metadata.field(field).and_then(|value| value.as_str()).unwrap_or_default();
    let checks = MetadataChecks {
        release,
        path: &path,
        namespaced: !named("namespace").is_empty(),
        names: NameSyntax::PathSegment,
        name: if named("name").is_empty() { ANY_NAME } else { named("name") },
        is_embedded: true,
    };
    checks.object(metadata, errors);
}

/// Returns the first time in metadata that the API server can't decode again after it has encoded it in UTC.
fn unreadable_time(metadata: Value<'_>) -> Option<&str> {
    let entries = metadata.field("managedFields").unwrap_or_default().all_elements();
    let times = ["creationTimestamp", "deletionTimestamp"].map(|name| metadata.field(name));
    let mut times = times.into_iter().chain(entries.map(|entry| entry.field("time"))).flatten();
    times.find_map(|time| time.as_str().filter(|time| parse_timestamp(time).is_none()))
}

/// Returns the schema and the path of a field.
fn below<'s>(schema: &'s Schema, path: &Path, name: &str) -> Option<(&'s Schema, Path)> {
    match (schema.property(name), schema.additional_schema()) {
        (Some(schema), _) => Some((schema, path.child(name))),
        (None, Some(schema)) => Some((schema, path.key(name))),
        (None, None) => None,
    }
}

/// Returns whether a value of the schema can contain an embedded object.
pub(super) fn has_embedded(schema: &Schema) -> bool {
    schema.is_embedded_resource
        || schema.items.as_ref().is_some_and(|schema| has_embedded(schema))
        || schema.additional_schema().is_some_and(has_embedded)
        || schema.properties.iter().any(|(_, schema)| has_embedded(schema))
}
