//! Reads files of limited size. A wrong path must not hang the process (a pipe) or fill its memory (a device).
//!
//! A path can be replaced between the check and the opening. A process that can do this can also write the file.

use std::fs::{File, FileType};
use std::io::{self, Read};
#[cfg(unix)]
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

/// The word for a pipe.
const PIPE: &str = "a pipe";

/// Error: a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It does not exist, or access is denied.
    #[error("{0}")]
    Unreadable(#[source] io::Error),
    /// It is a directory, a pipe or a device: the word for it.
    #[error("it is {0}, not a file")]
    NotAFile(&'static str),
    /// It is larger than this limit in bytes.
    #[error("it is larger than {} MiB", *.0 >> 20)]
    TooLarge(u64),
}

impl FileError {
    /// Returns the next step, if it is not obvious.
    pub fn next(&self) -> Option<&'static str> {
        match self {
            Self::Unreadable(_) => None,
            Self::NotAFile("a directory") => Some("name a file in it"),
            Self::NotAFile(_) => Some("write its content to a file and use that file"),
            Self::TooLarge(_) => Some("check the path; no valid file is this large"),
        }
    }
}

/// Reads a whole file of at most `limit` bytes.
pub fn read_file(path: &Path, limit: u64) -> Result<Vec<u8>, FileError> {
    check_file(path, limit)?;
    // It may have grown since.
    read_limited(File::open(path).map_err(FileError::Unreadable)?, limit)
}

/// Checks that `path` is a readable file of at most `limit` bytes, without reading it.
pub fn check_file(path: &Path, limit: u64) -> Result<(), FileError> {
    // Checked before it is opened, because opening a pipe waits for its other end.
    let metadata = std::fs::metadata(path).map_err(FileError::Unreadable)?;
    if word(metadata.file_type()) == PIPE && is_open_here(path) {
        return Ok(());
    }
    if !metadata.is_file() {
        return Err(FileError::NotAFile(word(metadata.file_type())));
    }
    if metadata.len() > limit {
        return Err(FileError::TooLarge(limit));
    }
    File::open(path).map(drop).map_err(FileError::Unreadable)
}

/// Returns whether the path is an open file of this process. A pipe there (`<(…)` in a shell, `| … /dev/stdin`) has its other end
/// already.
fn is_open_here(path: &Path) -> bool {
    ["/dev/stdin", "/dev/fd", "/proc/self/fd"].iter().any(|own| path.starts_with(own))
}

/// Reads all of `source`, at most `limit` bytes. Use it for standard input.
pub fn read_limited(source: impl Read, limit: u64) -> Result<Vec<u8>, FileError> {
    let mut contents = Vec::new();
    source.take(limit.saturating_add(1)).read_to_end(&mut contents).map_err(FileError::Unreadable)?;
    if contents.len() as u64 > limit { Err(FileError::TooLarge(limit)) } else { Ok(contents) }
}

fn word(kind: FileType) -> &'static str {
    #[cfg(unix)]
    if kind.is_fifo() {
        return PIPE;
    } else if kind.is_socket() {
        return "a socket";
    }
    if kind.is_dir() { "a directory" } else { "a device" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(path: &str, limit: u64) -> String {
        read_file(Path::new(path), limit).unwrap_err().to_string()
    }

    #[test]
    fn reads_only_files_and_only_up_to_the_limit() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("f");
        std::fs::write(&file, vec![b'x'; 2 << 20]).unwrap();
        assert_eq!(read_file(&file, 2 << 20).unwrap().len(), 2 << 20);
        assert_eq!(fault(file.to_str().unwrap(), (2 << 20) - 1), "it is larger than 1 MiB");
        assert_eq!(fault("/dev/zero", 1 << 20), "it is a device, not a file");
        assert_eq!(fault(directory.path().to_str().unwrap(), 1), "it is a directory, not a file");
        let _listener = std::os::unix::net::UnixListener::bind(directory.path().join("s")).unwrap();
        assert_eq!(fault(directory.path().join("s").to_str().unwrap(), 1), "it is a socket, not a file");
        assert!(fault("/nowhere", 1).contains("No such file"));
    }

    #[test]
    fn reads_a_pipe_only_if_the_shell_has_opened_it() {
        use std::io::Write as _;
        use std::os::fd::AsRawFd as _;
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"version: 1").unwrap();
        drop(writer);
        let path = format!("/dev/fd/{}", reader.as_raw_fd());
        assert_eq!(read_file(Path::new(&path), 1 << 20).unwrap(), b"version: 1");
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("p");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(fault(pipe.to_str().unwrap(), 1), "it is a pipe, not a file");
    }

    #[test]
    fn stops_at_the_limit_of_an_endless_source() {
        assert!(matches!(read_limited(io::repeat(0), 1 << 20), Err(FileError::TooLarge(_))));
        assert_eq!(read_limited(&b"ab"[..], 2).unwrap(), b"ab");
    }
}
