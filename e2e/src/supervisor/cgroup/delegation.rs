//! What the root of a unified hierarchy hands down to its groups, and how that is put back.
//!
//! A root that hands down too little is made to hand down more, which the kubelet and runc would do anyway. An
//! extended attribute of the root notes what it was before the first run came. The last run that has a group
//! takes back what is not in that note, and only then removes the note: one that is killed on the way, or that
//! the kernel refuses something, leaves the rest to the end of the next.
//!
//! Meanwhile others may have begun to use what they found there: systemd writes `+io` without looking
//! who was first. So nothing is taken back that another group hands down further or has set to anything but what a
//! fresh group has. The kernel itself refuses (EBUSY) only the first of these.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use rustix::io::Errno;

use super::{is_ours, words, write_existing};
use crate::console::print;

/// What a pure version 2 root must hand down: what the kubelet does not start without, and what it takes if the
/// kernel has it.
const HANDED_DOWN: [&str; 6] = ["cpu", "cpuset", "hugetlb", "io", "memory", "pids"];

/// Which controllers a root handed down before the first run came.
const BEFORE: &str = "trusted.durward-e2e-before";

/// A group that is there for a moment, to be read: nobody has set anything in it. No run has this name.
const FRESH: &str = "durward-fresh";

/// What a group has of itself, although it may be written.
const OF_ITSELF: [&str; 2] = [".pressure", ".peak"];

/// Makes a run's group, and lets the root hand down to it what a node needs, as far as the kernel has it.
pub(super) fn hand_down(
    root: &Path,
    controllers: &[String],
    make: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let _lock = lock(root)?;
    make()?;
    let before = words(&handed_down(root))?;
    let noted = setxattr(root, BEFORE, before.join(" ").as_bytes(), XattrFlags::CREATE);
    if let Err(error) = noted
        && error != Errno::EXIST
    {
        bail!("cannot note on {} which controllers it hands down: {error}", root.display());
    }
    let is_in = |list: &[String], wanted: &str| list.iter().any(|had| had == wanted);
    for wanted in
        HANDED_DOWN.into_iter().filter(|wanted| is_in(controllers, wanted) && !is_in(&before, wanted))
    {
        write_existing(&handed_down(root), &format!("+{wanted}")).with_context(|| {
            format!("the cgroup {} cannot hand down the controller {wanted}", root.display())
        })?;
    }
    Ok(())
}

/// Takes back from the root what it did not hand down before the first run came, unless another run is left.
pub(super) fn give_back(root: &Path) -> Result<()> {
    give_back_by(root, |change| write_existing(&handed_down(root), change))
}

/// `write` is what changes the root: the tests have no kernel that refuses.
fn give_back_by(root: &Path, mut write: impl FnMut(&str) -> std::io::Result<()>) -> Result<()> {
    let _lock = lock(root)?;
    let Some(before) = noted(root) else { return Ok(()) };
    if has_runs(root) {
        return Ok(());
    }
    let mut surplus = words(&handed_down(root))?;
    surplus.retain(|controller| !before.contains(controller));
    let fresh = if surplus.is_empty() { BTreeMap::new() } else { fresh_settings(root)? };
    let mut refused = Vec::new();
    for controller in &surplus {
        if let Some(user) = user_of(root, controller, &fresh) {
            print(format_args!(
                "{} goes on handing down the controller {controller}, which {user} has begun to use",
                root.display()
            ));
        } else if let Err(error) = write(&format!("-{controller}")) {
            refused.push(format!("{controller} ({error})"));
        }
    }
    ensure!(
        refused.is_empty(),
        "{} goes on handing down {}: the end of the next run takes it back",
        root.display(),
        refused.join(", ")
    );
    removexattr(root, BEFORE)
        .with_context(|| format!("cannot remove the note {BEFORE} of {}", root.display()))
}

/// What was handed down before the first run came; none if no run ever came, or all is given back.
fn noted(root: &Path) -> Option<Vec<String>> {
    let mut before = [0; 512];
    let length = getxattr(root, BEFORE, &mut before).ok()?;
    let before = String::from_utf8_lossy(before.get(..length)?).into_owned();
    Some(before.split_whitespace().map(str::to_owned).collect())
}

/// Who uses a controller, of the groups below the root.
fn user_of(root: &Path, controller: &str, fresh: &BTreeMap<String, String>) -> Option<String> {
    groups(root).find_map(|name| {
        let group = root.join(&name);
        let further = words(&handed_down(&group)).unwrap_or_default();
        let uses = further.iter().any(|handed| handed == controller)
            || settings(&group)
                .iter()
                .filter(|(file, _)| file.split('.').next() == Some(controller))
                .any(|(file, value)| fresh.get(file) != Some(value));
        uses.then_some(name)
    })
}

/// The settings of a group that was made this moment.
fn fresh_settings(root: &Path) -> Result<BTreeMap<String, String>> {
    let group = root.join(FRESH);
    // Somebody who was killed may have left one.
    let _ = std::fs::remove_dir(&group);
    std::fs::create_dir(&group).with_context(|| format!("cannot make {}", group.display()))?;
    let settings = settings(&group);
    std::fs::remove_dir(&group).with_context(|| format!("cannot remove {}", group.display()))?;
    Ok(settings)
}

/// What can be set in a group, and is: every file that can be written and read.
fn settings(group: &Path) -> BTreeMap<String, String> {
    let Ok(entries) = std::fs::read_dir(group) else { return BTreeMap::new() };
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let metadata = entry.metadata().ok()?;
            let name = entry.file_name().into_string().ok()?;
            let is_setting = metadata.is_file()
                && metadata.permissions().mode() & 0o200 != 0
                && !OF_ITSELF.iter().any(|end| name.ends_with(end));
            Some((name, is_setting.then(|| std::fs::read_to_string(entry.path()).ok())??))
        })
        .collect()
}

fn has_runs(root: &Path) -> bool {
    groups(root).any(|name| is_ours(&name) && name != FRESH)
}

/// The names of the groups directly below.
fn groups(root: &Path) -> impl Iterator<Item = String> {
    std::fs::read_dir(root)
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
}

/// One run at a time, whatever cache it has. The kernel frees it with the file.
fn lock(root: &Path) -> Result<File> {
    let folder = File::open(root).with_context(|| format!("cannot open {}", root.display()))?;
    folder.lock().with_context(|| format!("cannot lock {}", root.display()))?;
    Ok(folder)
}

fn handed_down(root: &Path) -> PathBuf {
    root.join("cgroup.subtree_control")
}

#[cfg(test)]
mod tests;
