//! The result of a decision, as data. `messages` renders it.

use admission::Cause;
use k8s_openapi::jiff::Timestamp;

use super::super::table::{MemberProblem, MembershipChange, Note};

/// The result of a decision about a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Decision {
    pub(in super::super) conclusion: Conclusion,
    pub(in super::super) warnings: Vec<Warning>,
}

/// The conclusion of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum Conclusion {
    Allow(Allowed),
    Deny(DenyReason),
    Unknown(Vec<UnknownCause>),
}

impl Decision {
    fn new(conclusion: Conclusion) -> Self {
        Self { conclusion, warnings: Vec::new() }
    }

    pub(in super::super) fn allow(why: Allowed) -> Self {
        Self::new(Conclusion::Allow(why))
    }

    pub(in super::super) fn deny(reason: DenyReason) -> Self {
        Self::new(Conclusion::Deny(reason))
    }

    pub(in super::super) fn unknown(why: UnknownCause) -> Self {
        Self::new(Conclusion::Unknown(vec![why]))
    }

    pub(super) fn unknown_for_all(causes: Vec<UnknownCause>) -> Self {
        Self::new(Conclusion::Unknown(causes))
    }

    #[must_use]
    pub(in super::super) fn warn(mut self, warning: Warning) -> Self {
        self.warnings.push(warning);
        self
    }

    pub(in super::super) fn is_allowed(&self) -> bool {
        matches!(self.conclusion, Conclusion::Allow(_))
    }

    /// Whether an override allows it, so that other members are reviewed without it.
    pub(in super::super) fn is_overridden(&self) -> bool {
        matches!(self.conclusion, Conclusion::Allow(Allowed::Overridden { .. }))
    }

    pub(in super::super) fn is_unknown(&self) -> bool {
        matches!(self.conclusion, Conclusion::Unknown(_))
    }
}

/// Why a deletion is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum Allowed {
    /// This key of the configuration exempts the request.
    Exempt(&'static str),
    Overridden {
        reason: String,
        until: String,
    },
    /// No entry of the configuration selects the pod.
    Unselected,
    MirrorPod,
    AlreadyDeleting,
    AlreadyDeleted,
    PodEnded,
    /// No node has ever run the pod.
    NeverScheduled,
    NamespaceDeleting,
    StatefulSetDeleted,
    OwnerDeleted,
    ScaledToZero,
    NodeDeleted,
    /// The container of etcd does not run, and its member does not answer.
    NotRunning,
    Learner,
    NotMember,
    /// The member's client port refuses connections.
    NotListening,
    /// The member does not answer, and the other members have quorum.
    NoResponse,
    /// The member does not answer, and quorum is lost.
    NoResponseWithoutQuorum,
    OthersHaveQuorum,
    Corrupt,
    /// The etcd cluster is so small that every deletion interrupts it.
    Outage,
}

/// Why a deletion is denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum DenyReason {
    /// So many healthy members would be left of so many voters.
    Quorum {
        left: usize,
        voters: usize,
        needed: usize,
    },
    /// Fewer members vote than are expected, so all of them are needed.
    TooFewVoters {
        voters: usize,
        expected: usize,
    },
    /// The other one of two members is leaving.
    OtherLeaving,
    /// The other one of two members is not healthy.
    OtherUnhealthy,
    QuorumLost,
    /// A CORRUPT alarm names no member.
    Corrupt,
    UndeclaredSize {
        voters: usize,
    },
    /// The owner does not create the pod again.
    ScaledAway {
        voters: usize,
    },
    /// The only member loses its data with the pod.
    LastCopy,
    /// The pod leads, and `onLeaderDelete: deny` forbids its deletion.
    LeaderForbidden,
    /// The pod leads, and etcd does not transfer leadership on request.
    NoTransfer,
    /// The pod leads, and no other member can take over.
    NoSuccessor,
    /// The deletion has failed repeatedly since then.
    Backoff {
        since: Timestamp,
    },
    /// The deletion of this pod is reserved.
    Reserved {
        pod: String,
    },
    /// Leadership was transferred to this member, and no time was left to check the members again.
    LeadershipMoved {
        to: String,
    },
    /// The pod of an eviction does not exist.
    NoPod,
}

/// A side effect of a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum Concern {
    MembershipChange(Vec<MembershipChange>),
    /// None of the member's volumes outlives the pod.
    DataLoss,
    /// The `StatefulSet` was scaled down and deletes the PVC.
    PvcDeleted,
    /// The pod leads and has no grace period.
    KilledLeader,
}

/// A warning about an allowed deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum Warning {
    Learner,
    NotMember,
    /// The pod still leads and is killed.
    StillLeads,
    /// The deletion could not be reserved.
    Unreserved(Cause),
    /// The other members might not have quorum.
    QuorumUncertain,
    /// Quorum is lost, and the member does not answer.
    QuorumLost,
    /// The member's data is corrupt, and the etcd cluster has no quorum.
    CorruptWithoutQuorum,
    CorruptData,
    Outage {
        voters: usize,
    },
    Concern(Concern),
    /// The pod leads, and the others elect another leader.
    Election,
    /// The pod leads and has so many seconds to transfer leadership when it stops.
    TransferOnStop {
        seconds: i64,
    },
    /// A dry run would transfer leadership to this member.
    WouldTransfer {
        to: String,
    },
    /// Leadership was transferred to this member.
    Transferred {
        to: String,
    },
    /// A problem of the etcd cluster.
    Note(Note),
    Unhealthy(MemberProblem),
    /// The override annotations of the namespace have these mistakes.
    NamespaceOverride(String),
}

/// Why a deletion could not be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum UnknownCause {
    /// Data could not be read, or a member did not answer.
    Unread(Cause),
    /// The pod's owner could not be read. The quorum alone denies the deletion.
    UnreadOwner { why: Cause, denied: DenyReason },
    /// The expected number of members could not be read.
    UnreadSize(Cause),
    /// The deletion could not be reserved.
    NotReserved(Cause),
    /// The cluster that Durward reads does not contain the pod.
    OtherApiServer,
    /// The pod is not in the table.
    Unlisted,
    /// The pod has no member.
    NoMember,
    /// The pods belong to two etcd clusters.
    MixedClusters,
    /// No member serves linearizable reads, and quorum may depend on the member.
    NoReads,
    /// The time of the review is over.
    OutOfTime,
}
