//! A cgroup of the run's own in every hierarchy: containers and whatever they start are in it, and so are
//! found again, also those that no environment names.
//!
//! Hosts differ: one unified hierarchy (version 2), one per controller (version 1), or both side by side.
//! What is mounted says which.
//!
//! - Version 1: a new cpuset is empty and takes nobody; it gets its parent's processors and memory nodes.
//! - Version 2: a group has the controllers that its parent hands down. What the root does not hand down as
//!   yet is added there, and taken back by the last run that has a group: `delegation.rs`.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::Signal;

use super::process::Identity;
use crate::console::print;

mod delegation;

/// What the kubelet does not start without.
const NEEDED: [&str; 4] = ["cpu", "cpuset", "memory", "pids"];

/// Every group's name begins so; nothing else is ever touched.
const PREFIX: &str = "durward-";

/// A killed process leaves its group when the kernel has torn it down.
const EMPTY_WITHIN: Duration = Duration::from_secs(20);

/// The name of a run's `number`-th group.
pub(super) fn name(run: &str, number: usize) -> String {
    format!("{PREFIX}{run}-{number}")
}

/// Makes the group in every hierarchy, or in none. It must be in the journal already.
pub(super) fn create(name: &str) -> Result<()> {
    ensure!(is_ours(name), "{name:?} is no name of a run's cgroup");
    let hierarchies = hierarchies()?;
    if let Some(lack) = lack_of(&hierarchies) {
        bail!(lack);
    }
    let made = hierarchies.iter().try_for_each(|hierarchy| hierarchy.create(name));
    if made.is_err() {
        remove(name);
    }
    made
}

/// Ends every member, also those that fork meanwhile, and removes the group and all below it.
pub(super) fn remove(name: &str) {
    if !is_ours(name) {
        print(format_args!("{name:?} is no name of a run's cgroup: it is left alone"));
        return;
    }
    let hierarchies = match hierarchies() {
        Ok(hierarchies) => hierarchies,
        Err(error) => return print(format_args!("the cgroup {name} is not removed: {error:#}")),
    };
    let groups: Vec<_> = hierarchies.iter().map(|hierarchy| hierarchy.root.join(name)).collect();
    let began = Instant::now();
    loop {
        let left = members(&groups);
        if !left.is_empty() {
            kill(&groups, &left);
        } else if groups.iter().all(|group| remove_tree(group)) {
            break;
        }
        if began.elapsed() >= EMPTY_WITHIN {
            print(format_args!("the cgroup {name} cannot be removed; still in it: {left:?}"));
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    for hierarchy in hierarchies.iter().filter(|hierarchy| hierarchy.unified) {
        if let Err(error) = delegation::give_back(&hierarchy.root) {
            print(format_args!("{error:#}"));
        }
    }
}

/// The root of every hierarchy.
pub(super) fn roots() -> Result<Vec<PathBuf>> {
    Ok(hierarchies()?.into_iter().map(|hierarchy| hierarchy.root).collect())
}

/// Letters, digits and hyphens only: no way out of the root.
fn is_ours(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|rest| {
        !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    })
}

/// Why no node can have its cgroups on this host; none if it can.
pub(crate) fn lack() -> Option<String> {
    hierarchies().map_or_else(|error| Some(format!("{error:#}")), |hierarchies| lack_of(&hierarchies))
}

fn lack_of(hierarchies: &[Hierarchy]) -> Option<String> {
    let is_there = |wanted: &&str| hierarchies.iter().any(|hierarchy| hierarchy.has(wanted));
    let missing: Vec<_> = NEEDED.into_iter().filter(|wanted| !is_there(wanted)).collect();
    (!missing.is_empty()).then(|| {
        format!(
            "no cgroup hierarchy that is mounted here has the controllers {}: on a host, mount them, and start the \
             kernel without `cgroup_disable=` (for memory, some need `cgroup_enable=memory`); in a container, run it \
             with the host's cgroups (docker run --privileged --cgroupns=host)",
            missing.join(", ")
        )
    })
}

/// One kill for all. Nobody can fork from here on, so the next look finds nobody new; what is frozen is
/// thawed, for under version 1 the frozen do not die.
fn kill(groups: &[PathBuf], members: &BTreeSet<i32>) {
    for group in groups {
        let _ = std::fs::write(group.join("pids.max"), "0");
    }
    for pid in members {
        // A member is ours by being one: what it was a moment ago does not matter.
        Identity::of(*pid).map(|process| process.signal(Signal::KILL));
    }
    for folder in groups.iter().flat_map(|group| tree(group)) {
        let _ = write_existing(&folder.join("freezer.state"), "THAWED");
    }
}

/// Everybody in these groups and below.
fn members(groups: &[PathBuf]) -> BTreeSet<i32> {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    groups
        .iter()
        .flat_map(|group| tree(group))
        .filter_map(|folder| std::fs::read_to_string(folder.join("cgroup.procs")).ok())
        .flat_map(|text| text.lines().filter_map(|line| line.parse().ok()).collect::<Vec<i32>>())
        .filter(|pid| *pid > 0 && *pid != own)
        .collect()
}

/// A folder and all below, parents first; nothing if it is not there.
fn tree(folder: &Path) -> Vec<PathBuf> {
    let mut folders = if folder.is_dir() { vec![folder.to_owned()] } else { Vec::new() };
    let mut next = 0;
    while let Some(folder) = folders.get(next) {
        let Ok(entries) = std::fs::read_dir(folder) else { break };
        let below: Vec<_> = entries
            .filter_map(Result::ok)
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .collect();
        folders.extend(below);
        next += 1;
    }
    folders
}

/// Whether the group is gone now, with all below it.
fn remove_tree(group: &Path) -> bool {
    for folder in tree(group).iter().rev() {
        let _ = std::fs::remove_dir(folder);
    }
    !group.exists()
}

/// Writes without making a file: a kernel without this one has no use for it.
fn write_existing(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    File::options().write(true).open(path)?.write_all(text.as_bytes())
}

/// One hierarchy, by the place where all of it is mounted.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    root: PathBuf,
    unified: bool,
    controllers: Vec<String>,
}

fn hierarchies() -> Result<Vec<Hierarchy>> {
    let mounts =
        std::fs::read_to_string("/proc/self/mountinfo").context("cannot read /proc/self/mountinfo")?;
    let mut found = parse(&mounts);
    for unified in found.iter_mut().filter(|hierarchy| hierarchy.unified) {
        unified.controllers = words(&unified.root.join("cgroup.controllers"))?;
    }
    Ok(found)
}

/// The first full mount of each hierarchy.
fn parse(mountinfo: &str) -> Vec<Hierarchy> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for line in mountinfo.lines() {
        let Some((place, kind)) = line.split_once(" - ") else { continue };
        let place: Vec<_> = place.split(' ').collect();
        let kind: Vec<_> = kind.split(' ').collect();
        let ([_, _, device, "/", root, ..], [kind @ ("cgroup" | "cgroup2"), _, options]) = (&*place, &*kind)
        else {
            continue;
        };
        if seen.insert((*device).to_owned()) {
            let unified = *kind == "cgroup2";
            let controllers = options.split(',').map(str::to_owned).collect();
            found.push(Hierarchy { root: root.into(), unified, controllers });
        }
    }
    found
}

impl Hierarchy {
    fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|had| had == controller)
    }

    fn create(&self, name: &str) -> Result<()> {
        let group = self.root.join(name);
        // Beside version 1 hierarchies, which then have the controllers, the unified one has nothing to hand down.
        if self.unified && NEEDED.iter().any(|needed| self.has(needed)) {
            return delegation::hand_down(&self.root, &self.controllers, || make(&group));
        }
        make(&group)?;
        for file in ["cpuset.mems", "cpuset.cpus"] {
            if let Ok(parents) = std::fs::read_to_string(self.root.join(file))
                && !self.unified
            {
                let path = group.join(file);
                write_existing(&path, parents.trim())
                    .with_context(|| format!("cannot write {}", path.display()))?;
            }
        }
        Ok(())
    }
}

fn make(group: &Path) -> Result<()> {
    std::fs::create_dir(group).with_context(|| {
        format!(
            "cannot make the cgroup {}: a node needs root and cgroups that may be written (in a container: \
             docker run --privileged --cgroupns=host)",
            group.display()
        )
    })
}

fn words(path: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests;
