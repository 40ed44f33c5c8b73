//! A snapshot: the state of clusters at one time, in a directory, so that a verdict can be replayed, shown and tested.
//!
//! `ARCHITECTURE.md` describes the format: what `kubectl get -o yaml` prints, in a directory for each cluster. **Data that is not
//! recorded is Unknown, and only an explicit empty List proves absence.** A recorded failure is that failure again.
//!
//! [`open`] reads and checks all files, and returns a [`World`]. [`write()`] writes a world that a command has read.

mod etcd;
mod index;
mod list;
mod write;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use admission::Cause;
use admission::file::{FileError, read_file};

use super::Resource;
use crate::world::{ClusterContent, ObjectList, Rest, World};
use config::Problem;
use index::{Index, Unread};

pub use write::write;

/// The directory of the local cluster. Shells give the parentheses of `(local)` a meaning.
pub const RECORDED_LOCAL: &str = "here";

/// The file with the time, the clusters and the failures.
pub const INDEX: &str = "snapshot.yaml";

/// 512 MiB: a hundred thousand whole pods of 5 kB. Their metadata takes less.
const FILE_LIMIT: u64 = 512 << 20;

/// Endings of a List's name. `kubectl get -o json` is read too.
const ENDINGS: [&str; 2] = [".yaml", ".json"];

/// Reads a directory. Returns all problems.
pub fn open(path: impl AsRef<Path>) -> Result<World, Vec<Problem>> {
    let path = path.as_ref();
    let root = path.canonicalize().map_err(|error| vec![unreadable(path, &error)])?;
    let text =
        text(&root, &path.join(INDEX)).map_err(|problem| {
            vec![problem.next(format!(
                "a snapshot is a directory with a file {INDEX} and a directory for each cluster"
            ))]
        })?;
    let Index { time, clusters } = index::read(&path.join(INDEX).display().to_string(), &text)?;
    let mut problems = unlisted_files(path, &clusters);
    let mut world = World { path: Some(path.to_owned()), time: Some(time), ..World::default() };
    for cluster in clusters {
        let directory = path.join(index::directory(&cluster.name));
        let mut lists = lists(&root, &directory, &cluster.unread, &mut problems);
        let mut content = ClusterContent { kubernetes: cluster.kubernetes, ..ClusterContent::default() };
        for Unread { what, cause } in cluster.unread {
            match what {
                Some(resource) => drop(lists.insert(resource, Err(cause))),
                None => content.rest = Rest::Failed(cause),
            }
        }
        content.lists = lists;
        world.clusters.insert(cluster.name, content);
    }
    world.etcd = etcd::read(&root, &path.join(RECORDED_LOCAL).join(etcd::DIRECTORY), &mut problems);
    if problems.is_empty() { Ok(world) } else { Err(problems) }
}

/// Returns the path of a List within a snapshot.
pub(crate) fn list_file(cluster: &str, resource: &Resource) -> PathBuf {
    Path::new(&index::directory(cluster)).join(format!("{}{}", resource.argument(), ENDINGS[0]))
}

/// Returns the path of a pod's answers within a snapshot.
pub(crate) fn etcd_file(namespace: &str, pod: &str) -> PathBuf {
    Path::new(RECORDED_LOCAL).join(etcd::DIRECTORY).join(etcd::name(namespace, pod))
}

/// The Lists of one cluster.
type Lists = BTreeMap<Resource, Result<ObjectList, Cause>>;

/// Reads the Lists of one cluster. A cluster without Lists needs no directory.
fn lists(root: &Path, path: &Path, unread: &[Unread], problems: &mut Vec<Problem>) -> Lists {
    let mut lists = BTreeMap::new();
    if !path.exists() {
        return lists;
    }
    let etcd_directory = root.join(RECORDED_LOCAL).join(etcd::DIRECTORY);
    for file in entries(path, problems) {
        if file.canonicalize().is_ok_and(|real| real == etcd_directory) {
            continue;
        }
        let Some(name) = file.file_name().and_then(|name| name.to_str()) else {
            problems.push(Problem::new(format!("{}: the name is not UTF-8", file.display())));
            continue;
        };
        let stem = ENDINGS.iter().find_map(|ending| name.strip_suffix(ending));
        let Some(resource) = stem.and_then(Resource::from_argument) else {
            problems.push(
                Problem::new(file.display().to_string())
                    .why("is not the name of a List")
                    .next("name it <plural>.<version>.<group>.yaml, like namespaces.v1.yaml or deployments.v1.apps.yaml"),
            );
            continue;
        };
        if lists.contains_key(&resource) {
            let problem = Problem::new(file.display().to_string()).why("is the second file for this List");
            problems.push(problem.next("remove one of them"));
            continue;
        }
        if unread.iter().any(|unread| unread.what.as_ref() == Some(&resource)) {
            let problem = Problem::new(file.display().to_string())
                .why(format!("{INDEX} has an entry under unread for this List"));
            problems.push(problem.next("remove the file or the entry"));
            continue;
        }
        let objects = text(root, &file)
            .map_err(|problem| vec![problem])
            .and_then(|text| list::read(&file.display().to_string(), &text, &resource));
        match objects {
            Ok(objects) => drop(lists.insert(resource, Ok(objects))),
            Err(found) => problems.extend(found),
        }
    }
    lists
}

/// Reports files that would be ignored: a cluster that is not in the index, or a List in the wrong directory.
fn unlisted_files(path: &Path, clusters: &[index::IndexedCluster]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for entry in entries(path, &mut problems) {
        let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let listed = clusters.iter().any(|cluster| index::directory(&cluster.name) == name);
        let data =
            ["json", "yaml", "yml"].iter().any(|&end| entry.extension().is_some_and(|found| found == end));
        let problem = Problem::new(entry.display().to_string());
        if entry.is_dir() && !listed {
            problems.push(
                problem
                    .why(format!("{INDEX} has no cluster {name:?}"))
                    .next(format!("add it under clusters (- name: {name}), or remove the directory")),
            );
        } else if !entry.is_dir() && data && name != INDEX {
            problems.push(
                problem
                    .why("is not in a cluster's directory")
                    .next(format!("move it to a cluster's directory, like {RECORDED_LOCAL}/{name}")),
            );
        }
    }
    problems
}

/// Returns the entries of a directory, sorted, without names that begin with a dot (version control, links in mounted
/// `ConfigMaps`).
fn entries(path: &Path, problems: &mut Vec<Problem>) -> Vec<PathBuf> {
    let listing = std::fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match listing {
        Ok(entries) => {
            let hidden = |entry: &std::fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(b".");
            let mut paths: Vec<_> =
                entries.iter().filter(|entry| !hidden(entry)).map(std::fs::DirEntry::path).collect();
            paths.sort();
            paths
        }
        Err(error) => {
            problems.push(unreadable(path, &error));
            Vec::new()
        }
    }
}

/// Reads a file of the snapshot. A link out of the directory is rejected, so that a snapshot from another person cannot make
/// Durward read other files.
fn text(root: &Path, path: &Path) -> Result<String, Problem> {
    let real = path.canonicalize().map_err(|error| unreadable(path, &error))?;
    let problem = || Problem::new(path.display().to_string());
    if !real.starts_with(root) {
        return Err(problem().why("is a link out of the directory").next("copy the file into the directory"));
    }
    let bytes = read_file(&real, FILE_LIMIT).map_err(|error| match error {
        FileError::Unreadable(error) => unreadable(path, &error),
        FileError::NotAFile(_) => problem().why("is not a file"),
        FileError::TooLarge(limit) => problem().why(format!("is larger than {} MiB", limit >> 20)),
    })?;
    String::from_utf8(bytes).map_err(|error| {
        problem().why(format!("is not UTF-8 from byte {}", error.utf8_error().valid_up_to()))
    })
}

fn unreadable(path: &Path, error: &std::io::Error) -> Problem {
    Problem::new(path.display().to_string()).why(format!("cannot be read: {error}"))
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_etcd;
#[cfg(test)]
mod tests_fleet;
