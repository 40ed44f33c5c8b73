//! The object to delete, and what the review and the configuration say about it.

use std::sync::OnceLock;
use std::time::SystemTime;

use admission::Cause;

use super::config::Config;
use super::in_use::Rule;
use super::karmada::KarmadaPart;
use super::queries::ResourceQuery;
use super::target::{DeletionKind, Target};
use crate::overrides::Override;

/// The subject of a decision: the object, and all that is known before facts are read.
#[derive(Debug, Clone)]
pub(super) struct Case<'c> {
    /// The configuration of the guard.
    pub(super) config: &'c Config,
    /// The object to delete.
    pub(super) target: &'c Target,
    /// The time of the decision.
    pub(super) now: SystemTime,
    /// The part of Karmada that the object is.
    pub(super) part: Option<KarmadaPart<'c>>,
    /// The override in its annotations.
    pub(super) current_override: Override,
    /// Whether the guard protects the object.
    pub(super) is_selected: bool,
    /// The in-use rules that protect it.
    pub(super) rules: Vec<&'c Rule>,
    /// The Lists of these rules, which are the same in each cluster.
    lists: OnceLock<Result<Vec<ResourceQuery>, Cause>>,
}

impl<'c> Case<'c> {
    /// Judges the object of a review.
    pub(super) fn new(config: &'c Config, target: &'c Target, now: SystemTime) -> Self {
        let part = KarmadaPart::of(config, target);
        let current_override = target.find_override(config.overrides, now);
        let Target { subject, labels, .. } = target;
        let (rules, is_selected) = match &subject.kind {
            DeletionKind::Namespace | DeletionKind::Crd => (Vec::new(), config.selects(labels)),
            DeletionKind::InUse(kind) => {
                let protects = |rule: &&Rule| rule.selects(&subject.namespace, labels);
                let rules: Vec<_> = kind.rules.iter().filter(protects).collect();
                let is_selected = !rules.is_empty();
                (rules, is_selected)
            }
        };
        Self { config, target, now, part, current_override, is_selected, rules, lists: OnceLock::new() }
    }

    /// Whether other clusters than the local one decide.
    pub(super) fn reads_fleet(&self) -> bool {
        match self.target.subject.kind {
            DeletionKind::Namespace | DeletionKind::Crd => true,
            DeletionKind::InUse(_) => self.rules.iter().flat_map(|rule| &rule.used_by).any(|by| !by.is_local),
        }
    }

    /// Returns the Lists of the in-use rules that protect the object.
    pub(super) fn queries(&self) -> Result<&[ResourceQuery], Cause> {
        let lists = self.lists.get_or_init(|| {
            let object = self.target.used_object();
            let lists: Result<Vec<_>, Cause> = self.rules.iter().map(|rule| rule.queries(&object)).collect();
            Ok(lists?.into_iter().flatten().collect())
        });
        lists.as_deref().map_err(Cause::clone)
    }

    /// Whether it is a CRD whose objects Durward isn't configured to read.
    pub(super) fn is_unreadable(&self) -> bool {
        self.target.subject.kind == DeletionKind::Crd
            && !self.config.api_groups.cover(self.target.subject.group())
    }

    /// Whether clusters are read. Otherwise, only the list of the fleet decides, about a part of Karmada.
    pub(super) fn reads_clusters(&self) -> bool {
        self.is_selected && !self.is_unreadable()
    }
}
