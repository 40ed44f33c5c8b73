//! Writes a snapshot.
//!
//! The directory is written under a temporary name and renamed when it is complete: an incomplete snapshot looks like a complete
//! one with less data. Existing files are not overwritten.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::index::{self, EVERYTHING, is_name};
use super::{INDEX, etcd, etcd_file, list_file};
use crate::fleet::{LOCAL, Object};
use crate::world::{ObjectList, Rest, World};
use crate::{Metadata, Resource, cause};
use admission::Cause;
use config::Problem;

/// Writes a snapshot. `path` must not exist, or be an empty directory.
pub fn write(path: &Path, world: &World) -> Result<(), Problem> {
    let problem = || Problem::new(path.display().to_string());
    check(world).map_err(|why| problem().why(why))?;
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
    let written = fill(&temporary, world).and_then(|()| fs::rename(&temporary, &real));
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
fn check(world: &World) -> Result<(), String> {
    for (name, cluster) in &world.clusters {
        if name != LOCAL && !is_name(name) {
            return Err(format!("a cluster named {name:?} cannot be recorded"));
        }
        let is_readable =
            |resource: &&Resource| Resource::from_argument(&resource.argument()).as_ref() == Some(resource);
        if let Some(resource) = cluster.lists.keys().find(|resource| !is_readable(resource)) {
            return Err(format!("{resource} of {name} cannot be recorded"));
        }
    }
    for ((namespace, name), pod) in &world.etcd {
        let is_name = |name: &str| {
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'))
        };
        let belong = pod.answers.iter().all(|(&request, answer)| etcd::belongs(request, answer));
        if !is_name(namespace)
            || !is_name(name)
            || name.starts_with('.')
            || namespace.starts_with('.')
            || !belong
        {
            return Err(format!("the answers of pod {namespace}/{name} cannot be recorded"));
        }
    }
    if world.clusters.contains_key(LOCAL) { Ok(()) } else { Err("there is no local cluster".to_owned()) }
}

fn fill(directory: &Path, world: &World) -> std::io::Result<()> {
    fs::create_dir(directory)?;
    let deleted = timestamp(world);
    for (cluster, content) in &world.clusters {
        for (resource, list) in &content.lists {
            let Ok(list) = list else { continue };
            create(&directory.join(list_file(cluster, resource)), &text(list, &deleted)?)?;
        }
    }
    for ((namespace, name), pod) in &world.etcd {
        create(&directory.join(etcd_file(namespace, name)), &etcd::written(&pod.uid, &pod.answers))?;
    }
    let mut file = fs::File::create_new(directory.join(INDEX))?;
    file.write_all(index_text(world).as_bytes())?;
    file.sync_all()
}

/// Writes a file and creates its directory.
fn create(path: &Path, text: &str) -> std::io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(path, text)
}

/// Returns the text of `snapshot.yaml`. Its strings are JSON, which is valid YAML.
fn index_text(world: &World) -> String {
    use std::fmt::Write as _;
    let quoted = |text: &str| {
        let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        Value::String(line).to_string()
    };
    let mut out = format!("version: 2\ntime: {}\nclusters:\n", timestamp(world));
    for (name, content) in &world.clusters {
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(out, "  - name: {}", quoted(index::recorded_name(name)));
        if let Some(version) = &content.kubernetes {
            let _ = writeln!(out, "    kubernetes: {}", quoted(version));
        }
        let failures: Vec<(String, &Cause)> = failures(&content.lists, &content.rest);
        if !failures.is_empty() {
            out.push_str("    unread:\n");
        }
        for (what, cause) in failures {
            let code = if cause::is_recordable(cause.code) { cause.code } else { cause::BUSY };
            let _ = writeln!(out, "      - what: {}", quoted(&what));
            let _ = writeln!(out, "        cause: {code}\n        text: {}", quoted(cause.reason()));
        }
    }
    out
}

/// Returns what could not be read, and why.
fn failures<'w>(
    lists: &'w BTreeMap<Resource, Result<ObjectList, Cause>>,
    rest: &'w Rest,
) -> Vec<(String, &'w Cause)> {
    let one = |(resource, list): (&Resource, &'w Result<ObjectList, Cause>)| {
        list.as_ref().err().map(|cause| (resource.argument(), cause))
    };
    let everything = match rest {
        Rest::Failed(cause) => Some((EVERYTHING.to_owned(), cause)),
        Rest::NotRecorded | Rest::Empty => None,
    };
    lists.iter().filter_map(one).chain(everything).collect()
}

/// Returns the time of the snapshot.
fn timestamp(world: &World) -> String {
    let time = world.time.and_then(|time| Timestamp::try_from(time).ok());
    time.unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

/// Returns the text of a List in YAML.
fn text(list: &ObjectList, deleted: &str) -> std::io::Result<String> {
    let scope = &list.scope;
    let (api_version, kind) =
        if scope.is_whole { ("v1", "List") } else { ("meta.k8s.io/v1", "PartialObjectMetadataList") };
    let mut out = json!({"apiVersion": api_version, "kind": kind});
    if !scope.fields.is_empty() {
        out["fieldSelector"] = json!(scope.fields);
    }
    for (key, only) in [("namespaces", &scope.namespaces), ("names", &scope.names)] {
        if let Some(only) = only {
            out[key] = json!(only);
        }
    }
    let item = |object: Object| match object.raw {
        Some(raw) => serde_json::from_str(raw.get()).map_err(std::io::Error::other),
        None => Ok(metadata(&object, deleted)),
    };
    out["items"] = Value::Array(list.iter().map(item).collect::<Result<_, _>>()?);
    // kubectl can't read a block scalar that begins with a tab.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(&out, options).map_err(std::io::Error::other)
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
