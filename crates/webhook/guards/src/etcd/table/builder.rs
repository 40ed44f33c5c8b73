//! Builds the table from the answers of the members.

use std::collections::BTreeSet;

use admission::Cause;

use super::super::facts::{Answers, Facts, PodFacts};
use super::alarms::{self, Alarms};
use super::responses::{self, ClusterIdConsensus, Responses, is_voter, votes};
use super::{MAX_LAG, MemberProblem, MemberState, MembershipChange, Row, TOO_FEW_ANSWERS, Table};
use cluster::cause;
use cluster::etcd::{Id, MemberList, Read};

/// The facts and what the answers agree on.
pub(super) struct TableBuilder<'f> {
    facts: &'f Facts,
    responses: Responses<'f>,
    list: Result<&'f MemberList, Cause>,
    leader: Option<Id>,
    term: u64,
    alarms: Alarms,
}

impl<'f> TableBuilder<'f> {
    pub(super) fn new(facts: &'f Facts) -> Self {
        let responses = Responses::of(facts);
        let list = responses.list();
        let (term, leader) = term_and_leader(responses, list.as_ref().ok().copied());
        Self { facts, responses, list, leader, term, alarms: Alarms::of(responses.answers()) }
    }

    fn state(&self, pod: &PodFacts) -> (Option<Id>, MemberState, Option<u64>) {
        let answers = match &pod.view {
            Ok(answers) => answers.as_ref(),
            Err(why) => return (None, MemberState::NoResponse(why.clone()), None),
        };
        let status = &answers.status;
        let id = Some(status.member);
        let unhealthy = |problem: MemberProblem| (id, MemberState::Unhealthy(problem), None);
        match self.responses.cluster_id {
            ClusterIdConsensus::Majority(cluster) if cluster != status.cluster => {
                return (None, MemberState::OtherCluster(status.cluster), None);
            }
            ClusterIdConsensus::Majority(_) => {}
            ClusterIdConsensus::Split => {
                return unhealthy(MemberProblem::SplitClusters);
            }
            ClusterIdConsensus::Minority(_) | ClusterIdConsensus::Unknown => {
                return unhealthy(MemberProblem::TooFewAnswers);
            }
        }
        let Ok(list) = &self.list else { return unhealthy(MemberProblem::UnknownList) };
        let lag = self.lag(answers);
        let state = match votes(list).get(&status.member) {
            None => MemberState::NotMember,
            Some(_) if self.responses.answering(status.member) > 1 => {
                MemberState::Unhealthy(MemberProblem::DuplicateId)
            }
            Some(false) => MemberState::Learner,
            Some(true) if self.alarms.is_corrupt(status.member) => MemberState::Corrupt,
            Some(true) => match pod.leaving() {
                Some(why) => MemberState::Leaving(why),
                None => self.problem(answers, lag).map_or(MemberState::Healthy, MemberState::Unhealthy),
            },
        };
        (id, state, lag)
    }

    /// Returns how many log entries a member is behind the leader, or behind the furthest member without a leader's answer.
    fn lag(&self, answers: &Answers) -> Option<u64> {
        let leader = self.responses.answers().find(|other| Some(other.status.member) == self.leader);
        let furthest = match leader {
            Some(leader) => Some(leader.status.index),
            None => self.responses.answers().map(|other| other.status.index).max(),
        };
        let own = answers.status.applied.unwrap_or(answers.status.index);
        furthest.map(|furthest| furthest.saturating_sub(own))
    }

    /// Returns why a voter does not count.
    fn problem(&self, answers: &Answers, lag: Option<u64>) -> Option<MemberProblem> {
        let status = &answers.status;
        if self.alarms.has_unnamed_corruption() {
            return Some(MemberProblem::Corruption);
        }
        let Some(leader) = self.leader else { return Some(MemberProblem::NoLeader) };
        if status.leader.is_none() {
            return Some(MemberProblem::KnowsNoLeader);
        }
        if status.term != self.term {
            return Some(MemberProblem::OtherTerm { own: status.term, others: self.term });
        }
        if status.leader != Some(leader) {
            return Some(MemberProblem::OtherLeader);
        }
        if status.is_learner {
            return Some(MemberProblem::ReportsLearner);
        }
        if let Some(why) = alarms::parse_error(answers) {
            return Some(MemberProblem::InvalidAlarms(why.clone()));
        }
        if !self.alarms.is_known {
            return Some(MemberProblem::UnknownAlarms);
        }
        if let Some(lag) = lag.filter(|lag| *lag > MAX_LAG) {
            return Some(MemberProblem::Behind(lag));
        }
        match &answers.read {
            Ok(Read::Served | Read::Denied) => None,
            Err(why) => Some(MemberProblem::NoRead(why.clone())),
        }
    }

    /// Returns the members that certainly are in the working quorum: they follow the leader, and a read succeeded through them. The
    /// reported leader alone may be outdated, for example if a disk hangs.
    fn quorum_members(&self) -> BTreeSet<Id> {
        let Ok(list) = &self.list else { return BTreeSet::new() };
        let id = |pod: &PodFacts| {
            let Answers { status, read, by_quorum, .. } = pod.answers()?;
            let id = status.member;
            let follows = self.leader.is_some() && status.leader == self.leader && status.term == self.term;
            let is_itself = self.responses.answering(id) == 1;
            let reads = read.is_ok() || by_quorum.is_ok();
            (is_voter(list, id) && is_itself && follows && reads).then_some(id)
        };
        self.facts.pods.iter().filter_map(id).collect()
    }

    pub(super) fn table(self) -> Table {
        let row = |pod| {
            let (id, state, lag) = self.state(pod);
            Row { lag, ..Row::of(pod, id, state) }
        };
        let mut rows: Vec<Row> = self.facts.pods.iter().map(row).collect();
        if let Ok(list) = &self.list {
            self.add_members_without_pod(list, &mut rows);
        }
        let name = |id: Id| {
            let row = rows.iter().find(|row| row.id == Some(id));
            row.map_or_else(|| format!("{id:x}"), |row| row.name.clone())
        };
        let answers = || self.responses.answers();
        let has_leader = |answers: &Answers| answers.status.leader.is_some();
        let has_majority = matches!(self.responses.cluster_id, ClusterIdConsensus::Majority(_));
        let list = self.list.as_ref().ok().copied();
        let reported = list.filter(|_| has_majority).or_else(|| self.responses.unanimous());
        let leaderless = answers()
            .filter(|answers| !has_leader(answers))
            .map(|answers| answers.status.member)
            .filter(|id| reported.is_some_and(|list| is_voter(list, *id)));
        let listed = list.map_or(0, |list| list.members.len());
        let expected =
            self.facts.sizes.expected(list.map_or(0, responses::voters), listed, self.facts.pods.len());
        Table {
            cluster: self.facts.cluster.clone(),
            voters: match &self.list {
                Ok(_) if !has_majority => Err(Cause::new(cause::UNCLEAR, TOO_FEW_ANSWERS)),
                Ok(list) => Ok(responses::voters(list)),
                Err(why) => Err(why.clone()),
            },
            expected,
            reported_voters: reported.map(responses::voters),
            leaderless: leaderless.collect(),
            quorum_members: self.quorum_members(),
            listed_voters: list.map(responses::voters),
            leader: self.leader,
            has_working_quorum: answers().any(|answers| answers.read.is_ok() || answers.by_quorum.is_ok()),
            is_leaderless: answers().next().is_some() && !answers().any(has_leader),
            changes: self.changes(),
            notes: self.alarms.notes(name),
            rows,
        }
    }

    fn add_members_without_pod(&self, list: &MemberList, rows: &mut Vec<Row>) {
        for member in list.members.iter().filter(|member| self.responses.answering(member.id) == 0) {
            // A name proves nothing: a pod without a response keeps its state and only gets the id that users see.
            let has_name = |row: &&mut Row| {
                matches!(row.state, MemberState::NoResponse(_)) && row.id.is_none() && row.name == member.name
            };
            match rows.iter_mut().find(has_name) {
                Some(row) => row.id = Some(member.id),
                None => rows.push(Row::without_pod(member.id, &member.name)),
            }
        }
    }

    /// Returns the membership changes in progress.
    fn changes(&self) -> Vec<MembershipChange> {
        let members = self.list.as_ref().map_or(&[][..], |list| list.members.as_slice());
        let learners = members.iter().filter(|member| member.is_learner).count();
        let unstarted =
            members.iter().filter(|member| member.name.is_empty() && member.client_urls.is_empty()).count();
        let mut changes = Vec::new();
        if learners > 0 {
            changes.push(MembershipChange::Learners(learners));
        }
        if unstarted > 0 {
            changes.push(MembershipChange::Unstarted(unstarted));
        }
        if self.responses.answers().any(|answers| answers.status.is_downgrading) {
            changes.push(MembershipChange::Downgrade);
        }
        changes
    }
}

/// Returns the highest term that has a leader, and the leader.
fn term_and_leader(responses: Responses<'_>, list: Option<&MemberList>) -> (u64, Option<Id>) {
    let claims =
        || responses.answers().filter_map(|answers| Some((answers.status.term, answers.status.leader?)));
    let Some(term) = claims().map(|(term, _)| term).max() else { return (0, None) };
    let leaders: BTreeSet<Id> = claims().filter(|(t, _)| *t == term).map(|(_, leader)| leader).collect();
    // A term has one leader at most. If two are reported, one of the answers is not from etcd.
    let only = (leaders.len() == 1).then(|| leaders.first().copied()).flatten();
    (term, only.filter(|id| list.is_none_or(|list| is_voter(list, *id))))
}
