//! The members in messages: a line for users and the audit log, a state name for programs.

use admission::{Cause, one_line};

use super::super::table::{MemberState, Row, Table};
use super::texts;
use cluster::cause;

/// Returns the role of a member.
pub(in super::super) fn role(table: &Table, row: &Row) -> &'static str {
    match &row.state {
        _ if table.leads(row) => "leader",
        MemberState::Learner => "learner",
        MemberState::NoResponse(_)
        | MemberState::NoPod
        | MemberState::NotMember
        | MemberState::OtherCluster(_) => "-",
        _ => "follower",
    }
}

/// Returns the state of a member for users, who see its name next to it.
pub(in super::super) fn health(row: &Row) -> String {
    match &row.state {
        MemberState::Healthy => "healthy".to_owned(),
        MemberState::Unhealthy(why) => format!("unhealthy: {}", texts::problem(why, Cause::reason)),
        MemberState::Corrupt => "corrupt".to_owned(),
        MemberState::Leaving(why) => format!("leaving: {}", texts::leaving(*why)),
        MemberState::Learner => "does not vote".to_owned(),
        MemberState::NotMember => "not a member: it is not in the member list".to_owned(),
        MemberState::OtherCluster(id) => {
            format!("not a member: it belongs to another etcd cluster ({id:x})")
        }
        MemberState::NoResponse(why) => format!("no response: {}", why.reason()),
        MemberState::NoPod => "no pod answers as this member".to_owned(),
    }
}

/// Returns what is wrong with the voters except one pod: `etcd-2 is down (connection refused)`.
pub(super) fn culprits(table: &Table, uid: &str) -> Option<String> {
    let others = table.rows.iter().filter(|row| row.uid != uid && row.may_vote());
    let others: Vec<&Row> = others.filter(|row| row.state != MemberState::Healthy).collect();
    let is_down = |row: &&Row| matches!(row.state, MemberState::NoResponse(_) | MemberState::NoPod);
    match others.as_slice() {
        [] => None,
        [one] => Some(format!("{} {}", one.name, problem(one))),
        [.., last] => {
            let state = if others.iter().all(is_down) { "down" } else { "not healthy" };
            let names: Vec<&str> = others.iter().map(|row| row.name.as_str()).collect();
            let first = names.get(..names.len() - 1).unwrap_or_default().join(", ");
            Some(format!("{first} and {} are {state}", last.name))
        }
    }
}

/// Returns the problem of a member as the end of a sentence.
fn problem(row: &Row) -> String {
    match &row.state {
        MemberState::NoResponse(why) => match why.code {
            cause::NOT_LISTENING => "is down (connection refused)".to_owned(),
            cause::TIMEOUT => "does not answer (timeout)".to_owned(),
            code => format!("cannot be reached ({code})"),
        },
        MemberState::Leaving(why) => format!("is leaving ({})", texts::leaving(*why)),
        MemberState::NoPod => "has no pod".to_owned(),
        _ => format!("is {}", health(row)),
    }
}

/// Returns which members did not answer: `Durward reached 1 of 3 members; etcd-0, etcd-2: no answer in 1.0 s`.
pub(super) fn unreached(table: &Table) -> Option<String> {
    let with_pod = table.rows.iter().filter(|row| row.state != MemberState::NoPod);
    let (silent, answering): (Vec<&Row>, Vec<&Row>) =
        with_pod.partition(|row| matches!(row.state, MemberState::NoResponse(_)));
    let Some(MemberState::NoResponse(why)) = silent.first().map(|row| &row.state) else { return None };
    let names = silent.iter().map(|row| row.name.as_str()).collect::<Vec<_>>().join(", ");
    let all = silent.len() + answering.len();
    let is_same = |row: &&Row| matches!(&row.state, MemberState::NoResponse(other) if other.code == why.code);
    let reason = if silent.iter().all(is_same) { why.reason() } else { "no response" };
    Some(format!("Durward reached {} of {all} members; {names}: {reason}", answering.len()))
}

/// Returns the state of a member for programs.
pub(in super::super) fn state_name(state: &MemberState) -> &'static str {
    match state {
        MemberState::Healthy => "Healthy",
        MemberState::Unhealthy(_) => "Unhealthy",
        MemberState::Corrupt => "Corrupt",
        MemberState::Leaving(_) => "Leaving",
        MemberState::Learner => "Learner",
        MemberState::NotMember | MemberState::OtherCluster(_) => "NotMember",
        MemberState::NoResponse(_) => "NoResponse",
        MemberState::NoPod => "NoPod",
    }
}

/// Returns `etcd-1  follower  term 4  3 behind  healthy`.
pub(super) fn line(table: &Table, row: &Row) -> String {
    let role = role(table, row);
    let term = row.term.map(|term| format!("  term {term}")).unwrap_or_default();
    let lag = row.lag.map(|lag| format!("  {lag} behind")).unwrap_or_default();
    let (name, health) = (one_line(&row.name), one_line(&health(row)));
    format!("{name}  {role}{term}{lag}  {health}")
}
