//! The extended resource for which the device plugin of the node mounts the files.
//!
//! The pod gets no volume, so Pod Security has nothing to reject. The scheduler counts the resource, so the pod runs only on nodes
//! with a healthy plugin. The plugin mounts all configured files, so a pod cannot select some of them. A container with a mount of
//! its own at, above or below one of the files gets nothing.
//!
//! Upstream facts (Kubernetes 1.35). The request of an extended resource must equal its limit (`validateResourceRequirements` in
//! `pkg/apis/core/validation`), so the patch adds both. The resource changes neither the quality of service nor limits of the whole
//! pod. Ephemeral containers cannot have resources. A pod with a `nodeName` bypasses the scheduler; if the plugin of its node is
//! unhealthy, the kubelet fails the pod permanently (`devicesToAllocate` in `pkg/kubelet/cm/devicemanager`).

use std::collections::BTreeMap;

use admission::Raw;

use super::containers::{PodContainer, is_positive};
use super::injection::Injection;
use super::pod::{Pod, Unreadable, members, shortened, unique_members};
use super::slot::{Slot, SlotPath};

/// The extended resource. A container has one or none.
pub(super) const RESOURCE: &str = ::lxcfs::DEVICE;
/// The amount for a container, as a Quantity.
const ONE: &str = "1";

/// The amount of the resource that a container requests.
#[derive(Debug, Clone, Copy)]
pub(super) enum Requested {
    /// An amount. True if it is more than zero.
    Amount(bool),
    /// No amount; the slots to add one.
    Nothing(ResourceSlots),
}

/// The slots of a container's resources.
#[derive(Debug, Clone, Copy)]
pub(super) enum ResourceSlots {
    /// The container has no resources.
    Missing(Slot),
    /// The container has resources.
    Present {
        /// Its limits.
        limits: Slot,
        /// Its requests.
        requests: Slot,
    },
}

/// Reads the amount that a container requests.
pub(super) fn requested(container: &PodContainer<'_>) -> Result<Requested, Unreadable> {
    let unreadable = |problem| Unreadable::new(format!("{}.resources", container.path()), problem);
    let (list, index) = (container.list, container.index);
    let slot = Slot::read(SlotPath::Resources(list, index), container.resources)
        .ok_or_else(|| unreadable("is not an object"))?;
    let Some(resources) = container.resources.filter(|_| !slot.is_missing()) else {
        return Ok(Requested::Nothing(ResourceSlots::Missing(slot)));
    };
    let [limits, requests] = unique_members(&mut resources.scan(), ["limits", "requests"], unreadable)?;
    let slots = ResourceSlots::Present {
        limits: Slot::read(SlotPath::Limits(list, index), limits)
            .ok_or_else(|| unreadable("has limits that are not an object"))?,
        requests: Slot::read(SlotPath::Requests(list, index), requests)
            .ok_or_else(|| unreadable("has requests that are not an object"))?,
    };
    // An amount in one of the two is the author's decision. It is invalid, or the API server defaults the other one.
    let amount = amount(limits).or_else(|| amount(requests));
    Ok(amount.map_or(Requested::Nothing(slots), |amount| Requested::Amount(is_positive(amount))))
}

fn amount(amounts: Option<Raw<'_>>) -> Option<Raw<'_>> {
    let ([amount], _) = members(&mut amounts?.scan(), [RESOURCE]).ok()?;
    amount
}

/// Returns a warning for a pod that bypasses the scheduler.
pub(super) fn node_name_warning(pod: Pod<'_>) -> Option<String> {
    let node = pod.node_name()?;
    let node = shortened(&node);
    Some(format!(
        "nodeName {node:?} bypasses the scheduler: if the LXCFS device plugin on that node is unhealthy, the kubelet fails this pod permanently"
    ))
}

impl Injection {
    /// Adds the resource to a container.
    pub(super) fn add_resource(&mut self, slots: ResourceSlots) -> Result<(), Unreadable> {
        match slots {
            ResourceSlots::Missing(slot) => {
                let amount = BTreeMap::from([(RESOURCE, ONE)]);
                self.add(&slot.pointer(), &BTreeMap::from([("limits", &amount), ("requests", &amount)]))
            }
            ResourceSlots::Present { limits, requests } => {
                self.add_entry(limits, RESOURCE, &ONE)?;
                self.add_entry(requests, RESOURCE, &ONE)
            }
        }
    }
}
