//! The input files of a run: the paths of the command line, and the manifests in directories.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use admission::Glob;
use config::Problem;
use console::input;

/// Suffixes of the files that are read in directories.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// The use of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// Its objects are checked, and used as facts.
    Check,
    /// Its objects are facts.
    Fact,
    /// Its objects are the state before the change.
    Old,
    /// Another command uses its objects.
    Other,
}

/// An input file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct InputFile {
    /// Its path, or `-`.
    pub path: PathBuf,
    /// Its use.
    pub used: Use,
}

/// Returns all files of the paths, each once for each use, and the problems of paths that can't be read. Patterns leave out files
/// in the directories to check only: without a policy or an old object, a violation would not be found.
pub fn find(paths: &[(&[PathBuf], Use)], ignored: &[Glob]) -> (Vec<InputFile>, Vec<Problem>) {
    let (mut files, mut problems) = (BTreeSet::new(), Vec::new());
    let mut has_ignored = false;
    for (paths, used) in paths {
        for path in *paths {
            if let Err(problem) = input::check_links(path) {
                problems.push(problem);
                continue;
            }
            if path == Path::new("-") || !path.is_dir() {
                files.insert(InputFile { path: path.clone(), used: *used });
                continue;
            }
            let (mut found, mut outside) = (BTreeSet::new(), BTreeSet::new());
            match fs::canonicalize(path) {
                Ok(root) => directory(path, *used, &root, &mut found, &mut outside, &mut problems),
                Err(error) => problems.push(unreadable(path, &error)),
            }
            if found.is_empty() {
                let what = format!("{} contains no YAML or JSON file", path.display());
                problems.push(Problem::new(what).next("names of files must end with .yaml, .yml or .json"));
            }
            if *used == Use::Check {
                let all = found.len();
                found.retain(|file| !ignored.iter().any(|pattern| is_match(pattern, &file.path)));
                has_ignored |= found.len() < all;
                outside.retain(|link| !ignored.iter().any(|pattern| is_match(pattern, link)));
            }
            problems.extend(outside.iter().map(|link| leads_out(link, path, *used)));
            files.append(&mut found);
        }
    }
    if has_ignored && !files.iter().any(|file| file.used == Use::Check) {
        problems.push(Problem::new("--ignore leaves no file to check").next("use a narrower pattern"));
    }
    // A policy that is in PATH and in `--with` is one policy.
    let resolved = |file: &InputFile| fs::canonicalize(&file.path).unwrap_or_else(|_| file.path.clone());
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

/// Collects the manifests of a directory and of those below it. `root` is the real path of the first directory. Links to
/// directories are not followed, since they can form a circle. `outside` gets the links to manifests and directories that a walk
/// below `root` does not find: the author of a pull request could read any file with them.
fn directory(
    path: &Path,
    used: Use,
    root: &Path,
    files: &mut BTreeSet<InputFile>,
    outside: &mut BTreeSet<PathBuf>,
    problems: &mut Vec<Problem>,
) {
    let entries = match fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>) {
        Ok(entries) => entries,
        Err(error) => return problems.push(unreadable(path, &error)),
    };
    for entry in entries {
        let path = entry.path();
        let file_type = entry.file_type();
        let is_link = file_type.as_ref().is_ok_and(fs::FileType::is_symlink);
        let is_directory = file_type.is_ok_and(|file_type| file_type.is_dir());
        if is_directory || (is_link && path.is_dir()) {
            // `.git`
            if is_hidden(&path) {
                continue;
            }
            if is_directory {
                directory(&path, used, root, files, outside, problems);
            } else if !is_found(&path, root) {
                outside.insert(path);
            }
        } else if is_manifest(&path) {
            if path.file_name().is_some_and(|name| name.to_str().is_none()) {
                let what = format!("{} is not read: its name is not UTF-8", path.display());
                problems.push(Problem::new(what).next("rename the file"));
            } else if is_link && fs::canonicalize(&path).is_ok_and(|real| !real.starts_with(root)) {
                outside.insert(path);
            } else {
                files.insert(InputFile { path, used });
            }
        }
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Problem {
    Problem::new(format!("{} cannot be read", path.display())).why(error.to_string())
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

fn is_manifest(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default();
    EXTENSIONS.iter().any(|known| extension.eq_ignore_ascii_case(known))
}

/// Returns whether a walk below `root` finds the directory that a link leads to: it is below `root` and in no hidden directory.
fn is_found(link: &Path, root: &Path) -> bool {
    let Ok(real) = fs::canonicalize(link) else { return false };
    real.strip_prefix(root).is_ok_and(|below| !below.ancestors().any(is_hidden))
}

/// Returns the problem of a link that is not followed.
fn leads_out(link: &Path, directory: &Path, used: Use) -> Problem {
    let next = match used {
        Use::Check => "name the file or directory itself, or leave the link out: --ignore NAME",
        Use::Fact | Use::Old | Use::Other => "name the file or directory itself, and remove the link",
    };
    let what = format!("{} is not read: the link leads out of {}", link.display(), directory.display());
    Problem::new(what).next(next)
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
            "f.YAML",
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
        let expected = [".hidden.yaml", "a.yaml", "f.YAML", "link.yaml", "sub/b.json", "sub/c.yml"];
        assert_eq!(found, expected.map(file));
        let problems: Vec<_> = problems.into_iter().map(|problem| problem.what).collect();
        let [problem] = &problems[..] else { panic!("{problems:?}") };
        assert!(problem.ends_with("is not read: its name is not UTF-8"), "{problem}");
    }

    #[test]
    fn reads_no_file_outside_of_the_directory_and_says_so() {
        use std::os::unix::fs::symlink;

        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["outside", "dir", "dir/sub", "dir/.hidden"] {
            fs::create_dir(path(name)).unwrap();
        }
        for name in ["outside/secret", "outside/a.yaml", "dir/a.yaml", "dir/.hidden/a.yaml"] {
            fs::write(path(name), "").unwrap();
        }
        symlink("../outside/secret", path("dir/b.yaml")).unwrap();
        symlink(path("outside/secret"), path("dir/sub/c.json")).unwrap();
        symlink("b.yaml", path("dir/chain.yaml")).unwrap();
        symlink("../outside", path("dir/other")).unwrap();
        symlink(".hidden", path("dir/shown")).unwrap();
        symlink("sub", path("dir/inside")).unwrap();
        symlink("../a.yaml", path("dir/sub/inside.yaml")).unwrap();
        symlink("../outside", path("dir/ignored")).unwrap();
        let (found, problems) = find(&[(&[path("dir")], Use::Check)], &[Glob::new("ignored")]);
        let found: Vec<_> = found.into_iter().map(|file| file.path).collect();
        assert_eq!(found, ["dir/a.yaml", "dir/sub/inside.yaml"].map(path));
        let (start, end) = (format!("{}/", path("dir").display()), " is not read: the link leads out of ");
        let problems: Vec<&str> = problems
            .iter()
            .map(|problem| problem.what.strip_prefix(&start).unwrap().split(end).next().unwrap())
            .collect();
        assert_eq!(problems, ["b.yaml", "chain.yaml", "other", "shown", "sub/c.json"]);
        // A directory that is a link itself is read.
        symlink("dir", path("linked")).unwrap();
        let (found, _) = find(&[(&[path("linked")], Use::Check)], &[]);
        assert_eq!(found.len(), 2);
    }
}
