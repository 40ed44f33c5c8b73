//! Kinds and their resources: manifests name kinds, and policies name resources.
//!
//! The tables are recorded from the discovery of real API servers: each minor of Kubernetes with all its APIs enabled, and
//! Karmada. CRDs extend them. No guess replaces an unknown kind: `kubectl` asks the API server as well.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::LazyLock;

use crate::field::{FieldError, Path};
use crate::release::{NEWEST, OLDEST};
use crate::value::Value;

/// Lines of group, version, kind, resource and scope; those of Kubernetes end with the first and last minor that serves the
/// kind. The end-to-end cases `kinds::` compare the tables with the API servers.
const TABLES: [&str; 2] = [include_str!("builtin.tsv"), include_str!("karmada.tsv")];

/// The older API version of CRDs, in which the scope has a default.
const V1BETA1: &str = "apiextensions.k8s.io/v1beta1";

/// A resource of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource<'a> {
    /// The resource in paths and rules: `deployments`.
    pub plural: Cow<'a, str>,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// Whether it has the subresource `status`. Built-in resources count as such.
    pub has_status: bool,
    /// The minors of Kubernetes that serve the kind, of those that are recorded.
    pub minors: RangeInclusive<u8>,
}

const ALL_MINORS: RangeInclusive<u8> = OLDEST..=NEWEST;

/// Group, version and kind.
type Key<'a> = (Cow<'a, str>, Cow<'a, str>, Cow<'a, str>);

static TABLE: LazyLock<BTreeMap<Key<'static>, Resource<'static>>> =
    LazyLock::new(|| TABLES.iter().flat_map(|table| table.lines()).filter_map(row).collect());

fn row(line: &'static str) -> Option<(Key<'static>, Resource<'static>)> {
    let columns: Vec<&str> = line.split('\t').collect();
    let [group, version, kind, plural, scope, ref minors @ ..] = columns[..] else { return None };
    let minors = match minors {
        [] => ALL_MINORS,
        [first, last] => first.parse().ok()?..=last.parse().ok()?,
        _ => return None,
    };
    let namespaced = scope == "Namespaced";
    let resource = Resource { plural: plural.into(), namespaced, has_status: true, minors };
    Some(((group.into(), version.into(), kind.into()), resource))
}

/// Returns the resource of a kind of Kubernetes or Karmada.
pub fn lookup(group: &str, version: &str, kind: &str) -> Option<Resource<'static>> {
    TABLE.get(&key(group, version, kind)).cloned()
}

/// Returns whether Kubernetes or Karmada has kinds in a group.
pub fn is_built_in(group: &str) -> bool {
    TABLE.keys().any(|(known, _, _)| known == group)
}

fn key<'a>(group: &'a str, version: &'a str, kind: &'a str) -> Key<'a> {
    (group.into(), version.into(), kind.into())
}

/// The recorded kinds and those of CRDs.
#[derive(Clone, Debug, Default)]
pub struct Kinds {
    custom: BTreeMap<Key<'static>, Resource<'static>>,
}

impl Kinds {
    /// Creates a table of the recorded kinds.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the kind of a CRD in each version that it serves. Returns all errors of the fields that it needs.
    pub fn with_crd(&mut self, crd: Value<'_>) -> Result<(), Vec<FieldError>> {
        let mut errors = Vec::new();
        let spec = Fields { value: crd.field("spec").unwrap_or_default(), path: Path::new("spec") };
        let scope_is_optional = crd.field("apiVersion").and_then(|version| version.as_str()) == Some(V1BETA1);
        let names = spec.child("names");
        let group = spec.text("group", &mut errors);
        let kind = names.text("kind", &mut errors);
        let plural = names.text("plural", &mut errors);
        let scope = match spec.value.field("scope") {
            None if scope_is_optional => "Namespaced",
            _ => spec.text("scope", &mut errors),
        };
        let namespaced = match scope {
            "Cluster" => false,
            // The error is reported already if it is empty.
            "Namespaced" | "" => true,
            other => {
                let path = spec.path.child("scope");
                errors.push(FieldError::not_supported(&path, other, &["Cluster", "Namespaced"]));
                true
            }
        };
        let versions = spec.versions(&mut errors);
        if !errors.is_empty() {
            return Err(errors);
        }
        for (version, has_status) in versions {
            let key = (group.to_owned().into(), version.to_owned().into(), kind.to_owned().into());
            let plural = plural.to_owned().into();
            let resource = Resource { plural, namespaced, has_status, minors: ALL_MINORS };
            self.custom.insert(key, resource);
        }
        Ok(())
    }

    /// Returns the resource of a kind.
    pub fn lookup(&self, group: &str, version: &str, kind: &str) -> Option<Resource<'_>> {
        let key = key(group, version, kind);
        self.custom.get(&key).or_else(|| TABLE.get(&key)).cloned()
    }

    /// Returns whether a CRD defines the kind with the subresource `status`.
    pub fn is_custom_with_status(&self, group: &str, version: &str, kind: &str) -> bool {
        self.custom.get(&key(group, version, kind)).is_some_and(|resource| resource.has_status)
    }

    /// Returns whether a resource is known to be served in one version only. `*` stands for all resources of the group.
    pub fn has_one_version(&self, group: &str, plural: &str) -> bool {
        let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for ((of, version, _), resource) in self.custom.iter().chain(TABLE.iter()) {
            if of == group && (plural == "*" || resource.plural == plural) {
                versions.entry(&resource.plural).or_default().insert(version);
            }
        }
        !versions.is_empty() && versions.values().all(|versions| versions.len() == 1)
    }

    /// Returns the kinds of a group that an API server of a minor serves.
    pub fn of_group(&self, group: &str, minor: u8) -> Vec<&str> {
        let known = self.custom.iter().chain(TABLE.iter());
        let of_group = known.filter(|((of, _, _), resource)| of == group && resource.minors.contains(&minor));
        of_group.map(|((_, _, kind), _)| kind.as_ref()).collect()
    }

    /// Returns the kinds of this name that an API server of a minor serves, in any group: `apps/v1 Deployment`. The case of
    /// letters does not count, so that an error about an unknown kind can suggest them.
    pub fn like(&self, kind: &str, minor: u8) -> Vec<String> {
        let known = self.custom.iter().chain(TABLE.iter());
        let same = known.filter(|((_, _, known), resource)| {
            known.eq_ignore_ascii_case(kind) && resource.minors.contains(&minor)
        });
        same.map(|((group, version, kind), _)| match group.as_ref() {
            "" => format!("{version} {kind}"),
            group => format!("{group}/{version} {kind}"),
        })
        .collect()
    }
}

/// The fields of an object, with its path for errors.
struct Fields<'a> {
    value: Value<'a>,
    path: Path,
}

impl<'a> Fields<'a> {
    fn child(&self, field: &str) -> Self {
        Self { value: self.value.field(field).unwrap_or_default(), path: self.path.child(field) }
    }

    fn text(&self, field: &str, errors: &mut Vec<FieldError>) -> &'a str {
        match self.value.field(field) {
            Some(Value::String(text)) if !text.is_empty() => text,
            None | Some(Value::Null | Value::String(_)) => {
                errors.push(FieldError::required(&self.path.child(field), ""));
                ""
            }
            Some(_) => {
                errors.push(FieldError::wrong_type(&self.path.child(field), "a string"));
                ""
            }
        }
    }

    /// Whether these fields have the subresource `status`.
    fn has_status(&self) -> bool {
        let status = self.child("subresources").value.field("status");
        status.is_some_and(|status| !matches!(status, Value::Null))
    }

    /// Returns the served versions: `versions`, or `version` of v1beta1. Each has the subresource `status`, or has not.
    fn versions(&self, errors: &mut Vec<FieldError>) -> Vec<(&'a str, bool)> {
        let versions = self.child("versions");
        match versions.value {
            Value::Null if self.value.field("version").is_some() => {
                vec![(self.text("version", errors), self.has_status())]
            }
            Value::List(items) if !items.is_empty() => {
                let mut names = Vec::new();
                for (index, item) in items.iter().enumerate() {
                    let version = Fields { value: *item, path: versions.path.index(index) };
                    let name = version.text("name", errors);
                    if !matches!(item.field("served"), Some(Value::Bool(false))) {
                        names.push((name, version.has_status() || self.has_status()));
                    }
                }
                names
            }
            Value::Null | Value::List(_) => {
                errors.push(FieldError::required(&versions.path, ""));
                Vec::new()
            }
            _ => {
                errors.push(FieldError::wrong_type(&versions.path, "a list"));
                Vec::new()
            }
        }
    }
}

#[cfg(test)]
mod tests;
