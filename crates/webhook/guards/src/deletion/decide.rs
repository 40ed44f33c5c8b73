//! The decision and its ruling, without reads: by the request, by the metadata of the stored object, and by the facts.
//!
//! [`open`] rules by the request alone. [`by_metadata`] rules by the stored object, without reading any member cluster. [`close`]
//! rules with the facts. A deletion is allowed only if every cluster of the fleet is in the facts. A cluster that could not be read
//! makes the ruling Unknown unless it is acknowledged.

use admission::{Cause, Request, ReviewedObject, Ruling, Verdict};

use super::case::Case;
use super::cluster_facts::{ClusterFacts, UsageState};
use super::config::Config;
use super::facts::Facts;
use super::messages;
use super::summary::FleetSummary;
use super::target::{DeletionKind, Target, TargetField};
use crate::exempt;
use crate::memory::charge_parsed;
use crate::overrides::Override;

/// Decides by the request alone, or returns the object to delete.
pub(super) fn open(config: &Config, request: &Request<'_>) -> Result<Target, Box<Ruling>> {
    let kind = DeletionKind::of(config, request).ok_or_else(|| Box::new(Ruling::allow()))?;
    let objects = [&request.object, &request.old_object].into_iter().flatten();
    let texts = objects
        .flat_map(|object| [TargetField::Labels, TargetField::Annotations].map(|field| object.field(field)));
    let parsed = charge_parsed(request, texts.flatten()).and_then(|()| charge_whole(&kind, request));
    let target = parsed.and_then(|()| Target::read(kind, request));
    let target = target.map_err(|why| Box::new(Ruling::unknown(why)))?;
    let exempt = match target.subject.kind {
        DeletionKind::Namespace => config.common_config.exempt.of(request),
        // A CRD has no namespace, even if the request has one.
        DeletionKind::Crd => config.common_config.exempt.of(request).filter(|key| *key != exempt::NAMESPACES),
        DeletionKind::InUse(_) => {
            // On Karmada, Durward's namespace is in another cluster.
            let namespace = if config.is_karmada() { "" } else { &target.subject.namespace };
            config.common_config.exempt_by(request, namespace)
        }
    };
    match exempt {
        Some(key) => Err(Box::new(exempt::ruling(key))),
        None => Ok(target),
    }
}

/// Reserves memory for a whole object that expressions read.
fn charge_whole(kind: &DeletionKind, request: &Request<'_>) -> Result<(), Cause> {
    let is_read = kind.needs_whole();
    charge_parsed(request, request.old_object.iter().filter(|_| is_read).map(ReviewedObject::raw))
}

/// Decides by the metadata of the stored object. Without a ruling, the facts decide.
pub(super) fn by_metadata(case: &Case<'_>) -> Option<Ruling> {
    if case.target.deleting {
        return Some(Ruling::allow().audit("allowed", "already being deleted"));
    }
    if let Override::Active { reason, until } = &case.current_override {
        return Some(messages::overridden(case.target, reason, until));
    }
    match case.part {
        Some(_) => None,
        None if !case.is_selected => Some(not_selected(case).unguarded()),
        None => case.is_unreadable().then(|| messages::unreadable_group(case)),
    }
}

/// Returns the ruling if the stored object could not be read, or is not the one of the review.
pub(super) fn unidentified(case: &Case<'_>, why: Cause) -> Ruling {
    let local = ClusterFacts::unknown(why).on_one_line();
    let summary = FleetSummary { clusters: 1, unknown: vec![&local], ..FleetSummary::default() };
    unknown(case, &summary)
}

fn not_selected(case: &Case<'_>) -> Ruling {
    Ruling::allow().audit(
        "allowed",
        match case.target.subject.kind {
            DeletionKind::Namespace | DeletionKind::Crd => "not labeled durward.dev/guard=deletion",
            DeletionKind::InUse(_) => "no in-use rule selects it",
        },
    )
}

/// Decides with the facts.
pub(super) fn close(case: &Case<'_>, facts: &Facts) -> Ruling {
    // Without the label, facts are read only for parts of Karmada. The list of the fleet proves that the fleet does not need
    // this part only if the list is from the cluster that sent the review.
    let is_confirmed = |cluster: &ClusterFacts| cluster.is_local() && cluster.unknown.is_empty();
    match (case.part, &facts.members) {
        (Some(part), Ok(members)) if part.is_needed(members) => messages::karmada_part(case, part, members),
        (Some(_), Err(_)) => by_clusters(case, facts),
        _ if case.is_selected && case.is_unreadable() => messages::unreadable_group(case),
        _ if !case.is_selected && facts.clusters.iter().any(is_confirmed) => not_selected(case),
        _ => by_clusters(case, facts),
    }
}

fn by_clusters(case: &Case<'_>, facts: &Facts) -> Ruling {
    let summary = FleetSummary::of(case, facts);
    let ruling = match summary.state() {
        UsageState::InUse => Ruling::deny(messages::in_use(case, &summary)),
        UsageState::Unknown => return unknown(case, &summary),
        UsageState::Empty => Ruling::allow(),
    };
    messages::annotate(case, &summary, Ruling { evaluation: summary.outcomes(case), ..ruling })
}

fn unknown(case: &Case<'_>, summary: &FleetSummary<'_>) -> Ruling {
    let ruling = Ruling::new(Verdict::Unknown(messages::causes(case.config, summary)))
        .refuse_with(messages::unknown(case, summary));
    messages::annotate(case, summary, Ruling { evaluation: summary.outcomes(case), ..ruling })
}

#[cfg(test)]
mod tests;
