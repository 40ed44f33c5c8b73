//! The pod as spans of the review: the few fields that are read of it, and how its lists stand.
//!
//! Nothing of the pod is turned into a tree or written again, so a field that this code has never heard of cannot be lost.
//! A pod that is not what the API says (a container that is a number, a name that stands twice) is [`Unreadable`]; it is
//! admitted as it is, because the API server refuses such a pod by itself and says why better than we could.

use std::borrow::Cow;

use admission::{JsonError, Object, Raw, Shape};

/// What decoding fills for this guard, in the order of the constants below.
pub(super) const POINTERS: [&str; 21] = [
    "/metadata",
    "/metadata/annotations",
    "/metadata/labels",
    "/spec",
    "/spec/volumes",
    "/spec/containers",
    "/spec/initContainers",
    "/spec/ephemeralContainers",
    "/spec/hostPID",
    "/spec/shareProcessNamespace",
    "/spec/hostUsers",
    "/spec/os/name",
    "/spec/nodeSelector/kubernetes.io~1os",
    "/spec/runtimeClassName",
    "/spec/resources/limits",
    "/spec/nodeSelector/beta.kubernetes.io~1os",
    "/spec/securityContext/windowsOptions",
    "/spec/nodeName",
    "/spec/nodeSelector",
    "/spec/affinity",
    "/metadata/ownerReferences",
];
const METADATA: usize = 0;
/// Index of the annotations among the fields.
pub(super) const ANNOTATIONS: usize = 1;
const LABELS: usize = 2;
/// Index of the spec among the fields.
pub(super) const SPEC: usize = 3;
/// Index of the volumes among the fields.
pub(super) const VOLUMES: usize = 4;
const CONTAINERS: usize = 5;
const INIT_CONTAINERS: usize = 6;
const EPHEMERAL_CONTAINERS: usize = 7;
/// Index of `hostPID` among the fields.
pub(super) const HOST_PID: usize = 8;
/// Index of `shareProcessNamespace` among the fields.
pub(super) const SHARED_PROCESSES: usize = 9;
/// Index of `hostUsers` among the fields.
pub(super) const HOST_USERS: usize = 10;
/// Index of the operating system among the fields.
pub(super) const OS: usize = 11;
/// Index of the operating system that the node selector asks for among the fields.
pub(super) const NODE_OS: usize = 12;
/// Index of the runtime class among the fields.
pub(super) const RUNTIME_CLASS: usize = 13;
/// Index of the limits of the pod as a whole among the fields.
pub(super) const POD_LIMITS: usize = 14;
/// Index of the operating system under the node label's older name among the fields.
pub(super) const OLD_NODE_OS: usize = 15;
/// Index of the options that only Windows has among the fields.
pub(super) const WINDOWS_OPTIONS: usize = 16;
/// Index of the node that the pod is bound to among the fields.
pub(super) const NODE_NAME: usize = 17;
/// Index of the node selector among the fields.
pub(super) const NODE_SELECTOR: usize = 18;
/// Index of the affinity among the fields.
pub(super) const AFFINITY: usize = 19;
/// Index of the pod's owners among the fields.
pub(super) const OWNERS: usize = 20;

/// Why a pod cannot be read: a field, and what is wrong with it, as in "spec.containers\[2\] is not an object".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {why}")]
pub(super) struct Unreadable {
    field: String,
    why: &'static str,
}

impl Unreadable {
    /// This field, for this reason.
    pub(super) fn new(field: impl Into<String>, why: &'static str) -> Self {
        Self { field: field.into(), why }
    }
}

impl From<JsonError> for Unreadable {
    /// Spans were checked when they were shortened, so this tells of a value that is of another type than was just looked at.
    fn from(error: JsonError) -> Self {
        Self::new("the pod", error.what)
    }
}

/// Whether the pod has a list or a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// Absent or null.
    Missing,
    /// Present, maybe empty.
    Present,
}

impl Presence {
    /// Returns the presence of a value, or none if it has another type.
    pub(super) fn of(value: Option<Raw<'_>>, shape: Shape) -> Option<Self> {
        match value.map(Raw::shape) {
            None | Some(Shape::Null) => Some(Self::Missing),
            Some(found) if found == shape => Some(Self::Present),
            Some(_) => None,
        }
    }
}

/// The three lists of containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum List {
    /// `spec.containers`
    Containers,
    /// `spec.initContainers`
    Init,
    /// `spec.ephemeralContainers`
    Ephemeral,
}

impl List {
    /// The key of the spec.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Containers => "containers",
            Self::Init => "initContainers",
            Self::Ephemeral => "ephemeralContainers",
        }
    }

    /// Its index among the fields.
    pub(super) fn field(self) -> usize {
        match self {
            Self::Containers => CONTAINERS,
            Self::Init => INIT_CONTAINERS,
            Self::Ephemeral => EPHEMERAL_CONTAINERS,
        }
    }
}

/// A pod that has metadata and a spec.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pod<'a> {
    object: &'a Object<'a>,
}

impl<'a> Pod<'a> {
    /// Sees a pod in the object.
    pub(super) fn see(object: Option<&'a Object<'a>>) -> Result<Self, Unreadable> {
        let object = object.ok_or_else(|| Unreadable::new("the object", "is not in the review"))?;
        if let Some(key) = object.duplicate_key() {
            return Err(Unreadable::new(key, "stands twice"));
        }
        for (field, name) in [(METADATA, "metadata"), (SPEC, "spec")] {
            if object.field(field).map(Raw::shape) != Some(Shape::Object) {
                return Err(Unreadable::new(name, "is not an object"));
            }
        }
        Ok(Self { object })
    }

    /// Returns the whole pod.
    #[cfg(debug_assertions)]
    pub(super) fn raw(self) -> Raw<'a> {
        self.object.raw()
    }

    /// One of the fields.
    pub(super) fn field(self, index: usize) -> Option<Raw<'a>> {
        self.object.field(index)
    }

    /// One of the fields, as a text.
    pub(super) fn text(self, index: usize) -> Option<Cow<'a, str>> {
        self.field(index).and_then(Raw::text)
    }

    /// Whether one of the fields is true.
    pub(super) fn is_true(self, index: usize) -> bool {
        self.field(index).is_some_and(Raw::is_true)
    }

    /// Calls `each` with every annotation.
    pub(super) fn annotations(
        self,
        each: impl FnMut(&str, Raw<'a>) -> Result<(), Unreadable>,
    ) -> Result<(), Unreadable> {
        entries(self.field(ANNOTATIONS), "metadata.annotations", each)
    }

    /// Calls `each` with every label.
    pub(super) fn labels(
        self,
        each: impl FnMut(&str, Raw<'a>) -> Result<(), Unreadable>,
    ) -> Result<(), Unreadable> {
        entries(self.field(LABELS), "metadata.labels", each)
    }
}

/// Calls `each` with every entry of a map, which may be absent or null; `name` is what it is called in an error.
pub(super) fn entries<'a>(
    map: Option<Raw<'a>>,
    name: &str,
    mut each: impl FnMut(&str, Raw<'a>) -> Result<(), Unreadable>,
) -> Result<(), Unreadable> {
    match Presence::of(map, Shape::Object) {
        None => Err(Unreadable::new(name, "is not an object")),
        Some(Presence::Missing) => Ok(()),
        Some(Presence::Present) => map.map_or(Ok(()), |map| {
            map.scan().object(|scanner, key| {
                let value = scanner.value()?;
                each(&key, value)
            })
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::fixture::with_pod;
    use super::*;

    #[test]
    fn every_field_is_filled_from_its_own_place() {
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
            for (index, expected) in [
                (ANNOTATIONS, r#"{"at":"annotations"}"#),
                (LABELS, r#"{"at":"labels"}"#),
                (VOLUMES, r#""volumes""#),
                (List::Containers.field(), r#""containers""#),
                (List::Init.field(), r#""init""#),
                (List::Ephemeral.field(), r#""ephemeral""#),
                (HOST_PID, r#""pid""#),
                (SHARED_PROCESSES, r#""processes""#),
                (HOST_USERS, r#""users""#),
                (OS, r#""os""#),
                (NODE_OS, r#""node""#),
                (OLD_NODE_OS, r#""old node""#),
                (RUNTIME_CLASS, r#""class""#),
                (POD_LIMITS, r#""limits""#),
                (WINDOWS_OPTIONS, r#""windows""#),
                (NODE_NAME, r#""bound""#),
                (NODE_SELECTOR, r#"{"beta.kubernetes.io/os":"old node","kubernetes.io/os":"node"}"#),
                (AFFINITY, r#""affinity""#),
                (OWNERS, r#""owners""#),
            ] {
                assert_eq!(pod.field(index).map(Raw::get), Some(expected), "{}", POINTERS[index]);
            }
            // Fails if there are more pointers than one decode can fill.
            assert!((0..POINTERS.len()).all(|index| pod.field(index).is_some()));
        });
    }
}
