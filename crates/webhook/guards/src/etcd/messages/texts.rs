//! The texts of reasons, causes, warnings and problems. No other module of the guard renders them.

use admission::Cause;

use super::super::decide::{Allowed, Concern, DenyReason, UnknownCause, Warning};
use super::super::facts::Leaving;
use super::super::removal::Removal;
use super::super::table::{MemberProblem, MembershipChange, Note, TOO_FEW_ANSWERS};
use super::{PREFIX, ReasonCode};
use crate::overrides::DELETE_ANYWAY;
use cluster::cause;

/// Returns why a deletion is allowed, for the audit log.
pub(super) fn allowed(why: &Allowed) -> &'static str {
    match why {
        Allowed::Exempt(key) => key,
        Allowed::Overridden { .. } => "it has an override",
        Allowed::Unselected => "it belongs to no configured etcd cluster",
        Allowed::MirrorPod => "it is a mirror pod",
        Allowed::AlreadyDeleting => "the pod is already being deleted",
        Allowed::AlreadyDeleted => "the pod is already deleted",
        Allowed::PodEnded => "the pod has ended",
        Allowed::NeverScheduled => "the pod has never had a node",
        Allowed::NamespaceDeleting => "the namespace is being deleted",
        Allowed::StatefulSetDeleted => "the StatefulSet is deleted",
        Allowed::OwnerDeleted => "the owner is deleted",
        Allowed::ScaledToZero => "the StatefulSet is scaled to zero",
        Allowed::NodeDeleted => "the node is deleted",
        Allowed::NotRunning => "etcd does not run in the pod",
        Allowed::Learner => "it does not vote",
        Allowed::NotMember => "it is not a member",
        Allowed::NotListening => "nothing listens on its client port",
        Allowed::NoResponse => "it does not answer, and the other members have quorum",
        Allowed::NoResponseWithoutQuorum => "quorum is lost, and it does not answer",
        Allowed::OthersHaveQuorum => "the other members have quorum",
        Allowed::Corrupt => "its data is corrupt",
        Allowed::Outage => "every deletion interrupts this cluster",
    }
}

/// Returns the code of a reason.
pub(super) fn code(reason: &DenyReason) -> ReasonCode {
    match reason {
        DenyReason::Quorum { .. }
        | DenyReason::TooFewVoters { .. }
        | DenyReason::OtherLeaving
        | DenyReason::OtherUnhealthy => ReasonCode::Quorum,
        DenyReason::QuorumLost => ReasonCode::QuorumLost,
        DenyReason::Corrupt => ReasonCode::Corrupt,
        DenyReason::UndeclaredSize { .. } => ReasonCode::UndeclaredSize,
        DenyReason::ScaledAway { .. } => ReasonCode::ScaledAway,
        DenyReason::LastCopy => ReasonCode::DataLoss,
        DenyReason::LeaderForbidden | DenyReason::NoTransfer | DenyReason::NoSuccessor => ReasonCode::Leader,
        DenyReason::Backoff { .. } => ReasonCode::Backoff,
        DenyReason::Reserved { .. } => ReasonCode::Reserved,
        DenyReason::LeadershipMoved { .. } => ReasonCode::LeadershipMoved,
        DenyReason::NoPod => ReasonCode::NotFound,
    }
}

/// Returns why a deletion is denied. `cluster` is the name of the etcd cluster.
pub(super) fn reason(removal: &Removal, cluster: &str, reason: &DenyReason) -> String {
    let text = match reason {
        DenyReason::Quorum { left, voters, needed } => {
            let needed = if *needed == 1 { "1 is".to_owned() } else { format!("{needed} are") };
            return format!("{left} of {voters} members would be left, {needed} needed");
        }
        DenyReason::TooFewVoters { voters, expected } => {
            return format!("only {voters} of {expected} expected members vote, so all of them are needed");
        }
        DenyReason::OtherLeaving => "the other member is leaving, and one of the two must stay",
        DenyReason::OtherUnhealthy => "the other member is not healthy, and one of the two must stay",
        DenyReason::QuorumLost => {
            return format!(
                "etcd cluster {cluster} has already lost quorum, and pod {} still answers",
                removal.name
            );
        }
        DenyReason::Corrupt => {
            "etcd raised the CORRUPT alarm without naming a member, so no member can be trusted"
        }
        DenyReason::UndeclaredSize { voters: 1 } => {
            "only 1 member votes, and the expected number of members is not configured"
        }
        DenyReason::UndeclaredSize { voters } => {
            return format!(
                "only {voters} members vote, and the expected number of members is not configured"
            );
        }
        // The member does not come back.
        DenyReason::ScaledAway { voters: 1 } => {
            "it is the only member, and its owner does not create its pod again"
        }
        DenyReason::ScaledAway { voters } => {
            return format!(
                "its owner does not create its pod again, and etcd lists {voters} members: remove the member first"
            );
        }
        DenyReason::LastCopy => "it is the only member, and its data is lost with the pod",
        DenyReason::LeaderForbidden => {
            "it is the etcd leader, and deleting leaders is disabled (onLeaderDelete: deny)"
        }
        DenyReason::NoTransfer => {
            "it is the etcd leader, and this etcd cannot transfer leadership on request (before 3.3)"
        }
        DenyReason::NoSuccessor => "it is the etcd leader, and no other member can take over",
        DenyReason::Backoff { since } => {
            return format!(
                "deleting it has failed repeatedly since {since:.0}; other members go first, retry in a minute"
            );
        }
        DenyReason::Reserved { pod } => {
            return format!(
                "the deletion of {pod} was allowed a moment ago, and members are deleted one at a time"
            );
        }
        DenyReason::LeadershipMoved { to } => {
            return format!(
                "leadership was transferred to {to}, and no time was left to check the members again"
            );
        }
        DenyReason::NoPod => "it does not exist in the cluster that Durward reads",
    };
    text.to_owned()
}

fn outage(voters: usize) -> String {
    let members = match voters {
        1 => "it is the only member".to_owned(),
        _ => format!("the cluster has {voters} members"),
    };
    format!("{members}; reads and writes fail until its pod is back")
}

fn concern(concern: &Concern) -> String {
    let text = match concern {
        Concern::MembershipChange(changes) => {
            let changes: Vec<String> = changes.iter().map(change).collect();
            return format!("the membership is changing: {}", changes.join(", "));
        }
        Concern::DataLoss => "none of its volumes outlives the pod, so its data is lost",
        Concern::PvcDeleted => {
            "its StatefulSet was scaled down and deletes its PVC (persistentVolumeClaimRetentionPolicy.whenScaled: Delete), so its data is lost"
        }
        Concern::KilledLeader => {
            "it is the leader and is killed at once (grace period 0); writes stop until the next election"
        }
    };
    text.to_owned()
}

/// Returns a membership change in progress.
pub(in super::super) fn change(change: &MembershipChange) -> String {
    match change {
        MembershipChange::Learners(many) => format!("learners that do not vote yet: {many}"),
        MembershipChange::Unstarted(many) => format!("members that have not started: {many}"),
        MembershipChange::Downgrade => "a downgrade is in progress".to_owned(),
    }
}

/// Returns a cause for users.
pub(super) fn cause(removal: &Removal, why: &UnknownCause) -> Cause {
    let unclear = |text: &str| Cause::new(cause::UNCLEAR, text);
    match why {
        UnknownCause::Unread(why) => why.clone(),
        UnknownCause::UnreadOwner { why, .. } => {
            Cause::new(why.code, format!("cannot read its owner: {}", why.text))
        }
        UnknownCause::UnreadSize(why) => {
            Cause::new(why.code, format!("cannot read the expected number of members: {}", why.text))
        }
        UnknownCause::NotReserved(why) => Cause::new(cause::NOT_RESERVED, not_reserved(why)),
        UnknownCause::OtherApiServer => unclear(&format!(
            "namespace {:?} of the cluster that Durward reads does not contain this pod",
            removal.namespace
        )),
        UnknownCause::Unlisted => unclear("the pod is not one of the etcd cluster's pods"),
        UnknownCause::NoMember => unclear("the pod has no member"),
        UnknownCause::MixedClusters => {
            Cause::new(cause::MIXED_CLUSTERS, "the selector matches pods of two etcd clusters")
        }
        UnknownCause::NoReads => Cause::new(
            cause::NO_QUORUM,
            "no member serves linearizable reads, and quorum may depend on this member",
        ),
        UnknownCause::OutOfTime => Cause::new(cause::TIMEOUT, "Durward ran out of time"),
    }
}

fn not_reserved(why: &Cause) -> String {
    format!("Durward cannot record the deletion: {}", why.text)
}

/// Returns a warning. `cluster` is the name of the etcd cluster; empty if its members were not asked.
pub(super) fn warning(removal: &Removal, cluster: &str, warning: &Warning) -> String {
    let text = match warning {
        Warning::Note(note) => return format!("{PREFIX}cluster {cluster}: {}", self::note(note)),
        Warning::NamespaceOverride(wrong) => return namespace_override(&removal.namespace, wrong),
        Warning::Learner => "it is a learner and does not vote".to_owned(),
        Warning::NotMember => {
            format!("it is not in the member list; etcd cluster {cluster} does not need it")
        }
        Warning::StillLeads => {
            "it is still the leader and is killed before it can transfer leadership; writes stop until the next election".to_owned()
        }
        Warning::Unreserved(why) => {
            format!("{}; do not delete another member until this one is back", not_reserved(why))
        }
        Warning::QuorumUncertain => "the other members might not have quorum".to_owned(),
        Warning::QuorumLost => "quorum is lost, and this member does not answer".to_owned(),
        Warning::CorruptWithoutQuorum => "its data is corrupt, and the cluster has no quorum".to_owned(),
        Warning::CorruptData => "its data is corrupt; the new pod needs empty data".to_owned(),
        Warning::Outage { voters } => outage(*voters),
        Warning::Concern(why) => concern(why),
        Warning::Election => "it is the leader; the cluster elects another one".to_owned(),
        Warning::TransferOnStop { seconds } => format!(
            "it is the leader, and this etcd cannot transfer leadership on request; it has {seconds} s to do so when it stops"
        ),
        Warning::WouldTransfer { to } => format!("it is the leader and would transfer leadership to {to} first"),
        Warning::Transferred { to } => format!("leadership was transferred to {to}"),
        Warning::Unhealthy(problem) => self::problem(problem, |why| &why.text),
    };
    format!("{PREFIX}{}: {text}", removal.full_name())
}

/// Returns the warning about invalid override annotations of a namespace.
pub(in super::super) fn namespace_override(namespace: &str, wrong: &str) -> String {
    format!("{PREFIX}namespace {namespace:?}: Override ignored: {wrong}")
}

/// Returns the warning about an object with an active override.
pub(super) fn overridden(what: &str, reason: &str, until: &str) -> String {
    format!("{PREFIX}{what} is not checked: {DELETE_ANYWAY} is set until {until}: {reason}")
}

/// Returns a problem of the etcd cluster.
pub(in super::super) fn note(note: &Note) -> String {
    let named = |members: &[Option<String>]| {
        let names = members.iter().map(|name| name.as_deref().unwrap_or("an unnamed member"));
        names.collect::<Vec<_>>().join(", ")
    };
    match note {
        Note::Corruption => {
            "CORRUPT alarm without a member; no member can be trusted until it is disarmed".to_owned()
        }
        Note::NoSpace(members) => format!("NOSPACE alarm of {}; etcd rejects writes", named(members)),
        Note::OtherAlarm(members) => format!("unknown alarm of {}", named(members)),
    }
}

/// Returns why a member does not count. `text` returns the text of a failed request.
pub(super) fn problem<'p>(problem: &'p MemberProblem, text: impl FnOnce(&'p Cause) -> &'p str) -> String {
    let fixed = match problem {
        MemberProblem::SplitClusters => "the pods belong to several etcd clusters, none has a majority",
        MemberProblem::TooFewAnswers => TOO_FEW_ANSWERS,
        MemberProblem::UnknownList => "the member list is unknown",
        MemberProblem::DuplicateId => "another pod reports the same member ID",
        MemberProblem::Corruption => "a CORRUPT alarm names no member",
        MemberProblem::NoLeader => "the cluster has no leader",
        MemberProblem::KnowsNoLeader => "it knows no leader",
        MemberProblem::OtherTerm { own, others } => {
            return format!("its term is {own}, the others have {others}");
        }
        MemberProblem::OtherLeader => "it reports another leader",
        MemberProblem::ReportsLearner => "it reports that it is a learner",
        MemberProblem::InvalidAlarms(why) => return format!("its alarm list is invalid: {}", text(why)),
        MemberProblem::UnknownAlarms => "no member returned the alarms",
        MemberProblem::Behind(entries) => return format!("it is {entries} entries behind"),
        MemberProblem::NoRead(why) => return format!("no linearizable read: {}", text(why)),
    };
    fixed.to_owned()
}

/// Returns why a pod may leave.
pub(super) fn leaving(leaving: Leaving) -> &'static str {
    match leaving {
        Leaving::Deleting => "its pod is being deleted",
        Leaving::WithoutOwner => "its owner is deleted or scaled to zero",
        Leaving::Deadline => "its pod has activeDeadlineSeconds",
        Leaving::NodeDeleted => "its node is deleted",
    }
}
