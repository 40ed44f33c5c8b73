//! Objects with the fields that the API server sets or keeps.

use policy::kinds::Kinds;
use policy::normalize::normalize_as;
use policy::value::{Arena, Value};

use manifests::objects::Manifest;

/// Metadata of a new object that the API server removes or replaces: `WipeObjectMetaSystemFields` of `pkg/registry/rest/meta.go` of
/// `k8s.io/apiserver`, the field manager, and `PrepareForCreate` of kinds with a generation.
const WIPED: [&str; 5] =
    ["deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields", "selfLink"];

/// Metadata that an update keeps, and whether a request can set it: `BeforeUpdate` of `pkg/registry/rest/update.go` of `k8s.io/apiserver`.
const KEPT: [(&str, bool); 4] = [
    ("creationTimestamp", false),
    ("deletionGracePeriodSeconds", true),
    ("deletionTimestamp", false),
    ("uid", true),
];

/// Returns a new object without the metadata that the API server ignores in a create request. A `uid` of the file stands for the one
/// that the API server sets. The `creationTimestamp` of a new object is the present time, never that of the file.
pub(crate) fn without_server_metadata<'a>(new: Value<'a>, arena: &'a Arena) -> Value<'a> {
    const CREATED: &str = "creationTimestamp";
    let Some(Value::Object(entries)) = new.field("metadata") else { return new };
    let entries: Vec<_> = entries.iter().filter(|(name, _)| !WIPED.contains(name)).copied().collect();
    let mut metadata = arena.object(&entries);
    if metadata.field(CREATED).is_some() {
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        metadata = metadata.with_field(CREATED, Value::String(arena.text(&now)), arena);
    }
    new.with_field("metadata", metadata, arena)
}

/// Returns an object of an update with the metadata that the API server keeps of the old object.
pub(crate) fn with_kept_metadata<'a>(new: Value<'a>, old: Value<'a>, arena: &'a Arena) -> Value<'a> {
    let before = old.field("metadata").unwrap_or_default();
    let Some(Value::Object(entries)) = new.field("metadata") else { return new };
    // The API server refuses a deletionTimestamp that the old object does not have. Without it, no policy is skipped because of it.
    let is_refused = |name: &str| name == "deletionTimestamp" && before.field(name).is_none();
    let entries: Vec<_> = entries.iter().filter(|(name, _)| !is_refused(name)).copied().collect();
    let mut metadata = arena.object(&entries);
    for (name, is_settable) in KEPT {
        let is_set = is_settable && metadata.field(name).is_some();
        if let Some(value) = before.field(name).filter(|_| !is_set) {
            metadata = metadata.with_field(name, value, arena);
        }
    }
    new.with_field("metadata", metadata, arena)
}

/// Returns a built-in object with the status before the request. A new object has an empty status. Only a request for `status` changes it.
/// Source: `PrepareForCreate` and `PrepareForUpdate` of the kinds, in `pkg/registry` of `k8s.io/kubernetes`.
pub(crate) fn with_status_before<'a>(
    new: Value<'a>,
    old: Option<Value<'a>>,
    object: &Manifest,
    kinds: &'a Kinds,
    arena: &'a Arena,
) -> Value<'a> {
    let kind = (object.group(), object.version(), object.kind.as_str());
    let is_settable = match (kind.0, kind.2) {
        ("networking.k8s.io", "ServiceCIDR") => true,
        ("", "Node") | ("authentication.k8s.io" | "authorization.k8s.io", _) => old.is_none(),
        _ => false,
    };
    let types = kinds.types(kind);
    if is_settable || !types.has(kind) {
        return new;
    }
    let empty = || normalize_as(types, kind, Value::Object(&[]), false, arena).unwrap_or_default().object;
    let status = old.unwrap_or_else(empty).field("status");
    status.map_or(new, |status| new.with_field("status", status, arena))
}
