//! The pod's containers, as far as they matter here: what is mounted where the files would go, and which limits there are.

use std::borrow::Cow;

use admission::{JsonError, Raw, Scanner, Shape};

use super::files::{Files, LxcfsFile};
use super::limits;
use super::mount_path::{Relation, clean, relation};
use super::pod::{List, POD_LIMITS, Pod, Presence, Unreadable};
use super::slot::{Slot, Target};
use super::volumes::Volumes;

/// More containers than this in one list are not looked at. An object of etcd's 1.5 MiB holds no 1,000 of them once each has its
/// mounts, and an answer must not grow to many times its question for somebody who only wants it large.
const MOST_CONTAINERS: usize = 1000;

/// Which limits a container or a pod has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Limits {
    /// `limits.cpu`
    pub(super) cpu: bool,
    /// `limits.memory`
    pub(super) memory: bool,
}

impl Limits {
    /// Those of the pod as a whole.
    pub(super) fn of_pod(pod: Pod<'_>) -> Self {
        pod.field(POD_LIMITS).map_or(Self::default(), Self::read)
    }

    /// Reads a `limits` map. Zero is no limit to the kubelet.
    pub(super) fn read(limits: Raw<'_>) -> Self {
        let mut found = Self::default();
        // A map of another shape is the API server's to refuse; it limits nothing.
        let _: Result<(), JsonError> = limits.scan().object(|scanner, key| {
            let value = scanner.value()?;
            match key.as_ref() {
                "cpu" => found.cpu = is_amount(value),
                "memory" => found.memory = is_amount(value),
                _ => {}
            }
            Ok(())
        });
        found
    }

    /// Those of both.
    pub(super) fn and(self, other: Self) -> Self {
        Self { cpu: self.cpu || other.cpu, memory: self.memory || other.memory }
    }
}

/// Whether a quantity is more than zero, as far as its usual spellings tell.
pub(super) fn is_amount(quantity: Raw<'_>) -> bool {
    !matches!(quantity.get(), "null" | "0" | "\"0\"" | "\"\"")
}

/// A container, as far as it matters here.
#[derive(Debug)]
pub(super) struct Container<'a> {
    /// In which list it stands.
    pub(super) list: List,
    /// At which place of the list.
    pub(super) index: usize,
    /// Its name.
    pub(super) name: Cow<'a, str>,
    /// The slot of its mounts.
    pub(super) mounts: Slot,
    /// Its own limits.
    pub(super) limits: Limits,
    /// Its `resources` as they stand there.
    pub(super) resources: Option<Raw<'a>>,
    /// The files that LXCFS shows in it already.
    pub(super) shown: Files,
    /// The pod's own mounts that are in the way of files; of several in the way of one file, the first.
    pub(super) kept: Vec<Kept<'a>>,
}

/// A mount of the pod's own at, above or below the places of files.
#[derive(Debug)]
pub(super) struct Kept<'a> {
    /// These files.
    pub(super) files: Files,
    /// Where it is mounted, as the pod has it.
    pub(super) path: Cow<'a, str>,
}

impl<'a> Container<'a> {
    /// Adds the containers of one list to `out`.
    pub(super) fn read(
        pod: Pod<'a>,
        list: List,
        volumes: &mut Volumes<'a>,
        out: &mut Vec<Self>,
    ) -> Result<(), Unreadable> {
        let value = pod.field(list.field());
        match Presence::of(value, Shape::Array) {
            None => Err(Unreadable::new(format!("spec.{}", list.key()), "is not an array")),
            Some(Presence::Missing) => Ok(()),
            Some(Presence::Present) => value.map_or(Ok(()), |value| {
                value.scan().array(|scanner, index| {
                    out.push(Self::one(scanner, list, index, volumes)?);
                    Ok(())
                })
            }),
        }
    }

    fn one(
        scanner: &mut Scanner<'a>,
        list: List,
        index: usize,
        volumes: &mut Volumes<'a>,
    ) -> Result<Self, Unreadable> {
        let wrong = |why| Unreadable::new(format!("spec.{}[{index}]", list.key()), why);
        if index == MOST_CONTAINERS {
            return Err(wrong("is the 1001st container"));
        }
        if scanner.peek()? != Shape::Object {
            return Err(wrong("is not an object"));
        }
        let (mut name, mut mounts, mut devices, mut resources) = (None, None, None, None);
        scanner.object(|scanner, key| {
            let slot = match key.as_ref() {
                "name" => &mut name,
                "volumeMounts" => &mut mounts,
                "volumeDevices" => &mut devices,
                "resources" => &mut resources,
                _ => return scanner.value().map(drop).map_err(Unreadable::from),
            };
            if slot.replace(scanner.value()?).is_some() {
                return Err(wrong("has a key twice"));
            }
            Ok(())
        })?;
        let name = limits::name(name).map_err(wrong)?;
        let mut container = Self {
            list,
            index,
            name,
            mounts: Slot::read(Target::Mounts(list, index), mounts)
                .ok_or_else(|| wrong("has volumeMounts that are no array"))?,
            limits: resources.map_or(Limits::default(), limits_of),
            resources,
            shown: Files::default(),
            kept: Vec::new(),
        };
        for (mounts, path_key) in [(mounts, "mountPath"), (devices, "devicePath")] {
            if let Some(mounts) = mounts.filter(|value| value.shape() == Shape::Array) {
                mounts.scan().array(|scanner, _| {
                    let mount = Mount::read(scanner, path_key).map_err(wrong)?;
                    let (volume, is_handed_out) = (mount.volume.clone(), mount.is_handed_out);
                    container.sees(mount, volumes);
                    let Some(volume) = volume else { return Ok(()) };
                    if is_handed_out {
                        volumes.is_handed_out(&volume);
                    }
                    volumes.take(volume)
                })?;
            }
        }
        // What LXCFS shows in place is settled, whatever else is mounted around it.
        let shown = container.shown;
        container.kept.iter_mut().for_each(|kept| kept.files = kept.files.without(shown));
        container.kept.retain(|kept| !kept.files.is_empty());
        Ok(container)
    }

    /// Where it stands in the pod, as in `spec.containers[2]`.
    pub(super) fn place(&self) -> String {
        format!("spec.{}[{}]", self.list.key(), self.index)
    }

    /// The files that something of the pod's own is in the way of.
    pub(super) fn kept_files(&self) -> Files {
        self.kept.iter().fold(Files::default(), |files, kept| files.and(kept.files))
    }

    /// Takes one mount of the pod into account.
    fn sees(&mut self, mount: Mount<'a>, volumes: &Volumes<'a>) {
        let place = clean(&mount.path);
        // Most mounts are settled by their first letters.
        if !(place == "/" || place.starts_with("/proc") || place.starts_with("/sys")) {
            return;
        }
        let mut in_the_way = Files::default();
        for file in LxcfsFile::ALL {
            match relation(&place, file.path()) {
                Relation::Apart => {}
                Relation::Same if mount.volume.as_deref().and_then(|v| volumes.file_of(v)) == Some(file) => {
                    self.shown = self.shown.with(file);
                }
                Relation::Same | Relation::Above | Relation::Below => in_the_way = in_the_way.with(file),
            }
        }
        let files = in_the_way.without(self.kept_files());
        if !files.is_empty() {
            drop(place);
            self.kept.push(Kept { files, path: mount.path });
        }
    }
}

/// One entry of `volumeMounts` or `volumeDevices`.
struct Mount<'a> {
    path: Cow<'a, str>,
    volume: Option<Cow<'a, str>>,
    /// Whether what is mounted in it is to be seen on the node. Only privileged containers may have that
    /// (`validateMountPropagation` in `pkg/apis/core/validation`), and those that run LXCFS need it.
    is_handed_out: bool,
}

impl<'a> Mount<'a> {
    fn read(scanner: &mut Scanner<'a>, path_key: &str) -> Result<Self, &'static str> {
        let (mut path, mut volume, mut is_handed_out) = (Ok(None), Ok(None), false);
        scanner
            .object(|scanner, key| {
                let value = scanner.value()?;
                if key == path_key {
                    path = limits::text(value, limits::PATH);
                } else if key == "name" {
                    volume = limits::text(value, limits::NAME);
                } else if key == "mountPropagation" {
                    is_handed_out = value.get() == "\"Bidirectional\"";
                }
                Ok::<_, JsonError>(())
            })
            .map_err(|_| "has a mount that is not an object")?;
        let path = path.map_err(|_| "has a mount whose path is longer than any path can be")?;
        let volume = volume.map_err(|_| "mounts a volume whose name is longer than any name may be")?;
        Ok(Self { path: path.ok_or("has a mount without a path")?, volume, is_handed_out })
    }
}

fn limits_of(resources: Raw<'_>) -> Limits {
    let mut limits = Limits::default();
    // As above: what is no map limits nothing.
    let _: Result<(), JsonError> = resources.scan().object(|scanner, key| {
        let value = scanner.value()?;
        if key == "limits" {
            limits = Limits::read(value);
        }
        Ok(())
    });
    limits
}
