//! The decision, pure: what the request alone decides, and what the facts decide.
//!
//! [`open`] rules without reading any cluster, or returns what to read; [`close`] rules with the facts. A deletion is allowed
//! only if every cluster of the fleet is in the facts. A cluster with unknown findings makes the ruling Unknown unless it is
//! acknowledged.

use std::collections::HashSet;
use std::time::SystemTime;

use admission::{Cause, Request, Ruling, Verdict};

use super::acknowledge::{self, Acknowledgement};
use super::config::Config;
use super::facts::{ClusterFacts, Facts};
use super::findings::Finding;
use super::karmada::{KarmadaPart, Protection};
use super::messages;
use super::target::{Kind, Target};
use crate::exempt::Exemption;
use crate::overrides::Override;
use cluster::cause;
use cluster::fleet::{Cluster, Fleet};

/// The next step of a review.
#[derive(Debug)]
pub(super) enum Next {
    /// The request alone decides.
    Rule(Ruling),
    /// The facts decide.
    ReadFacts {
        /// The object to delete.
        target: Target,
        /// Whether only the list of the fleet decides, because the target is a part of Karmada that is not checked otherwise.
        list_only: bool,
    },
}

/// Decides by the request alone, if that is possible.
pub(super) fn open(config: &Config, request: &Request<'_>, now: SystemTime) -> Next {
    let Some(kind) = Kind::of(request) else { return Next::Rule(Ruling::allow()) };
    let target = match Target::read(kind, request) {
        Ok(target) => target,
        Err(cause) => return Next::Rule(Ruling::unknown(cause)),
    };
    if target.deleting {
        return Next::Rule(Ruling::allow().audit("allowed", "it is being deleted already"));
    }
    if let Some(key) = exempt(config, request, &target) {
        return Next::Rule(Ruling::allow().audit("exempt", key));
    }
    if let Override::Active { reason, until } = target.find_override(config.break_glass, now) {
        return Next::Rule(messages::overridden(&target, &reason, &until));
    }
    let is_selected = config.selects(&target.labels);
    let unreadable = unreadable_group(config, &target, now);
    if KarmadaPart::of(config, &target).is_some() {
        let list_only = !is_selected || unreadable.is_some();
        return Next::ReadFacts { target, list_only };
    }
    match (is_selected, unreadable) {
        (false, _) => Next::Rule(not_selected()),
        (true, Some(ruling)) => Next::Rule(ruling),
        (true, None) => Next::ReadFacts { target, list_only: false },
    }
}

fn not_selected() -> Ruling {
    Ruling::allow().audit("allowed", "it is not labelled to be guarded")
}

/// Returns the configuration key that exempts the target.
fn exempt(config: &Config, request: &Request<'_>, target: &Target) -> Option<&'static str> {
    let is_namespace = target.kind == Kind::Namespace;
    match config.common_config.exempt.of(request) {
        // A CRD has no namespace, whatever the request says.
        Exemption::By(key) if is_namespace || key != "exempt.namespaces" => return Some(key),
        Exemption::DependsOnNamespace
            if is_namespace && config.common_config.exempt.selects(&target.labels) =>
        {
            return Some("exempt.namespaceSelector");
        }
        _ => {}
    }
    let is_install = is_namespace && target.name == config.common_config.install_namespace;
    (is_install && !config.is_karmada()).then_some("installNamespace")
}

/// Decides with the facts.
pub(super) fn close(config: &Config, target: &Target, facts: &Facts) -> Ruling {
    if let Some(ruling) = karmada_part(config, target, facts) {
        return ruling;
    }
    // Without the label, facts are read only for parts of Karmada. The list of the fleet says that the fleet does not need this
    // one only if the list is from the cluster that sent the review.
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
    let is_unreadable = target.kind == Kind::Crd && !config.groups.cover(target.group());
    is_unreadable.then(|| messages::unreadable_group(config, target, now))
}

/// The clusters of the facts by their meaning for the deletion.
#[derive(Debug, Default)]
pub(super) struct FleetSummary<'f> {
    /// The number of clusters, the local one included.
    pub(super) clusters: usize,
    /// Clusters where something is in use.
    pub(super) in_use: Vec<&'f ClusterFacts>,
    /// Clusters with unknown findings and without an acknowledgement.
    pub(super) unknown: Vec<&'f ClusterFacts>,
    /// Clusters with unknown findings and an acknowledgement.
    pub(super) acknowledged: Vec<(&'f ClusterFacts, Acknowledgement)>,
    /// Clusters where something would stay.
    pub(super) stays: Vec<&'f ClusterFacts>,
    /// The reason why the facts may lack clusters.
    pub(super) incomplete: Option<Cause>,
    /// The code of the failure to list the fleet.
    pub(super) list_failure: Option<&'static str>,
    /// Whether there is a fleet without clusters.
    pub(super) is_empty_fleet: bool,
    /// The reasons why acknowledgements do not count.
    pub(super) invalid_acknowledgements: Vec<String>,
    /// The reason why the override annotations do not count.
    pub(super) invalid_override: Option<String>,
}

impl<'f> FleetSummary<'f> {
    /// Sorts the clusters.
    pub(super) fn of(config: &Config, target: &Target, facts: &'f Facts) -> Self {
        let mut summary = Self {
            clusters: facts.clusters.len(),
            incomplete: incomplete(facts),
            list_failure: facts.members.as_ref().err().map(|why| why.code),
            ..Self::default()
        };
        for cluster in &facts.clusters {
            match cluster.findings.finding() {
                Finding::Empty => {}
                Finding::InUse => summary.in_use.push(cluster),
                Finding::WouldStay => summary.stays.push(cluster),
                Finding::Unknown => summary.add_unknown(config, cluster, facts.now),
            }
        }
        // For an execution namespace no other cluster is read.
        let is_local_only = matches!(KarmadaPart::of(config, target), Some(KarmadaPart::ExecutionSpace(_)));
        let has_no_members = facts.members.as_ref().is_ok_and(|members| members.is_empty());
        summary.is_empty_fleet = config.fleet != Fleet::None && !is_local_only && has_no_members;
        if let Override::Invalid(why) = target.find_override(config.break_glass, facts.now) {
            summary.invalid_override = Some(why);
        }
        summary
    }

    fn add_unknown(&mut self, config: &Config, cluster: &'f ClusterFacts, now: SystemTime) {
        let covers = acknowledge::covers(&cluster.findings.unknown);
        match acknowledge::find(config, &cluster.member, now).filter(|_| !cluster.is_local()) {
            Some(Ok(acknowledgement)) => match covers {
                Ok(()) => return self.acknowledged.push((cluster, acknowledgement)),
                Err(what) => {
                    let name = cluster.member.cluster.name();
                    let why = format!("the acknowledgement of {name} does not count for {what}");
                    self.invalid_acknowledgements.push(why);
                }
            },
            Some(Err(why)) if covers.is_ok() => self.invalid_acknowledgements.push(why),
            Some(Err(_)) | None => {}
        }
        self.unknown.push(cluster);
    }

    /// Returns the meaning of all clusters together.
    pub(super) fn finding(&self) -> Finding {
        let is_unknown = !self.unknown.is_empty() || self.incomplete.is_some();
        Finding::of(!self.in_use.is_empty(), is_unknown, !self.stays.is_empty())
    }
}

/// Returns the reason why the facts may lack clusters.
fn incomplete(facts: &Facts) -> Option<Cause> {
    let members = match &facts.members {
        Ok(members) => members,
        // The code is the same for every failure: the clusters are not known.
        Err(why) => return Some(Cause::new(cause::STALE_FLEET, why.text.clone())),
    };
    let read: HashSet<_> = facts.clusters.iter().map(|cluster| &cluster.member.cluster).collect();
    let expected = std::iter::once(&Cluster::Local).chain(members.iter().map(|member| &member.cluster));
    let text = match expected.filter(|cluster| !read.contains(cluster)).count() {
        0 => return None,
        1 => "one cluster was not asked".to_owned(),
        more => format!("{more} clusters were not asked"),
    };
    Some(Cause::new(cause::CROWDED, text))
}

fn by_clusters(config: &Config, target: &Target, facts: &Facts) -> Ruling {
    let summary = FleetSummary::of(config, target, facts);
    let ruling = match summary.finding() {
        Finding::InUse => Ruling::deny(messages::in_use(config, target, &summary)),
        Finding::Unknown => Ruling::new(Verdict::Unknown(messages::causes(config, &summary)))
            .refuse_with(messages::unknown(config, target, &summary)),
        Finding::WouldStay | Finding::Empty => Ruling::allow(),
    };
    messages::annotate(config, target, &summary, ruling)
}

#[cfg(test)]
mod tests;
