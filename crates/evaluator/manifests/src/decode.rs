//! Objects in the form that policies see: decoded as the API server decodes them, and with the fields that it sets.

use policy::crd;
use policy::field::FieldError;
use policy::kinds::Kinds;
use policy::normalize::{Normalized, normalize_as};
use policy::value::{Arena, Value};

use crate::objects::Manifest;

/// Label that the API server sets on each Namespace.
pub const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Returns a stored object in the form that policies see. An error denies the request before any policy is evaluated.
pub fn as_stored<'a>(
    object: &Manifest,
    kinds: &'a Kinds,
    arena: &'a Arena,
) -> Result<Normalized<'a>, Vec<FieldError>> {
    decode(object, kinds, true, arena)
}

/// Returns an object of a request, or a stored one, in that form. A custom resource has its defaults, and no unknown fields.
pub fn decode<'a>(
    object: &Manifest,
    kinds: &'a Kinds,
    is_stored: bool,
    arena: &'a Arena,
) -> Result<Normalized<'a>, Vec<FieldError>> {
    let value = object.value(arena);
    let kind = (object.group(), object.version(), object.kind.as_str());
    if let Some((_, version)) = kinds.crd(kind.0, kind.1, kind.2) {
        return crd::object::decode(version, (kind.0, kind.2), value, is_stored, arena);
    }
    normalize_as(kinds.types(kind), kind, value, is_stored, arena)
}

/// Sets the label with the name of a Namespace.
pub fn with_name_label<'a>(namespace: Value<'a>, name: &str, arena: &'a Arena) -> Value<'a> {
    let metadata = namespace.field("metadata").unwrap_or_default();
    let labels = metadata.field("labels").unwrap_or_default();
    let labels = labels.with_field(NAME_LABEL, Value::String(arena.text(name)), arena);
    namespace.with_field("metadata", metadata.with_field("labels", labels, arena), arena)
}
