//! The facts of one cluster: what is in use there, and what could not be read.

use std::collections::BTreeSet;
use std::sync::Arc;

use admission::{Cause, one_line};
use serde::{Serialize, Serializer};

use super::queries::Noun;
use cluster::fleet::{Cluster, FleetMember};
use cluster::{Metadata, cause};

/// How many names each count keeps.
pub(super) const MAX_NAMES: usize = 5;

/// The facts of one cluster. By default, those of the local cluster if it is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClusterFacts {
    /// The cluster, with the metadata of its Cluster object; empty for the local cluster.
    pub(super) member: FleetMember,
    /// Objects that the deletion would delete, or that use the deleted one.
    pub(super) in_use: Vec<ObjectCount>,
    /// The reasons for what could not be read.
    pub(super) unknown: Vec<Cause>,
    /// Whether a List failed after its first page: the cluster is reachable, and the rest of the List is unread.
    pub(super) is_interrupted: bool,
    /// The in-use rules that found an object.
    pub(super) rules: BTreeSet<Arc<str>>,
}

/// A number of objects of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ObjectCount {
    /// The kind's name in messages; in JSON the plural.
    #[serde(rename = "what", serialize_with = "plural")]
    pub(super) noun: Noun,
    /// The number of objects that were read.
    #[serde(rename = "count")]
    pub(super) objects: usize,
    /// Whether there may be more.
    pub(super) more: bool,
    /// The first names, at most [`MAX_NAMES`].
    pub(super) names: Vec<String>,
}

fn plural<S: Serializer>(noun: &Noun, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&noun.many)
}

/// The meaning of a cluster's facts for a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum UsageState {
    /// Everything was read, and nothing is in use.
    Empty,
    /// Something is in use.
    InUse,
    /// Not everything could be read, and nothing that was read is in use.
    Unknown,
}

impl UsageState {
    /// Derives the state. One object in use is enough for a denial; only complete data proves that nothing is in use.
    pub(super) fn of(is_in_use: bool, is_unknown: bool) -> Self {
        match (is_in_use, is_unknown) {
            (true, _) => Self::InUse,
            (false, true) => Self::Unknown,
            (false, false) => Self::Empty,
        }
    }
}

/// The reason of a cause. Its name is the code in `details.causes`. The page of reason codes is generated from these lines, with an
/// example from `cases`, or from here if no case has the first line of a denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// The cluster could not be read, and that is acknowledged.
    /// Example: no answer in 1.5 s; acknowledged until 2026-12-01T00:00:00Z
    Acknowledged,
    /// Something is in use in the cluster.
    InUse,
    /// The object is a part of Karmada that the fleet needs.
    KarmadasOwn,
    /// Durward could not check the cluster or the fleet, for the reason in the message.
    Unknown,
}

impl Default for ClusterFacts {
    fn default() -> Self {
        let member = FleetMember { cluster: Cluster::Local, metadata: Metadata::default() };
        Self {
            member,
            in_use: Vec::new(),
            unknown: Vec::new(),
            is_interrupted: false,
            rules: BTreeSet::new(),
        }
    }
}

impl ClusterFacts {
    /// Whether it is the local cluster.
    pub(super) fn is_local(&self) -> bool {
        self.member.cluster == Cluster::Local
    }

    /// Returns the facts if nothing could be read.
    pub(super) fn unknown(cause: Cause) -> Self {
        Self { unknown: vec![cause], ..Self::default() }
    }

    /// Removes the names of objects.
    pub(super) fn without_names(mut self) -> Self {
        self.in_use.iter_mut().for_each(|count| count.names.clear());
        self
    }

    /// Removes line breaks from the texts of the cluster: a name with one could forge a line of the denial.
    pub(super) fn on_one_line(mut self) -> Self {
        for name in self.in_use.iter_mut().flat_map(|count| &mut count.names) {
            *name = one_line(name);
        }
        for cause in &mut self.unknown {
            cause.text = one_line(&cause.text);
        }
        self
    }

    /// Adds a reason, once.
    pub(super) fn and_unknown(mut self, cause: Cause) -> Self {
        if !self.unknown.contains(&cause) {
            self.unknown.push(cause);
        }
        self
    }

    /// Whether another attempt can find more, because Durward itself lacked capacity.
    pub(super) fn is_overloaded(&self) -> bool {
        self.in_use.is_empty() && self.unknown.iter().any(|cause| cause.code == cause::OVERLOADED)
    }

    /// Returns the meaning for a deletion.
    pub(super) fn state(&self) -> UsageState {
        UsageState::of(!self.in_use.is_empty(), !self.unknown.is_empty())
    }
}

impl ObjectCount {
    /// Counts objects by their names; `None` for no object.
    pub(super) fn of(noun: &Noun, more: bool, mut names: Vec<String>) -> Option<Self> {
        let objects = names.len();
        names.truncate(MAX_NAMES);
        (objects > 0).then(|| Self { noun: noun.clone(), objects, more, names })
    }

    /// Returns what the objects are, in the plural.
    pub fn what(&self) -> &str {
        &self.noun.many
    }

    /// Returns how many objects were read.
    pub fn objects(&self) -> usize {
        self.objects
    }

    /// Returns the number for users: `3`, or `500+` if there may be more.
    pub fn number(&self) -> String {
        format!("{}{}", self.objects, if self.more { "+" } else { "" })
    }

    /// Returns the text for users: `3 pods`, `500+ PVCs`.
    pub(super) fn text(&self) -> String {
        let noun = if self.objects == 1 && !self.more { &self.noun.one } else { &self.noun.many };
        format!("{} {noun}", self.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_an_incomplete_count_with_a_plus() {
        let of = |names: &[&str], more| {
            let names = names.iter().map(|&name| name.to_owned()).collect();
            ObjectCount::of(&Noun::OBJECT, more, names).map(|count| count.text())
        };
        assert_eq!(of(&[], true), None);
        assert_eq!(of(&["a"], false).unwrap(), "1 object");
        assert_eq!(of(&["a"], true).unwrap(), "1+ objects");
        assert_eq!(of(&["a", "b"], false).unwrap(), "2 objects");
    }

    #[test]
    fn in_use_outweighs_unknown() {
        let in_use = vec![ObjectCount::of(&Noun::OBJECT, false, vec!["a".to_owned()]).unwrap()];
        let unknown = vec![Cause::new("timeout", "no answer")];
        let mut facts = ClusterFacts { in_use, unknown, ..ClusterFacts::default() };
        assert_eq!(facts.state(), UsageState::InUse);
        facts.in_use.clear();
        assert_eq!(facts.state(), UsageState::Unknown);
        facts.unknown.clear();
        assert_eq!(facts.state(), UsageState::Empty);
    }
}
