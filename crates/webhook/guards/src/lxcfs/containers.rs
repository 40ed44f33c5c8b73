//! Containers of a pod: their limits, and what is mounted where the files of LXCFS go.

use std::borrow::Cow;

use admission::{Raw, Scanner, Shape};

use super::files::Files;
use super::mount_path::{Relation, clean, relation};
use super::pod::{ContainerList, Pod, PodField, Unreadable, elements, members, unique_members};
use super::slot::{Slot, SlotPath};
use super::volumes::Volumes;
use ::lxcfs::LxcfsFile;

/// Bound of the containers in one list, so that an answer is not many times larger than its review. An object in etcd (1.5 MiB)
/// cannot hold 1,000 containers with their mounts.
const MAX_CONTAINERS: usize = 1000;

/// The limits that a container or a pod has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ResourceLimits {
    /// Whether `limits.cpu` is set.
    pub(super) cpu: bool,
    /// Whether `limits.memory` is set.
    pub(super) memory: bool,
}

impl ResourceLimits {
    /// Returns the limits of the whole pod.
    pub(super) fn of_pod(pod: Pod<'_>) -> Self {
        Self::read(pod.field(PodField::PodLimits))
    }

    /// Reads a `limits` map. A value of another type sets no limit, and the API server rejects it.
    fn read(limits: Option<Raw<'_>>) -> Self {
        let values = limits.and_then(|limits| members(&mut limits.scan(), ["cpu", "memory"]).ok());
        let [cpu, memory] = values.unwrap_or_default().0.map(|value| value.is_some_and(is_positive));
        Self { cpu, memory }
    }

    /// Returns the limits that one of both has.
    pub(super) fn union(self, other: Self) -> Self {
        Self { cpu: self.cpu || other.cpu, memory: self.memory || other.memory }
    }
}

/// Returns whether a quantity in a usual notation is more than zero. The kubelet treats a limit of zero as no limit.
pub(super) fn is_positive(quantity: Raw<'_>) -> bool {
    !matches!(quantity.get(), "null" | "0" | "\"0\"" | "\"\"")
}

/// A container of a pod.
#[derive(Debug)]
pub(super) struct PodContainer<'a> {
    /// The list that contains it.
    pub(super) list: ContainerList,
    /// Its index in the list.
    pub(super) index: usize,
    /// Its name.
    pub(super) name: Cow<'a, str>,
    /// The slot of its mounts.
    pub(super) mounts: Slot,
    /// Its own limits.
    pub(super) limits: ResourceLimits,
    /// Its `resources`.
    pub(super) resources: Option<Raw<'a>>,
    /// The files that LXCFS shows in it already.
    pub(super) shown: Files,
    /// Mounts of the pod that conflict with files, in their order. A file is in the first one only.
    pub(super) conflicts: Vec<Conflict<'a>>,
}

/// A mount of the pod at, above or below the paths of files.
#[derive(Debug)]
pub(super) struct Conflict<'a> {
    /// The files.
    pub(super) files: Files,
    /// The mount path in the pod.
    pub(super) path: Cow<'a, str>,
}

impl<'a> PodContainer<'a> {
    /// Appends the containers of one list to `out`.
    pub(super) fn read_list(
        pod: Pod<'a>,
        list: ContainerList,
        volumes: &mut Volumes<'a>,
        out: &mut Vec<Self>,
    ) -> Result<(), Unreadable> {
        elements(pod.field(list.field()), format!("spec.{}", list.key()), |scanner, index| {
            out.push(Self::read(scanner, list, index, volumes)?);
            Ok(())
        })
    }

    fn read(
        scanner: &mut Scanner<'a>,
        list: ContainerList,
        index: usize,
        volumes: &mut Volumes<'a>,
    ) -> Result<Self, Unreadable> {
        let unreadable = |problem| Unreadable::new(format!("spec.{}[{index}]", list.key()), problem);
        if index == MAX_CONTAINERS {
            return Err(unreadable("exceeds the limit of 1000 containers"));
        }
        let keys = ["name", "volumeMounts", "volumeDevices", "resources"];
        let [name, mounts, devices, resources] = unique_members(scanner, keys, unreadable)?;
        let limits = resources.and_then(|resources| members(&mut resources.scan(), ["limits"]).ok());
        let mut container = Self {
            list,
            index,
            name: name.and_then(Raw::text).ok_or_else(|| unreadable("has no name"))?,
            mounts: Slot::read(SlotPath::Mounts(list, index), mounts)
                .ok_or_else(|| unreadable("has volumeMounts that are not an array"))?,
            limits: limits.map_or(ResourceLimits::default(), |([limits], _)| ResourceLimits::read(limits)),
            resources,
            shown: Files::default(),
            conflicts: Vec::new(),
        };
        for (mounts, path_key) in [(mounts, "mountPath"), (devices, "devicePath")] {
            let Some(mounts) = mounts.filter(|value| value.shape() == Shape::Array) else { continue };
            mounts.scan().array(|scanner, _| -> Result<(), Unreadable> {
                let mount = ContainerMount::read(scanner, path_key).map_err(unreadable)?;
                container.add_mount(&mount, volumes);
                let Some(volume) = mount.volume else { return Ok(()) };
                if mount.is_bidirectional {
                    volumes.add_bidirectional_mount(&volume);
                }
                volumes.reserve_name(volume);
                Ok(())
            })?;
        }
        // A file that LXCFS shows has no conflict, whatever else is mounted around it.
        let shown = container.shown;
        container.conflicts.iter_mut().for_each(|conflict| conflict.files = conflict.files.without(shown));
        container.conflicts.retain(|conflict| !conflict.files.is_empty());
        Ok(container)
    }

    /// Returns its path in the pod, as in `spec.containers[2]`.
    pub(super) fn path(&self) -> String {
        format!("spec.{}[{}]", self.list.key(), self.index)
    }

    /// Returns the files with a conflict.
    pub(super) fn conflicting_files(&self) -> Files {
        self.conflicts.iter().fold(Files::default(), |files, conflict| files.union(conflict.files))
    }

    fn add_mount(&mut self, mount: &ContainerMount<'a>, volumes: &Volumes<'a>) {
        let path = clean(&mount.path);
        // Most mounts are elsewhere.
        if !(path == "/" || path.starts_with("/proc") || path.starts_with("/sys")) {
            return;
        }
        let shown_file = mount.volume.as_deref().and_then(|volume| volumes.file_of(volume));
        let mut conflicting = Files::default();
        for file in LxcfsFile::ALL {
            match relation(&path, file.path()) {
                Relation::Apart => {}
                Relation::Same if shown_file == Some(file) => self.shown = self.shown.with(file),
                Relation::Same | Relation::Above | Relation::Below => conflicting = conflicting.with(file),
            }
        }
        let files = conflicting.without(self.conflicting_files());
        if !files.is_empty() {
            self.conflicts.push(Conflict { files, path: mount.path.clone() });
        }
    }
}

/// An entry of `volumeMounts` or `volumeDevices`.
struct ContainerMount<'a> {
    path: Cow<'a, str>,
    volume: Option<Cow<'a, str>>,
    /// Whether mounts inside it appear on the node. Only privileged containers can have that
    /// (`validateMountPropagation` in `pkg/apis/core/validation`), and containers that run LXCFS need it.
    is_bidirectional: bool,
}

impl<'a> ContainerMount<'a> {
    fn read(scanner: &mut Scanner<'a>, path_key: &str) -> Result<Self, &'static str> {
        let ([path, volume, propagation], _) = members(scanner, [path_key, "name", "mountPropagation"])
            .map_err(|_| "has a mount that is not an object")?;
        Ok(Self {
            path: path.and_then(Raw::text).ok_or("has a mount without a path")?,
            volume: volume.and_then(Raw::text),
            is_bidirectional: propagation.is_some_and(|value| value.get() == "\"Bidirectional\""),
        })
    }
}
