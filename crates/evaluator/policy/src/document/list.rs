//! Lists as `kubectl get -o yaml` prints them: each item is an object of its own. As in `kubectl`, every object with
//! `items` is a list, whatever its kind is. An empty one is an object if its kind doesn't end with `List`, so that it is judged.
//!
//! `kubectl` knows lists by the discovery of the API server: `List` in each version of a group, and `<Kind>List` for each kind. An
//! unknown list in a built-in group stays an object, and so does a list in a list, which `kubectl` refuses.

use super::Document;
use super::node::{Content, DocumentEntry, DocumentNode};
use crate::field::Path;
use crate::kinds::{has_version, is_built_in, lookup};

/// Adds a document, or the items of a list, in order.
pub(super) fn flatten(root: DocumentNode, documents: &mut Vec<Document>) {
    let Some(kind) = kind_of_items(&root).map(str::to_owned) else {
        return documents.push(Document { root, item: Path::default() });
    };
    let Content::Map(mut entries) = root.content else { return };
    let Some(items) = entries.iter_mut().find(|entry| &*entry.key == "items") else { return };
    let Content::List(items) = std::mem::replace(&mut items.node.content, Content::Null) else { return };
    let path = Path::new("items");
    for (index, mut item) in items.into_iter().enumerate() {
        with_kind(&mut item, &kind, &entries);
        documents.push(Document { root: item, item: path.index(index) });
    }
}

/// The kind of the items of a list that have none.
fn kind_of_items(root: &DocumentNode) -> Option<&str> {
    let text = |field: &str| root.field(field).and_then(DocumentNode::as_text);
    let kind = text("kind")?;
    let api_version = text("apiVersion").unwrap_or_default();
    let of_items = match (kind.strip_suffix("List"), &root.field("items")?.content) {
        (Some(kind), Content::List(_) | Content::Null) => kind,
        (None, Content::List(items)) if !items.is_empty() => kind,
        _ => return None,
    };
    is_known(api_version, kind).then_some(of_items)
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
fn with_kind(item: &mut DocumentNode, kind: &str, list: &[DocumentEntry]) {
    if kind.is_empty() || item.field("kind").is_some() {
        return;
    }
    let (place, mark) = (item.place(), item.mark);
    let Content::Map(entries) = &mut item.content else { return };
    entries.retain(|entry| &*entry.key != "apiVersion");
    let version = list.iter().find(|entry| &*entry.key == "apiVersion");
    let version = version.map_or(Content::Null, |entry| entry.node.content.clone());
    for (key, content) in [("apiVersion", version), ("kind", Content::Text(kind.into()))] {
        entries.push(DocumentEntry { key: key.into(), mark, node: DocumentNode::new(place, content) });
    }
}
