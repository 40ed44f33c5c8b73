//! Plans what each selected container gets. Pure: containers and configuration in, plans out.
//!
//! A plan depends on what is mounted in the container. Therefore a second review of a pod or of its copy plans no additions, and
//! a review after another webhook added a container plans additions for that container only.

use std::fmt::Write as _;

use super::config::Config;
use super::containers::{PodContainer, ResourceLimits};
use super::device::{self, Requested, ResourceSlots};
use super::files::Files;
use super::pod::{Unreadable, shortened};

/// The plan of a selected container: mounts of files, or the extended resource of the device plugin.
#[derive(Debug)]
pub(super) struct MountPlan<'a> {
    /// The container.
    pub(super) container: PodContainer<'a>,
    /// The files that LXCFS shows in it by mounts after the patch.
    pub(super) shown: Files,
    /// The files whose mounts the patch adds.
    pub(super) added: Files,
    /// The files that it does not get, because they conflict with mounts of the pod.
    pub(super) blocked: Files,
    /// The extended resource.
    pub(super) device: Device,
}

/// The extended resource in a plan.
#[derive(Debug, Clone, Copy)]
pub(super) enum Device {
    /// The container does not get it.
    None,
    /// The pod or an earlier patch requests an amount, which stays. True if it is more than zero.
    Requested(bool),
    /// The patch adds it.
    Added(ResourceSlots),
}

impl<'a> MountPlan<'a> {
    /// Plans mounts of `files`.
    pub(super) fn mounts(
        config: &Config,
        files: Files,
        pod_limits: ResourceLimits,
        container: PodContainer<'a>,
    ) -> Self {
        let wanted = config.files_for(files, container.limits.union(pod_limits));
        let conflicting = container.conflicting_files();
        let added = wanted.without(container.shown).without(conflicting);
        Self {
            shown: container.shown.union(added),
            added,
            blocked: wanted.intersection(conflicting),
            device: Device::None,
            container,
        }
    }

    /// Plans the extended resource. The plugin mounts all files or none, so one conflict blocks it.
    pub(super) fn device(
        config: &Config,
        pod_limits: ResourceLimits,
        container: PodContainer<'a>,
    ) -> Result<Self, Unreadable> {
        let limits = container.limits.union(pod_limits);
        let occupied = container.shown.union(container.conflicting_files());
        let (mut device, mut blocked) = (Device::None, Files::default());
        match device::requested(&container)? {
            Requested::Amount(is_positive) => device = Device::Requested(is_positive),
            Requested::Nothing(_) if !config.files.intersection(occupied).is_empty() => {
                blocked = config.files.intersection(occupied);
            }
            Requested::Nothing(_) if config.files_for(config.files, limits).is_empty() => {}
            Requested::Nothing(slots) => device = Device::Added(slots),
        }
        let none = Files::default();
        Ok(Self { container, shown: none, added: none, blocked, device })
    }

    /// Returns whether the container gets nothing because it has no limit that a file would show.
    pub(super) fn lacks_limits(&self) -> bool {
        self.shown.is_empty() && self.blocked.is_empty() && matches!(self.device, Device::None)
    }

    /// Appends what the container shows after the patch. The text depends on the mounts only, so that a second review does not
    /// change it. It does not name the files of the device plugin, because the plugin decides them.
    pub(super) fn describe(&self, text: &mut String) {
        // Writing to a String cannot fail.
        let _ = match self.device {
            Device::Added(_) | Device::Requested(true) => write!(text, "{}=device", self.container.name),
            _ if self.shown.is_empty() => write!(text, "{}=none", self.container.name),
            _ => write!(text, "{}={}", self.container.name, self.shown),
        };
        if !self.blocked.is_empty() {
            let _ = write!(text, " (mounted by the pod: {})", self.blocked);
        }
    }

    /// Returns a warning if the pod's own mounts block files.
    pub(super) fn conflict(&self, by_device: bool) -> Option<String> {
        let first = self.blocked.iter().next()?;
        let blocks = |files: Files| !files.intersection(self.blocked).is_empty();
        let conflict = self.container.conflicts.iter().find(|conflict| blocks(conflict.files));
        let path = shortened(conflict.map_or(first.path(), |conflict| &conflict.path));
        let (name, blocked) = (shortened(&self.container.name), self.blocked);
        Some(if by_device {
            format!(
                "container {name:?} already mounts {path}, so it gets no LXCFS files: the device plugin mounts all files or none"
            )
        } else {
            format!("container {name:?} already mounts {path}, so it does not get {blocked} of LXCFS")
        })
    }
}
