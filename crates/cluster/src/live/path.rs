//! Where things are on an API server. Names come from reviews and are not trusted: nothing in them may lead elsewhere.

use std::fmt::Write as _;

pub(super) use crate::encode::encoded;
use crate::fleet::ListQuery;
use crate::{Address, Resource};

/// `/api/v1/namespaces`, `/apis/apps/v1/deployments`.
pub(super) fn collection(resource: &Resource) -> String {
    root(resource) + "/" + &encoded(&resource.plural)
}

fn root(resource: &Resource) -> String {
    if resource.group.is_empty() {
        format!("/api/{}", encoded(&resource.version))
    } else {
        format!("/apis/{}/{}", encoded(&resource.group), encoded(&resource.version))
    }
}

/// The path of one object; none where a part of it would lead elsewhere: an empty name is the whole collection.
pub(super) fn object(address: Address<'_>) -> Option<String> {
    let Address { resource, namespace, name } = address;
    let leads_elsewhere = |part: &str| matches!(part, "" | "." | "..");
    if leads_elsewhere(name) || matches!(namespace, "." | "..") {
        return None;
    }
    let (plural, name) = (encoded(&resource.plural), encoded(name));
    Some(if namespace.is_empty() {
        format!("{}/{plural}/{name}", root(resource))
    } else {
        format!("{}/namespaces/{}/{plural}/{name}", root(resource), encoded(namespace))
    })
}

/// Where an object is made; none where a part of it would lead elsewhere.
pub(super) fn made(address: Address<'_>) -> Option<String> {
    object(address)?.rsplit_once('/').map(|(path, _)| path.to_owned())
}

/// The path of a page of a List; none where a part of it would lead elsewhere.
pub(super) fn page(query: &ListQuery<'_>) -> Option<String> {
    let ListQuery { resource, namespace, field_selector: fields, limit, continue_token: from, .. } = *query;
    if matches!(namespace, "." | "..") {
        return None;
    }
    let mut path = if namespace.is_empty() {
        collection(resource)
    } else {
        format!("{}/namespaces/{}/{}", root(resource), encoded(namespace), encoded(&resource.plural))
    };
    // No resourceVersion: the newest state, not what a cache of the API server's happens to hold.
    path.push_str("?limit=");
    path.push_str(&limit.to_string());
    for (key, value) in [("fieldSelector", fields), ("continue", from.unwrap_or_default())] {
        if !value.is_empty() {
            // Writing to a String cannot fail.
            let _ = write!(path, "&{key}={}", encoded(value));
        }
    }
    Some(path)
}

/// What stands before each path of a member of a Karmada fleet. None for a name that no object can have (apimachinery's
/// `IsValidPathSegmentName`): a slash would be one again behind the API server's decoding.
pub(super) fn through(member: &str) -> Option<String> {
    let is_name = !matches!(member, "" | "." | "..") && !member.contains(['/', '%']);
    is_name.then(|| format!("/apis/cluster.karmada.io/v1alpha1/clusters/{}/proxy", encoded(member)))
}
