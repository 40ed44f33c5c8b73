//! Volumes of a pod: volumes that show files of LXCFS, and names that new volumes cannot have.

use std::borrow::Cow;

use admission::{Raw, Scanner, Shape};

use super::bounded_text::{self, MAX_PATH};
use super::lxcfs_path::LxcfsPath;
use super::mount_path::{Relation, clean, relation};
use super::pod::{Pod, PodField, Unreadable, members, unique_members};
use super::slot::{Slot, SlotPath};
use ::lxcfs::{LxcfsFile, VOLUME_PREFIX};

/// Bound of volumes with names or paths of LXCFS. Every mount is compared with each of them.
const MAX_VOLUMES: usize = 100;

/// A volume that shows one file of LXCFS.
#[derive(Debug)]
struct LxcfsVolume<'a> {
    name: Cow<'a, str>,
    file: LxcfsFile,
    /// Whether new mounts can use it, because it equals the volume that the guard adds.
    is_reusable: bool,
}

/// A volume that shows a directory above LXCFS.
#[derive(Debug)]
struct ParentVolume<'a> {
    name: Cow<'a, str>,
    path: String,
}

/// The volumes of a pod.
#[derive(Debug)]
pub(super) struct Volumes<'a> {
    /// The slot of the list.
    pub(super) slot: Slot,
    /// The directory that shows that the pod runs LXCFS: the LXCFS directory itself, or a parent directory in a Bidirectional
    /// mount. The latter is known after the containers are read.
    pub(super) served_path: Option<String>,
    lxcfs_volumes: Vec<LxcfsVolume<'a>>,
    parent_volumes: Vec<ParentVolume<'a>>,
    reserved_names: Vec<Cow<'a, str>>,
}

impl<'a> Volumes<'a> {
    /// Reads the volumes.
    pub(super) fn read(pod: Pod<'a>, lxcfs_path: &LxcfsPath) -> Result<Self, Unreadable> {
        let list = pod.field(PodField::Volumes);
        let slot = Slot::read(SlotPath::Volumes, list)
            .ok_or_else(|| Unreadable::new("spec.volumes", "is not an array"))?;
        let mut volumes = Self {
            slot,
            served_path: None,
            lxcfs_volumes: Vec::new(),
            parent_volumes: Vec::new(),
            reserved_names: Vec::new(),
        };
        if let (false, Some(list)) = (slot.is_missing(), list) {
            list.scan().array(|scanner, index| volumes.add(scanner, index, lxcfs_path))?;
        }
        Ok(volumes)
    }

    fn add(
        &mut self,
        scanner: &mut Scanner<'a>,
        index: usize,
        lxcfs_path: &LxcfsPath,
    ) -> Result<(), Unreadable> {
        let unreadable = |problem| Unreadable::new(format!("spec.volumes[{index}]"), problem);
        let [name, host_path] = unique_members(scanner, ["name", "hostPath"], unreadable)?;
        let name = bounded_text::name(name).map_err(unreadable)?;
        if let Some(host_path) = host_path.filter(|value| value.shape() == Shape::Object) {
            self.add_host_path(name.clone(), host_path, lxcfs_path, unreadable)?;
        }
        if self.lxcfs_volumes.len() > MAX_VOLUMES {
            return Err(too_many_volumes());
        }
        self.reserve_name(name)
    }

    fn add_host_path(
        &mut self,
        name: Cow<'a, str>,
        host_path: Raw<'_>,
        lxcfs_path: &LxcfsPath,
        unreadable: impl Fn(&'static str) -> Unreadable,
    ) -> Result<(), Unreadable> {
        let ([path, path_type], _) = members(&mut host_path.scan(), ["path", "type"])?;
        let path = bounded_text::optional(path, MAX_PATH, "has a path longer than 4096 bytes");
        let Some(path) = path.map_err(unreadable)? else { return Ok(()) };
        let path = clean(&path);
        let relation = relation(&path, lxcfs_path.as_str());
        if relation == Relation::Same {
            self.served_path = Some(lxcfs_path.as_str().to_owned());
        } else if relation == Relation::Above {
            if self.parent_volumes.len() == MAX_VOLUMES {
                return Err(Unreadable::new(
                    "the pod",
                    "has more than 100 volumes above the LXCFS directory",
                ));
            }
            self.parent_volumes.push(ParentVolume { name, path: path.into_owned() });
        } else if let Some(file) = lxcfs_path.file_at(&path) {
            if self.lxcfs_volumes.iter().any(|volume| volume.name == name) {
                return Err(Unreadable::new("a volume name", "is duplicate"));
            }
            let is_reusable = path_type.is_some_and(|value| value.get() == "\"File\"");
            self.lxcfs_volumes.push(LxcfsVolume { name, file, is_reusable });
        }
        Ok(())
    }

    /// Returns whether the mounts decide if the pod runs LXCFS.
    pub(super) fn depends_on_mounts(&self) -> bool {
        self.served_path.is_none() && !self.parent_volumes.is_empty()
    }

    /// Records that a container mounts this volume with propagation Bidirectional.
    pub(super) fn add_bidirectional_mount(&mut self, volume: &str) {
        if self.served_path.is_none() {
            let parent = self.parent_volumes.iter().find(|parent| parent.name == volume);
            self.served_path = parent.map(|parent| parent.path.clone());
        }
    }

    /// Records a name that no new volume can have. A mount can name a volume that does not exist. The API server rejects such a
    /// pod, so a new volume must not get the missing name.
    pub(super) fn reserve_name(&mut self, name: Cow<'a, str>) -> Result<(), Unreadable> {
        if name.starts_with(VOLUME_PREFIX) && !self.reserved_names.contains(&name) {
            if self.reserved_names.len() == MAX_VOLUMES {
                return Err(too_many_volumes());
            }
            self.reserved_names.push(name);
        }
        Ok(())
    }

    /// Returns the file that the volume with this name shows.
    pub(super) fn file_of(&self, name: &str) -> Option<LxcfsFile> {
        self.lxcfs_volumes.iter().find(|volume| volume.name == name).map(|volume| volume.file)
    }

    /// Returns the name of the volume through which `file` can be mounted.
    pub(super) fn reusable(&self, file: LxcfsFile) -> Option<&str> {
        let volume = self.lxcfs_volumes.iter().find(|volume| volume.is_reusable && volume.file == file);
        volume.map(|volume| volume.name.as_ref())
    }

    /// Returns a free name for a new volume: the default name, or that name with a number.
    pub(super) fn free_name(&self, file: LxcfsFile) -> Cow<'static, str> {
        let default = file.volume();
        let is_free = |name: &str| !self.reserved_names.iter().any(|reserved| reserved == name);
        if is_free(default) {
            return Cow::Borrowed(default);
        }
        // There is one more number than there are reserved names.
        let mut names = (2..self.reserved_names.len() + 3).map(|n| format!("{default}-{n}"));
        names.find(|name| is_free(name)).map_or(Cow::Borrowed(default), Cow::Owned)
    }
}

fn too_many_volumes() -> Unreadable {
    Unreadable::new("the pod", "has more than 100 volumes of LXCFS")
}
