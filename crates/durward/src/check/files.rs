//! The input files of a run: the paths of the command line, and the manifests in directories.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use admission::Glob;
use config::Problem;

/// Suffixes of the files that are read in directories.
const EXTENSIONS: [&[u8]; 3] = [b".yaml", b".yml", b".json"];

/// The use of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Use {
    /// Its objects are checked, and used as facts.
    Check,
    /// Its objects are facts.
    Fact,
    /// Its objects are the state before the change.
    Old,
}

/// An input file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct File {
    pub(crate) path: PathBuf,
    pub(crate) used: Use,
}

/// Returns all files of the paths, each once for each use, and the problems of paths that can't be read. Patterns leave out files
/// in the directories to check only: without a policy or an old object, a violation would not be found.
pub(crate) fn find(paths: &[(&[PathBuf], Use)], ignored: &[Glob]) -> (Vec<File>, Vec<Problem>) {
    let (mut files, mut problems) = (BTreeSet::new(), Vec::new());
    let mut has_ignored = false;
    for (paths, used) in paths {
        for path in *paths {
            if path == Path::new("-") || !path.is_dir() {
                files.insert(File { path: path.clone(), used: *used });
                continue;
            }
            let mut found = BTreeSet::new();
            directory(path, *used, &mut found, &mut problems);
            if found.is_empty() && *used != Use::Fact {
                let what = format!("{} contains no manifests", path.display());
                problems.push(Problem::new(what).next("manifests end with .yaml, .yml or .json"));
            }
            if *used == Use::Check {
                let all = found.len();
                found.retain(|file| !ignored.iter().any(|pattern| is_match(pattern, &file.path)));
                has_ignored |= found.len() < all;
            }
            files.append(&mut found);
        }
    }
    if has_ignored && !files.iter().any(|file| file.used == Use::Check) {
        problems.push(Problem::new("--ignore leaves no file to check").next("use a narrower pattern"));
    }
    // A policy that is in PATH and in `--with` is one policy.
    let resolved = |file: &File| fs::canonicalize(&file.path).unwrap_or_else(|_| file.path.clone());
    let checked: BTreeSet<PathBuf> =
        files.iter().filter(|file| file.used == Use::Check).map(&resolved).collect();
    files.retain(|file| file.used != Use::Fact || !checked.contains(&resolved(file)));
    (files.into_iter().collect(), problems)
}

/// Returns whether a pattern matches the name of a file, or its path if the pattern has a `/`.
fn is_match(pattern: &Glob, path: &Path) -> bool {
    let has_directory = pattern.to_string().contains('/');
    let text = if has_directory { Some(path.as_os_str()) } else { path.file_name() };
    text.and_then(|text| text.to_str()).is_some_and(|text| pattern.matches(text))
}

/// Collects the manifests of a directory and of those below it. Links to directories are not followed, since they can form a
/// circle.
fn directory(path: &Path, used: Use, files: &mut BTreeSet<File>, problems: &mut Vec<Problem>) {
    let entries = match fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>) {
        Ok(entries) => entries,
        Err(error) => {
            let what = format!("{} cannot be read", path.display());
            return problems.push(Problem::new(what).why(error.to_string()));
        }
    };
    for entry in entries {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.as_encoded_bytes();
        if entry.file_type().is_ok_and(|file_type| file_type.is_dir()) {
            // `.git`
            if !name.starts_with(b".") {
                directory(&path, used, files, problems);
            }
        } else if EXTENSIONS.iter().any(|end| name.ends_with(end)) && !path.is_dir() {
            if str::from_utf8(name).is_err() {
                let what = format!("{} is not read: its name is not UTF-8", path.display());
                problems.push(Problem::new(what).next("rename the file"));
                continue;
            }
            files.insert(File { path, used });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_manifests_without_following_links_to_directories_and_without_ignored_ones() {
        use std::os::unix::ffi::OsStrExt;

        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        fs::create_dir(file("sub")).unwrap();
        fs::create_dir(file(".git")).unwrap();
        fs::create_dir(file("ignored")).unwrap();
        for name in [
            "a.yaml",
            "sub/b.json",
            "sub/c.yml",
            "d.txt",
            ".hidden.yaml",
            ".git/e.yaml",
            "sub/e1.yaml",
            "ignored/a.yaml",
        ] {
            fs::write(file(name), "").unwrap();
        }
        std::os::unix::fs::symlink(".", file("circle")).unwrap();
        std::os::unix::fs::symlink("a.yaml", file("link.yaml")).unwrap();
        let name = std::ffi::OsStr::from_bytes(b"\xff.yaml");
        fs::write(dir.path().join(name), "").unwrap();
        let (found, problems) = find(
            &[(&[dir.path().to_owned()], Use::Check)],
            &[Glob::new("*/ignored/*"), Glob::new("e*.yaml")],
        );
        let found: Vec<_> = found.into_iter().map(|file| file.path).collect();
        assert_eq!(found, [".hidden.yaml", "a.yaml", "link.yaml", "sub/b.json", "sub/c.yml"].map(file));
        let problems: Vec<_> = problems.into_iter().map(|problem| problem.what).collect();
        let [problem] = &problems[..] else { panic!("{problems:?}") };
        assert!(problem.ends_with("is not read: its name is not UTF-8"), "{problem}");
    }
}
