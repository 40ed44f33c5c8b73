//! Enables controllers in the root of a unified hierarchy, and restores the root after the last run.
//!
//! The kubelet and runc would enable them as well. An extended attribute of the root records which controllers were
//! enabled before the first run. The last run disables the others and then removes the attribute. If it is killed on the
//! way, or the kernel refuses, the end of the next run does the rest.
//!
//! Other programs can start to use a controller meanwhile: systemd writes `+io` whether it is enabled or not. A
//! controller therefore stays enabled if another group enables it for its children, or has a setting of it that differs
//! from a new group's. The kernel itself refuses (EBUSY) only in the first case.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use rustix::io::Errno;

use super::{is_ours, words, write_existing};
use crate::console::print;

/// The controllers that a root must enable: those that the kubelet needs, and those that it uses if the kernel has them.
const ENABLED: [&str; 6] = ["cpu", "cpuset", "hugetlb", "io", "memory", "pids"];

/// The extended attribute with the controllers that were enabled before the first run.
const BEFORE: &str = "trusted.durward-e2e-before";

/// A group that exists for a moment, to read the settings of a new group. No run has this name.
const NEW: &str = "durward-fresh";

/// Files that can be written but change by themselves.
const VOLATILE: [&str; 2] = [".pressure", ".peak"];

/// Makes a run's group and enables the controllers that a node needs, as far as the kernel has them.
pub(super) fn enable(root: &Path, controllers: &[String], make: impl FnOnce() -> Result<()>) -> Result<()> {
    let _lock = lock(root)?;
    make()?;
    let before = words(&subtree_control(root))?;
    let recorded = setxattr(root, BEFORE, before.join(" ").as_bytes(), XattrFlags::CREATE);
    if let Err(error) = recorded
        && error != Errno::EXIST
    {
        bail!("cannot record on {} which controllers are enabled: {error}", root.display());
    }
    let is_in = |list: &[String], wanted: &str| list.iter().any(|had| had == wanted);
    for wanted in ENABLED.into_iter().filter(|wanted| is_in(controllers, wanted) && !is_in(&before, wanted)) {
        write_existing(&subtree_control(root), &format!("+{wanted}")).with_context(|| {
            format!("the cgroup {} cannot enable the controller {wanted}", root.display())
        })?;
    }
    Ok(())
}

/// Disables the controllers that were not enabled before the first run, unless another run is left.
pub(super) fn restore(root: &Path) -> Result<()> {
    restore_by(root, |change| write_existing(&subtree_control(root), change))
}

/// `write` changes the root; the tests have no kernel that refuses.
fn restore_by(root: &Path, mut write: impl FnMut(&str) -> std::io::Result<()>) -> Result<()> {
    let _lock = lock(root)?;
    let Some(before) = recorded(root) else { return Ok(()) };
    if has_runs(root) {
        return Ok(());
    }
    let mut surplus = words(&subtree_control(root))?;
    surplus.retain(|controller| !before.contains(controller));
    let new = if surplus.is_empty() { BTreeMap::new() } else { new_settings(root)? };
    let mut refused = Vec::new();
    for controller in &surplus {
        if let Some(user) = user_of(root, controller, &new) {
            print(format_args!(
                "{} keeps the controller {controller} enabled, which {user} has begun to use",
                root.display()
            ));
        } else if let Err(error) = write(&format!("-{controller}")) {
            refused.push(format!("{controller} ({error})"));
        }
    }
    ensure!(
        refused.is_empty(),
        "{} keeps {} enabled: the end of the next run disables it",
        root.display(),
        refused.join(", ")
    );
    removexattr(root, BEFORE)
        .with_context(|| format!("cannot remove the attribute {BEFORE} of {}", root.display()))
}

/// Returns the controllers that were enabled before the first run, or none if there was no run or all is restored.
fn recorded(root: &Path) -> Option<Vec<String>> {
    let mut before = [0; 512];
    let length = getxattr(root, BEFORE, &mut before).ok()?;
    let before = String::from_utf8_lossy(before.get(..length)?).into_owned();
    Some(before.split_whitespace().map(str::to_owned).collect())
}

/// Returns a group below the root that uses the controller.
fn user_of(root: &Path, controller: &str, new: &BTreeMap<String, String>) -> Option<String> {
    groups(root).find_map(|name| {
        let group = root.join(&name);
        let enabled = words(&subtree_control(&group)).unwrap_or_default();
        let uses = enabled.iter().any(|enabled| enabled == controller)
            || settings(&group)
                .iter()
                .filter(|(file, _)| file.split('.').next() == Some(controller))
                .any(|(file, value)| new.get(file) != Some(value));
        uses.then_some(name)
    })
}

/// Returns the settings of a new group.
fn new_settings(root: &Path) -> Result<BTreeMap<String, String>> {
    let group = root.join(NEW);
    // A run that was killed can have left one.
    let _ = std::fs::remove_dir(&group);
    std::fs::create_dir(&group).with_context(|| format!("cannot make {}", group.display()))?;
    let settings = settings(&group);
    std::fs::remove_dir(&group).with_context(|| format!("cannot remove {}", group.display()))?;
    Ok(settings)
}

/// Returns every file of a group that can be written and read.
fn settings(group: &Path) -> BTreeMap<String, String> {
    let Ok(entries) = std::fs::read_dir(group) else { return BTreeMap::new() };
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let metadata = entry.metadata().ok()?;
            let name = entry.file_name().into_string().ok()?;
            let is_setting = metadata.is_file()
                && metadata.permissions().mode() & 0o200 != 0
                && !VOLATILE.iter().any(|end| name.ends_with(end));
            Some((name, is_setting.then(|| std::fs::read_to_string(entry.path()).ok())??))
        })
        .collect()
}

fn has_runs(root: &Path) -> bool {
    groups(root).any(|name| is_ours(&name) && name != NEW)
}

/// Returns the names of the groups directly below.
fn groups(root: &Path) -> impl Iterator<Item = String> {
    std::fs::read_dir(root)
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
}

/// Excludes other runs, whatever cache they have. The kernel releases the lock with the file.
fn lock(root: &Path) -> Result<File> {
    let directory = File::open(root).with_context(|| format!("cannot open {}", root.display()))?;
    directory.lock().with_context(|| format!("cannot lock {}", root.display()))?;
    Ok(directory)
}

fn subtree_control(root: &Path) -> PathBuf {
    root.join("cgroup.subtree_control")
}

#[cfg(test)]
mod tests;
