//! Reading a file that somebody named: never waiting for somebody to open the other end of a pipe, never taking in a device without end.
//!
//! What a file holds is for the caller to judge. Here is only what keeps a wrong path from hanging the process or filling its
//! memory. A path may be exchanged between the look and the opening; who can do that can write the file as well.

use std::fs::{File, FileType};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

/// Why a file cannot be taken in.
#[derive(Debug, thiserror::Error)]
pub enum FileFault {
    /// It is not there, or not ours to read.
    #[error("{0}")]
    Unreadable(#[source] io::Error),
    /// A folder, a pipe, a device: the word for it.
    #[error("it is {0}, not a file")]
    NotAFile(&'static str),
    /// It holds more than this many bytes.
    #[error("it is larger than {} MiB", *.0 >> 20)]
    TooLarge(u64),
}

impl FileFault {
    /// What to do about it, where that does not go without saying.
    pub fn next(&self) -> Option<&'static str> {
        match self {
            Self::Unreadable(_) => None,
            Self::NotAFile("a folder") => Some("name a file in it"),
            Self::NotAFile(_) => Some("write what it gives into a file, and name that"),
            Self::TooLarge(_) => Some("is it the right path? nothing that belongs here comes near that size"),
        }
    }
}

/// All of a file, if it is a file and holds at most `limit` bytes.
pub fn read_file(path: &Path, limit: u64) -> Result<Vec<u8>, FileFault> {
    look_at_file(path, limit)?;
    // It may have grown since it was looked at.
    read_within(File::open(path).map_err(FileFault::Unreadable)?, limit)
}

/// Whether a file of at most `limit` bytes stands at `path` and may be read; what it holds is not looked at.
pub fn look_at_file(path: &Path, limit: u64) -> Result<(), FileFault> {
    // Looked at before it is opened: opening a pipe would wait for its other end.
    let metadata = std::fs::metadata(path).map_err(FileFault::Unreadable)?;
    if metadata.file_type().is_fifo() && was_handed_over(path) {
        return Ok(());
    }
    if !metadata.is_file() {
        return Err(FileFault::NotAFile(word(metadata.file_type())));
    }
    if metadata.len() > limit {
        return Err(FileFault::TooLarge(limit));
    }
    File::open(path).map(drop).map_err(FileFault::Unreadable)
}

/// Whether the path is one of this process's own open files: a pipe there (`<(…)` in a shell, `| … /dev/stdin`) has had its
/// other end from the start, and whoever made it waits for it as for any command.
fn was_handed_over(path: &Path) -> bool {
    ["/dev/stdin", "/dev/fd", "/proc/self/fd"].iter().any(|own| path.starts_with(own))
}

/// All that comes out of `source`, if it is at most `limit` bytes: for what has no size beforehand, as standard input.
pub fn read_within(source: impl Read, limit: u64) -> Result<Vec<u8>, FileFault> {
    let mut contents = Vec::new();
    source.take(limit.saturating_add(1)).read_to_end(&mut contents).map_err(FileFault::Unreadable)?;
    if contents.len() as u64 > limit { Err(FileFault::TooLarge(limit)) } else { Ok(contents) }
}

fn word(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "a folder"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(path: &str, limit: u64) -> String {
        read_file(Path::new(path), limit).unwrap_err().to_string()
    }

    #[test]
    fn only_files_are_read_and_only_up_to_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f");
        std::fs::write(&file, vec![b'x'; 2 << 20]).unwrap();
        assert_eq!(read_file(&file, 2 << 20).unwrap().len(), 2 << 20);
        assert_eq!(fault(file.to_str().unwrap(), (2 << 20) - 1), "it is larger than 1 MiB");
        assert_eq!(fault("/dev/zero", 1 << 20), "it is a device, not a file");
        assert_eq!(fault(folder.path().to_str().unwrap(), 1), "it is a folder, not a file");
        let _listener = std::os::unix::net::UnixListener::bind(folder.path().join("s")).unwrap();
        assert_eq!(fault(folder.path().join("s").to_str().unwrap(), 1), "it is a socket, not a file");
        assert!(fault("/nowhere", 1).contains("No such file"));
    }

    #[test]
    fn a_pipe_is_read_only_where_the_shell_has_opened_both_ends() {
        use std::io::Write as _;
        use std::os::fd::AsRawFd as _;
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"version: 1").unwrap();
        drop(writer);
        let path = format!("/dev/fd/{}", reader.as_raw_fd());
        assert_eq!(read_file(Path::new(&path), 1 << 20).unwrap(), b"version: 1");
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("p");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(fault(pipe.to_str().unwrap(), 1), "it is a pipe, not a file");
    }

    #[test]
    fn what_never_ends_is_given_up_at_the_limit() {
        assert!(matches!(read_within(io::repeat(0), 1 << 20), Err(FileFault::TooLarge(_))));
        assert_eq!(read_within(&b"ab"[..], 2).unwrap(), b"ab");
    }
}
