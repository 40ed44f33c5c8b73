//! The members of an etcd cluster as a table: the state of each, the leader, and whether there is a quorum. Pure.
//!
//! A missing answer proves nothing. A member is healthy only if all of these hold:
//! - it reports so itself,
//! - it agrees with the others on cluster id, term and leader,
//! - a linearizable read succeeded through it,
//! - its pod is not about to leave.
//!
//! A cluster id counts if more than half of the pods report it. A pod with another one is Unknown, because the majority can consist of
//! foreign pods. If two members claim leadership, the one with the higher term wins; the other has not
//! noticed yet (seen 0.2 s after the quorum was lost).

mod alarms;
mod builder;
mod problems;
mod responses;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use admission::Cause;

use super::facts::{Facts, Leaving, PodFacts, is_down};
use super::size::{ExpectedSize, SizeSource};
use builder::TableBuilder;
use cluster::etcd::Id;

pub(super) use problems::{MemberProblem, MembershipChange, Note};

/// Why it is not known whose member list it is.
pub(super) const TOO_FEW_ANSWERS: &str = "too few pods answer to identify the etcd cluster";

/// The state of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MemberState {
    /// The member answers, votes and counts towards the quorum.
    Healthy,
    /// The member answers and votes but does not count, for the reason in the message.
    Unhealthy(MemberProblem),
    /// The member's data differs from the others'.
    Corrupt,
    /// The member may leave, for the reason in the message.
    Leaving(Leaving),
    /// The member does not vote yet.
    Learner,
    /// The pod is not a member of this etcd cluster.
    NotMember,
    /// The pod answers for another etcd cluster than most pods. In messages it is a `NotMember`.
    OtherCluster(Id),
    /// The member did not answer, for the reason in the message.
    NoResponse(Cause),
    /// The member is in etcd's list, and no pod answers for it.
    NoPod,
}

/// One member, or a pod that may be one.
// Each flag is independent.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    /// The pod's uid; empty without a pod.
    pub(super) uid: String,
    /// The pod's name, or the name in etcd's list.
    pub(super) name: String,
    /// The member's id, if it is known.
    pub(super) id: Option<Id>,
    pub(super) state: MemberState,
    pub(super) term: Option<u64>,
    /// How many log entries it is behind.
    pub(super) lag: Option<u64>,
    /// Whether its pod may leave, whatever it answers.
    pub(super) is_leaving: bool,
    /// Whether its node is cordoned or deleted.
    pub(super) is_cordoned: bool,
    /// Whether the kubelet reports that etcd does not run in its pod.
    pub(super) is_stopped: bool,
    /// Whether it has the update revision of its `StatefulSet`.
    pub(super) is_updated: bool,
}

impl Row {
    fn of(facts: &PodFacts, id: Option<Id>, state: MemberState) -> Self {
        Self {
            uid: facts.pod.uid.clone(),
            name: facts.pod.name.clone(),
            id,
            state,
            term: facts.answers().map(|answers| answers.status.term),
            lag: None,
            is_leaving: facts.leaving().is_some(),
            is_cordoned: facts.node.is_some(),
            is_stopped: facts.pod.is_stopped(),
            is_updated: facts.is_updated,
        }
    }

    fn without_pod(id: Id, name: &str) -> Self {
        Self {
            uid: String::new(),
            name: if name.is_empty() { format!("{id:x}") } else { name.to_owned() },
            id: Some(id),
            state: MemberState::NoPod,
            term: None,
            lag: None,
            is_leaving: false,
            is_cordoned: false,
            is_stopped: false,
            is_updated: false,
        }
    }

    /// Whether the member answered at all.
    pub(super) fn answers(&self) -> bool {
        !matches!(self.state, MemberState::NoPod | MemberState::NoResponse(_))
    }

    /// Whether it certainly serves no client.
    pub(super) fn is_down(&self) -> bool {
        matches!(&self.state, MemberState::NoResponse(why) if is_down(why, self.is_stopped))
    }

    /// Whether it may be a voter.
    pub(super) fn may_vote(&self) -> bool {
        let state = &self.state;
        !matches!(state, MemberState::Learner | MemberState::NotMember | MemberState::OtherCluster(_))
    }
}

/// The state of an etcd cluster.
#[derive(Debug, Clone)]
pub(super) struct Table {
    /// The name of the etcd cluster for users.
    pub(super) cluster: String,
    /// The number of voters, or why it is unknown.
    pub(super) voters: Result<usize, Cause>,
    /// The number of members it is meant to have. Learners and members that are replaced make it larger than the voters.
    pub(super) expected: ExpectedSize,
    /// The number of voters by the answers alone. It proves a lost quorum, but not a quorum.
    pub(super) reported_voters: Option<usize>,
    /// The voters that answer and know no leader.
    pub(super) leaderless: BTreeSet<Id>,
    /// The voters that certainly are in the working quorum: they follow the leader in its term, and a read succeeded.
    pub(super) quorum_members: BTreeSet<Id>,
    /// The number of voters in the list, even if too few pods answer to be certain that it is the list of this etcd cluster.
    pub(super) listed_voters: Option<usize>,
    pub(super) leader: Option<Id>,
    pub(super) rows: Vec<Row>,
    /// Whether any read confirmed that a quorum works.
    pub(super) has_working_quorum: bool,
    /// Whether members answer, and all of them know no leader.
    pub(super) is_leaderless: bool,
    /// Membership changes in progress.
    pub(super) changes: Vec<MembershipChange>,
    /// Other problems.
    pub(super) notes: Vec<Note>,
}

/// A lag below this is normal, because entries are written while the members answer.
const NORMAL_LAG: u64 = 100;

/// How many log entries a healthy member can be behind. A follower that restarts is behind for seconds.
pub(super) const MAX_LAG: u64 = 5000;

/// The largest size at which each deletion interrupts etcd.
const SMALL: usize = 2;

impl Table {
    pub(super) fn of(facts: &Facts) -> Self {
        TableBuilder::new(facts).table()
    }

    /// Returns the row of a pod.
    pub(super) fn row(&self, uid: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.uid == uid)
    }

    pub(super) fn others(&self, uid: &str) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.uid != uid)
    }

    /// Returns the number of healthy members without this one.
    pub(super) fn healthy_without(&self, uid: &str) -> usize {
        self.others(uid).filter(|row| row.state == MemberState::Healthy).count()
    }

    /// Whether no quorum can work, with or without this member: too many of the others know no leader. A successful read disproves it.
    pub(super) fn has_lost_quorum_without(&self, me: &Row) -> bool {
        let leaderless = self.leaderless.iter().filter(|id| me.id != Some(**id)).count();
        let is_lost = |voters: usize| voters.saturating_sub(leaderless) < voters / 2 + 1;
        !self.has_working_quorum && self.reported_voters.is_some_and(is_lost)
    }

    /// Returns the best member to take over leadership: healthy, not on a cordoned node, with little lag, already updated. A member on
    /// a cordoned node or with an old revision would soon have to transfer leadership again.
    pub(super) fn successor(&self, me: &Row, unable_to_lead: &[Id]) -> Option<&Row> {
        let is_able = |row: &&Row| {
            row.uid != me.uid
                && row.state == MemberState::Healthy
                && row.id.is_some_and(|id| !unable_to_lead.contains(&id))
        };
        self.rows.iter().filter(is_able).min_by_key(|row| {
            let lag = row.lag.unwrap_or(0);
            (row.is_cordoned, lag / NORMAL_LAG, !row.is_updated, lag, row.id)
        })
    }

    /// Whether a CORRUPT alarm names no member, so no member's data can be relied on.
    pub(super) fn has_unnamed_corruption(&self) -> bool {
        self.notes.contains(&Note::Corruption)
    }

    /// Whether some pods answer for another etcd cluster.
    pub(super) fn has_other_cluster(&self) -> bool {
        self.rows.iter().any(|row| matches!(row.state, MemberState::OtherCluster(_)))
    }

    /// Whether this member leads.
    pub(super) fn leads(&self, row: &Row) -> bool {
        row.id.is_some() && row.id == self.leader
    }

    /// Whether the leader may be a pod that does not answer.
    pub(super) fn has_hidden_leader(&self) -> bool {
        let mut answering = self.rows.iter().filter(|row| row.answers());
        match self.leader {
            Some(leader) => !answering.any(|row| row.id == Some(leader)),
            None => !self.is_leaderless && answering.next().is_some(),
        }
    }

    /// Whether the etcd cluster is declared so small that each deletion interrupts it.
    pub(super) fn is_small(&self) -> bool {
        self.may_be_small() && self.expected.source == SizeSource::Declared
    }

    /// Whether no fact contradicts that it is that small.
    pub(super) fn may_be_small(&self) -> bool {
        self.expected.members <= SMALL
    }

    /// Whether it has so few voters now and is meant to have more.
    pub(super) fn is_temporarily_small(&self) -> bool {
        !self.may_be_small() && self.voters.as_ref().is_ok_and(|voters| *voters <= SMALL)
    }
}
