//! Reads the files of LXCFS as a pod would, and says of each how that went.
//!
//! A file is LXCFS's if it lies on a file system of LXCFS (`fuse.lxcfs`), whatever its path and whatever it says: a plain copy
//! under the root, or something that is mounted over it, says what a pod would read too, and is not true of the pod.
//!
//! They lie on a FUSE mount, where every step, the look at a file's kind included, may wait for ever for a process that does not
//! answer, or fail with "Transport endpoint is not connected" where that process is gone. So each file has a thread of its own
//! that reads it and nothing else. One that hangs is left alone and asked nothing more until it comes back, or until another
//! mount lies over the one in which it hangs: then it is left behind, once. It ends with the mount, or with the process.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc as std_mpsc};
use std::thread;
use std::time::Duration;

use guards::lxcfs::{File, OnNode};
use rustix::fs::{major, minor};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, timeout_at};

use super::mount::Mount;

/// LXCFS answers within milliseconds; on a node that is busy beyond measure within some hundred.
pub(crate) const WITHIN: Duration = Duration::from_secs(2);

/// So much of a file tells whether it is what it should be. `/proc/cpuinfo` of a large machine is a megabyte.
const ENOUGH: u64 = 16 << 10;

/// How reading a file went. The words are those of the node's annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Seen {
    /// It is there and says what such a file says.
    Served,
    /// There is nothing of that name.
    Missing,
    /// A directory, a pipe, a device.
    NotAFile,
    /// A file that is there, and lies on no file system of LXCFS.
    NotLxcfs,
    /// The process that served it is gone, and its mount is left.
    Dead,
    /// It does not answer in time.
    Silent,
    /// It can be read, and is not what it should be.
    Garbage,
    /// It cannot be read for another reason.
    Unreadable,
}

impl Seen {
    /// The word for it.
    pub(crate) fn word(self) -> &'static str {
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

    /// What that means, as the end of a sentence that begins with the file's path.
    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Self::Served => "is served",
            Self::Missing => "is not there",
            Self::NotAFile => "is not a file",
            Self::NotLxcfs => {
                "is there and is not LXCFS's, which is not mounted there or has something over it"
            }
            Self::Dead => {
                "is dead: LXCFS is gone and its mount is left (\"Transport endpoint is not connected\")"
            }
            Self::Silent => "does not answer",
            Self::Garbage => "is not what such a file says",
            Self::Unreadable => "cannot be read",
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

/// How one file is read, and the file systems of LXCFS that there are.
type Look = fn(File, &Path, &BTreeSet<String>) -> Seen;

/// What was seen in one round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sight {
    /// Every file that LXCFS may serve.
    pub(crate) files: Vec<(File, Seen)>,
    /// What is mounted at the root.
    pub(crate) mount: Option<Mount>,
}

impl Sight {
    /// How this file is.
    pub(crate) fn of(&self, file: File) -> Seen {
        self.files.iter().find(|(one, _)| *one == file).map_or(Seen::Missing, |(_, seen)| *seen)
    }

    /// The first of the promised files that is not served, and how it is.
    pub(crate) fn ill(&self, promised: &[File]) -> Option<(File, Seen)> {
        promised.iter().map(|&file| (file, self.of(file))).find(|(_, seen)| *seen != Seen::Served)
    }

    /// What is wrong with the promised files, in a sentence; nothing where all is well.
    pub(crate) fn why_ill(&self, on_node: &OnNode) -> Option<String> {
        let (file, seen) = self.ill(&on_node.files)?;
        let others = on_node.files.iter().filter(|one| self.of(**one) != Seen::Served).count() - 1;
        let others =
            if others > 0 { format!(", and {others} more files are no better") } else { String::new() };
        Some(format!("{}{} {}{others}", on_node.root, file.path(), seen.meaning()))
    }
}

/// Eyes on a root.
#[derive(Debug)]
pub(crate) struct Prober {
    proc: PathBuf,
    root: String,
    within: Duration,
    readers: Vec<Reader>,
}

impl Prober {
    /// On a root, as the mounts that `proc` tells of lie there. Nothing is read yet.
    pub(crate) fn new(proc: &Path, root: &str) -> Self {
        Self::with(proc, root, WITHIN, look_at)
    }

    fn with(proc: &Path, root: &str, within: Duration, look: Look) -> Self {
        let reader = |file: File| Reader {
            file,
            path: PathBuf::from(format!("{root}{}", file.path())),
            look,
            line: None,
        };
        let (proc, root) = (proc.to_owned(), root.to_owned());
        Self { proc, root, within, readers: File::ALL.into_iter().map(reader).collect() }
    }

    /// Reads every file, all at once, and waits for none of them longer than it may take. Must not be called again before it is
    /// done; dropped half way, it is as if some files were silent until the next time.
    pub(crate) async fn look(&mut self) -> Sight {
        let table = Mount::table(&self.proc);
        let (mount, devices) = (Mount::find(&table, &self.root), Arc::new(Mount::devices(&table)));
        for reader in &mut self.readers {
            reader.ask(mount.as_ref(), &devices);
        }
        let deadline = Instant::now() + self.within;
        let mut files = Vec::with_capacity(self.readers.len());
        for reader in &mut self.readers {
            files.push((reader.file, reader.answer(deadline).await));
        }
        Sight { files, mount }
    }
}

/// Who reads one file.
#[derive(Debug)]
struct Reader {
    file: File,
    path: PathBuf,
    look: Look,
    line: Option<Line>,
}

/// The way to a thread that reads.
#[derive(Debug)]
struct Line {
    ask: std_mpsc::Sender<Arc<BTreeSet<String>>>,
    answers: UnboundedReceiver<Seen>,
    is_waiting: bool,
    mount: Option<Mount>,
}

impl Reader {
    fn ask(&mut self, mount: Option<&Mount>, devices: &Arc<BTreeSet<String>>) {
        if let Some(line) = &mut self.line {
            // An answer that came too late is an old one.
            if line.is_waiting && line.answers.try_recv().is_ok() {
                line.is_waiting = false;
            }
            // It hangs in a file that nobody else would come to any more.
            if line.is_waiting && line.mount.as_ref() != mount {
                self.line = None;
            }
        }
        if self.line.is_none() {
            self.line = self.begin();
        }
        if let Some(line) = &mut self.line
            && !line.is_waiting
        {
            line.mount = mount.cloned();
            line.is_waiting = line.ask.send(Arc::clone(devices)).is_ok();
        }
    }

    async fn answer(&mut self, deadline: Instant) -> Seen {
        // No thread could be had.
        let Some(line) = &mut self.line else { return Seen::Silent };
        match timeout_at(deadline, line.answers.recv()).await {
            Ok(Some(seen)) => {
                line.is_waiting = false;
                seen
            }
            // It has ended, which it does not do by itself: another one next time.
            Ok(None) => {
                self.line = None;
                Seen::Silent
            }
            Err(_) => Seen::Silent,
        }
    }

    fn begin(&self) -> Option<Line> {
        let (ask, asked) = std_mpsc::channel::<Arc<BTreeSet<String>>>();
        let (answer, answers) = unbounded_channel();
        let (file, path, look) = (self.file, self.path.clone(), self.look);
        let reading = move || {
            while let Ok(devices) = asked.recv() {
                if answer.send(look(file, &path, &devices)).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name(format!("reads {}", file.name())).spawn(reading).ok()?;
        Some(Line { ask, answers, is_waiting: false, mount: None })
    }
}

/// The number of the file system that a file lies on, as the table of mounts has it.
fn device(metadata: &Metadata) -> String {
    format!("{}:{}", major(metadata.dev()), minor(metadata.dev()))
}

/// Reads a file here and now.
fn look_at(file: File, path: &Path, devices: &BTreeSet<String>) -> Seen {
    // Its kind before anything: opening a pipe would wait for its other end.
    match fs::metadata(path) {
        Err(error) => return Seen::of(&error),
        Ok(metadata) if !metadata.is_file() => return Seen::NotAFile,
        Ok(metadata) if !devices.contains(&device(&metadata)) => return Seen::NotLxcfs,
        Ok(_) => {}
    }
    let mut text = Vec::new();
    let read = fs::File::open(path).and_then(|opened| opened.take(ENOUGH).read_to_end(&mut text));
    match read {
        Err(error) => Seen::of(&error),
        Ok(_) if is_sound(file, &String::from_utf8_lossy(&text)) => Seen::Served,
        Ok(_) => Seen::Garbage,
    }
}

/// Whether a file begins as the kernel writes it (proc(5)). A zero for `MemTotal` is what LXCFS once said on cgroup v2
/// (lxc/lxcfs#389), and programs divide by it; an age below nothing, and no processor at all, is what it says to processes of
/// which it sees no number, as one in a process namespace of its own does. `diskstats` and `slabinfo` may rightly be empty.
fn is_sound(file: File, text: &str) -> bool {
    let numbers = |count: usize| {
        let mut words = text.split_ascii_whitespace();
        let mut is_number =
            || words.next().and_then(|word| word.parse::<f64>().ok()).is_some_and(|number| number >= 0.0);
        (0..count).all(|_| is_number())
    };
    match file {
        File::Meminfo => {
            let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
            let number = total.and_then(|rest| rest.split_ascii_whitespace().next());
            number.is_some_and(|number| number.parse::<u64>().is_ok_and(|number| number > 0))
        }
        // x86 and arm write a line for each; s390x counts them in one.
        File::Cpuinfo => text.contains("processor"),
        File::Stat => text.starts_with("cpu "),
        File::Swaps => text.starts_with("Filename"),
        File::Uptime => numbers(2),
        File::Loadavg => numbers(3),
        File::Online => {
            let list = text.trim_end();
            !list.is_empty() && list.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b',' | b'-'))
        }
        File::Diskstats | File::Slabinfo => true,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::net::UnixListener;
    use std::sync::Mutex;

    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use tempfile::TempDir;

    use super::*;

    /// A folder in which every file is as LXCFS would have it, and a table of mounts that says it is LXCFS's.
    pub(in crate::lxcfs) fn root() -> TempDir {
        let root = tempfile::tempdir().unwrap();
        for file in File::ALL {
            write(root.path(), file, sound(file));
        }
        mount(&root, "fuse.lxcfs");
        root
    }

    /// The table is in the folder itself, as if that were `/proc` too.
    fn mount(root: &TempDir, kind: &str) {
        let number = device(&fs::metadata(at(root.path(), File::Meminfo)).unwrap());
        fs::create_dir_all(root.path().join("self")).unwrap();
        let line = format!("97 90 {number} / {} rw - {kind} lxcfs rw\n", root.path().display());
        fs::write(root.path().join("self/mountinfo"), line).unwrap();
    }

    /// Puts a file where LXCFS has it.
    pub(in crate::lxcfs) fn write(root: &Path, file: File, text: &str) {
        let path = at(root, file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn at(root: &Path, file: File) -> PathBuf {
        PathBuf::from(format!("{}{}", root.display(), file.path()))
    }

    fn sound(file: File) -> &'static str {
        match file {
            File::Cpuinfo => "processor\t: 0\nvendor_id\t: GenuineIntel\n",
            File::Meminfo => "MemTotal:         262144 kB\nMemFree:          260000 kB\n",
            File::Stat => "cpu  1 2 3 4\ncpu0 1 2 3 4\n",
            File::Swaps => "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n",
            File::Uptime => "12.00 11.00\n",
            File::Loadavg => "0.00 0.01 0.05 1/12 345\n",
            File::Online => "0-1\n",
            File::Diskstats | File::Slabinfo => "",
        }
    }

    fn prober(root: &TempDir) -> Prober {
        Prober::new(root.path(), root.path().to_str().unwrap())
    }

    /// For [`silence`].
    pub(in crate::lxcfs) fn patient(root: &TempDir) -> Prober {
        Prober::with(root.path(), root.path().to_str().unwrap(), WITHIN, waits)
    }

    /// Puts a pipe in the place of a file: whoever opens it waits for the other end, which [`answer`] opens. No program is run for
    /// it: a fork holds on for a moment to what other tests have open, and a script that is open to be written cannot be run.
    pub(in crate::lxcfs) fn silence(root: &TempDir, file: File) -> PathBuf {
        let pipe = at(root.path(), file);
        fs::remove_file(&pipe).unwrap();
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        pipe
    }

    /// Has a file answer again that somebody waits for: whoever reads it is let go, and takes it for served.
    pub(in crate::lxcfs) fn answer(root: &TempDir, file: File) {
        let pipe = at(root.path(), file);
        let other_end = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
        fs::remove_file(&pipe).unwrap();
        write(root.path(), file, sound(file));
        drop(other_end);
    }

    fn prober_with(root: &TempDir, look: Look) -> Prober {
        Prober::with(root.path(), root.path().to_str().unwrap(), Duration::from_millis(50), look)
    }

    #[tokio::test]
    async fn every_file_that_is_as_it_should_be_is_served() {
        let root = root();
        let sight = prober(&root).look().await;
        assert!(sight.files.iter().all(|(_, seen)| *seen == Seen::Served), "{sight:?}");
        assert_eq!(sight.ill(&File::ALL), None);
    }

    #[tokio::test]
    async fn files_that_are_not_lxcfs_s_are_not_served_whatever_they_say() {
        let root = root();
        for kind in ["ext4", "fuse.sshfs"] {
            mount(&root, kind);
            let sight = prober(&root).look().await;
            assert!(sight.files.iter().all(|(_, seen)| *seen == Seen::NotLxcfs), "{kind}: {sight:?}");
        }
        fs::remove_file(root.path().join("self/mountinfo")).unwrap();
        let sight = prober(&root).look().await;
        assert!(sight.files.iter().all(|(_, seen)| *seen == Seen::NotLxcfs), "no table: {sight:?}");
        // LXCFS is mounted at the root, and the files come from something over it.
        fs::write(
            root.path().join("self/mountinfo"),
            format!("97 90 0:1 / {} rw - fuse.lxcfs l rw\n", root.path().display()),
        )
        .unwrap();
        let sight = prober(&root).look().await;
        assert!(sight.mount.as_ref().unwrap().is_lxcfs());
        assert!(sight.files.iter().all(|(_, seen)| *seen == Seen::NotLxcfs), "hidden: {sight:?}");
    }

    #[tokio::test]
    async fn a_file_that_is_missing_or_none_or_nonsense_is_told_apart() {
        let root = root();
        for (file, text) in [
            (File::Meminfo, "MemTotal:              0 kB\n"),
            (File::Uptime, "-184467440737071552.00 0.00\n"),
            (File::Online, "\n"),
            (File::Stat, ""),
        ] {
            write(root.path(), file, text);
        }
        fs::remove_file(at(root.path(), File::Swaps)).unwrap();
        fs::remove_file(at(root.path(), File::Cpuinfo)).unwrap();
        fs::create_dir(at(root.path(), File::Cpuinfo)).unwrap();
        silence(&root, File::Loadavg);
        fs::remove_file(at(root.path(), File::Slabinfo)).unwrap();
        let _socket = UnixListener::bind(at(root.path(), File::Slabinfo)).unwrap();
        let sight = prober(&root).look().await;
        let seen: Vec<_> = sight.files.iter().map(|(file, seen)| (file.name(), seen.word())).collect();
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
        let on_node = OnNode { root: "/l".to_owned(), ..OnNode::default() };
        assert_eq!(
            sight.why_ill(&on_node).unwrap(),
            "/l/proc/cpuinfo is not a file, and 4 more files are no better"
        );
    }

    #[test]
    fn what_the_kernel_says_of_a_dead_mount_is_dead() {
        for (number, seen) in [
            (107, Seen::Dead),
            (103, Seen::Dead),
            (2, Seen::Missing),
            (20, Seen::Missing),
            (1, Seen::Unreadable),
        ] {
            assert_eq!(Seen::of(&io::Error::from_raw_os_error(number)), seen, "{number}");
        }
    }

    /// Every pipe that was ever opened to be read, as often as it was.
    static WAITED_FOR: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

    /// Reads without a look at the kind: opening a pipe waits for its other end, as a file waits whose server does not answer.
    fn waits(file: File, path: &Path, devices: &BTreeSet<String>) -> Seen {
        if fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) {
            return look_at(file, path, devices);
        }
        WAITED_FOR.lock().unwrap().push(path.to_owned());
        fs::read(path).map_or_else(|error| Seen::of(&error), |_| Seen::Served)
    }

    #[tokio::test]
    async fn a_file_that_hangs_holds_up_nobody_costs_one_thread_and_is_served_again_when_it_answers() {
        let root = root();
        silence(&root, File::Stat);
        let mut prober = prober_with(&root, waits);
        for _ in 0..4 {
            let sight = prober.look().await;
            assert_eq!(sight.of(File::Stat), Seen::Silent);
            assert_eq!(sight.files.iter().filter(|(_, seen)| *seen == Seen::Served).count(), 8, "{sight:?}");
        }
        answer(&root, File::Stat);
        let again = async { while prober.look().await.of(File::Stat) != Seen::Served {} };
        tokio::time::timeout(Duration::from_secs(20), again).await.unwrap();
        let waited = WAITED_FOR.lock().unwrap().iter().filter(|path| path.starts_with(root.path())).count();
        assert_eq!(waited, 1, "a thread for each round");
    }

    #[tokio::test]
    async fn a_reader_that_hangs_in_what_lies_under_another_mount_is_left_behind() {
        let root = root();
        let pipe = silence(&root, File::Stat);
        let mut prober = prober_with(&root, waits);
        assert_eq!(prober.look().await.of(File::Stat), Seen::Silent);
        fs::rename(&pipe, root.path().join("below")).unwrap();
        write(root.path(), File::Stat, sound(File::Stat));
        assert_eq!(
            prober.look().await.of(File::Stat),
            Seen::Silent,
            "the same mount: it is still waited for"
        );
        let another =
            Some(Mount { id: "0".to_owned(), device: "0:0".to_owned(), kind: "fuse.lxcfs".to_owned() });
        prober.readers.iter_mut().for_each(|reader| reader.line.as_mut().unwrap().mount.clone_from(&another));
        assert_eq!(prober.look().await.of(File::Stat), Seen::Served);
    }
}
