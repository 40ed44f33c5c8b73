//! Which ensemble the pods are of, and who its members are.

use std::collections::{BTreeMap, BTreeSet};

use admission::Cause;

use super::super::facts::{Answers, Facts, View};
use cluster::cause;
use cluster::etcd::{Id, MemberList};

/// Which ensemble the pods are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pinned {
    /// More than half of all of them say so.
    ByMost(Id),
    /// All that answer say so, and they are not more than half.
    ByFew(Id),
    /// They contradict each other, and none has more than half.
    Split,
    /// None of them says anything.
    Unknown,
}

impl Pinned {
    fn of(facts: &Facts) -> Self {
        let mut told: BTreeMap<Id, usize> = BTreeMap::new();
        for answers in all(facts) {
            *told.entry(answers.status.cluster).or_default() += 1;
        }
        if let Some((id, _)) = told.iter().find(|(_, many)| **many * 2 > facts.seen.len()) {
            return Self::ByMost(*id);
        }
        let mut ids = told.keys();
        match (ids.next(), ids.next()) {
            (None, _) => Self::Unknown,
            (Some(id), None) => Self::ByFew(*id),
            (Some(_), Some(_)) => Self::Split,
        }
    }

    fn id(self) -> Option<Id> {
        match self {
            Self::ByMost(id) | Self::ByFew(id) => Some(id),
            Self::Split | Self::Unknown => None,
        }
    }
}

/// Those who answer, and what they have in common.
#[derive(Clone, Copy)]
pub(super) struct Voices<'f> {
    facts: &'f Facts,
    pub(super) pinned: Pinned,
}

impl<'f> Voices<'f> {
    pub(super) fn of(facts: &'f Facts) -> Self {
        Self { facts, pinned: Pinned::of(facts) }
    }

    /// The answers of those who are of the ensemble.
    pub(super) fn answers(&self) -> impl Iterator<Item = &'f Answers> + use<'f> {
        let id = self.pinned.id();
        all(self.facts).filter(move |answers| Some(answers.status.cluster) == id)
    }

    /// Every list that one of them gave of its own ensemble.
    pub(super) fn lists(&self) -> impl Iterator<Item = &'f MemberList> + use<'f> {
        self.answers()
            .filter_map(|answers| own(answers, &answers.by_quorum).or_else(|| own(answers, &answers.members)))
    }

    /// How many pods answer as this member.
    pub(super) fn answering(&self, id: Id) -> usize {
        self.answers().filter(|answers| answers.status.member == id).count()
    }

    /// Which pods are of which ensemble.
    fn split(&self) -> String {
        let mut told: BTreeMap<Id, Vec<&str>> = BTreeMap::new();
        for seen in &self.facts.seen {
            if let View::Full(answers) = &seen.view {
                told.entry(answers.status.cluster).or_default().push(&seen.pod.name);
            }
        }
        let each = told.iter().map(|(id, pods)| format!("{id:x}: {}", pods.join(", ")));
        format!(
            "its pods are of {} etcd ensembles ({}), none of which has most of them; give each an entry with a selector of its own",
            told.len(),
            each.collect::<Vec<_>>().join("; ")
        )
    }

    /// The list of members: one that a quorum stands behind, or else one that more than half of its voters have.
    pub(super) fn list(&self) -> Result<&'f MemberList, Cause> {
        let unclear = |text: &str| Err(Cause::new(cause::UNCLEAR, text));
        match self.pinned {
            Pinned::Split => return unclear(&self.split()),
            Pinned::Unknown => return Err(self.silence()),
            Pinned::ByMost(_) | Pinned::ByFew(_) => {}
        }
        let mut by_quorum = self.answers().filter_map(|answers| own(answers, &answers.by_quorum));
        if let Some(first) = by_quorum.next() {
            if by_quorum.any(|other| votes(other) != votes(first)) {
                return unclear("its list of members changes at this moment");
            }
            return Ok(first);
        }
        let local: Vec<(Id, &MemberList)> = self
            .answers()
            .filter_map(|answers| Some((answers.status.member, own(answers, &answers.members)?)))
            .collect();
        let has_most = |list: &MemberList| {
            let behind: BTreeSet<Id> = local
                .iter()
                .filter(|(_, other)| votes(other) == votes(list))
                .map(|(member, _)| *member)
                .filter(|member| is_voter(list, *member))
                .collect();
            behind.len() * 2 > voters(list)
        };
        if let Some((_, list)) = local.iter().find(|(_, list)| has_most(list)) {
            return Ok(list);
        }
        match self.answers().find_map(|answers| answers.by_quorum.as_ref().err()) {
            Some(why) if local.is_empty() => Err(why.clone()),
            _ => unclear("no majority of its members agrees on who the members are"),
        }
    }

    /// The list that all have who answer, where nothing contradicts it: nobody knows a leader, and there are no more pods, nor are
    /// there to be more, than it has members. What so few say may be old; but a quorum that would have changed it has a leader.
    pub(super) fn unanimous(&self) -> Option<&'f MemberList> {
        // A learner has no list to show.
        let mut lists = self
            .answers()
            .filter(|answers| !answers.status.is_learner)
            .map(|answers| own(answers, &answers.members));
        let first = lists.next()??;
        let pods = u64::try_from(self.facts.seen.len()).unwrap_or(u64::MAX);
        let listed = u64::try_from(first.members.len()).unwrap_or(0);
        let is_agreed = lists.all(|list| list.is_some_and(|list| votes(list) == votes(first)));
        let is_led = self.answers().any(|answers| answers.status.leader.is_some());
        let is_enough = pods.max(self.facts.replicas.unwrap_or(0)) <= listed;
        (is_agreed && !is_led && is_enough).then_some(first)
    }

    /// Whether one of another ensemble may be missed there: it is not the only pod of it, or not known to be its only member.
    pub(super) fn is_rival(&self, stranger: &Answers) -> bool {
        let cluster = stranger.status.cluster;
        let pods = all(self.facts).filter(|answers| answers.status.cluster == cluster).count();
        let is_alone = own(stranger, &stranger.members).is_some_and(|list| voters(list) == 1);
        !stranger.status.is_learner && (pods > 1 || !is_alone)
    }

    /// Why nobody of the ensemble said anything.
    fn silence(&self) -> Cause {
        let first = self.facts.seen.iter().find_map(|seen| match &seen.view {
            View::Silent(why) => Some(why.clone()),
            View::Full(_) | View::Poor(..) => None,
        });
        first.unwrap_or_else(|| Cause::new(cause::UNCLEAR, "it has no pods that could be asked"))
    }
}

/// Every answer, of whatever ensemble.
fn all(facts: &Facts) -> impl Iterator<Item = &Answers> {
    facts.seen.iter().filter_map(|seen| match &seen.view {
        View::Full(answers) => Some(answers.as_ref()),
        View::Poor(..) | View::Silent(_) => None,
    })
}

/// A list that a member gave, if it is of its own ensemble and holds itself.
fn own<'f>(answers: &Answers, list: &'f Result<MemberList, Cause>) -> Option<&'f MemberList> {
    let holds = |list: &MemberList| list.members.iter().any(|listed| listed.id == answers.status.member);
    list.as_ref().ok().filter(|list| list.cluster == answers.status.cluster && holds(list))
}

/// Which members vote.
pub(super) fn votes(list: &MemberList) -> BTreeMap<Id, bool> {
    list.members.iter().map(|member| (member.id, !member.is_learner)).collect()
}

/// How many vote.
pub(super) fn voters(list: &MemberList) -> usize {
    votes(list).values().filter(|votes| **votes).count()
}

/// Whether this member votes.
pub(super) fn is_voter(list: &MemberList, id: Id) -> bool {
    votes(list).get(&id) == Some(&true)
}
