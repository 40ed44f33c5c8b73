//! The members, as they are told: a table for people, a line for the audit log, a word for programs.

use std::fmt::Write as _;

use admission::one_line;

use super::super::table::{Row, State, Table};

/// Members that are told one by one; etcd advises seven.
const TOLD: usize = 20;

/// What a member does in its ensemble.
pub(in super::super) fn role(table: &Table, row: &Row) -> &'static str {
    match (&row.state, table.leads(row)) {
        (_, true) => "leader",
        (State::Learner, _) => "learner",
        (State::Silent(_) | State::Absent | State::Stranger(_) | State::Rival(_), _) => "-",
        _ => "follower",
    }
}

/// What a member is worth, for people who know which one it is.
pub(in super::super) fn health(row: &Row) -> String {
    let own = |why: &str| without(&row.name, why);
    match &row.state {
        State::Healthy => "healthy".to_owned(),
        State::Unfit(why) => format!("not healthy: {}", own(why)),
        State::Corrupt => "corrupt".to_owned(),
        State::Leaving(why) => format!("leaving: {why}"),
        State::Learner => "does not vote".to_owned(),
        State::Stranger(why) | State::Rival(why) => format!("no member: {why}"),
        State::Silent(why) => format!("silent: {}", own(&why.text)),
        State::Absent => "no pod answers as it".to_owned(),
    }
}

/// A reason without whose it is and what was asked: `etcd-2 could not be asked for its status: …`.
fn without(name: &str, why: &str) -> String {
    let asked = format!("{name} could not be asked for ");
    let Some((before, after)) = why.split_once(&asked) else { return why.to_owned() };
    after.split_once(": ").map_or_else(|| why.to_owned(), |(_, reason)| format!("{before}{reason}"))
}

/// The same for programs.
pub(in super::super) fn word(state: &State) -> &'static str {
    match state {
        State::Healthy => "Healthy",
        State::Unfit(_) => "Unfit",
        State::Corrupt => "Corrupt",
        State::Leaving(_) => "Leaving",
        State::Learner => "Learner",
        State::Stranger(_) | State::Rival(_) => "Stranger",
        State::Silent(_) => "Silent",
        State::Absent => "Absent",
    }
}

/// `etcd-1  follower  term 4  3 behind  healthy`.
pub(super) fn line(table: &Table, row: &Row) -> String {
    let role = role(table, row);
    let term = row.term.map(|term| format!("  term {term}")).unwrap_or_default();
    let lag = row.lag.map(|lag| format!("  {lag} behind")).unwrap_or_default();
    let (name, health) = (one_line(&row.name), one_line(&health(row)));
    format!("{name}  {role}{term}{lag}  {health}")
}

/// All of them, with a head, and a mark before the one that was asked about. Each line begins anew.
pub(super) fn rows(table: &Table, me: &str) -> String {
    const HEAD: [&str; 5] = ["member", "role", "term", "behind", "state"];
    let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let row = |row: &Row| {
        let (name, health) = (one_line(&row.name), one_line(&health(row)));
        (row.uid == me, [name, role(table, row).to_owned(), number(row.term), number(row.lag), health])
    };
    let told: Vec<(bool, [String; 5])> = table.rows.iter().take(TOLD).map(row).collect();
    let mut widths = HEAD.map(str::len);
    for (_, cells) in &told {
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let [name, role, term, lag, _] = widths;
    let mut out = String::new();
    let mut add = |mark: &str, cells: [&str; 5]| {
        let [own_name, own_role, own_term, own_lag, state] = cells;
        // Writing to a String cannot fail, here and below.
        let _ = write!(
            out,
            "\n{mark} {own_name:name$}  {own_role:role$}  {own_term:>term$}  {own_lag:>lag$}  {state}"
        );
    };
    add(" ", HEAD);
    for (is_me, cells) in &told {
        add(if *is_me { ">" } else { " " }, cells.each_ref().map(String::as_str));
    }
    if table.rows.len() > TOLD {
        let _ = write!(out, "\n  and {} more", table.rows.len() - TOLD);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_could_not_be_asked_is_not_named_twice() {
        for (why, told) in [
            ("etcd-2 could not be asked for its status: nothing listens", "nothing listens"),
            (
                "no linearizable read came about: etcd-2 could not be asked for a linearizable read: it hangs",
                "no linearizable read came about: it hangs",
            ),
            ("etcd-1 could not be asked for its status: x", "etcd-1 could not be asked for its status: x"),
            ("it is 7 entries behind", "it is 7 entries behind"),
        ] {
            assert_eq!(without("etcd-2", why), told);
        }
    }
}
