//! The members as a table: who they are, what each is worth now, who leads, and whether there is a quorum. Pure.
//!
//! What nobody said counts for nothing: a member is healthy only if it says so itself, if the others agree with it on ensemble, term
//! and leader, if a linearizable read came about through it, and if nobody has let its pod go.
//!
//! An ensemble id counts if more than half of the pods have it, so that one pod with the right labels and another etcd in it can
//! neither vouch for anybody nor be taken for a member. Of two leaders the one of the higher term is it; the other does not know
//! yet that it is none (seen in the lab 0.2 s after the quorum was lost).

use std::collections::{BTreeMap, BTreeSet};

use admission::Cause;

use super::config::Config;
use super::facts::{Answers, Facts, Seen, View};
use super::poor;
use crate::world::cause;
use crate::world::etcd::{AlarmKind, Id, Members, Read};

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
    /// It is of another ensemble, or in no list.
    Stranger(String),
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
    /// Whether its node takes no new pods.
    pub(super) is_cordoned: bool,
    /// Whether it is what its `StatefulSet` updates its pods to.
    pub(super) is_updated: bool,
}

impl Row {
    fn of(seen: &Seen, id: Option<Id>, state: State) -> Self {
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
            is_cordoned: seen.is_cordoned,
            is_updated: seen.is_updated,
        }
    }

    /// Whether it said anything.
    pub(super) fn answers(&self) -> bool {
        !matches!(self.state, State::Absent | State::Silent(_))
    }

    /// A row for members that are told of by health and metrics only.
    pub(super) fn poor(seen: &Seen, id: Option<Id>, state: State) -> Self {
        Self::of(seen, id, state)
    }
}

/// The ensemble as it is seen.
#[derive(Debug, Clone)]
pub(super) struct Table {
    /// What people call it.
    pub(super) ensemble: String,
    /// How many vote, or why nobody knows.
    pub(super) voters: Result<usize, Cause>,
    /// Who leads.
    pub(super) leader: Option<Id>,
    pub(super) rows: Vec<Row>,
    /// Whether anybody says that a quorum answers it.
    pub(super) works: bool,
    /// Whether those who answer know of no leader, all of them.
    pub(super) is_lost: bool,
    /// How many voters answer and know of none.
    pub(super) leaderless: usize,
    /// Whether only health and metrics could be had.
    pub(super) is_poor: bool,
    /// What is changing about the membership, for people.
    pub(super) changes: Vec<String>,
    /// What else is wrong, for people.
    pub(super) notes: Vec<String>,
}

impl Table {
    /// Reads the facts.
    pub(super) fn of(config: &Config, facts: &Facts) -> Self {
        if facts.seen.iter().any(|seen| matches!(seen.view, View::Poor(..))) {
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

    /// How many beside it may be voting, as far as anybody knows: all but those that are known not to.
    pub(super) fn possible_beside(&self, uid: &str) -> usize {
        let may = |row: &&Row| match &row.state {
            State::Learner | State::Stranger(_) => false,
            State::Silent(why) => why.code != cause::NOT_LISTENING,
            State::Healthy | State::Unfit(_) | State::Corrupt | State::Leaving(_) | State::Absent => true,
        };
        self.rows.iter().filter(|row| row.uid != uid).filter(may).count()
    }

    /// Whether a member leads.
    pub(super) fn leads(&self, row: &Row) -> bool {
        row.id.is_some() && row.id == self.leader
    }

    /// Whether the leader is a member that no pod answered as: a silent pod may be it, whatever it is called.
    pub(super) fn has_hidden_leader(&self) -> bool {
        let is_seen = |id| self.rows.iter().any(|row| row.id == Some(id) && row.answers());
        self.leader.is_some_and(|leader| !is_seen(leader))
    }
}

/// The facts with what they have in common.
struct Full<'f> {
    facts: &'f Facts,
    /// The id that counts, and whether more than half of the pods have it.
    cluster: Option<(Id, bool)>,
    /// Why none counts, where the pods contradict each other.
    split: bool,
    /// Who is in the list, and whether it votes.
    list: Result<&'f Members, Cause>,
    leader: Option<Id>,
    term: u64,
    corrupt: BTreeSet<Id>,
    /// Whether anybody told which alarms there are.
    knows_alarms: bool,
}

impl<'f> Full<'f> {
    fn read(facts: &'f Facts) -> Self {
        let (cluster, split) = cluster(facts);
        let mut full = Self {
            facts,
            cluster,
            split,
            list: Err(Cause::new(cause::UNCLEAR, "")),
            leader: None,
            term: 0,
            corrupt: BTreeSet::new(),
            knows_alarms: false,
        };
        full.list = full.voters();
        (full.term, full.leader) = full.agreed();
        let tells = |answers: &Answers| answers.alarms.is_ok() || !is_before(&answers.status.version, 3, 4);
        full.knows_alarms = full.answers().any(tells);
        full.corrupt = full.alarmed(|kind| matches!(kind, Told::Corrupt));
        full
    }

    /// The answers of those who are of the ensemble.
    fn answers(&self) -> impl Iterator<Item = &'f Answers> + use<'f> {
        let (facts, cluster) = (self.facts, self.cluster.map(|(id, _)| id));
        let all = facts.seen.iter().filter_map(|seen| match &seen.view {
            View::Full(answers) => Some(answers.as_ref()),
            View::Poor(..) | View::Silent(_) => None,
        });
        all.filter(move |answers| Some(answers.status.cluster) == cluster)
    }

    /// How many pods answer as this member.
    fn answering(&self, id: Id) -> usize {
        self.answers().filter(|answers| answers.status.member == id).count()
    }

    /// The list of members: one that a quorum stands behind, or else one that more than half of its voters have.
    fn voters(&self) -> Result<&'f Members, Cause> {
        let unclear = |text: String| Err(Cause::new(cause::UNCLEAR, text));
        let Some((cluster, _)) = self.cluster else {
            if self.split {
                return unclear(
                    "its pods are of several ensembles, none of which most of them are of".to_owned(),
                );
            }
            return Err(self.silence());
        };
        let is_own = |list: &&Members, member: Id| {
            list.cluster == cluster && list.members.iter().any(|listed| listed.id == member)
        };
        let mut by_quorum = self.answers().filter_map(|answers| {
            answers.by_quorum.as_ref().ok().filter(|list| is_own(list, answers.status.member))
        });
        if let Some(first) = by_quorum.next() {
            if by_quorum.any(|other| votes(other) != votes(first)) {
                return unclear("its list of members changes at this moment".to_owned());
            }
            return Ok(first);
        }
        let local: Vec<(Id, &Members)> = self
            .answers()
            .filter_map(|answers| {
                let list = answers.members.as_ref().ok().filter(|list| is_own(list, answers.status.member));
                list.map(|list| (answers.status.member, list))
            })
            .collect();
        let has_most = |list: &Members| {
            let behind: BTreeSet<Id> = local
                .iter()
                .filter(|(_, other)| votes(other) == votes(list))
                .map(|(member, _)| *member)
                .filter(|member| votes(list).get(member) == Some(&true))
                .collect();
            behind.len() * 2 > votes(list).values().filter(|votes| **votes).count()
        };
        if let Some((_, list)) = local.iter().find(|(_, list)| has_most(list)) {
            return Ok(list);
        }
        match self.answers().find_map(|answers| answers.by_quorum.as_ref().err()) {
            Some(why) if local.is_empty() => Err(why.clone()),
            _ => unclear("no majority of its members agrees on who the members are".to_owned()),
        }
    }

    /// Why nobody of the ensemble said anything.
    fn silence(&self) -> Cause {
        let first = self.facts.seen.iter().find_map(|seen| match &seen.view {
            View::Silent(why) => Some(why.clone()),
            View::Full(_) | View::Poor(..) => None,
        });
        first.unwrap_or_else(|| Cause::new(cause::UNCLEAR, "it has no pods that could be asked"))
    }

    /// The highest term in which somebody leads, and who.
    fn agreed(&self) -> (u64, Option<Id>) {
        let claims =
            || self.answers().filter_map(|answers| Some((answers.status.term, answers.status.leader?)));
        let Some(term) = claims().map(|(term, _)| term).max() else { return (0, None) };
        let leaders: BTreeSet<Id> = claims().filter(|(t, _)| *t == term).map(|(_, leader)| leader).collect();
        // Two leaders of one term cannot be: somebody is no etcd.
        let only = (leaders.len() == 1).then(|| leaders.first().copied()).flatten();
        let is_voter = |id: &Id| self.list.as_ref().is_ok_and(|list| votes(list).get(id) == Some(&true));
        (term, only.filter(|id| self.list.is_err() || is_voter(id)))
    }

    /// Members with such an alarm, as any of them says.
    fn alarmed(&self, is_it: impl Fn(&Told) -> bool) -> BTreeSet<Id> {
        let asked = self.answers().filter_map(|answers| answers.alarms.as_ref().ok()).flatten();
        let asked = asked.map(|alarm| {
            let told = match &alarm.kind {
                AlarmKind::NoSpace => Told::NoSpace,
                AlarmKind::Corrupt => Told::Corrupt,
                AlarmKind::Other(_) => Told::Other,
            };
            (alarm.member, told)
        });
        // From 3.4 a status tells every alarm too.
        let complained = self.answers().flat_map(|answers| &answers.status.errors);
        let complained = complained.filter_map(|line| complaint(line));
        asked.chain(complained).filter(|(_, told)| is_it(told)).map(|(member, _)| member).collect()
    }

    fn state(&self, config: &Config, seen: &Seen) -> (Option<Id>, State, Option<u64>) {
        let answers = match &seen.view {
            View::Full(answers) => answers.as_ref(),
            View::Silent(why) => return (None, State::Silent(why.clone()), None),
            // There are none of these here.
            View::Poor(..) => return (None, State::Silent(Cause::new(cause::GATEWAY_OFF, "")), None),
        };
        let status = &answers.status;
        let id = Some(status.member);
        match self.cluster {
            Some((cluster, true)) if cluster != status.cluster => {
                let text = format!("it is of another ensemble, {:x}", status.cluster);
                return (None, State::Stranger(text), None);
            }
            Some((_, true)) => {}
            Some((_, false)) | None => {
                let why = "too few pods answer to tell which ensemble this is".to_owned();
                return (id, State::Unfit(why), None);
            }
        }
        let Ok(list) = &self.list else {
            return (id, State::Unfit("who the members are is not known".to_owned()), None);
        };
        let lag = self.lag(answers);
        let state = match votes(list).get(&status.member) {
            None => State::Stranger("it is not in the list of members".to_owned()),
            Some(_) if self.answering(status.member) > 1 => {
                State::Unfit("another pod says that it is the same member".to_owned())
            }
            Some(false) => State::Learner,
            Some(true) if self.corrupt.contains(&status.member) => State::Corrupt,
            Some(true) if seen.pod.is_going => State::Leaving("its pod is being deleted"),
            Some(true) if seen.is_reserved => State::Leaving("its pod was asked for or let go a moment ago"),
            Some(true) => self.unfit(config, answers, lag).map_or(State::Healthy, State::Unfit),
        };
        (id, state, lag)
    }

    /// How many entries a member is behind its leader, or behind whoever is furthest where the leader says nothing.
    fn lag(&self, answers: &Answers) -> Option<u64> {
        let leader = self.answers().find(|other| Some(other.status.member) == self.leader);
        let furthest = match leader {
            Some(leader) => Some(leader.status.index),
            None => self.answers().map(|other| other.status.index).max(),
        };
        let own = answers.status.applied.unwrap_or(answers.status.index);
        furthest.map(|furthest| furthest.saturating_sub(own))
    }

    /// Why a voter cannot be counted on.
    fn unfit(&self, config: &Config, answers: &Answers, lag: Option<u64>) -> Option<String> {
        let status = &answers.status;
        let Some(leader) = self.leader else { return Some("nobody leads".to_owned()) };
        if status.leader.is_none() {
            return Some("it knows no leader".to_owned());
        }
        if status.term != self.term {
            return Some(format!("it is in term {}, the others in {}", status.term, self.term));
        }
        if status.leader != Some(leader) {
            return Some("it takes another member for the leader".to_owned());
        }
        if status.is_learner {
            return Some("it takes itself for a learner".to_owned());
        }
        if !self.knows_alarms {
            return Some("nobody said which alarms are raised".to_owned());
        }
        if let Some(lag) = lag.filter(|lag| *lag > config.lag) {
            return Some(format!("it is {lag} entries behind"));
        }
        match &answers.read {
            Ok(Read::Served | Read::Denied) => None,
            Err(why) => Some(format!("no linearizable read came about: {}", why.text)),
        }
    }

    fn table(self, config: &Config) -> Table {
        let mut rows: Vec<Row> = self
            .facts
            .seen
            .iter()
            .map(|seen| {
                let (id, state, lag) = self.state(config, seen);
                Row { lag, ..Row::of(seen, id, state) }
            })
            .collect();
        let is_pinned = matches!(self.cluster, Some((_, true)));
        let mut changes = Vec::new();
        if let Ok(list) = &self.list {
            for member in list.members.iter().filter(|member| self.answering(member.id) == 0) {
                // A name proves nothing, so this is for people only: a silent pod stays one.
                let is_namesake = |row: &&mut Row| {
                    matches!(row.state, State::Silent(_)) && row.id.is_none() && row.name == member.name
                };
                if let Some(row) = rows.iter_mut().find(is_namesake) {
                    row.id = Some(member.id);
                    continue;
                }
                rows.push(Row {
                    uid: String::new(),
                    name: if member.name.is_empty() {
                        format!("{:x}", member.id)
                    } else {
                        member.name.clone()
                    },
                    id: Some(member.id),
                    state: State::Absent,
                    term: None,
                    lag: None,
                    is_cordoned: false,
                    is_updated: false,
                });
            }
            let learners = list.members.iter().filter(|member| member.is_learner).count();
            let unstarted =
                list.members.iter().filter(|m| m.name.is_empty() && m.client_urls.is_empty()).count();
            if learners > 0 {
                changes.push(format!("members that do not vote yet: {learners}"));
            }
            if unstarted > 0 {
                changes.push(format!("members that have not started yet: {unstarted}"));
            }
        }
        if self.answers().any(|answers| answers.status.is_downgrading) {
            changes.push("a downgrade is under way".to_owned());
        }
        let named = |ids: &BTreeSet<Id>| {
            let name = |id: &Id| rows.iter().find(|row| row.id == Some(*id)).map(|row| row.name.clone());
            ids.iter().map(|id| name(id).unwrap_or_else(|| format!("{id:x}"))).collect::<Vec<_>>().join(", ")
        };
        let mut notes = Vec::new();
        let full = self.alarmed(|told| matches!(told, Told::NoSpace));
        if !full.is_empty() {
            notes.push(format!("alarm NOSPACE of {}: nobody can write until space is made", named(&full)));
        }
        let others = self.alarmed(|told| matches!(told, Told::Other));
        if !others.is_empty() {
            notes.push(format!("an alarm of {} that Durward does not know", named(&others)));
        }
        let has_leader = |answers: &Answers| answers.status.leader.is_some();
        let is_voter = |id: Id| self.list.as_ref().is_ok_and(|list| votes(list).get(&id) == Some(&true));
        let leaderless: BTreeSet<Id> = self
            .answers()
            .filter(|answers| !has_leader(answers) && is_voter(answers.status.member))
            .map(|answers| answers.status.member)
            .collect();
        Table {
            ensemble: self.facts.ensemble.clone(),
            voters: match &self.list {
                Ok(_) if !is_pinned => {
                    let text = "too few of its pods answer to tell which ensemble this is";
                    Err(Cause::new(cause::UNCLEAR, text))
                }
                Ok(list) => Ok(votes(list).values().filter(|votes| **votes).count()),
                Err(why) => Err(why.clone()),
            },
            leader: self.leader,
            works: self.answers().any(|answers| answers.read.is_ok() || answers.by_quorum.is_ok()),
            is_lost: self.cluster.is_some() && !self.answers().any(has_leader),
            leaderless: leaderless.len(),
            is_poor: false,
            rows,
            changes,
            notes,
        }
    }
}

/// What an alarm warns of.
enum Told {
    NoSpace,
    Corrupt,
    Other,
}

/// A status tells alarms as `memberID:12593026477526642892 alarm:NOSPACE` (`etcdserverpb.AlarmMember`, printed).
fn complaint(line: &str) -> Option<(Id, Told)> {
    let mut words = line.split_whitespace();
    let member = words.find_map(|word| word.strip_prefix("memberID:"))?.parse().ok()?;
    let kind = match words.find_map(|word| word.strip_prefix("alarm:"))? {
        "NOSPACE" => Told::NoSpace,
        "CORRUPT" => Told::Corrupt,
        _ => Told::Other,
    };
    Some((member, kind))
}

/// Which members vote.
fn votes(list: &Members) -> BTreeMap<Id, bool> {
    list.members.iter().map(|member| (member.id, !member.is_learner)).collect()
}

/// Which ensemble the pods are of, and whether more than half of all of them say so; and whether they contradict each other.
fn cluster(facts: &Facts) -> (Option<(Id, bool)>, bool) {
    let mut told: BTreeMap<Id, usize> = BTreeMap::new();
    for seen in &facts.seen {
        if let View::Full(answers) = &seen.view {
            *told.entry(answers.status.cluster).or_default() += 1;
        }
    }
    let most = told.iter().find(|(_, many)| **many * 2 > facts.seen.len());
    match (most, told.len()) {
        (Some((id, _)), _) => (Some((*id, true)), false),
        (None, 1) => (told.keys().next().map(|id| (*id, false)), false),
        (None, many) => (None, many > 1),
    }
}

/// Whether a version is older than this one. One that cannot be read is.
fn is_before(version: &str, major: u64, minor: u64) -> bool {
    let mut parts = version.split(['.', '-', '+']).map(str::parse::<u64>);
    match (parts.next(), parts.next()) {
        (Some(Ok(a)), Some(Ok(b))) => (a, b) < (major, minor),
        _ => true,
    }
}
