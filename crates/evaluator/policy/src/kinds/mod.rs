//! Kinds and their resources: manifests name kinds, and policies name resources.
//!
//! The tables are recorded from the discovery of real API servers: each minor of Kubernetes with all its APIs enabled, and
//! Karmada. CRDs extend them. No guess replaces an unknown kind: `kubectl` asks the API server as well.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::{Arc, LazyLock};

use crate::crd::{Crd, Version};
use crate::normalize::{RECORDED, Types};
use crate::release::{NEWEST, OLDEST};

/// Lines of group, version, kind, resource and scope; those of Kubernetes end with the first and last minor that serves the
/// kind. The end-to-end cases `kinds::` compare the tables with the API servers.
const TABLES: [&str; 2] = [KUBERNETES, include_str!("karmada.tsv")];

const KUBERNETES: &str = include_str!("builtin.tsv");

/// A resource of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindResource<'a> {
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
type KindKey<'a> = (Cow<'a, str>, Cow<'a, str>, Cow<'a, str>);

static TABLE: LazyLock<BTreeMap<KindKey<'static>, KindResource<'static>>> =
    LazyLock::new(|| TABLES.iter().flat_map(|table| table.lines()).filter_map(row).collect());

fn row(line: &'static str) -> Option<(KindKey<'static>, KindResource<'static>)> {
    let columns: Vec<&str> = line.split('\t').collect();
    let [group, version, kind, plural, scope, ref minors @ ..] = columns[..] else { return None };
    let minors = match minors {
        [] => ALL_MINORS,
        [first, last] => first.parse().ok()?..=last.parse().ok()?,
        _ => return None,
    };
    let namespaced = scope == "Namespaced";
    let resource = KindResource { plural: plural.into(), namespaced, has_status: true, minors };
    Some(((group.into(), version.into(), kind.into()), resource))
}

/// Returns the resource of a kind of Kubernetes or Karmada.
pub fn lookup(group: &str, version: &str, kind: &str) -> Option<KindResource<'static>> {
    TABLE.get(&key(group, version, kind)).cloned()
}

/// Returns whether Kubernetes has kinds in a group.
pub fn is_of_kubernetes(group: &str) -> bool {
    KUBERNETES.lines().any(|line| line.split('\t').next() == Some(group))
}

/// Returns a resource of Kubernetes or Karmada.
pub fn of_resource(group: &str, plural: &str) -> Option<KindResource<'static>> {
    let is_it = |key: &KindKey<'_>, resource: &KindResource<'_>| key.0 == group && resource.plural == plural;
    TABLE.iter().find(|(key, resource)| is_it(key, resource)).map(|(_, resource)| resource.clone())
}

/// Returns the resources that Kubernetes or Karmada has in a group.
pub fn resources_of(group: &str) -> BTreeSet<&'static str> {
    let of_group = TABLE.iter().filter(|(key, _)| key.0 == group);
    of_group.map(|(_, resource)| resource.plural.as_ref()).collect()
}

/// Returns whether Kubernetes or Karmada has kinds in a group.
pub fn is_built_in(group: &str) -> bool {
    TABLE.keys().any(|(known, _, _)| known == group)
}

/// Returns whether Kubernetes or Karmada has kinds in a version of a group.
pub(crate) fn has_version(group: &str, version: &str) -> bool {
    TABLE.keys().any(|(known, of_group, _)| known == group && of_group == version)
}

fn key<'a>(group: &'a str, version: &'a str, kind: &'a str) -> KindKey<'a> {
    (group.into(), version.into(), kind.into())
}

/// The recorded kinds and those of CRDs.
#[derive(Clone, Debug, Default)]
pub struct Kinds {
    custom: BTreeMap<KindKey<'static>, Custom>,
    /// Types of built-in kinds that replace the recorded ones.
    types: Option<Arc<Types>>,
}

/// A kind that a CRD defines.
#[derive(Clone, Debug)]
struct Custom {
    crd: Arc<Crd>,
    version: Arc<Version>,
}

impl Custom {
    fn resource(&self) -> KindResource<'_> {
        KindResource {
            plural: self.crd.plural.as_str().into(),
            namespaced: self.crd.namespaced,
            has_status: self.version.has_status,
            minors: ALL_MINORS,
        }
    }
}

impl Kinds {
    /// Creates a table of the recorded kinds.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a table of the recorded kinds, with types that replace the recorded ones.
    pub fn with_types(types: Types) -> Self {
        Self { types: Some(Arc::new(types)), ..Self::default() }
    }

    /// Returns the types of a kind that is not one of a CRD.
    pub fn types(&self, kind: (&str, &str, &str)) -> &Types {
        self.given(kind).unwrap_or_else(|| Types::recorded())
    }

    /// Returns whether the types of a kind are those of an API server of this minor.
    pub fn has_types_of(&self, minor: u8, kind: (&str, &str, &str)) -> bool {
        minor == RECORDED || self.given(kind).is_some()
    }

    /// Returns the given types of a kind of Kubernetes. CRDs define the kinds of Karmada, and their decoder is another one.
    fn given(&self, kind: (&str, &str, &str)) -> Option<&Types> {
        let types = self.types.as_deref().filter(|types| types.has(kind))?;
        is_of_kubernetes(kind.0).then_some(types)
    }

    /// Adds the kind of a CRD in each version that it serves.
    pub fn with_crd(&mut self, crd: Crd) {
        let crd = Arc::new(crd);
        for version in crd.versions.iter().filter(|version| version.served) {
            let key = (crd.group.clone().into(), version.name.clone().into(), crd.kind.clone().into());
            self.custom.insert(key, Custom { crd: Arc::clone(&crd), version: Arc::clone(version) });
        }
    }

    /// Returns the resource of a kind.
    pub fn lookup(&self, group: &str, version: &str, kind: &str) -> Option<KindResource<'_>> {
        self.custom(group, version, kind).map(Custom::resource).or_else(|| lookup(group, version, kind))
    }

    /// Returns the CRD that defines a kind, and the version.
    pub fn crd(&self, group: &str, version: &str, kind: &str) -> Option<(&Crd, &Version)> {
        self.custom(group, version, kind).map(|custom| (&*custom.crd, &*custom.version))
    }

    fn custom(&self, group: &str, version: &str, kind: &str) -> Option<&Custom> {
        let key = (group.to_owned().into(), version.to_owned().into(), kind.to_owned().into());
        self.custom.get(&key)
    }

    /// Returns all kinds with the minors that serve them.
    fn all(&self) -> impl Iterator<Item = (&KindKey<'static>, RangeInclusive<u8>)> {
        let custom = self.custom.keys().map(|key| (key, ALL_MINORS));
        custom.chain(TABLE.iter().map(|(key, resource)| (key, resource.minors.clone())))
    }

    /// Returns whether a resource is known to be served in one version only. `*` stands for all resources of the group.
    pub fn has_one_version(&self, group: &str, plural: &str) -> bool {
        let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let custom = self.custom.iter().map(|(key, custom)| (key, custom.crd.plural.as_str()));
        let built_in = TABLE.iter().map(|(key, resource)| (key, resource.plural.as_ref()));
        for ((of, version, _), known) in custom.chain(built_in) {
            if of == group && (plural == "*" || known == plural) {
                versions.entry(known).or_default().insert(version);
            }
        }
        !versions.is_empty() && versions.values().all(|versions| versions.len() == 1)
    }

    /// Returns the kinds of a group that an API server of a minor serves.
    pub fn of_group(&self, group: &str, minor: u8) -> Vec<&str> {
        let of_group = self.all().filter(|((of, _, _), minors)| of == group && minors.contains(&minor));
        of_group.map(|((_, _, kind), _)| kind.as_ref()).collect()
    }

    /// Returns the kinds of this name that an API server of a minor serves, in any group: `apps/v1 Deployment`. The case of
    /// letters does not count, so that an error about an unknown kind can suggest them.
    pub fn like(&self, kind: &str, minor: u8) -> Vec<String> {
        let same = self
            .all()
            .filter(|((_, _, known), minors)| known.eq_ignore_ascii_case(kind) && minors.contains(&minor));
        same.map(|((group, version, kind), _)| match group.as_ref() {
            "" => format!("{version} {kind}"),
            group => format!("{group}/{version} {kind}"),
        })
        .collect()
    }
}

#[cfg(test)]
mod tests;
