//! Builds the table of members without a JSON gateway, from `/health` and `/metrics`.
//!
//! These contain less:
//! - No list of members. The largest of these counts: the pods, the declared sizes, and the number of listed members, which etcd
//!   reports from 3.6 on. Without that number and without a single `StatefulSet`, the number of voters is unknown.
//! - No terms and no cluster ids. If two members report that they lead, none counts as healthy.
//! - No request to move leadership.

use admission::Cause;

use super::super::facts::{Facts, MemberView, PodFacts};
use super::{MemberState, MembershipChange, Note, Problem, Row, Table};
use cluster::cause;
use cluster::etcd::{Health, Id, MemberMetrics};

/// The report of one member.
struct Report {
    /// `server_id`, or the pod's position. Real ids are never that small.
    id: Id,
    is_leader: bool,
    has_leader: bool,
    is_learner: bool,
    /// The number of listed members.
    listed: Option<usize>,
    problem: Option<Problem>,
}

/// Builds the table.
pub(super) fn table(facts: &Facts) -> Table {
    let all = facts.pods.iter().enumerate();
    let all: Vec<(&PodFacts, Result<Report, Cause>)> = all.map(|(at, pod)| (pod, report(at, pod))).collect();
    let reports = || all.iter().filter_map(|(_, report)| report.as_ref().ok());
    let leaders: Vec<Id> = reports().filter(|report| report.is_leader).map(|report| report.id).collect();
    let leader = if let [only] = leaders[..] { Some(only) } else { None };
    let rows = all.iter().map(|(pod, report)| {
        Row::of(pod, report.as_ref().ok().map(|report| report.id), state(pod, report, leader))
    });
    let rows: Vec<Row> = rows.collect();
    let learners = reports().filter(|report| report.is_learner).count();
    let listed = reports().filter_map(|report| report.listed).max();
    let voters = if facts.sizes.replicas.is_some() || listed.is_some() {
        let members = all.len().max(facts.sizes.largest()).max(listed.unwrap_or_default());
        Ok(members - learners)
    } else {
        let text = "its members have no JSON gateway and no StatefulSet, so their number is unknown";
        Err(Cause::new(cause::UNCLEAR, text))
    };
    let known = voters.as_ref().map_or(0, |voters| *voters);
    let listed = voters.as_ref().map_or(0, |voters| voters + learners);
    let leaderless = reports().filter(|report| !report.has_leader && !report.is_learner);
    Table {
        cluster: facts.cluster.clone(),
        reported_voters: voters.as_ref().ok().copied(),
        listed_voters: voters.as_ref().ok().copied(),
        expected: facts.sizes.expected(known, listed, facts.pods.len()),
        voters,
        leaderless: leaderless.map(|report| report.id).collect(),
        quorum_members: rows
            .iter()
            .filter(|row| row.state == MemberState::Healthy)
            .filter_map(|row| row.id)
            .collect(),
        leader,
        has_working_quorum: reports().any(|report| report.problem.is_none()),
        is_leaderless: reports().next().is_some() && !reports().any(|report| report.has_leader),
        is_degraded: true,
        changes: if learners == 0 { Vec::new() } else { vec![MembershipChange::Learners(learners)] },
        notes: vec![Note::NoGateway],
        rows,
    }
}

fn report(at: usize, pod: &PodFacts) -> Result<Report, Cause> {
    match &pod.view {
        MemberView::HealthOnly(health, metrics) => from_metrics(at, &pod.pod.name, health, metrics),
        MemberView::NoResponse(why) => Err(why.clone()),
        // The table is degraded only if no member has a gateway.
        MemberView::Full(_) => Err(Cause::new(cause::UNCLEAR, "it has a JSON gateway")),
    }
}

fn from_metrics(at: usize, name: &str, health: &Health, metrics: &MemberMetrics) -> Result<Report, Cause> {
    let (Some(is_leader), Some(has_leader)) = (metrics.is_leader, metrics.has_leader) else {
        let text = format!("the metrics of {name} do not report a leader");
        return Err(Cause::new(cause::GARBAGE, text));
    };
    let busy = [
        (metrics.is_defragmenting, Problem::Defragmenting),
        (metrics.is_applying_snapshot, Problem::ApplyingSnapshot),
    ];
    let busy = busy.into_iter().find(|(is, _)| *is == Some(true)).map(|(_, problem)| problem);
    let problem = (!health.is_healthy).then(|| Problem::Health(health.reason.clone())).or(busy);
    let id = metrics.member.unwrap_or_else(|| Id::try_from(at + 1).unwrap_or(Id::MAX));
    let is_learner = metrics.is_learner.unwrap_or_default();
    Ok(Report { id, is_leader, has_leader, is_learner, listed: metrics.listed, problem })
}

fn state(pod: &PodFacts, report: &Result<Report, Cause>, leader: Option<Id>) -> MemberState {
    let report = match report {
        Ok(report) => report,
        Err(why) => return MemberState::NoResponse(why.clone()),
    };
    if report.is_learner {
        return MemberState::Learner;
    }
    if let Some(why) = pod.leaving() {
        return MemberState::Leaving(why);
    }
    match &report.problem {
        Some(problem) => MemberState::Unhealthy(problem.clone()),
        None if !report.has_leader => MemberState::Unhealthy(Problem::KnowsNoLeader),
        // The leader may be a member without a response; or two claim to lead.
        None if leader.is_none() => MemberState::Unhealthy(Problem::UnknownLeader),
        None => MemberState::Healthy,
    }
}
