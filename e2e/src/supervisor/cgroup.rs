//! A cgroup of the run's own in every hierarchy, below which the node's containers are.
//!
//! Hosts have one unified hierarchy (version 2), one hierarchy per controller (version 1), or both. `mountinfo` says
//! which.
//!
//! - Version 1: a new cpuset is empty and accepts no process, so it gets its parent's processors and memory nodes.
//! - Version 2: a group has the controllers that its parent enables for it. `delegation.rs` enables those that are missing
//!   in the root, and disables them after the last run.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::process::read;
use crate::console::print;

mod delegation;

/// The controllers without which the kubelet does not start.
const NEEDED: [&str; 4] = ["cpu", "cpuset", "memory", "pids"];

/// The prefix of every group of a run. Groups without it are never touched.
const PREFIX: &str = "durward-";

/// A killed process leaves its group when the kernel has released it.
const EMPTY_WITHIN: Duration = Duration::from_secs(20);

/// Returns the name of a run's group.
pub(super) fn name(run: &str, number: u64) -> String {
    format!("{PREFIX}{run}-{number}")
}

/// Makes the group in every hierarchy, or in none. It must be in the journal already.
pub(super) fn create(name: &str) -> Result<()> {
    ensure!(is_ours(name), "{name:?} is not the name of a run's cgroup");
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

/// Removes the group and all groups below it. Its processes must have been killed.
pub(super) fn remove(name: &str) {
    let hierarchies = match hierarchies() {
        Ok(hierarchies) if is_ours(name) => hierarchies,
        Ok(_) => return print(format_args!("{name:?} is not the name of a run's cgroup: it is not removed")),
        Err(error) => return print(format_args!("the cgroup {name} is not removed: {error:#}")),
    };
    let began = Instant::now();
    while !hierarchies.iter().all(|hierarchy| remove_tree(&hierarchy.root.join(name))) {
        if began.elapsed() >= EMPTY_WITHIN {
            print(format_args!("the cgroup {name} still has processes and is not removed"));
            break;
        }
        thaw(name);
        std::thread::sleep(Duration::from_millis(10));
    }
    for hierarchy in hierarchies.iter().filter(|hierarchy| hierarchy.unified) {
        if let Err(error) = delegation::restore(&hierarchy.root) {
            print(format_args!("{error:#}"));
        }
    }
}

/// Kills the processes of the group and of all groups below it. A process that starts meanwhile is killed in the next round.
pub(super) fn kill(name: &str) {
    const ROUNDS: usize = 10;
    thaw(name);
    for _ in 0..ROUNDS {
        let roots = hierarchies().unwrap_or_default().into_iter().map(|hierarchy| hierarchy.root.join(name));
        let lists = roots.flat_map(|root| tree(&root)).map(|group| read(&group.join("cgroup.procs")));
        let pids: BTreeSet<i32> =
            lists.collect::<String>().lines().filter_map(|pid| pid.parse().ok()).collect();
        // A process of another pid namespace has the number 0.
        let processes: Vec<Pid> = pids.into_iter().filter_map(Pid::from_raw).collect();
        if processes.is_empty() {
            return;
        }
        for process in processes {
            let _ = kill_process(process, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Thaws the group and all groups below it. In version 1, SIGKILL does not end a frozen process.
pub(super) fn thaw(name: &str) {
    for hierarchy in hierarchies().unwrap_or_default().iter().filter(|hierarchy| !hierarchy.unified) {
        for group in tree(&hierarchy.root.join(name)) {
            let _ = write_existing(&group.join("freezer.state"), "THAWED");
        }
    }
}

/// Returns the root of every hierarchy.
pub(super) fn roots() -> Result<Vec<PathBuf>> {
    Ok(hierarchies()?.into_iter().map(|hierarchy| hierarchy.root).collect())
}

/// Accepts letters, digits and hyphens only, so that a name cannot lead out of the root.
fn is_ours(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|rest| {
        !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    })
}

/// Returns why no node can have its cgroups on this host, or none if it can.
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

/// Returns a group and all groups below it, parents first, or nothing if it does not exist.
fn tree(group: &Path) -> Vec<PathBuf> {
    let mut groups = if group.is_dir() { vec![group.to_owned()] } else { Vec::new() };
    let mut next = 0;
    while let Some(group) = groups.get(next) {
        let Ok(entries) = std::fs::read_dir(group) else { break };
        let below: Vec<_> = entries
            .filter_map(Result::ok)
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .collect();
        groups.extend(below);
        next += 1;
    }
    groups
}

/// Returns whether the group is gone, with all groups below it.
fn remove_tree(group: &Path) -> bool {
    for group in tree(group).iter().rev() {
        let _ = std::fs::remove_dir(group);
    }
    !group.exists()
}

/// Writes a file only if it exists.
fn write_existing(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    File::options().write(true).open(path)?.write_all(text.as_bytes())
}

/// A hierarchy that is mounted in full.
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

/// Returns the first full mount of each hierarchy.
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
        // If version 1 hierarchies have the controllers, the unified hierarchy has none to enable.
        if self.unified && NEEDED.iter().any(|needed| self.has(needed)) {
            return delegation::enable(&self.root, &self.controllers, || make(&group));
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
            "cannot make the cgroup {}: a node needs root and a writable cgroup hierarchy (in a container: \
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
