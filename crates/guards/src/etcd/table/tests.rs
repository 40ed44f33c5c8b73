//! What becomes of single answers, where an ensemble in memory would say too much.

use super::super::facts::Answers;
use super::super::fixture::{LEAST, config, now};
use super::super::notes::Note;
use super::super::pod::Pod;
use super::*;
use cluster::cause;
use cluster::etcd::{Alarm, AlarmKind, Member, MemberList, Read, Status};

const ENSEMBLE: Id = 7;

/// A follower of three or the leader, all well.
fn answers(member: Id) -> Answers {
    let listed = |id: Id| Member { id, name: format!("etcd-{id}"), ..Member::default() };
    let list = MemberList {
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
    table_with(|facts| {
        for seen in &mut facts.seen {
            if let View::Full(answers) = &mut seen.view {
                change(answers);
            }
        }
    })
}

/// The same with another change.
fn table_with(change: impl FnOnce(&mut Facts)) -> Table {
    let seen = |member: Id| Seen {
        pod: Pod { uid: format!("uid-{member}"), name: format!("etcd-{member}"), ..Pod::default() },
        view: View::Full(Box::new(answers(member))),
        is_reserved: false,
        node: None,
        is_unmade: false,
        is_updated: false,
    };
    let mut facts = Facts {
        now: now(),
        ensemble: "db/etcd".to_owned(),
        seen: (10..13).map(seen).collect(),
        is_verified: false,
        replicas: Some(3),
        size: Size::Told(3),
        surplus: std::collections::BTreeSet::new(),
        unmade: std::collections::BTreeSet::new(),
        scaled_away: std::collections::BTreeSet::new(),
        book_unread: None,
        ends: now(),
        note: Note::default(),
        giver: None,
    };
    change(&mut facts);
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

#[test]
fn a_list_of_another_ensemble_tells_nothing_of_this_one() {
    let foreign = |list: &mut Result<MemberList, Cause>| list.as_mut().unwrap().cluster = 8;
    let all = table(|a| {
        foreign(&mut a.members);
        foreign(&mut a.by_quorum);
    });
    assert!(all.voters.is_err() && healthy(&all) == 0, "{all:?}");
    // Nor does one of them speak for others.
    let one = table(|a| {
        if a.status.member == 10 {
            foreign(&mut a.by_quorum);
            a.by_quorum.as_mut().unwrap().members.truncate(1);
        }
    });
    assert_eq!((one.voters, healthy(&table(|_| {}))), (Ok(3), 3));
}

#[test]
fn while_the_list_changes_nobody_is_counted() {
    let table = table(|a| {
        if a.status.member == 12 {
            drop(a.by_quorum.as_mut().unwrap().members.remove(0));
        }
    });
    let why = table.voters.as_ref().unwrap_err();
    assert!(why.text.contains("changes at this moment") && healthy(&table) == 0, "{why:?}");
}

#[test]
fn half_of_the_voters_are_not_enough_for_a_list_that_no_quorum_stands_behind() {
    let table = table_with(|facts| {
        let mut fourth = facts.seen[2].clone();
        fourth.pod.uid = "uid-13".into();
        fourth.pod.name = "etcd-13".into();
        facts.seen.push(fourth);
        for (at, seen) in facts.seen.iter_mut().enumerate() {
            let View::Full(answers) = &mut seen.view else { continue };
            answers.status.member = 10 + at as Id;
            answers.by_quorum = fails(cause::UNSUPPORTED);
            // Two of them have not heard that the fourth votes by now.
            let list = answers.members.as_mut().unwrap();
            let first = list.members[0].clone();
            list.members.push(Member { id: 13, name: "etcd-13".into(), is_learner: at >= 2, ..first });
        }
    });
    let why = table.voters.as_ref().unwrap_err();
    assert!(why.text.contains("no majority of its members agrees"), "{why:?}");
}

#[test]
fn a_member_that_takes_itself_for_a_learner_is_not_counted() {
    let table = table(|a| a.status.is_learner = a.status.member == 12);
    assert_eq!((healthy(&table), &table.voters), (2, &Ok(3)));
    assert!(matches!(&table.rows[2].state, State::Unfit(why) if why.contains("learner")), "{:?}", table.rows);
}

/// Three of which the last one does not answer, and another pod that says that it is that one.
fn rogue(facts: &mut Facts) {
    let mut rogue = facts.seen[2].clone();
    rogue.pod.uid = "uid-rogue".into();
    rogue.pod.name = "rogue-0".into();
    rogue.pod.address = "10.0.0.66".into();
    facts.seen[2].view = View::Silent(Cause::new(cause::TIMEOUT, "no answer"));
    facts.seen.push(rogue);
}

/// Has every list say this of its members.
fn lists(facts: &mut Facts, change: impl Fn(&mut Member)) {
    for seen in &mut facts.seen {
        if let View::Full(answers) = &mut seen.view {
            for list in [&mut answers.members, &mut answers.by_quorum] {
                list.as_mut().unwrap().members.iter_mut().for_each(&change);
            }
        }
    }
}

#[test]
fn a_pod_with_the_id_of_a_member_that_is_down_is_not_that_member() {
    let is_told = |table: &Table| {
        let row = table.row("uid-rogue").unwrap();
        matches!(&row.state, State::Unfit(why) if why.contains("another name and other addresses"))
    };
    let table = table_with(rogue);
    assert!(is_told(&table) && healthy(&table) == 2, "{:?}", table.rows);
    // Its own list says that it is, and is one of many.
    let liar = |facts: &mut Facts| {
        rogue(facts);
        let View::Full(answers) = &mut facts.seen[3].view else { return };
        for list in [&mut answers.members, &mut answers.by_quorum] {
            list.as_mut().unwrap().members[2].name = "rogue-0".into();
        }
    };
    assert!(is_told(&table_with(liar)));
    // Also where the member's own pod is not there at the moment.
    let gone = table_with(|facts| {
        liar(facts);
        drop(facts.seen.remove(2));
    });
    assert!(is_told(&gone), "{:?}", gone.rows);
    // Who was verified has a certificate of the ensemble.
    let verified = table_with(|facts| {
        rogue(facts);
        facts.is_verified = true;
    });
    assert_eq!(healthy(&verified), 3);
}

#[test]
fn members_whose_names_and_addresses_are_no_pods_are_counted_all_the_same() {
    // A Service for each, and names of somebody's own.
    let named = |member: &mut Member| {
        member.name = format!("m{}", member.id);
        member.client_urls = vec![format!("http://etcd-service-{}:2379", member.id)];
        member.peer_urls = vec![format!("http://10.96.0.{}:2380", member.id)];
    };
    assert_eq!(healthy(&table_with(|facts| lists(facts, named))), 3);
    // Told by their addresses alone, they are told: a pod of another address is none of them.
    let addressed = |facts: &mut Facts| {
        for (seen, at) in facts.seen.iter_mut().zip(10..) {
            seen.pod.address = format!("10.96.0.{at}");
        }
        lists(facts, named);
    };
    assert_eq!(healthy(&table_with(addressed)), 3);
    let table = table_with(|facts| {
        addressed(facts);
        rogue(facts);
    });
    assert_eq!(healthy(&table), 2, "{:?}", table.rows);
}
