//! The table of an ensemble whose members have no JSON gateway: what `/health` and `/metrics` tell.
//!
//! They tell less. Who the members are is in neither, so that the pods are taken for the members: as many as there are, or as their
//! `StatefulSet` is to have, whichever is more; where no one set says how many, nobody knows. CommonConfig and ensemble ids are in neither
//! too: two leaders are one too many, and then nobody counts as healthy. Leadership cannot be moved.
//!
//! Only where no member tells more: beside those that have a gateway one without is silent.

use admission::Cause;

use super::facts::{Facts, Seen, View};
use super::table::{self, Row, State, Table};
use cluster::cause;
use cluster::etcd::{Health, Id, MemberMetrics};

/// What one member says, in common common_config.
struct Said {
    is_leader: bool,
    has_leader: bool,
    is_learner: bool,
    /// Why it is not well.
    ill: Option<String>,
    id: Option<Id>,
}

/// The table.
pub(super) fn table(facts: &Facts) -> Table {
    let all: Vec<(&Seen, Result<Said, Cause>)> = facts.seen.iter().map(|seen| (seen, said(seen))).collect();
    let leaders: Vec<Id> = all
        .iter()
        .enumerate()
        .filter(|(_, (_, said))| said.as_ref().is_ok_and(|said| said.is_leader))
        .map(|(at, (_, said))| identity(at, said))
        .collect();
    let leader = (leaders.len() == 1).then(|| leaders.first().copied()).flatten();
    let rows = all.iter().enumerate().map(|(at, (seen, said))| {
        let id = said.is_ok().then(|| identity(at, said));
        Row::of(seen, id, state(seen, said, leader))
    });
    let rows: Vec<Row> = rows.collect();
    let answering = || all.iter().filter_map(|(_, said)| said.as_ref().ok());
    let voting = all.iter().filter(|(_, said)| !said.as_ref().is_ok_and(|said| said.is_learner)).count();
    let learners = answering().filter(|said| said.is_learner).count();
    let wanted = facts.replicas.and_then(|replicas| usize::try_from(replicas).ok());
    let voters = match wanted {
        Some(wanted) => Ok(voting.max(wanted.saturating_sub(learners))),
        None => Err(Cause::new(
            cause::UNCLEAR,
            "its members have no JSON gateway and no StatefulSet of their own, so that nobody says how many members there are",
        )),
    };
    let leaderless = all
        .iter()
        .enumerate()
        .filter(|(_, (_, said))| said.as_ref().is_ok_and(|said| !said.has_leader && !said.is_learner));
    let size = table::believed(facts, voters.as_ref().map_or(0, |voters| *voters));
    Table {
        ensemble: facts.ensemble.clone(),
        told_voters: voters.as_ref().ok().copied(),
        meant: table::meant(facts, &size, voters.as_ref().map_or(0, |voters| voters + learners)),
        size,
        voters,
        leaderless: leaderless.map(|(at, (_, said))| identity(at, said)).collect(),
        carrying: rows.iter().filter(|row| row.state == State::Healthy).filter_map(|row| row.id).collect(),
        leader,
        works: answering().any(|said| said.ill.is_none()),
        is_lost: answering().next().is_some() && !answering().any(|said| said.has_leader),
        doubt: None,
        is_poor: true,
        changes: if learners == 0 { Vec::new() } else { vec![format!("members that do not vote yet: {learners}")] },
        notes: vec!["its members have no JSON gateway, so that only their health and metrics tell of it: members are counted by their pods, and leadership cannot be moved".to_owned()],
        rows,
    }
}

/// A name for a member of which metrics may not tell one: its place counts then, which no id is as small as.
fn identity(at: usize, said: &Result<Said, Cause>) -> Id {
    said.as_ref().ok().and_then(|said| said.id).unwrap_or_else(|| Id::try_from(at + 1).unwrap_or(Id::MAX))
}

fn said(seen: &Seen) -> Result<Said, Cause> {
    match &seen.view {
        View::Silent(why) => Err(why.clone()),
        View::Poor(health, metrics) => poor(seen, health, metrics),
        View::Full(answers) => {
            let status = &answers.status;
            Ok(Said {
                is_leader: status.leader == Some(status.member),
                has_leader: status.leader.is_some(),
                is_learner: status.is_learner,
                ill: answers.read.as_ref().err().map(|why| why.text.clone()),
                id: Some(status.member),
            })
        }
    }
}

fn poor(seen: &Seen, health: &Health, metrics: &MemberMetrics) -> Result<Said, Cause> {
    let (Some(is_leader), Some(has_leader)) = (metrics.is_leader, metrics.has_leader) else {
        let text = format!("the metrics of {} tell nothing of who leads", seen.pod.name);
        return Err(Cause::new(cause::GARBAGE, text));
    };
    let busy = [
        (metrics.is_defragmenting, "it defragments its database"),
        (metrics.is_applying_snapshot, "it applies a snapshot"),
    ];
    let busy = busy.into_iter().find(|(is, _)| *is == Some(true)).map(|(_, what)| what.to_owned());
    let reason = if health.reason.is_empty() { "/health says so" } else { health.reason.as_str() };
    let ill = (!health.is_healthy).then(|| format!("it is not healthy: {reason}")).or(busy);
    let is_learner = metrics.is_learner.unwrap_or_default();
    Ok(Said { is_leader, has_leader, is_learner, ill, id: metrics.member })
}

fn state(seen: &Seen, said: &Result<Said, Cause>, leader: Option<Id>) -> State {
    let said = match said {
        Ok(said) => said,
        Err(why) => return State::Silent(why.clone()),
    };
    if said.is_learner {
        return State::Learner;
    }
    if let Some(why) = seen.leaving() {
        return State::Leaving(why);
    }
    match &said.ill {
        Some(why) => State::Unfit(why.clone()),
        None if !said.has_leader => State::Unfit("it knows no leader".to_owned()),
        // The one that leads may be silent. Two that do are seen at once.
        None if leader.is_none() => State::Unfit("it is not clear who leads".to_owned()),
        None => State::Healthy,
    }
}
