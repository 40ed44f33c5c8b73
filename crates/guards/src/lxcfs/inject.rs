//! What is added to a pod: which file to which container, and the patch that does it.
//!
//! Judged by what is mounted, container by container: a second pass over the same pod, or over a copy of it, adds nothing, and
//! one over a pod to which another webhook has added a container adds to that container alone.

use std::borrow::Cow;

use admission::{Patch, Pointer};
use serde::Serialize;

use super::addition::Addition;
use super::config::{Backend, Config, Root};
use super::containers::{Container, Limits};
use super::files::{Files, LxcfsFile};
use super::limits;
use super::messages;
use super::opt_in::{ContainerSelection, PodOptIn, STATUS};
use super::pod::{ANNOTATIONS, List, Pod, Unreadable};
use super::slot::{Slot, Target};
use super::volumes::Volumes;

/// What is to be added, and what is to be said of it.
#[derive(Debug, Default)]
pub(super) struct Injection {
    /// The additions; empty if the pod has everything already.
    pub(super) patch: Patch,
    /// What the pod has after the patch.
    pub(super) summary: String,
    /// Where the pod goes by the patch, as the rest of a sentence; empty if it goes where it went before.
    pub(super) whereto: &'static str,
    /// For the person.
    pub(super) warnings: Vec<String>,
}

/// A container that is chosen, and the files that it is to get.
#[derive(Debug)]
pub(super) struct Share<'a> {
    /// The container.
    pub(super) container: Container<'a>,
    /// The files that it should show in the end.
    pub(super) wanted: Files,
    /// Those of them that are to be added.
    pub(super) adds: Files,
}

/// The name of each file's volume.
type VolumeNames<'v> = [Cow<'v, str>; LxcfsFile::ALL.len()];

/// Adds the files to a pod that is being made.
pub(super) fn into_new<'a>(
    config: &Config,
    pod: Pod<'a>,
    opt_in: &PodOptIn<'_>,
    mut volumes: Volumes<'a>,
) -> Result<Injection, Unreadable> {
    let Picked { containers, wrong } = pick(config, pod, opt_in, &mut volumes)?;
    let (files, mut warnings) = opt_in.files(config.files);
    warnings.extend(wrong);
    let shares = shares(config, pod, containers, files);
    warnings.extend(messages::conflicts(&shares));
    let has_no_limit = |share: &Share<'_>| share.wanted.is_empty() && share.container.shown.is_empty();
    warnings.extend(messages::nothing(shares.len(), !files.is_empty() && shares.iter().all(has_no_limit)));

    let mut injection = Injection::of(&shares, warnings);
    let needed = shares.iter().fold(Files::default(), |all, share| all.and(share.adds));
    let names = volume_names(&volumes);
    injection.volumes(&config.root, &volumes, &names, needed)?;
    injection.mounts(&config.root, &shares, &names)?;
    // By whomever the files were added: what is there needs a node that serves it.
    if shares.iter().any(|share| !share.container.shown.and(share.adds).is_empty()) {
        injection.readiness(config.node_readiness, pod)?;
    }
    injection.status(pod, opt_in)?;
    Ok(injection)
}

/// The containers of a new pod that are to get files, and what is wrong with how the pod chooses them.
#[derive(Debug)]
pub(super) struct Picked<'a> {
    /// In the order of their lists.
    pub(super) containers: Vec<Container<'a>>,
    /// For the person.
    pub(super) wrong: Option<String>,
}

/// Reads the containers of a new pod, and leaves those that are to get files.
pub(super) fn pick<'a>(
    config: &Config,
    pod: Pod<'a>,
    opt_in: &PodOptIn<'_>,
    volumes: &mut Volumes<'a>,
) -> Result<Picked<'a>, Unreadable> {
    let mut containers = Vec::new();
    // All containers are read: each can mount a volume whose name a new volume would get.
    for list in [List::Containers, List::Init, List::Ephemeral] {
        Container::read(pod, list, volumes, &mut containers)?;
    }
    let names = names(&containers)?;
    let chosen = opt_in.selection(&names);
    // The API server lets nobody make a pod that has ephemeral containers already.
    let gets = |container: &Container<'_>| {
        container.list != List::Ephemeral && is_chosen(config, chosen.as_ref(), container)
    };
    let gets: Vec<bool> = containers.iter().map(gets).collect();
    let wrong = chosen.and_then(|chosen| chosen.warning);
    let mut gets = gets.into_iter();
    containers.retain(|_| gets.next() == Some(true));
    Ok(Picked { containers, wrong })
}

fn is_chosen(config: &Config, chosen: Option<&ContainerSelection<'_>>, container: &Container<'_>) -> bool {
    let by_default = container.list != List::Init || config.init_containers;
    chosen.map_or(by_default, |chosen| chosen.contains(&container.name, by_default))
}

/// Adds the files to the ephemeral containers that a running pod is getting. Its volumes cannot be changed any more, so only
/// what it already has can be mounted; nor can its annotations, so no status is written.
pub(super) fn into_running<'a>(
    config: &Config,
    pod: Pod<'a>,
    old: Pod<'a>,
    opt_in: &PodOptIn<'_>,
    mut volumes: Volumes<'a>,
) -> Result<Injection, Unreadable> {
    let (mut containers, mut before) = (Vec::new(), Vec::new());
    Container::read(pod, List::Ephemeral, &mut volumes, &mut containers)?;
    Container::read(old, List::Ephemeral, &mut volumes, &mut before)?;
    names(&containers)?;
    let before = names(&before)?;
    containers.retain(|container| before.binary_search(&container.name.as_ref()).is_err());
    let new = containers.len();
    let names = names(&containers)?;
    let chosen = opt_in.selection(&names);
    let gets = |container: &Container<'_>| is_chosen(config, chosen.as_ref(), container);
    let mut gets = containers.iter().map(gets).collect::<Vec<bool>>().into_iter();
    containers.retain(|_| gets.next() == Some(true));
    let (files, _) = opt_in.files(config.files);
    let had = files.filter(|file| volumes.ours(file).is_some());
    let shares = shares(config, pod, containers, had);

    let mut warnings = messages::conflicts(&shares);
    let has_no_limits = |share: &Share<'_>| share.wanted.is_empty() && share.container.shown.is_empty();
    let why_none = if new > 0 && shares.is_empty() {
        Some("the pod's annotation durward.dev/lxcfs-containers does not choose it")
    } else if shares.is_empty() || !shares.iter().all(has_no_limits) {
        None
    } else if had.is_empty() {
        Some(why_none_are_had(config.backend))
    } else {
        Some(
            "onlyIfLimited is set, it has no limits of its own, and the pod as a whole has none that the files would show",
        )
    };
    warnings.extend(why_none.map(|why| format!("this container gets no files: {why}")));
    let mut injection = Injection::of(&shares, warnings);
    injection.mounts(&config.root, &shares, &volume_names(&volumes))?;
    Ok(injection)
}

/// Why an ephemeral container can have no files in a pod without volumes of LXCFS.
fn why_none_are_had(backend: Backend) -> &'static str {
    match backend {
        Backend::Volumes => "the pod was made without volumes of LXCFS, and a running pod takes no new ones",
        Backend::Device => {
            "the device plugin gives none to ephemeral containers, which cannot have resources"
        }
        Backend::Auto => {
            "the pod was made without volumes of LXCFS, a running pod takes no new ones, and the device plugin gives none to ephemeral containers"
        }
    }
}

/// The names of all containers, sorted.
fn names<'c>(containers: &'c [Container<'_>]) -> Result<Vec<&'c str>, Unreadable> {
    let mut names: Vec<&str> = containers.iter().map(|container| container.name.as_ref()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair.first() == pair.last()) {
        Some(_) => Err(Unreadable::new("a container's name", "stands twice")),
        None => Ok(names),
    }
}

fn shares<'a>(config: &Config, pod: Pod<'_>, containers: Vec<Container<'a>>, files: Files) -> Vec<Share<'a>> {
    let of_pod = Limits::of_pod(pod);
    let share = |container: Container<'a>| {
        let wanted = config.limited(files, container.limits.and(of_pod));
        let adds = wanted.without(container.shown).without(container.kept_files());
        Share { container, wanted, adds }
    };
    containers.into_iter().map(share).collect()
}

/// For each file, the volume that shows it, or the name that a new one gets.
fn volume_names<'v>(volumes: &'v Volumes<'_>) -> VolumeNames<'v> {
    LxcfsFile::ALL.map(|file| {
        volumes.ours(file).map_or_else(|| volumes.free_name(file), |source| Cow::Borrowed(&source.name))
    })
}

fn name_in<'n>(names: &'n VolumeNames<'_>, file: LxcfsFile) -> &'n str {
    names.get(file as usize).map_or("", AsRef::as_ref)
}

impl Injection {
    /// An injection that adds nothing yet, with room for what it will add.
    fn of(shares: &[Share<'_>], warnings: Vec<String>) -> Self {
        let mounts: usize = shares.iter().map(|share| share.adds.len()).sum();
        // A mount takes some 130 bytes with its path, a volume 150, of which there are at most as many as files; and the status.
        let size = mounts * 130 + mounts.min(LxcfsFile::ALL.len()) * 150;
        Self::with_room(size, messages::summary(shares), warnings)
    }

    /// An injection that adds nothing yet, with room for so many bytes at so many places beside the readiness and the status.
    pub(super) fn with_room(size: usize, summary: String, warnings: Vec<String>) -> Self {
        Self { patch: Patch::with_capacity(size + 256), summary, whereto: "", warnings }
    }

    /// Adds the volumes that are missing.
    fn volumes(
        &mut self,
        root: &Root,
        volumes: &Volumes<'_>,
        names: &VolumeNames<'_>,
        needed: Files,
    ) -> Result<(), Unreadable> {
        let missing = needed.filter(|file| volumes.ours(file).is_none());
        let new = missing.iter().map(|file| Addition::volume(root, file, name_in(names, file)));
        self.add_all(volumes.slot, new, missing.len())
    }

    /// Adds the mounts.
    fn mounts(
        &mut self,
        root: &Root,
        shares: &[Share<'_>],
        names: &VolumeNames<'_>,
    ) -> Result<(), Unreadable> {
        shares.iter().try_for_each(|Share { container, adds, .. }| {
            let new = adds.iter().map(|file| Addition::mount(root, file, name_in(names, file)));
            self.add_all(container.mounts, new, adds.len())
        })
    }

    /// Adds `new` to a list, or as a list where there is none.
    pub(super) fn add_all(
        &mut self,
        slot: Slot,
        mut new: impl Iterator<Item = impl Serialize>,
        count: usize,
    ) -> Result<(), Unreadable> {
        if count == 0 {
            return Ok(());
        }
        if slot.is_missing() {
            return self.add(&slot.pointer(), &new.collect::<Vec<_>>());
        }
        let end = slot.pointer().append();
        new.try_for_each(|value| self.add(&end, &value))
    }

    /// Writes the summary into the pod's annotation, unless it is the same already.
    pub(super) fn status(&mut self, pod: Pod<'_>, opt_in: &PodOptIn<'_>) -> Result<(), Unreadable> {
        if opt_in.status.as_deref() == Some(self.summary.as_str()) {
            return Ok(());
        }
        let annotations = pod.field(ANNOTATIONS);
        let written = annotations.map_or(0, |raw| raw.get().len());
        if written + STATUS.len() + self.summary.len() > limits::ANNOTATIONS {
            self.warnings.push(format!("{STATUS} is not written: the annotations have no room left"));
            return Ok(());
        }
        let slot = Slot::read(Target::Annotations, annotations)
            .ok_or_else(|| Unreadable::new("metadata.annotations", "is not an object"))?;
        let summary = std::mem::take(&mut self.summary);
        let added = self.add_entry(slot, STATUS, &summary);
        self.summary = summary;
        added
    }

    /// Adds an entry to a map, or a map with the entry if there is none.
    pub(super) fn add_entry(
        &mut self,
        slot: Slot,
        key: &str,
        value: &impl Serialize,
    ) -> Result<(), Unreadable> {
        if slot.is_missing() {
            self.add(&slot.pointer(), &std::collections::BTreeMap::from([(key, value)]))
        } else {
            self.add(&slot.pointer().key(key), value)
        }
    }

    /// Adds a whole value at a missing slot.
    pub(super) fn add_whole(&mut self, slot: Slot, value: &impl Serialize) -> Result<(), Unreadable> {
        if slot.is_missing() { self.add(&slot.pointer(), value) } else { Ok(()) }
    }

    fn add(&mut self, at: &Pointer, value: &impl Serialize) -> Result<(), Unreadable> {
        // Texts and booleans into memory: there is nothing that could fail, and if it did, nothing half would be sent.
        self.patch.add(at, value).map_err(|_| Unreadable::new("the patch", "could not be written"))
    }
}
