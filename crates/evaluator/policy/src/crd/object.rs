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
//! that the API server sets in an update: [`Stored`]. The resource version belongs to the storage, which comes after policies.

use super::rules::Objects;
use super::{Crd, Scale, Version, embedded, scale};
use crate::field::{ErrorKind, FieldError, Path};
use crate::meta::{self, Checks, NameSyntax};
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

/// A create or an update.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The decoded object, with the namespace, name and status that the API server sets.
    pub new: Value<'a>,
    /// The decoded object before the change.
    pub old: Option<Value<'a>>,
    /// Whether objects of the kind are in namespaces.
    pub namespaced: bool,
    /// Minor version of the API server.
    pub server: u8,
}

/// The API server's answer to a change, before it evaluates policies.
#[derive(Clone, Debug, Default)]
pub struct Judgement {
    /// The errors for which it refuses the change.
    pub errors: Vec<FieldError>,
    /// Fields whose validity is not known, with the reason.
    pub undecided: Vec<FieldError>,
    /// Warnings, if there are no errors.
    pub warnings: Vec<String>,
    /// Rules that are false of values that an update does not change. The API server prints them as warnings.
    pub unchanged: Vec<FieldError>,
}

/// Validates a decoded object. If `keep_going` returns false, rules are undecided. The caller asks [`Arena::is_full`].
pub fn validate<'a>(
    version: &'a Version,
    change: &Change<'a>,
    arena: &Arena,
    keep_going: &dyn Fn() -> bool,
) -> Judgement {
    let release = Release::for_stored(change.server);
    let mut judgement = Judgement::default();
    metadata(change, release, &mut judgement.errors);
    if !version.keeps_unknown_fields && version.structural().is_none() {
        let refused = |error| refused("schema", error);
        judgement.undecided = version.not_structural.iter().take(1).map(refused).collect();
        return judgement;
    }
    let objects = Stored { arena }.objects(change);
    let Objects { new, old, .. } = objects;
    if let Some(schema) = &version.schema {
        let found = schema_validate::validate(new, schema, &Path::default(), old, release);
        judgement.errors.extend(found.errors);
        judgement.undecided = found.undecided;
    }
    if let Some(paths) = &version.scale {
        scale::validate(change.new, paths, &mut judgement.errors);
    }
    if let Some(schema) = version.structural() {
        if version.has_embedded {
            embedded::validate(change.new, schema, &Path::default(), release, &mut judgement.errors);
        }
        let duplicates = |object| list_types::validate(object, schema, &Path::default());
        if change.old.is_none_or(|old| duplicates(old).is_empty()) {
            judgement.errors.extend(duplicates(change.new));
        }
        if version.has_rules && judgement.errors.iter().any(blocks_rules) {
            let error = FieldError::invalid_value(&Path::default(), Value::Null, SKIPPED_RULES);
            judgement.errors.push(FieldError { is_unnamed: true, ..error });
        } else if version.has_rules {
            match &*version.rules.get(schema, release) {
                Ok(rules) => {
                    let found = rules.validate(schema, objects, arena, keep_going);
                    judgement.errors.extend(found.errors);
                    judgement.undecided.extend(found.undecided);
                    judgement.unchanged = found.warnings;
                }
                Err(errors) => {
                    let refused = |error| refused("rules", error);
                    judgement.undecided.extend(errors.iter().take(1).map(refused));
                }
            }
        }
    }
    remove_duplicates(&mut judgement.errors);
    if judgement.errors.is_empty() {
        let old = change.old.map(metadata_of).unwrap_or_default();
        judgement.warnings = meta::finalizer_warnings(metadata_of(change.new), old, release);
    }
    judgement
}

/// Objects with the metadata that the API server sets in an update.
///
/// An update keeps the uid and the times of the old object. The generation increases if a field outside of the metadata changes. A
/// manifest rarely has these fields, and the old object often lacks them.
struct Stored<'a> {
    arena: &'a Arena,
}

/// Metadata that an update does not change.
const KEPT: [&str; 5] =
    ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"];

impl<'a> Stored<'a> {
    fn objects(&self, change: &Change<'a>) -> Objects<'a> {
        let Some(old) = change.old else { return Objects { new: change.new, old: None, other: None } };
        let before = metadata_of(old);
        let generation = match before.field("generation") {
            Some(Value::Int(generation)) if generation > 0 => generation,
            _ => 1,
        };
        let is_changed = !identical(self.content(change.new), self.content(old), &mut || true);
        let mut kept = vec![("generation", Value::Int(generation + i64::from(is_changed)))];
        for name in KEPT {
            let own =
                metadata_of(change.new).field(name).filter(|_| name == "uid" || name == "resourceVersion");
            kept.extend(own.or_else(|| before.field(name)).map(|value| (name, value)));
        }
        // The values do not matter, since no rule can read them. They are equal, or they are not.
        let fields = |of: &'static str| ("managedFields", Value::String(of));
        let new = |managed| self.with(change.new, &[&kept[..], &[fields(managed)]].concat());
        Objects {
            new: new("kept"),
            old: Some(self.with(old, &[("generation", Value::Int(generation)), fields("kept")])),
            other: Some(new("changed")),
        }
    }

    /// An object without metadata.
    fn content(&self, object: Value<'a>) -> Value<'a> {
        let Value::Object(entries) = object else { return object };
        let entries: Vec<_> = entries.iter().filter(|(name, _)| *name != "metadata").copied().collect();
        Value::Object(self.arena.slice(&entries))
    }

    /// An object with these fields in its metadata.
    fn with(&self, object: Value<'a>, fields: &[(&'a str, Value<'a>)]) -> Value<'a> {
        let entries = |object| if let Value::Object(entries) = object { entries } else { &[] };
        let metadata = [entries(metadata_of(object)), fields].concat();
        let metadata = ("metadata", self.arena.object(&metadata));
        self.arena.object(&[entries(object), &[metadata]].concat())
    }
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
fn metadata(change: &Change<'_>, release: Release, errors: &mut Vec<FieldError>) {
    let new = metadata_of(change.new);
    let names = if change.old.is_some() { NameSyntax::PathSegment } else { NameSyntax::Subdomain };
    let name = new.field("name").and_then(|name| name.as_str()).unwrap_or_default();
    let path = Path::new("metadata");
    let checks =
        Checks { release, path: &path, namespaced: change.namespaced, names, name, is_embedded: false };
    checks.object(new, errors);
    if let Some(old) = change.old {
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

/// Removes errors with the text of an earlier one, as the API server does.
fn remove_duplicates(errors: &mut Vec<FieldError>) {
    let mut seen = std::collections::HashSet::new();
    errors.retain(|error| seen.insert(error.to_string()));
}

impl Scale {
    /// The paths of the replicas.
    pub(super) fn replicas(&self) -> [&str; 2] {
        [&self.spec_replicas, &self.status_replicas]
    }
}
