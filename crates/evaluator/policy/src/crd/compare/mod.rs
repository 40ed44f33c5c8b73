//! Compares two versions of a CRD, and reports changes that can break an existing object.
//!
//! | step | module |
//! |---|---|
//! | compare names, scope, versions, conversion and subresources | this one |
//! | find fields that the comparison does not know | `keywords` |
//! | compare two schemas: types, fields, lists, rules | `schema` |
//! | compare the value validations | `checks` |
//! | name classes and places | `change` |
//!
//! An object exists if the old CRD accepted it. It breaks if the API server refuses it under the new CRD, or removes one of its fields.
//! Versions are compared by name. If no webhook converts objects, the API server only replaces `apiVersion`, so the stored version is
//! compared with each version that is new, too.
//!
//! The API server accepts both CRDs: [`admit`](super::admit) checks that. A change that accepts more is not reported. If the effect of a difference is not known, the class is [`Class::NotCompared`].

mod change;
mod checks;
mod keywords;
mod schema;
#[cfg(test)]
mod tests;

pub use change::{Class, CrdChange};

use std::collections::{BTreeSet, HashSet};

use self::schema::{ANY, MAX_STEPS};
use super::{Crd, Version};
use crate::field::{FieldError, Path};
use crate::schema::Schema;
use crate::value::{Value, write_json};

/// Sets of types of values.
mod types {
    pub(crate) const NULL: u8 = 1;
    pub(crate) const BOOLEAN: u8 = 1 << 1;
    pub(crate) const INTEGER: u8 = 1 << 2;
    /// Numbers with a fraction.
    pub(crate) const FRACTION: u8 = 1 << 3;
    pub(crate) const STRING: u8 = 1 << 4;
    pub(crate) const LIST: u8 = 1 << 5;
    pub(crate) const OBJECT: u8 = 1 << 6;
    pub(crate) const ALL: u8 = 0x7f;
}

/// Two versions of a CRD that are compared, and the result.
struct Comparer<'c> {
    /// The path of the new schema.
    pub(super) base: &'c Path,
    /// The version of the new schema.
    pub(super) version: &'c str,
    pub(super) stored_as: Option<&'c str>,
    /// Whether the CRDs keep all unknown fields.
    pub(super) keeps_all: Both,
    pub(super) steps: usize,
    pub(super) changes: Vec<CrdChange>,
    /// Whether the comparison only asks if there is a change.
    is_probe: bool,
}

/// A property of the old and of the new side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Both {
    pub(super) old: bool,
    pub(super) new: bool,
}

/// A CRD to compare.
pub struct Definition<'a> {
    /// The CRD.
    pub crd: Crd,
    /// Its document.
    pub value: Value<'a>,
}

impl<'a> Definition<'a> {
    /// Reads a CRD of `v1`. The errors are those of the fields that the comparison needs.
    pub fn read(value: Value<'a>) -> Result<Self, Vec<FieldError>> {
        let crd = Crd::read(value)?;
        let versions = Path::new("spec").child("versions");
        let mut names = HashSet::new();
        for (index, version) in crd.versions.iter().enumerate() {
            if !names.insert(&version.name) {
                return Err(vec![FieldError::duplicate(&versions.index(index).child("name"), &version.name)]);
            }
        }
        if crd.versions.iter().filter(|version| version.storage).count() != 1 {
            let detail = "must have exactly one version marked as storage version";
            return Err(vec![FieldError::invalid(&versions, "", detail)]);
        }
        Ok(Self { crd, value })
    }

    fn spec(&self) -> Value<'a> {
        self.value.field("spec").unwrap_or_default()
    }

    /// The versions in which objects can be stored, if the API server has written them.
    fn stored_versions(&self) -> Option<Vec<&'a str>> {
        let stored = self.value.field("status")?.field("storedVersions")?;
        Some(stored.elements().filter_map(|name| name.as_str()).collect())
            .filter(|names: &Vec<_>| !names.is_empty())
    }

    /// The conversion without the CA, which a controller writes.
    fn conversion(&self) -> String {
        let conversion = self.spec().field("conversion").unwrap_or_default();
        let webhook = conversion.field("webhook").unwrap_or_default();
        let client = webhook.field("clientConfig").unwrap_or_default();
        let part = |value: Value<'_>, name: &str| write_json(value.field(name).unwrap_or_default());
        let reviews = part(webhook, "conversionReviewVersions");
        [part(conversion, "strategy"), part(client, "url"), part(client, "service"), reviews].join(" ")
    }
}

/// Returns the changes that can break an existing object, in the order of versions and fields.
pub fn compare(old: &Definition<'_>, new: &Definition<'_>) -> Vec<CrdChange> {
    within(MAX_STEPS, old, new)
}

/// Compares two CRDs with a limit of steps.
fn within(steps: usize, old: &Definition<'_>, new: &Definition<'_>) -> Vec<CrdChange> {
    let mut comparison = Comparison { old, new, changes: Vec::new(), steps };
    comparison.names();
    comparison.versions();
    comparison.conversion();
    comparison.keywords();
    comparison.pairs();
    comparison.changes
}

struct Comparison<'c, 'a> {
    old: &'c Definition<'a>,
    new: &'c Definition<'a>,
    changes: Vec<CrdChange>,
    /// Pairs of schemas that can still be visited.
    steps: usize,
}

impl Comparison<'_, '_> {
    fn push(&mut self, class: Class, version: &str, path: Path, detail: String) {
        let (field, version) = (String::new(), version.to_owned());
        let change = CrdChange { class, version, stored_as: None, field, path, detail };
        if !self.changes.contains(&change) {
            self.changes.push(change);
        }
    }

    fn names(&mut self) {
        let spec = Path::new("spec");
        let names = spec.child("names");
        let (old, new) = (&self.old.crd, &self.new.crd);
        let named = [
            (spec.child("group"), &old.group, &new.group),
            (names.child("kind"), &old.kind, &new.kind),
            (names.child("plural"), &old.plural, &new.plural),
        ];
        for (path, before, after) in named {
            if before != after {
                let detail =
                    format!("was {before}, now it is {after}: the API server refuses this change of a CRD");
                self.push(Class::NameChanged, "", path, detail);
            }
        }
        if old.namespaced != new.namespaced {
            let scope = |is_namespaced: bool| if is_namespaced { "Namespaced" } else { "Cluster" };
            let (before, after) = (scope(old.namespaced), scope(new.namespaced));
            let detail =
                format!("was {before}, now it is {after}: the API server refuses this change of a CRD");
            self.push(Class::ScopeChanged, "", spec.child("scope"), detail);
        }
    }

    fn versions(&mut self) {
        let path = Path::new("spec").child("versions");
        let stored = self.old.stored_versions();
        for before in &self.old.crd.versions {
            let name = before.name.as_str();
            let is_stored = stored.as_ref().map(|names| names.contains(&name) || before.storage);
            match self.new.crd.version(name) {
                Some(after) if before.served && !after.served => {
                    let detail = "not served any more: requests and manifests with it fail".to_owned();
                    self.push(Class::VersionRemoved, name, self.path_of(after), detail);
                }
                None if before.storage || is_stored == Some(true) => {
                    let detail = "objects are stored in this version: the API server refuses the CRD until they are migrated";
                    self.push(Class::VersionRemoved, name, path.clone(), detail.to_owned());
                }
                None if before.served => {
                    let detail = "removed: requests and manifests with it fail".to_owned();
                    self.push(Class::VersionRemoved, name, path.clone(), detail);
                }
                None if is_stored.is_none() => {
                    let detail = "removed, and the old CRD has no status.storedVersions, so objects can be stored in it";
                    self.push(Class::NotCompared, name, path.clone(), detail.to_owned());
                }
                Some(_) | None => {}
            }
        }
    }

    fn conversion(&mut self) {
        let has_webhook = self.old.crd.is_converted_by_webhook || self.new.crd.is_converted_by_webhook;
        let is_called = self.old.crd.versions.len() > 1 || self.new.crd.versions.len() > 1;
        if has_webhook && is_called && self.old.conversion() != self.new.conversion() {
            let detail =
                "the conversion between versions has changed, and a conversion webhook is not called";
            self.push(Class::NotCompared, "", Path::new("spec").child("conversion"), detail.to_owned());
        }
    }

    fn keywords(&mut self) {
        let (old, new) = (keywords::unknown(self.old.value), keywords::unknown(self.new.value));
        let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
        for key in keys.into_iter().filter(|key| old.get(key) != new.get(key)) {
            let (version, below) = key;
            let path = match self.new.crd.version(version) {
                Some(version) => self.path_of(version).join(below),
                None if version.is_empty() => below.clone(),
                None => Path::new("spec").child("versions"),
            };
            let detail = format!("{below} differs, and this field of a CRD is not known");
            self.push(Class::NotCompared, version, path, detail);
        }
    }

    /// Compares the versions that objects of the old CRD are read and written in.
    fn pairs(&mut self) {
        let (old, new) = (&self.old.crd, &self.new.crd);
        let Some(stored) = old.stored() else { return };
        // Objects can be stored in these versions. If the CRD has no `status.storedVersions`, any version can have objects.
        let stored_versions = self.old.stored_versions();
        for after in &new.versions {
            let before = old.version(&after.name);
            let was_used = before.is_some_and(|before| before.served || before.storage);
            let has_objects =
                stored_versions.as_ref().is_none_or(|names| names.contains(&after.name.as_str()));
            if let Some(before) = before.filter(|_| was_used || has_objects) {
                self.subresources(before, after);
                self.pair(before, after);
            }
            let is_new = !was_used && after.served;
            let is_stored_now = after.storage && after.name != stored.name;
            if !is_new && !is_stored_now {
                continue;
            }
            if old.is_converted_by_webhook || new.is_converted_by_webhook {
                let detail = format!(
                    "a webhook converts objects that are stored as {}, and it is not called",
                    stored.name
                );
                self.push(Class::NotCompared, &after.name, self.path_of(after), detail);
            } else {
                self.pair(stored, after);
            }
        }
    }

    fn subresources(&mut self, before: &Version, after: &Version) {
        let path = self.path_of(after).child("subresources");
        let state = |is_present: bool| if is_present { "added" } else { "removed" };
        if before.has_status != after.has_status {
            let effect = if after.has_status {
                "writes of an object ignore its status"
            } else {
                "requests for the status fail"
            };
            let detail = format!("status was {}: {effect}", state(after.has_status));
            self.push(Class::SubresourceChanged, &after.name, path.clone(), detail);
        }
        let detail = match (&before.scale, &after.scale) {
            (before, after) if before == after => return,
            (Some(_), Some(_)) => {
                "the paths of scale have changed: their values must be replicas and a selector"
            }
            (None, _) => "scale was added: the values of its paths must be replicas and a selector",
            (Some(_), None) => "scale was removed: requests for it fail",
        };
        self.push(Class::SubresourceChanged, &after.name, path, detail.to_owned());
    }

    /// Compares the schemas of two versions.
    fn pair(&mut self, before: &Version, after: &Version) {
        let stored_as = (before.name != after.name).then_some(before.name.as_str());
        let keeps_all = Both { old: before.keeps_unknown_fields, new: after.keeps_unknown_fields };
        let refused = before.not_structural.first().map(|error| ("old", error));
        let refused = refused.or_else(|| after.not_structural.first().map(|error| ("new", error)));
        if let Some((which, error)) = refused {
            let is_same = schema_of(self.old, &before.name) == schema_of(self.new, &after.name);
            if !is_same || keeps_all.old != keeps_all.new {
                let detail = format!("the {which} schema is not structural: {error}");
                self.push(Class::NotCompared, &after.name, after.schema_path.clone(), detail);
            }
            return;
        }
        let any: &Schema = &ANY;
        let comparer = Comparer::new(&after.schema_path, &after.name, stored_as, keeps_all, self.steps);
        let (found, steps) =
            comparer.compare(before.schema.as_ref().unwrap_or(any), after.schema.as_ref().unwrap_or(any));
        self.steps = steps;
        self.changes.extend(found);
    }

    /// The path of a version of the new CRD.
    fn path_of(&self, version: &Version) -> Path {
        let index = self.new.crd.versions.iter().position(|other| other.name == version.name);
        Path::new("spec").child("versions").index(index.unwrap_or_default())
    }
}

/// The schema of a version as text.
fn schema_of(definition: &Definition<'_>, name: &str) -> String {
    let is_version = |version: &Value<'_>| version.field("name").and_then(|name| name.as_str()) == Some(name);
    let versions = definition.spec().field("versions").unwrap_or_default();
    let version = versions.elements().find(is_version).unwrap_or_default();
    write_json(version.field("schema").unwrap_or_default())
}
