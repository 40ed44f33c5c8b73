//! The etcd cluster that the pods report, and its list of members.

use std::collections::{BTreeMap, BTreeSet};

use admission::Cause;

use super::super::facts::{Answers, Facts, PodFacts};
use cluster::cause;
use cluster::etcd::{Id, MemberList};

/// How far the pods agree on a cluster id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClusterIdConsensus {
    /// More than half of all pods report it.
    Majority(Id),
    /// All answers report it, and they come from at most half of the pods.
    Minority(Id),
    /// The answers differ, and no id has more than half of the pods.
    Split,
    /// No pod answers.
    Unknown,
}

impl ClusterIdConsensus {
    fn of(facts: &Facts) -> Self {
        let mut counts: BTreeMap<Id, usize> = BTreeMap::new();
        for answers in all(facts) {
            *counts.entry(answers.status.cluster).or_default() += 1;
        }
        if let Some((id, _)) = counts.iter().find(|(_, count)| **count * 2 > facts.pods.len()) {
            return Self::Majority(*id);
        }
        let mut ids = counts.keys();
        match (ids.next(), ids.next()) {
            (None, _) => Self::Unknown,
            (Some(id), None) => Self::Minority(*id),
            (Some(_), Some(_)) => Self::Split,
        }
    }

    fn id(self) -> Option<Id> {
        match self {
            Self::Majority(id) | Self::Minority(id) => Some(id),
            Self::Split | Self::Unknown => None,
        }
    }
}

/// The answers of the members, and the cluster id that they agree on.
#[derive(Clone, Copy)]
pub(super) struct Responses<'f> {
    facts: &'f Facts,
    pub(super) cluster_id: ClusterIdConsensus,
}

impl<'f> Responses<'f> {
    pub(super) fn of(facts: &'f Facts) -> Self {
        Self { facts, cluster_id: ClusterIdConsensus::of(facts) }
    }

    /// Returns the answers with the agreed cluster id.
    pub(super) fn answers(&self) -> impl Iterator<Item = &'f Answers> + use<'f> {
        let id = self.cluster_id.id();
        all(self.facts).filter(move |answers| Some(answers.status.cluster) == id)
    }

    /// Returns how many pods answer as this member.
    pub(super) fn answering(&self, id: Id) -> usize {
        self.answers().filter(|answers| answers.status.member == id).count()
    }

    /// Returns the list of members: one that a quorum confirms, or else one that more than half of its voters have.
    pub(super) fn list(&self) -> Result<&'f MemberList, Cause> {
        let unclear = |text: &str| Err(Cause::new(cause::UNCLEAR, text));
        match self.cluster_id {
            ClusterIdConsensus::Split => return Err(Cause::new(cause::MIXED_CLUSTERS, self.split_reason())),
            ClusterIdConsensus::Unknown => return Err(self.first_error()),
            ClusterIdConsensus::Majority(_) | ClusterIdConsensus::Minority(_) => {}
        }
        let mut by_quorum = self.answers().filter_map(|answers| own_list(answers, &answers.by_quorum));
        if let Some(first) = by_quorum.next() {
            if by_quorum.any(|other| votes(other) != votes(first)) {
                return unclear("its member list is changing");
            }
            return Ok(first);
        }
        let local: Vec<(Id, &MemberList)> = self
            .answers()
            .filter_map(|answers| Some((answers.status.member, own_list(answers, &answers.members)?)))
            .collect();
        let has_majority = |list: &MemberList| {
            let supporters: BTreeSet<Id> = local
                .iter()
                .filter(|(_, other)| votes(other) == votes(list))
                .map(|(member, _)| *member)
                .filter(|member| is_voter(list, *member))
                .collect();
            supporters.len() * 2 > voters(list)
        };
        if let Some((_, list)) = local.iter().find(|(_, list)| has_majority(list)) {
            return Ok(list);
        }
        match self.answers().find_map(|answers| answers.by_quorum.as_ref().err()) {
            Some(why) if local.is_empty() => Err(why.clone()),
            _ => unclear("no majority of its members agrees on the member list"),
        }
    }

    /// Returns the list that all answering voters have, if nothing contradicts it: none of them knows a leader, and there are no more
    /// pods or replicas than listed members. Their list may be outdated, but a quorum that changed it would have a leader.
    pub(super) fn unanimous(&self) -> Option<&'f MemberList> {
        // A learner returns no list.
        let mut lists = self
            .answers()
            .filter(|answers| !answers.status.is_learner)
            .map(|answers| own_list(answers, &answers.members));
        let first = lists.next()??;
        let pods = u64::try_from(self.facts.pods.len()).unwrap_or(u64::MAX);
        let listed = u64::try_from(first.members.len()).unwrap_or(0);
        let is_agreed = lists.all(|list| list.is_some_and(|list| votes(list) == votes(first)));
        let has_leader = self.answers().any(|answers| answers.status.leader.is_some());
        let is_complete = pods.max(self.facts.sizes.replicas.unwrap_or(0)) <= listed;
        (is_agreed && !has_leader && is_complete).then_some(first)
    }

    fn split_reason(&self) -> String {
        let mut pods: BTreeMap<Id, Vec<&str>> = BTreeMap::new();
        for facts in &self.facts.pods {
            if let Some(answers) = facts.answers() {
                pods.entry(answers.status.cluster).or_default().push(&facts.pod.name);
            }
        }
        let each = pods.iter().map(|(id, pods)| format!("{id:x}: {}", pods.join(", ")));
        format!(
            "the selector matches pods of {} etcd clusters ({}), none has a majority",
            pods.len(),
            each.collect::<Vec<_>>().join("; ")
        )
    }

    /// Returns why the first pod did not answer.
    fn first_error(&self) -> Cause {
        let first = self.facts.pods.iter().find_map(|facts| facts.view.as_ref().err());
        first.cloned().unwrap_or_else(|| Cause::new(cause::UNCLEAR, "it has no pods that answer"))
    }
}

/// Returns the answers of all etcd clusters.
fn all(facts: &Facts) -> impl Iterator<Item = &Answers> {
    facts.pods.iter().filter_map(PodFacts::answers)
}

/// Returns a member's list if it has the cluster id of the member and contains the member.
fn own_list<'f>(answers: &Answers, list: &'f Result<MemberList, Cause>) -> Option<&'f MemberList> {
    let contains = |list: &MemberList| list.members.iter().any(|listed| listed.id == answers.status.member);
    list.as_ref().ok().filter(|list| list.cluster == answers.status.cluster && contains(list))
}

/// Returns whether each member votes.
pub(super) fn votes(list: &MemberList) -> BTreeMap<Id, bool> {
    list.members.iter().map(|member| (member.id, !member.is_learner)).collect()
}

/// Returns the number of voters.
pub(super) fn voters(list: &MemberList) -> usize {
    votes(list).values().filter(|votes| **votes).count()
}

/// Whether this member votes.
pub(super) fn is_voter(list: &MemberList, id: Id) -> bool {
    votes(list).get(&id) == Some(&true)
}
