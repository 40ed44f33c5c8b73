//! Places in a pod at which a patch adds something.
//!
//! The API server turns a patch that does not apply into an error that failurePolicy Ignore admits
//! (`plugin/webhook/mutating/dispatcher.go`): the pod would lose its files. A [`Slot`] is made only from the value that was read at
//! its place. Therefore its parent exists, its type is right, and an index is within its list.

use admission::{Pointer, Raw, Shape};

use super::pod::{List, Presence};
use super::readiness::{NODE_AFFINITY, PREFERRED};

/// A list or a map of the pod to which something can be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    target: Target,
    presence: Presence,
}

/// The lists and maps to which the guard adds something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
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
    Mounts(List, usize),
    /// The resources of the container at this index.
    Resources(List, usize),
    /// The limits of the container at this index.
    Limits(List, usize),
    /// The requests of the container at this index.
    Requests(List, usize),
}

impl Target {
    fn shape(self) -> Shape {
        match self {
            Self::Volumes | Self::Preferred | Self::Mounts(..) => Shape::Array,
            _ => Shape::Object,
        }
    }

    fn pointer(self) -> Pointer {
        let spec = || Pointer::root().key("spec");
        let container = |list: List, index| spec().key(list.key()).index(index);
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
    /// Returns the slot of a target with its value in the pod, or none if the value has another type.
    pub(super) fn read(target: Target, value: Option<Raw<'_>>) -> Option<Self> {
        Presence::of(value, target.shape()).map(|presence| Self { target, presence })
    }

    /// Returns whether the pod has no value there, or null. Then the list or map is added as a whole.
    pub(super) fn is_missing(self) -> bool {
        self.presence == Presence::Missing
    }

    /// Returns the path of the list or map.
    pub(super) fn pointer(self) -> Pointer {
        self.target.pointer()
    }
}
