//! Places in a pod where a patch adds something.
//!
//! The API server turns a patch that does not apply into an error, which failurePolicy Ignore admits
//! (`plugin/webhook/mutating/dispatcher.go`). The pod would lose its files. A [`Slot`] is made only from the value at its place.
//! Therefore its parent exists, its type is right, and an index is within its list.

use admission::{Pointer, Raw, Shape};

use super::pod::ContainerList;

/// The part of an affinity about nodes.
pub(super) const NODE_AFFINITY: &str = "nodeAffinity";
/// The preferred terms of a node affinity.
pub(super) const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// A list or a map of the pod to which the patch can add something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    path: SlotPath,
    is_missing: bool,
}

/// The lists and maps that the guard extends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotPath {
    /// `metadata.annotations`
    Annotations,
    /// `spec.volumes`
    Volumes,
    /// `spec.nodeSelector`
    NodeSelector,
    /// `spec.affinity`
    Affinity,
    /// `spec.affinity.nodeAffinity`
    NodeAffinity,
    /// The preferred terms of the node affinity.
    Preferred,
    /// The mounts of the container at this index.
    Mounts(ContainerList, usize),
    /// The resources of the container at this index.
    Resources(ContainerList, usize),
    /// The limits of the container at this index.
    Limits(ContainerList, usize),
    /// The requests of the container at this index.
    Requests(ContainerList, usize),
}

impl SlotPath {
    fn shape(self) -> Shape {
        match self {
            Self::Volumes | Self::Preferred | Self::Mounts(..) => Shape::Array,
            _ => Shape::Object,
        }
    }

    fn pointer(self) -> Pointer {
        let spec = || Pointer::root().key("spec");
        let container = |list: ContainerList, index| spec().key(list.key()).index(index);
        match self {
            Self::Annotations => Pointer::root().key("metadata").key("annotations"),
            Self::Volumes => spec().key("volumes"),
            Self::NodeSelector => spec().key("nodeSelector"),
            Self::Affinity => spec().key("affinity"),
            Self::NodeAffinity => Self::Affinity.pointer().key(NODE_AFFINITY),
            Self::Preferred => Self::NodeAffinity.pointer().key(PREFERRED),
            Self::Mounts(list, index) => container(list, index).key("volumeMounts"),
            Self::Resources(list, index) => container(list, index).key("resources"),
            Self::Limits(list, index) => Self::Resources(list, index).pointer().key("limits"),
            Self::Requests(list, index) => Self::Resources(list, index).pointer().key("requests"),
        }
    }
}

impl Slot {
    /// Returns the slot of a list or map with this value in the pod, or none if the value has another type.
    pub(super) fn read(path: SlotPath, value: Option<Raw<'_>>) -> Option<Self> {
        let shape = value.map_or(Shape::Null, Raw::shape);
        let is_missing = shape == Shape::Null;
        (is_missing || shape == path.shape()).then_some(Self { path, is_missing })
    }

    /// Returns whether the value is absent or null. The patch then adds the whole list or map.
    pub(super) fn is_missing(self) -> bool {
        self.is_missing
    }

    /// Returns the pointer to the list or map.
    pub(super) fn pointer(self) -> Pointer {
        self.path.pointer()
    }
}
