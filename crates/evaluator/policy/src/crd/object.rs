//! The steps of a create and an update of a custom resource, in the order of the API server.
//!
//! | step | function |
//! |---|---|
//! | decode the metadata of the object | [`decode`] |
//! | remove unknown fields, and nulls of fields that are not nullable | [`decode`] |
//! | decode the metadata of embedded objects | [`decode`] |
//! | set defaults | [`decode`] |
//! | set the status to that before the request | [`with_stored_status`] |
//! | check metadata | [`validate`] |
//! | validate the schema | [`validate`] |
//! | check the fields of the subresource `scale` | [`validate`] |
//! | check embedded objects | [`validate`] |
//! | find duplicates in sets and maps | [`validate`] |
//! | evaluate rules | [`validate`] |
//!
//! Duplicate keys are an error of the reader. `apiVersion` and `kind` are right, since they led to the CRD. Schema and rules see the metadata
//! that the API server sets in an update: [`as_stored`]. The resource version belongs to the storage, which comes after policies.

use super::rules::RuleInput;
use super::{Crd, Scale, Version, embedded, scale};
use crate::field::{ErrorKind, FieldError, Path, Validated, remove_duplicates};
use crate::meta::{self, MetadataChecks, NameSyntax};
use crate::normalize::{Normalized, Types, normalize_as};
use crate::release::Release;
use crate::schema::{defaults, list_types, prune, validate as schema_validate};
use crate::value::{Arena, Value, identical};

/// The sentence of the API server when it does not evaluate rules.
const SKIPPED_RULES: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";

/// Decodes an object as the API server does. The result is what later steps and policies see.
pub fn decode<'a>(
    version: &'a Version,
    (group, kind): (&str, &str),
    object: Value<'a>,
    is_stored: bool,
    arena: &'a Arena,
) -> Result<Normalized<'a>, Vec<FieldError>> {
    let decoded = coerce(version, (group, kind), object, is_stored, arena)?;
    Ok(Normalized { object: with_defaults(version, decoded.object, arena), ..decoded })
}

/// Decodes an object like [`decode`], but sets no defaults.
fn coerce<'a>(
    version: &'a Version,
    (group, kind): (&str, &str),
    object: Value<'a>,
    is_stored: bool,
    arena: &'a Arena,
) -> Result<Normalized<'a>, Vec<FieldError>> {
    let kind = (group, version.name.as_str(), kind);
    let normalized = normalize_as(Types::recorded(), kind, object, is_stored, arena)?;
    let Some(schema) = version.structural() else { return Ok(normalized) };
    let Normalized { mut object, mut unknown, invalid } = normalized;
    if schema.is_embedded_resource {
        // The API server decodes the metadata again, and names its unknown fields twice.
        unknown.extend_from_within(..);
    }
    if !version.keeps_unknown_fields {
        let (pruned, removed) = prune::prune(object, schema, true, arena);
        unknown.extend(removed);
        object = defaults::remove_nulls(pruned, schema, arena);
    }
    if version.has_embedded {
        let (decoded, removed) = embedded::decode(object, schema, arena)
            .map_err(|fields| fields.into_iter().flat_map(|field| field.errors).collect::<Vec<_>>())?;
        unknown.extend(removed);
        object = decoded;
    }
    Ok(Normalized { object, unknown, invalid })
}

fn with_defaults<'a>(version: &'a Version, object: Value<'a>, arena: &'a Arena) -> Value<'a> {
    version.structural().map_or(object, |schema| defaults::set(object, schema, arena))
}

/// Returns an object, decoded in version `from`, as the API server reads it from its storage in version `to`. The CRD must not have a
/// conversion webhook.
///
/// The API server converts the object to the version that is stored, sets the defaults of that version, and converts it again. A
/// conversion replaces `apiVersion` and removes unknown fields, but sets no defaults: `crdConversionRESTOptionsGetter` of
/// `customresource_handler.go` of `k8s.io/apiextensions-apiserver`.
pub fn from_storage<'a>(
    crd: &'a Crd,
    (from, to): (&str, &'a Version),
    object: Value<'a>,
    arena: &'a Arena,
) -> Value<'a> {
    let Some(stored) = crd.versions.iter().find(|version| version.storage) else { return object };
    let mut object = object;
    if from != stored.name {
        object = with_defaults(stored, convert(crd, stored, object, arena), arena);
    }
    if to.name == stored.name { object } else { convert(crd, to, object, arena) }
}

fn convert<'a>(crd: &'a Crd, version: &'a Version, object: Value<'a>, arena: &'a Arena) -> Value<'a> {
    let Value::Object(entries) = object else { return object };
    let api_version = Value::String(arena.text(&format!("{}/{}", crd.group, version.name)));
    let object = arena.object(&[entries, &[("apiVersion", api_version)]].concat());
    coerce(version, (&crd.group, &crd.kind), object, true, arena).map_or(object, |decoded| decoded.object)
}

/// Returns a decoded object with the status before the request. If the version has the subresource `status`, no other request changes it.
pub fn with_stored_status<'a>(
    version: &Version,
    new: Value<'a>,
    old: Option<Value<'a>>,
    arena: &'a Arena,
) -> Value<'a> {
    let Value::Object(entries) = new else { return new };
    if !version.has_status {
        return new;
    }
    let status = old.and_then(|old| old.field("status")).map(|status| ("status", status));
    let others = entries.iter().filter(|(name, _)| *name != "status").copied();
    arena.object(&others.chain(status).collect::<Vec<_>>())
}

/// Validates a decoded object with the namespace, name and status that an API server of a minor sets. `old` is the decoded object before an
/// update. If `keep_going` returns false, rules are undecided. The caller asks [`Arena::is_full`].
pub fn validate<'a>(
    (crd, version): (&Crd, &'a Version),
    new: Value<'a>,
    old: Option<Value<'a>>,
    server: u8,
    arena: &Arena,
    keep_going: &dyn Fn() -> bool,
) -> Validated {
    let release = Release::for_stored(server);
    let mut validated = Validated::default();
    metadata(new, old, crd.namespaced, release, &mut validated.errors);
    if !version.keeps_unknown_fields && version.structural().is_none() {
        let refused = |error| refused("schema", error);
        validated.undecided = version.not_structural.iter().take(1).map(refused).collect();
        return validated;
    }
    let objects = as_stored(new, old, arena);
    if let Some(schema) = &version.schema {
        let found = schema_validate::validate(objects.new, schema, &Path::default(), objects.old, release);
        validated.errors.extend(found.errors);
        validated.undecided = found.undecided;
    }
    if let Some(paths) = &version.scale {
        scale::validate(new, paths, &mut validated.errors);
    }
    if let Some(schema) = version.structural() {
        if version.has_embedded {
            embedded::validate(new, schema, &Path::default(), release, &mut validated.errors);
        }
        let duplicates = |object| list_types::validate(object, schema, &Path::default());
        if old.is_none_or(|old| duplicates(old).is_empty()) {
            validated.errors.extend(duplicates(new));
        }
        if version.has_rules && validated.errors.iter().any(blocks_rules) {
            let error = FieldError::invalid_value(&Path::default(), Value::Null, SKIPPED_RULES);
            validated.errors.push(FieldError { is_unnamed: true, ..error });
        } else if version.has_rules {
            match &*version.rules.get(schema, release) {
                Ok(rules) => {
                    let found = rules.validate(schema, objects, arena, keep_going);
                    validated.errors.extend(found.errors);
                    validated.undecided.extend(found.undecided);
                    validated.unchanged = found.unchanged;
                }
                Err(errors) => {
                    let refused = |error| refused("rules", error);
                    validated.undecided.extend(errors.iter().take(1).map(refused));
                }
            }
        }
    }
    remove_duplicates(&mut validated.errors);
    if validated.errors.is_empty() {
        let old = old.map(metadata_of).unwrap_or_default();
        validated.warnings = meta::finalizer_warnings(metadata_of(new), old, release);
    }
    validated
}

/// Metadata that an update does not change.
const KEPT: [&str; 5] =
    ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"];

/// Returns the objects with the metadata that the API server sets in an update.
///
/// An update keeps the uid and the times of the old object. The generation increases if a field outside of the metadata changes. A
/// manifest rarely has these fields, and the old object often lacks them.
fn as_stored<'a>(new: Value<'a>, old: Option<Value<'a>>, arena: &'a Arena) -> RuleInput<'a> {
    let Some(old) = old else { return RuleInput { new, old: None, other: None } };
    let before = metadata_of(old);
    let generation = match before.field("generation") {
        Some(Value::Int(generation)) if generation > 0 => generation,
        _ => 1,
    };
    let is_changed = !identical(content(new, arena), content(old, arena), &mut || true);
    let mut kept = vec![("generation", Value::Int(generation + i64::from(is_changed)))];
    for name in KEPT {
        let own = metadata_of(new).field(name).filter(|_| name == "uid" || name == "resourceVersion");
        kept.extend(own.or_else(|| before.field(name)).map(|value| (name, value)));
    }
    // The values do not matter, since no rule can read them. They are equal, or they are not.
    let fields = |of: &'static str| ("managedFields", Value::String(of));
    let with = |managed| with_metadata(new, &[&kept[..], &[fields(managed)]].concat(), arena);
    let old_fields = [("generation", Value::Int(generation)), fields("kept")];
    let old = with_metadata(old, &old_fields, arena);
    RuleInput { new: with("kept"), old: Some(old), other: Some(with("changed")) }
}

/// An object without metadata.
fn content<'a>(object: Value<'a>, arena: &'a Arena) -> Value<'a> {
    let Value::Object(entries) = object else { return object };
    let entries: Vec<_> = entries.iter().filter(|(name, _)| *name != "metadata").copied().collect();
    Value::Object(arena.slice(&entries))
}

/// An object with these fields in its metadata.
fn with_metadata<'a>(object: Value<'a>, fields: &[(&'a str, Value<'a>)], arena: &'a Arena) -> Value<'a> {
    let entries = |object| if let Value::Object(entries) = object { entries } else { &[] };
    let metadata = [entries(metadata_of(object)), fields].concat();
    let metadata = ("metadata", arena.object(&metadata));
    arena.object(&[entries(object), &[metadata]].concat())
}

/// Why objects of a CRD can't be judged.
fn refused(part: &str, error: &FieldError) -> FieldError {
    let body = format!("the API server refuses the {part} of the CRD: {error}");
    FieldError { body, path: Path::default(), ..error.clone() }
}

fn metadata_of(object: Value<'_>) -> Value<'_> {
    object.field("metadata").unwrap_or_default()
}

/// Checks the metadata of an object. The name of an object that exists is not checked again.
fn metadata(
    new: Value<'_>,
    old: Option<Value<'_>>,
    namespaced: bool,
    release: Release,
    errors: &mut Vec<FieldError>,
) {
    let new = metadata_of(new);
    let names = if old.is_some() { NameSyntax::PathSegment } else { NameSyntax::Subdomain };
    let name = new.field("name").and_then(|name| name.as_str()).unwrap_or_default();
    let path = Path::new("metadata");
    let checks = MetadataChecks { release, path: &path, namespaced, names, name, is_embedded: false };
    checks.object(new, errors);
    if let Some(old) = old {
        checks.update(new, metadata_of(old), errors);
    }
}

/// Whether the API server does not evaluate rules because of an error.
fn blocks_rules(error: &FieldError) -> bool {
    matches!(
        error.kind,
        ErrorKind::NotSupported
            | ErrorKind::Required
            | ErrorKind::TooLong
            | ErrorKind::TooMany
            | ErrorKind::TypeInvalid
    )
}

impl Scale {
    /// The paths of the replicas.
    pub(super) fn replicas(&self) -> [&str; 2] {
        [&self.spec_replicas, &self.status_replicas]
    }
}
