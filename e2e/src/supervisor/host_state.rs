//! What this host looks like to those who share it, for a comparison of before and after.
//!
//! Addresses, interfaces, mounts, the folders of every cgroup hierarchy, processes of runs, and every setting under
//! `/proc/sys` that may be written. A line of text for each: what a case finds different it can print. A setting
//! that only one of two moments has is no difference: it came with a driver or an interface, and went with it.
//!
//! Other runs may begin and end meanwhile. What bears a name of theirs (`durward…`, an address of ours on the
//! loopback device) is passed over, unless the caller says that it is the one it asks about. What a run mounts out
//! of its work folder bears that folder's name, and each of its processes the run's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::journal::{MARK, work_of};

/// Settings that the kernel, or the mere running of things, changes: the last process id, hints for the next
/// reader, and what is an order rather than a setting.
const RESTLESS: [&str; 6] = [
    "fs/binfmt_misc",
    "kernel/ns_last_pid",
    "kernel/perf_event_max_sample_rate",
    "kernel/perf_cpu_time_max_percent",
    "kernel/sched_domain",
    "net/ipv4/tcp_fastopen_key",
];

/// Groups of the service manager, which come and go with whoever logs in.
const MANAGED: [&str; 4] = [".slice", ".scope", ".service", ".mount"];

/// A host at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostState {
    lines: BTreeSet<String>,
    settings: BTreeMap<String, String>,
}

impl HostState {
    /// Looks now. Processes are told without their numbers, by run and name. It takes about a twentieth of a second.
    pub fn now() -> Result<Self> {
        let mut lines = BTreeSet::new();
        for what in ["addr", "link"] {
            let output = Command::new("ip").args(["-o", what]).output().context("cannot run `ip`")?;
            ensure!(output.status.success(), "`ip -o {what}` failed");
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            // The rest of a line is how long the address is still valid, which changes by itself.
            lines.extend(said.lines().map(|line| {
                let line = line.split(" valid_lft").next().unwrap_or(line);
                format!("{what} {}", line.split_whitespace().collect::<Vec<_>>().join(" "))
            }));
        }
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
        lines.extend(mounts.lines().map(|line| format!("mount {line}")));
        for root in super::cgroup::roots()? {
            groups(&root, &mut lines);
        }
        lines.extend(of_runs());
        let mut values = BTreeMap::new();
        settings(Path::new("/proc/sys"), &mut values);
        Ok(Self { lines, settings: values })
    }

    /// What `later` has not any more, with `-`, and what it has besides, with `+`.
    ///
    /// `ours` are the names by which things of the run in question are told from those of other runs: its
    /// cgroups, its links, its addresses, its work folder ([`work_folder`]). With none, the things of all runs are passed over.
    pub fn difference(&self, later: &Self, ours: &[String]) -> Vec<String> {
        let gone = self.lines.difference(&later.lines).map(|line| format!("- {line}"));
        let new = later.lines.difference(&self.lines).map(|line| format!("+ {line}"));
        let changed = self.settings.iter().filter_map(|(name, was)| {
            let is = later.settings.get(name).filter(|is| *is != was)?;
            Some(format!("setting {name} was {was:?} and is {is:?}"))
        });
        let is_theirs = |line: &String| {
            is_anothers(line, ours)
                || group_of(line).is_some_and(|group| self.is_within_a_strangers(group, later))
        };
        gone.chain(new).chain(changed).filter(|line| !is_theirs(line)).collect()
    }

    /// Whether a group came or went within one that stands at both moments and is not the root of its hierarchy: its
    /// owner, some service or sandbox of this host, makes and removes groups in it as it runs. A run makes its own
    /// at the root.
    fn is_within_a_strangers(&self, group: &Path, later: &Self) -> bool {
        let stands = |group: &Path| {
            let line = format!("cgroup {}", group.display());
            self.lines.contains(&line) && later.lines.contains(&line)
        };
        // Below a root there is at least one group between it and this one.
        group
            .ancestors()
            .skip(1)
            .zip(group.ancestors().skip(2))
            .any(|(above, root)| stands(above) && stands(root))
    }
}

/// The group that a line of a difference is about.
fn group_of(line: &str) -> Option<&Path> {
    let line = line.strip_prefix("+ cgroup ").or_else(|| line.strip_prefix("- cgroup "))?;
    Some(Path::new(line.split(" hands down").next().unwrap_or(line)))
}

/// The name of a run's work folder, which also stands for the run's processes.
pub fn work_folder(work: &Path) -> String {
    work.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The processes that carry a run's mark.
fn of_runs() -> BTreeSet<String> {
    let marked = |entry: std::io::Result<std::fs::DirEntry>| {
        let folder = entry.ok()?.path();
        let environment = std::fs::read(folder.join("environ")).ok()?;
        let mark = format!("{MARK}=");
        let run = environment.split(|byte| *byte == 0).find_map(|one| one.strip_prefix(mark.as_bytes()))?;
        let name = std::fs::read_to_string(folder.join("comm")).ok()?;
        let work = work_of(&String::from_utf8_lossy(run));
        Some(format!("process {} of {}", name.trim_end(), work_folder(&work)))
    };
    std::fs::read_dir("/proc").into_iter().flatten().filter_map(marked).collect()
}

/// Whether the line names something of a run, and none of ours.
fn is_anothers(line: &str, ours: &[String]) -> bool {
    let words = || line.split([' ', '/', ':', '@', '=']);
    let is_a_runs = |word: &str| word.starts_with("durward") || is_lent_address(word);
    words().any(is_a_runs) && !words().any(|word| ours.iter().any(|own| own == word))
}

fn is_lent_address(word: &str) -> bool {
    (word.starts_with("10.98.") || word.starts_with("10.99.")) && word.ends_with(".1")
}

fn groups(root: &Path, lines: &mut BTreeSet<String>) {
    lines.insert(format!("cgroup {}", root.display()));
    if let Ok(controllers) = std::fs::read_to_string(root.join("cgroup.subtree_control")) {
        lines.insert(format!("cgroup {} hands down {}", root.display(), controllers.trim()));
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

fn settings(folder: &Path, values: &mut BTreeMap<String, String>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.filter_map(Result::ok) {
        let path = entry.path();
        let name = path.strip_prefix("/proc/sys").unwrap_or(&path).to_owned();
        if RESTLESS.iter().any(|restless| name.starts_with(restless)) {
            continue;
        }
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_dir() {
            settings(&path, values);
        } else if may_be_set(&metadata)
            && let Ok(value) = std::fs::read(&path)
        {
            let value = String::from_utf8_lossy(&value).split_whitespace().collect::<Vec<_>>().join(" ");
            values.insert(name.display().to_string(), value);
        }
    }
}

/// Whether its owner may both read and write it.
fn may_be_set(metadata: &Metadata) -> bool {
    metadata.permissions().mode() & 0o600 == 0o600
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::wait::{Poll, eventually};

    fn state(lines: &[&str]) -> HostState {
        HostState { lines: lines.iter().map(|line| (*line).to_owned()).collect(), settings: BTreeMap::new() }
    }

    fn set(settings: &[(&str, &str)]) -> HostState {
        let owned = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        HostState { lines: BTreeSet::new(), settings: owned.collect() }
    }

    #[test]
    fn tells_what_is_gone_and_what_is_new() {
        let before = state(&["mount / ext4", "mount /old tmpfs"]);
        let after = state(&["mount / ext4", "mount /new tmpfs"]);
        assert_eq!(before.difference(&after, &[]), ["- mount /old tmpfs", "+ mount /new tmpfs"]);
    }

    #[test]
    fn tells_a_setting_that_changed_and_none_that_came_with_a_driver() {
        let before = set(&[("kernel/panic", "1"), ("vm/panic_on_oom", "0")]);
        let after = set(&[("kernel/panic", "10"), ("vm/panic_on_oom", "0"), ("fs/fuse/max", "9")]);
        assert_eq!(before.difference(&after, &[]), [r#"setting kernel/panic was "1" and is "10""#]);
        assert_eq!(after.difference(&after, &[]), Vec::<String>::new());
    }

    #[test]
    fn passes_over_what_other_runs_have() {
        let after = state(&[
            "addr 1: lo inet 10.99.7.1/32 scope global lo",
            "addr 9: durward7 inet 10.98.7.1/30 scope global durward7",
            "link 9: durward7@if2: <BROADCAST> mtu 1500",
            "cgroup /sys/fs/cgroup/memory/durward-12-3-0/kubepods",
        ]);
        assert_eq!(state(&[]).difference(&after, &[]), Vec::<String>::new());
        let another = ["durward77", "10.99.77.1", "durward-12-3-1"].map(str::to_owned);
        assert_eq!(state(&[]).difference(&after, &another), Vec::<String>::new());
    }

    #[test]
    fn tells_what_the_run_in_question_has() {
        let after = state(&["link 9: durward7@if2: <BROADCAST> mtu 1500", "addr 1: lo inet 10.99.7.1/32"]);
        let ours = ["durward7".to_owned(), "10.99.7.1".to_owned()];
        assert_eq!(state(&[]).difference(&after, &ours).len(), 2);
    }

    #[test]
    fn sees_this_host_and_what_changes_on_it() {
        let now = HostState::now().unwrap();
        assert!(now.lines.iter().any(|line| line.starts_with("addr ") && line.contains("127.0.0.1/8")));
        assert!(now.lines.iter().any(|line| line.starts_with("mount ") && line.contains(" /proc ")));
        assert!(
            now.settings.contains_key("kernel/panic") && now.settings.contains_key("net/ipv4/ip_forward")
        );
        assert!(!now.settings.contains_key("kernel/ns_last_pid"));
    }

    #[test]
    fn tells_what_a_run_has_mounted_out_of_its_work_folder() {
        let after = state(&[
            "mount 812 31 254:1 /tmp/durward-e2e-12-3/disk/var/lib/kubelet /var/lib/kubelet rw - ext4 /dev/vda1 rw",
            "process kubelet of durward-e2e-12-3",
        ]);
        assert_eq!(state(&[]).difference(&after, &["durward-e2e-12-4".to_owned()]), Vec::<String>::new());
        let ours = [work_folder(&work_of("12-3"))];
        assert_eq!(state(&[]).difference(&after, &ours).len(), 2, "{ours:?}");
    }

    #[test]
    fn sees_the_processes_of_a_run_by_their_mark() {
        let run = format!("test-{}", std::process::id());
        let before = HostState::now().unwrap();
        let mut child = Command::new("sleep").arg("600").env(MARK, &run).spawn().unwrap();
        let ours = [work_folder(&work_of(&run))];
        let expected = format!("+ process sleep of {}", ours[0]);
        let found = eventually("the process", Duration::from_secs(20), || {
            let difference = before.difference(&HostState::now()?, &ours);
            let is_seen = difference.contains(&expected);
            Ok(if is_seen { Poll::Ready(()) } else { Poll::Pending(format!("{difference:#?}")) })
        });
        child.kill().unwrap();
        child.wait().unwrap();
        found.unwrap();
        assert_eq!(before.difference(&HostState::now().unwrap(), &ours), Vec::<String>::new());
    }

    #[test]
    fn groups_within_a_strangers_come_and_go_and_others_are_told() {
        let root = "cgroup /sys/fs/cgroup/memory";
        let line = |rest: &str| format!("{root}{rest}");
        let [sandbox, job, new] = ["/sandbox", "/sandbox/jobs/7", "/kubepods"].map(line);
        let before = state(&[root, &sandbox, &line("/sandbox/jobs"), &job]);
        let after = state(&[root, &sandbox, &line("/sandbox/jobs"), &new]);
        assert_eq!(before.difference(&after, &[]), [format!("+ {new}")]);
        let nobody = state(&[root]);
        assert_eq!(before.difference(&nobody, &[]).len(), 3, "a whole tree is told");
    }

    #[test]
    fn an_address_of_nobody_counts() {
        let after = state(&["addr 4: eth0 inet 10.98.7.2/24"]);
        assert_eq!(state(&[]).difference(&after, &[]).len(), 1);
    }
}
