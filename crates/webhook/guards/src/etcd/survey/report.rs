//! The report of the survey. `doctor etcd` prints its clusters as JSON.

use admission::Cause;
use serde::Serialize;

/// The state of all configured etcd clusters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SurveyReport {
    /// Etcd clusters, by namespace and name.
    pub clusters: Vec<ClusterReport>,
    /// Configuration entries that select no pod.
    pub empty: Vec<EmptyEntry>,
    /// Configuration entries that select the same pods.
    pub overlaps: Vec<EntryOverlap>,
    /// Failed reads.
    pub unread: Vec<UnreadScope>,
}

/// One etcd cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterReport {
    /// Its name for users: `db/etcd`.
    pub name: String,
    /// The namespace of its pods.
    pub namespace: String,
    /// The number of voters, if it is known.
    pub voters: Option<usize>,
    /// How many of them are a quorum.
    pub quorum: Option<usize>,
    /// The number of healthy members.
    pub healthy: usize,
    /// Whether members answer, and all of them know no leader.
    pub is_leaderless: bool,
    /// Why the number of voters is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_voters: Option<ReportCause>,
    /// Its members, and pods that may be members.
    pub members: Vec<MemberReport>,
    /// Membership changes in progress.
    pub changes: Vec<String>,
    /// Other problems.
    pub notes: Vec<String>,
    /// The Lease of its reservation as `namespace/name`.
    pub lease: String,
    /// Why the Lease cannot be read or understood.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_error: Option<ReportCause>,
}

/// A member, or a pod that may be one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberReport {
    /// The pod's name, or the name in etcd's list.
    pub name: String,
    /// `leader`, `follower`, `learner`, or `-`.
    pub role: &'static str,
    /// `Healthy`, `Unhealthy`, `Corrupt`, `Leaving`, `Learner`, `NotMember`, `NoResponse` or `NoPod`.
    pub state: &'static str,
    /// The state for users.
    pub health: String,
    /// Why it did not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ReportCause>,
    /// Its raft term.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub term: Option<u64>,
    /// How many log entries it is behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<u64>,
    /// The verdict on a deletion of its pod; `None` without a pod, or if an earlier entry decides about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion: Option<DeletionReport>,
}

/// The verdict on a deletion by a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeletionReport {
    /// `allow`, `deny` or `unknown`.
    pub verdict: &'static str,
    /// The reason.
    pub why: String,
    /// The warnings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A configuration entry that selects no pod of a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmptyEntry {
    /// The entry: `clusters[0]`.
    pub entry: String,
    /// The namespace.
    pub namespace: String,
    /// Whether the namespace is deleted or has a deletion timestamp.
    pub is_deleting: bool,
    /// The number of its pods.
    pub pods: usize,
    /// The names of its pods that run etcd.
    pub etcd_pods: Vec<String>,
}

/// Two configuration entries that select the same pods of a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryOverlap {
    /// The namespace.
    pub namespace: String,
    /// The entry that applies: `clusters[0]`.
    pub first: String,
    /// The entry that does not.
    pub second: String,
    /// The names of the pods.
    pub pods: Vec<String>,
}

/// A failed read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadScope {
    /// The namespace; `None` if it concerns all.
    pub namespace: Option<String>,
    /// The cause.
    pub why: ReportCause,
}

/// The cause of a failed read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReportCause {
    /// The code of the cause.
    pub cause: &'static str,
    /// Its text.
    pub text: String,
}

impl From<&Cause> for ReportCause {
    fn from(why: &Cause) -> Self {
        Self { cause: why.code, text: why.text.clone() }
    }
}
