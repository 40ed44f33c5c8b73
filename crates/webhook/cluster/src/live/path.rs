//! Paths on an API server. Names come from reviews and are not trusted: every part is percent-encoded, and a name that no
//! object can have is refused.

use std::fmt::Write as _;

use crate::encode::encoded as encode;
use crate::fleet::ListQuery;
use crate::{Address, Resource};

/// The initial capacity in bytes. Most paths fit, also those through Karmada's proxy.
const CAPACITY: usize = 192;

/// Returns `/api/v1/namespaces`, `/apis/apps/v1/namespaces/shop/deployments`.
fn in_namespace(resource: &Resource, namespace: &str) -> String {
    let mut path = String::with_capacity(CAPACITY);
    if resource.group.is_empty() {
        path.push_str("/api");
    } else {
        push(&mut path, "/apis/", &resource.group);
    }
    push(&mut path, "/", &resource.version);
    if !namespace.is_empty() {
        push(&mut path, "/namespaces/", namespace);
    }
    push(&mut path, "/", &resource.plural);
    path
}

/// Appends a separator and an encoded part. A verdict over a fleet sends thousands of requests, and `format!` takes three times as long.
fn push(path: &mut String, separator: &str, part: &str) {
    path.push_str(separator);
    path.extend(encode(part));
}

/// Returns the path of an object, or `None` for a name that would change the path: an empty name means the collection.
pub(super) fn object(address: Address<'_>) -> Option<String> {
    let Address { resource, namespace, name } = address;
    if !is_segment(name) || !(namespace.is_empty() || is_segment(namespace)) {
        return None;
    }
    let mut path = in_namespace(resource, namespace);
    push(&mut path, "/", name);
    Some(path)
}

/// Returns the path of a page of a List, or `None` for a namespace that would change the path. It has no `resourceVersion`, so
/// the answer is the newest state and not a cached one.
pub(super) fn page(query: &ListQuery<'_>) -> Option<String> {
    let &ListQuery { resource, namespace, field_selector, label_selector, limit, continue_token, .. } = query;
    if !namespace.is_empty() && !is_segment(namespace) {
        return None;
    }
    let mut path = in_namespace(resource, namespace);
    // Writing to a `String` can't fail.
    let _ = write!(path, "?limit={limit}");
    let parameters = [
        ("&fieldSelector=", field_selector),
        ("&continue=", continue_token.unwrap_or_default()),
        ("&labelSelector=", label_selector),
    ];
    for (key, value) in parameters.into_iter().filter(|(_, value)| !value.is_empty()) {
        push(&mut path, key, value);
    }
    Some(path)
}

/// Returns the path of Karmada's proxy for a member cluster, or `None` for a name that would change the path.
pub(super) fn proxy(member: &str) -> Option<String> {
    let mut path = object(Address { resource: &Resource::CLUSTERS, namespace: "", name: member })?;
    path.push_str("/proxy");
    Some(path)
}

/// Returns whether an object can have this name (apimachinery's `IsValidPathSegmentName`). Another name could change the path,
/// because the API server decodes `%2F` to a slash before it routes.
fn is_segment(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '%'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_names_that_would_change_the_path() {
        for name in [".", "..", "a/b", "../b", "a%2fb", "%"] {
            let resource = &Resource::SECRETS;
            assert_eq!(object(Address { resource, namespace: "db", name }), None, "{name}");
            assert_eq!(object(Address { resource, namespace: name, name: "a" }), None, "{name}");
            assert_eq!(proxy(name), None, "{name}");
        }
        let address = Address { resource: &Resource::SECRETS, namespace: "db", name: "a:b c" };
        assert_eq!(object(address).as_deref(), Some("/api/v1/namespaces/db/secrets/a%3Ab%20c"));
        assert_eq!(proxy(""), None);
    }
}
