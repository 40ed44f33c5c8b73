//! Lists as `kubectl get -o yaml` prints them: each item is an object of its own. As in `kubectl`, every object with
//! `items` is a list, whatever its kind is. An empty one is an object if its kind doesn't end with `List`, so that it is judged.

use super::limits::MAX_OBJECTS;
use super::origin::Document;
use crate::field::Path;
use crate::value::{Arena, Value};

/// Adds a document, or the items of a list, in order. Returns false if there are too many.
pub(super) fn flatten<'a>(root: Document<'a>, arena: &'a Arena, documents: &mut Vec<Document<'a>>) -> bool {
    let mut pending = vec![root];
    while let Some(document) = pending.pop() {
        let Some((kind, items)) = items(document.value) else {
            documents.push(document);
            continue;
        };
        let count = items.list_len().unwrap_or_default();
        if documents.len() + pending.len() + count > MAX_OBJECTS {
            return false;
        }
        let items: Vec<Value<'a>> = items.elements().collect();
        let origins = document.origin.elements(document.text, &Path::new("items"), items.len());
        for (item, origin) in items.into_iter().zip(origins).rev() {
            let value = with_kind(item, kind, document.value, arena);
            pending.push(Document { value, origin, ..document });
        }
    }
    true
}

/// The items of a list, and the kind of those that have none.
fn items(value: Value<'_>) -> Option<(&str, Value<'_>)> {
    let kind = value.field("kind")?.as_str()?;
    let items = value.field("items")?;
    match (kind.strip_suffix("List"), items) {
        (Some(kind), Value::List(_) | Value::Null) => Some((kind, items)),
        (None, Value::List([_, ..])) => Some((kind, items)),
        _ => None,
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
