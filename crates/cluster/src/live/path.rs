//! Paths on an API server. Names come from reviews and are not trusted: every part is percent-encoded.

use crate::encode::encoded as encode;
use crate::fleet::ListQuery;
use crate::{Address, Resource};

pub(super) use crate::encode::encoded;

/// Returns `/api/v1/namespaces`, `/apis/apps/v1/deployments`.
pub(super) fn collection(resource: &Resource) -> String {
    in_namespace(resource, "")
}

fn in_namespace(resource: &Resource, namespace: &str) -> String {
    let version = encode(&resource.version);
    let root = match &*resource.group {
        "" => format!("/api/{version}"),
        group => format!("/apis/{}/{version}", encode(group)),
    };
    let plural = encode(&resource.plural);
    if namespace.is_empty() {
        format!("{root}/{plural}")
    } else {
        format!("{root}/namespaces/{}/{plural}", encode(namespace))
    }
}

/// Returns the path of an object, or `None` for a name that would change the path: an empty name means the collection.
pub(super) fn object(address: Address<'_>) -> Option<String> {
    Some(format!("{}/{}", parent(address)?, encode(address.name)))
}

/// Returns the path to which an object is posted, with the same checks.
pub(super) fn parent(address: Address<'_>) -> Option<String> {
    let Address { resource, namespace, name } = address;
    let is_valid = !matches!(name, "" | "." | "..") && !matches!(namespace, "." | "..");
    is_valid.then(|| in_namespace(resource, namespace))
}

/// Returns the path of a page of a List, or `None` for a namespace that would change the path. It has no `resourceVersion`, so
/// the answer is the newest state and not a cached one.
pub(super) fn page(query: &ListQuery<'_>, label_selector: Option<&str>) -> Option<String> {
    let &ListQuery { resource, namespace, field_selector, limit, continue_token, .. } = query;
    if matches!(namespace, "." | "..") {
        return None;
    }
    let mut path = format!("{}?limit={limit}", in_namespace(resource, namespace));
    let parameters = [
        ("fieldSelector", field_selector),
        ("continue", continue_token.unwrap_or_default()),
        ("labelSelector", label_selector.unwrap_or_default()),
    ];
    for (key, value) in parameters.into_iter().filter(|(_, value)| !value.is_empty()) {
        path = format!("{path}&{key}={}", encode(value));
    }
    Some(path)
}

/// Returns the path of Karmada's proxy for a member cluster, or `None` for a name that no object can have (apimachinery's
/// `IsValidPathSegmentName`). Such a name could change the path, because the API server decodes `%2F` to a slash before it
/// routes.
pub(super) fn proxy(member: &str) -> Option<String> {
    let is_name = !matches!(member, "" | "." | "..") && !member.contains(['/', '%']);
    is_name.then(|| format!("/apis/cluster.karmada.io/v1alpha1/clusters/{}/proxy", encode(member)))
}
