//! What a deletion would reach, without deleting anything: the same questions and the same decision, told cluster by cluster.

use std::time::Instant;

use admission::{Cause, Verdict};
use serde::Serialize;

use super::config::Config;
use super::decide::{self, Whole};
use super::facts::{Facts, Gathering, Progress, Seen};
use super::own::Own;
use super::owners::Room;
use super::sight::{Count, Finding, Sight};
use super::target::{Subject, Target};
use super::tell;
use ::config::time;
use cluster::fleet::{Cluster, GetQuery, Part};
use cluster::{Address, Clients};

/// A deletion guard that is asked by a person and refuses nobody. See [`survey`](super::survey).
#[derive(Debug, Clone)]
pub struct Survey {
    config: Config,
}

/// What somebody thinks of deleting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// The namespace of this name.
    Namespace(String),
    /// The `CustomResourceDefinition` of this name.
    Definition(String),
}

/// What its deletion would reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Impact {
    /// `Namespace` or `CustomResourceDefinition`.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// When the clusters were seen, RFC 3339.
    pub time: String,
    /// Whether it exists where it would be deleted; none where that could not be seen.
    pub exists: Option<bool>,
    /// `allow`, `deny` or `unknown`: what the guard would find, were it guarded and nobody exempt.
    pub verdict: &'static str,
    /// In the guard's own words, unless it would allow it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What would be said beside the verdict.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Why nobody knows whether these are all clusters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unsure: Vec<Why>,
    /// Every cluster that was looked at, the one that asks first.
    pub clusters: Vec<Reached>,
}

/// One cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reached {
    /// Its name; `here` for the one that asks.
    pub cluster: String,
    /// What it means for the deletion.
    pub finding: Finding,
    /// The same for people: `3 pods, 1 claim: web-0, …`, or why it could not be seen; empty where it is empty.
    pub summary: String,
    /// What would be lost.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub in_use: Vec<Counted>,
    /// What would stay.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stays: Vec<Counted>,
    /// What could not be seen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unseen: Vec<Why>,
    /// Who said that it need not be seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<Acknowledged>,
}

/// How many objects of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counted {
    /// What they are, as people call several of them.
    pub what: String,
    /// How many were counted.
    pub count: usize,
    /// Whether there are more than were counted.
    pub more: bool,
    /// The first few; none with `names: count`.
    pub names: Vec<String>,
}

/// Why something could not be seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Why {
    /// One of [`cluster::cause::ALL`].
    pub cause: &'static str,
    /// For people.
    pub text: String,
}

/// An acknowledgement that holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Acknowledged {
    /// Until when, RFC 3339.
    pub until: String,
    /// Why.
    pub reason: String,
}

impl Survey {
    pub(super) fn new(config: Config) -> Self {
        Self { config }
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Looks at every cluster, before `deadline`. `progress` is told of each as it comes.
    pub async fn impact(
        &self,
        clients: &Clients,
        what: What,
        deadline: Instant,
        progress: &(dyn Fn(Progress<'_>) + Sync),
    ) -> Impact {
        let (target, exists) = self.target(clients, what, deadline).await;
        let room = Room::default();
        let gathering = Gathering { clients, config: &self.config, progress, room: &room };
        let facts = gathering.about(&target, deadline.into(), false).await;
        self.told(&target, exists, &facts)
    }

    /// The target as it stands here; one without labels where it does not, or cannot be seen.
    async fn target(&self, clients: &Clients, what: What, deadline: Instant) -> (Target, Option<bool>) {
        let (subject, name) = match what {
            What::Namespace(name) => (Subject::Namespace, name),
            What::Definition(name) => (Subject::Definition, name),
        };
        let resource = subject.resource();
        let address = Address { resource: &resource, namespace: "", name: &name };
        let now = Instant::now();
        let soon = (now + self.config.member_deadline).min(now + deadline.saturating_duration_since(now) / 2);
        let found = clients
            .reader
            .get_object(&Cluster::Local, GetQuery { address, part: Part::Metadata }, soon)
            .await;
        let exists = found.as_ref().ok().map(Option::is_some);
        let metadata = found.ok().flatten().map(|object| object.metadata).unwrap_or_default();
        let target = Target {
            subject,
            name,
            // That there is none here is an answer to whoever asks, and not a doubt.
            proven: None,
            labels: metadata.labels,
            annotations: metadata.annotations,
            deleting: metadata.deleting,
            dry_run: false,
        };
        (target, exists)
    }

    fn told(&self, target: &Target, exists: Option<bool>, facts: &Facts) -> Impact {
        let config = &self.config;
        let ruling = decide::close_any(config, target, facts);
        let whole = Whole::of(config, target, facts);
        let (verdict, message) = match &ruling.verdict {
            Verdict::Allow | Verdict::Mutate(_) => ("allow", None),
            Verdict::Deny(denial) => ("deny", Some(denial.message.clone())),
            Verdict::Unknown(_) => ("unknown", ruling.refusal.as_ref().map(|denial| denial.message.clone())),
        };
        // Where it is Karmada's own no cluster was looked at, and that is no doubt about the fleet.
        let unsure =
            whole.unsure.iter().filter(|_| Own::of(config, target).is_none() || facts.members.is_err());
        Impact {
            kind: match target.subject {
                Subject::Namespace => "Namespace",
                Subject::Definition => "CustomResourceDefinition",
            },
            name: target.name.clone(),
            time: time::format(facts.now),
            exists,
            verdict,
            message,
            warnings: ruling.warnings.iter().map(str::to_owned).collect(),
            unsure: unsure.map(Why::of).collect(),
            clusters: facts.seen.iter().map(|seen| self.reached(seen, &whole)).collect(),
        }
    }

    fn reached(&self, seen: &Seen, whole: &Whole<'_>) -> Reached {
        let counted = |counts: &[Count]| {
            let names = |count: &Count| match self.config.names {
                super::config::Names::Show => count.names.clone(),
                super::config::Names::Count => Vec::new(),
            };
            let told = |count: &Count| Counted {
                what: count.noun.many.to_string(),
                count: count.objects,
                more: count.more,
                names: names(count),
            };
            counts.iter().map(told).collect()
        };
        let of = |found: &&(&Seen, _)| found.0.member.cluster == seen.member.cluster;
        Reached {
            cluster: seen.member.cluster.name().to_owned(),
            finding: seen.sight.finding(),
            summary: if seen.sight == Sight::default() {
                String::new()
            } else {
                tell::within(&self.config, seen)
            },
            in_use: counted(&seen.sight.in_use),
            stays: counted(&seen.sight.stays),
            unseen: seen.sight.unseen.iter().map(Why::of).collect(),
            acknowledged: whole.acknowledged.iter().find(of).map(|(_, acknowledgement)| Acknowledged {
                until: acknowledgement.until.clone(),
                reason: acknowledgement.reason.clone(),
            }),
        }
    }
}

impl Why {
    fn of(cause: &Cause) -> Self {
        Self { cause: cause.code, text: cause.text.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_told_to_programs_without_what_is_not_there() {
        let reached = Reached {
            cluster: "m1".into(),
            finding: Finding::InUse,
            summary: "500+ pods: a, …".into(),
            in_use: vec![Counted { what: "pods".into(), count: 500, more: true, names: vec!["a".into()] }],
            stays: vec![],
            unseen: vec![],
            acknowledged: None,
        };
        assert_eq!(
            serde_json::to_value(&reached).unwrap(),
            serde_json::json!({"cluster": "m1", "finding": "inUse", "summary": "500+ pods: a, …",
                "inUse": [{"what": "pods", "count": 500, "more": true, "names": ["a"]}]})
        );
    }
}
