//! A snapshot: the state of clusters at one time, in a directory, so that a verdict can be replayed, shown and tested.
//!
//! `ARCHITECTURE.md` describes the format. **Data that is not recorded is Unknown, and only an explicit
//! empty List proves absence.** A recorded failure is reported as that failure again.
//!
//! All files are read and checked when the snapshot is opened. `write.rs` writes snapshots; its caller reads the clusters.

mod ask;
mod etcd;
mod index;
mod list;
mod recorded;
mod selector;
mod write;

use std::collections::BTreeMap;
use std::future::ready;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use admission::BoxFuture;
use admission::file::{FileError, read_file};

use super::etcd::{Endpoint, EtcdRequest, EtcdResult};
use super::fleet::{self, Fleet, GetQuery, ListQuery, MembersResult, ObjectResult, PageResult};
use super::{Address, EtcdClient, MetadataResult, Reader, Readiness, Resource};
use config::Problem;
use index::{Index, Unread};
use recorded::Recorded;

pub use write::{ClusterRecording, ListRecording, PodRecording, Recording, UnreadList, write};

/// The recorded name of the local cluster. It is also a directory, and shells give parentheses a meaning, so it is not
/// [`fleet::LOCAL`].
pub const RECORDED_LOCAL: &str = "here";

/// The recorded name of a member cluster that is called `here`. No other name in a snapshot begins with a dot.
const RECORDED_HERE: &str = ".here";

/// Returns the recorded name of a cluster.
pub fn recorded_name(of: &fleet::Cluster) -> &str {
    match of {
        fleet::Cluster::Local => RECORDED_LOCAL,
        other if other.name() == RECORDED_LOCAL => RECORDED_HERE,
        other => other.name(),
    }
}

/// Returns the name of a recorded cluster in sentences.
pub fn display_name(recorded: &str) -> &str {
    match recorded {
        RECORDED_LOCAL => fleet::THIS_CLUSTER,
        RECORDED_HERE => RECORDED_LOCAL,
        other => other,
    }
}

/// The file with the time, the clusters and the failures.
pub const INDEX: &str = "snapshot.yaml";

/// 512 MiB: a hundred thousand whole pods of 5 kB. Their metadata takes less.
const FILE_LIMIT: u64 = 512 << 20;

/// A snapshot in memory.
#[derive(Debug)]
pub struct Snapshot {
    path: PathBuf,
    time: SystemTime,
    clusters: BTreeMap<String, Cluster>,
    /// The answers of etcd members.
    pods: etcd::Pods,
}

/// A cluster in a snapshot.
#[derive(Debug)]
struct Cluster {
    kubernetes: Option<String>,
    unread: Vec<Unread>,
    lists: BTreeMap<Resource, Recorded>,
}

impl Cluster {
    /// Returns the recorded failure of a List without a file.
    fn unread_of(&self, resource: &Resource) -> Option<&Unread> {
        let covering = |name: &str| self.unread.iter().find(|unread| unread.what == name);
        covering(&resource.stem()).or_else(|| covering(index::EVERYTHING))
    }

    /// Whether the snapshot has a List or a failure for a resource.
    fn covers(&self, resource: &Resource) -> bool {
        self.lists.contains_key(resource) || self.unread_of(resource).is_some()
    }
}

impl Snapshot {
    /// Reads a directory. Returns all problems.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Vec<Problem>> {
        let path = path.as_ref();
        let root = path.canonicalize().map_err(|error| vec![unreadable(path, &error)])?;
        let text = text(&root, &path.join(INDEX)).map_err(|problem| {
            vec![problem.next(format!(
                "a snapshot is a directory with a file {INDEX} and a directory for each cluster"
            ))]
        })?;
        let Index { time, clusters } = index::read(&path.join(INDEX).display().to_string(), &text)?;
        let mut problems = unlisted_files(path, &clusters);
        let mut read = BTreeMap::new();
        for cluster in clusters {
            let lists =
                lists(&root, &path.join(index::directory(&cluster.name)), &cluster.unread, &mut problems);
            let cluster_read = Cluster { kubernetes: cluster.kubernetes, unread: cluster.unread, lists };
            read.insert(cluster.name, cluster_read);
        }
        let pods = etcd::read(&root, &path.join(RECORDED_LOCAL).join(etcd::DIRECTORY), &mut problems);
        if problems.is_empty() {
            Ok(Self { path: path.to_owned(), time, clusters: read, pods })
        } else {
            Err(problems)
        }
    }

    /// Returns the time at which the clusters were read.
    pub fn time(&self) -> SystemTime {
        self.time
    }

    /// Returns the recorded names of all clusters, including [`RECORDED_LOCAL`].
    pub fn clusters(&self) -> impl Iterator<Item = &str> {
        self.clusters.keys().map(String::as_str)
    }

    /// Returns the names of the member clusters.
    pub fn others(&self) -> impl Iterator<Item = &str> {
        self.clusters().filter(|name| *name != RECORDED_LOCAL).map(display_name)
    }

    /// Returns the recorded Kubernetes version of a cluster, like `v1.35.4`.
    pub fn kubernetes(&self, cluster: &str) -> Option<&str> {
        self.clusters.get(cluster)?.kubernetes.as_deref()
    }

    /// Returns a line for `/readyz` for each List of the local cluster.
    pub fn readiness(&self) -> Vec<Readiness> {
        let lists = self.clusters.get(RECORDED_LOCAL).into_iter().flat_map(|cluster| &cluster.lists);
        let line = |(resource, objects): (&Resource, &Recorded)| Readiness {
            name: resource.to_string(),
            ok: true,
            reason: format!("snapshot, {} objects", objects.len()),
        };
        lists.map(line).collect()
    }
}

impl Reader for Snapshot {
    fn get<'a>(&'a self, address: Address<'a>, _deadline: Instant) -> BoxFuture<'a, MetadataResult> {
        Box::pin(ready(self.look_up(address)))
    }

    fn get_object<'a>(
        &'a self,
        of: &'a fleet::Cluster,
        query: GetQuery<'a>,
        _deadline: Instant,
    ) -> BoxFuture<'a, ObjectResult> {
        Box::pin(ready(self.found(of, query)))
    }

    fn list<'a>(
        &'a self,
        of: &'a fleet::Cluster,
        query: ListQuery<'a>,
        _deadline: Instant,
    ) -> BoxFuture<'a, PageResult> {
        Box::pin(ready(self.listed(of, &query)))
    }

    fn members<'a>(&'a self, fleet: &'a Fleet, _deadline: Instant) -> BoxFuture<'a, MembersResult> {
        Box::pin(ready(self.members_of(fleet)))
    }
}

impl EtcdClient for Snapshot {
    fn call<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        request: EtcdRequest,
        _deadline: Instant,
    ) -> BoxFuture<'a, EtcdResult> {
        Box::pin(ready(self.answered(endpoint, request)))
    }
}

/// Reads the Lists of one cluster. A cluster without Lists needs no directory.
fn lists(
    root: &Path,
    path: &Path,
    unread: &[Unread],
    problems: &mut Vec<Problem>,
) -> BTreeMap<Resource, Recorded> {
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
        let Some(resource) = name.strip_suffix(".json").and_then(Resource::from_stem) else {
            problems.push(
                Problem::new(file.display().to_string())
                    .why("is not the name of a List")
                    .next("name it <group>_<version>_<plural>.json, like core_v1_namespaces.json or apps_v1_deployments.json"),
            );
            continue;
        };
        if unread.iter().any(|unread| unread.what == resource.stem()) {
            let problem = Problem::new(file.display().to_string())
                .why(format!("{INDEX} has an entry under unread for this List"));
            problems.push(problem.next("remove the file or the entry"));
            continue;
        }
        let objects = text(root, &file)
            .map_err(|problem| vec![problem])
            .and_then(|text| list::read(&file.display().to_string(), &text, &resource));
        match objects {
            Ok(objects) => drop(lists.insert(resource, objects)),
            Err(found) => problems.extend(found),
        }
    }
    lists
}

/// Reports files that would be ignored: a cluster that is not in the index, or a List in the wrong directory.
fn unlisted_files(path: &Path, clusters: &[index::Cluster]) -> Vec<Problem> {
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
