//! Volumes of a pod: volumes that show files of LXCFS, and names that new volumes cannot have.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use admission::{Raw, Scanner, Shape};

use super::lxcfs_path::LxcfsPath;
use super::mount_path::{Relation, clean, relation};
use super::pod::{Pod, PodField, Unreadable, members, unique_members};
use super::slot::{Slot, SlotPath};
use ::lxcfs::{LxcfsFile, VOLUME_PREFIX};

/// Limit of a volume's name (a DNS label). A mount of a new volume would repeat a longer one in each container.
const MAX_NAME: usize = 63;

/// A volume that shows one file of LXCFS.
#[derive(Debug)]
struct LxcfsVolume {
    index: usize,
    file: LxcfsFile,
    /// Whether new mounts can use it, because it equals the volume that the guard adds.
    is_reusable: bool,
}

/// The volumes of a pod.
#[derive(Debug)]
pub(super) struct Volumes<'a> {
    /// The slot of the list.
    pub(super) slot: Slot,
    /// The directory that shows that the pod runs LXCFS: the LXCFS directory itself, or a parent directory in a Bidirectional
    /// mount. The latter is known after the containers are read.
    pub(super) served_path: Option<String>,
    lxcfs_volumes: BTreeMap<Cow<'a, str>, LxcfsVolume>,
    /// The paths of volumes that show a directory above LXCFS.
    parent_volumes: BTreeMap<Cow<'a, str>, String>,
    reserved_names: BTreeSet<Cow<'a, str>>,
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
            lxcfs_volumes: BTreeMap::new(),
            parent_volumes: BTreeMap::new(),
            reserved_names: BTreeSet::new(),
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
        let name = name.and_then(Raw::text).ok_or_else(|| unreadable("has no name"))?;
        if let Some(host_path) = host_path.filter(|value| value.shape() == Shape::Object) {
            self.add_host_path((name.clone(), index), host_path, lxcfs_path)?;
        }
        self.reserve_name(name);
        Ok(())
    }

    fn add_host_path(
        &mut self,
        (name, index): (Cow<'a, str>, usize),
        host_path: Raw<'_>,
        lxcfs_path: &LxcfsPath,
    ) -> Result<(), Unreadable> {
        let ([path, path_type], _) = members(&mut host_path.scan(), ["path", "type"])?;
        let Some(path) = path.and_then(Raw::text) else { return Ok(()) };
        let path = clean(&path);
        let relation = relation(&path, lxcfs_path.as_str());
        if relation == Relation::Same {
            self.served_path = Some(lxcfs_path.as_str().to_owned());
        } else if relation == Relation::Above {
            self.parent_volumes.entry(name).or_insert_with(|| path.into_owned());
        } else if let Some(file) = lxcfs_path.file_at(&path) {
            let is_file = path_type.is_some_and(|value| value.get() == "\"File\"");
            let volume = LxcfsVolume { index, file, is_reusable: is_file && name.len() <= MAX_NAME };
            if self.lxcfs_volumes.insert(name, volume).is_some() {
                return Err(Unreadable::new("a volume name", "is duplicate"));
            }
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
            self.served_path = self.parent_volumes.get(volume).cloned();
        }
    }

    /// Records a name that no new volume can have. A mount can name a volume that does not exist. The API server rejects such a
    /// pod, so a new volume must not get the missing name.
    pub(super) fn reserve_name(&mut self, name: Cow<'a, str>) {
        if name.starts_with(VOLUME_PREFIX) {
            self.reserved_names.insert(name);
        }
    }

    /// Returns the file that the volume with this name shows.
    pub(super) fn file_of(&self, name: &str) -> Option<LxcfsFile> {
        self.lxcfs_volumes.get(name).map(|volume| volume.file)
    }

    /// Returns the name of the first volume through which `file` can be mounted.
    pub(super) fn reusable(&self, file: LxcfsFile) -> Option<&str> {
        let all = self.lxcfs_volumes.iter().filter(|(_, volume)| volume.is_reusable && volume.file == file);
        all.min_by_key(|(_, volume)| volume.index).map(|(name, _)| name.as_ref())
    }

    /// Returns a free name for a new volume: the default name, or that name with a number.
    pub(super) fn free_name(&self, file: LxcfsFile) -> Cow<'static, str> {
        let default = file.volume();
        let is_free = |name: &str| !self.reserved_names.contains(name);
        if is_free(default) {
            return Cow::Borrowed(default);
        }
        // There is one more number than there are reserved names.
        let mut names = (2..self.reserved_names.len() + 3).map(|n| format!("{default}-{n}"));
        names.find(|name| is_free(name)).map_or(Cow::Borrowed(default), Cow::Owned)
    }
}
