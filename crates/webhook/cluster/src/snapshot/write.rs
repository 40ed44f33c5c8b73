//! Writes a snapshot.
//!
//! The directory is written under a temporary name and renamed when it is complete: an incomplete snapshot looks like a complete
//! one with less data. Existing files are not overwritten.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::index::{self, EVERYTHING, is_name};
use super::{INDEX, RECORDED_LOCAL, etcd};
use crate::etcd::{EtcdRequest, EtcdResult};
use crate::fleet::{Object, Part};
use crate::{Metadata, Resource, cause};
use config::Problem;

/// The content of a snapshot.
#[derive(Debug)]
pub struct Recording {
    /// When reading began.
    pub time: SystemTime,
    /// Each cluster once, including [`RECORDED_LOCAL`].
    pub clusters: Vec<ClusterRecording>,
    /// The pods of etcd clusters, each once.
    pub pods: Vec<PodRecording>,
}

/// The responses of one pod as an etcd member.
#[derive(Debug, Default)]
pub struct PodRecording {
    /// The pod's namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Requests and their results.
    pub answers: BTreeMap<EtcdRequest, EtcdResult>,
}

/// The content of one cluster.
#[derive(Debug, Default)]
pub struct ClusterRecording {
    /// The recorded name, see [`recorded_name`](super::recorded_name).
    pub name: String,
    /// The Kubernetes version, if it is known.
    pub kubernetes: Option<String>,
    /// The Lists that were read, one for each resource.
    pub lists: Vec<ListRecording>,
    /// A failure to read.
    pub unread: Vec<UnreadList>,
}

/// A List, to its last page.
#[derive(Debug)]
pub struct ListRecording {
    /// The resource.
    pub resource: Resource,
    /// The part of each object.
    pub part: Part,
    /// The field selector of the request; empty for none.
    pub fields: String,
    /// The namespaces that were read; `None` for all.
    pub namespaces: Option<BTreeSet<String>>,
    /// The names that were read one by one; `None` for a List.
    pub names: Option<BTreeSet<String>>,
    /// The objects.
    pub objects: Vec<Object>,
}

/// A List that could not be read.
#[derive(Debug)]
pub struct UnreadList {
    /// The resource; `None` for all resources without a List.
    pub what: Option<Resource>,
    /// The reason. A code that a snapshot cannot contain is written as `busy`.
    pub cause: admission::Cause,
}

/// Writes a snapshot. `path` must not exist, or be an empty directory.
pub fn write(path: &Path, recording: &Recording) -> Result<(), Problem> {
    let problem = || Problem::new(path.display().to_string());
    check(recording).map_err(|why| problem().why(why))?;
    match fs::read_dir(path).map(|mut entries| entries.next().is_none()) {
        Ok(true) => {}
        Ok(false) => {
            return Err(problem()
                .why("is not empty, and files are not overwritten")
                .next("use a directory that does not exist"));
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(problem().why(format!("cannot be written: {error}"))),
    }
    // The parent of `.` is known only by its real path.
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let temporary = temporary_path(&real);
    // The rename replaces an empty directory. It fails if another process has filled it meanwhile.
    let written = fill(&temporary, recording).and_then(|()| fs::rename(&temporary, &real));
    written.map_err(|error| {
        // A partial snapshot is useless. A failure to remove it adds no information.
        let _ = fs::remove_dir_all(&temporary);
        problem().why(format!("cannot be written: {error}"))
    })
}

fn temporary_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.part", std::process::id()))
}

/// Makes the same checks as the reader.
fn check(recording: &Recording) -> Result<(), String> {
    let mut names = BTreeSet::new();
    for cluster in &recording.clusters {
        if !is_name(&cluster.name) {
            return Err(format!("a cluster named {:?} cannot be recorded", cluster.name));
        }
        if !names.insert(cluster.name.as_str()) {
            return Err(format!("two clusters are named {:?}", cluster.name));
        }
        let mut stems = BTreeSet::new();
        let unread = cluster.unread.iter().filter_map(|unread_list| unread_list.what.as_ref());
        for resource in cluster.lists.iter().map(|list| &list.resource).chain(unread) {
            if Resource::from_stem(&resource.stem()).as_ref() != Some(resource)
                || !stems.insert(resource.stem())
            {
                return Err(format!(
                    "{resource} of {} cannot be recorded, or is recorded twice",
                    cluster.name
                ));
            }
        }
    }
    let mut pods = BTreeSet::new();
    for PodRecording { namespace, name, answers, .. } in &recording.pods {
        let is_name = |name: &str| {
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'))
        };
        let belong = answers.iter().all(|(&question, answer)| etcd::belongs(question, answer));
        if !is_name(namespace)
            || !is_name(name)
            || name.starts_with('.')
            || namespace.starts_with('.')
            || !belong
        {
            return Err(format!("the answers of pod {namespace}/{name} cannot be recorded"));
        }
        if !pods.insert((namespace, name)) {
            return Err(format!("two pods are named {namespace}/{name}"));
        }
    }
    if names.contains(RECORDED_LOCAL) {
        Ok(())
    } else {
        Err(format!("there is no cluster {RECORDED_LOCAL:?}"))
    }
}

fn fill(directory: &Path, recording: &Recording) -> std::io::Result<()> {
    fs::create_dir(directory)?;
    let deleted = timestamp(recording.time);
    for cluster in &recording.clusters {
        if cluster.lists.is_empty() {
            continue;
        }
        let directory = directory.join(index::directory(&cluster.name));
        fs::create_dir(&directory)?;
        for list in &cluster.lists {
            fs::write(directory.join(format!("{}.json", list.resource.stem())), text(list, &deleted)?)?;
        }
    }
    if !recording.pods.is_empty() {
        let directory = directory.join(RECORDED_LOCAL).join(etcd::DIRECTORY);
        fs::create_dir_all(&directory)?;
        for PodRecording { namespace, name, uid, answers } in &recording.pods {
            fs::write(directory.join(etcd::name(namespace, name)), etcd::written(uid, answers))?;
        }
    }
    let mut file = fs::File::create_new(directory.join(INDEX))?;
    file.write_all(index_text(recording).as_bytes())?;
    file.sync_all()
}

/// Returns the text of `snapshot.yaml`. Its strings are JSON, which is valid YAML.
fn index_text(recording: &Recording) -> String {
    use std::fmt::Write as _;
    let quoted = |text: &str| {
        let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        Value::String(line).to_string()
    };
    let mut out = format!("version: 1\ntime: {}\nclusters:\n", timestamp(recording.time));
    for ClusterRecording { name, kubernetes, unread, .. } in &recording.clusters {
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(out, "  - name: {}", quoted(name));
        if let Some(version) = kubernetes {
            let _ = writeln!(out, "    kubernetes: {}", quoted(version));
        }
        if !unread.is_empty() {
            out.push_str("    unread:\n");
        }
        for UnreadList { what, cause } in unread {
            let what = what.as_ref().map_or_else(|| EVERYTHING.to_owned(), Resource::stem);
            let code = if cause::is_recordable(cause.code) { cause.code } else { cause::BUSY };
            let _ = writeln!(out, "      - what: {}", quoted(&what));
            let _ = writeln!(out, "        cause: {code}\n        text: {}", quoted(cause.reason()));
        }
    }
    out
}

fn timestamp(time: SystemTime) -> String {
    Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

/// Returns the text of a List, with a line for each item, so that snapshots can be compared.
fn text(list: &ListRecording, deleted: &str) -> std::io::Result<String> {
    let (api_version, kind) = match list.part {
        Part::Whole => ("v1", "List"),
        Part::Metadata => ("meta.k8s.io/v1", "PartialObjectMetadataList"),
    };
    let mut head = json!({"apiVersion": api_version, "kind": kind});
    if !list.fields.is_empty() {
        head["fieldSelector"] = json!(list.fields);
    }
    for (key, only) in [("namespaces", &list.namespaces), ("names", &list.names)] {
        if let Some(only) = only {
            head[key] = json!(only);
        }
    }
    let mut out = head.to_string();
    out.pop();
    out.push_str(",\"items\":[");
    for (at, object) in list.objects.iter().enumerate() {
        out.push_str(if at == 0 { "\n" } else { ",\n" });
        match (list.part, &object.raw) {
            (Part::Metadata, _) => out.push_str(&metadata(object, deleted).to_string()),
            (Part::Whole, Some(raw)) => out.push_str(raw.get()),
            (Part::Whole, None) => {
                let text = format!("{} {:?} was read without its content", list.resource, object.name);
                return Err(std::io::Error::other(text));
            }
        }
    }
    out.push_str("\n]}\n");
    Ok(out)
}

/// Returns the metadata that guards read. The time of a deletion is not known, only that there is one.
fn metadata(object: &Object, deleted: &str) -> Value {
    let Object { namespace, name, uid, metadata: Metadata { labels, annotations, deleting }, .. } = object;
    let mut metadata = json!({"name": name});
    let mut put = |key: &str, value: Value, is_there: bool| {
        if is_there {
            metadata[key] = value;
        }
    };
    put("namespace", json!(namespace), !namespace.is_empty());
    put("uid", json!(uid), !uid.is_empty());
    put("labels", json!(labels), !labels.is_empty());
    put("annotations", json!(annotations), !annotations.is_empty());
    put("deletionTimestamp", json!(deleted), *deleting);
    json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata})
}
