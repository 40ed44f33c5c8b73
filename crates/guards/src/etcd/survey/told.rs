//! What a survey tells, for people and as JSON.

use admission::Cause;
use serde::Serialize;

/// Everything that was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Surveyed {
    /// Every ensemble, by namespace and name.
    pub ensembles: Vec<Ensemble>,
    /// Where the configuration names an ensemble and no pod is one of its members.
    pub empty: Vec<Empty>,
    /// Where two entries of the configuration choose the same pods.
    pub overlaps: Vec<Overlap>,
    /// What of Kubernetes could not be asked.
    pub unseen: Vec<Unseen>,
}

/// One ensemble.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ensemble {
    /// What people call it: `db/etcd`.
    pub name: String,
    /// Where its pods are.
    pub namespace: String,
    /// How many members vote; none where nobody knows.
    pub voters: Option<usize>,
    /// How many of them are a quorum.
    pub quorum: Option<usize>,
    /// How many can be counted on.
    pub healthy: usize,
    /// Whether its members answer at all that know of no leader, and no other do.
    pub is_lost: bool,
    /// Why it is not known who votes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unclear: Option<Why>,
    /// Whether only health and metrics could be had of it.
    pub by_metrics_only: bool,
    /// Who is in it, and pods that may be.
    pub members: Vec<Member>,
    /// What is changing about the membership.
    pub changes: Vec<String>,
    /// What else is wrong.
    pub notes: Vec<String>,
    /// Where it is noted who leaves, as `namespace/name`; none with `reservation: local`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// Why that cannot be read, or what it says not be understood.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_unread: Option<Why>,
}

/// A member, or a pod that may be one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// The pod's name, or what etcd's list has where no pod answers as it.
    pub name: String,
    /// `leader`, `follower`, `learner`, or `-`.
    pub role: &'static str,
    /// A closed set: `Healthy`, `Unfit`, `Corrupt`, `Leaving`, `Learner`, `Stranger`, `Silent`, `Absent`.
    pub state: &'static str,
    /// The same for people.
    pub health: String,
    /// Why it could not be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unseen: Option<Why>,
    /// Its term.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub term: Option<u64>,
    /// How many entries it is behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<u64>,
    /// What would become of the deletion of its pod now; none where there is no pod, or where an earlier entry rules on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion: Option<Deletion>,
    /// What stands under `durward.dev/delete-anyway` on its pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_open: Option<String>,
}

/// What would become of a deletion by a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Deletion {
    /// `allow`, `deny` or `unknown`.
    pub verdict: &'static str,
    /// Why.
    pub why: String,
    /// What the person would be told beside it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Where an entry of the configuration chooses no pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Empty {
    /// Which entry: `ensembles[0]`.
    pub entry: String,
    /// Where.
    pub namespace: String,
    /// Whether that is being deleted, or not there.
    pub is_going: bool,
    /// How many pods are there.
    pub pods: usize,
    /// Those of them that seem to run etcd.
    pub seem_members: Vec<String>,
}

/// Two entries of the configuration that choose the same pods of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Overlap {
    /// Where.
    pub namespace: String,
    /// The one that counts: `ensembles[0]`.
    pub first: String,
    /// The other one.
    pub second: String,
    /// The pods.
    pub pods: Vec<String>,
}

/// What of Kubernetes could not be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unseen {
    /// The namespace; none where it is about all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Why.
    #[serde(flatten)]
    pub why: Why,
}

/// Why something could not be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Why {
    /// One of the world's causes.
    pub cause: &'static str,
    /// Its sentence.
    pub text: String,
}

impl From<&Cause> for Why {
    fn from(why: &Cause) -> Self {
        Self { cause: why.code, text: why.text.clone() }
    }
}
