//! The members as a table: who they are, what each is worth now, who leads, and whether there is a quorum. Pure.
//!
//! What nobody said counts for nothing: a member is healthy only if it says so itself, if the others agree with it on ensemble, term
//! and leader, if a linearizable read came about through it, and if nobody has let its pod go.
//!
//! An ensemble id counts if more than half of the pods have it, so that one pod with the right labels and another etcd in it can
//! neither vouch for anybody nor be taken for a member. Of two leaders the one of the higher term is it; the other does not know
//! yet that it is none (seen in the lab 0.2 s after the quorum was lost).

mod alarms;
mod full;
mod list;
mod namesakes;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use admission::Cause;

use super::config::Config;
use super::facts::{Facts, Seen, View};
use super::makers::Size;
use super::poor;
use cluster::cause;
use cluster::etcd::Id;
use full::Full;

/// What a member is worth now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// It can be counted on.
    Healthy,
    /// It answers and votes, and cannot be counted on: why.
    Unfit(String),
    /// Its data differs from the others'.
    Corrupt,
    /// It may be on its way out: why.
    Leaving(&'static str),
    /// It does not vote yet.
    Learner,
    /// It is of another ensemble, or in no list, and nobody misses it.
    Stranger(String),
    /// It is of another ensemble, which may miss it.
    Rival(String),
    /// It does not answer.
    Silent(Cause),
    /// It is in the list, and no pod answers as it.
    Absent,
}

/// One member, or a pod that may be one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    /// The pod's uid; empty where there is no pod.
    pub(super) uid: String,
    /// The pod's name, or what the list has where there is no pod.
    pub(super) name: String,
    /// The member's id, where it is known.
    pub(super) id: Option<Id>,
    pub(super) state: State,
    pub(super) term: Option<u64>,
    /// How many entries it is behind.
    pub(super) lag: Option<u64>,
    /// Whether its pod is being deleted, was let go or has no node any more, whatever it answers.
    pub(super) is_leaving: bool,
    /// Whether its node takes no new pods.
    pub(super) is_cordoned: bool,
    /// Whether it is what its `StatefulSet` updates its pods to.
    pub(super) is_updated: bool,
}

impl Row {
    /// The row of a pod.
    pub(super) fn of(seen: &Seen, id: Option<Id>, state: State) -> Self {
        let status = match &seen.view {
            View::Full(answers) => Some(&answers.status),
            View::Poor(..) | View::Silent(_) => None,
        };
        Self {
            uid: seen.pod.uid.clone(),
            name: seen.pod.name.clone(),
            id,
            state,
            term: status.map(|status| status.term),
            lag: None,
            is_leaving: seen.leaving().is_some(),
            is_cordoned: seen.node.is_some(),
            is_updated: seen.is_updated,
        }
    }

    /// The row of a member that no pod answers as.
    fn absent(id: Id, name: &str) -> Self {
        Self {
            uid: String::new(),
            name: if name.is_empty() { format!("{id:x}") } else { name.to_owned() },
            id: Some(id),
            state: State::Absent,
            term: None,
            lag: None,
            is_leaving: false,
            is_cordoned: false,
            is_updated: false,
        }
    }

    /// Whether it said anything.
    pub(super) fn answers(&self) -> bool {
        !matches!(self.state, State::Absent | State::Silent(_))
    }
}

/// The ensemble as it is seen.
#[derive(Debug, Clone)]
pub(super) struct Table {
    /// What people call it.
    pub(super) ensemble: String,
    /// How many vote, or why nobody knows.
    pub(super) voters: Result<usize, Cause>,
    /// How many members it is to have, by what is said and what is there. While some are learners, are taken out of the list or not yet in it,
    /// that is more than vote.
    pub(super) meant: usize,
    /// Who says so.
    pub(super) size: Size,
    /// How many vote at most as far as those know who answer. Enough to tell that a quorum is lost, and not that there is one.
    pub(super) told_voters: Option<usize>,
    /// The voters that answer and know of no leader.
    pub(super) leaderless: BTreeSet<Id>,
    /// The voters that are certainly of the quorum that works: they follow the leader in its term, and got a read done.
    pub(super) carrying: BTreeSet<Id>,
    /// Who leads.
    pub(super) leader: Option<Id>,
    pub(super) rows: Vec<Row>,
    /// Whether anybody says that a quorum answers it.
    pub(super) works: bool,
    /// Whether those who answer know of no leader, all of them.
    pub(super) is_lost: bool,
    /// Why nobody's data can be relied on, if that is so.
    pub(super) doubt: Option<&'static str>,
    /// Whether only health and metrics could be had.
    pub(super) is_poor: bool,
    /// What is changing about the membership, for people.
    pub(super) changes: Vec<String>,
    /// What else is wrong, for people.
    pub(super) notes: Vec<String>,
}

/// Of so many members each deletion is an outage, whatever is done.
pub(super) const SMALL: usize = 2;

fn many(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// What is said of the size of an ensemble of which so many vote. A set makes no more pods than it says; what an owner's `size` or
/// the configuration means is contradicted by more voters or pods, and then says nothing.
pub(super) fn believed(facts: &Facts, voters: usize) -> Size {
    match facts.size {
        Size::Told(size) if facts.replicas.is_none() && many(size) < voters.max(facts.seen.len()) => {
            Size::AtLeast(size)
        }
        _ => facts.size.clone(),
    }
}

/// How many members an ensemble with so many in its list is to have: as many as is said, or at least as it has pods where nobody
/// says it.
pub(super) fn meant(facts: &Facts, size: &Size, listed: usize) -> usize {
    let said = match size {
        Size::Told(size) => many(*size),
        Size::AtLeast(least) => many(*least).max(facts.seen.len()),
        Size::Unread(_) => facts.seen.len(),
    };
    said.max(listed)
}

impl Table {
    /// Reads the facts. Health and metrics tell of an ensemble only where nobody tells more: beside members that do, a pod without
    /// a gateway may be anybody.
    pub(super) fn of(config: &Config, facts: &Facts) -> Self {
        let any = |is_it: fn(&View) -> bool| facts.seen.iter().any(|seen| is_it(&seen.view));
        if any(|view| matches!(view, View::Poor(..))) && !any(|view| matches!(view, View::Full(_))) {
            return poor::table(facts);
        }
        Full::read(facts).table(config)
    }

    /// The row of a pod.
    pub(super) fn row(&self, uid: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.uid == uid)
    }

    /// How many members beside the one with this uid can be counted on.
    pub(super) fn healthy_beside(&self, uid: &str) -> usize {
        self.rows.iter().filter(|row| row.uid != uid && row.state == State::Healthy).count()
    }

    /// How many beside it carry the quorum and stay, well or not. Who says nothing does not: nobody knows with whom it is.
    pub(super) fn carrying_beside(&self, uid: &str) -> usize {
        let carries = |row: &Row| row.id.is_some_and(|id| self.carrying.contains(&id));
        self.rows.iter().filter(|row| row.uid != uid && !row.is_leaving && carries(row)).count()
    }

    /// Whether no quorum can be at work, with this one or without: too few are left beside those of the others that know of no
    /// leader. Not while anybody says that a quorum answers it.
    pub(super) fn has_lost_quorum_beside(&self, me: &Row) -> bool {
        let leaderless = self.leaderless.iter().filter(|id| me.id != Some(**id)).count();
        let is_lost = |voters: usize| voters.saturating_sub(leaderless) < voters / 2 + 1;
        !self.works && self.told_voters.is_some_and(is_lost)
    }

    /// Whether every other member knows of no leader, refuses connections as this one does, or does not run: there is nobody else
    /// with whom it could be a quorum.
    pub(super) fn is_dead_beside(&self, me: &Row, facts: &Facts) -> bool {
        let is_down =
            |uid: &str| facts.seen.iter().any(|seen| seen.pod.uid == uid && seen.pod.runs_no_etcd());
        let is_out = |row: &Row| match &row.state {
            State::Silent(why) => is_down(&row.uid) || why.code == cause::NOT_LISTENING,
            _ => row.id.is_some_and(|id| self.leaderless.contains(&id)),
        };
        let votes =
            |row: &&Row| row.uid != me.uid && !matches!(row.state, State::Learner | State::Stranger(_));
        let others: Vec<bool> = self.rows.iter().filter(votes).map(is_out).collect();
        // A voter may have no pod, and no row where the list is not sure.
        let has_all = self.told_voters.is_some_and(|voters| voters <= others.len() + 1);
        !self.works && has_all && others.into_iter().all(|is_out| is_out)
    }

    /// Whether some of its pods are of another ensemble that may miss them.
    pub(super) fn is_mixed(&self) -> bool {
        self.rows.iter().any(|row| matches!(row.state, State::Rival(_)))
    }

    /// Whether a member leads.
    pub(super) fn leads(&self, row: &Row) -> bool {
        row.id.is_some() && row.id == self.leader
    }

    /// Whether a leader is known of that no pod answered as, or of which nobody can tell which one it is: a silent pod may be it,
    /// whatever it is called.
    pub(super) fn has_hidden_leader(&self) -> bool {
        let mut answering = self.rows.iter().filter(|row| row.answers());
        match self.leader {
            Some(leader) => !answering.any(|row| row.id == Some(leader)),
            None => !self.is_lost && answering.next().is_some(),
        }
    }

    /// Whether it is known that each deletion is an outage: it is to have no more.
    pub(super) fn is_small(&self) -> bool {
        self.may_be_small() && matches!(self.size, Size::Told(_))
    }

    /// Whether nothing that is there says that it is to have more.
    pub(super) fn may_be_small(&self) -> bool {
        self.meant <= SMALL
    }

    /// Whether each of those who vote is needed only for the moment: it is to have more.
    pub(super) fn is_small_for_now(&self) -> bool {
        self.meant > SMALL && self.voters.as_ref().is_ok_and(|voters| *voters <= SMALL)
    }
}
