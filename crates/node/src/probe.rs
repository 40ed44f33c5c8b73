//! Reads the files of LXCFS as a pod would read them.
//!
//! A file counts as served only if it is on a file system of LXCFS (`fuse.lxcfs`). A plain copy below the root, or a mount over
//! it, can have the right content here, but not in a pod.
//!
//! Each access to a FUSE mount, even `stat`, can hang forever if LXCFS hangs, or fail with "Transport endpoint is not
//! connected" after LXCFS exited. Therefore each file has a thread that reads only that file. A thread that hangs is left alone
//! until it returns. If another mount hides the one in which it hangs, a new thread replaces it; the old one ends with its
//! mount.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind, Read as _};
#[cfg(target_os = "linux")]
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc as std_mpsc};
use std::thread;
use std::time::Duration;

use lxcfs::{LxcfsFile, NodeSettings};
#[cfg(target_os = "linux")]
use rustix::fs::{major, minor};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, timeout_at};

use super::mount::Mount;

/// Time for one read. LXCFS answers within milliseconds, on an overloaded node within some hundred.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// The bytes of a file that are checked. `/proc/cpuinfo` of a large machine has a megabyte.
const CHECKED_BYTES: u64 = 16 << 10;

/// The result of reading one file. Names of the variants are values in the node's annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileState {
    /// The file exists, and its content has the right form.
    Served,
    /// No such file.
    Missing,
    /// A directory, a pipe or a device.
    NotAFile,
    /// A file that is not on a file system of LXCFS.
    NotLxcfs,
    /// LXCFS exited, and its mount is left.
    Dead,
    /// No answer in time.
    Silent,
    /// The content has another form.
    Garbage,
    /// Another error.
    Unreadable,
}

impl FileState {
    /// Returns the value in the node's annotation.
    pub fn word(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::Missing => "missing",
            Self::NotAFile => "not-a-file",
            Self::NotLxcfs => "not-lxcfs",
            Self::Dead => "dead",
            Self::Silent => "silent",
            Self::Garbage => "garbage",
            Self::Unreadable => "unreadable",
        }
    }

    /// Returns the meaning, as the end of a sentence that starts with the path of the file.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Served => "is served",
            Self::Missing => "does not exist",
            Self::NotAFile => "is not a file",
            Self::NotLxcfs => {
                "is not a file of LXCFS: LXCFS is not mounted there, or another mount covers it"
            }
            Self::Dead => "is on a dead mount: LXCFS has exited (\"Transport endpoint is not connected\")",
            Self::Silent => "does not answer",
            Self::Garbage => "has invalid content",
            Self::Unreadable => "could not be read",
        }
    }

    fn of(error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Self::Missing,
            ErrorKind::NotConnected | ErrorKind::ConnectionAborted => Self::Dead,
            _ => Self::Unreadable,
        }
    }
}

/// Reads one file. The set contains the device numbers of all LXCFS file systems.
type ReadFn = fn(LxcfsFile, &Path, &BTreeSet<String>) -> FileState;

/// The result of one probe of all files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeResult {
    /// Every file that LXCFS can serve.
    pub files: Vec<(LxcfsFile, FileState)>,
    /// The mount at the root.
    pub mount: Option<Mount>,
}

impl ProbeResult {
    /// Returns the state of a file.
    pub fn state(&self, file: LxcfsFile) -> FileState {
        self.files.iter().find(|(one, _)| *one == file).map_or(FileState::Missing, |(_, state)| *state)
    }

    /// Returns whether all configured files are served.
    pub fn serves(&self, files: &[LxcfsFile]) -> bool {
        files.iter().all(|&file| self.state(file) == FileState::Served)
    }

    /// Describes what is wrong with the configured files, in a sentence.
    pub(crate) fn problem(&self, settings: &NodeSettings) -> Option<String> {
        let mut broken = settings.files.iter().filter(|file| self.state(**file) != FileState::Served);
        let first = broken.next()?;
        let others = match broken.count() {
            0 => String::new(),
            count => format!(", and {count} more files have problems"),
        };
        Some(format!("{}{} {}{others}", settings.root, first.path(), self.state(*first).meaning()))
    }
}

/// Probes the files below a root.
#[derive(Debug)]
pub struct Prober {
    proc: PathBuf,
    root: String,
    timeout: Duration,
    readers: Vec<FileReader>,
}

impl Prober {
    /// `proc` is the directory with the table of mounts. Reads nothing yet.
    pub fn new(proc: &Path, root: &str) -> Self {
        Self::with(proc, root, READ_TIMEOUT, read_file)
    }

    fn with(proc: &Path, root: &str, timeout: Duration, read: ReadFn) -> Self {
        let reader = |file: LxcfsFile| FileReader {
            file,
            path: PathBuf::from(format!("{root}{}", file.path())),
            read,
            thread: None,
        };
        let (proc, root) = (proc.to_owned(), root.to_owned());
        Self { proc, root, timeout, readers: LxcfsFile::ALL.into_iter().map(reader).collect() }
    }

    /// Reads all files at once, each within [`READ_TIMEOUT`]. If the future is dropped, files can count as silent in the next
    /// probe.
    pub async fn probe(&mut self) -> ProbeResult {
        let table = Mount::table(&self.proc);
        let (mount, devices) = (Mount::find(&table, &self.root), Arc::new(Mount::lxcfs_devices(&table)));
        for reader in &mut self.readers {
            reader.start(mount.as_ref(), &devices);
        }
        let deadline = Instant::now() + self.timeout;
        let mut files = Vec::with_capacity(self.readers.len());
        for reader in &mut self.readers {
            files.push((reader.file, reader.result(deadline).await));
        }
        ProbeResult { files, mount }
    }
}

/// Reads one file in a thread.
#[derive(Debug)]
struct FileReader {
    file: LxcfsFile,
    path: PathBuf,
    read: ReadFn,
    thread: Option<ReaderThread>,
}

/// The channels to a thread that reads.
#[derive(Debug)]
struct ReaderThread {
    requests: std_mpsc::Sender<Arc<BTreeSet<String>>>,
    results: UnboundedReceiver<FileState>,
    is_reading: bool,
    /// The mount at the root when the read started.
    mount: Option<Mount>,
}

impl FileReader {
    fn start(&mut self, mount: Option<&Mount>, devices: &Arc<BTreeSet<String>>) {
        if let Some(thread) = &mut self.thread {
            // A result that came after the deadline is out of date.
            if thread.is_reading && thread.results.try_recv().is_ok() {
                thread.is_reading = false;
            }
            // The thread hangs in a mount that is hidden now.
            if thread.is_reading && thread.mount.as_ref() != mount {
                self.thread = None;
            }
        }
        if self.thread.is_none() {
            self.thread = self.spawn();
        }
        if let Some(thread) = &mut self.thread
            && !thread.is_reading
        {
            thread.mount = mount.cloned();
            thread.is_reading = thread.requests.send(Arc::clone(devices)).is_ok();
        }
    }

    async fn result(&mut self, deadline: Instant) -> FileState {
        // The system could not start a thread.
        let Some(thread) = &mut self.thread else { return FileState::Silent };
        match timeout_at(deadline, thread.results.recv()).await {
            Ok(Some(state)) => {
                thread.is_reading = false;
                state
            }
            // The thread panicked. The next probe starts another one.
            Ok(None) => {
                self.thread = None;
                FileState::Silent
            }
            Err(_) => FileState::Silent,
        }
    }

    fn spawn(&self) -> Option<ReaderThread> {
        let (requests, received) = std_mpsc::channel::<Arc<BTreeSet<String>>>();
        let (sender, results) = unbounded_channel();
        let (file, path, read) = (self.file, self.path.clone(), self.read);
        let run = move || {
            while let Ok(devices) = received.recv() {
                if sender.send(read(file, &path, &devices)).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name(format!("reads {}", file.name())).spawn(run).ok()?;
        Some(ReaderThread { requests, results, is_reading: false, mount: None })
    }
}

/// Returns the device number of the file system of a file, as the table of mounts has it.
#[cfg(target_os = "linux")]
fn device(metadata: &Metadata) -> String {
    format!("{}:{}", major(metadata.dev()), minor(metadata.dev()))
}

/// Other systems have no LXCFS.
#[cfg(not(target_os = "linux"))]
fn device(_: &Metadata) -> String {
    String::new()
}

/// Reads a file in this thread.
fn read_file(file: LxcfsFile, path: &Path, devices: &BTreeSet<String>) -> FileState {
    // The type is checked first, because opening a pipe blocks.
    match fs::metadata(path) {
        Err(error) => return FileState::of(&error),
        Ok(metadata) if !metadata.is_file() => return FileState::NotAFile,
        Ok(metadata) if !devices.contains(&device(&metadata)) => return FileState::NotLxcfs,
        Ok(_) => {}
    }
    let mut text = Vec::new();
    let result = fs::File::open(path).and_then(|open| open.take(CHECKED_BYTES).read_to_end(&mut text));
    match result {
        Err(error) => FileState::of(&error),
        Ok(_) if is_valid(file, &String::from_utf8_lossy(&text)) => FileState::Served,
        Ok(_) => FileState::Garbage,
    }
}

/// Returns whether a file starts as the kernel writes it (proc(5)). LXCFS has served wrong values that break programs: a
/// `MemTotal` of 0 on cgroup v2 (lxc/lxcfs#389), a negative age and no processors to a process whose pid it can't see. `diskstats`
/// and `slabinfo` can be empty.
fn is_valid(file: LxcfsFile, text: &str) -> bool {
    let numbers = |count: usize| {
        let mut words = text.split_ascii_whitespace();
        let mut is_number =
            || words.next().and_then(|word| word.parse::<f64>().ok()).is_some_and(|number| number >= 0.0);
        (0..count).all(|_| is_number())
    };
    match file {
        LxcfsFile::Meminfo => {
            let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
            let number = total.and_then(|rest| rest.split_ascii_whitespace().next());
            number.is_some_and(|number| number.parse::<u64>().is_ok_and(|number| number > 0))
        }
        // x86 and arm write a line for each processor, s390x one line with their number.
        LxcfsFile::Cpuinfo => text.contains("processor"),
        // These are words of Linux: fs/proc/stat.c, mm/swapfile.c.
        LxcfsFile::Stat => text.starts_with("cpu "),
        LxcfsFile::Swaps => text.starts_with("Filename"),
        LxcfsFile::Uptime => numbers(2),
        LxcfsFile::Loadavg => numbers(3),
        LxcfsFile::Online => {
            let list = text.trim_end();
            !list.is_empty() && list.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b',' | b'-'))
        }
        LxcfsFile::Diskstats | LxcfsFile::Slabinfo => true,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::net::UnixListener;
    use std::sync::Mutex;

    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use tempfile::TempDir;

    use super::*;

    /// Creates a directory with every file of LXCFS, and a table of mounts in which it is a mount of LXCFS.
    pub(crate) fn root() -> TempDir {
        let root = tempfile::tempdir().unwrap();
        for file in LxcfsFile::ALL {
            write(root.path(), file, valid_text(file));
        }
        mount(&root, "fuse.lxcfs");
        root
    }

    /// Writes the table of mounts into the same directory, which is also the test's `/proc`.
    fn mount(root: &TempDir, kind: &str) {
        let number = device(&fs::metadata(at(root.path(), LxcfsFile::Meminfo)).unwrap());
        fs::create_dir_all(root.path().join("self")).unwrap();
        let line = format!("97 90 {number} / {} rw - {kind} lxcfs rw\n", root.path().display());
        fs::write(root.path().join("self/mountinfo"), line).unwrap();
    }

    /// Writes a file at the path of LXCFS.
    pub(crate) fn write(root: &Path, file: LxcfsFile, text: &str) {
        let path = at(root, file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn at(root: &Path, file: LxcfsFile) -> PathBuf {
        PathBuf::from(format!("{}{}", root.display(), file.path()))
    }

    fn valid_text(file: LxcfsFile) -> &'static str {
        match file {
            LxcfsFile::Cpuinfo => "processor\t: 0\nvendor_id\t: GenuineIntel\n",
            LxcfsFile::Meminfo => "MemTotal:         262144 kB\nMemFree:          260000 kB\n",
            LxcfsFile::Stat => "cpu  1 2 3 4\ncpu0 1 2 3 4\n",
            LxcfsFile::Swaps => "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n",
            LxcfsFile::Uptime => "12.00 11.00\n",
            LxcfsFile::Loadavg => "0.00 0.01 0.05 1/12 345\n",
            LxcfsFile::Online => "0-1\n",
            LxcfsFile::Diskstats | LxcfsFile::Slabinfo => "",
        }
    }

    fn prober(root: &TempDir) -> Prober {
        Prober::new(root.path(), root.path().to_str().unwrap())
    }

    /// Creates a prober for [`silence`].
    pub(crate) fn blocking_prober(root: &TempDir) -> Prober {
        Prober::with(root.path(), root.path().to_str().unwrap(), READ_TIMEOUT, block_and_read)
    }

    /// Replaces a file by a pipe: opening it blocks until [`answer`] opens the other end. Starts no program for that, because a
    /// fork keeps the files of other tests open for a moment, and a script that is open for writing can't be run.
    pub(crate) fn silence(root: &TempDir, file: LxcfsFile) -> PathBuf {
        let pipe = at(root.path(), file);
        fs::remove_file(&pipe).unwrap();
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        pipe
    }

    /// Restores a file that a reader is blocked on. The blocked read counts as served.
    pub(crate) fn answer(root: &TempDir, file: LxcfsFile) {
        let pipe = at(root.path(), file);
        let other_end = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
        fs::remove_file(&pipe).unwrap();
        write(root.path(), file, valid_text(file));
        drop(other_end);
    }

    fn prober_with(root: &TempDir, read: ReadFn) -> Prober {
        Prober::with(root.path(), root.path().to_str().unwrap(), Duration::from_millis(50), read)
    }

    #[tokio::test]
    async fn reports_valid_files_as_served() {
        let root = root();
        let result = prober(&root).probe().await;
        assert!(result.files.iter().all(|(_, state)| *state == FileState::Served), "{result:?}");
        assert!(result.serves(&LxcfsFile::ALL));
    }

    #[tokio::test]
    async fn reports_files_of_other_file_systems_as_not_lxcfs() {
        let root = root();
        for kind in ["ext4", "fuse.sshfs"] {
            mount(&root, kind);
            let result = prober(&root).probe().await;
            assert!(
                result.files.iter().all(|(_, state)| *state == FileState::NotLxcfs),
                "{kind}: {result:?}"
            );
        }
        fs::remove_file(root.path().join("self/mountinfo")).unwrap();
        let result = prober(&root).probe().await;
        assert!(result.files.iter().all(|(_, state)| *state == FileState::NotLxcfs), "no table: {result:?}");
        // LXCFS is mounted at the root, and another mount hides it.
        fs::write(
            root.path().join("self/mountinfo"),
            format!("97 90 0:1 / {} rw - fuse.lxcfs l rw\n", root.path().display()),
        )
        .unwrap();
        let result = prober(&root).probe().await;
        assert!(result.mount.as_ref().unwrap().is_lxcfs());
        assert!(result.files.iter().all(|(_, state)| *state == FileState::NotLxcfs), "hidden: {result:?}");
    }

    #[tokio::test]
    async fn distinguishes_missing_files_other_types_and_invalid_content() {
        let root = root();
        for (file, text) in [
            (LxcfsFile::Meminfo, "MemTotal:              0 kB\n"),
            (LxcfsFile::Uptime, "-184467440737071552.00 0.00\n"),
            (LxcfsFile::Online, "\n"),
            (LxcfsFile::Stat, ""),
        ] {
            write(root.path(), file, text);
        }
        fs::remove_file(at(root.path(), LxcfsFile::Swaps)).unwrap();
        fs::remove_file(at(root.path(), LxcfsFile::Cpuinfo)).unwrap();
        fs::create_dir(at(root.path(), LxcfsFile::Cpuinfo)).unwrap();
        silence(&root, LxcfsFile::Loadavg);
        fs::remove_file(at(root.path(), LxcfsFile::Slabinfo)).unwrap();
        let _socket = UnixListener::bind(at(root.path(), LxcfsFile::Slabinfo)).unwrap();
        let result = prober(&root).probe().await;
        let seen: Vec<_> = result.files.iter().map(|(file, seen)| (file.name(), seen.word())).collect();
        assert_eq!(
            seen,
            [
                ("cpuinfo", "not-a-file"),
                ("meminfo", "garbage"),
                ("diskstats", "served"),
                ("stat", "garbage"),
                ("swaps", "missing"),
                ("uptime", "garbage"),
                ("loadavg", "not-a-file"),
                ("slabinfo", "not-a-file"),
                ("online", "garbage"),
            ]
        );
        let settings = NodeSettings { root: "/l".to_owned(), ..NodeSettings::default() };
        assert_eq!(
            result.problem(&settings).unwrap(),
            "/l/proc/cpuinfo is not a file, and 4 more files have problems"
        );
    }

    #[test]
    fn maps_the_errors_of_a_dead_mount_to_dead() {
        for (number, seen) in [
            (107, FileState::Dead),
            (103, FileState::Dead),
            (2, FileState::Missing),
            (20, FileState::Missing),
            (1, FileState::Unreadable),
        ] {
            assert_eq!(FileState::of(&io::Error::from_raw_os_error(number)), seen, "{number}");
        }
    }

    /// The path of each read that blocked.
    static BLOCKED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

    /// Reads a pipe as well: opening it blocks, as a file of an LXCFS that hangs.
    fn block_and_read(file: LxcfsFile, path: &Path, devices: &BTreeSet<String>) -> FileState {
        if fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) {
            return read_file(file, path, devices);
        }
        BLOCKED.lock().unwrap().push(path.to_owned());
        fs::read(path).map_or_else(|error| FileState::of(&error), |_| FileState::Served)
    }

    #[tokio::test]
    async fn a_file_that_hangs_blocks_one_thread_only_and_recovers() {
        let root = root();
        silence(&root, LxcfsFile::Stat);
        let mut prober = prober_with(&root, block_and_read);
        for _ in 0..4 {
            let result = prober.probe().await;
            assert_eq!(result.state(LxcfsFile::Stat), FileState::Silent);
            assert_eq!(
                result.files.iter().filter(|(_, state)| *state == FileState::Served).count(),
                8,
                "{result:?}"
            );
        }
        answer(&root, LxcfsFile::Stat);
        let again = async { while prober.probe().await.state(LxcfsFile::Stat) != FileState::Served {} };
        tokio::time::timeout(Duration::from_secs(20), again).await.unwrap();
        let blocked = BLOCKED.lock().unwrap().iter().filter(|path| path.starts_with(root.path())).count();
        assert_eq!(blocked, 1, "a thread for each probe");
    }

    #[tokio::test]
    async fn replaces_a_thread_that_hangs_in_a_hidden_mount() {
        let root = root();
        let pipe = silence(&root, LxcfsFile::Stat);
        let mut prober = prober_with(&root, block_and_read);
        assert_eq!(prober.probe().await.state(LxcfsFile::Stat), FileState::Silent);
        fs::rename(&pipe, root.path().join("below")).unwrap();
        write(root.path(), LxcfsFile::Stat, valid_text(LxcfsFile::Stat));
        assert_eq!(
            prober.probe().await.state(LxcfsFile::Stat),
            FileState::Silent,
            "the mount is the same, so the thread still reads"
        );
        let another =
            Some(Mount { id: "0".to_owned(), device: "0:0".to_owned(), fs_type: "fuse.lxcfs".to_owned() });
        prober
            .readers
            .iter_mut()
            .for_each(|reader| reader.thread.as_mut().unwrap().mount.clone_from(&another));
        assert_eq!(prober.probe().await.state(LxcfsFile::Stat), FileState::Served);
    }
}
