//! The pod as spans of the review: the few fields that are read of it, and how its lists stand.
//!
//! Nothing of the pod is turned into a tree or written again, so a field that this code has never heard of cannot be lost.
//! A pod that is not what the API says (a container that is a number, a name that stands twice) is [`Unreadable`]; it is
//! admitted as it is, because the API server refuses such a pod by itself and says why better than we could.

use std::borrow::Cow;

use admission::{JsonError, Object, Raw, Scanner, Shape};

use super::config::Root;
use super::files::{File, Files, VOLUME_PREFIX};
use super::path::{Relation, clean, relation};

/// What decoding fills for this guard, in the order of the constants below.
pub(super) const POINTERS: [&str; 15] = [
    "/metadata",
    "/metadata/annotations",
    "/metadata/labels",
    "/spec",
    "/spec/volumes",
    "/spec/containers",
    "/spec/initContainers",
    "/spec/ephemeralContainers",
    "/spec/hostPID",
    "/spec/shareProcessNamespace",
    "/spec/hostUsers",
    "/spec/os/name",
    "/spec/nodeSelector/kubernetes.io~1os",
    "/spec/runtimeClassName",
    "/spec/resources/limits",
];
const METADATA: usize = 0;
/// Index of the annotations among the fields.
pub(super) const ANNOTATIONS: usize = 1;
const LABELS: usize = 2;
/// Index of the spec among the fields.
pub(super) const SPEC: usize = 3;
/// Index of the volumes among the fields.
pub(super) const VOLUMES: usize = 4;
const CONTAINERS: usize = 5;
const INIT_CONTAINERS: usize = 6;
const EPHEMERAL_CONTAINERS: usize = 7;
/// Index of `hostPID` among the fields.
pub(super) const HOST_PID: usize = 8;
/// Index of `shareProcessNamespace` among the fields.
pub(super) const SHARED_PROCESSES: usize = 9;
/// Index of `hostUsers` among the fields.
pub(super) const HOST_USERS: usize = 10;
/// Index of the operating system among the fields.
pub(super) const OS: usize = 11;
/// Index of the operating system that the node selector asks for among the fields.
pub(super) const NODE_OS: usize = 12;
/// Index of the runtime class among the fields.
pub(super) const RUNTIME_CLASS: usize = 13;
const POD_LIMITS: usize = 14;

/// More containers than this in one list are not looked at. An object of etcd's 1.5 MiB holds no 1,000 of them once each has its
/// mounts, and an answer must not grow to many times its question for somebody who only wants it large.
const MOST_CONTAINERS: usize = 1000;
/// More volumes than this with names or paths like ours are nobody's honest pod; without a bound their number times that of the
/// mounts would be compared.
const MOST_VOLUMES: usize = 100;

/// Why a pod cannot be read: a field, and what is wrong with it, as in "spec.containers\[2\] is not an object".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {why}")]
pub(super) struct Unreadable {
    field: String,
    why: &'static str,
}

impl Unreadable {
    /// This field, for this reason.
    pub(super) fn new(field: impl Into<String>, why: &'static str) -> Self {
        Self { field: field.into(), why }
    }
}

impl From<JsonError> for Unreadable {
    /// Spans were checked when they were cut, so this tells of a value that is of another type than was just looked at.
    fn from(error: JsonError) -> Self {
        Self::new("the pod", error.what)
    }
}

/// How a list or a map stands in its parent: that decides how something is added to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Absent or null: it is added whole.
    Missing,
    /// It is there, empty or not: something is added behind what it holds.
    There,
}

impl Standing {
    /// How a value stands that has to be of this shape, unless it is absent or null.
    pub(super) fn of(value: Option<Raw<'_>>, shape: Shape) -> Option<Self> {
        match value.map(Raw::shape) {
            None | Some(Shape::Null) => Some(Self::Missing),
            Some(found) if found == shape => Some(Self::There),
            Some(_) => None,
        }
    }
}

/// The three lists of containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum List {
    /// `spec.containers`
    Containers,
    /// `spec.initContainers`
    Init,
    /// `spec.ephemeralContainers`
    Ephemeral,
}

impl List {
    /// The key of the spec.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Containers => "containers",
            Self::Init => "initContainers",
            Self::Ephemeral => "ephemeralContainers",
        }
    }

    /// Its index among the fields.
    pub(super) fn field(self) -> usize {
        match self {
            Self::Containers => CONTAINERS,
            Self::Init => INIT_CONTAINERS,
            Self::Ephemeral => EPHEMERAL_CONTAINERS,
        }
    }
}

/// A pod that has metadata and a spec.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pod<'a> {
    object: &'a Object<'a>,
}

impl<'a> Pod<'a> {
    /// Sees a pod in the object.
    pub(super) fn see(object: Option<&'a Object<'a>>) -> Result<Self, Unreadable> {
        let object = object.ok_or_else(|| Unreadable::new("the object", "is not in the review"))?;
        for (field, name) in [(METADATA, "metadata"), (SPEC, "spec")] {
            if object.field(field).map(Raw::shape) != Some(Shape::Object) {
                return Err(Unreadable::new(name, "is not an object"));
            }
        }
        Ok(Self { object })
    }

    /// One of the fields.
    pub(super) fn field(self, index: usize) -> Option<Raw<'a>> {
        self.object.field(index)
    }

    /// One of the fields, as a text.
    pub(super) fn text(self, index: usize) -> Option<Cow<'a, str>> {
        self.field(index).and_then(Raw::text)
    }

    /// Whether one of the fields is true.
    pub(super) fn is_true(self, index: usize) -> bool {
        self.field(index).is_some_and(Raw::is_true)
    }

    /// Calls `each` with every annotation.
    pub(super) fn annotations(
        self,
        each: impl FnMut(&str, Raw<'a>) -> Result<(), Unreadable>,
    ) -> Result<(), Unreadable> {
        entries(self.field(ANNOTATIONS), "metadata.annotations", each)
    }

    /// Calls `each` with every label.
    pub(super) fn labels(
        self,
        each: impl FnMut(&str, Raw<'a>) -> Result<(), Unreadable>,
    ) -> Result<(), Unreadable> {
        entries(self.field(LABELS), "metadata.labels", each)
    }

    /// The limits that the pod as a whole has.
    pub(super) fn limits(self) -> Limits {
        self.field(POD_LIMITS).map_or(Limits::default(), Limits::read)
    }
}

fn entries<'a>(
    map: Option<Raw<'a>>,
    name: &str,
    mut each: impl FnMut(&str, Raw<'a>) -> Result<(), Unreadable>,
) -> Result<(), Unreadable> {
    match Standing::of(map, Shape::Object) {
        None => Err(Unreadable::new(name, "is not an object")),
        Some(Standing::Missing) => Ok(()),
        Some(Standing::There) => map.map_or(Ok(()), |map| {
            map.scan().object(|scanner, key| {
                let value = scanner.value()?;
                each(&key, value)
            })
        }),
    }
}

/// A volume of the pod that shows one file of LXCFS.
#[derive(Debug)]
pub(super) struct Source<'a> {
    /// The volume's name.
    pub(super) name: Cow<'a, str>,
    /// Which file.
    pub(super) file: File,
    /// Whether it is just what would be added, so that new mounts may use it.
    pub(super) is_ours: bool,
}

/// The volumes of the pod, as far as they matter here.
#[derive(Debug)]
pub(super) struct Volumes<'a> {
    /// How the list stands.
    pub(super) standing: Standing,
    /// Volumes that show a file of LXCFS.
    pub(super) sources: Vec<Source<'a>>,
    /// Whether the folder of LXCFS itself is among them.
    pub(super) has_root: bool,
    taken: Vec<Cow<'a, str>>,
}

impl<'a> Volumes<'a> {
    /// Reads the volumes.
    pub(super) fn read(pod: Pod<'a>, root: &Root) -> Result<Self, Unreadable> {
        let list = pod.field(VOLUMES);
        let standing = Standing::of(list, Shape::Array)
            .ok_or_else(|| Unreadable::new("spec.volumes", "is not an array"))?;
        let mut volumes = Self { standing, sources: Vec::new(), has_root: false, taken: Vec::new() };
        if let (Standing::There, Some(list)) = (standing, list) {
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
        let name = name.and_then(Raw::text).ok_or_else(|| wrong("has no name"))?;
        if let Some(host_path) = host_path.filter(|value| value.shape() == Shape::Object) {
            self.host_path(name.clone(), host_path, root)?;
        }
        if self.sources.len() > MOST_VOLUMES {
            return Err(too_many());
        }
        self.take(name)
    }

    fn host_path(&mut self, name: Cow<'a, str>, value: Raw<'a>, root: &Root) -> Result<(), Unreadable> {
        let (mut path, mut is_typed_file) = (None, false);
        value.scan().object(|scanner, key| {
            let value = scanner.value()?;
            match key.as_ref() {
                "path" => path = value.text(),
                "type" => is_typed_file = value.get() == "\"File\"",
                _ => {}
            }
            Ok::<_, Unreadable>(())
        })?;
        let Some(path) = path else { return Ok(()) };
        let path = clean(&path);
        if path == root.path() {
            self.has_root = true;
        } else if let Some(file) = root.file_at(&path) {
            if self.sources.iter().any(|source| source.name == name) {
                return Err(Unreadable::new("a volume's name", "stands twice"));
            }
            self.sources.push(Source { name, file, is_ours: is_typed_file });
        }
        Ok(())
    }

    /// Remembers a name that no new volume may have. A mount may name a volume that is not there: the API server refuses such a
    /// pod, and it must not find just the missing name among what was added.
    fn take(&mut self, name: Cow<'a, str>) -> Result<(), Unreadable> {
        if name.starts_with(VOLUME_PREFIX) && !self.taken.contains(&name) {
            if self.taken.len() == MOST_VOLUMES {
                return Err(too_many());
            }
            self.taken.push(name);
        }
        Ok(())
    }

    /// The file that the volume of this name shows.
    fn file_of(&self, name: &str) -> Option<File> {
        self.sources.iter().find(|source| source.name == name).map(|source| source.file)
    }

    /// The volume through which `file` can be mounted as it is.
    pub(super) fn ours(&self, file: File) -> Option<&Source<'a>> {
        self.sources.iter().find(|source| source.is_ours && source.file == file)
    }

    /// A name for a new volume of `file`: the usual one, or with a number if the pod has another volume of that name.
    pub(super) fn free_name(&self, file: File) -> Cow<'static, str> {
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

fn too_many() -> Unreadable {
    Unreadable::new("the pod", "has more than 100 volumes of LXCFS")
}

/// Which limits a container or a pod has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Limits {
    /// `limits.cpu`
    pub(super) cpu: bool,
    /// `limits.memory`
    pub(super) memory: bool,
}

impl Limits {
    /// Reads a `limits` map. Zero is no limit to the kubelet.
    fn read(limits: Raw<'_>) -> Self {
        let mut found = Self::default();
        // A map of another shape is the API server's to refuse; it limits nothing.
        let _: Result<(), JsonError> = limits.scan().object(|scanner, key| {
            let value = scanner.value()?;
            let is_limit = !matches!(value.get(), "null" | "0" | "\"0\"" | "\"\"");
            match key.as_ref() {
                "cpu" => found.cpu = is_limit,
                "memory" => found.memory = is_limit,
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

/// A container, as far as it matters here.
#[derive(Debug)]
pub(super) struct Container<'a> {
    /// In which list it stands.
    pub(super) list: List,
    /// At which place of the list.
    pub(super) index: usize,
    /// Its name.
    pub(super) name: Cow<'a, str>,
    /// How its mounts stand.
    pub(super) mounts: Standing,
    /// Its own limits.
    pub(super) limits: Limits,
    /// The files that LXCFS shows in it already.
    pub(super) shown: Files,
    /// Files at, above or below whose place the pod mounts something of its own, each with that mount's path.
    pub(super) kept: Vec<(File, Cow<'a, str>)>,
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
        match Standing::of(value, Shape::Array) {
            None => Err(Unreadable::new(format!("spec.{}", list.key()), "is not an array")),
            Some(Standing::Missing) => Ok(()),
            Some(Standing::There) => value.map_or(Ok(()), |value| {
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
        let mut container = Self {
            list,
            index,
            name: name.and_then(Raw::text).ok_or_else(|| wrong("has no name"))?,
            mounts: Standing::of(mounts, Shape::Array)
                .ok_or_else(|| wrong("has volumeMounts that are no array"))?,
            limits: resources.map_or(Limits::default(), limits_of),
            shown: Files::default(),
            kept: Vec::new(),
        };
        for (mounts, path_key) in [(mounts, "mountPath"), (devices, "devicePath")] {
            if let Some(mounts) = mounts.filter(|value| value.shape() == Shape::Array) {
                mounts.scan().array(|scanner, _| {
                    let mount = Mount::read(scanner, path_key).map_err(wrong)?;
                    container.sees(&mount, volumes);
                    mount.volume.map_or(Ok(()), |name| volumes.take(name))
                })?;
            }
        }
        // What LXCFS shows in place is settled, whatever else is mounted around it.
        let shown = container.shown;
        container.kept.retain(|(file, _)| !shown.has(*file));
        Ok(container)
    }

    /// Takes one mount of the pod into account.
    fn sees(&mut self, mount: &Mount<'a>, volumes: &Volumes<'a>) {
        let place = clean(&mount.path);
        // Most mounts are settled by their first letters.
        if !(place == "/" || place.starts_with("/proc") || place.starts_with("/sys")) {
            return;
        }
        for file in File::ALL {
            match relation(&place, file.path()) {
                Relation::Apart => {}
                Relation::Same if mount.volume.as_deref().and_then(|v| volumes.file_of(v)) == Some(file) => {
                    self.shown = self.shown.with(file);
                }
                Relation::Same | Relation::Above | Relation::Below => {
                    if !self.kept.iter().any(|(kept, _)| *kept == file) {
                        self.kept.push((file, mount.path.clone()));
                    }
                }
            }
        }
    }
}

/// One entry of `volumeMounts` or `volumeDevices`.
struct Mount<'a> {
    path: Cow<'a, str>,
    volume: Option<Cow<'a, str>>,
}

impl<'a> Mount<'a> {
    fn read(scanner: &mut Scanner<'a>, path_key: &str) -> Result<Self, &'static str> {
        let (mut path, mut volume) = (None, None);
        scanner
            .object(|scanner, key| {
                let value = scanner.value()?;
                if key == path_key {
                    path = value.text();
                } else if key == "name" {
                    volume = value.text();
                }
                Ok::<_, JsonError>(())
            })
            .map_err(|_| "has a mount that is not an object")?;
        Ok(Self { path: path.ok_or("has a mount without a path")?, volume })
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
