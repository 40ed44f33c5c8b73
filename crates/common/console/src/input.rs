//! Input files and standard input: limits of their size, and problems for users. [`admission::file`] reads them.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal as _};
use std::path::{Component, Path, PathBuf};

use admission::file::{FileError, check_file, read_file, read_limited};
use config::Problem;

use crate::output;

/// Limit of a configuration or certificate: the size limit of a `ConfigMap` or Secret.
pub const SMALL: u64 = 1 << 20;

/// Limit of files with reviews or manifests: six of the largest request bodies (10 MiB), the server's limit for concurrent
/// bodies.
pub const LARGE: u64 = 64 << 20;

/// Limit of a kubeconfig: certificates of a thousand clusters.
const KUBECONFIG: u64 = 16 << 20;

/// Reads the bytes of a file.
pub fn bytes(path: &Path, limit: u64) -> Result<Vec<u8>, Problem> {
    read_file(path, limit).map_err(|fault| problem(format!("{} cannot be read", path.display()), &fault))
}

/// Reads the text of a file.
pub fn text(path: &Path, limit: u64) -> Result<String, Problem> {
    utf8(path, bytes(path, limit)?)
}

/// Reads the text of a file, or of standard input for `-`.
pub fn text_or_stdin(path: &Path, limit: u64) -> Result<String, Problem> {
    if path != Path::new("-") {
        return text(path, limit);
    }
    if io::stdin().is_terminal() {
        output::note("note: reading standard input");
    }
    let bytes = read_limited(io::stdin().lock(), limit);
    utf8(path, bytes.map_err(|fault| problem("standard input cannot be read".to_owned(), &fault))?)
}

/// Opens a file of any size, or standard input for `-`, to read it line by line.
pub fn reader_or_stdin(path: &Path) -> Result<Box<dyn BufRead>, Problem> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let opened = check_file(path, u64::MAX).and_then(|()| File::open(path).map_err(FileError::Unreadable));
    let opened = opened.map_err(|fault| problem(format!("{} cannot be read", path.display()), &fault))?;
    Ok(Box::new(BufReader::new(opened)))
}

fn utf8(path: &Path, bytes: Vec<u8>) -> Result<String, Problem> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Problem::new(format!("{} is not UTF-8", shown(path))).why(format!("at byte {at}"))
    })
}

/// Returns the name of a path in messages.
pub fn shown(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}

/// Refuses a relative path that leads out of the working directory through a link. In the checkout of a pull request, links are
/// files of its author. A path that is absolute or contains `..` is not checked.
pub fn check_links(path: &Path) -> Result<(), Problem> {
    let is_below = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !is_below || path == Path::new("-") {
        return Ok(());
    }
    let real = match path.canonicalize() {
        Err(_) if path.is_symlink() => None,
        // A file to write: its directory.
        Err(_) => Path::new(".").join(path).parent().and_then(|parent| parent.canonicalize().ok()),
        Ok(real) => Some(real),
    };
    let is_inside = match (&real, Path::new(".").canonicalize()) {
        (Some(real), Ok(here)) => real.starts_with(here),
        (None, _) => !path.is_symlink(),
        (_, Err(_)) => false,
    };
    if is_inside {
        return Ok(());
    }
    let why = real.map_or("the file does not exist".to_owned(), |real| format!("to {}", real.display()));
    Err(Problem::new(format!("{} leads out of the working directory through a link", path.display()))
        .why(why)
        .next("name the real path, if you trust the link"))
}

/// Checks the kubeconfig that a flag or the file names, or those that kubectl would read, because the library that reads them
/// does not check first. The library reports a missing file.
pub fn look_at_kubeconfig(named: Option<&Path>) -> Result<(), Problem> {
    let from_environment = || match std::env::var_os("KUBECONFIG") {
        Some(paths) if !paths.is_empty() => std::env::split_paths(&paths).collect::<Vec<_>>(),
        _ => std::env::home_dir().map(|home| home.join(".kube/config")).into_iter().collect(),
    };
    let all = named.map_or_else(from_environment, |path| vec![PathBuf::from(path)]);
    for path in all {
        match check_file(&path, KUBECONFIG) {
            Ok(()) | Err(FileError::Unreadable(_)) => {}
            Err(fault) => {
                return Err(problem(format!("kubeconfig {} cannot be read", path.display()), &fault));
            }
        }
    }
    Ok(())
}

fn problem(what: String, fault: &FileError) -> Problem {
    Problem { next: fault.next().map(str::to_owned), ..Problem::new(what).why(fault.to_string()) }
}
