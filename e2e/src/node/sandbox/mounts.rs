//! The mounts of the node, as a shell script that runs inside the sandbox.
//!
//! The host is not changed. If a directory that the node needs is missing, an overlay covers its nearest existing
//! parent, and the directory is made in the overlay.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

/// Directories of the node that must be on a disk, because their size is measured or overlays use them.
const KEPT: [&str; 10] = [
    "/etc/cni/net.d",
    "/etc/containerd",
    "/opt/durward",
    "/usr/libexec/kubernetes",
    "/var/lib/cni",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/lib/lxcfs",
    "/var/log/containers",
    "/var/log/pods",
];

/// Settings of the whole kernel that a kubelet writes at its start (`setupKernelTunables` in its container manager).
/// The node has files of its own there.
const SETTINGS: [&str; 6] = [
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
];

/// The sandbox's own directory on the node's `/run`.
const LAYERS: &str = "/run/durward-layers";

/// Returns where one of [`KEPT`] is in the sandbox's directory.
pub(crate) fn disk(kept: &str) -> String {
    format!("/disk{kept}")
}

/// Returns the script for the directories that this host has now.
pub(super) fn script(directory: &Path) -> Result<String> {
    let mounts =
        std::fs::read_to_string("/proc/self/mountinfo").context("cannot read /proc/self/mountinfo")?;
    let mut points = points(&mounts);
    // The run's work directory keeps its path inside, even if a parent is covered.
    points
        .insert(directory.canonicalize().with_context(|| format!("cannot follow {}", directory.display()))?);
    let mut script = Script::default();
    script.mount(&["-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"]);
    script.line(&["mkdir", "-p", LAYERS, "/run/lock", "/run/netns", "/run/containerd"]);
    for (number, parent) in to_overlay()?.iter().enumerate() {
        let upper = format!("{LAYERS}/upper-{number}");
        let work = format!("{LAYERS}/work-{number}");
        script.line(&["mkdir", &upper, &work]);
        let options = format!("lowerdir={LAYERS}/below,upperdir={upper},workdir={work}");
        script.cover(parent, &["-t", "overlay", "-o", &options, "overlay"], &points);
    }
    for kept in KEPT {
        let own = directory.join(disk(kept).trim_start_matches('/'));
        std::fs::create_dir_all(&own).with_context(|| format!("cannot make {}", own.display()))?;
        script.line(&["mkdir", "-p", kept]);
        script.mount(&["--bind", &own.display().to_string(), kept]);
    }
    // /sys/class/net shows the network of the process that mounted it.
    script.cover(Path::new("/sys"), &["-t", "sysfs", "sysfs"], &points);
    for setting in SETTINGS {
        let real = Path::new("/proc/sys").join(setting);
        // Some kernels lack some settings.
        if real.exists() {
            let own = format!("{LAYERS}/{}", setting.replace('/', "."));
            script.line(&["cp", &real.display().to_string(), &own]);
            script.mount(&["--bind", &own, &real.display().to_string()]);
        }
    }
    // Other pods must see bidirectional mounts of pods and LXCFS's own.
    script.mount(&["--make-rshared", "/"]);
    Ok(script.0)
}

/// Returns the nearest existing parents of missing directories.
fn to_overlay() -> Result<BTreeSet<PathBuf>> {
    KEPT.iter()
        .map(Path::new)
        .filter(|kept| !kept.is_dir())
        .map(|kept| {
            let parent = kept.ancestors().find(|directory| directory.is_dir()).unwrap_or(Path::new("/"));
            // A link, such as from /var/lib to a larger disk, is resolved.
            let parent =
                parent.canonicalize().with_context(|| format!("cannot follow {}", parent.display()))?;
            ensure!(
                parent != Path::new("/"),
                "{} cannot be made on the node, because no parent directory exists: mkdir {}",
                kept.display(),
                kept.ancestors().nth(kept.components().count() - 2).unwrap_or(kept).display()
            );
            Ok(parent)
        })
        .collect()
}

/// Returns the mount points in the order of their paths.
fn points(mountinfo: &str) -> BTreeSet<PathBuf> {
    mountinfo.lines().filter_map(|line| line.split(' ').nth(4)).map(|point| unescape(point).into()).collect()
}

/// The kernel writes space, tab, newline and backslash as three octal digits.
fn unescape(point: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(point.to_owned(), |point, (escaped, plain)| point.replace(escaped, plain))
}

/// Returns the topmost mount points below a directory.
fn directly_below<'a>(directory: &Path, points: &'a BTreeSet<PathBuf>) -> Vec<&'a Path> {
    let mut found: Vec<&Path> = Vec::new();
    for point in points {
        let is_below = point != directory && point.starts_with(directory);
        if is_below && !found.last().is_some_and(|last| point.starts_with(last)) {
            found.push(point);
        }
    }
    found
}

#[derive(Default)]
struct Script(String);

impl Script {
    fn line(&mut self, words: &[&str]) {
        let words: Vec<_> = words.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
        let _ = writeln!(self.0, "{}", words.join(" "));
    }

    fn mount(&mut self, arguments: &[&str]) {
        self.line(&[&["mount"], arguments].concat());
    }

    /// Mounts something over a directory, and mounts again what was below it. Meanwhile the directory is at
    /// `LAYERS/below`.
    fn cover(&mut self, directory: &Path, arguments: &[&str], points: &BTreeSet<PathBuf>) {
        let below = format!("{LAYERS}/below");
        let place = directory.display().to_string();
        self.line(&["mkdir", "-p", &below]);
        self.mount(&["--rbind", &place, &below]);
        self.mount(&[arguments, &[&place]].concat());
        for point in directly_below(directory, points) {
            if let Ok(rest) = point.strip_prefix(directory) {
                let was = Path::new(&below).join(rest).display().to_string();
                self.mount(&["--rbind", &was, &point.display().to_string()]);
            }
        }
        self.line(&["umount", "--lazy", &below]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_again_only_the_topmost_of_what_was_below() {
        let all = points(
            "1 0 0:1 / / rw - ext4 a rw\n2 1 0:2 / /sys rw - sysfs s rw\n3 2 0:3 / /sys/fs/cgroup rw - tmpfs t rw\n\
             4 3 0:4 / /sys/fs/cgroup/cpu rw - cgroup c rw\n5 2 0:5 / /sys/fs/cgroups\\040more rw - x x rw\n\
             6 1 0:6 / /system rw - x x rw",
        );
        assert_eq!(
            directly_below(Path::new("/sys"), &all),
            [Path::new("/sys/fs/cgroup"), Path::new("/sys/fs/cgroups more")]
        );
    }

    #[test]
    fn a_word_stays_one_word_whatever_is_in_it() {
        let mut script = Script::default();
        script.mount(&["--bind", "/tmp/it's mine", "/opt"]);
        assert_eq!(script.0, "'mount' '--bind' '/tmp/it'\\''s mine' '/opt'\n");
    }
}
