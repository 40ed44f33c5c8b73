//! A pod as spans of the review: the fields that the guard reads.
//!
//! The pod is not parsed into a tree and not written again, so unknown fields are kept. A pod that violates the API (a container
//! that is a number, a duplicate name) is [`Unreadable`]. Such a pod is admitted unchanged, because the API server rejects it with
//! a better message.

use std::borrow::Cow;

use admission::text::truncate;
use admission::{JsonError, Raw, ReviewedObject, Scanner, Shape};

admission::fields! {
    /// A field of a pod. The older label of the operating system counts too.
    pub(super) enum PodField {
        Metadata = "/metadata",
        Annotations = "/metadata/annotations",
        Labels = "/metadata/labels",
        Spec = "/spec",
        Volumes = "/spec/volumes",
        Containers = "/spec/containers",
        InitContainers = "/spec/initContainers",
        EphemeralContainers = "/spec/ephemeralContainers",
        HostPid = "/spec/hostPID",
        ShareProcessNamespace = "/spec/shareProcessNamespace",
        HostUsers = "/spec/hostUsers",
        Os = "/spec/os/name",
        NodeOs = "/spec/nodeSelector/kubernetes.io~1os",
        RuntimeClass = "/spec/runtimeClassName",
        PodLimits = "/spec/resources/limits",
        OldNodeOs = "/spec/nodeSelector/beta.kubernetes.io~1os",
        WindowsOptions = "/spec/securityContext/windowsOptions",
        NodeName = "/spec/nodeName",
        NodeSelector = "/spec/nodeSelector",
        Affinity = "/spec/affinity",
        Owners = "/metadata/ownerReferences",
    }
}

/// Length of a pod's string in a message, in characters. Names of containers and namespaces have at most 63.
const MAX_CHARS: usize = 64;

/// Returns as much of a pod's string as a message contains.
pub(super) fn shortened(value: &str) -> Cow<'_, str> {
    truncate(value, MAX_CHARS)
}

/// Error: a pod cannot be read, as in "spec.containers\[2\] is not an object".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub(super) struct Unreadable {
    field: String,
    problem: &'static str,
}

impl Unreadable {
    /// Creates the error for a field.
    pub(super) fn new(field: impl Into<String>, problem: &'static str) -> Self {
        Self { field: field.into(), problem }
    }
}

impl From<JsonError> for Unreadable {
    /// Converts the error of a value with an unexpected type. The grammar of spans was checked before.
    fn from(error: JsonError) -> Self {
        Self::new("the pod", error.what)
    }
}

/// The three lists of containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContainerList {
    /// `spec.containers`
    Containers,
    /// `spec.initContainers`
    Init,
    /// `spec.ephemeralContainers`
    Ephemeral,
}

impl ContainerList {
    /// Returns the key in the spec.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Containers => "containers",
            Self::Init => "initContainers",
            Self::Ephemeral => "ephemeralContainers",
        }
    }

    /// Returns the field of the list.
    pub(super) fn field(self) -> PodField {
        match self {
            Self::Containers => PodField::Containers,
            Self::Init => PodField::InitContainers,
            Self::Ephemeral => PodField::EphemeralContainers,
        }
    }
}

/// A pod that has metadata and a spec.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pod<'a> {
    object: &'a ReviewedObject<'a>,
}

impl<'a> Pod<'a> {
    /// Reads the object of a review as a pod.
    pub(super) fn read(object: Option<&'a ReviewedObject<'a>>) -> Result<Self, Unreadable> {
        let object = object.ok_or_else(|| Unreadable::new("the object", "is not in the review"))?;
        if let Some(key) = object.duplicate_key() {
            return Err(Unreadable::new(key, "is duplicate"));
        }
        let pod = Self { object };
        for (field, name) in [(PodField::Metadata, "metadata"), (PodField::Spec, "spec")] {
            if pod.field(field).map(Raw::shape) != Some(Shape::Object) {
                return Err(Unreadable::new(name, "is not an object"));
            }
        }
        Ok(pod)
    }

    /// Returns the whole pod.
    #[cfg(debug_assertions)]
    pub(super) fn raw(self) -> Raw<'a> {
        self.object.raw()
    }

    /// Returns the value of a field.
    pub(super) fn field(self, field: PodField) -> Option<Raw<'a>> {
        self.object.field(field)
    }

    /// Returns the value of a field if it is a string.
    pub(super) fn text(self, field: PodField) -> Option<Cow<'a, str>> {
        self.field(field).and_then(Raw::text)
    }

    /// Returns whether a field is true.
    pub(super) fn is_true(self, field: PodField) -> bool {
        self.field(field).is_some_and(Raw::is_true)
    }

    /// Returns the name of the node that the pod is bound to.
    pub(super) fn node_name(self) -> Option<Cow<'a, str>> {
        self.text(PodField::NodeName).filter(|node| !node.is_empty())
    }
}

/// Calls `each` for every entry of a map, which can be absent or null. `name` is its name in an error.
pub(super) fn entries<'a>(
    map: Option<Raw<'a>>,
    name: &str,
    mut each: impl FnMut(&str, Raw<'a>) -> Result<(), Unreadable>,
) -> Result<(), Unreadable> {
    match map.map(|map| (map, map.shape())) {
        None | Some((_, Shape::Null)) => Ok(()),
        Some((map, Shape::Object)) => map.scan().object(|scanner, key| each(&key, scanner.value()?)),
        Some(_) => Err(Unreadable::new(name, "is not an object")),
    }
}

/// Calls `each` for every element of a list, which can be absent or null. `name` is its name in an error.
pub(super) fn elements<'a>(
    list: Option<Raw<'a>>,
    name: impl Into<String>,
    each: impl FnMut(&mut Scanner<'a>, usize) -> Result<(), Unreadable>,
) -> Result<(), Unreadable> {
    match list.map(|list| (list, list.shape())) {
        None | Some((_, Shape::Null)) => Ok(()),
        Some((list, Shape::Array)) => list.scan().array(each),
        Some(_) => Err(Unreadable::new(name, "is not an array")),
    }
}

/// Returns the values of these keys in the object at the scanner, and whether one of the keys is duplicate. The last value counts.
pub(super) fn members<'a, const N: usize>(
    scanner: &mut Scanner<'a>,
    keys: [&str; N],
) -> Result<([Option<Raw<'a>>; N], bool), JsonError> {
    let (mut values, mut is_duplicate) = ([None; N], false);
    scanner.object(|scanner, key| {
        let value = scanner.value()?;
        let at = keys.iter().position(|wanted| *wanted == key);
        if let Some(found) = at.and_then(|at| values.get_mut(at)) {
            is_duplicate |= found.replace(value).is_some();
        }
        Ok::<_, JsonError>(())
    })?;
    Ok((values, is_duplicate))
}

/// Returns the values of these keys in the object at the scanner. Returns an error for another type and for a duplicate key.
pub(super) fn unique_members<'a, const N: usize>(
    scanner: &mut Scanner<'a>,
    keys: [&str; N],
    unreadable: impl Fn(&'static str) -> Unreadable,
) -> Result<[Option<Raw<'a>>; N], Unreadable> {
    if scanner.peek()? != Shape::Object {
        return Err(unreadable("is not an object"));
    }
    match members(scanner, keys)? {
        (values, false) => Ok(values),
        (_, true) => Err(unreadable("has a duplicate key")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::fixture::with_pod;
    use super::*;

    #[test]
    fn fills_every_field() {
        let pod = json!({
            "metadata": {"annotations": {"at": "annotations"}, "labels": {"at": "labels"}, "ownerReferences": "owners"},
            "spec": {
                "volumes": "volumes", "containers": "containers", "initContainers": "init",
                "ephemeralContainers": "ephemeral", "hostPID": "pid", "shareProcessNamespace": "processes",
                "hostUsers": "users", "os": {"name": "os"}, "runtimeClassName": "class",
                "nodeSelector": {"kubernetes.io/os": "node", "beta.kubernetes.io/os": "old node"},
                "resources": {"limits": "limits"}, "securityContext": {"windowsOptions": "windows"},
                "nodeName": "bound", "affinity": "affinity",
            },
        });
        with_pod(&pod, |pod| {
            for (field, expected) in [
                (PodField::Annotations, r#"{"at":"annotations"}"#),
                (PodField::Labels, r#"{"at":"labels"}"#),
                (PodField::Volumes, r#""volumes""#),
                (ContainerList::Containers.field(), r#""containers""#),
                (ContainerList::Init.field(), r#""init""#),
                (ContainerList::Ephemeral.field(), r#""ephemeral""#),
                (PodField::HostPid, r#""pid""#),
                (PodField::ShareProcessNamespace, r#""processes""#),
                (PodField::HostUsers, r#""users""#),
                (PodField::Os, r#""os""#),
                (PodField::NodeOs, r#""node""#),
                (PodField::OldNodeOs, r#""old node""#),
                (PodField::RuntimeClass, r#""class""#),
                (PodField::PodLimits, r#""limits""#),
                (PodField::WindowsOptions, r#""windows""#),
                (PodField::NodeName, r#""bound""#),
                (PodField::NodeSelector, r#"{"kubernetes.io/os":"node","beta.kubernetes.io/os":"old node"}"#),
                (PodField::Affinity, r#""affinity""#),
                (PodField::Owners, r#""owners""#),
            ] {
                assert_eq!(pod.field(field).map(Raw::get), Some(expected), "{field:?}");
            }
            // Fails if there are more pointers than decoding can fill.
            assert!((0..PodField::POINTERS.len()).all(|index| pod.object.field(index).is_some()));
        });
    }
}
