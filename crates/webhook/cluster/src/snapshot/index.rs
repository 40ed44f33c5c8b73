//! `snapshot.yaml`: the time of the snapshot, its clusters, and the Lists that could not be read.

use std::time::SystemTime;

use k8s_openapi::jiff::Timestamp;

use admission::Cause;

use super::RECORDED_LOCAL;
use crate::encode::encoded;
use crate::fleet::LOCAL;
use crate::{Resource, cause};
use config::{Place, Problem, Section, parse, read as read_section};

/// The version of the format that this Durward reads.
const VERSION: &str = "2";

/// The name for all Lists that are not recorded.
pub(super) const EVERYTHING: &str = "*";

/// The content of `snapshot.yaml`.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) time: SystemTime,
    pub(super) clusters: Vec<IndexedCluster>,
}

/// One cluster in `snapshot.yaml`.
#[derive(Debug)]
pub(super) struct IndexedCluster {
    /// [`LOCAL`], or a name.
    pub(super) name: String,
    pub(super) kubernetes: Option<String>,
    pub(super) unread: Vec<Unread>,
}

/// A List that could not be read.
#[derive(Debug)]
pub(super) struct Unread {
    /// The resource; `None` for all without a List.
    pub(super) what: Option<Resource>,
    pub(super) cause: Cause,
}

/// Whether a snapshot can contain a cluster with this name: that of a Karmada Cluster, a Secret or a context. One that is called
/// [`RECORDED_LOCAL`] can't be recorded.
pub(super) fn is_name(name: &str) -> bool {
    // Percent-encoded, 80 characters fit into a file name of 255 bytes.
    let is_short = (1..=80).contains(&name.len());
    is_short && !name.starts_with('.') && !name.chars().any(char::is_control) && name != RECORDED_LOCAL
}

/// Returns the name of a cluster in `snapshot.yaml`.
pub(super) fn recorded_name(cluster: &str) -> &str {
    if cluster == LOCAL { RECORDED_LOCAL } else { cluster }
}

/// Returns the name of a cluster's directory: its name, percent-encoded.
pub(super) fn directory(cluster: &str) -> String {
    encoded(recorded_name(cluster)).to_string()
}

/// Reads the file's text. `file` is its name for messages.
pub(super) fn read(file: &str, text: &str) -> Result<Index, Vec<Problem>> {
    let root = parse(file, text)?;
    if root.is_none() {
        let start = Place { file: file.to_owned(), line: 1, column: 1 };
        return Err(vec![
            Problem::new("the file is empty").at(start).next("write at least: version, time and clusters"),
        ]);
    }
    let (index, _, problems) = read_section(file, root.as_ref(), index);
    if problems.is_empty() { Ok(index) } else { Err(problems) }
}

fn index(section: &mut Section<'_>) -> Index {
    let version = section.required_text("version", "version", "The version of this format.");
    if section.has("version") && version != VERSION {
        section.problem(
            "version",
            format!("{version:?} is not supported"),
            Some(format!(
                "this Durward supports version {VERSION}; record it again, or use the Durward that wrote it"
            )),
        );
    }
    let time: Option<Timestamp> = section.parsed(
        "time",
        "RFC 3339 time",
        "Time at which the clusters were read, like 2026-11-21T10:00:00Z.",
        None,
    );
    require(section, "time", "2026-11-21T10:00:00Z");
    let clusters = section.sections("clusters", "Clusters, including the local one.", cluster);
    let names: Vec<&str> = clusters.iter().map(|cluster| cluster.name.as_str()).collect();
    if section.is_written() && !names.contains(&LOCAL) {
        section.problem(
            "clusters",
            format!("no cluster is named {RECORDED_LOCAL:?}"),
            Some(format!("add the local cluster: - name: {RECORDED_LOCAL}")),
        );
    }
    if let Some(twice) =
        names.iter().enumerate().find(|(at, name)| names.iter().take(*at).any(|earlier| earlier == *name))
    {
        section.problem("clusters", format!("{:?} is listed twice", recorded_name(twice.1)), None);
    }
    Index { time: time.map_or(SystemTime::UNIX_EPOCH, SystemTime::from), clusters }
}

fn cluster(section: &mut Section<'_>) -> IndexedCluster {
    let name = section.required_text("name", "name", "Name of the cluster and of its directory.");
    let is_local = name == RECORDED_LOCAL;
    if section.has("name") && !is_local && (!is_name(&name) || name == LOCAL) {
        section.problem(
            "name",
            format!("{name:?} is not a cluster's name"),
            Some("use up to 80 printable characters; the first one is not a dot".to_owned()),
        );
    }
    let kubernetes = section.optional_text("kubernetes", "version", "Kubernetes version, like v1.35.4.");
    let unread = section.sections("unread", "Lists that could not be read, and why.", unread);
    let whats: Vec<_> = unread.iter().map(|unread: &Unread| &unread.what).collect();
    if let Some((_, twice)) =
        whats.iter().enumerate().find(|(at, what)| whats.iter().take(*at).any(|earlier| earlier == *what))
    {
        let what = twice.as_ref().map_or_else(|| EVERYTHING.to_owned(), Resource::argument);
        section.problem("unread", format!("{what:?} is listed twice"), None);
    }
    IndexedCluster { name: if is_local { LOCAL.to_owned() } else { name }, kubernetes, unread }
}

fn unread(section: &mut Section<'_>) -> Unread {
    let what = section.required_text(
        "what",
        "List",
        "Name of a List, like namespaces.v1, or * for all that are not recorded.",
    );
    let resource = Resource::from_argument(&what);
    if section.has("what") && what != EVERYTHING && resource.is_none() {
        section.problem(
            "what",
            format!("{what:?} is not the name of a List"),
            Some(
                "use <plural>.<version>.<group>, like deployments.v1.apps or namespaces.v1, or \"*\""
                    .to_owned(),
            ),
        );
    }
    let words = cause::recordable().map(|code| (code, code)).collect::<Vec<_>>();
    let cause = section.choice("cause", "Reason code.", &words, cause::UNREACHABLE);
    require(section, "cause", cause::UNREACHABLE);
    let text = section.required_text("text", "sentence", "Reason for users.");
    Unread { what: resource, cause: Cause::new(cause, text) }
}

/// Reports a missing key that has no default.
fn require(section: &mut Section<'_>, key: &str, example: &str) {
    if section.is_written() && !section.has(key) {
        section.problem(key, "is required", Some(format!("add: {key}: {example}")));
    }
}
