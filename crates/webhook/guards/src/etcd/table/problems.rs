//! The problems of members and of the etcd cluster, as data. `messages` renders them.

use admission::Cause;

/// Why a member that answers and votes does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum MemberProblem {
    /// The pods belong to several etcd clusters, and none has a majority.
    SplitClusters,
    /// Too few pods answer to identify the etcd cluster.
    TooFewAnswers,
    UnknownList,
    /// Another pod reports the same member id.
    DuplicateId,
    /// A CORRUPT alarm names no member.
    Corruption,
    /// The etcd cluster has no leader.
    NoLeader,
    KnowsNoLeader,
    OtherTerm {
        own: u64,
        others: u64,
    },
    OtherLeader,
    ReportsLearner,
    InvalidAlarms(Cause),
    /// No member returned the alarms.
    UnknownAlarms,
    /// The member is so many log entries behind.
    Behind(u64),
    /// No linearizable read succeeded.
    NoRead(Cause),
}

/// A membership change in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum MembershipChange {
    Learners(usize),
    /// Listed members that have not started.
    Unstarted(usize),
    Downgrade,
}

/// Another problem of the etcd cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum Note {
    /// A CORRUPT alarm names no member.
    Corruption,
    /// These members raised the NOSPACE alarm; `None` is an unnamed member.
    NoSpace(Vec<Option<String>>),
    /// These members raised an unknown alarm.
    OtherAlarm(Vec<Option<String>>),
}
