//! Tests of the table with changed answers of single members.

use super::super::facts::Answers;
use super::super::fixture::now;
use super::super::pod::Pod;
use super::super::size::DeclaredSizes;
use super::*;
use cluster::cause;
use cluster::etcd::{Alarm, AlarmKind, Member, MemberList, Read, Status};

const CLUSTER: Id = 7;

/// Returns the answers of one of three healthy members.
fn answers(member: Id) -> Answers {
    let listed = |id: Id| Member { id, name: format!("etcd-{id}"), ..Member::default() };
    let list = MemberList {
        cluster: CLUSTER,
        members: (10..13).map(listed).map(|m| Member { client_urls: vec!["x".into()], ..m }).collect(),
    };
    Answers {
        status: Status {
            cluster: CLUSTER,
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

/// Returns the table of three healthy members whose answers were changed.
fn table(change: impl Fn(&mut Answers)) -> Table {
    table_with(|facts| {
        for pods in &mut facts.pods {
            if let Ok(answers) = &mut pods.view {
                change(answers);
            }
        }
    })
}

/// Returns the table of three healthy members whose facts were changed.
fn table_with(change: impl FnOnce(&mut Facts)) -> Table {
    let pods = |member: Id| PodFacts {
        pod: Pod { uid: format!("uid-{member}"), name: format!("etcd-{member}"), ..Pod::default() },
        view: Ok(Box::new(answers(member))),
        node: None,
        is_without_owner: false,
        is_updated: false,
    };
    let mut facts = Facts {
        now: now(),
        cluster: "db/etcd".to_owned(),
        pods: (10..13).map(pods).collect(),
        sizes: DeclaredSizes { replicas: Some(3), ..DeclaredSizes::default() },
        surplus: std::collections::BTreeSet::new(),
        without_owner: std::collections::BTreeSet::new(),
        scaled_away: std::collections::BTreeSet::new(),
        began: now(),
        reservation: None,
        reservation_error: None,
    };
    change(&mut facts);
    Table::of(&facts)
}

fn healthy(table: &Table) -> usize {
    table.healthy_without("")
}

fn fails<T>(code: &'static str) -> Result<T, Cause> {
    Err(Cause::new(code, code))
}

#[test]
fn alarms_are_read_from_the_list_or_from_the_status_since_3_4() {
    assert_eq!(healthy(&table(|_| {})), 3);
    // Since 3.4 the status is enough.
    assert_eq!(healthy(&table(|a| a.alarms = fails(cause::FORBIDDEN))), 3);
    let old = table(|a| (a.alarms, a.status.version) = (fails(cause::FORBIDDEN), "3.3.27".to_owned()));
    assert_eq!(healthy(&old), 0);
}

#[test]
fn alarms_that_cannot_be_parsed_are_not_ignored() {
    for code in [cause::GARBAGE, cause::NOT_ETCD] {
        let all = table(|a| a.alarms = fails(code));
        assert_eq!(healthy(&all), 0);
        assert!(
            matches!(all.rows[1].state, MemberState::Unhealthy(MemberProblem::InvalidAlarms(_))),
            "{:?}",
            all.rows[1]
        );
        // The lists of the other members count.
        let one = table(|a| {
            if a.status.member == 12 {
                a.alarms = fails(code);
            }
        });
        assert_eq!(healthy(&one), 2);
    }
}

#[test]
fn a_corruption_without_a_member_is_about_every_member() {
    for line in ["alarm:CORRUPT ", "memberID:0 alarm:CORRUPT ", "memberID:x alarm:CORRUPT"] {
        for alarms in [Ok(Vec::new()), fails(cause::TIMEOUT)] {
            let table = table(|a| (a.status.errors, a.alarms) = (vec![line.to_owned()], alarms.clone()));
            assert_eq!(healthy(&table), 0, "{line}");
            let unhealthy = MemberState::Unhealthy(MemberProblem::Corruption);
            assert!(table.rows.iter().all(|row| row.state == unhealthy), "{:?}", table.rows);
            assert_eq!(table.notes, [Note::Corruption]);
        }
    }
    let named = table(|a| a.status.errors = vec!["memberID:11 alarm:CORRUPT ".to_owned()]);
    assert_eq!((healthy(&named), &named.rows[1].state), (2, &MemberState::Corrupt));
    // Other errors are not alarms.
    assert_eq!(healthy(&table(|a| a.status.errors = vec!["etcdserver: no leader".to_owned()])), 3);
}

#[test]
fn other_alarms_without_a_member_are_reported() {
    let full = table(|a| a.alarms = Ok(vec![Alarm { member: 0, kind: AlarmKind::NoSpace }]));
    assert_eq!(healthy(&full), 3);
    assert_eq!(full.notes, [Note::NoSpace(vec![None])]);
}

#[test]
fn a_list_with_another_cluster_id_is_ignored() {
    let foreign = |list: &mut Result<MemberList, Cause>| list.as_mut().unwrap().cluster = 8;
    let all = table(|a| {
        foreign(&mut a.members);
        foreign(&mut a.by_quorum);
    });
    assert!(all.voters.is_err() && healthy(&all) == 0, "{all:?}");
    // A single foreign list changes nothing.
    let one = table(|a| {
        if a.status.member == 10 {
            foreign(&mut a.by_quorum);
            a.by_quorum.as_mut().unwrap().members.truncate(1);
        }
    });
    assert_eq!((one.voters, healthy(&table(|_| {}))), (Ok(3), 3));
}

#[test]
fn no_member_counts_while_the_list_changes() {
    let table = table(|a| {
        if a.status.member == 12 {
            drop(a.by_quorum.as_mut().unwrap().members.remove(0));
        }
    });
    let why = table.voters.as_ref().unwrap_err();
    assert!(why.text.contains("is changing") && healthy(&table) == 0, "{why:?}");
}

#[test]
fn half_of_the_voters_do_not_confirm_a_list() {
    let table = table_with(|facts| {
        let mut fourth = facts.pods[2].clone();
        fourth.pod.uid = "uid-13".into();
        fourth.pod.name = "etcd-13".into();
        facts.pods.push(fourth);
        for (at, pods) in facts.pods.iter_mut().enumerate() {
            let Ok(answers) = &mut pods.view else { continue };
            answers.status.member = 10 + at as Id;
            answers.by_quorum = fails(cause::UNSUPPORTED);
            // Two lists do not yet contain the promotion of the fourth member.
            let list = answers.members.as_mut().unwrap();
            let first = list.members[0].clone();
            list.members.push(Member { id: 13, name: "etcd-13".into(), is_learner: at >= 2, ..first });
        }
    });
    let why = table.voters.as_ref().unwrap_err();
    assert!(why.text.contains("no majority of its members agrees"), "{why:?}");
}

#[test]
fn a_member_that_reports_to_be_a_learner_does_not_count() {
    let table = table(|a| a.status.is_learner = a.status.member == 12);
    assert_eq!((healthy(&table), &table.voters), (2, &Ok(3)));
    assert_eq!(table.rows[2].state, MemberState::Unhealthy(MemberProblem::ReportsLearner));
}
