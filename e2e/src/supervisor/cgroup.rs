//! Cgroups of the run, one for each node, below which the containers are.
//!
//! Hosts have one unified hierarchy (version 2), one hierarchy per controller (version 1), or both. `mountinfo` says which. A group
//! exists in each of them under the same name, which begins with that of the run. Controllers that a unified root lacks are
//! enabled and stay so: the kubelet would enable them too, and they have no effect without limits.

use std::fs::{OpenOptions, read_dir, read_to_string};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::console::print;

/// The controllers without which the kubelet does not start, and those that it uses if the kernel has them.
const NEEDED: [&str; 4] = ["cpu", "cpuset", "memory", "pids"];
const USED: [&str; 2] = ["hugetlb", "io"];

/// A killed process leaves its group when the kernel has released it.
const EMPTY_WITHIN: Duration = Duration::from_secs(20);

/// Returns the name of a run's group.
pub(super) fn name(run: &str, number: u64) -> String {
    format!("durward-{run}-{number}")
}

/// Makes the group in every hierarchy.
pub(super) fn create(name: &str) -> Result<()> {
    if let Some(lack) = lack() {
        bail!(lack);
    }
    for Hierarchy { root, unified, controllers } in hierarchies() {
        let group = root.join(name);
        std::fs::create_dir(&group).with_context(|| {
            format!(
                "cannot make the cgroup {}: a node needs root and a writable cgroup hierarchy (in a container: \
                 docker run --privileged --cgroupns=host)",
                group.display()
            )
        })?;
        if unified {
            let wanted = |name: &&String| NEEDED.iter().chain(&USED).any(|wanted| name == wanted);
            for controller in controllers.iter().filter(wanted) {
                write(&root.join("cgroup.subtree_control"), &format!("+{controller}"))?;
            }
        } else {
            // A new cpuset of version 1 is empty and accepts no process.
            for file in ["cpuset.mems", "cpuset.cpus"] {
                if let Ok(parents) = read_to_string(root.join(file)) {
                    write(&group.join(file), parents.trim())?;
                }
            }
        }
    }
    Ok(())
}

/// Removes all groups of a run.
pub(super) fn remove_all(run: &str) {
    let prefix = format!("durward-{run}-");
    for hierarchy in hierarchies() {
        for entry in read_dir(&hierarchy.root).into_iter().flatten().filter_map(Result::ok) {
            if let Some(name) = entry.file_name().to_str().filter(|name| name.starts_with(&prefix)) {
                remove(name);
            }
        }
    }
}

/// Kills the processes of the group and of all groups below it, and removes the groups.
pub(super) fn remove(name: &str) {
    let began = Instant::now();
    let groups = || hierarchies().into_iter().flat_map(|hierarchy| tree(&hierarchy.root.join(name)));
    while let Some(left) = groups().next() {
        for group in groups().collect::<Vec<_>>().iter().rev() {
            let processes = read_to_string(group.join("cgroup.procs")).unwrap_or_default();
            // A process of another pid namespace has the number 0.
            for process in processes.lines().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
                let _ = kill_process(process, Signal::KILL);
            }
            let _ = std::fs::remove_dir(group);
        }
        if began.elapsed() >= EMPTY_WITHIN {
            return print(format_args!(
                "the cgroup {} still has processes and is not removed",
                left.display()
            ));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns why no node can have its cgroups on this host, or none if it can.
pub(crate) fn lack() -> Option<String> {
    let controllers: Vec<String> =
        hierarchies().into_iter().flat_map(|hierarchy| hierarchy.controllers).collect();
    let missing: Vec<_> =
        NEEDED.into_iter().filter(|needed| !controllers.iter().any(|had| had == needed)).collect();
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
        let entries = read_dir(group).into_iter().flatten().filter_map(Result::ok);
        let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let below: Vec<_> = below.map(|entry| entry.path()).collect();
        groups.extend(below);
        next += 1;
    }
    groups
}

/// Writes a file that exists.
fn write(path: &Path, text: &str) -> Result<()> {
    let written =
        OpenOptions::new().write(true).open(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("cannot write {text} to {}", path.display()))
}

/// A hierarchy that is mounted in full.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    root: PathBuf,
    unified: bool,
    controllers: Vec<String>,
}

fn hierarchies() -> Vec<Hierarchy> {
    let mut found = parse(&read_to_string("/proc/self/mountinfo").unwrap_or_default());
    for unified in found.iter_mut().filter(|hierarchy| hierarchy.unified) {
        let controllers = read_to_string(unified.root.join("cgroup.controllers")).unwrap_or_default();
        unified.controllers = controllers.split_whitespace().map(str::to_owned).collect();
    }
    found
}

/// Returns the first full mount of each hierarchy.
fn parse(mountinfo: &str) -> Vec<Hierarchy> {
    let mut seen = std::collections::BTreeSet::new();
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
            let controllers = options.split(',').map(str::to_owned).collect();
            found.push(Hierarchy { root: root.into(), unified: *kind == "cgroup2", controllers });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_hierarchies_of_both_versions_once() {
        let found = parse(
            "30 25 0:26 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
             31 25 0:26 / /mnt/again rw - cgroup cgroup rw,cpu,cpuacct\n\
             32 25 0:27 /docker/7 /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
             33 25 0:28 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n\
             34 25 8:1 / /data rw - ext4 /dev/sda1 rw\n",
        );
        let roots: Vec<_> = found.iter().map(|found| (found.root.to_str().unwrap(), found.unified)).collect();
        assert_eq!(roots, [("/sys/fs/cgroup/cpu,cpuacct", false), ("/sys/fs/cgroup/unified", true)]);
        assert_eq!(found[0].controllers, ["rw", "cpu", "cpuacct"]);
    }
}
