//! Finds the traces of a run on this host, for the cases about its end.

use std::fs::{read_dir, read_link, read_to_string};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};

use super::run::Run;

/// Returns the name of the pid namespace of this process.
pub fn pid_namespace() -> Result<String> {
    namespace_of(Path::new("/proc/self")).context("cannot read /proc/self/ns/pid")
}

/// Returns the traces of a run with this pid namespace: processes, mounts, links, cgroups and its work directory. Its
/// network namespaces end with its processes, or are mounts.
pub fn of(run: &Run, namespace: &str) -> Vec<String> {
    let work = run.work.file_name().unwrap_or_default().to_string_lossy();
    let mounts = read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut traces: Vec<String> =
        mounts.lines().filter(|line| line.contains(&*work)).map(|line| format!("mount {line}")).collect();
    for process in processes(namespace) {
        let command = read_to_string(process.join("cmdline")).unwrap_or_default().replace('\0', " ");
        traces.push(format!("process {command}"));
    }
    for link in entries(Path::new("/sys/class/net")) {
        if read_to_string(link.join("ifalias")).is_ok_and(|alias| alias.trim() == run.name) {
            traces.push(format!("link {}", link.display()));
        }
    }
    let root = Path::new("/sys/fs/cgroup");
    for hierarchy in entries(root).into_iter().chain([root.to_owned()]) {
        let groups = entries(&hierarchy).into_iter().filter(|group| {
            group
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(&format!("durward-{}-", run.name)))
        });
        traces.extend(groups.map(|group| format!("cgroup {}", group.display())));
    }
    traces.extend(run.work.exists().then(|| format!("directory {}", run.work.display())));
    traces
}

/// Kills the first process of a pid namespace, which is its process 1.
pub fn kill_first(namespace: &str) -> Result<()> {
    let is_first = |process: &PathBuf| {
        let status = read_to_string(process.join("status")).unwrap_or_default();
        let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
        ids.split_ascii_whitespace().next_back() == Some("1")
    };
    let first = processes(namespace).into_iter().find(is_first).context("it has no first process")?;
    let pid = first.file_name().and_then(|pid| Pid::from_raw(pid.to_str()?.parse().ok()?));
    Ok(kill_process(pid.context("not a process")?, Signal::KILL)?)
}

/// Returns the processes of a pid namespace by their directories in `/proc`.
fn processes(namespace: &str) -> Vec<PathBuf> {
    let mut processes = entries(Path::new("/proc"));
    processes.retain(|process| namespace_of(process).is_some_and(|own| own == namespace));
    processes
}

fn namespace_of(process: &Path) -> Option<String> {
    Some(read_link(process.join("ns/pid")).ok()?.to_string_lossy().into_owned())
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    read_dir(directory).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect()
}
