//! Where things are on an API server. Names come from reviews and are not trusted: nothing in them may lead elsewhere.

use crate::world::{Address, Resource};

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

/// Percent-encodes everything that has a meaning in a URL.
pub(super) fn encoded(text: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}
