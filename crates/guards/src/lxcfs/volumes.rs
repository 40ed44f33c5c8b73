//! The pod's volumes, as far as they matter here: which of them show files of LXCFS, and which names are taken.

use std::borrow::Cow;

use admission::{JsonError, Raw, Scanner, Shape};

use super::config::Root;
use super::files::{LxcfsFile, VOLUME_PREFIX};
use super::limits;
use super::mount_path::{Relation, clean, relation};
use super::pod::{Pod, Unreadable, VOLUMES};
use super::slot::{Slot, Target};

/// More volumes than this with names or paths like ours are nobody's honest pod; without a bound their number times that of the
/// mounts would be compared.
const MOST_VOLUMES: usize = 100;

/// A volume of the pod that shows one file of LXCFS.
#[derive(Debug)]
pub(super) struct Source<'a> {
    /// The volume's name.
    pub(super) name: Cow<'a, str>,
    /// Which file.
    pub(super) file: LxcfsFile,
    /// Whether it is just what would be added, so that new mounts may use it.
    pub(super) is_ours: bool,
}

/// A volume that shows a folder above that of LXCFS.
#[derive(Debug)]
struct Above<'a> {
    name: Cow<'a, str>,
    folder: String,
}

/// The volumes of the pod, as far as they matter here.
#[derive(Debug)]
pub(super) struct Volumes<'a> {
    /// The slot of the list.
    pub(super) slot: Slot,
    /// Volumes that show a file of LXCFS.
    pub(super) sources: Vec<Source<'a>>,
    /// The folder by which the pod is known as one that runs LXCFS: that of LXCFS itself, or one above it out of which a container
    /// hands its mounts to the node. The latter only once the containers are read.
    pub(super) serves: Option<String>,
    above: Vec<Above<'a>>,
    taken: Vec<Cow<'a, str>>,
}

impl<'a> Volumes<'a> {
    /// Reads the volumes.
    pub(super) fn read(pod: Pod<'a>, root: &Root) -> Result<Self, Unreadable> {
        let list = pod.field(VOLUMES);
        let slot = Slot::read(Target::Volumes, list)
            .ok_or_else(|| Unreadable::new("spec.volumes", "is not an array"))?;
        let mut volumes =
            Self { slot, sources: Vec::new(), serves: None, above: Vec::new(), taken: Vec::new() };
        if let (false, Some(list)) = (slot.is_missing(), list) {
            list.scan().array(|scanner, index| volumes.one(scanner, index, root))?;
        }
        Ok(volumes)
    }

    fn one(&mut self, scanner: &mut Scanner<'a>, index: usize, root: &Root) -> Result<(), Unreadable> {
        let wrong = |why| Unreadable::new(format!("spec.volumes[{index}]"), why);
        if scanner.peek()? != Shape::Object {
            return Err(wrong("is not an object"));
        }
        let (mut name, mut host_path) = (None, None);
        scanner.object(|scanner, key| {
            let slot = match key.as_ref() {
                "name" => &mut name,
                "hostPath" => &mut host_path,
                _ => return scanner.value().map(drop).map_err(Unreadable::from),
            };
            if slot.replace(scanner.value()?).is_some() {
                return Err(wrong("has a key twice"));
            }
            Ok(())
        })?;
        let name = limits::name(name).map_err(wrong)?;
        if let Some(host_path) = host_path.filter(|value| value.shape() == Shape::Object) {
            let host_path = HostPath::read(host_path).map_err(wrong)?;
            self.host_path(name.clone(), &host_path, root)?;
        }
        if self.sources.len() > MOST_VOLUMES {
            return Err(too_many());
        }
        self.take(name)
    }

    fn host_path(&mut self, name: Cow<'a, str>, of: &HostPath<'_>, root: &Root) -> Result<(), Unreadable> {
        let Some(path) = of.path.as_deref() else { return Ok(()) };
        let path = clean(path);
        let relation = relation(&path, root.path());
        if relation == Relation::Same {
            self.serves = Some(root.path().to_owned());
        } else if relation == Relation::Above {
            if self.above.len() == MOST_VOLUMES {
                return Err(Unreadable::new(
                    "the pod",
                    "has more than 100 volumes above the folder of LXCFS",
                ));
            }
            self.above.push(Above { name, folder: path.into_owned() });
        } else if let Some(file) = root.file_at(&path) {
            if self.sources.iter().any(|source| source.name == name) {
                return Err(Unreadable::new("a volume's name", "stands twice"));
            }
            self.sources.push(Source { name, file, is_ours: of.is_typed_file });
        }
        Ok(())
    }

    /// Whether only its containers tell if the pod runs LXCFS.
    pub(super) fn depends_on_mounts(&self) -> bool {
        self.serves.is_none() && !self.above.is_empty()
    }

    /// Takes into account that a container hands what it mounts in this volume to the node.
    pub(super) fn is_handed_out(&mut self, name: &str) {
        if self.serves.is_none() {
            self.serves =
                self.above.iter().find(|above| above.name == name).map(|above| above.folder.clone());
        }
    }

    /// Remembers a name that no new volume may have. A mount may name a volume that is not there: the API server refuses such a
    /// pod, and it must not find just the missing name among what was added.
    pub(super) fn take(&mut self, name: Cow<'a, str>) -> Result<(), Unreadable> {
        if name.starts_with(VOLUME_PREFIX) && !self.taken.contains(&name) {
            if self.taken.len() == MOST_VOLUMES {
                return Err(too_many());
            }
            self.taken.push(name);
        }
        Ok(())
    }

    /// The file that the volume of this name shows.
    pub(super) fn file_of(&self, name: &str) -> Option<LxcfsFile> {
        self.sources.iter().find(|source| source.name == name).map(|source| source.file)
    }

    /// The volume through which `file` can be mounted as it is.
    pub(super) fn ours(&self, file: LxcfsFile) -> Option<&Source<'a>> {
        self.sources.iter().find(|source| source.is_ours && source.file == file)
    }

    /// A name for a new volume of `file`: the usual one, or with a number if the pod has another volume of that name.
    pub(super) fn free_name(&self, file: LxcfsFile) -> Cow<'static, str> {
        let usual = file.volume();
        let is_free = |name: &str| !self.taken.iter().any(|taken| taken == name);
        if is_free(usual) {
            return Cow::Borrowed(usual);
        }
        // There is one more number than there are names in the way.
        let numbers = 2..self.taken.len() + 3;
        numbers
            .map(|n| format!("{usual}-{n}"))
            .find(|name| is_free(name))
            .map_or(Cow::Borrowed(usual), Cow::Owned)
    }
}

/// What a `hostPath` says.
struct HostPath<'a> {
    path: Option<Cow<'a, str>>,
    is_typed_file: bool,
}

impl<'a> HostPath<'a> {
    fn read(value: Raw<'a>) -> Result<Self, &'static str> {
        let (mut path, mut is_typed_file) = (Ok(None), false);
        value
            .scan()
            .object(|scanner, key| {
                let value = scanner.value()?;
                match key.as_ref() {
                    "path" => path = limits::text(value, limits::PATH),
                    "type" => is_typed_file = value.get() == "\"File\"",
                    _ => {}
                }
                Ok::<_, JsonError>(())
            })
            .map_err(|error| error.what)?;
        let path = path.map_err(|_| "has a path longer than any path can be")?;
        Ok(Self { path, is_typed_file })
    }
}

fn too_many() -> Unreadable {
    Unreadable::new("the pod", "has more than 100 volumes of LXCFS")
}
