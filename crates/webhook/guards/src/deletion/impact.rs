//! The impact of a deletion, cluster by cluster: the facts and the decision of a review, without a deletion.

use std::time::{Duration, Instant};

use admission::{Cause, Verdict};
use serde::Serialize;

use super::acknowledge::Acknowledgement;
use super::case::Case;
use super::cluster_facts::{ClusterFacts, ObjectCount, UsageState};
use super::decide;
use super::facts::{Facts, FactsReader, ReadProgress, half};
use super::messages;
use super::summary::FleetSummary;
use super::survey::Survey;
use super::target::{DeletionKind, DeletionSubject, Target};

use ::config::time;
use cluster::Clients;
use cluster::fleet::{Cluster, GetQuery, MembersResult, Part};

/// The impact of a deletion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Impact {
    /// `Namespace`, `CustomResourceDefinition`, or the resource of an in-use rule: `configmaps`.
    pub kind: String,
    /// The namespace, if it has one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The time of the facts, RFC 3339.
    pub time: String,
    /// Whether the object exists in the local cluster; `None` if this could not be read.
    pub exists: Option<bool>,
    /// `allow`, `deny` or `unknown`: the verdict if the guard protected the object and the user were not exempt.
    pub verdict: &'static str,
    /// The guard's message, unless the verdict is `allow`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The warnings of the ruling.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The reasons why clusters may be missing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub incomplete: Vec<UnknownReason>,
    /// The clusters that were read, the local one first.
    pub clusters: Vec<ClusterImpact>,
}

/// The impact on one cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterImpact {
    /// The name; `(local)` for the local cluster.
    pub cluster: String,
    /// The meaning for the deletion.
    pub state: UsageState,
    /// The findings for users: `3 pods (web-0, …), 1 PVC (data)`, or the reason why they are unknown; empty for an empty cluster.
    pub summary: String,
    /// Objects that the deletion would delete, or that use the deleted one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub in_use: Vec<ObjectCount>,
    /// The reasons for what could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unchecked: Vec<UnknownReason>,
    /// The acknowledgement that replaces the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<Acknowledgement>,
}

/// A reason why something could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnknownReason {
    /// A code of [`cluster::cause::ALL`].
    pub cause: &'static str,
    /// The text for users.
    pub text: String,
}

impl Survey {
    /// Reads all clusters before the deadline. Calls `progress` after each member.
    pub async fn impact(
        &self,
        clients: &Clients,
        subject: DeletionSubject,
        deadline: Instant,
        progress: &(dyn Fn(ReadProgress<'_>) + Sync),
    ) -> Impact {
        let (target, exists) = self.target(clients, subject, deadline).await;
        let reader = FactsReader { clients, config: &self.config, progress };
        // As if the guard protected the object.
        let mut case = Case::new(&self.config, &target, clients.context.now());
        case.is_selected = true;
        if let (DeletionKind::InUse(kind), None | Some(false)) = (&target.subject.kind, exists) {
            // Its labels are not known.
            case.rules = kind.rules.iter().collect();
        }
        let facts = reader.read(&case, deadline.into(), true).await;
        self.report(&case, exists, &facts)
    }

    /// Reads every object by which in-use rules can find a use, in all namespaces: for snapshots.
    pub async fn read_uses(&self, clients: &Clients, timeout: Duration) {
        let reader = FactsReader { clients, config: &self.config, progress: &|_| {} };
        for kind in &self.config.in_use.kinds {
            let target = Target::named(DeletionSubject::cluster_wide(DeletionKind::InUse(kind.clone()), ""));
            let mut case = Case::new(&self.config, &target, clients.context.now());
            case.rules = kind.rules.iter().collect();
            reader.read(&case, (Instant::now() + timeout).into(), true).await;
        }
    }

    /// Returns the list of the fleet as reviews read it.
    pub async fn members(&self, clients: &Clients, deadline: Instant) -> MembersResult {
        FactsReader { clients, config: &self.config, progress: &|_| {} }.members(deadline.into()).await
    }

    /// Reads the target in the local cluster. Without it, the target has no labels.
    async fn target(
        &self,
        clients: &Clients,
        subject: DeletionSubject,
        deadline: Instant,
    ) -> (Target, Option<bool>) {
        let part = if subject.kind.needs_whole() { Part::Whole } else { Part::Metadata };
        let mut target = Target::named(subject);
        if target.subject.kind.is_secret() {
            return (target, None);
        }
        let query = GetQuery { address: target.address(), part };
        let soon = half(deadline.into()).into_std();
        let found = clients.reader.get_object(&Cluster::Local, query, soon).await;
        let exists = found.as_ref().ok().map(Option::is_some);
        target.set_metadata(found.ok().flatten());
        (target, exists)
    }

    fn report(&self, case: &Case<'_>, exists: Option<bool>, facts: &Facts) -> Impact {
        let target = case.target;
        let ruling = decide::close(case, facts);
        let summary = FleetSummary::of(case, facts);
        let (verdict, denial) = match &ruling.verdict {
            Verdict::Allow | Verdict::Mutate(_) => ("allow", None),
            Verdict::Deny(denial) => ("deny", Some(denial)),
            Verdict::Unknown(_) => ("unknown", ruling.refusal.as_ref()),
        };
        // For a part of Karmada no cluster is read on purpose.
        let incomplete = summary.incomplete.iter().filter(|_| case.part.is_none() || facts.members.is_err());
        Impact {
            kind: match &target.subject.kind {
                DeletionKind::Namespace => "Namespace".to_owned(),
                DeletionKind::Crd => "CustomResourceDefinition".to_owned(),
                DeletionKind::InUse(kind) => kind.to_string(),
            },
            namespace: target.subject.namespace.clone(),
            name: target.subject.name.clone(),
            time: time::format(case.now),
            exists,
            verdict,
            message: denial.map(|denial| denial.message.clone()),
            warnings: ruling.warnings.iter().map(str::to_owned).collect(),
            incomplete: incomplete.map(UnknownReason::of).collect(),
            clusters: facts.clusters.iter().map(|cluster| self.cluster(cluster, &summary)).collect(),
        }
    }

    fn cluster(&self, cluster: &ClusterFacts, summary: &FleetSummary<'_>) -> ClusterImpact {
        let mut in_use = cluster.in_use.clone();
        if !self.config.show_object_names {
            for count in &mut in_use {
                count.names.clear();
            }
        }
        let mut acknowledged = summary.acknowledged.iter();
        let acknowledged = acknowledged.find(|(of, _)| of.member.cluster == cluster.member.cluster);
        let is_empty = cluster.state() == UsageState::Empty;
        ClusterImpact {
            cluster: cluster.member.cluster.name().to_owned(),
            state: cluster.state(),
            summary: if is_empty { String::new() } else { messages::findings(&self.config, cluster) },
            in_use,
            unchecked: cluster.unknown.iter().map(UnknownReason::of).collect(),
            acknowledged: acknowledged.map(|(_, acknowledgement)| acknowledgement.clone()),
        }
    }
}

impl UnknownReason {
    fn of(cause: &Cause) -> Self {
        Self { cause: cause.code, text: cause.text.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::queries::Noun;
    use super::*;

    #[test]
    fn serializes_only_what_was_found() {
        let impact = ClusterImpact {
            cluster: "m1".into(),
            state: UsageState::InUse,
            summary: "500+ pods (a, …)".into(),
            in_use: vec![ObjectCount {
                noun: Noun { one: "pod".into(), many: "pods".into() },
                objects: 500,
                more: true,
                names: vec!["a".into()],
            }],
            unchecked: vec![],
            acknowledged: None,
        };
        assert_eq!(
            serde_json::to_value(&impact).unwrap(),
            serde_json::json!({"cluster": "m1", "state": "inUse", "summary": "500+ pods (a, …)",
                "inUse": [{"what": "pods", "count": 500, "more": true, "names": ["a"]}]})
        );
    }
}
