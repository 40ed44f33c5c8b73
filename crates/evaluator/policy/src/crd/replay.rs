//! Writes an existing object again after its CRD has changed.
//!
//! The object is one that the old CRD accepted, in one of its versions. The API server reads it in the version in which it is stored,
//! converts it to the version of the request, and converts it back when it writes it. Each step removes the fields that the schema of
//! its version does not declare, and sets defaults. A conversion webhook is not called: with one, only the version of the object counts.
//!
//! | request | fails | loses fields |
//! |---|---|---|
//! | an update that changes nothing | if an error is not one of an unchanged field | yes |
//! | a create, as from a backup or in a second cluster | if there is any error | the same |
//!
//! Errors that the old CRD gives for the same request are left out, because the change does not cause them.

use std::collections::HashSet;

use super::object::{decode, validate, with_stored_status};
use super::{Crd, Version};
use crate::field::{FieldError, Path, Validated};
use crate::value::{Arena, Value};

/// Lost fields that are reported of one object.
const MAX_LOST: usize = 1_000;

/// The namespace of an object that names none.
const NAMESPACE: &str = "default";

/// The CRDs, and the requests.
#[derive(Clone, Copy, Debug)]
pub struct Replay<'a> {
    /// The CRD under which the object exists.
    pub old: &'a Crd,
    /// The CRD after the change.
    pub new: &'a Crd,
    /// Minor version of the API server.
    pub server: u8,
}

/// The effect of a change on an object.
#[derive(Clone, Debug, Default)]
pub struct ReplayResult {
    /// Fields that the API server removes.
    pub lost: Vec<Path>,
    /// Errors of an update that changes nothing.
    pub update: Vec<FieldError>,
    /// Errors of a create.
    pub create: Vec<FieldError>,
    /// Whether the version of the object is not served any more. The rest is then about the stored version.
    pub is_unserved: bool,
    /// Why more errors are possible.
    pub undecided: Vec<FieldError>,
}

impl ReplayResult {
    /// Returns an effect that is not known.
    pub fn unknown(reason: &str) -> Self {
        let error = FieldError::internal(&Path::default(), reason);
        Self { undecided: vec![FieldError { body: reason.to_owned(), ..error }], ..Self::default() }
    }

    /// Returns whether the object breaks.
    pub fn is_broken(&self) -> bool {
        self.is_unserved || !(self.lost.is_empty() && self.update.is_empty() && self.create.is_empty())
    }
}

impl<'a> Replay<'a> {
    /// Replays an object of a version of the old CRD. The errors are those of an object that the API server can't decode. The caller asks
    /// [`Arena::is_full`].
    pub fn run(
        &self,
        version: &'a Version,
        object: Value<'a>,
        arena: &'a Arena,
        keep_going: &dyn Fn() -> bool,
    ) -> Result<ReplayResult, Vec<FieldError>> {
        let Self { old, new, server } = *self;
        let mut effect = ReplayResult::default();
        let object = if old.namespaced { with_namespace(object, arena) } else { object };
        let (stored, before) = rewritten(old, version, read(old, version, object, arena)?, arena)?;
        let stored_as = old
            .stored()
            .filter(|_| !old.is_converted_by_webhook)
            .map_or(version.name.as_str(), |stored| &stored.name);
        let served = new.served(&version.name);
        effect.is_unserved = served.is_none();
        let target = served.or_else(|| new.stored().filter(|_| !new.is_converted_by_webhook));
        let Some(target) = target else {
            let reason = "a webhook converts the object to another version, and it is not called";
            return Ok(ReplayResult { is_unserved: true, ..ReplayResult::unknown(reason) });
        };
        let mut found = stored;
        if let Some(first) = new.version(stored_as).filter(|first| first.name != target.name) {
            found = read(new, first, found, arena)?;
        }
        found = read(new, target, found, arena)?;
        let (_, after) = rewritten(new, target, found, arena)?;
        lost(before, after, &Path::default(), &mut effect.lost);
        let judge = |crd: &Crd, version: &'a Version, object: Value<'a>, old: Option<Value<'a>>| {
            validate((crd, version), object, old, server, arena, keep_going)
        };
        let update = judge(new, target, found, Some(found));
        let was = judge(old, version, before, Some(before));
        effect.update = Self::caused(update, was, &mut effect.undecided);
        let create = judge(new, target, created(new, target, before, arena)?, None);
        let was = judge(old, version, created(old, version, before, arena)?, None);
        effect.create = Self::caused(create, was, &mut effect.undecided);
        Ok(effect)
    }

    /// Returns the errors that the old CRD does not give.
    fn caused(now: Validated, before: Validated, undecided: &mut Vec<FieldError>) -> Vec<FieldError> {
        for error in now.undecided.into_iter().chain(before.undecided) {
            if !undecided.contains(&error) {
                undecided.push(error);
            }
        }
        let known: HashSet<String> = before.errors.iter().map(ToString::to_string).collect();
        now.errors.into_iter().filter(|error| !known.contains(&error.to_string())).collect()
    }
}

/// Reads an object as one of a version.
fn read<'a>(
    crd: &Crd,
    version: &'a Version,
    object: Value<'a>,
    arena: &'a Arena,
) -> Result<Value<'a>, Vec<FieldError>> {
    let object = with_version(crd, version, object, arena);
    Ok(decode(version, (&crd.group, &crd.kind), object, true, arena)?.object)
}

/// Returns an object of a version as it is stored, and as it is read again in that version.
fn rewritten<'a>(
    crd: &'a Crd,
    version: &'a Version,
    object: Value<'a>,
    arena: &'a Arena,
) -> Result<(Value<'a>, Value<'a>), Vec<FieldError>> {
    match crd.stored() {
        Some(stored) if stored.name != version.name && !crd.is_converted_by_webhook => {
            let stored = read(crd, stored, object, arena)?;
            Ok((stored, read(crd, version, stored, arena)?))
        }
        _ => Ok((object, object)),
    }
}

/// Returns an object as a create has it. Without the subresource, the status is a field like others.
fn created<'a>(
    crd: &Crd,
    version: &'a Version,
    object: Value<'a>,
    arena: &'a Arena,
) -> Result<Value<'a>, Vec<FieldError>> {
    let object = with_version(crd, version, object, arena);
    let object = decode(version, (&crd.group, &crd.kind), object, false, arena)?.object;
    Ok(with_stored_status(version, object, None, arena))
}

/// Returns an object with the `apiVersion` of a version.
fn with_version<'a>(crd: &Crd, version: &Version, object: Value<'a>, arena: &'a Arena) -> Value<'a> {
    let api_version = format!("{}/{}", crd.group, version.name);
    if object.field("apiVersion").and_then(|text| text.as_str()) == Some(&api_version) {
        return object;
    }
    object.with_field("apiVersion", Value::String(arena.text(&api_version)), arena)
}

/// Returns an object with a namespace.
fn with_namespace<'a>(object: Value<'a>, arena: &'a Arena) -> Value<'a> {
    let metadata = object.field("metadata").unwrap_or_default();
    match metadata.field("namespace") {
        None | Some(Value::Null | Value::String("")) => {
            let metadata = metadata.with_field("namespace", Value::String(NAMESPACE), arena);
            object.with_field("metadata", metadata, arena)
        }
        Some(_) => object,
    }
}

/// Collects the fields that the second value does not have. A null that became a default is lost.
fn lost(before: Value<'_>, after: Value<'_>, path: &Path, found: &mut Vec<Path>) {
    if found.len() == MAX_LOST {
        return;
    }
    match (before, after) {
        (Value::Object(before), Value::Object(_)) => {
            for (name, value) in before {
                let path = path.child(name);
                match after.field(name) {
                    Some(after) => lost(*value, after, &path, found),
                    None if found.len() < MAX_LOST => found.push(path),
                    None => return,
                }
            }
        }
        (Value::List(before), Value::List(_)) => {
            for (index, value) in before.iter().enumerate() {
                lost(*value, after.element(index).unwrap_or_default(), &path.index(index), found);
            }
        }
        (Value::Null, Value::Null) => {}
        (Value::Null, _) => found.push(path.clone()),
        _ => {}
    }
}
