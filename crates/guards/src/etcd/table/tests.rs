//! What becomes of single answers, where an ensemble in memory would say too much.

use super::super::facts::Answers;
use super::super::fixture::{LEAST, config, now};
use super::super::notes::Note;
use super::super::pod::Pod;
use super::*;
use crate::world::etcd::{Alarm, AlarmKind, Member, Members, Read, Status};

const ENSEMBLE: Id = 7;

/// A follower of three or the leader, all well.
fn answers(member: Id) -> Answers {
    let listed = |id: Id| Member { id, name: format!("etcd-{id}"), ..Member::default() };
    let list = Members {
        cluster: ENSEMBLE,
        members: (10..13).map(listed).map(|m| Member { client_urls: vec!["x".into()], ..m }).collect(),
    };
    Answers {
        status: Status {
            cluster: ENSEMBLE,
            member,
            leader: Some(10),
            term: 4,
            version: "3.5.21".to_owned(),
            ..Status::default()
        },
        read: Ok(Read::Served),
        members: Ok(list.clone()),
        by_quorum: Ok(list),
        alarms: Ok(Vec::new()),
    }
}

/// The table of three such members.
fn table(change: impl Fn(&mut Answers)) -> Table {
    let seen = |member: Id| {
        let mut answers = answers(member);
        change(&mut answers);
        Seen {
            pod: Pod { uid: format!("uid-{member}"), name: format!("etcd-{member}"), ..Pod::default() },
            view: View::Full(Box::new(answers)),
            is_reserved: false,
            is_cordoned: false,
            is_updated: false,
        }
    };
    let facts = Facts {
        now: now(),
        ensemble: "db/etcd".to_owned(),
        seen: (10..13).map(seen).collect(),
        replicas: Some(3),
        scaled_away: std::collections::BTreeSet::new(),
        book_unread: None,
        ends: now(),
        note: Note::default(),
        giver: None,
    };
    Table::of(&config(LEAST), &facts)
}

fn healthy(table: &Table) -> usize {
    table.healthy_beside("")
}

fn fails<T>(code: &'static str) -> Result<T, Cause> {
    Err(Cause::new(code, code))
}

#[test]
fn alarms_are_known_by_their_list_or_by_the_status_of_a_version_that_tells_them() {
    assert_eq!(healthy(&table(|_| {})), 3);
    // Who may not ask for the list has the status, from 3.4 on.
    assert_eq!(healthy(&table(|a| a.alarms = fails(cause::FORBIDDEN))), 3);
    let old = table(|a| (a.alarms, a.status.version) = (fails(cause::FORBIDDEN), "3.3.27".to_owned()));
    assert_eq!(healthy(&old), 0);
}

#[test]
fn alarms_that_cannot_be_understood_are_not_taken_for_none() {
    for code in [cause::GARBAGE, cause::NOT_ETCD] {
        let all = table(|a| a.alarms = fails(code));
        assert_eq!(healthy(&all), 0);
        assert!(
            matches!(&all.rows[1].state, State::Unfit(why) if why.contains("alarms")),
            "{:?}",
            all.rows[1]
        );
        // Whose answer is one is believed.
        let one = table(|a| {
            if a.status.member == 12 {
                a.alarms = fails(code);
            }
        });
        assert_eq!(healthy(&one), 2);
    }
}

#[test]
fn a_status_that_complains_of_corrupt_data_and_names_nobody_is_about_everybody() {
    for line in ["alarm:CORRUPT ", "memberID:0 alarm:CORRUPT ", "memberID:x alarm:CORRUPT"] {
        for alarms in [Ok(Vec::new()), fails(cause::TIMEOUT)] {
            let table = table(|a| (a.status.errors, a.alarms) = (vec![line.to_owned()], alarms.clone()));
            assert_eq!(healthy(&table), 0, "{line}");
            assert!(table.rows.iter().all(|row| matches!(row.state, State::Unfit(_))), "{:?}", table.rows);
            assert!(table.notes.iter().any(|note| note.contains("alarm CORRUPT")), "{:?}", table.notes);
        }
    }
    let named = table(|a| a.status.errors = vec!["memberID:11 alarm:CORRUPT ".to_owned()]);
    assert_eq!((healthy(&named), &named.rows[1].state), (2, &State::Corrupt));
    // Nothing that etcd complains of beside alarms is one.
    assert_eq!(healthy(&table(|a| a.status.errors = vec!["etcdserver: no leader".to_owned()])), 3);
}

#[test]
fn an_alarm_without_a_member_that_is_none_of_data_is_told() {
    let full = table(|a| a.alarms = Ok(vec![Alarm { member: 0, kind: AlarmKind::NoSpace }]));
    assert_eq!(healthy(&full), 3);
    assert!(full.notes[0].contains("alarm NOSPACE of no member by name"), "{:?}", full.notes);
}
