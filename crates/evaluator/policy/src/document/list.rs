//! Lists as `kubectl get -o yaml` prints them: each item is an object of its own. As in `kubectl`, every object with
//! `items` is a list, whatever its kind is. An empty one is an object if its kind doesn't end with `List`, so that it is judged.
//!
//! `kubectl` knows lists by the discovery of the API server: `List` in each version of a group, and `<Kind>List` for each kind. An
//! unknown list in a built-in group stays an object, and so does a list in a list, which `kubectl` refuses.

use super::limits::MAX_OBJECTS;
use super::origin::Document;
use crate::field::Path;
use crate::kinds::{has_version, is_built_in, lookup};
use crate::value::{Arena, Value};

/// Adds a document, or the items of a list, in order. Returns false if there are too many.
pub(super) fn flatten<'a>(root: Document<'a>, arena: &'a Arena, documents: &mut Vec<Document<'a>>) -> bool {
    let Some((kind, items)) = items(root.value) else {
        documents.push(root);
        return true;
    };
    let count = items.list_len().unwrap_or_default();
    if documents.len() + count > MAX_OBJECTS {
        return false;
    }
    let items: Vec<Value<'a>> = items.elements().collect();
    let origins = root.origin.elements(root.text, &Path::new("items"), items.len());
    for (item, origin) in items.into_iter().zip(origins) {
        documents.push(Document { value: with_kind(item, kind, root.value, arena), origin, ..root });
    }
    true
}

/// The items of a list, and the kind of those that have none.
fn items(value: Value<'_>) -> Option<(&str, Value<'_>)> {
    let kind = value.field("kind")?.as_str()?;
    let items = value.field("items")?;
    let api_version = value.field("apiVersion").and_then(|version| version.as_str()).unwrap_or_default();
    let found = match (kind.strip_suffix("List"), items) {
        (Some(kind), Value::List(_) | Value::Null) => (kind, items),
        (None, Value::List([_, ..])) => (kind, items),
        _ => return None,
    };
    is_known(api_version, kind).then_some(found)
}

/// Whether `kubectl` knows a list. CRDs can define it unless its group is built in. A list without a version is known.
fn is_known(api_version: &str, kind: &str) -> bool {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let is_kind = |kind: &str| lookup(group, version, kind).is_some();
    match kind.strip_suffix("List") {
        _ if api_version.is_empty() || !is_built_in(group) => true,
        Some("") => has_version(group, version),
        Some(item) => is_kind(item) || is_kind(kind),
        None => is_kind(kind),
    }
}

/// Items of a typed list such as `PodList` have the kind of the list if they have none, as in `kubectl`.
fn with_kind<'a>(item: Value<'a>, kind: &'a str, list: Value<'a>, arena: &'a Arena) -> Value<'a> {
    let Value::Object(entries) = item else { return item };
    if kind.is_empty() || item.field("kind").is_some() {
        return item;
    }
    let mut entries: Vec<_> = entries.iter().copied().filter(|(key, _)| *key != "apiVersion").collect();
    entries.push(("apiVersion", list.field("apiVersion").unwrap_or_default()));
    entries.push(("kind", Value::String(kind)));
    entries.sort_unstable_by(|left, right| left.0.cmp(right.0));
    Value::Object(arena.slice(&entries))
}
