//! Has LXCFS load its library anew once another one lies on the node's disk: the upgrade that no pod notices.
//!
//! How LXCFS 5.0 does that (measured): SIGUSR1 sets a mark, and at the next access to one of its files, when no other is under
//! way, it lets go of the old library and opens `liblxcfs.so` again. If that fails it exits, and every container on the node
//! reads "Transport endpoint is not connected" until it is started anew. So nothing is signalled that has not been tried
//! ([`trial`]), and what LXCFS has loaded is not believed but looked at: the inode of the file that it has mapped. That needs no
//! memory of what was there before, so nothing is missed while we are not running.

mod trial;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use super::process::Process;

/// What did not work is tried again this often; a library that is bad stays bad, but what it is tried with may have been busy.
const AGAIN: Duration = Duration::from_secs(60);

/// From the signal to the library in its place: LXCFS waits for a moment in which nobody reads.
const LOADED_WITHIN: Duration = Duration::from_secs(15);

/// How the library on the disk stands to the one that is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// There is none on the disk: LXCFS has its own.
    Absent,
    /// LXCFS has loaded it.
    Loaded,
    /// It is being tried or loaded, and nothing is known to be wrong with it.
    Loading,
    /// LXCFS has another one, and why.
    Waits(String),
}

/// One file, watched.
#[derive(Debug)]
pub(super) struct Library {
    file: PathBuf,
    seen: Option<Identity>,
    asked: Option<Asked>,
    tried: Option<Tried>,
}

/// What tells one state of a file from another without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

/// A library that LXCFS was told to load.
#[derive(Debug)]
struct Asked {
    file: Identity,
    process: Process,
    at: Instant,
}

/// A library that LXCFS did not load.
#[derive(Debug)]
struct Tried {
    file: Identity,
    process: Process,
    at: Instant,
    why: String,
}

impl Identity {
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        if !metadata.is_file() {
            return Err(io::Error::other("it is not a file"));
        }
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

impl Library {
    pub(super) fn new(file: &Path) -> Self {
        Self { file: file.to_owned(), seen: None, asked: None, tried: None }
    }

    /// Looks at the file, and has LXCFS load it where it is another one than LXCFS has, and has stayed as it is since the last
    /// look. LXCFS looks at the mark only when its files are read, which the caller does between two rounds; nothing here waits for
    /// that, since the caller has a label to keep.
    pub(super) async fn round(&mut self, process: Option<&Process>) -> State {
        let file = match Identity::of(&self.file) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.seen = None;
                return State::Absent;
            }
            Err(error) => return State::Waits(format!("{} cannot be read: {error}", self.file.display())),
        };
        let asked = self.asked.take();
        if let Some(asked) = &asked
            && process != Some(&asked.process)
        {
            let (pid, library) = (asked.process.pid(), self.file.display());
            tracing::error!(pid, %library, "LXCFS is gone since it was told to load the library");
        }
        let Some(process) = process else {
            return State::Waits("LXCFS is not among the processes that can be seen here".to_owned());
        };
        match has(process, file) {
            Ok(true) => {
                if asked.is_some() {
                    tracing::info!(pid = process.pid(), library = %self.file.display(), "LXCFS has loaded the new library");
                }
                self.tried = None;
                return State::Loaded;
            }
            Ok(false) => {}
            Err(error) => {
                return State::Waits(format!(
                    "what LXCFS has loaded cannot be seen ({error}): that needs root with CAP_SYS_PTRACE, and no AppArmor profile"
                ));
            }
        }
        if let Some(asked) = asked.filter(|asked| asked.file == file && asked.process == *process) {
            if asked.at.elapsed() >= LOADED_WITHIN {
                return self.failed(process, file, self.not_loaded(process));
            }
            self.asked = Some(asked);
            return self.under_way(process, file);
        }
        if self.seen.replace(file) != Some(file) {
            return State::Loading;
        }
        if let Some(tried) = &self.tried
            && tried.file == file
            && tried.process == *process
            && tried.at.elapsed() < AGAIN
        {
            return State::Waits(tried.why.clone());
        }
        match self.ask(process, file).await {
            Ok(()) => {
                tracing::info!(pid = process.pid(), library = %self.file.display(), "LXCFS is told to load the library: SIGUSR1");
                self.asked = Some(Asked { file, process: process.clone(), at: Instant::now() });
                self.under_way(process, file)
            }
            Err(why) => self.failed(process, file, why),
        }
    }

    /// While LXCFS is to load it: what kept it from that the last time stands until it has.
    fn under_way(&self, process: &Process, file: Identity) -> State {
        let tried = self.tried.as_ref().filter(|tried| tried.file == file && tried.process == *process);
        tried.map_or(State::Loading, |tried| State::Waits(tried.why.clone()))
    }

    async fn ask(&self, process: &Process, file: Identity) -> Result<(), String> {
        trial::pass(process, &self.file).await?;
        if Identity::of(&self.file).ok() != Some(file) {
            return Err("it has changed while it was tried".to_owned());
        }
        process.reload().map_err(|error| format!("LXCFS cannot be told to load it: {error}"))
    }

    fn failed(&mut self, process: &Process, file: Identity, why: String) -> State {
        tracing::error!(pid = process.pid(), library = %self.file.display(), why, "LXCFS goes on with the library that it has");
        self.tried = Some(Tried { file, process: process.clone(), at: Instant::now(), why: why.clone() });
        State::Waits(why)
    }

    fn not_loaded(&self, process: &Process) -> String {
        let has = match process.library() {
            Ok(Some(mapped)) => mapped.path,
            _ => "none that is called liblxcfs.so".to_owned(),
        };
        let folder = self.file.parent().unwrap_or(Path::new("/"));
        format!(
            "LXCFS was told to load it and {} s later had {has}: is LD_LIBRARY_PATH={} set for it, and does it see that folder?",
            LOADED_WITHIN.as_secs(),
            folder.display()
        )
    }
}

/// Whether a process has this very file mapped. Inodes are compared and not devices: a process in another mount namespace sees the
/// same file system, but some (btrfs, overlayfs) tell two numbers of one device.
fn has(process: &Process, file: Identity) -> io::Result<bool> {
    let mapped = process.library()?;
    Ok(mapped.is_some_and(|mapped| mapped.inode == file.inode && !mapped.path.ends_with(" (deleted)")))
}

#[cfg(test)]
mod tests {
    use super::super::process::find;
    use super::super::process::tests::{ARGUMENTS, add, sees};
    use super::*;

    /// A library, and a process that has another one, or this one, or cannot be looked into.
    fn setting(maps: impl Fn(u64) -> Option<String>) -> (tempfile::TempDir, PathBuf, Process) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("liblxcfs.so");
        fs::write(&file, "no library at all").unwrap();
        let inode = fs::metadata(&file).unwrap().ino();
        let text = maps(inode);
        let more: Vec<_> = text.iter().map(|text| ("maps", text.as_str())).collect();
        add(folder.path(), 7, "lxcfs", &ARGUMENTS, &more);
        sees(folder.path(), "0:55");
        let process = find(folder.path(), Path::new("/nowhere"), "/var/lib/lxcfs").unwrap();
        (folder, file, process)
    }

    fn line(inode: u64, path: &str) -> String {
        format!("7f00-7f01 r-xp 00007000 fe:01 {inode}      {path}\n")
    }

    #[tokio::test]
    async fn what_lxcfs_has_mapped_already_is_not_loaded_again() {
        let (_folder, file, process) = setting(|inode| Some(line(inode, "/x/liblxcfs.so")));
        let mut library = Library::new(&file);
        assert_eq!(library.round(Some(&process)).await, State::Loaded);
        assert!(library.tried.is_none());
    }

    #[tokio::test]
    async fn another_library_is_tried_once_it_has_stopped_changing_and_a_bad_one_is_not_loaded() {
        // The same inode, deleted: the number is somebody else's now.
        let (_folder, file, process) = setting(|inode| Some(line(inode, "/x/liblxcfs.so (deleted)")));
        let mut library = Library::new(&file);
        assert_eq!(library.round(Some(&process)).await, State::Loading);
        fs::write(&file, "no library either").unwrap();
        assert_eq!(library.round(Some(&process)).await, State::Loading);
        let State::Waits(why) = library.round(Some(&process)).await else { panic!() };
        assert!(why.contains("is no library"), "{why}");
        let at = library.tried.as_ref().unwrap().at;
        library.round(Some(&process)).await;
        assert_eq!(library.tried.as_ref().unwrap().at, at, "it is not tried again at once");
    }

    #[tokio::test(start_paused = true)]
    async fn why_it_was_not_loaded_stands_until_it_is() {
        let (_folder, file, process) = setting(|_| Some(line(1, "/x/liblxcfs.so")));
        let mut library = Library::new(&file);
        let identity = Identity::of(&file).unwrap();
        let asked = || Some(Asked { file: identity, process: process.clone(), at: Instant::now() });
        library.asked = asked();
        assert_eq!(library.round(Some(&process)).await, State::Loading);
        tokio::time::advance(LOADED_WITHIN).await;
        let State::Waits(why) = library.round(Some(&process)).await else { panic!() };
        assert!(why.contains("15 s later had /x/liblxcfs.so") && why.contains("LD_LIBRARY_PATH"), "{why}");
        // Told again a minute later.
        tokio::time::advance(AGAIN).await;
        library.asked = asked();
        assert_eq!(library.round(Some(&process)).await, State::Waits(why));
    }

    #[tokio::test]
    async fn where_nothing_can_be_seen_nothing_is_done_and_it_is_said_what_for() {
        let (_folder, file, process) = setting(|_| None);
        let mut library = Library::new(&file);
        let State::Waits(why) = library.round(Some(&process)).await else { panic!() };
        assert!(why.contains("CAP_SYS_PTRACE"), "{why}");
        let State::Waits(why) = library.round(None).await else { panic!() };
        assert!(why.contains("not among the processes"), "{why}");
        fs::remove_file(&file).unwrap();
        assert_eq!(library.round(Some(&process)).await, State::Absent);
    }
}
