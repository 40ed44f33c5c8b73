//! The LXCFS process, as `/proc` shows it.
//!
//! Every process can read its name, arguments, capabilities, mounts and signal masks. Its program and its memory maps need the
//! right to trace it: root with `CAP_SYS_PTRACE`, unless a security module forbids it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use super::mount::Mount;

/// LXCFS's default for its pid file.
pub const PID_FILE: &str = "/run/lxcfs.pid";

/// The name of the process.
const NAME: &str = "lxcfs";

/// An LXCFS process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pid: i32,
    /// `/proc/PID`
    directory: PathBuf,
    /// In ticks since boot. No two processes have the same pid and start time.
    start_time: u64,
    /// The options that decide what pods see.
    pub options: Vec<&'static str>,
}

/// The library that a process has mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MappedLibrary {
    pub(crate) inode: u64,
    /// The path in the mount namespace of the process. The kernel appends ` (deleted)` if the file was removed or replaced.
    pub(crate) path: String,
}

/// Returns the process that serves `root`: an LXCFS with the root among its arguments, preferably the one in the pid file.
/// Without such a process, returns the one in the pid file, which may have been started with another path of the same
/// directory.
///
/// A tenant's container can choose its name and arguments. Therefore the process must be able to mount on the node, and must have
/// the same file system at the root that this process sees there. A node can run several LXCFS: containers of LXC often have
/// their own at the same path of another root, and several nodes can share one machine.
pub fn find_process(proc: &Path, pid_file: &Path, root: &str) -> Option<Process> {
    let mount = Mount::at(proc, root).filter(Mount::is_lxcfs)?;
    let serves = |process: &Process| process.serves(root, &mount);
    let pid = fs::read_to_string(pid_file).ok().and_then(|text| text.trim().parse::<i32>().ok());
    let from_pid_file = |argument| pid.and_then(|pid| Process::read(proc, pid, argument)).filter(serves);
    from_pid_file(Some(root)).or_else(|| oldest(proc, root, serves)).or_else(|| from_pid_file(None))
}

/// Returns whether an LXCFS serves the root in another mount namespace.
pub fn runs_elsewhere(proc: &Path, root: &str) -> bool {
    oldest(proc, root, |process| process.mount(root).is_some()).is_some()
}

/// Returns the oldest matching process with the root among its arguments. While LXCFS looks into a pid namespace, it has children
/// with its own name and arguments.
fn oldest(proc: &Path, root: &str, matches: impl Fn(&Process) -> bool) -> Option<Process> {
    let pids = fs::read_dir(proc).ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let processes = pids.filter_map(|pid| Process::read(proc, pid, Some(root)));
    processes.filter(matches).min_by_key(|process| (process.start_time, process.pid))
}

impl Process {
    /// Reads a process if it is an LXCFS, and has the argument if one is given.
    fn read(proc: &Path, pid: i32, argument: Option<&str>) -> Option<Self> {
        let directory = proc.join(pid.to_string());
        if fs::read_to_string(directory.join("comm")).ok()?.trim_end() != NAME || !can_mount(&directory) {
            return None;
        }
        let line = fs::read_to_string(directory.join("cmdline")).ok()?;
        let arguments: Vec<&str> = line.split_terminator('\0').collect();
        if argument.is_some_and(|root| !arguments.iter().any(|one| one.trim_end_matches('/') == root)) {
            return None;
        }
        // The name can contain blanks and brackets; the fields after its last bracket can't.
        let stat = fs::read_to_string(directory.join("stat")).ok()?;
        let start_time = stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()?;
        Some(Self { pid, directory, start_time, options: options(&arguments) })
    }

    /// Returns the LXCFS mount at the root in the mount namespace of the process.
    fn mount(&self, root: &str) -> Option<Mount> {
        let table = fs::read_to_string(self.directory.join("mountinfo")).unwrap_or_default();
        Mount::find(&table, root).filter(Mount::is_lxcfs)
    }

    /// Returns whether the process has this file system at the root.
    pub(crate) fn serves(&self, root: &str, mount: &Mount) -> bool {
        mount.is_lxcfs() && self.mount(root).is_some_and(|theirs| theirs.device == mount.device)
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Returns whether the process still runs.
    pub(crate) fn is_running(&self) -> bool {
        let proc = self.directory.parent().unwrap_or(Path::new("/proc"));
        Self::read(proc, self.pid, None).as_ref() == Some(self)
    }

    /// Returns the path of its program, which stays readable after the file was replaced.
    pub(crate) fn program(&self) -> PathBuf {
        self.directory.join("exe")
    }

    /// Returns the `liblxcfs.so` that it has mapped.
    pub(crate) fn library(&self) -> io::Result<Option<MappedLibrary>> {
        let maps = fs::read_to_string(self.directory.join("maps"))?;
        Ok(maps.lines().find_map(|line| {
            let mut fields = line.splitn(6, ' ');
            // A deleted file ends in words of Linux: fs/d_path.c.
            let (inode, path) = (fields.nth(4)?, fields.next()?.trim_start());
            if !path.trim_end_matches(" (deleted)").ends_with("/liblxcfs.so") {
                return None;
            }
            Some(MappedLibrary { inode: inode.parse().ok()?, path: path.to_owned() })
        }))
    }

    /// Returns whether the process handles SIGUSR1. Until it does, the signal would kill it.
    fn handles_reload(&self) -> bool {
        has_bit(&self.directory, "SigCgt:", Signal::USR1.as_raw() - 1)
    }

    /// Sends SIGUSR1: LXCFS loads its library again at the next access to one of its files. A pidfd holds the process while its
    /// identity is checked, so the signal can't reach another process that got the same pid.
    pub(crate) fn reload(&self) -> io::Result<()> {
        let pid = Pid::from_raw(self.pid).ok_or(Errno::SRCH)?;
        // Linux before 5.3 has no pidfd, and some seccomp profiles forbid it. The check alone must do then.
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => Some(pidfd),
            Err(Errno::NOSYS | Errno::PERM) => None,
            Err(error) => return Err(error.into()),
        };
        if !self.is_running() {
            return Err(Errno::SRCH.into());
        }
        if !self.handles_reload() {
            return Err(io::Error::other("it does not handle SIGUSR1, so the signal would stop it"));
        }
        match pidfd {
            Some(pidfd) => pidfd_send_signal(&pidfd, Signal::USR1)?,
            None => kill_process(pid, Signal::USR1)?,
        }
        Ok(())
    }
}

/// Returns whether a process can mount on the node: it has `CAP_SYS_ADMIN` in the initial user namespace, the only one that maps
/// all user ids to themselves. Such a process could harm the node without Durward's help.
fn can_mount(directory: &Path) -> bool {
    /// `include/uapi/linux/capability.h`
    const CAP_SYS_ADMIN: i32 = 21;
    let users = fs::read_to_string(directory.join("uid_map")).unwrap_or_default();
    users.split_ascii_whitespace().eq(["0", "0", "4294967295"])
        && has_bit(directory, "CapEff:", CAP_SYS_ADMIN)
}

/// Returns whether a bit is set in a mask of `/proc/PID/status`.
fn has_bit(directory: &Path, mask: &str, bit: i32) -> bool {
    let status = fs::read_to_string(directory.join("status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix(mask));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << bit) != 0)
}

/// Returns the options in a command line that decide what pods see.
fn options(arguments: &[&str]) -> Vec<&'static str> {
    let mut found = Vec::new();
    let mut arguments = arguments.iter().skip(1);
    while let Some(&argument) = arguments.next() {
        match argument {
            "--enable-cfs" => found.push("cfs"),
            "--enable-loadavg" | "-l" => found.push("loadavg"),
            "--enable-pidfd" => found.push("pidfd"),
            "--disable-swap" | "-u" => found.push("no-swap"),
            // These options have a value.
            "-o" | "-p" | "--pidfile" => drop(arguments.next()),
            _ => {}
        }
    }
    found.sort_unstable();
    found
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const ROOT: &str = "/var/lib/lxcfs";

    const PRIVILEGED: &str = "CapEff:\t000001ffffffffff\n";

    pub(crate) const ARGUMENTS: [&str; 6] = ["lxcfs", "-f", "-p", "-l", "--enable-cfs", "/var/lib/lxcfs/"];

    fn mountinfo(device: &str) -> String {
        format!("97 90 {device} / {ROOT} rw shared:9 - fuse.lxcfs lxcfs rw\n")
    }

    /// Creates a directory like `/proc` with an LXCFS mount and one process.
    fn proc(pid: i32, comm: &str, arguments: &[&str], more: &[(&str, &str)]) -> tempfile::TempDir {
        let proc = tempfile::tempdir().unwrap();
        mount_lxcfs(proc.path(), "0:55");
        add_process(proc.path(), pid, comm, arguments, more);
        proc
    }

    /// Mounts an LXCFS with this device number at the root, for this process.
    pub(crate) fn mount_lxcfs(proc: &Path, device: &str) {
        fs::create_dir_all(proc.join("self")).unwrap();
        fs::write(proc.join("self/mountinfo"), mountinfo(device)).unwrap();
    }

    /// Adds a process that can mount and has the same mounts as this one. `more` replaces its files.
    pub(crate) fn add_process(proc: &Path, pid: i32, comm: &str, arguments: &[&str], more: &[(&str, &str)]) {
        let directory = proc.join(pid.to_string());
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("comm"), format!("{comm}\n")).unwrap();
        fs::write(directory.join("cmdline"), arguments.join("\0") + "\0").unwrap();
        let rest: Vec<_> = (3..=52).map(|field: u32| field.to_string()).collect();
        fs::write(directory.join("stat"), format!("{pid} ({comm}) {}", rest.join(" "))).unwrap();
        fs::write(directory.join("status"), PRIVILEGED).unwrap();
        fs::write(directory.join("uid_map"), "         0          0 4294967295\n").unwrap();
        fs::write(directory.join("mountinfo"), mountinfo("0:55")).unwrap();
        for (name, text) in more {
            fs::write(directory.join(name), text).unwrap();
        }
    }

    fn found(proc: &tempfile::TempDir, pid_file: &Path, root: &str) -> Option<i32> {
        find_process(proc.path(), pid_file, root).map(|process| process.pid)
    }

    fn only_process(proc: &tempfile::TempDir) -> Process {
        find_process(proc.path(), Path::new("/nowhere"), ROOT).unwrap()
    }

    #[test]
    fn trusts_the_pid_file_only_if_it_names_an_lxcfs() {
        let proc = proc(7, "lxcfs", &ARGUMENTS, &[]);
        add_process(proc.path(), 8, "bash", &["bash", "/var/lib/lxcfs"], &[]);
        add_process(proc.path(), 9, "lxcfs", &["lxcfs", "/var/lib/other"], &[]);
        let pid_file = proc.path().join("lxcfs.pid");
        assert_eq!(found(&proc, &pid_file, ROOT), Some(7), "there is no pid file");
        for (text, pid) in [("9\n", 7), ("8\n", 7), ("4711", 7), ("nonsense", 7)] {
            fs::write(&pid_file, text).unwrap();
            assert_eq!(found(&proc, &pid_file, ROOT), Some(pid), "{text}");
        }
        fs::remove_dir_all(proc.path().join("7")).unwrap();
        fs::write(&pid_file, "9\n").unwrap();
        assert_eq!(found(&proc, &pid_file, ROOT), Some(9), "it may have been started with another path");
        assert_eq!(found(&proc, Path::new("/nowhere"), ROOT), None);
        assert_eq!(found(&proc, &pid_file, "/elsewhere"), None, "nothing is mounted at that root");
    }

    #[test]
    fn ignores_a_process_of_a_tenant_with_the_name_of_lxcfs() {
        for (file, text) in [
            ("status", "Uid:\t65534\t65534\t65534\t65534\nCapEff:\t0000000000000000\n"),
            // The default capabilities of containers.
            ("status", "Uid:\t0\t0\t0\t0\nCapEff:\t00000000a80425fb\n"),
            ("status", "nothing"),
            // All capabilities, in another user namespace.
            ("uid_map", "         0     100000      65536\n"),
            ("uid_map", "         0       1000          1\n"),
            ("uid_map", ""),
            // No mount at the root, or one of another type.
            ("mountinfo", ""),
            ("mountinfo", "97 90 0:55 / /var/lib/lxcfs rw - tmpfs lxcfs rw\n"),
            ("mountinfo", "97 90 0:55 / /var/lib/other rw - fuse.lxcfs lxcfs rw\n"),
        ] {
            let proc = proc(7, "lxcfs", &ARGUMENTS, &[(file, text)]);
            let pid_file = proc.path().join("lxcfs.pid");
            fs::write(&pid_file, "7\n").unwrap();
            assert_eq!(found(&proc, &pid_file, ROOT), None, "{file}: {text}");
            assert!(!runs_elsewhere(proc.path(), ROOT), "{file}: {text}");
            add_process(proc.path(), 4711, "lxcfs", &ARGUMENTS, &[]);
            assert_eq!(found(&proc, &pid_file, ROOT), Some(4711), "the real one");
        }
    }

    #[test]
    fn finds_the_lxcfs_that_serves_the_mount_of_this_namespace() {
        let (theirs, ours) = (mountinfo("0:55"), mountinfo("0:77"));
        let proc = proc(7, "lxcfs", &ARGUMENTS, &[("mountinfo", &theirs)]);
        add_process(proc.path(), 8, "lxcfs", &ARGUMENTS, &[("mountinfo", &ours)]);
        let pid_file = proc.path().join("lxcfs.pid");
        fs::write(&pid_file, "7\n").unwrap();
        let here = |device: &str| {
            mount_lxcfs(proc.path(), device);
            found(&proc, &pid_file, ROOT)
        };
        assert_eq!(here("0:55"), Some(7));
        assert_eq!(here("0:77"), Some(8), "the pid file names the other one");
        assert_eq!(here("0:99"), None, "neither of them");
        fs::write(proc.path().join("self/mountinfo"), "").unwrap();
        assert_eq!(found(&proc, &pid_file, ROOT), None, "nothing is mounted in this namespace");
        assert!(runs_elsewhere(proc.path(), ROOT));
    }

    #[test]
    fn ignores_children_of_lxcfs_with_a_lower_pid() {
        let proc = proc(7, "lxcfs", &ARGUMENTS, &[]);
        let rest: Vec<_> = (3..=52).map(|field: u32| (field + 1).to_string()).collect();
        let later = format!("3 (lxcfs) {}", rest.join(" "));
        add_process(proc.path(), 3, "lxcfs", &ARGUMENTS, &[("stat", &later)]);
        assert_eq!(found(&proc, Path::new("/nowhere"), ROOT), Some(7));
    }

    #[test]
    fn reads_options_but_not_their_values() {
        let proc = proc(7, "lxcfs", &ARGUMENTS, &[]);
        let process = only_process(&proc);
        assert_eq!(process.options, ["cfs"], "-l is the value of -p");
        assert_eq!(process.start_time, 22);
        assert_eq!(options(&["lxcfs", "-l", "-u", "--enable-pidfd", "/l"]), ["loadavg", "no-swap", "pidfd"]);
    }

    #[test]
    fn finds_the_inode_of_a_mapped_library_that_was_deleted() {
        let maps = "55d0-55d1 r--p 00000000 fe:01 12 /usr/bin/lxcfs\n\
            7f00-7f01 r-xp 00007000 fe:01 4242                       /var/lib/lxcfs-library/liblxcfs.so (deleted)\n";
        let proc = proc(7, "lxcfs", &ARGUMENTS, &[("maps", maps)]);
        let mapped = only_process(&proc).library().unwrap().unwrap();
        assert_eq!(
            (mapped.inode, mapped.path.as_str()),
            (4242, "/var/lib/lxcfs-library/liblxcfs.so (deleted)")
        );
    }

    #[test]
    fn does_not_signal_a_process_without_a_handler() {
        for (mask, catches) in [("0000000100005a03", true), ("0000000100005803", false), ("junk", false)] {
            let status = format!("Name:\tlxcfs\nSigCgt:\t{mask}\n{PRIVILEGED}");
            let proc = proc(7, "lxcfs", &ARGUMENTS, &[("status", &status)]);
            assert_eq!(only_process(&proc).handles_reload(), catches, "{mask}");
        }
    }

    #[test]
    fn does_not_signal_another_process_with_the_same_pid() {
        let own = i32::try_from(std::process::id()).unwrap();
        let status = format!("SigCgt:\tffffffffffffffff\n{PRIVILEGED}");
        let proc = proc(own, "lxcfs", &ARGUMENTS, &[("status", &status)]);
        let process = only_process(&proc);
        fs::write(proc.path().join(own.to_string()).join("comm"), "tests\n").unwrap();
        // The signal would kill this test.
        assert!(process.reload().is_err());
    }
}
