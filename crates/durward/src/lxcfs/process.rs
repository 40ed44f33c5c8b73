//! The LXCFS process, as `/proc` shows it.
//!
//! Its name, its arguments, its rights, its mounts and the signals that it catches may be read by everyone; its root, its program and what it has mapped
//! only by who may trace it: root with `CAP_SYS_PTRACE`, where no security module says otherwise.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use super::mount::Mount;

/// Where LXCFS writes its number unless it is told otherwise.
pub(crate) const PID_FILE: &str = "/run/lxcfs.pid";

/// The name of the process.
const NAME: &str = "lxcfs";

/// A process that serves a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pid: i32,
    folder: PathBuf,
    /// In ticks since the machine came up: together with the number, no other process has it.
    started: u64,
    /// What it was started with.
    pub(crate) options: Vec<&'static str>,
}

/// A library as a process has it mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mapped {
    /// The number of the file.
    pub(crate) inode: u64,
    /// Its path as the process sees it; the kernel adds ` (deleted)` where another file stands there now.
    pub(crate) path: String,
}

/// The process that serves `root`, below `proc`: an LXCFS that has the root among its arguments, first of all the one of which
/// the pid file tells; or else that one, which may have been given the root by another name.
///
/// A name and arguments are whatever a process says of itself, and a container of a tenant may say anything. So only such a one is
/// believed as could mount on the node anyway, and that has the very file system at the root that is mounted there for us. Where
/// none is, nobody is known. (A node may have more than one LXCFS: what runs in a container of LXC often has its own, at the same
/// path of another root, and several nodes may share one machine.)
pub(crate) fn find(proc: &Path, pid_file: &Path, root: &str) -> Option<Process> {
    let mount = Mount::at(proc, root).filter(Mount::is_lxcfs)?;
    let serves = |one: &Process| one.serves(root, &mount);
    let told = fs::read_to_string(pid_file).ok().and_then(|text| text.trim().parse::<i32>().ok());
    let told_and = |named| told.and_then(|pid| Process::read(proc, pid, named)).filter(serves);
    told_and(Some(root)).or_else(|| among(proc, root, serves)).or_else(|| told_and(None))
}

/// Whether some LXCFS serves that root where this process does not see it.
pub(crate) fn is_elsewhere(proc: &Path, root: &str) -> bool {
    among(proc, root, |one| one.mount(root).is_some()).is_some()
}

/// The process that has the root among its arguments, and is what is looked for: the oldest, since LXCFS has children of the same
/// name and arguments for as long as it looks into a process namespace.
fn among(proc: &Path, root: &str, is_it: impl Fn(&Process) -> bool) -> Option<Process> {
    let pids = fs::read_dir(proc).ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let processes = pids.filter_map(|pid| Process::read(proc, pid, Some(root)));
    processes.filter(is_it).min_by_key(|process| (process.started, process.pid))
}

impl Process {
    /// The process of that number, if it is an LXCFS, and one for `root` where that is asked for.
    fn read(proc: &Path, pid: i32, root: Option<&str>) -> Option<Self> {
        let folder = proc.join(pid.to_string());
        if fs::read_to_string(folder.join("comm")).ok()?.trim_end() != NAME || !may_mount(&folder) {
            return None;
        }
        let line = fs::read_to_string(folder.join("cmdline")).ok()?;
        let arguments: Vec<&str> = line.split_terminator('\0').collect();
        if root.is_some_and(|root| !arguments.iter().any(|one| one.trim_end_matches('/') == root)) {
            return None;
        }
        // The name may hold blanks and brackets itself; what follows its last bracket does not.
        let stat = fs::read_to_string(folder.join("stat")).ok()?;
        let started = stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()?;
        Some(Self { pid, folder, started, options: options(&arguments) })
    }

    /// The LXCFS that it sees at the root.
    fn mount(&self, root: &str) -> Option<Mount> {
        let table = fs::read_to_string(self.folder.join("mountinfo")).unwrap_or_default();
        Mount::find(&table, root).filter(Mount::is_lxcfs)
    }

    /// Whether it sees at the root what is mounted there for us.
    pub(crate) fn serves(&self, root: &str, mount: &Mount) -> bool {
        mount.is_lxcfs() && self.mount(root).is_some_and(|theirs| theirs.device == mount.device)
    }

    /// Its number.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether it is still the same, and still runs.
    pub(crate) fn is_there(&self) -> bool {
        let proc = self.folder.parent().unwrap_or(Path::new("/proc"));
        Self::read(proc, self.pid, None).as_ref() == Some(self)
    }

    /// The folder that is `/` to it.
    pub(crate) fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    /// Its program: the file itself, which can be read even where another stands at its path now.
    pub(crate) fn program(&self) -> PathBuf {
        self.folder.join("exe")
    }

    /// The library that it has loaded; none where it has none.
    pub(crate) fn library(&self) -> io::Result<Option<Mapped>> {
        let maps = fs::read_to_string(self.folder.join("maps"))?;
        Ok(maps.lines().find_map(|line| {
            let mut fields = line.splitn(6, ' ');
            let (inode, path) = (fields.nth(4)?, fields.next()?.trim_start());
            if !path.trim_end_matches(" (deleted)").ends_with("/liblxcfs.so") {
                return None;
            }
            Some(Mapped { inode: inode.parse().ok()?, path: path.to_owned() })
        }))
    }

    /// Whether it has said what is to be done at SIGUSR1. Before that, the signal would end it.
    pub(crate) fn catches_reload(&self) -> bool {
        has_bit(&self.folder, "SigCgt:", Signal::USR1.as_raw() - 1)
    }

    /// Has it load its library anew, at the next access to one of its files. That it is still the same process is looked at
    /// while it is held on to, so that the signal cannot reach another one that has got its number.
    pub(crate) fn reload(&self) -> io::Result<()> {
        let pid = Pid::from_raw(self.pid).ok_or(Errno::SRCH)?;
        // Before Linux 5.3 there is nothing to hold on to, and some seccomp profiles forbid it: then the look must do.
        let held = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(held) => Some(held),
            Err(Errno::NOSYS | Errno::PERM) => None,
            Err(error) => return Err(error.into()),
        };
        if !self.is_there() {
            return Err(Errno::SRCH.into());
        }
        if !self.catches_reload() {
            return Err(io::Error::other("it does not catch SIGUSR1, which would end it"));
        }
        match held {
            Some(held) => pidfd_send_signal(&held, Signal::USR1)?,
            None => kill_process(pid, Signal::USR1)?,
        }
        Ok(())
    }
}

/// Whether a process may mount on the node: `CAP_SYS_ADMIN` in the first user namespace, the only one whose table of users begins
/// with all of them as they are. Who can make such a process needs nothing from us any more.
fn may_mount(folder: &Path) -> bool {
    /// `include/uapi/linux/capability.h`
    const CAP_SYS_ADMIN: i32 = 21;
    let users = fs::read_to_string(folder.join("uid_map")).unwrap_or_default();
    users.split_ascii_whitespace().eq(["0", "0", "4294967295"]) && has_bit(folder, "CapEff:", CAP_SYS_ADMIN)
}

/// Whether a bit is set in one of the masks of `/proc/PID/status`.
fn has_bit(folder: &Path, mask: &str, bit: i32) -> bool {
    let status = fs::read_to_string(folder.join("status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix(mask));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << bit) != 0)
}

/// Those of its switches on which depends what pods see.
fn options(arguments: &[&str]) -> Vec<&'static str> {
    let mut found = Vec::new();
    let mut arguments = arguments.iter().skip(1);
    while let Some(&argument) = arguments.next() {
        match argument {
            "--enable-cfs" => found.push("cfs"),
            "--enable-loadavg" | "-l" => found.push("loadavg"),
            "--enable-pidfd" => found.push("pidfd"),
            "--disable-swap" | "-u" => found.push("no-swap"),
            // Each has a word of its own after it.
            "-o" | "-p" | "--pidfile" => drop(arguments.next()),
            _ => {}
        }
    }
    found.sort_unstable();
    found
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A root that is LXCFS's.
    const ROOT: &str = "/var/lib/lxcfs";

    const PRIVILEGED: &str = "CapEff:\t000001ffffffffff\n";

    pub(in crate::lxcfs) const ARGUMENTS: [&str; 6] =
        ["lxcfs", "-f", "-p", "-l", "--enable-cfs", "/var/lib/lxcfs/"];

    fn mounted(device: &str) -> String {
        format!("97 90 {device} / {ROOT} rw shared:9 - fuse.lxcfs lxcfs rw\n")
    }

    /// A folder like `/proc` in which an LXCFS is mounted and one process is.
    fn proc(pid: i32, comm: &str, arguments: &[&str], more: &[(&str, &str)]) -> tempfile::TempDir {
        let proc = tempfile::tempdir().unwrap();
        sees(proc.path(), "0:55");
        add(proc.path(), pid, comm, arguments, more);
        proc
    }

    /// What is mounted at the root for ourselves.
    pub(in crate::lxcfs) fn sees(proc: &Path, device: &str) {
        fs::create_dir_all(proc.join("self")).unwrap();
        fs::write(proc.join("self/mountinfo"), mounted(device)).unwrap();
    }

    /// A process that may mount, and sees what we do; `more` are other files of it.
    pub(in crate::lxcfs) fn add(
        proc: &Path,
        pid: i32,
        comm: &str,
        arguments: &[&str],
        more: &[(&str, &str)],
    ) {
        let folder = proc.join(pid.to_string());
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("comm"), format!("{comm}\n")).unwrap();
        fs::write(folder.join("cmdline"), arguments.join("\0") + "\0").unwrap();
        let rest: Vec<_> = (3..=52).map(|field: u32| field.to_string()).collect();
        fs::write(folder.join("stat"), format!("{pid} ({comm}) {}", rest.join(" "))).unwrap();
        fs::write(folder.join("status"), PRIVILEGED).unwrap();
        fs::write(folder.join("uid_map"), "         0          0 4294967295\n").unwrap();
        fs::write(folder.join("mountinfo"), mounted("0:55")).unwrap();
        for (name, text) in more {
            fs::write(folder.join(name), text).unwrap();
        }
    }

    fn found(proc: &tempfile::TempDir, pid_file: &Path, root: &str) -> Option<i32> {
        find(proc.path(), pid_file, root).map(|process| process.pid)
    }

    /// The one that there is.
    fn only(proc: &tempfile::TempDir) -> Process {
        find(proc.path(), Path::new("/nowhere"), ROOT).unwrap()
    }

    #[test]
    fn the_pid_file_is_believed_only_where_it_tells_of_an_lxcfs() {
        let proc = proc(7, "lxcfs", &ARGUMENTS, &[]);
        add(proc.path(), 8, "bash", &["bash", "/var/lib/lxcfs"], &[]);
        add(proc.path(), 9, "lxcfs", &["lxcfs", "/var/lib/other"], &[]);
        let pid_file = proc.path().join("lxcfs.pid");
        assert_eq!(found(&proc, &pid_file, ROOT), Some(7), "there is no pid file");
        for (text, pid) in [("9\n", 7), ("8\n", 7), ("4711", 7), ("nonsense", 7)] {
            fs::write(&pid_file, text).unwrap();
            assert_eq!(found(&proc, &pid_file, ROOT), Some(pid), "{text}");
        }
        fs::remove_dir_all(proc.path().join("7")).unwrap();
        fs::write(&pid_file, "9\n").unwrap();
        assert_eq!(found(&proc, &pid_file, ROOT), Some(9), "it may have been given the root by another name");
        assert_eq!(found(&proc, Path::new("/nowhere"), ROOT), None);
        assert_eq!(found(&proc, &pid_file, "/elsewhere"), None, "nothing is mounted there");
    }

    #[test]
    fn a_process_of_a_tenant_is_not_taken_for_lxcfs_whatever_it_calls_itself() {
        for (file, text) in [
            ("status", "Uid:\t65534\t65534\t65534\t65534\nCapEff:\t0000000000000000\n"),
            // What containers have by default.
            ("status", "Uid:\t0\t0\t0\t0\nCapEff:\t00000000a80425fb\n"),
            ("status", "nothing"),
            // All of them, in a user namespace of its own.
            ("uid_map", "         0     100000      65536\n"),
            ("uid_map", "         0       1000          1\n"),
            ("uid_map", ""),
            // Without the mount, or with something else there.
            ("mountinfo", ""),
            ("mountinfo", "97 90 0:55 / /var/lib/lxcfs rw - tmpfs lxcfs rw\n"),
            ("mountinfo", "97 90 0:55 / /var/lib/other rw - fuse.lxcfs lxcfs rw\n"),
        ] {
            let proc = proc(7, "lxcfs", &ARGUMENTS, &[(file, text)]);
            let pid_file = proc.path().join("lxcfs.pid");
            fs::write(&pid_file, "7\n").unwrap();
            assert_eq!(found(&proc, &pid_file, ROOT), None, "{file}: {text}");
            assert!(!is_elsewhere(proc.path(), ROOT), "{file}: {text}");
            add(proc.path(), 4711, "lxcfs", &ARGUMENTS, &[]);
            assert_eq!(found(&proc, &pid_file, ROOT), Some(4711), "the true one, whatever its number");
        }
    }

    #[test]
    fn of_several_it_is_the_one_that_serves_what_is_mounted_here() {
        let (theirs, ours) = (mounted("0:55"), mounted("0:77"));
        let proc = proc(7, "lxcfs", &ARGUMENTS, &[("mountinfo", &theirs)]);
        add(proc.path(), 8, "lxcfs", &ARGUMENTS, &[("mountinfo", &ours)]);
        let pid_file = proc.path().join("lxcfs.pid");
        fs::write(&pid_file, "7\n").unwrap();
        let here = |device: &str| {
            sees(proc.path(), device);
            found(&proc, &pid_file, ROOT)
        };
        assert_eq!(here("0:55"), Some(7));
        assert_eq!(here("0:77"), Some(8), "whatever the pid file says");
        assert_eq!(here("0:99"), None, "neither of them");
        fs::write(proc.path().join("self/mountinfo"), "").unwrap();
        assert_eq!(found(&proc, &pid_file, ROOT), None, "what they serve is not seen here");
        assert!(is_elsewhere(proc.path(), ROOT));
    }

    #[test]
    fn a_child_of_it_is_not_taken_for_it_whatever_number_it_has() {
        let proc = proc(7, "lxcfs", &ARGUMENTS, &[]);
        let rest: Vec<_> = (3..=52).map(|field: u32| (field + 1).to_string()).collect();
        let later = format!("3 (lxcfs) {}", rest.join(" "));
        add(proc.path(), 3, "lxcfs", &ARGUMENTS, &[("stat", &later)]);
        assert_eq!(found(&proc, Path::new("/nowhere"), ROOT), Some(7));
    }

    #[test]
    fn its_switches_are_told_from_the_words_that_follow_them() {
        let proc = proc(7, "lxcfs", &ARGUMENTS, &[]);
        let process = only(&proc);
        assert_eq!(process.options, ["cfs"], "-l is the pid file's name here");
        assert_eq!(process.started, 22);
        assert_eq!(options(&["lxcfs", "-l", "-u", "--enable-pidfd", "/l"]), ["loadavg", "no-swap", "pidfd"]);
    }

    #[test]
    fn the_mapped_library_is_known_by_its_inode_also_where_it_was_deleted() {
        let maps = "55d0-55d1 r--p 00000000 fe:01 12 /usr/bin/lxcfs\n\
            7f00-7f01 r-xp 00007000 fe:01 4242                       /var/lib/lxcfs-library/liblxcfs.so (deleted)\n";
        let proc = proc(7, "lxcfs", &ARGUMENTS, &[("maps", maps)]);
        let mapped = only(&proc).library().unwrap().unwrap();
        assert_eq!(
            (mapped.inode, mapped.path.as_str()),
            (4242, "/var/lib/lxcfs-library/liblxcfs.so (deleted)")
        );
    }

    #[test]
    fn a_process_that_does_not_catch_the_signal_yet_is_not_ended_by_it() {
        for (mask, catches) in [("0000000100005a03", true), ("0000000100005803", false), ("junk", false)] {
            let status = format!("Name:\tlxcfs\nSigCgt:\t{mask}\n{PRIVILEGED}");
            let proc = proc(7, "lxcfs", &ARGUMENTS, &[("status", &status)]);
            assert_eq!(only(&proc).catches_reload(), catches, "{mask}");
        }
    }

    #[test]
    fn who_has_got_the_number_of_a_process_that_is_gone_gets_no_signal() {
        let own = i32::try_from(std::process::id()).unwrap();
        let status = format!("SigCgt:\tffffffffffffffff\n{PRIVILEGED}");
        let proc = proc(own, "lxcfs", &ARGUMENTS, &[("status", &status)]);
        let process = only(&proc);
        fs::write(proc.path().join(own.to_string()).join("comm"), "tests\n").unwrap();
        // Were it sent, it would end this very test.
        assert!(process.reload().is_err());
    }
}
