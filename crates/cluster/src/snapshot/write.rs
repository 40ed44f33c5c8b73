//! Writing a folder, so that what was seen can be replayed.
//!
//! It is written beside its place and put there when it is complete: a folder that was begun and not ended would say less than
//! was seen, and look the same. Existing files are not overwritten.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::index::{self, EVERYTHING, is_name};
use super::{INDEX, LOCAL, etcd};
use crate::etcd::{EtcdRequest, EtcdResult};
use crate::fleet::{Object, Part};
use crate::{Metadata, Resource, cause};
use config::Problem;

/// The content of a snapshot.
#[derive(Debug)]
pub struct Recording {
    /// When it was begun to look.
    pub time: SystemTime,
    /// Each cluster once, [`LOCAL`] among them.
    pub clusters: Vec<ClusterRecording>,
    /// The members of etcd ensembles that were asked, each pod once.
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
    /// Under which it is recorded, see [`recorded_name`](super::recorded_name).
    pub name: String,
    /// The version of Kubernetes it runs, if that is known.
    pub kubernetes: Option<String>,
    /// The Lists that were read, one for each resource.
    pub lists: Vec<ListRecording>,
    /// A failure to read.
    pub unread: Vec<Unseen>,
}

/// A List, to its last page.
#[derive(Debug)]
pub struct ListRecording {
    /// Of what.
    pub resource: Resource,
    /// How much of each object.
    pub part: Part,
    /// The field selector by which it was read; empty for none.
    pub fields: String,
    /// The namespaces that were read, where it was not all.
    pub namespaces: Option<BTreeSet<String>>,
    /// The names that were looked up, where the objects were not listed.
    pub names: Option<BTreeSet<String>>,
    /// The objects.
    pub objects: Vec<Object>,
}

/// Something that could not be read.
#[derive(Debug)]
pub struct Unseen {
    /// The resource; `None` for all without a List.
    pub what: Option<Resource>,
    /// Why. A code that a recording cannot give is written as `busy`.
    pub cause: admission::Cause,
}

/// Writes a folder. `path` must not be there, or be an empty folder.
pub fn write(path: &Path, recording: &Recording) -> Result<(), Problem> {
    let problem = || Problem::new(path.display().to_string());
    check(recording).map_err(|why| problem().why(why))?;
    match fs::read_dir(path).map(|mut entries| entries.next().is_none()) {
        Ok(true) => {}
        Ok(false) => {
            return Err(problem()
                .why("is not empty, and nothing is written over")
                .next("give a folder that is not there yet"));
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(problem().why(format!("cannot be written: {error}"))),
    }
    // The parent of `.` is known only by its real path.
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let beside = beside(&real);
    // Put over an empty folder of the name. Another process may have filled it meanwhile.
    let written = fill(&beside, recording).and_then(|()| fs::rename(&beside, &real));
    written.map_err(|error| {
        // A partial snapshot is useless. A failure to remove it adds no information.
        let _ = fs::remove_dir_all(&beside);
        problem().why(format!("cannot be written: {error}"))
    })
}

fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.part", std::process::id()))
}

/// Checks what the reader checks.
fn check(recording: &Recording) -> Result<(), String> {
    let mut names = BTreeSet::new();
    for cluster in &recording.clusters {
        if !is_name(&cluster.name) {
            return Err(format!("a cluster that is called {:?} cannot be recorded", cluster.name));
        }
        if !names.insert(cluster.name.as_str()) {
            return Err(format!("two clusters are called {:?}", cluster.name));
        }
        let mut told = BTreeSet::new();
        let unread = cluster.unread.iter().filter_map(|unseen| unseen.what.as_ref());
        for resource in cluster.lists.iter().map(|list| &list.resource).chain(unread) {
            if Resource::from_stem(&resource.stem()).as_ref() != Some(resource)
                || !told.insert(resource.stem())
            {
                return Err(format!("{resource} of {} cannot be recorded, or twice", cluster.name));
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
            return Err(format!("what pod {namespace}/{name} answered cannot be recorded"));
        }
        if !pods.insert((namespace, name)) {
            return Err(format!("two pods are called {namespace}/{name}"));
        }
    }
    if names.contains(LOCAL) { Ok(()) } else { Err(format!("there is no cluster {LOCAL:?}")) }
}

fn fill(folder: &Path, recording: &Recording) -> std::io::Result<()> {
    fs::create_dir(folder)?;
    let deleted = timestamp(recording.time);
    for cluster in &recording.clusters {
        if cluster.lists.is_empty() {
            continue;
        }
        let folder = folder.join(index::folder(&cluster.name));
        fs::create_dir(&folder)?;
        for list in &cluster.lists {
            fs::write(folder.join(format!("{}.json", list.resource.stem())), text(list, &deleted)?)?;
        }
    }
    if !recording.pods.is_empty() {
        let folder = folder.join(LOCAL).join(etcd::FOLDER);
        fs::create_dir_all(&folder)?;
        for PodRecording { namespace, name, uid, answers } in &recording.pods {
            fs::write(folder.join(etcd::name(namespace, name)), etcd::written(uid, answers))?;
        }
    }
    let mut file = fs::File::create_new(folder.join(INDEX))?;
    file.write_all(told(recording).as_bytes())?;
    file.sync_all()
}

/// `world.yaml`. Every text in it is written as JSON, which YAML reads.
fn told(recording: &Recording) -> String {
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
        for Unseen { what, cause } in unread {
            let what = what.as_ref().map_or_else(|| EVERYTHING.to_owned(), Resource::stem);
            let code = if cause::is_recordable(cause.code) { cause.code } else { cause::BUSY };
            let _ = writeln!(out, "      - what: {}", quoted(&what));
            let _ = writeln!(out, "        cause: {code}\n        text: {}", quoted(&cause.text));
        }
    }
    out
}

fn timestamp(time: SystemTime) -> String {
    Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

/// A List: an item a line, so that two recordings can be compared.
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
                let text = format!("{} {:?} was not read whole", list.resource, object.name);
                return Err(std::io::Error::other(text));
            }
        }
    }
    out.push_str("\n]}\n");
    Ok(out)
}

/// The fields that guards read. Only the fact of a deletion is known.
fn metadata(object: &Object, deleted: &str) -> Value {
    let Object { namespace, name, uid, metadata: Metadata { labels, annotations, deleting }, owners, .. } =
        object;
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
    let owners: Vec<Value> = owners
        .iter()
        .map(|owner| json!({"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}))
        .collect();
    put("ownerReferences", Value::Array(owners.clone()), !owners.is_empty());
    json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata})
}
