//! The patch of a pod: selects containers, plans their mounts and writes the operations.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use admission::{Patch, Pointer};
use serde::Serialize;

use super::config::Config;
use super::containers::{PodContainer, ResourceLimits};
use super::device;
use super::files::Files;
use super::injection::Injection;
use super::messages;
use super::mount_plan::{Device, MountPlan};
use super::opt_in::{PodOptIn, STATUS};
use super::pod::{ContainerList, Pod, PodField, Unreadable};
use super::slot::{Slot, SlotPath};
use super::volumes::Volumes;
use ::lxcfs::LxcfsFile;
use ::lxcfs::MountMethod;

/// Limit of all annotations of an object (`TotalAnnotationSizeLimitB` in `apimachinery/pkg/api/validation`).
const MAX_ANNOTATIONS: usize = 256 << 10;

/// The volume name of each file.
type VolumeNames<'v> = [Cow<'v, str>; LxcfsFile::ALL.len()];

/// Adds the files to a new pod, by the device plugin or by volumes.
pub(super) fn into_new_pod<'a>(
    config: &Config,
    pod: Pod<'a>,
    opt_in: &PodOptIn<'_>,
    mut volumes: Volumes<'a>,
    by_device: bool,
) -> Result<Injection, Unreadable> {
    let (containers, selection_warning) = select(config, pod, opt_in, &mut volumes)?;
    let (files, mut warnings) = if by_device {
        (config.files, opt_in.partial_files_warning(config.files).into_iter().collect())
    } else {
        opt_in.files(config.files)
    };
    warnings.extend(selection_warning);
    let pod_limits = ResourceLimits::of_pod(pod);
    let plan = |container| {
        if by_device {
            MountPlan::device(config, pod_limits, container)
        } else {
            Ok(MountPlan::mounts(config, files, pod_limits, container))
        }
    };
    let plans = containers.into_iter().map(plan).collect::<Result<Vec<_>, _>>()?;
    warnings.extend(messages::conflicts(&plans, by_device));
    warnings.extend(messages::no_files(&plans, files).map(str::to_owned));
    if plans.iter().any(|plan| matches!(plan.device, Device::Added(_))) {
        warnings.extend(device::node_name_warning(pod));
    }

    let mut injection = Injection::new(&plans, warnings);
    injection.add_volumes_and_mounts(config, &plans, &volumes)?;
    for plan in &plans {
        if let Device::Added(slots) = plan.device {
            injection.add_resource(slots)?;
        }
    }
    // Mounts that the pod had before need a node that serves them too.
    if plans.iter().any(|plan| !plan.shown.is_empty()) {
        injection.select_nodes(config.node_affinity, pod)?;
    }
    injection.add_status(pod, opt_in)?;
    Ok(injection)
}

/// Adds the files to new ephemeral containers of a running pod. Its volumes and annotations cannot change, so only files of
/// existing volumes are mounted, and no status is written.
pub(super) fn into_running_pod<'a>(
    config: &Config,
    pod: Pod<'a>,
    old: Pod<'a>,
    opt_in: &PodOptIn<'_>,
    mut volumes: Volumes<'a>,
) -> Result<Injection, Unreadable> {
    let (mut containers, mut before) = (Vec::new(), Vec::new());
    PodContainer::read_list(pod, ContainerList::Ephemeral, &mut volumes, &mut containers)?;
    PodContainer::read_list(old, ContainerList::Ephemeral, &mut volumes, &mut before)?;
    unique_names(&containers)?;
    let before = unique_names(&before)?;
    containers.retain(|container| !before.contains(container.name.as_ref()));
    let is_empty = containers.is_empty();
    let (containers, _) = selected(config, opt_in, containers)?;
    let (files, _) = opt_in.files(config.files);
    let available = files.filter(|file| volumes.reusable(file).is_some());
    let pod_limits = ResourceLimits::of_pod(pod);
    let plan = |container| MountPlan::mounts(config, available, pod_limits, container);
    let plans: Vec<_> = containers.into_iter().map(plan).collect();

    let mut warnings = messages::conflicts(&plans, false);
    let reason = if plans.is_empty() && !is_empty {
        Some("annotation durward.dev/lxcfs-containers does not select it")
    } else if plans.is_empty() || !plans.iter().all(MountPlan::lacks_limits) {
        None
    } else if available.is_empty() {
        Some(no_volumes_reason(config.mount_method))
    } else {
        Some(
            "onlyLimitedContainers is true, and neither the container nor the pod has a limit that the files show",
        )
    };
    warnings.extend(reason.map(|reason| format!("no files added to this container: {reason}")));
    let mut injection = Injection::new(&plans, warnings);
    injection.add_volumes_and_mounts(config, &plans, &volumes)?;
    Ok(injection)
}

/// Returns the selected containers of a new pod, and a warning about the selection.
fn select<'a>(
    config: &Config,
    pod: Pod<'a>,
    opt_in: &PodOptIn<'_>,
    volumes: &mut Volumes<'a>,
) -> Result<(Vec<PodContainer<'a>>, Option<String>), Unreadable> {
    let mut containers = Vec::new();
    // All containers are read, because each can mount a volume whose name a new volume would get.
    for list in [ContainerList::Containers, ContainerList::Init, ContainerList::Ephemeral] {
        PodContainer::read_list(pod, list, volumes, &mut containers)?;
    }
    let (mut containers, warning) = selected(config, opt_in, containers)?;
    // The API server rejects a new pod with ephemeral containers.
    containers.retain(|container| container.list != ContainerList::Ephemeral);
    Ok((containers, warning))
}

/// Returns the containers that the pod selects, and a warning about the selection.
fn selected<'a>(
    config: &Config,
    opt_in: &PodOptIn<'_>,
    mut containers: Vec<PodContainer<'a>>,
) -> Result<(Vec<PodContainer<'a>>, Option<String>), Unreadable> {
    unique_names(&containers)?;
    let by_default = |list| list != ContainerList::Init || config.include_init_containers;
    let names: Vec<_> =
        containers.iter().map(|container| (container.name.as_ref(), by_default(container.list))).collect();
    let (is_selected, warning) = opt_in.select(&names);
    let mut is_selected = is_selected.into_iter();
    containers.retain(|_| is_selected.next() == Some(true));
    Ok((containers, warning))
}

/// Returns the reason why an ephemeral container gets no files in a pod without volumes of LXCFS.
fn no_volumes_reason(method: MountMethod) -> &'static str {
    match method {
        MountMethod::HostPath => "the pod has no LXCFS volumes, and a running pod cannot get new ones",
        MountMethod::DevicePlugin => "ephemeral containers cannot request the resource of the device plugin",
        MountMethod::Auto => {
            "the pod has no LXCFS volumes, a running pod cannot get new ones, and ephemeral containers cannot request the resource of the device plugin"
        }
    }
}

fn unique_names<'c>(containers: &'c [PodContainer<'_>]) -> Result<BTreeSet<&'c str>, Unreadable> {
    let names: BTreeSet<&str> = containers.iter().map(|container| container.name.as_ref()).collect();
    if names.len() < containers.len() {
        return Err(Unreadable::new("a container name", "is duplicate"));
    }
    Ok(names)
}

impl Injection {
    /// Creates an injection without operations. Its patch has capacity for those of the plans, for the node selection and the
    /// status.
    fn new(plans: &[MountPlan<'_>], warnings: Vec<String>) -> Self {
        // In bytes: a mount 130, a volume 150, the two operations of a resource 220.
        let mounts: usize = plans.iter().map(|plan| plan.added.len()).sum();
        let resources = plans.iter().filter(|plan| matches!(plan.device, Device::Added(_))).count();
        let size = mounts * 130 + mounts.min(LxcfsFile::ALL.len()) * 150 + resources * 220 + 256;
        let patch = Patch::with_capacity(size);
        Self { patch, status: messages::status(plans), node_note: "", warnings }
    }

    fn add_volumes_and_mounts(
        &mut self,
        config: &Config,
        plans: &[MountPlan<'_>],
        volumes: &Volumes<'_>,
    ) -> Result<(), Unreadable> {
        let path = &config.lxcfs_path;
        let name = |file| volumes.reusable(file).map_or_else(|| volumes.free_name(file), Cow::Borrowed);
        let names: VolumeNames<'_> = LxcfsFile::ALL.map(name);
        let name = |file: LxcfsFile| names.get(file as usize).map_or("", AsRef::as_ref);
        let added = plans.iter().fold(Files::default(), |all, plan| all.union(plan.added));
        let missing = added.filter(|file| volumes.reusable(file).is_none());
        self.add_all(volumes.slot, missing.iter().map(|file| path.volume(file, name(file))))?;
        plans.iter().try_for_each(|plan| {
            let mounts = plan.added.iter().map(|file| path.mount(file, name(file)));
            self.add_all(plan.container.mounts, mounts)
        })
    }

    /// Adds the status to the pod's annotations, unless they contain it.
    pub(super) fn add_status(&mut self, pod: Pod<'_>, opt_in: &PodOptIn<'_>) -> Result<(), Unreadable> {
        if opt_in.status.as_deref() == Some(self.status.as_str()) {
            return Ok(());
        }
        let annotations = pod.field(PodField::Annotations);
        let size = annotations.map_or(0, |raw| raw.get().len());
        if size + STATUS.len() + self.status.len() > MAX_ANNOTATIONS {
            self.warnings
                .push(format!("annotation {STATUS} not written: the annotations would exceed 256 KiB"));
            return Ok(());
        }
        let slot = Slot::read(SlotPath::Annotations, annotations)
            .ok_or_else(|| Unreadable::new("metadata.annotations", "is not an object"))?;
        let status = std::mem::take(&mut self.status);
        let added = self.add_entry(slot, STATUS, &status);
        self.status = status;
        added
    }

    /// Appends values to a list. A missing list is added as a whole.
    pub(super) fn add_all(
        &mut self,
        slot: Slot,
        values: impl Iterator<Item = impl Serialize>,
    ) -> Result<(), Unreadable> {
        let mut values = values.peekable();
        if values.peek().is_none() {
            return Ok(());
        }
        if slot.is_missing() {
            return self.add(&slot.pointer(), &values.collect::<Vec<_>>());
        }
        let end = slot.pointer().append();
        values.try_for_each(|value| self.add(&end, &value))
    }

    /// Adds an entry to a map. A missing map is added as a whole.
    pub(super) fn add_entry(
        &mut self,
        slot: Slot,
        key: &str,
        value: &impl Serialize,
    ) -> Result<(), Unreadable> {
        if slot.is_missing() {
            self.add(&slot.pointer(), &BTreeMap::from([(key, value)]))
        } else {
            self.add(&slot.pointer().key(key), value)
        }
    }

    /// Adds a value.
    pub(super) fn add(&mut self, at: &Pointer, value: &impl Serialize) -> Result<(), Unreadable> {
        // Serializing strings and booleans into memory cannot fail. If it did, no partial patch would be sent.
        self.patch.add(at, value).map_err(|_| Unreadable::new("the patch", "could not be written"))
    }
}
