//! Makes LXCFS load its library again after the file on the node's disk was replaced: an upgrade that no pod notices.
//!
//! LXCFS 5.0 sets a flag on SIGUSR1 (measured). At the next access to one of its files, when no other access is in flight, it
//! closes the old library and opens `liblxcfs.so` again. If that fails it exits, and every container on the node reads "Transport
//! endpoint is not connected" until it is restarted. Therefore a library is checked before the signal ([`check`]).
//!
//! The inode of the mapped file shows whether LXCFS has loaded a library. So an agent that restarts misses nothing.

mod check;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use super::process::Process;

/// Pause before a failed library is tried again: the file stays bad, but LXCFS may have been busy.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// Time from the signal to the loaded library: LXCFS waits for a moment without accesses.
const LOAD_TIMEOUT: Duration = Duration::from_secs(15);

/// The library on the disk, compared with the one that LXCFS has loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LibraryState {
    /// There is no file on the disk: LXCFS uses its own.
    Absent,
    /// LXCFS has loaded the file.
    Loaded,
    /// The file is being checked or loaded, and no problem with it is known.
    Loading,
    /// LXCFS has loaded another library, for this reason.
    NotLoaded(String),
}

/// Keeps LXCFS on the library at a path.
#[derive(Debug)]
pub(crate) struct Library {
    path: PathBuf,
    /// The file at the last update.
    last_seen: Option<FileId>,
    signaled: Option<LoadAttempt>,
    failed: Option<(LoadAttempt, String)>,
}

/// Identifies the content of a file without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

/// A library that a process was to load.
#[derive(Debug, Clone)]
struct LoadAttempt {
    file: FileId,
    process: Process,
    at: Instant,
}

impl FileId {
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

impl LoadAttempt {
    fn is_of(&self, file: FileId, process: &Process) -> bool {
        self.file == file && self.process == *process
    }
}

impl Library {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), last_seen: None, signaled: None, failed: None }
    }

    /// Signals LXCFS if the file is not the loaded one and has not changed since the last call. Does not wait: LXCFS loads the
    /// library when one of its files is read, which the caller does between two calls.
    pub(crate) fn update(&mut self, process: Option<&Process>) -> LibraryState {
        let file = match FileId::of(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.last_seen = None;
                return LibraryState::Absent;
            }
            Err(error) => {
                return LibraryState::NotLoaded(format!("could not read {}: {error}", self.path.display()));
            }
        };
        let signaled = self.signaled.take();
        if let Some(signaled) = &signaled
            && process != Some(&signaled.process)
        {
            let (pid, library) = (signaled.process.pid(), self.path.display());
            tracing::error!(pid, %library, "LXCFS has exited after the signal to load the library");
        }
        let Some(process) = process else {
            return LibraryState::NotLoaded("no visible process is LXCFS".to_owned());
        };
        match has_loaded(process, file) {
            Ok(true) => {
                if signaled.is_some() {
                    tracing::info!(pid = process.pid(), library = %self.path.display(), "LXCFS loaded the new library");
                }
                self.failed = None;
                return LibraryState::Loaded;
            }
            Ok(false) => {}
            Err(error) => {
                return LibraryState::NotLoaded(format!(
                    "could not read the libraries of LXCFS ({error}): this needs root with CAP_SYS_PTRACE, and no AppArmor profile"
                ));
            }
        }
        if let Some(signaled) = signaled.filter(|attempt| attempt.is_of(file, process)) {
            if signaled.at.elapsed() >= LOAD_TIMEOUT {
                return self.fail(file, process, self.not_loaded(process));
            }
            self.signaled = Some(signaled);
            return self.loading(file, process);
        }
        if self.last_seen.replace(file) != Some(file) {
            return LibraryState::Loading;
        }
        if let Some((attempt, reason)) = &self.failed
            && attempt.is_of(file, process)
            && attempt.at.elapsed() < RETRY_INTERVAL
        {
            return LibraryState::NotLoaded(reason.clone());
        }
        match self.signal(file, process) {
            Ok(()) => {
                tracing::info!(pid = process.pid(), library = %self.path.display(), "sent SIGUSR1 to LXCFS to load the library");
                self.signaled = Some(LoadAttempt { file, process: process.clone(), at: Instant::now() });
                self.loading(file, process)
            }
            Err(reason) => self.fail(file, process, reason),
        }
    }

    /// Returns the state after a signal. The reason of the last failure is reported until the library is loaded.
    fn loading(&self, file: FileId, process: &Process) -> LibraryState {
        let failed = self.failed.as_ref().filter(|(attempt, _)| attempt.is_of(file, process));
        failed.map_or(LibraryState::Loading, |(_, reason)| LibraryState::NotLoaded(reason.clone()))
    }

    fn signal(&self, file: FileId, process: &Process) -> Result<(), String> {
        check::check(process, &self.path)?;
        if FileId::of(&self.path).ok() != Some(file) {
            return Err("it changed during the check".to_owned());
        }
        process.reload().map_err(|error| format!("could not send the signal to LXCFS: {error}"))
    }

    fn fail(&mut self, file: FileId, process: &Process, reason: String) -> LibraryState {
        tracing::error!(pid = process.pid(), library = %self.path.display(), why = reason, "LXCFS keeps its present library");
        let attempt = LoadAttempt { file, process: process.clone(), at: Instant::now() };
        self.failed = Some((attempt, reason.clone()));
        LibraryState::NotLoaded(reason)
    }

    fn not_loaded(&self, process: &Process) -> String {
        let loaded = match process.library() {
            Ok(Some(mapped)) => mapped.path,
            _ => "no liblxcfs.so".to_owned(),
        };
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        format!(
            "{} s after the signal LXCFS had loaded {loaded}: check that LXCFS runs with LD_LIBRARY_PATH={} and sees that directory",
            LOAD_TIMEOUT.as_secs(),
            directory.display()
        )
    }
}

/// Returns whether a process has mapped this file. Devices are not compared: some file systems (btrfs, overlayfs) report another
/// device number in another mount namespace. `(deleted)` is in words of Linux: `fs/d_path.c`.
fn has_loaded(process: &Process, file: FileId) -> io::Result<bool> {
    let mapped = process.library()?;
    Ok(mapped.is_some_and(|mapped| mapped.inode == file.inode && !mapped.path.ends_with(" (deleted)")))
}

#[cfg(test)]
mod tests {
    use super::super::process::find_process;
    use super::super::process::tests::{ARGUMENTS, add_process, mount_lxcfs};
    use super::*;

    /// Creates a library file and an LXCFS process with the maps that `maps` returns for the inode of the file.
    fn fixture(maps: impl Fn(u64) -> Option<String>) -> (tempfile::TempDir, PathBuf, Process) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("liblxcfs.so");
        fs::write(&path, "no library at all").unwrap();
        let inode = fs::metadata(&path).unwrap().ino();
        let text = maps(inode);
        let more: Vec<_> = text.iter().map(|text| ("maps", text.as_str())).collect();
        add_process(directory.path(), 7, "lxcfs", &ARGUMENTS, &more);
        mount_lxcfs(directory.path(), "0:55");
        let process = find_process(directory.path(), Path::new("/nowhere"), "/var/lib/lxcfs").unwrap();
        (directory, path, process)
    }

    fn line(inode: u64, path: &str) -> String {
        format!("7f00-7f01 r-xp 00007000 fe:01 {inode}      {path}\n")
    }

    #[test]
    fn does_not_load_a_library_that_is_mapped_already() {
        let (_directory, path, process) = fixture(|inode| Some(line(inode, "/x/liblxcfs.so")));
        let mut library = Library::new(&path);
        assert_eq!(library.update(Some(&process)), LibraryState::Loaded);
        assert!(library.failed.is_none());
    }

    #[test]
    fn checks_a_new_library_after_it_stopped_changing_and_does_not_load_a_bad_one() {
        // The inode number of a deleted file can be reused.
        let (_directory, path, process) = fixture(|inode| Some(line(inode, "/x/liblxcfs.so (deleted)")));
        let mut library = Library::new(&path);
        assert_eq!(library.update(Some(&process)), LibraryState::Loading);
        fs::write(&path, "no library either").unwrap();
        assert_eq!(library.update(Some(&process)), LibraryState::Loading);
        let LibraryState::NotLoaded(reason) = library.update(Some(&process)) else { panic!() };
        assert!(reason.contains("is not a library"), "{reason}");
        let at = library.failed.as_ref().unwrap().0.at;
        library.update(Some(&process));
        assert_eq!(library.failed.as_ref().unwrap().0.at, at, "it is not tried again at once");
    }

    #[tokio::test(start_paused = true)]
    async fn reports_the_reason_of_a_failure_until_the_library_is_loaded() {
        let (_directory, path, process) = fixture(|_| Some(line(1, "/x/liblxcfs.so")));
        let mut library = Library::new(&path);
        let file = FileId::of(&path).unwrap();
        let signaled = || Some(LoadAttempt { file, process: process.clone(), at: Instant::now() });
        library.signaled = signaled();
        assert_eq!(library.update(Some(&process)), LibraryState::Loading);
        tokio::time::advance(LOAD_TIMEOUT).await;
        let LibraryState::NotLoaded(reason) = library.update(Some(&process)) else { panic!() };
        assert!(reason.contains("15 s after the signal LXCFS had loaded /x/liblxcfs.so"), "{reason}");
        assert!(reason.contains("LD_LIBRARY_PATH"), "{reason}");
        // Signaled again a minute later.
        tokio::time::advance(RETRY_INTERVAL).await;
        library.signaled = signaled();
        assert_eq!(library.update(Some(&process)), LibraryState::NotLoaded(reason));
    }

    #[test]
    fn reports_a_process_or_maps_that_it_cannot_read() {
        let (_directory, path, process) = fixture(|_| None);
        let mut library = Library::new(&path);
        let LibraryState::NotLoaded(reason) = library.update(Some(&process)) else { panic!() };
        assert!(reason.contains("CAP_SYS_PTRACE"), "{reason}");
        let LibraryState::NotLoaded(reason) = library.update(None) else { panic!() };
        assert!(reason.contains("no visible process"), "{reason}");
        fs::remove_file(&path).unwrap();
        assert_eq!(library.update(Some(&process)), LibraryState::Absent);
    }
}
