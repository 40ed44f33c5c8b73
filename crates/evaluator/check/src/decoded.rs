//! The objects of a change as policies see them: decoded, and with the fields that the API server sets or keeps.

use std::collections::HashSet;

use policy::crd::object::{from_storage, with_stored_status};
use policy::crd::{Crd, Version};
use policy::field::{FieldError, Path};
use policy::normalize::Normalized;
use policy::value::{Arena, Value};

use manifests::decode::{decode, with_name_label};
use manifests::objects::Manifest;

use crate::basis::{Basis, refusal, shown};
use crate::changes::ObjectChange;
use crate::report::DocumentFinding;
use crate::stored::{with_kept_metadata, with_status_before, without_server_metadata};

/// Longest part of `generateName` that a generated name keeps, and an example of its random end. Most ends have digits and letters, so a
/// rule that refuses one of them refuses the example too.
const MAX_GENERATED_START: usize = 58;
const GENERATED_END: &str = "x4k2z";

/// The objects of a change, decoded and with the fields that the API server sets.
#[derive(Default)]
pub(crate) struct Decoded<'a> {
    pub(crate) new: Value<'a>,
    pub(crate) old: Value<'a>,
    /// Whether the old object has another version, to which it can't be converted here.
    pub(crate) old_is_unknown: bool,
    /// The fields of the new object that its kind does not have.
    pub(crate) unknown: Vec<Path>,
    /// The errors of the structure of the new object.
    pub(crate) errors: Vec<FieldError>,
    /// The findings for which the API server can't decode an object.
    pub(crate) refused: Vec<DocumentFinding>,
}

impl Basis<'_> {
    /// Returns the objects of a change as policies see them.
    pub(crate) fn decoded<'a>(
        &self,
        change: &ObjectChange<'_>,
        crd: Option<(&'a Crd, &'a Version)>,
        arena: &'a Arena,
    ) -> Decoded<'a>
    where
        Self: 'a,
    {
        let mut refused = Vec::new();
        let mut value = |object: Option<&Manifest>, is_stored: bool| match object
            .map(|object| (object, decode(object, self.kinds, is_stored, arena)))
        {
            None => Normalized::default(),
            Some((object, Ok(decoded))) => {
                let value = with_request_fields(decoded.object, object, change, arena);
                Normalized { object: value, ..decoded }
            }
            Some((object, Err(errors))) => {
                refused.extend(shown(&errors, |error| refusal(object, error)));
                Normalized::default()
            }
        };
        let Normalized { object: new, unknown, invalid: mut errors } = value(change.new, false);
        // The API server does not look for unknown fields in a stored object, and it has accepted what an update keeps.
        let Normalized { object: mut old, invalid: accepted, .. } = value(change.old, true);
        let accepted: HashSet<FieldError> = accepted.into_iter().collect();
        errors.retain(|error| !accepted.contains(error));
        let versions = change.old.zip(change.object());
        let is_other_version = versions.is_some_and(|(old, object)| old.version() != object.version());
        let converting = crd.filter(|(crd, _)| !crd.is_converted_by_webhook);
        if let (Some((crd, version)), Some(before)) = (converting, change.old) {
            old = from_storage(crd, (before.version(), version), old, arena);
        }
        let new = self.with_kept_fields([new, old], change, crd, arena);
        let old_is_unknown = is_other_version && converting.is_none();
        // In a full arena, errors and unknown fields can be those of missing values. The evaluation is unknown then.
        if arena.is_full() {
            return Decoded { new, old, old_is_unknown, ..Decoded::default() };
        }
        Decoded { new, old, old_is_unknown, unknown, errors, refused }
    }

    /// Returns the new object as the API server changes it before policies: with the status and metadata that it keeps, and without those
    /// that it removes.
    fn with_kept_fields<'a>(
        &self,
        [new, old]: [Value<'a>; 2],
        change: &ObjectChange<'_>,
        crd: Option<(&Crd, &Version)>,
        arena: &'a Arena,
    ) -> Value<'a>
    where
        Self: 'a,
    {
        let Some(object) = change.new else { return new };
        let is_main = change.subresource.is_empty();
        let before = change.old.map(|_| old);
        let new = match crd {
            _ if !is_main => new,
            Some((_, version)) => with_stored_status(version, new, before, arena),
            // The status of another version can't be converted here.
            None if change.old.is_some_and(|old| old.version() != object.version()) => new,
            None => with_status_before(new, before, object, self.kinds, arena),
        };
        match before {
            Some(old) => with_kept_metadata(new, old, arena),
            None if is_main => without_server_metadata(new, arena),
            None => new,
        }
    }
}

/// Returns an object with the fields that the API server sets from the request.
fn with_request_fields<'a>(
    value: Value<'a>,
    object: &Manifest,
    change: &ObjectChange<'_>,
    arena: &'a Arena,
) -> Value<'a> {
    let mut value = value;
    if change.namespace != object.namespace || object.is_generated {
        let mut metadata = value.field("metadata").unwrap_or_default();
        if !change.namespace.is_empty() {
            metadata = metadata.with_field("namespace", Value::String(arena.text(&change.namespace)), arena);
        } else if let Value::Object(entries) = metadata {
            let others = entries.iter().filter(|(name, _)| *name != "namespace").copied();
            metadata = arena.object(&others.collect::<Vec<_>>());
        }
        if object.is_generated {
            metadata = metadata.with_field("name", Value::String(arena.text(&request_name(object))), arena);
        }
        value = value.with_field("metadata", metadata, arena);
    }
    if object.is("", "Namespace") { with_name_label(value, &request_name(object), arena) } else { value }
}

/// Returns the name of an object, or a stand-in for the one that the API server generates before policies see it.
pub(crate) fn request_name(object: &Manifest) -> String {
    if !object.is_generated {
        return object.name.clone();
    }
    let start = object.name.get(..MAX_GENERATED_START).unwrap_or(&object.name);
    format!("{start}{GENERATED_END}")
}
