//! The summary of the facts: the clusters by their meaning for the deletion.

use std::collections::HashSet;
use std::time::Duration;

use admission::{Cause, PolicyEvaluation, PolicyOutcome};

use super::acknowledge::{self, Acknowledgement};
use super::case::Case;
use super::cluster_facts::{ClusterFacts, UsageState};
use super::facts::Facts;
use super::in_use::Rule;
use super::karmada::KarmadaPart;
use cluster::cause;
use cluster::fleet::{Cluster, Fleet};

/// The clusters of the facts by their meaning for the deletion.
#[derive(Debug, Default)]
pub(super) struct FleetSummary<'f> {
    /// The number of clusters that were read, the local one included.
    pub(super) clusters: usize,
    /// The number of member clusters that were read.
    pub(super) members: usize,
    /// Clusters where something is in use.
    pub(super) in_use: Vec<&'f ClusterFacts>,
    /// Clusters with unknown facts and without an acknowledgement.
    pub(super) unknown: Vec<&'f ClusterFacts>,
    /// Clusters with unknown facts and an acknowledgement.
    pub(super) acknowledged: Vec<(&'f ClusterFacts, Acknowledgement)>,
    /// The reason why the facts may lack clusters.
    pub(super) incomplete: Option<Cause>,
    /// The code of the failure to list the fleet.
    pub(super) list_failure: Option<&'static str>,
    /// Whether there is a fleet without clusters.
    pub(super) is_empty_fleet: bool,
    /// The reasons why acknowledgements do not count.
    pub(super) invalid_acknowledgements: Vec<String>,
}

impl<'f> FleetSummary<'f> {
    /// Sorts the clusters.
    pub(super) fn of(case: &Case<'_>, facts: &'f Facts) -> Self {
        let mut summary = Self {
            clusters: facts.clusters.len(),
            members: facts.clusters.iter().filter(|cluster| !cluster.is_local()).count(),
            incomplete: incomplete(facts),
            list_failure: facts.members.as_ref().err().map(|why| why.code),
            ..Self::default()
        };
        for cluster in &facts.clusters {
            match cluster.state() {
                UsageState::Empty => {}
                UsageState::InUse => summary.in_use.push(cluster),
                UsageState::Unknown => summary.add_unknown(case, cluster),
            }
        }
        // For an execution namespace no other cluster is read.
        let is_local_only = matches!(case.part, Some(KarmadaPart::ExecutionSpace(_))) || !case.reads_fleet();
        let has_no_members = facts.members.as_ref().is_ok_and(|members| members.is_empty());
        summary.is_empty_fleet = case.config.fleet != Fleet::None && !is_local_only && has_no_members;
        summary
    }

    fn add_unknown(&mut self, case: &Case<'_>, cluster: &'f ClusterFacts) {
        let covers = acknowledge::covers(cluster);
        match acknowledge::find(case.config, &cluster.member, case.now).filter(|_| !cluster.is_local()) {
            Some(Ok(acknowledgement)) => match covers {
                Ok(()) => return self.acknowledged.push((cluster, acknowledgement)),
                Err(what) => {
                    let name = cluster.member.cluster.name();
                    self.invalid_acknowledgements.push(format!("{name}: it does not cover {what}"));
                }
            },
            Some(Err(why)) if covers.is_ok() => self.invalid_acknowledgements.push(why),
            Some(Err(_)) | None => {}
        }
        self.unknown.push(cluster);
    }

    /// Returns the outcomes of the in-use rules, for metrics.
    pub(super) fn outcomes(&self, case: &Case<'_>) -> Option<PolicyEvaluation> {
        let is_unknown = self.state() == UsageState::Unknown;
        let outcome = |rule: &&Rule| {
            let denies = self.in_use.iter().any(|cluster| cluster.rules.contains(&rule.name));
            let outcome = match (denies, is_unknown) {
                (true, _) => "deny",
                (false, true) => "unknown",
                (false, false) => "allow",
            };
            PolicyOutcome { policy: rule.name.to_string(), outcome }
        };
        let outcomes: Vec<_> = case.rules.iter().map(outcome).collect();
        (!outcomes.is_empty()).then_some(PolicyEvaluation { outcomes, time: Duration::ZERO })
    }

    /// Returns the meaning of all clusters together.
    pub(super) fn state(&self) -> UsageState {
        let is_unknown = !self.unknown.is_empty() || self.incomplete.is_some();
        UsageState::of(!self.in_use.is_empty(), is_unknown)
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
        1 => "1 cluster was not checked".to_owned(),
        more => format!("{more} clusters were not checked"),
    };
    Some(Cause::new(cause::OVERLOADED, text))
}
