//! Compares the host before and after a run.
//!
//! A state has a line for each address, interface, mount, cgroup and process of another pid namespace, and the value of
//! every setting below `/proc/sys` that can be written. A setting that only one of two states has is ignored: it came and
//! went with a driver or an interface.
//!
//! Other runs can begin and end meanwhile. A line with a name of theirs (`durward…`, an address or a pid namespace of a
//! run) is ignored, unless the caller names it. A mount out of a run's work directory has that directory's name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::identity::{Identity, started};

/// Settings that change by themselves, and files that are commands rather than settings.
const VOLATILE: [&str; 6] = [
    "fs/binfmt_misc",
    "kernel/ns_last_pid",
    "kernel/perf_event_max_sample_rate",
    "kernel/perf_cpu_time_max_percent",
    "kernel/sched_domain",
    "net/ipv4/tcp_fastopen_key",
];

/// Suffixes of the service manager's groups, which come and go with logins.
const MANAGED: [&str; 4] = [".slice", ".scope", ".service", ".mount"];

/// The state of the host at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostState {
    lines: BTreeSet<String>,
    settings: BTreeMap<String, String>,
}

impl HostState {
    /// Reads the state, which takes about 50 ms.
    pub fn now() -> Result<Self> {
        let mut lines = BTreeSet::new();
        for what in ["addr", "link"] {
            let output = Command::new("ip").args(["-o", what]).output().context("cannot run `ip`")?;
            ensure!(output.status.success(), "`ip -o {what}` failed");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            // The rest of a line is how long the address is still valid, which changes by itself.
            lines.extend(text.lines().map(|line| {
                let line = line.split(" valid_lft").next().unwrap_or(line);
                format!("{what} {}", line.split_whitespace().collect::<Vec<_>>().join(" "))
            }));
        }
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
        lines.extend(mounts.lines().map(|line| format!("mount {line}")));
        for root in super::cgroup::roots()? {
            groups(&root, &mut lines);
        }
        lines.extend(process_lines());
        let mut values = BTreeMap::new();
        settings(Path::new("/proc/sys"), &mut values);
        Ok(Self { lines, settings: values })
    }

    /// Returns the lines that `later` lacks, with `-`, those that it has in addition, with `+`, and the settings that
    /// differ.
    ///
    /// `ours` are the names of the run in question: its cgroups, links, addresses, [`work_directory`] and
    /// [`pid_namespace`]. Lines of all other runs are ignored.
    pub fn difference(&self, later: &Self, ours: &[String]) -> Vec<String> {
        let gone = self.lines.difference(&later.lines).map(|line| format!("- {line}"));
        let new = later.lines.difference(&self.lines).map(|line| format!("+ {line}"));
        let changed = self.settings.iter().filter_map(|(name, was)| {
            let is = later.settings.get(name).filter(|is| *is != was)?;
            Some(format!("setting {name} was {was:?} and is {is:?}"))
        });
        let is_foreign = |line: &String| {
            is_of_another_run(line, ours)
                || group_of(line).is_some_and(|group| self.is_in_foreign_group(group, later))
        };
        gone.chain(new).chain(changed).filter(|line| !is_foreign(line)).collect()
    }

    /// Returns whether a group is within one that exists in both states and is not a root. Its owner, a service of this
    /// host, makes and removes groups in it. A run makes its own at the root.
    fn is_in_foreign_group(&self, group: &Path, later: &Self) -> bool {
        let exists = |group: &Path| {
            let line = format!("cgroup {}", group.display());
            self.lines.contains(&line) && later.lines.contains(&line)
        };
        let parents = group.ancestors().skip(1).zip(group.ancestors().skip(2));
        parents.into_iter().any(|(parent, grandparent)| exists(parent) && exists(grandparent))
    }
}

/// Returns the name of a run's work directory.
pub fn work_directory(work: &Path) -> String {
    work.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns the name of this process's pid namespace, such as `pid:[4026532281]-8817`: its number, which the kernel reuses,
/// and the start of its first process.
pub fn pid_namespace() -> Result<String> {
    let number = namespace_number(Path::new("/proc/self")).context("cannot read /proc/self/ns/pid")?;
    let first = Identity::of(1).context("cannot read /proc/1/stat")?;
    Ok(format!("{number}-{}", first.started))
}

/// Returns the processes of this pid namespace by their directories in `/proc`.
pub fn processes_of(namespace: &str) -> Vec<PathBuf> {
    isolated_processes()
        .into_iter()
        .filter(|(_, other)| other == namespace)
        .map(|(process, _)| process)
        .collect()
}

fn namespace_number(process: &Path) -> Option<String> {
    Some(std::fs::read_link(process.join("ns/pid")).ok()?.to_string_lossy().into_owned())
}

/// Returns the processes of other pid namespaces, those of runs and of containers, with the names of the namespaces.
fn isolated_processes() -> Vec<(PathBuf, String)> {
    let own = namespace_number(Path::new("/proc/self"));
    let mut starts = BTreeMap::new();
    let mut processes = Vec::new();
    for process in
        std::fs::read_dir("/proc").into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()))
    {
        let Some(number) = namespace_number(&process).filter(|number| Some(number) != own.as_ref()) else {
            continue;
        };
        let status = std::fs::read_to_string(process.join("status")).unwrap_or_default();
        let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
        if ids.split_ascii_whitespace().last() == Some("1")
            && let Some(started) = started(&process)
        {
            starts.insert(number.clone(), started);
        }
        processes.push((process, number));
    }
    let name = |number: String| starts.get(&number).map(|started| format!("{number}-{started}"));
    processes.into_iter().filter_map(|(process, number)| Some((process, name(number)?))).collect()
}

fn process_lines() -> BTreeSet<String> {
    let line = |(process, namespace): (PathBuf, String)| {
        let name = std::fs::read_to_string(process.join("comm")).ok()?;
        Some(format!("process {} of {namespace}", name.trim_end()))
    };
    isolated_processes().into_iter().filter_map(line).collect()
}

/// Returns the group of a line of a difference.
fn group_of(line: &str) -> Option<&Path> {
    let line = line.strip_prefix("+ cgroup ").or_else(|| line.strip_prefix("- cgroup "))?;
    Some(Path::new(line.split(" enables").next().unwrap_or(line)))
}

/// Returns whether the line names something of a run, and nothing of ours.
fn is_of_another_run(line: &str, ours: &[String]) -> bool {
    let words = || line.split([' ', '/', '@', '=']).flat_map(|word| [word, word.trim_end_matches(':')]);
    let is_of_a_run =
        |word: &str| word.starts_with("durward") || word.starts_with("pid:[") || is_leased_address(word);
    words().any(is_of_a_run) && !words().any(|word| ours.iter().any(|own| own == word))
}

fn is_leased_address(word: &str) -> bool {
    (word.starts_with("10.98.") || word.starts_with("10.99.")) && word.ends_with(".1")
}

fn groups(root: &Path, lines: &mut BTreeSet<String>) {
    lines.insert(format!("cgroup {}", root.display()));
    if let Ok(controllers) = std::fs::read_to_string(root.join("cgroup.subtree_control")) {
        lines.insert(format!("cgroup {} enables {}", root.display(), controllers.trim()));
    }
    let Ok(entries) = std::fs::read_dir(root) else { return };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        let is_managed = MANAGED.iter().any(|end| name.to_string_lossy().ends_with(end));
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) && !is_managed {
            groups(&entry.path(), lines);
        }
    }
}

fn settings(directory: &Path, values: &mut BTreeMap<String, String>) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.filter_map(Result::ok) {
        let path = entry.path();
        let name = path.strip_prefix("/proc/sys").unwrap_or(&path).to_owned();
        if VOLATILE.iter().any(|volatile| name.starts_with(volatile)) {
            continue;
        }
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_dir() {
            settings(&path, values);
        } else if is_setting(&metadata)
            && let Ok(value) = std::fs::read(&path)
        {
            let value = String::from_utf8_lossy(&value).split_whitespace().collect::<Vec<_>>().join(" ");
            values.insert(name.display().to_string(), value);
        }
    }
}

/// Returns whether the file's owner can both read and write it.
fn is_setting(metadata: &Metadata) -> bool {
    metadata.permissions().mode() & 0o600 == 0o600
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [String; 0] = [];

    fn state(lines: &[&str]) -> HostState {
        HostState { lines: lines.iter().map(|line| (*line).to_owned()).collect(), settings: BTreeMap::new() }
    }

    fn with_settings(settings: &[(&str, &str)]) -> HostState {
        let owned = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        HostState { lines: BTreeSet::new(), settings: owned.collect() }
    }

    #[test]
    fn reports_removed_and_added_lines() {
        let before = state(&["mount / ext4", "mount /old tmpfs"]);
        let after = state(&["mount / ext4", "mount /new tmpfs", "addr 4: eth0 inet 10.98.7.2/24"]);
        let expected = ["- mount /old tmpfs", "+ addr 4: eth0 inet 10.98.7.2/24", "+ mount /new tmpfs"];
        assert_eq!(before.difference(&after, &NONE), expected);
    }

    #[test]
    fn reports_a_changed_setting_and_ignores_an_added_one() {
        let before = with_settings(&[("kernel/panic", "1"), ("vm/panic_on_oom", "0")]);
        let after = with_settings(&[("kernel/panic", "10"), ("vm/panic_on_oom", "0"), ("fs/fuse/max", "9")]);
        assert_eq!(before.difference(&after, &NONE), [r#"setting kernel/panic was "1" and is "10""#]);
        assert_eq!(after.difference(&after, &NONE), NONE);
    }

    #[test]
    fn reports_the_lines_of_the_run_in_question_only() {
        let after = state(&[
            "addr 1: lo inet 10.99.7.1/32 scope global lo",
            "addr 9: durward7 inet 10.98.7.1/30 scope global durward7",
            "link 9: durward7@if2: <BROADCAST> mtu 1500",
            "cgroup /sys/fs/cgroup/memory/durward-12-3-0/kubepods",
            "mount 812 31 254:1 /tmp/durward-e2e-12-3/disk/var/lib/kubelet /var/lib/kubelet rw - ext4 /dev/vda1 rw",
            "process kubelet of pid:[4026532281]",
        ]);
        let another = ["durward77", "10.99.77.1", "durward-12-3-1", "durward-e2e-12-4", "pid:[4026532282]"];
        assert_eq!(state(&[]).difference(&after, &another.map(str::to_owned)), NONE);
        let ours = ["durward7", "10.99.7.1", "durward-12-3-0", "durward-e2e-12-3", "pid:[4026532281]"];
        assert_eq!(state(&[]).difference(&after, &ours.map(str::to_owned)).len(), 6);
    }

    #[test]
    fn reads_addresses_mounts_and_settings_of_this_host() {
        let now = HostState::now().unwrap();
        assert!(now.lines.iter().any(|line| line.starts_with("addr ") && line.contains("127.0.0.1/8")));
        assert!(now.lines.iter().any(|line| line.starts_with("mount ") && line.contains(" /proc ")));
        assert!(
            now.settings.contains_key("kernel/panic") && now.settings.contains_key("net/ipv4/ip_forward")
        );
        assert!(!now.settings.contains_key("kernel/ns_last_pid"));
    }

    #[test]
    fn ignores_groups_within_another_services_group() {
        let root = "cgroup /sys/fs/cgroup/memory";
        let line = |rest: &str| format!("{root}{rest}");
        let [service, job, new] = ["/service", "/service/jobs/7", "/kubepods"].map(line);
        let before = state(&[root, &service, &line("/service/jobs"), &job]);
        let after = state(&[root, &service, &line("/service/jobs"), &new]);
        assert_eq!(before.difference(&after, &NONE), [format!("+ {new}")]);
        assert_eq!(before.difference(&state(&[root]), &NONE).len(), 3, "a whole tree is reported");
    }
}
