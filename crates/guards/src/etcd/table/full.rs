//! The table of an ensemble whose members have a JSON gateway.

use std::collections::BTreeSet;

use admission::Cause;

use super::super::config::Config;
use super::super::facts::{Answers, Facts, Seen, View};
use super::alarms::{self, Alarms};
use super::list::{self, Pinned, Voices, is_voter, votes};
use super::namesakes::Namesakes;
use super::{Row, State, Table};
use cluster::cause;
use cluster::etcd::{Id, MemberList, Read};

/// The facts with what they have in common.
pub(super) struct Full<'f> {
    facts: &'f Facts,
    voices: Voices<'f>,
    /// Who is in the list, and whether it votes.
    list: Result<&'f MemberList, Cause>,
    leader: Option<Id>,
    term: u64,
    alarms: Alarms,
    namesakes: Namesakes<'f>,
}

impl<'f> Full<'f> {
    pub(super) fn read(facts: &'f Facts) -> Self {
        let voices = Voices::of(facts);
        let list = voices.list();
        let (term, leader) = agreed(voices, list.as_ref().ok().copied());
        Self {
            facts,
            voices,
            list,
            leader,
            term,
            alarms: Alarms::of(voices.answers()),
            namesakes: Namesakes::of(facts, voices),
        }
    }

    fn state(&self, config: &Config, seen: &Seen) -> (Option<Id>, State, Option<u64>) {
        let answers = match &seen.view {
            View::Full(answers) => answers.as_ref(),
            View::Silent(why) => return (None, State::Silent(why.clone()), None),
            // Of which ensemble it is, and in which term, it cannot say; so it vouches for nobody, itself included.
            View::Poor(..) => {
                let text = format!("{} has no JSON gateway, and others have one", seen.pod.name);
                return (None, State::Silent(Cause::new(cause::GATEWAY_OFF, text)), None);
            }
        };
        let status = &answers.status;
        let id = Some(status.member);
        match self.voices.pinned {
            Pinned::ByMost(cluster) if cluster != status.cluster => {
                let text = format!("it is of another ensemble, {:x}", status.cluster);
                let is_rival = self.voices.is_rival(answers);
                return (None, if is_rival { State::Rival(text) } else { State::Stranger(text) }, None);
            }
            Pinned::ByMost(_) => {}
            Pinned::Split => {
                let why = "no ensemble has most of the pods, so that none is counted".to_owned();
                return (id, State::Unfit(why), None);
            }
            Pinned::ByFew(_) | Pinned::Unknown => {
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
            Some(_) if self.voices.answering(status.member) > 1 => {
                State::Unfit("another pod says that it is the same member".to_owned())
            }
            Some(false) => State::Learner,
            Some(true) if self.alarms.is_corrupt(status.member) => State::Corrupt,
            Some(true) => match seen.leaving() {
                Some(why) => State::Leaving(why),
                None => self.unfit(config, seen, answers, lag).map_or(State::Healthy, State::Unfit),
            },
        };
        (id, state, lag)
    }

    /// How many entries a member is behind its leader, or behind whoever is furthest where the leader says nothing.
    fn lag(&self, answers: &Answers) -> Option<u64> {
        let leader = self.voices.answers().find(|other| Some(other.status.member) == self.leader);
        let furthest = match leader {
            Some(leader) => Some(leader.status.index),
            None => self.voices.answers().map(|other| other.status.index).max(),
        };
        let own = answers.status.applied.unwrap_or(answers.status.index);
        furthest.map(|furthest| furthest.saturating_sub(own))
    }

    /// Why a voter cannot be counted on.
    fn unfit(&self, config: &Config, seen: &Seen, answers: &Answers, lag: Option<u64>) -> Option<String> {
        let status = &answers.status;
        if self.alarms.doubt().is_some() {
            return Some("the data of the ensemble is corrupt, and nobody knows whose".to_owned());
        }
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
        if self.namesakes.is_another(&seen.pod, status.member) {
            return Some(
                "the list of members has another name and other addresses for it than its pod's".to_owned(),
            );
        }
        if status.is_learner {
            return Some("it takes itself for a learner".to_owned());
        }
        if let Some(why) = alarms::misread(answers) {
            return Some(format!("which alarms are raised cannot be understood: {}", why.text));
        }
        if !self.alarms.is_known {
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

    /// Who is of the quorum that works for certain: a read of their own came about with the leader that they follow. What they say of
    /// the leader alone may be old, as where a disk hangs.
    fn carrying(&self) -> BTreeSet<Id> {
        let Ok(list) = &self.list else { return BTreeSet::new() };
        let id = |seen: &Seen| {
            let View::Full(answers) = &seen.view else { return None };
            let Answers { status, read, by_quorum, .. } = answers.as_ref();
            let id = status.member;
            let follows = self.leader.is_some() && status.leader == self.leader && status.term == self.term;
            let is_itself = self.voices.answering(id) == 1 && !self.namesakes.is_another(&seen.pod, id);
            let reads = read.is_ok() || by_quorum.is_ok();
            (is_voter(list, id) && is_itself && follows && reads).then_some(id)
        };
        self.facts.seen.iter().filter_map(id).collect()
    }

    pub(super) fn table(self, config: &Config) -> Table {
        let mut rows: Vec<Row> = self.facts.seen.iter().map(|seen| self.row(config, seen)).collect();
        if let Ok(list) = &self.list {
            self.add_absent(list, &mut rows);
        }
        let is_pinned = matches!(self.voices.pinned, Pinned::ByMost(_));
        let name = |id: Id| {
            let row = rows.iter().find(|row| row.id == Some(id));
            row.map_or_else(|| format!("{id:x}"), |row| row.name.clone())
        };
        let answers = || self.voices.answers();
        let has_leader = |answers: &Answers| answers.status.leader.is_some();
        let told = self.list.as_ref().ok().copied().filter(|_| is_pinned).or_else(|| self.voices.unanimous());
        let leaderless: BTreeSet<Id> = answers()
            .filter(|answers| !has_leader(answers))
            .map(|answers| answers.status.member)
            .filter(|id| told.is_some_and(|list| is_voter(list, *id)))
            .collect();
        let size = super::believed(self.facts, self.list.as_ref().map_or(0, |list| list::voters(list)));
        Table {
            ensemble: self.facts.ensemble.clone(),
            voters: match &self.list {
                Ok(_) if !is_pinned => {
                    let text = "too few of its pods answer to tell which ensemble this is";
                    Err(Cause::new(cause::UNCLEAR, text))
                }
                Ok(list) => Ok(list::voters(list)),
                Err(why) => Err(why.clone()),
            },
            meant: super::meant(self.facts, &size, self.list.as_ref().map_or(0, |list| list.members.len())),
            size,
            told_voters: told.map(list::voters),
            leaderless,
            carrying: self.carrying(),
            leader: self.leader,
            works: answers().any(|answers| answers.read.is_ok() || answers.by_quorum.is_ok()),
            is_lost: answers().next().is_some() && !answers().any(has_leader),
            doubt: self.alarms.doubt(),
            is_poor: false,
            changes: self.changes(),
            notes: self.alarms.notes(name),
            rows,
        }
    }

    fn row(&self, config: &Config, seen: &Seen) -> Row {
        let (id, state, lag) = self.state(config, seen);
        Row { lag, ..Row::of(seen, id, state) }
    }

    /// Adds the members that no pod answers as.
    fn add_absent(&self, list: &MemberList, rows: &mut Vec<Row>) {
        for member in list.members.iter().filter(|member| self.voices.answering(member.id) == 0) {
            // A name proves nothing, so this is for people only: a silent pod stays one.
            let is_namesake = |row: &&mut Row| {
                matches!(row.state, State::Silent(_)) && row.id.is_none() && row.name == member.name
            };
            match rows.iter_mut().find(is_namesake) {
                Some(row) => row.id = Some(member.id),
                None => rows.push(Row::absent(member.id, &member.name)),
            }
        }
    }

    /// What is changing about the membership.
    fn changes(&self) -> Vec<String> {
        let mut changes = Vec::new();
        if let Ok(list) = &self.list {
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
        if self.voices.answers().any(|answers| answers.status.is_downgrading) {
            changes.push("a downgrade is under way".to_owned());
        }
        changes
    }
}

/// The highest term in which somebody leads, and who.
fn agreed(voices: Voices<'_>, list: Option<&MemberList>) -> (u64, Option<Id>) {
    let claims =
        || voices.answers().filter_map(|answers| Some((answers.status.term, answers.status.leader?)));
    let Some(term) = claims().map(|(term, _)| term).max() else { return (0, None) };
    let leaders: BTreeSet<Id> = claims().filter(|(t, _)| *t == term).map(|(_, leader)| leader).collect();
    // Two leaders of one term cannot be: somebody is no etcd.
    let only = (leaders.len() == 1).then(|| leaders.first().copied()).flatten();
    (term, only.filter(|id| list.is_none_or(|list| is_voter(list, *id))))
}
