//! The decision, pure: what the request alone decides, what the metadata of the stored object decides, and what the facts decide.
//!
//! [`open`] rules by the request alone. [`by_metadata`] rules by the stored object, without reading any member cluster. [`close`]
//! rules with the facts. A deletion is allowed only if every cluster of the fleet is in the facts. A cluster with unknown findings
//! makes the ruling Unknown unless it is acknowledged.

use std::time::SystemTime;

use admission::{Cause, Request, Ruling, Verdict};

use super::config::Config;
use super::facts::{ClusterFacts, Facts};
use super::findings::{ClusterFindings, UsageState};
use super::karmada::{KarmadaPart, Protection};
use super::messages;
use super::summary::FleetSummary;
use super::target::{DeletionKind, Target, TargetField};
use crate::exempt;
use crate::memory::charge_parsed;
use crate::overrides::Override;

/// The next step of a review.
#[derive(Debug)]
pub(super) enum Next {
    /// The metadata of the object decides.
    Rule(Box<Ruling>),
    /// The facts decide.
    ReadFacts {
        /// Whether only the list of the fleet decides, because the target is a part of Karmada that is not checked otherwise.
        list_only: bool,
    },
}

impl From<Ruling> for Next {
    fn from(ruling: Ruling) -> Self {
        Self::Rule(Box::new(ruling))
    }
}

/// Decides by the request alone, or returns the object to delete.
pub(super) fn open(config: &Config, request: &Request<'_>) -> Result<Target, Box<Ruling>> {
    let kind = DeletionKind::of(request).ok_or_else(|| Box::new(Ruling::allow()))?;
    let objects = [&request.object, &request.old_object].into_iter().flatten();
    let texts = objects
        .flat_map(|object| [TargetField::Labels, TargetField::Annotations].map(|field| object.field(field)));
    let target = charge_parsed(request, texts.flatten()).and_then(|()| Target::read(kind, request));
    let target = target.map_err(|why| Box::new(Ruling::unknown(why)))?;
    match config.common_config.exempt.of(request) {
        // A CRD has no namespace, even if the request has one.
        Some(key) if kind == DeletionKind::Namespace || key != exempt::NAMESPACES => {
            Err(Box::new(exempt::ruling(key)))
        }
        _ => Ok(target),
    }
}

/// Decides by the metadata of the stored object, if that is possible.
pub(super) fn by_metadata(config: &Config, target: &Target, now: SystemTime) -> Next {
    if target.deleting {
        return Ruling::allow().audit("allowed", "already being deleted").into();
    }
    if let Override::Active { reason, until } = target.find_override(config.overrides, now) {
        return messages::overridden(target, &reason, &until).into();
    }
    let is_selected = config.selects(&target.labels);
    let unreadable = unreadable_group(config, target, now);
    if KarmadaPart::of(config, target).is_some() {
        let list_only = !is_selected || unreadable.is_some();
        return Next::ReadFacts { list_only };
    }
    match (is_selected, unreadable) {
        (false, _) => not_selected().unguarded().into(),
        (true, Some(ruling)) => ruling.into(),
        (true, None) => Next::ReadFacts { list_only: false },
    }
}

/// Returns the ruling if the stored object could not be read, or is not the one of the review.
pub(super) fn unidentified(config: &Config, target: &Target, why: Cause, now: SystemTime) -> Ruling {
    let local = ClusterFacts::local(ClusterFindings::unknown(why).on_one_line());
    let summary = FleetSummary { clusters: 1, unknown: vec![&local], ..FleetSummary::default() };
    unknown(config, target, &summary, now)
}

fn not_selected() -> Ruling {
    Ruling::allow().audit("allowed", "not labeled durward.dev/guard=deletion")
}

/// Decides with the facts.
pub(super) fn close(config: &Config, target: &Target, facts: &Facts) -> Ruling {
    if let Some(ruling) = karmada_part(config, target, facts) {
        return ruling;
    }
    // Without the label, facts are read only for parts of Karmada. The list of the fleet proves that the fleet does not need
    // this part only if the list is from the cluster that sent the review.
    let is_confirmed = |cluster: &ClusterFacts| cluster.is_local() && cluster.findings.unknown.is_empty();
    match config.selects(&target.labels) {
        true => selected(config, target, facts),
        false if facts.clusters.iter().any(is_confirmed) => not_selected(),
        false => by_clusters(config, target, facts),
    }
}

/// Decides with the facts as if the guard protected the target. For commands.
pub(super) fn close_any(config: &Config, target: &Target, facts: &Facts) -> Ruling {
    karmada_part(config, target, facts).unwrap_or_else(|| selected(config, target, facts))
}

/// Decides if the target is a part of Karmada that the fleet needs or may need.
fn karmada_part(config: &Config, target: &Target, facts: &Facts) -> Option<Ruling> {
    let part = KarmadaPart::of(config, target)?;
    match &facts.members {
        Ok(members) => match part.protection(members) {
            Protection::Required => Some(messages::karmada_part(config, target, part, members, facts.now)),
            Protection::None | Protection::LocalOnly => None,
        },
        Err(_) => Some(by_clusters(config, target, facts)),
    }
}

fn selected(config: &Config, target: &Target, facts: &Facts) -> Ruling {
    unreadable_group(config, target, facts.now).unwrap_or_else(|| by_clusters(config, target, facts))
}

/// Returns the ruling for a CRD whose objects Durward isn't configured to read.
fn unreadable_group(config: &Config, target: &Target, now: SystemTime) -> Option<Ruling> {
    let is_unreadable = target.kind == DeletionKind::Crd && !config.api_groups.cover(target.group());
    is_unreadable.then(|| messages::unreadable_group(config, target, now))
}

fn by_clusters(config: &Config, target: &Target, facts: &Facts) -> Ruling {
    let summary = FleetSummary::of(config, target, facts);
    let ruling = match summary.state() {
        UsageState::InUse => Ruling::deny(messages::in_use(config, target, &summary, facts.now)),
        UsageState::Unknown => return unknown(config, target, &summary, facts.now),
        UsageState::Empty => Ruling::allow(),
    };
    messages::annotate(config, target, &summary, ruling)
}

fn unknown(config: &Config, target: &Target, summary: &FleetSummary<'_>, now: SystemTime) -> Ruling {
    let ruling = Ruling::new(Verdict::Unknown(messages::causes(config, summary)))
        .refuse_with(messages::unknown(config, target, summary, now));
    messages::annotate(config, target, summary, ruling)
}

#[cfg(test)]
mod tests;
