//! The members in messages: a table for users, a line for the audit log, a state name for programs.

use std::fmt::Write as _;

use admission::one_line;

use super::super::table::{MemberState, Row, Table};

/// Members in a message at most. etcd recommends seven.
const MAX_ROWS: usize = 20;

/// Returns the role of a member.
pub(in super::super) fn role(table: &Table, row: &Row) -> &'static str {
    match &row.state {
        _ if table.leads(row) => "leader",
        MemberState::Learner => "learner",
        MemberState::NoResponse(_)
        | MemberState::NoPod
        | MemberState::NotMember(_)
        | MemberState::OtherCluster(_) => "-",
        _ => "follower",
    }
}

/// Returns the state of a member for users, who see its name next to it.
pub(in super::super) fn health(row: &Row) -> String {
    let reason = |why: &str| without_name(&row.name, why);
    match &row.state {
        MemberState::Healthy => "healthy".to_owned(),
        MemberState::Unhealthy(why) => format!("not healthy: {}", reason(why)),
        MemberState::Corrupt => "corrupt".to_owned(),
        MemberState::Leaving(why) => format!("leaving: {why}"),
        MemberState::Learner => "does not vote".to_owned(),
        MemberState::NotMember(why) | MemberState::OtherCluster(why) => format!("no member: {why}"),
        MemberState::NoResponse(why) => format!("silent: {}", reason(&why.text)),
        MemberState::NoPod => "no pod answers as it".to_owned(),
    }
}

/// Returns a reason without the member and the question: `etcd-2 could not be asked for its status: …`.
fn without_name(name: &str, why: &str) -> String {
    let asked = format!("{name} could not be asked for ");
    let Some((before, after)) = why.split_once(&asked) else { return why.to_owned() };
    after.split_once(": ").map_or_else(|| why.to_owned(), |(_, reason)| format!("{before}{reason}"))
}

/// Returns the state of a member for programs.
pub(in super::super) fn state_name(state: &MemberState) -> &'static str {
    match state {
        MemberState::Healthy => "Healthy",
        MemberState::Unhealthy(_) => "Unhealthy",
        MemberState::Corrupt => "Corrupt",
        MemberState::Leaving(_) => "Leaving",
        MemberState::Learner => "Learner",
        MemberState::NotMember(_) | MemberState::OtherCluster(_) => "NotMember",
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

/// Returns the members as lines with a header. The line of the pod `uid` is marked. Each line starts with a line break.
pub(super) fn rows(table: &Table, uid: &str) -> String {
    const HEADER: [&str; 5] = ["member", "role", "term", "behind", "state"];
    let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let cells = |row: &Row| {
        let (name, health) = (one_line(&row.name), one_line(&health(row)));
        let mark = if row.uid == uid { ">" } else { " " };
        (mark, [name, role(table, row).to_owned(), number(row.term), number(row.lag), health])
    };
    let mut lines = vec![(" ", HEADER.map(str::to_owned))];
    lines.extend(table.rows.iter().take(MAX_ROWS).map(cells));
    let width = |at: usize| {
        lines.iter().filter_map(|(_, cells)| cells.get(at)).map(|cell| cell.chars().count()).max()
    };
    let [name_width, role_width, term_width, lag_width] = [0, 1, 2, 3].map(|at| width(at).unwrap_or(0));
    let mut out = String::new();
    for (mark, [name, role, term, lag, state]) in &lines {
        // Writing to a String cannot fail, here and below.
        let _ = write!(
            out,
            "\n{mark} {name:name_width$}  {role:role_width$}  {term:>term_width$}  {lag:>lag_width$}  {state}"
        );
    }
    if table.rows.len() > MAX_ROWS {
        let _ = write!(out, "\n  and {} more", table.rows.len() - MAX_ROWS);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_does_not_repeat_the_name_of_its_member() {
        for (why, reason) in [
            ("etcd-2 could not be asked for its status: nothing listens", "nothing listens"),
            (
                "no linearizable read came about: etcd-2 could not be asked for a linearizable read: it hangs",
                "no linearizable read came about: it hangs",
            ),
            ("etcd-1 could not be asked for its status: x", "etcd-1 could not be asked for its status: x"),
            ("it is 7 entries behind", "it is 7 entries behind"),
        ] {
            assert_eq!(without_name("etcd-2", why), reason);
        }
    }
}
